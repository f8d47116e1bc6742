# SPDX-License-Identifier: BSD-2-Clause
"""In which page of memory the block of descriptors of each channel is."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .plan import PAGE_BITS
from .tables import ChannelTable

__all__ = ["BlockPages"]

#: Bits of a page's number that one is added to at a time.
_QUARTER = PAGE_BITS // 4


class BlockPages(wiring.Component):
    """The numbers of pages. To one of them one is added in four cycles.

    That is rare, so it is done by quarters: the lowest one is written back behind the others, until
    all have been in its place. A carry through all of them would be the critical path.

    Parameters
    ----------
    channels : int

    Members
    -------
    channel : In(range(channels)), page : Out
        The page of this channel's block; nonsense while one is added.
    write : In(1), set : In(1), value : In
        Another page for it from the next cycle on: this one if `set`, else a quarter is added to.
    first : In(1)
        The next quarter is the first one.
    last : Out(1)
        The next quarter is the last one.
    """

    def __init__(self, channels: int):
        self._channels = channels
        super().__init__(
            {
                "channel": In(range(channels)),
                "page": Out(PAGE_BITS),
                "write": In(1),
                "set": In(1),
                "value": In(PAGE_BITS),
                "first": In(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = ChannelTable(PAGE_BITS, self._channels)
        carry, quarters = Signal(), Signal(range(4))
        low = self.page[:_QUARTER] + (self.first | carry)
        m.d.comb += [
            table.channel.eq(self.channel),
            table.where.eq(self.channel),
            table.write.eq(self.write),
            table.data.eq(Mux(self.set, self.value, Cat(self.page[_QUARTER:], low[:_QUARTER]))),
            self.page.eq(table.value),
            self.last.eq(quarters == 2),
        ]
        m.d.sync += [carry.eq(low[_QUARTER]), quarters.eq(Mux(self.first, 0, quarters + 1))]
        return m
