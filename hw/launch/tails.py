# SPDX-License-Identifier: BSD-2-Clause
"""The judgement of doorbells: how far the rings of the queues are filled."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .records import DOORBELL, SETTINGS

__all__ = ["Tails", "ring_of"]


def ring_of(queues: int) -> data.StructLayout:
    """A doorbell, the queue that it is for, and whether it counts if it is ignored."""
    return data.StructLayout({"word": DOORBELL, "queue": range(queues), "counts": 1})


class Tails(wiring.Component):
    """Follows the tail of each queue by the doorbells that arrive, in whatever order.

    Tails count cyclically. One that is behind, or equal, changes nothing, so that doorbells may be
    merged, repeated and reordered. One with another generation is ignored. One that is more than
    the ring's depth ahead of the oldest ticket, but by half of all numbers at most, ends the queue.

    Parameters
    ----------
    queues : int

    Members
    -------
    doorbell : In(stream of `ring_of`, always ready)
    settings : In(SETTINGS), one for each queue
    load : In(queues), first : In(16)
        The tail of these queues becomes `first`.
    head : In(16), one for each queue
        Lower half of the oldest ticket that is not completed.
    tail : Out(16), one for each queue
        From the cycle after the doorbell.
    moved, over : Out(queues)
        In the cycle of the doorbell: the tail moves; the tail was too far ahead, and stays.
    woken : Out(queues)
        The tail moves by one, and was at `head`: the queue had nothing to do.
    ignored : Out(8)
        Doorbells that count, but are of another generation, or for a queue that is not armed; stays
        at its largest value.
    """

    def __init__(self, queues: int):
        self._queues = queues
        super().__init__(
            {
                "doorbell": In(stream.Signature(ring_of(queues), always_ready=True)),
                "settings": In(SETTINGS).array(queues),
                "load": In(queues),
                "first": In(16),
                "head": In(16).array(queues),
                "tail": Out(16).array(queues),
                "moved": Out(queues),
                "over": Out(queues),
                "woken": Out(queues),
                "ignored": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word, number = self.doorbell.payload.word, self.doorbell.payload.queue
        settings, head, tail = Signal(SETTINGS), Signal(16), Signal(16)
        with m.Switch(number):
            for queue in range(self._queues):
                with m.Case(queue):
                    m.d.comb += [
                        settings.eq(self.settings[queue]),
                        head.eq(self.head[queue]),
                        tail.eq(self.tail[queue]),
                    ]
        ours, inside, moved, over = Signal(), Signal(), Signal(), Signal()
        #: entries of the ring that are used, less 1: all ones if none is
        used, further = Signal(16), Signal(16)
        m.d.comb += [
            ours.eq(settings.armed & (word.generation == settings.generation)),
            used.eq(word.tail + ~head),
            further.eq(word.tail - tail),
            inside.eq(self.doorbell.valid & ours & ~used[-1]),
            over.eq(inside & (used[8:-1].any() | (used[:8] & ~settings.mask).any())),
            moved.eq(inside & ~over & ~further[-1] & further.any()),
            self.moved.eq(moved << number),
            self.over.eq(over << number),
            self.woken.eq((moved & ~used.any()) << number),
        ]
        counts = self.doorbell.valid & self.doorbell.payload.counts & ~ours
        with m.If(counts & ~self.ignored.all()):
            m.d.sync += self.ignored.eq(self.ignored + 1)
        for queue, each in enumerate(self.tail):
            with m.If(self.load[queue]):
                m.d.sync += each.eq(self.first)
            with m.Elif(self.moved[queue]):
                m.d.sync += each.eq(word.tail)
        return m
