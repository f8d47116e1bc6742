# SPDX-License-Identifier: BSD-2-Clause
"""The start of a ticket's runs: the first descriptor of each, and the start itself."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from .records import ROW_BITS, SLOT_BITS, slot_row
from .runs import DESCRIPTOR_WORDS

__all__ = ["GRANT_TIMEOUT", "START_TIMEOUT", "RunStart"]

#: Bits of a word's number in its descriptor.
_WORD_BITS = exact_log2(DESCRIPTOR_WORDS)

#: Cycles to wait for the grant of a free channel, and for the start of a run.
GRANT_TIMEOUT, START_TIMEOUT = 3, 15


class RunStart(wiring.Component):
    """Has the channels of a ticket begin, one after the other: a pair's H2C channel, then C2H's.

    One that takes a packet begins with two descriptors: that of its slot, and of the slot behind.
    Not before all of them are granted, or `ready` for a run behind others. If that, or the start,
    does not come within some cycles, it is given up: another queue's turn comes first. Behind
    others, a pair's C2H channel is reserved when H2C begins: so software's run cannot come between.

    Parameters
    ----------
    h2c, c2h, pairs : int
    packets : bool
        Slots may be for packets.

    Members
    -------
    active : In(1), slot : In(SLOT_BITS), pair : In(1)
        High up to the last cycle: begin the channels of this slot; a pair's second one has the slot
        behind it.
    follows : In(1)
        Others are under way, of the same channel or pair.
    receives : In(1), absent : In(1)
        It takes a packet; and there is none: as long as it has not begun, it does not.
    used, granted, ready, pushed, started : In, target, number, push, start, reserve, stop : Out
        As at `hw.launch.runs.Runs`.
    grants : In(h2c + c2h)
        The channels that are granted.
    row : Out(ROW_BITS)
        The table's row with the word of the next cycle.
    flush : Out(pairs)
        Flush these pairs, of which both channels are granted.
    done, begun : Out(1)
        This is the last cycle: all have begun, or it is given up; and one has begun.
    """

    def __init__(self, *, h2c: int, c2h: int, pairs: int, packets: bool = False):
        self._h2c, self._pairs, self._packets = h2c, pairs, packets
        channels = h2c + c2h
        words = DESCRIPTOR_WORDS << packets
        super().__init__(
            {
                "active": In(1),
                "slot": In(SLOT_BITS),
                "pair": In(1),
                "follows": In(1),
                "receives": In(1),
                "absent": In(1),
                "used": In(channels),
                "granted": In(1),
                "ready": In(1),
                "grants": In(channels),
                "pushed": In(1),
                "started": In(1),
                "target": Out(channels),
                "number": Out(exact_log2(words)),
                "push": Out(1),
                "start": Out(1),
                "reserve": Out(channels),
                "stop": Out(1),
                "row": Out(ROW_BITS),
                "flush": Out(pairs),
                "done": Out(1),
                "begun": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        #: the second channel of a pair
        half = Signal()
        #: its descriptor is pushed
        starts = Signal()
        cycles = Signal(range(START_TIMEOUT + 1))
        ready = Signal()
        #: the run of this channel has begun, or does in this cycle
        began = Signal()
        begins = Signal()
        number, of_h2c = self.number, (1 << self._h2c) - 1
        #: the word of the next cycle; and that of this one is of the last descriptor
        following, last = Signal.like(number), Const(1)
        m.d.comb += following.eq(number + self.pushed)
        #: it is of the slot behind
        behind = half
        if self._packets:
            last = ~self.receives | number[-1]
            behind = half | following[-1]
            with m.If(~self.receives):
                m.d.comb += following[-1].eq(0)
        side = Mux(half, ~of_h2c, of_h2c)
        m.d.comb += [
            self.target.eq(Mux(self.pair, self.used & side, self.used)),
            ready.eq(Mux(self.follows, self.ready | began, self.granted & (~self.absent | began))),
            begins.eq(began | self.started),
            self.begun.eq(self.done & (half | begins)),
        ]
        with m.If(half):
            m.d.comb += ready.eq((self.grants & self.target).any())
        with m.If(self.start & self.pair & self.follows & ~half):
            m.d.comb += self.reserve.eq(self.used & ~self.target)
        m.d.sync += [cycles.eq(cycles + 1), began.eq(begins)]
        with m.If(~self.active):
            m.d.sync += [half.eq(0), starts.eq(0), number.eq(0), cycles.eq(0), began.eq(0)]
        with m.Elif(~starts):
            of_slot = Cat(self.slot[0] | behind, self.slot[1:])
            m.d.comb += self.row.eq(slot_row(of_slot, following[:_WORD_BITS] | Const(0, 3)))
            flush = self.pair & ~half & self.granted & ~self.follows
            for index in range(self._pairs):
                m.d.comb += self.flush[index].eq(flush & self.used[index])
            with m.If(ready):
                # The pair of a copy has to be flushed first, but for one behind another.
                at_once = ~self.pair | self.follows
                m.d.comb += [self.push.eq(1), self.start.eq(at_once & ~began & last)]
                m.d.sync += [number.eq(following), cycles.eq(0)]
                m.d.sync += starts.eq(self.pushed & number[:_WORD_BITS].all() & last)
            with m.Elif(cycles == GRANT_TIMEOUT):
                m.d.comb += [self.stop.eq(half), self.done.eq(1)]
        with m.Else():
            other = Cat(Const(1, 1), self.slot[1:])
            m.d.comb += [
                self.row.eq(slot_row(other, "descriptor")),
                # What begins before the start is given up shows in time.
                self.start.eq((cycles != START_TIMEOUT) & ~began & ~self.absent),
            ]
            with m.If(begins & self.pair & ~half):
                m.d.sync += [half.eq(1), starts.eq(0), cycles.eq(0), began.eq(0)]
            with m.Elif(begins | (cycles == START_TIMEOUT)):
                m.d.comb += [self.stop.eq(~begins), self.done.eq(1)]
        return m
