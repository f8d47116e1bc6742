# SPDX-License-Identifier: BSD-2-Clause
"""The judgement of doorbells: how far a queue's ring is filled."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .records import DEPTH_BITS, Doorbell

__all__ = ["TailTracker"]


class TailTracker(wiring.Component):
    """Follows the tail of one queue by the doorbells that arrive, in whatever order.

    Tails count cyclically. One that is behind, or equal, changes nothing, so that doorbells may be
    merged, repeated and reordered. One with another generation is ignored and counted. One that is
    more than the ring's depth ahead of the oldest ticket ends the queue.

    Members
    -------
    doorbell : In(stream of Doorbell, always ready)
    armed : In(1), generation : In(16), depth : In(range(DEPTH_BITS + 1)), first : In(16)
        Of the queue, `first` the lower half of its first ticket: the tail while not `armed`.
    head : In(16)
        Lower half of the oldest ticket that is not completed.
    tail : Out(16)
        From the cycle after the doorbell.
    over : Out(1)
        High for a cycle: a tail was too far ahead. The tail stays as it was.
    ignored : Out(16)
        Doorbells of another generation, or to a queue that is not armed; stays at its largest
        value.
    """

    doorbell: In(stream.Signature(Doorbell, always_ready=True))
    armed: In(1)
    generation: In(16)
    depth: In(range(DEPTH_BITS + 1))
    first: In(16)
    head: In(16)
    tail: Out(16)
    over: Out(1)
    ignored: Out(16)

    def elaborate(self, platform):
        m = Module()
        word = self.doorbell.payload
        ours, ahead, filled = Signal(), Signal(16), Signal(16)
        m.d.comb += [
            ours.eq(self.armed & (word.generation == self.generation) & (word.generation != 0)),
            ahead.eq(word.tail - self.head),
            filled.eq(self.tail - self.head),
        ]
        with m.If(self.doorbell.valid):
            with m.If(~ours):
                with m.If(~self.ignored.all()):
                    m.d.sync += self.ignored.eq(self.ignored + 1)
            # The upper half of all distances is behind.
            with m.Elif(~ahead[-1]):
                m.d.comb += self.over.eq(ahead > (1 << self.depth))
                with m.If(~self.over & (ahead > filled)):
                    m.d.sync += self.tail.eq(word.tail)
        with m.If(~self.armed):
            m.d.sync += self.tail.eq(self.first)
        return m
