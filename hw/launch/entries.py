# SPDX-License-Identifier: BSD-2-Clause
"""The entries of a submission ring: fetched in bursts, and each only with the ticket expected."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import Outcome, Placement, ReadJob, Retired
from .records import DEPTH_BITS, ENTRY_BYTES, Entry, QueueEnd

__all__ = ["EntryFetch"]

#: Entries of a read at most.
BURST = 8


class EntryFetch(wiring.Component):
    """Offers the entries of one queue in the order of their tickets, up to its tail.

    A doorbell may be seen before the entry that it stands for. So an entry that has not the ticket
    that comes next is read again, after a pause, and what was read behind it, too.

    Parameters
    ----------
    retries : int
        After how many such reads in a row the queue ends.
    pause : int
        Cycles before each.

    Members
    -------
    armed : In(1), first : In(32), depth : In(range(DEPTH_BITS + 1)), ring : In(64)
        Of the queue: its first ticket, ``log2`` of the entries of its ring, and its byte address, a
        multiple of its size.
    tail : In(16)
        Lower half of the first ticket that is not submitted.
    entry : Out(stream of Entry)
        Once valid it stays, while `armed`.
    ended : Out(QueueEnd)
        Why no more entries come, until the queue is no longer `armed`.
    job : Out(stream of ReadJob)
        Never across 4 KiB. Withdrawn if the queue is no longer `armed`.
    retired : In(stream of Retired, always ready)
    placement : In(stream of Placement, always ready)
        What the reads brought, in rows from 0 on; enabled by whole dwords.
    reading : Out(1)
        A read has not retired: the ring's memory is in use. Software waits for its end.
    """

    def __init__(self, *, retries: int = 255, pause: int = 64):
        self._retries, self._pause = retries, pause
        always = {"always_ready": True}
        super().__init__(
            {
                "armed": In(1),
                "first": In(32),
                "depth": In(range(DEPTH_BITS + 1)),
                "ring": In(64),
                "tail": In(16),
                "entry": Out(stream.Signature(Entry)),
                "ended": Out(QueueEnd),
                "job": Out(stream.Signature(ReadJob)),
                "retired": In(stream.Signature(Retired, **always)),
                "placement": In(stream.Signature(Placement, **always)),
                "reading": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        placed, job = self.placement.payload, self.job.payload
        #: the ticket that comes next; entries in the buffer, and which of them is looked at
        ticket = Signal(32)
        held, at = Signal(range(BURST + 1)), Signal(range(BURST))
        tries, rest = Signal(range(self._retries + 1)), Signal(range(self._pause + 1))
        found = Signal(Entry)

        for bank in range(2):
            m.submodules[f"bank{bank}"] = words = Memory(shape=64, depth=BURST // 2, init=[])
            write, read = words.write_port(granularity=32), words.read_port(domain="comb")
            enable = placed.enable[bank]
            m.d.comb += [
                write.addr.eq(placed.rows[bank]),
                write.data.eq(placed.data),
                write.en.eq(Mux(self.placement.valid, Cat(enable[0], enable[4]), 0)),
                read.addr.eq(at[1:]),
            ]
            with m.If(at[0] == bank):
                m.d.comb += found.eq(read.data)

        ahead, place, to_end = Signal(16), Signal(DEPTH_BITS), Signal(DEPTH_BITS + 1)
        entries = Signal(DEPTH_BITS + 1)
        count = Signal(range(BURST + 1))
        m.d.comb += [
            entries.eq(1 << self.depth),
            ahead.eq(self.tail - ticket[:16]),
            place.eq(ticket & (entries - 1)),
            to_end.eq(entries - place),
            count.eq(Mux(to_end < BURST, to_end, BURST)),
            job.address.eq(self.ring + (place << exact_log2(ENTRY_BYTES))),
            self.entry.payload.eq(found),
        ]
        with m.If(ahead < count):
            m.d.comb += job.length.eq(ahead << exact_log2(ENTRY_BYTES))
        with m.Else():
            m.d.comb += job.length.eq(count << exact_log2(ENTRY_BYTES))

        with m.FSM():
            with m.State("Wait"):
                with m.If(~self.armed):
                    m.d.sync += [ticket.eq(self.first), self.ended.eq(QueueEnd.NONE)]
                    m.d.sync += [tries.eq(0), rest.eq(0)]
                with m.Elif(rest != 0):
                    m.d.sync += rest.eq(rest - 1)
                with m.Elif((ahead != 0) & (self.ended == QueueEnd.NONE)):
                    m.d.comb += self.job.valid.eq(1)
                    with m.If(self.job.ready):
                        m.d.sync += [
                            held.eq(job.length >> exact_log2(ENTRY_BYTES)),
                            at.eq(0),
                        ]
                        m.next = "Read"
            with m.State("Read"):
                m.d.comb += self.reading.eq(1)
                with m.If(self.retired.valid):
                    m.next = "Offer"
                    with m.If(self.retired.payload.outcome != Outcome.OK):
                        m.d.sync += self.ended.eq(QueueEnd.READ)
                        m.next = "Wait"
            with m.State("Offer"):
                with m.If(~self.armed):
                    m.next = "Wait"
                with m.Elif(found.ticket != ticket):
                    m.d.sync += [tries.eq(tries + 1), rest.eq(self._pause)]
                    with m.If(tries == self._retries):
                        m.d.sync += self.ended.eq(QueueEnd.ENTRY)
                    m.next = "Wait"
                with m.Else():
                    m.d.comb += self.entry.valid.eq(1)
                    with m.If(self.entry.ready):
                        m.d.sync += [ticket.eq(ticket + 1), tries.eq(0), at.eq(at + 1)]
                        with m.If(at + 1 == held):
                            m.next = "Wait"
        return m
