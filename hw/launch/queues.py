# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: what a GPU rings, and what becomes of it.

    doorbell ──▶ Tails ──▶ QueueWork ◀──▶ Sequencer ──▶ owners: runs on the channels
                   ▲                       ▲  │ │ └───▶ records: record, done word
    shadow tail ───┘                       │  │ └─────▶ LaunchTable ◀── register bus
          placement ──▶ EntryStore ────────┘  └───────▶ job

All that a GPU writes are doorbells and entries: how far its ring is filled, and which slot a ticket
means. A slot is a job that software has prepared in the table.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..channel.signatures import OwnerSignature
from ..records import ReadJob, Retired, placement
from ..registers.bus import BusSignature, RegisterWrite
from ..write.record_writer import DirectRecordSignature
from .entries import EntryStore
from .records import Read
from .sequencer import Sequencer
from .table import LaunchTable
from .tails import Tails
from .work import QueueWork

__all__ = ["LaunchQueues"]

_PAGE_BITS = exact_log2(regs.DOORBELL_STRIDE)


class LaunchQueues(wiring.Component):
    """Runs prepared jobs for queues that a GPU fills.

    `docs/queue.md` says what software and the GPU have to do. From a doorbell to the job for its
    entry 2 cycles pass, if no other queue is at work; from the entry to the request of its channel
    1 cycle, and from there to the start of its run 5 cycles, on a channel that is free. From a
    doorbell that brings its entry to the request 2 cycles pass.

    Parameters
    ----------
    queues : int
        1 to `peerdma.regs.LAUNCH_QUEUES`.
    h2c, c2h, pairs : int
        Channels in each direction, and pairs with a user stream.
    width : int
        Bits of a beat of a read.
    packets : bool
        C2H channels can take packets from their pairs.

    Members
    -------
    bus : In(BusSignature)
        The registers. Read latency is one cycle.
    doorbell : In(RegisterWrite)
        Writes to any address, of which some are doorbells.
    job : Out(stream of ReadJob), retired : In(stream of Retired, always ready),
    placement : In(stream of placement, always ready)
        To the read engine, as a client of its own whose reads are not relaxed.
    owners : array of Out(OwnerSignature)
        H2C channels, then C2H channels.
    flush : Out(pairs)
        High for some cycles: flush the pair, of which both channels are granted.
    claimed : In(pairs)
        Pairs that software has sent bytes into for a C2H run that waits: no copy flushes them.
    records : Out(DirectRecordSignature)
        Records, and done words.
    packets : In(pairs)
        Pairs of which a packet is there. Only with `packets`.
    """

    def __init__(
        self, *, queues: int, h2c: int, c2h: int, pairs: int, width: int, packets: bool = False
    ):
        self._queues, self._width, self._packets = queues, width, packets
        self._sequencer = Sequencer(queues=queues, h2c=h2c, c2h=c2h, pairs=pairs, packets=packets)
        always = {"always_ready": True}
        super().__init__(
            {
                "bus": In(BusSignature()),
                "doorbell": In(RegisterWrite()),
                "job": Out(stream.Signature(ReadJob)),
                "retired": In(stream.Signature(Retired, **always)),
                "placement": In(stream.Signature(placement(width), **always)),
                "owners": Out(OwnerSignature()).array(h2c + c2h),
                "flush": Out(pairs),
                "claimed": In(pairs),
                "records": Out(DirectRecordSignature()),
                **({"packets": In(pairs)} if packets else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = LaunchTable(self._queues)
        m.submodules.tails = tails = Tails(self._queues)
        m.submodules.entries = entries = EntryStore(self._queues, self._width)
        m.submodules.work = work = QueueWork(self._queues, packets=self._packets)
        m.submodules.sequencer = sequencer = self._sequencer

        wiring.connect(m, wiring.flipped(self.bus), table.bus)
        wiring.connect(m, sequencer.job, wiring.flipped(self.job))
        for part in (sequencer, work):
            wiring.connect(m, wiring.flipped(self.retired), part.retired)
        wiring.connect(m, sequencer.records, wiring.flipped(self.records))
        for inner, outer in zip(sequencer.owners, self.owners, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))

        # The settings of each queue, and its state
        for queue in range(self._queues):
            m.d.comb += [
                tails.settings[queue].eq(table.settings[queue]),
                work.settings[queue].eq(table.settings[queue]),
                tails.head[queue].eq(work.head[queue]),
                table.state[queue].eq(work.state[queue]),
                entries.head[queue].eq(work.head[queue]),
            ]
        for name in ("armed", "load", "first", "resume"):
            m.d.comb += getattr(work, name).eq(getattr(table, name))
        for name in ("waits", "moved", "over"):
            m.d.comb += getattr(work, name).eq(getattr(tails, name))
        for name in ("queue", "step", "completer", "under_way", "reading", "reader", "tick"):
            m.d.comb += getattr(work, name).eq(getattr(sequencer, name))
        m.d.comb += [
            tails.load.eq(table.load),
            work.place.eq(table.place),
            table.slot.eq(work.slot),
            table.ignored.eq(tails.ignored),
            table.row.eq(sequencer.row),
            table.get.eq(sequencer.get),
            sequencer.here.eq(work.here),
            sequencer.idle.eq(work.idle),
            tails.queue.eq(sequencer.queue),
            tails.ticket.eq(work.here.ticket),
            sequencer.moved.eq(tails.moved),
            sequencer.load.eq(table.load),
            sequencer.resume.eq(table.resume),
            sequencer.word.eq(table.word),
            sequencer.disarmed.eq(~Cat(settings.armed for settings in table.settings)),
            self.flush.eq(sequencer.flush),
            sequencer.claimed.eq(self.claimed),
        ]
        if self._packets:
            m.d.comb += sequencer.packets.eq(self.packets)

        # What a read brings: entries, or a shadow tail. The latter can wait for the next poll.
        placed = self.placement
        shadow = placed.valid & (sequencer.reading == Read.SHADOW)
        m.d.comb += [
            entries.queue.eq(sequencer.queue),
            entries.ticket.eq(work.here.ticket),
            entries.placement.payload.eq(placed.payload),
            entries.placement.valid.eq(placed.valid & (sequencer.reading == Read.ENTRIES)),
            entries.reader.eq(sequencer.reader),
            entries.tail.eq(Array(tails.tail)[sequencer.queue]),
            entries.begins.eq(sequencer.step.begins | sequencer.step.reads_ahead),
            entries.load.eq(table.load),
            entries.first.eq(table.first),
            sequencer.found.eq(entries.found),
            sequencer.next.eq(entries.next),
            sequencer.lacks.eq(entries.lacks),
            sequencer.slot.eq(entries.slot),
            sequencer.upper.eq(entries.upper),
        ]

        # Doorbells
        write, tail = self.doorbell, tails.doorbell.payload
        page = write.address[_PAGE_BITS - 3 :]
        first = regs.DOORBELL_BASE >> _PAGE_BITS
        rung = Signal()
        m.d.comb += [
            rung.eq(
                write.valid
                & (write.bar == regs.BAR_USER[0])
                & (page >= first)
                & (page < first + self._queues)
                & (write.address[: _PAGE_BITS - 3] == 0)
                & write.enable[:4].all()
            ),
            tail.counts.eq(rung),
            tail.word.eq(Mux(rung, write.data, placed.payload.data)[:32]),
            tail.queue.eq(Mux(rung, page - first, sequencer.reader)),
            tails.doorbell.valid.eq(rung | shadow),
            entries.brings.eq(rung & write.enable[4:].all() & tails.moved.any()),
            entries.rung.eq(tail.queue),
            entries.last.eq(tail.word.tail),
            entries.brought.eq(write.data[32:]),
        ]
        return m
