# SPDX-License-Identifier: BSD-2-Clause
"""The judgement of doorbells: how far the rings of the queues are filled."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .records import DOORBELL, LEAST_BITS, SETTINGS

__all__ = ["TAIL_BITS", "Tails", "ring_of"]

#: Bits that tell a tail from all others up to 256 ahead of the oldest ticket, and from that.
TAIL_BITS = 9


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
    load : In(queues)
        The head of these queues changes to any number, and the tail with it.
    head : In(16), one for each queue
        Lower half of the oldest ticket that has no record.
    queue : In(range(queues)), ticket : In(TAIL_BITS), waits : Out(1)
        Lower bits of this queue's next ticket to be started; it was rung. From the cycle after the
        doorbell.
    tail : Out(TAIL_BITS), one for each queue
        Lower bits of the tail, if that is ahead of `head`.
    moved, over : Out(queues)
        In the cycle of the doorbell: the tail moves; the tail was too far ahead, and stays.
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
                "head": In(16).array(queues),
                "queue": In(range(queues)),
                "ticket": In(TAIL_BITS),
                "waits": Out(1),
                "tail": Out(TAIL_BITS).array(queues),
                "moved": Out(queues),
                "over": Out(queues),
                "ignored": Out(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        word, number = self.doorbell.payload.word, self.doorbell.payload.queue
        #: the tail is the head, whatever is kept of it
        level = [Signal(name=f"level{queue}", init=1) for queue in range(self._queues)]
        head, tail, mask = Signal(16), Signal(TAIL_BITS), Signal(8)
        ours, none = Signal(), Signal()
        with m.Switch(number):
            for queue, settings in enumerate(self.settings):
                with m.Case(queue):
                    m.d.comb += [
                        ours.eq(settings.armed & (word.generation == settings.generation)),
                        mask.eq(settings.mask),
                        head.eq(self.head[queue]),
                        tail.eq(self.tail[queue]),
                        none.eq(level[queue]),
                    ]
        inside, moved, over = Signal(), Signal(), Signal()
        #: entries of the ring that are used, and that are new, less 1: negative if there is none.
        #: Both the old tail and one that is not `over` are 0 to 256 ahead of the head.
        used, new = Signal(16), Signal(TAIL_BITS)
        m.d.comb += [
            used.eq(word.tail + ~head),
            new.eq(word.tail + ~tail),
            inside.eq(self.doorbell.valid & ours & ~used[-1]),
            over.eq(inside & (used[8:-1].any() | (used[LEAST_BITS:8] & ~mask[LEAST_BITS:]).any())),
            moved.eq(inside & ~over & (none | ~new[-1])),
            self.moved.eq(moved << number),
            self.over.eq(over << number),
        ]
        counts = self.doorbell.valid & self.doorbell.payload.counts & ~ours
        with m.If(counts & ~self.ignored.all()):
            m.d.sync += self.ignored.eq(self.ignored + 1)
        kept, at_head = Array(self.tail)[self.queue], Array(level)[self.queue]
        m.d.comb += self.waits.eq(~at_head & (kept != self.ticket))
        for queue, each in enumerate(self.tail):
            with m.If(self.moved[queue]):
                m.d.sync += [each.eq(word.tail), level[queue].eq(0)]
            with m.If(self.load[queue]):
                m.d.sync += level[queue].eq(1)
        return m
