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
#: Cycles to wait for the grant of a free channel, and for the start of a run.
GRANT_TIMEOUT, START_TIMEOUT = 3, 15

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
    settings, armed, load, first, resume, state, get, row, word
        As at `hw.launch.table.LaunchTable`.
    head, waits, moved, over
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
                "get": Out(1),
                "row": Out(ROW_BITS),
                "word": In(64),
                "head": Out(16).array(queues),
                "waits": In(queues),
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
        #: reads for the same entry, if there was one
        tries, tried = each("tries", range(READS + 1)), each("tried")
        #: it may read the shadow tail, or the same entry again
        due = each("due")
        #: of its slot: it has a done word, and is this queue's; and as in its control
        tells, pair, flushes = each("tells"), each("pair"), each("flushes")

        # Of the queue that is served
        on, going, polls = Signal(), Signal(), Signal()
        depth, waits = Signal(8), Signal()
        with m.Switch(now):
            for queue in queues:
                with m.Case(queue):
                    m.d.comb += [
                        on.eq(settings[queue].armed),
                        going.eq(on & (end[queue] == _END.NONE)),
                        polls.eq(settings[queue].polls),
                        depth.eq(settings[queue].mask),
                        ticket.eq(self.head[queue]),
                        waits.eq(self.waits[queue]),
                    ]
        within, align = ticket[: exact_log2(BURST)], exact_log2(ENTRY_BYTES)
        m.d.comb += [runs.queue.eq(now), runs.abort.eq(~Cat(each.armed for each in settings))]

        # The one read under way
        under_way, retired, job = Signal(name="under_way"), self.retired.payload, self.job.payload
        fetches = self.reading == Read.ENTRIES
        #: of a record, the done word
        second = Signal()
        #: the table's word is a ring's address; that of the oldest ticket's place then
        of_ring, address = Signal(), Signal(64)
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
            address.eq(self.word | Mux(of_ring, (ticket & depth) << align, 0)),
            job.address.eq(address),
            job.length.eq(Mux(fetches, (BURST - within) << align, 4)),
            job.place.offset.eq(within << align),
        ]
        good, flushing = retired.outcome == Outcome.OK, self.reading == Read.FLUSH
        with m.If(self.retired.valid):
            m.d.sync += under_way.eq(0)
            m.d.comb += entries.ends.eq(fetches & good)

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
        cycles, finished = Signal(range(START_TIMEOUT + 1)), Signal()
        of_slot = Cat(slot[now][0] | half, slot[now][1:])
        m.d.comb += [
            self.get.eq(1),
            runs.word.eq(self.word),
            runs.target.eq(Mux(pair[now], runs.used & Mux(half, ~of_h2c, of_h2c), runs.used)),
            runs.number.eq(number),
        ]
        # What happens to the queue that is served. Its registers follow behind the states: there
        # they are enabled and cleared without a LUT for each bit.
        #: its slot is found, and looked up; its run has ended, or it has none, with this outcome
        found, looked, told, outcome = Signal(), Signal(), Signal(), Signal(STATUS_BITS)
        #: its entry never came; its record is lost; it has read, and must pace; it resumes
        gives_up, lost, paces, resumed = Signal(), Signal(), Signal(), Signal()
        goes, where = Signal(), Signal(Phase)
        reads, what = Signal(), Signal(Read)

        def go(to):
            m.d.comb += [goes.eq(1), where.eq(to)]

        def read(of):
            """Begin to read at the address that the row has."""
            m.d.comb += [reads.eq(1), what.eq(of)]
            m.d.sync += now.eq(now)
            m.next = "Job"

        with m.FSM():
            with m.State("Look"):
                m.d.sync += [half.eq(0), number.eq(0), cycles.eq(0), second.eq(0)]
                with m.If(~expected):
                    m.d.sync += now.eq(Mux(self.moved.any(), rung, following))
                with m.Switch(phase[now]):
                    with m.Case(Phase.IDLE):
                        m.d.comb += self.row.eq(queue_row(now, "shadow_lo"))
                        with m.If(waits):
                            m.d.comb += self.row.eq(queue_row(now, "ring_lo"))
                            with m.If(entries.found):
                                m.d.comb += self.row.eq(slot_row(entries.slot, "control"))
                        with m.If(resuming[now]):
                            m.d.comb += resumed.eq(1)
                        with m.Elif(going & ~waits):
                            with m.If(polls & ~under_way & due[now]):
                                m.d.comb += paces.eq(1)
                                read(Read.SHADOW)
                        with m.Elif(going & entries.found):
                            m.d.comb += found.eq(1)
                            m.d.sync += now.eq(now)
                            m.next = "Look up"
                        with m.Elif(going & ~under_way & (~tried[now] | due[now])):
                            m.d.comb += [entries.begins.eq(1), paces.eq(1)]
                            with m.If(tried[now] & (tries[now] == READS)):
                                m.d.comb += gives_up.eq(1)
                            with m.Else():
                                read(Read.ENTRIES)
                    with m.Case(Phase.GRANT):
                        m.d.comb += self.row.eq(slot_row(slot[now], "descriptor"))
                        with m.If(runs.granted):
                            m.d.sync += now.eq(now)
                            m.next = "Push"
                        with m.Elif(runs.left):
                            go(Mux(on, Phase.IDLE, Phase.RUN))
                            m.d.comb += runs.release.eq(on)
                        with m.Elif(pair[now] & on):
                            m.d.comb += [
                                runs.again.eq(~clock[exact_log2(HOLD)]),
                                runs.give_back.eq(clock[exact_log2(HOLD)]),
                            ]
                    with m.Case(Phase.RUN):
                        m.d.comb += self.row.eq(slot_row(slot[now], "flush_lo"))
                        with m.If(runs.left & ~(flushes[now] & under_way)):
                            m.d.comb += [runs.release.eq(1), told.eq(1)]
                            go(Phase.RECORD)
                            with m.If(flushes[now]):
                                read(Read.FLUSH)
                    with m.Case(Phase.RECORD):
                        m.d.comb += self.row.eq(queue_row(now, "records_lo"))
                        with m.If(~(under_way & flushing & (self.reader == now))):
                            m.d.sync += now.eq(now)
                            m.next = "Write"
            with m.State("Job"):
                m.d.comb += [self.get.eq(0), of_ring.eq(fetches), self.job.valid.eq(1)]
                with m.If(self.job.ready):
                    m.next = "Look"
            with m.State("Look up"):
                control = CONTROL(self.word[:32])
                channels, exists = channels_of(control, self._h2c, self._c2h, self._pairs)
                mine = control.valid & (control.queue == now)
                m.d.comb += [self.row.eq(slot_row(of_slot, "descriptor")), looked.eq(1)]
                m.next = "Look"
                with m.If(failed[now]):
                    go(Phase.RECORD)
                with m.Elif(~mine | ~exists):
                    m.d.comb += told.eq(1)
                    go(Phase.RECORD)
                with m.Elif((runs.taken & channels).any()):
                    m.d.sync += now.eq(following)
                with m.Else():
                    m.d.comb += runs.begin.eq(channels)
                    go(Phase.GRANT)
                    m.next = "Push"
            with m.State("Push"):
                # Both channels of a pair, before the first of them begins.
                ready = Signal()
                owners = Cat(owner.granted for owner in self.owners)
                m.d.comb += ready.eq(Mux(half, (owners & runs.target).any(), runs.granted))
                m.d.comb += self.row.eq(slot_row(of_slot, number + runs.pushed))
                m.d.sync += cycles.eq(cycles + 1)
                with m.If(runs.started):
                    go(Phase.RUN)
                with m.If(ready):
                    # The pair of a copy has to be flushed first.
                    m.d.comb += [runs.push.eq(1), runs.start.eq(~pair[now])]
                    m.d.sync += [number.eq(number + runs.pushed), cycles.eq(0)]
                    for index in range(self._pairs):
                        m.d.comb += self.flush[index].eq(pair[now] & ~half & runs.used[index])
                    with m.If(runs.pushed & (number == DESCRIPTOR_WORDS - 1)):
                        m.next = "Start"
                with m.Elif(cycles == GRANT_TIMEOUT):
                    m.d.comb += runs.stop.eq(half)
                    m.next = "Look"
            with m.State("Start"):
                other = Cat(Const(1, 1), slot[now][1:])
                m.d.comb += self.row.eq(slot_row(other, "descriptor"))
                # What begins before the start is given up shows in time.
                m.d.comb += runs.start.eq(cycles != START_TIMEOUT)
                m.d.sync += cycles.eq(cycles + 1)
                with m.If(runs.started):
                    go(Phase.RUN)
                    m.d.sync += cycles.eq(0)
                    m.next = "Look"
                    with m.If(pair[now] & ~half):
                        m.d.sync += half.eq(1)
                        m.next = "Push"
                with m.Elif(cycles == START_TIMEOUT):
                    m.d.comb += runs.stop.eq(1)
                    m.next = "Look"
            with m.State("Write"):
                # Not while a ticket's number is set: that takes the same way.
                offers = self.records.record.valid
                m.d.comb += [self.get.eq(0), of_ring.eq(~second), offers.eq(~self.load.any())]
                with m.If(offers & self.records.record.ready):
                    # Who sees the record may at once fill its place again.
                    m.d.comb += counted.eq(~second)
                    m.next = "Written"
            with m.State("Written"):
                m.d.comb += self.row.eq(slot_row(slot[now], "done_lo"))
                with m.If(self.records.done):
                    m.d.sync += second.eq(1)
                    m.d.comb += lost.eq(self.records.dropped)
                    with m.If(tells[now] & ~second):
                        m.next = "Write"
                    with m.Else():
                        m.d.comb += finished.eq(1)
                        go(Phase.IDLE)
                        m.next = "Look"
        record, done = self.records.record.payload, Mux(failed[now], _STATUS.FLUSHED, status[now])
        m.d.comb += [
            record.wide.eq(~second),
            record.address.eq(address),
            record.data.eq(Mux(second, 1, Cat(ticket, entries.upper, done))),
            outcome.eq(Mux(looked, _STATUS.SLOT, runs.status)),
        ]

        with m.If(reads):
            m.d.sync += [self.reading.eq(what), self.reader.eq(now), under_way.eq(1)]
        oldest = Mux(self.load.any(), self.first, ticket + 1)
        for queue in queues:
            state, here = STATE(self.state[queue]), now == queue
            returned = self.retired.valid & (self.reader == queue)
            with m.If(self.load[queue] | (counted & here)):
                m.d.sync += self.head[queue].eq(oldest)
            with m.If(goes & here):
                m.d.sync += phase[queue].eq(where)
            with m.If(found & here):
                m.d.sync += slot[queue].eq(entries.slot)
            with m.If(looked & here):
                m.d.sync += [
                    tells[queue].eq(control.done & mine),
                    pair[queue].eq(control.pair),
                    flushes[queue].eq(control.flush),
                ]
            with m.If(told & here):
                m.d.sync += status[queue].eq(outcome)
            with m.If(returned & flushing & ~good & (status[queue] == _STATUS.OK)):
                m.d.sync += status[queue].eq(retired.outcome)

            with m.If(clock == 0):
                m.d.sync += due[queue].eq(1)
            with m.Elif(paces & here):
                m.d.sync += due[queue].eq(0)
            with m.If(entries.begins & here):
                m.d.sync += [
                    tries[queue].eq(Mux(tried[now], tries[now] + 1, 1)),
                    tried[queue].eq(1),
                ]
            with m.If((found & here) | self.moved[queue] | self.armed[queue]):
                m.d.sync += tried[queue].eq(0)
            with m.If(finished & here & ~failed[queue]):
                m.d.sync += failed[queue].eq(status[queue] != _STATUS.OK)
            with m.If(resumed & here):
                m.d.sync += [failed[queue].eq(0), resuming[queue].eq(0)]
            with m.If(self.resume[queue]):
                m.d.sync += resuming[queue].eq(1)
            with m.If(self.over[queue]):
                m.d.sync += end[queue].eq(_END.TAIL)
            with m.Elif(lost & here):
                m.d.sync += end[queue].eq(_END.RECORD)
            with m.Elif(gives_up & here):
                m.d.sync += end[queue].eq(_END.ENTRY)
            with m.Elif(returned & ~flushing & ~good):
                m.d.sync += end[queue].eq(_END.READ)
            with m.If(self.armed[queue]):
                m.d.sync += [register[queue].eq(0) for register in (end, status, failed, resuming)]
            m.d.comb += [
                state.status.eq(status[queue]),
                state.failed.eq(failed[queue]),
                state.busy.eq(
                    (phase[queue] != Phase.IDLE)
                    | (looked & here)
                    | (under_way & (self.reader == queue))
                ),
                state.armed.eq(settings[queue].armed),
                state.end.eq(end[queue]),
                state.slot.eq(slot[queue]),
            ]
        return m
