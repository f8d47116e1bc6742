# SPDX-License-Identifier: BSD-2-Clause
"""Doorbells of launch queues: what they can move."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.launch.records import SETTINGS
from hw.launch.tails import TAIL_BITS, Tails

from .property import Property

__all__ = ["Doorbells"]


class Doorbells(Property):
    """A tail moves forward only, by a doorbell of its queue and generation, and within its ring.

    Each such doorbell moves it; one that is further ahead, by half of all numbers at most, ends the
    queue; all others change nothing, and are counted if they are of another generation or find the
    queue not armed. Followed is any queue. Assumed: the tickets that end and complete were rung,
    one at a time; a ring has 8 places at least, and its size changes with the first ticket only.
    """

    def __init__(self):
        super().__init__(Tails(2))

    def _state(self, m):
        block = self.block
        queue = self.any(m, 1, "queue")
        settings = SETTINGS(Mux(queue, *(Value.cast(each) for each in reversed(block.settings))))
        head, kept = (Mux(queue, *reversed(each)) for each in (block.head, block.tail))
        load, served = block.load.bit_select(queue, 1), block.queue == queue
        #: of the tail, only the lower bits are kept
        tail = Signal(16)
        #: tickets without a record that have been started
        started = (block.ticket - head)[:TAIL_BITS]
        level = Mux(queue, self.inside("level1"), self.inside("level0"))
        m.d.comb += [
            tail.eq(head + Mux(level, 0, (kept - head)[:TAIL_BITS])),
            Assert(~served | (block.waits == ((tail - head)[:16] != started))),
        ]
        completes, oldest = self.free(1, "completes"), Signal(16)
        first = self.free(16, "first")
        with m.If(load):
            m.d.sync += oldest.eq(first)
        with m.Elif(completes):
            m.d.sync += oldest.eq(head + 1)
        mask = settings.mask
        m.d.comb += [
            Assume(head == oldest),
            Assume(~completes | (head != tail)),
            Assume(((mask & (mask + 1)) == 0) & (mask >= 7)),
            Assume(~self.started(m) | self.past(m, load) | (mask == self.past(m, mask))),
        ]

        bell, most = block.doorbell.payload, mask + 1
        used, ahead = Signal(16), Signal(16)
        rung, moves, over = Signal(), Signal(), Signal()
        m.d.comb += [
            used.eq(tail - head),
            ahead.eq(bell.word.tail - head),
            rung.eq(
                block.doorbell.valid
                & (bell.queue == queue)
                & settings.armed
                & (bell.word.generation == settings.generation)
            ),
            moves.eq(rung & (ahead > used) & (ahead <= most)),
            over.eq(rung & (ahead > most) & (ahead <= 1 << 15)),
            Assert(used <= most),
            Assert(block.moved.bit_select(queue, 1) == moves),
            Assert(block.over.bit_select(queue, 1) == over),
        ]
        following = Mux(load, first, Mux(moves, bell.word.tail, tail))
        m.d.comb += Assume(~served | (started <= (self.past(m, following) - head)[:16]))
        ignored = block.doorbell.valid & bell.counts & (bell.queue == queue) & ~rung
        counted = self.past(m, block.ignored + (ignored & (block.ignored != 255)))
        m.d.comb += [
            Assert(tail == self.past(m, following)),
            Assert(~self.past(m, bell.queue == queue) | (block.ignored == counted)),
        ]
        self.cover(
            m,
            (used == most) & (tail < head) & (mask == 255),
            over & (used == most),
            moves & (ahead < bell.word.tail),
            block.ignored == 3,
        )
