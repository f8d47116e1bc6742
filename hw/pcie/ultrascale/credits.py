# SPDX-License-Identifier: BSD-2-Clause
"""How many non-posted requests of the host may come, and for how many of ours there is room."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SHOWN_LATE", "NonPostedCredits", "ReadRoom"]

#: Requests that may still come after the core has said that it wants no more, as the seam has it.
_MOST = 2
#: Cycles after which the block shows a read that it has taken. No document has the number.
SHOWN_LATE = 8


class NonPostedCredits(wiring.Component):
    """Gives the block credits for non-posted requests, so that two at most are under way.

    The block holds back non-posted requests for which it has no credit, and lets writes pass.

    Members
    -------
    ok : In(1)
        As `target_np_ok` of the seam.
    arrives : In(1)
        The core takes the first beat of such a request.
    request : Out(1)
        For a cycle: another may come.
    """

    ok: In(1)
    arrives: In(1)
    request: Out(1)

    def elaborate(self, platform):
        m = Module()
        granted = Signal(range(_MOST + 1))
        m.d.comb += self.request.eq(self.ok & (granted != _MOST))
        m.d.sync += granted.eq(granted + self.request - self.arrives)
        return m


class ReadRoom(wiring.Component):
    """What the block shows as room for reads, less the reads that it may not show yet.

    These are the ones in the adapter, which the block may keep waiting, and those that it has taken
    in the last `SHOWN_LATE` cycles.

    Members
    -------
    takes : In(1)
        The adapter takes a read.
    leaves : In(1)
        The block takes the last beat of a read.
    shown : In(8)
        What the block shows.
    room : Out(8)
        From the cycle after `takes` on without that read.
    """

    takes: In(1)
    leaves: In(1)
    shown: In(8)
    room: Out(8)

    def elaborate(self, platform):
        m = Module()
        left = Signal(SHOWN_LATE)
        #: a read takes two cycles at the seam, and the adapter has room for less than eight
        hidden = Signal(range(8 + SHOWN_LATE))
        m.d.sync += [
            left.eq(Cat(self.leaves, left)),
            hidden.eq(hidden + self.takes - left[-1]),
        ]
        m.d.comb += self.room.eq(Mux(self.shown > hidden, self.shown - hidden, 0))
        return m
