# SPDX-License-Identifier: BSD-2-Clause
"""State of channels of which one is looked at in a cycle."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ChannelTable"]


class ChannelTable(wiring.Component):
    """A value for each channel, in one memory.

    Parameters
    ----------
    shape : ShapeLike
    channels : int

    Members
    -------
    channel : In(range(channels)), value : Out(shape)
        The value of this channel, in the same cycle.
    write : In(1), where : In(range(channels)), data : In(shape)
        Another value for this one, from the next cycle on.
    """

    def __init__(self, shape, channels: int):
        self._shape, self._depth = shape, 1 << ceil_log2(channels)
        super().__init__(
            {
                "channel": In(range(channels)),
                "value": Out(shape),
                "write": In(1),
                "where": In(range(channels)),
                "data": In(shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=self._shape, depth=self._depth, init=[])
        read, write = memory.read_port(domain="comb"), memory.write_port()
        m.d.comb += [
            read.addr.eq(self.channel),
            self.value.eq(read.data),
            write.addr.eq(self.where),
            write.data.eq(self.data),
            write.en.eq(self.write),
        ]
        return m
