# SPDX-License-Identifier: BSD-2-Clause
"""Queues: the one that all blocks use, and the room that two of them see to."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.parts import queue as parts
from hw.registers.completer import QUEUE_DEPTH, QUEUE_RESERVE, Completer
from hw.seam import BUS_WIDTH, TargetKind
from hw.write.writer import DEPTH, Writer

from .property import Property

__all__ = ["Queue", "ReadQueue", "WideReadQueue", "WideWriteQueues", "WriteQueues"]


class Queue(Property):
    """What goes into a queue comes out once, in its order, unchanged; it never jams.

    Followed is any one entry, by how many are ahead of it.
    """

    reach = 2 * QUEUE_DEPTH + 2

    def __init__(self):
        super().__init__(parts.Queue(8, QUEUE_DEPTH))

    def _state(self, m):
        block, inside = self.block, self.inside
        follow = self.free(1, "follow")
        into, out = block.i.valid & block.i.ready, block.o.valid & block.o.ready
        length, ahead = Signal(range(QUEUE_DEPTH + 1)), Signal(range(QUEUE_DEPTH + 1))
        held, value = Signal(), Signal(8)
        m.d.sync += length.eq(length + into - out)
        with m.If(held & out):
            m.d.sync += [ahead.eq(ahead - 1), held.eq(ahead != 0)]
        with m.If(into & follow & ~held):
            m.d.sync += [held.eq(1), ahead.eq(length - out), value.eq(block.i.payload)]
        with m.If(held & (ahead == 0)):
            m.d.comb += [Assert(block.o.valid), Assert(block.o.payload == value)]
        produce, consume = inside("fifo.produce"), inside("fifo.consume")
        place = (consume + ahead)[: len(consume)]
        m.d.comb += [
            Assert(block.i.ready == (length != QUEUE_DEPTH)),
            Assert(block.o.valid == (length != 0)),
            # What is inside.
            Assert(inside("fifo.level") == length),
            Assert(length <= QUEUE_DEPTH),
            Assert(~held | (ahead < length)),
            Assert((produce - consume)[: len(consume)] == length[: len(consume)]),
            Assert(~held | (inside.word("fifo.storage", place) == value)),
        ]
        self.cover(m, held & (ahead == 0) & out & self.past(m, length == QUEUE_DEPTH))


class ReadQueue(Property):
    """The queue of the host's reads has room for each one that comes; none overruns it.

    Assumed: once `target_np_ok` is low, as many more come as the seam allows, and those that are
    on their way through the adapter.
    """

    WIDTH = 64
    depth = 3
    reach = 2 * QUEUE_DEPTH + 6

    def __init__(self):
        super().__init__(Completer(width=self.WIDTH))

    def _state(self, m):
        block, queue = self.block, self.inside.part("queue")
        header = block.target.payload.header
        asks = (
            block.target.valid
            & block.target.ready
            & block.target.payload.first
            & ((header.kind == TargetKind.READ) | (header.kind == TargetKind.OTHER))
        )
        late = Signal(range(QUEUE_RESERVE + 1))
        m.d.comb += [
            Assume(block.target_np_ok | ~asks | (late < QUEUE_RESERVE)),
            # Two packets do not follow each other without a cycle in between.
            Assume(~(asks & self.past(m, asks))),
        ]
        m.d.sync += late.eq(Mux(block.target_np_ok, 0, late + asks))
        if self.WIDTH > BUS_WIDTH:
            target = block.target
            waits = self.past(m, target.valid & ~target.ready)
            before = self.past(m, target.payload)
            m.d.comb += [
                Assume(~waits | (target.valid & (target.payload.as_value() == before))),
                # What is inside.
                Assert(waits | (self.inside("narrower.index") == 0)),
            ]
        level = self.inside("queue.level")
        m.d.comb += [
            Assert(queue.i.valid == asks),
            Assert(~queue.i.valid | queue.i.ready),
            # What is inside.
            Assert(~block.target_np_ok | (level <= QUEUE_DEPTH - QUEUE_RESERVE)),
            Assert(block.target_np_ok | (level <= QUEUE_DEPTH - QUEUE_RESERVE + late)),
        ]
        self.cover(m, level == QUEUE_DEPTH)


class WideReadQueue(ReadQueue):
    """The same at 256 bits, where a beat waits while the one before is divided into words.

    Assumed as well: what is offered stays until it is taken.
    """

    WIDTH = 256


class WriteQueues(Property):
    """Neither of the writer's queues is ever full when something goes in: no beat, no header."""

    WIDTH = 64
    depth = 2

    def __init__(self):
        super().__init__(Writer(1, width=self.WIDTH))

    def _state(self, m):
        held, coming, level = (self.inside(name) for name in ("held", "coming", "beats.level"))
        m.d.comb += Assert((held == level + sum(coming)) & (held <= DEPTH))
        for name in ("headers", "beats"):
            queue = self.inside.part(name)
            m.d.comb += Assert(~queue.i.valid | queue.i.ready)
        self.cover(m, level == DEPTH)


class WideWriteQueues(WriteQueues):
    """The same at 256 bits, where a word comes two cycles after it was read."""

    WIDTH = 256
