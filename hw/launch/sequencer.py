# SPDX-License-Identifier: BSD-2-Clause
"""The sequence of a ticket: entry, slot, channels, run, flush read, record, done word."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..channel.signatures import OwnerSignature
from ..records import Outcome, Placement, ReadJob, Retired
from ..write.record_writer import DirectRecordSignature
from .entries import BURST, EntryStore
from .records import (
    CONTROL,
    DOORBELL_ENTRY,
    ENTRY_BYTES,
    ROW_BITS,
    SETTINGS,
    SLOT_BITS,
    STATE,
    Phase,
    Read,
    queue_row,
    slot_row,
)
from .runs import DESCRIPTOR_WORDS, STATUS_BITS, Runs, channels_of

__all__ = ["HOLD", "PACE", "READS", "Sequencer"]

#: Reads for an entry, one after the other, before the queue ends.
READS = 31
#: Cycles between polls of a shadow tail, and between repeated reads for an entry, at least.
PACE = 64
#: Cycles that a copy holds one channel of its pair and waits for the other.
HOLD = 16
#: Cycles in which a channel that is free is granted, and in which a run begins.
GRANTED, STARTED = 3, 15

_END, _STATUS = regs.LaunchEnd, regs.LaunchStatus


class Sequencer(wiring.Component):
    """Takes the tickets of all queues from their entries to their records.

    One ticket of a queue is at work at a time. The queues take turns at what is shared: the look-up
    of a slot, the start of a run, the one read under way, and the record writer. While a ticket
    waits for a channel, a run, or a read, another queue's goes on.

    **Pairs.** A copy through the stream needs both channels of its pair. While it has one of them
    only, it gives that back after `HOLD` cycles at most, and asks for it again as many cycles
    later; for the other one it stays in line. So a copy of software's that has one channel gets the
    other one, too. When both are granted, the pair is flushed: what earlier runs have left there is
    not in the copy.

    Parameters
    ----------
    queues, h2c, c2h, pairs : int

    Members
    -------
    settings, armed, load, first, resume, state, row, word
        As at `hw.launch.table.LaunchTable`.
    head, tail, moved, over
        As at `hw.launch.tails.Tails`.
    brings, brought
        As at `hw.launch.entries.EntryStore`, in the cycle of `moved`.
    placement : In(stream of Placement, always ready), reading : Out(Read), reader : Out
        What the read under way brings, what it reads, and for which queue.
    job : Out(stream of ReadJob), retired : In(stream of Retired, always ready)
        To the read engine. A job may be withdrawn for some cycles.
    owners : array of Out(OwnerSignature)
        H2C channels, then C2H channels.
    flush : Out(pairs)
        Flush these pairs, of which both channels are granted.
    records : Out(DirectRecordSignature)
        Records, and done words.
    """

    def __init__(self, *, queues: int, h2c: int, c2h: int, pairs: int):
        self._queues, self._h2c, self._c2h, self._pairs = queues, h2c, c2h, pairs
        always = {"always_ready": True}
        super().__init__(
            {
                "settings": In(SETTINGS).array(queues),
                "armed": In(queues),
                "load": In(queues),
                "first": In(16),
                "resume": In(queues),
                "state": Out(32).array(queues),
                "row": Out(ROW_BITS),
                "word": In(64),
                "head": Out(16).array(queues),
                "tail": In(16).array(queues),
                "moved": In(queues),
                "over": In(queues),
                "brings": In(queues),
                "brought": In(DOORBELL_ENTRY),
                "placement": In(stream.Signature(Placement, **always)),
                "reading": Out(Read),
                "reader": Out(range(queues)),
                "job": Out(stream.Signature(ReadJob)),
                "retired": In(stream.Signature(Retired, **always)),
                "owners": Out(OwnerSignature()).array(h2c + c2h),
                "flush": Out(pairs),
                "records": Out(DirectRecordSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        queues, settings = range(self._queues), self.settings
        #: the queue that is served, and its oldest ticket
        now, ticket = Signal(queues, name="now"), Signal(16, name="oldest")
        of_h2c = (1 << self._h2c) - 1
        m.submodules.runs = runs = Runs(self._queues, len(self.owners))
        for inner, outer in zip(runs.owners, self.owners, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))

        def each(name, shape=1):
            return Array(Signal(shape, name=f"{name}{queue}") for queue in queues)

        phase, slot, end = each("phase", Phase), each("slot", SLOT_BITS), each("end", 3)
        #: of the ticket at work, or of the first one that failed
        status, failed, resuming = each("status", STATUS_BITS), each("failed"), each("resuming")
        #: reads for the same entry
        tries = each("tries", range(READS + 1))
        #: it may read the shadow tail, or the same entry again
        due = each("due")
        #: of its slot: it has a done word, and is this queue's; and as in its control
        tells, pair, flushes = each("tells"), each("pair"), each("flushes")

        # Of the queue that is served
        on, going, polls = Signal(), Signal(), Signal()
        depth, tail = Signal(8), Signal(16)
        with m.Switch(now):
            for queue in queues:
                with m.Case(queue):
                    m.d.comb += [
                        on.eq(settings[queue].armed),
                        going.eq(on & (end[queue] == _END.NONE)),
                        polls.eq(settings[queue].polls),
                        depth.eq(settings[queue].mask),
                        ticket.eq(self.head[queue]),
                        tail.eq(self.tail[queue]),
                    ]
        within, align = ticket[: exact_log2(BURST)], exact_log2(ENTRY_BYTES)
        place = (ticket & depth) << align
        m.d.comb += [runs.queue.eq(now), runs.abort.eq(~Cat(each.armed for each in settings))]

        # The one read under way
        under_way, retired, job = Signal(name="under_way"), self.retired.payload, self.job.payload
        fetches = self.reading == Read.ENTRIES
        #: the oldest ticket's record was taken
        counted = Signal()
        m.submodules.entries = entries = EntryStore(self._queues)
        m.d.comb += [
            entries.queue.eq(now),
            entries.ticket.eq(ticket),
            entries.placement.payload.eq(self.placement.payload),
            entries.placement.valid.eq(self.placement.valid & fetches),
            entries.reader.eq(self.reader),
            entries.brings.eq(self.brings),
            entries.brought.eq(self.brought),
            entries.forget.eq(self.armed),
            entries.done.eq(counted),
            job.address.eq(self.word | Mux(fetches, place, 0)),
            job.length.eq(Mux(fetches, (BURST - within) << align, 4)),
            job.place.offset.eq(Mux(fetches, within << align, 0)),
        ]
        with m.If(self.retired.valid):
            good = retired.outcome == Outcome.OK
            m.d.sync += under_way.eq(0)
            with m.If(self.reading == Read.FLUSH):
                m.d.sync += phase[self.reader].eq(Phase.RECORD)
                with m.If(~good & (status[self.reader] == _STATUS.OK)):
                    m.d.sync += status[self.reader].eq(retired.outcome)
            with m.Elif(~good):
                m.d.sync += end[self.reader].eq(_END.READ)
            with m.Else():
                m.d.comb += entries.ends.eq(fetches)

        # Turns: another queue in each cycle. A doorbell's comes next, and while an entry is
        # expected, and nothing else is at work, its queue stays.
        clock, following, rung = Signal(range(PACE)), Signal.like(now), Signal.like(now)
        m.d.sync += clock.eq(clock + 1)
        m.d.comb += following.eq(Mux(now == self._queues - 1, 0, now + 1))
        for queue in queues:
            with m.If(self.moved[queue]):
                m.d.comb += rung.eq(queue)
        others_rest = Cat((now == n) | (phase[n] == Phase.IDLE) for n in queues).all()
        expected = under_way & fetches & (self.reader == now) & others_rest

        # The sequence
        number, half = Signal.like(runs.number, name="word_number"), Signal(name="half")
        second = Signal()
        cycles, finished = Signal(range(STARTED + 1)), Signal()
        told = Mux(second, slot_row(slot[now], "done_lo"), queue_row(now, "records_lo"))
        of_slot = Cat(slot[now][0] | half, slot[now][1:])
        m.d.comb += [
            runs.word.eq(self.word),
            runs.target.eq(Mux(pair[now], runs.used & Mux(half, ~of_h2c, of_h2c), runs.used)),
            runs.number.eq(number),
        ]

        def read(what, row):
            """Begin to read at the address that a row of the table has."""
            m.d.comb += self.row.eq(row)
            m.d.sync += [self.reading.eq(what), self.reader.eq(now), under_way.eq(1), now.eq(now)]
            m.next = "Job"

        with m.FSM():
            with m.State("Look"):
                m.d.sync += [half.eq(0), number.eq(0), cycles.eq(0), second.eq(0)]
                with m.If(~expected):
                    m.d.sync += now.eq(Mux(self.moved.any(), rung, following))
                with m.Switch(phase[now]):
                    with m.Case(Phase.IDLE):
                        with m.If(resuming[now]):
                            m.d.sync += [failed[now].eq(0), resuming[now].eq(0)]
                        with m.Elif(going & (ticket == tail)):
                            with m.If(polls & ~under_way & due[now]):
                                m.d.sync += due[now].eq(0)
                                read(Read.SHADOW, queue_row(now, "shadow_lo"))
                        with m.Elif(going & entries.found):
                            m.d.comb += self.row.eq(slot_row(entries.slot, "control"))
                            m.d.sync += [
                                slot[now].eq(entries.slot),
                                phase[now].eq(Phase.LOOK_UP),
                                tries[now].eq(0),
                                now.eq(now),
                            ]
                            m.next = "Look up"
                        with m.Elif(going & ~under_way & ((tries[now] == 0) | due[now])):
                            m.d.comb += entries.begins.eq(1)
                            m.d.sync += [due[now].eq(0), tries[now].eq(tries[now] + 1)]
                            with m.If(tries[now] == READS):
                                m.d.sync += end[now].eq(_END.ENTRY)
                            with m.Else():
                                read(Read.ENTRIES, queue_row(now, "ring_lo"))
                    with m.Case(Phase.GRANT):
                        with m.If(runs.granted):
                            m.d.comb += self.row.eq(slot_row(of_slot, "descriptor"))
                            m.d.sync += now.eq(now)
                            m.next = "Push"
                        with m.Elif(runs.left):
                            m.d.sync += phase[now].eq(Phase.RUN)
                            with m.If(on):
                                m.d.comb += runs.release.eq(1)
                                m.d.sync += phase[now].eq(Phase.IDLE)
                        with m.Elif(pair[now] & on):
                            m.d.comb += [
                                runs.again.eq(~clock[exact_log2(HOLD)]),
                                runs.give_back.eq(clock[exact_log2(HOLD)]),
                            ]
                    with m.Case(Phase.RUN):
                        with m.If(runs.left & ~(flushes[now] & under_way)):
                            m.d.comb += runs.release.eq(1)
                            m.d.sync += [status[now].eq(runs.status), phase[now].eq(Phase.RECORD)]
                            with m.If(flushes[now]):
                                m.d.sync += phase[now].eq(Phase.FLUSH)
                                read(Read.FLUSH, slot_row(slot[now], "flush_lo"))
                    with m.Case(Phase.RECORD):
                        m.d.comb += self.row.eq(queue_row(now, "records_lo"))
                        m.d.sync += now.eq(now)
                        m.next = "Write"
            with m.State("Job"):
                with m.Switch(self.reading):
                    with m.Case(Read.ENTRIES):
                        m.d.comb += self.row.eq(queue_row(now, "ring_lo"))
                    with m.Case(Read.SHADOW):
                        m.d.comb += self.row.eq(queue_row(now, "shadow_lo"))
                    with m.Default():
                        m.d.comb += self.row.eq(slot_row(slot[now], "flush_lo"))
                m.d.comb += self.job.valid.eq(1)
                with m.If(self.job.ready):
                    m.next = "Look"
            with m.State("Look up"):
                control = CONTROL(self.word[:32])
                channels, exists = channels_of(control, self._h2c, self._c2h, self._pairs)
                mine = control.valid & (control.queue == now)
                m.d.comb += self.row.eq(slot_row(of_slot, "descriptor"))
                m.d.sync += [
                    tells[now].eq(control.done & mine),
                    pair[now].eq(control.pair),
                    flushes[now].eq(control.flush),
                ]
                m.next = "Look"
                with m.If(failed[now]):
                    m.d.sync += phase[now].eq(Phase.RECORD)
                with m.Elif(~mine | ~exists):
                    m.d.sync += [phase[now].eq(Phase.RECORD), status[now].eq(_STATUS.SLOT)]
                with m.Elif((runs.taken & channels).any()):
                    m.d.sync += [phase[now].eq(Phase.IDLE), now.eq(following)]
                with m.Else():
                    m.d.comb += runs.begin.eq(channels)
                    m.d.sync += phase[now].eq(Phase.GRANT)
                    m.next = "Push"
            with m.State("Push"):
                # Both channels of a pair, before the first of them begins.
                ready = Signal()
                owners = Cat(owner.granted for owner in self.owners)
                m.d.comb += ready.eq(Mux(half, (owners & runs.target).any(), runs.granted))
                m.d.comb += self.row.eq(slot_row(of_slot, number + runs.pushed))
                m.d.sync += cycles.eq(cycles + 1)
                with m.If(runs.started):
                    m.d.sync += phase[now].eq(Phase.RUN)
                with m.If(ready):
                    # The pair of a copy has to be flushed first.
                    m.d.comb += [runs.push.eq(1), runs.start.eq(~pair[now])]
                    m.d.sync += [number.eq(number + runs.pushed), cycles.eq(0)]
                    for index in range(self._pairs):
                        m.d.comb += self.flush[index].eq(pair[now] & ~half & runs.used[index])
                    with m.If(runs.pushed & (number == DESCRIPTOR_WORDS - 1)):
                        m.next = "Start"
                with m.Elif(cycles == GRANTED):
                    m.d.comb += runs.stop.eq(half)
                    m.next = "Look"
            with m.State("Start"):
                other = Cat(Const(1, 1), slot[now][1:])
                m.d.comb += self.row.eq(slot_row(other, "descriptor"))
                # What begins before the start is given up shows in time.
                m.d.comb += runs.start.eq(cycles != STARTED)
                m.d.sync += cycles.eq(cycles + 1)
                with m.If(runs.started):
                    m.d.sync += [phase[now].eq(Phase.RUN), cycles.eq(0)]
                    m.next = "Look"
                    with m.If(pair[now] & ~half):
                        m.d.sync += half.eq(1)
                        m.next = "Push"
                with m.Elif(cycles == STARTED):
                    m.d.comb += runs.stop.eq(1)
                    m.next = "Look"
            with m.State("Write"):
                m.d.comb += [self.records.record.valid.eq(1), self.row.eq(told)]
                with m.If(self.records.record.ready):
                    # Who sees the record may at once fill its place again.
                    m.d.comb += counted.eq(~second)
                    m.next = "Written"
            with m.State("Written"):
                m.d.comb += self.row.eq(slot_row(slot[now], "done_lo"))
                with m.If(self.records.done):
                    m.d.sync += second.eq(1)
                    with m.If(self.records.dropped):
                        m.d.sync += end[now].eq(_END.RECORD)
                    with m.If(tells[now] & ~second):
                        m.next = "Write"
                    with m.Else():
                        m.d.comb += finished.eq(1)
                        m.next = "Look"
        record, done = self.records.record.payload, Mux(failed[now], _STATUS.FLUSHED, status[now])
        m.d.comb += [
            record.wide.eq(~second),
            record.address.eq(self.word | Mux(second, 0, place)),
            record.data.eq(Mux(second, 1, Cat(ticket, entries.upper, done))),
        ]
        with m.If(finished):
            m.d.sync += phase[now].eq(Phase.IDLE)
            with m.If(~failed[now]):
                m.d.sync += failed[now].eq(status[now] != _STATUS.OK)

        for queue in queues:
            head, state = self.head[queue], STATE(self.state[queue])
            with m.If(self.load[queue]):
                m.d.sync += head.eq(self.first)
            with m.Elif(counted & (now == queue)):
                m.d.sync += head.eq(ticket + 1)
            with m.If(clock == 0):
                m.d.sync += due[queue].eq(1)
            with m.If(self.moved[queue]):
                m.d.sync += tries[queue].eq(0)
            with m.If(self.over[queue]):
                m.d.sync += end[queue].eq(_END.TAIL)
            with m.If(self.resume[queue]):
                m.d.sync += resuming[queue].eq(1)
            with m.If(self.armed[queue]):
                m.d.sync += [
                    register[queue].eq(0) for register in (end, status, failed, resuming, tries)
                ]
            m.d.comb += [
                state.status.eq(status[queue]),
                state.failed.eq(failed[queue]),
                state.busy.eq((phase[queue] != Phase.IDLE) | (under_way & (self.reader == queue))),
                state.armed.eq(settings[queue].armed),
                state.end.eq(end[queue]),
                state.slot.eq(slot[queue]),
            ]
        return m
