# SPDX-License-Identifier: BSD-2-Clause
"""Serves the host's reads and writes of our BARs: from the seam's target port to the register bus.

target ─┬─ writes ─▶ TargetWriter ─▶ bus.write_…
        └─ reads ──▶ queue ─▶ TargetReader ─▶ completion
                                  ▲ └─▶ bus.read_…
                                  └─── bus.read.data

Of a block that is wider than the bus, requests come through a `TargetNarrower`, and completions
leave through a `CompletionWidener`.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..parts.queue import Queue
from ..seam import BUS_WIDTH, CompletionHeader, TargetHeader, TargetKind, beat
from .access import BOUNDARY, QueuedRead, TargetReader, TargetWriter
from .bus import BusSignature
from .widths import CompletionWidener, TargetNarrower

__all__ = ["Completer"]

#: Reads that can wait for their completion.
QUEUE_DEPTH = 16
#: Entries kept free when non-posted requests are held back: two more may follow, and two may be on
#: their way through the adapter.
QUEUE_RESERVE = 4


class Completer(wiring.Component):
    """Turns requests of any size and byte enables into register accesses, and answers them.

    At 64 bits writes reach the bus one cycle after they arrive. Reads are executed in order, each
    later than all writes that arrived before it; a completion of one word is offered
    `READ_LATENCY` + 4 cycles after the request. What is neither posted nor a read is answered
    Unsupported Request; messages are dropped. A wider block's beat of a write takes a cycle for
    each word of the bus, and its completions come a cycle later for each word.

    Parameters
    ----------
    width : int
        Bits of a beat.
    bars : sequence of (int, int)
        Number and size in bytes (a power of two, 4 KiB to 64 KiB) of each BAR.

    Members
    -------
    target : In(stream of beats of TargetHeader)
        At 64 bits always ready, and at least one cycle without a beat between packets.
    target_np_ok : Out(1)
        Low when the queue of reads has room only for those that may already be on their way.
    completion : Out(stream of beats of CompletionHeader)
    bus : Out(BusSignature)
    """

    def __init__(self, bars=(regs.BAR_USER, regs.BAR_DMA), *, width: int):
        for number, size in bars:
            if size not in (1 << bits for bits in range(12, 17)):
                raise ValueError(
                    f"size of BAR {number} must be a power of two from 4 KiB to 64 KiB, not {size}"
                )
        self._bars = tuple(bars)
        self._width = width
        target = stream.Signature(beat(TargetHeader, width), always_ready=width == BUS_WIDTH)
        super().__init__(
            {
                "target": In(target),
                "target_np_ok": Out(1),
                "completion": Out(stream.Signature(beat(CompletionHeader, width))),
                "bus": Out(BusSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = writer = TargetWriter()
        m.submodules.reader = reader = TargetReader()
        m.submodules.queue = queue = Queue(QueuedRead, QUEUE_DEPTH)
        target = self.target
        if self._width > BUS_WIDTH:
            m.submodules.narrower = narrower = TargetNarrower(self._width)
            wiring.connect(m, wiring.flipped(self.target), narrower.i)
            target = narrower.o
        header = target.payload.header

        # The bits above the size of the BAR are the base address that the host assigned.
        offset = Signal(16)
        m.d.comb += offset.eq(header.address[:12])
        with m.Switch(header.bar):
            for number, size in self._bars:
                with m.Case(number):
                    m.d.comb += offset.eq(header.address[:16] & (size - 1))
        m.d.comb += [
            writer.target.payload.eq(target.payload),
            writer.target.valid.eq(target.valid),
            writer.offset.eq(offset),
        ]

        entry = queue.i.payload
        reading = header.kind == TargetKind.READ
        m.d.comb += [
            getattr(entry, name).eq(getattr(header, name))
            for name, _ in QueuedRead.as_shape()
            if name not in ("supported", "address")
        ]
        m.d.comb += [
            entry.supported.eq(reading),
            entry.address.eq(offset[2:]),
            queue.i.valid.eq(
                target.valid & target.payload.first & (reading | (header.kind == TargetKind.OTHER))
            ),
        ]
        m.d.sync += self.target_np_ok.eq(queue.level < QUEUE_DEPTH - QUEUE_RESERVE)

        wiring.connect(m, queue.o, reader.request)
        completion = reader.completion
        if self._width > BUS_WIDTH:
            m.submodules.widener = widener = CompletionWidener(self._width, BOUNDARY)
            wiring.connect(m, completion, widener.i)
            completion = widener.o
        wiring.connect(m, completion, wiring.flipped(self.completion))
        wiring.connect(m, writer.write, wiring.flipped(self.bus.write))
        wiring.connect(m, reader.read, wiring.flipped(self.bus.read))
        return m
