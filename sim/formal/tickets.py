# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: in which order a ticket goes through its steps, and what it can reach."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib.data import View
from amaranth.utils import exact_log2

from hw.launch.entries import GROUP
from hw.launch.queues import LaunchQueues
from hw.launch.records import (
    CONTROL,
    DOORBELL,
    DOORBELL_ENTRY,
    STATE,
    Phase,
    Read,
    queue_row,
    slot_row,
)
from hw.launch.runs import DESCRIPTOR_WORDS
from hw.launch.tails import TAIL_BITS
from peerdma import regs

from .property import Property

__all__ = ["Tickets"]


class Tickets(Property):
    """A ticket that was rung goes through its steps once, in order; no address is from a GPU.

    A ticket that is at work, up to its record, was rung. Two of a queue are at work at most: the
    next one begins no run before all runs of the one before have ended, and ends itself only when
    that has its record and done word. Each has one record, with its number, in the order of
    tickets; and that is not offered before all runs for the ticket have ended, and the flush read,
    if the slot asks for one, has come back. The done word is that of its slot, and waits for the
    record. The queue's state shows the slots of both while they are at work. No channel is two
    queues'. The runs, flush reads, and done words of a
    queue are of a slot that was valid and the queue's as it was looked up; all addresses, and
    the descriptors, are words that software has written to such a slot or to the queue. The slot is
    that of an entry with the ticket's number, or the one that came with the doorbell by which the
    tail moved to behind the ticket. Entries and doorbells are any words.

    Assumed: a channel's grant (what `grants` proves), reads that come back once, in the places that
    were asked for, writes that are reported done once. Software sets the first ticket
    while the queue is neither armed nor busy, and arms it while it is not busy.
    """

    depth = 2
    reach = 40

    def __init__(self):
        super().__init__(LaunchQueues(queues=2, h2c=1, c2h=1, pairs=1, width=64))

    def _state(self, m):
        inside = self.inside
        sequencer = inside.part("sequencer")
        self._work = work = inside.part("work")
        self._now, self._row = sequencer.queue, sequencer.row
        self._ticket, self._oldest = work.here.ticket, work.here.oldest
        self._at = lambda *names: inside.state("sequencer", *names)
        starts, completes = self._at("Start"), self._at("Complete")
        started = inside("sequencer.start.starts")
        self._pushes, self._starts = starts & ~started, starts & started
        self._offers, self._completion = completes, inside.part("sequencer.completion")
        #: the run of the next ticket has ended: it is the one that ends from now on
        self._ends = [sequencer.step.ended & (self._now == queue) for queue in range(2)]
        self._of = lambda name: [getattr(known, name) for known in work.known]
        self._phase = self._of("phase")
        self._was_row = Signal.like(self._row, name="was_row")
        with m.If(sequencer.get):
            m.d.sync += self._was_row.eq(self._row)
        looks = self._at("Look up")
        self._idle = [
            (phase == Phase.IDLE) & ~(looks & (self._now == queue))
            for queue, phase in enumerate(self._phase)
        ]
        m.d.comb += [
            # What is inside.
            Assert(self._at()),
        ]
        self._slots(m)
        self._channels(m)
        self._reads(m)
        self._writes(m)
        self._tails(m)

    def _here(self, values):
        """That of the queue that is served."""
        chosen = Mux(self._now, *(Value.cast(each) for each in reversed(values)))
        return values[0].shape()(chosen) if isinstance(values[0], View) else chosen

    def _slots(self, m):
        """What is kept of a slot is from when it was looked up; runs are of its descriptor."""
        inside, table = self.inside, self.inside.part("table")
        looks, control = self._at("Look up"), CONTROL(table.word[:32])
        self.asks, self.mine, self.slot = [], [], []
        #: the same of the ticket that ends
        self.asked_for, self.was_mine, self.last_slot = [], [], []
        for queue, phase in enumerate(self._phase):
            asks, mine = Signal(CONTROL, name=f"asks{queue}"), Signal(name=f"mine{queue}")
            slot = Signal(6, name=f"looked_up{queue}")
            with m.If(looks & (self._now == queue)):
                m.d.sync += [
                    asks.eq(control),
                    mine.eq(control.valid & (control.queue == queue)),
                    slot.eq(self._was_row[3:]),
                ]
            self.asks.append(asks)
            self.mine.append(mine)
            self.slot.append(slot)
            last = Signal(CONTROL, name=f"asked_for{queue}"), Signal(name=f"was_mine{queue}")
            last_slot, ending = Signal(6, name=f"last_slot{queue}"), self._work.ending[queue]
            with m.If(self._ends[queue]):
                m.d.sync += [last[0].eq(asks), last[1].eq(mine), last_slot.eq(slot)]
            self.asked_for.append(last[0])
            self.was_mine.append(last[1])
            self.last_slot.append(last_slot)
            begun = (phase == Phase.GRANT) | (phase == Phase.RUN)
            kept = begun | (phase == Phase.OVER)
            state, at_work = STATE(self._work.state[queue]), ending.at_work
            m.d.comb += [
                Assert(~kept | (state.busy & (state.slot == slot))),
                Assert(~at_work | (state.busy & state.ending & (state.ending_slot == last_slot))),
                # What is inside.
                Assert(~at_work | (ending.has_done == (last[0].done & last[1]))),
                Assert(~self._ends[queue] | ((phase != Phase.IDLE) & ~at_work)),
            ]
            m.d.comb += [
                Assert(~begun | mine),
                # What is inside.
                Assert(~kept | (self._of("slot")[queue] == slot)),
                Assert(~kept | (self._of("has_done")[queue] == (asks.done & mine))),
                Assert(~kept | (self._of("pair")[queue] == asks.pair)),
                Assert(~kept | (self._of("flushes")[queue] == asks.flush)),
                Assert(~(looks & (self._now == queue)) | (phase == Phase.IDLE)),
                Assert(
                    ~(looks & (self._now == queue))
                    | (self._was_row == slot_row(self._of("slot")[queue], "control"))
                ),
            ]
        half, number = inside("sequencer.start.half"), inside.part("sequencer.start").number
        here, pair = self._here(self._phase), self._here(self._of("pair"))
        pushes, starts = self._pushes, self._starts
        slot = self._here(self.slot)
        m.d.comb += [
            Assert(~(pushes | starts) | (here == Phase.RUN) | ((here == Phase.GRANT) & ~half)),
            Assert(~(pushes | starts) | ~half | pair),
            Assert(~(starts | looks) | (number == 0)),
            Assert(~half | (pushes | starts | self._at("Look")) & (here == Phase.RUN)),
            Assert(
                ~pushes
                | (self._was_row == slot_row(Cat(slot[0] | half, slot[1:]), number | Const(0, 3)))
            ),
        ]
        for owner in self.block.owners:
            row = self._was_row
            m.d.comb += [
                Assert(~owner.word.valid | (row[4:] == slot[1:])),
                Assert(~owner.word.valid | (row[3] == slot[0]) | self._here(self.asks).pair),
                Assert(~owner.word.valid | (row[:3] < DESCRIPTOR_WORDS)),
                Assert(~owner.word.valid | (owner.word.payload.data == table.word)),
                Assert(~owner.word.valid | self._here(self.mine)),
            ]

    def _channels(self, m):
        """No channel is two queues', and none is a queue's that does not wait for it."""
        inside = self.inside
        masks = [inside(f"sequencer.runs.mask{queue}") for queue in range(2)]
        want, begin = inside("sequencer.runs.want"), inside.part("sequencer.runs").begin
        self.runs, self.begun = [0, 0], [0, 0]
        for number, owner in enumerate(self.block.owners):
            end, was = owner.ended.valid, {}
            for name in ("request", "granted", "started", "start"):
                was[name] = self.past(m, getattr(owner, name))
            ended = self.past(m, end)
            m.d.comb += [
                # What a grant does.
                Assume(~owner.granted | was["granted"] | was["request"]),
                Assume(~owner.granted | ~ended),
                Assume(~owner.granted | ~was["granted"] | was["started"] | was["request"]),
                Assume(owner.granted | ~was["started"] | ended),
                Assume(owner.granted | ~was["granted"] | ended | ~was["request"]),
                Assume(owner.granted | ~owner.started),
                Assume(~owner.started | was["started"] | (was["start"] & was["granted"])),
                Assume(~owner.started | was["started"] | was["request"]),
                Assume(owner.started | ~was["started"] | ended),
                Assume(~end | owner.started),
                Assume(self.started(m) | ~owner.granted),
            ]
            whose = Signal(name=f"whose{number}")
            starts = self._at("Start") & (self._now == whose)
            with m.If(begin[number]):
                m.d.sync += whose.eq(self._now)
            of = [owner.granted & (whose == queue) for queue in range(2)]
            self.runs = [runs | has for runs, has in zip(self.runs, of, strict=True)]
            self.begun = [
                each | (has & owner.started) for each, has in zip(self.begun, of, strict=True)
            ]
            mask = [each[number] for each in masks]
            m.d.comb += [
                Assert(~(mask[0] & mask[1])),
                Assert(~owner.granted | Mux(whose, mask[1], mask[0])),
                Assert(~owner.started | (Mux(whose, *reversed(self._phase)) == Phase.RUN) | starts),
                # What is inside.
                Assert(~want[number] | Mux(whose, mask[1], mask[0])),
                Assert(~Mux(whose, mask[0], mask[1])),
            ]
            # And what that assumes of an owner.
            offering = owner.granted & ~owner.started & owner.start & owner.request
            takes_back = self.past(m, offering) & ~owner.start & ~owner.started
            m.d.comb += Assert(~self.past(m, takes_back) | ~owner.request)
        for mask, phase, pair in zip(masks, self._phase, self._of("pair"), strict=True):
            m.d.comb += [
                Assert((mask != 0) == ((phase == Phase.GRANT) | (phase == Phase.RUN))),
                Assert((mask == 0) | ((mask == 3) == pair)),
            ]

    def _reads(self, m):
        """One read at a time; what it reads is where software said."""
        block, inside = self.block, self.inside
        sequencer, table = inside.part("sequencer"), inside.part("table")
        job, reading, reader = block.job, sequencer.reading, sequencer.reader
        takes, retired = job.valid & job.ready, block.retired.valid
        asked, place = Signal(), Signal(5)
        with m.If(retired):
            m.d.sync += asked.eq(0)
        with m.If(takes):
            m.d.sync += [asked.eq(1), place.eq(job.payload.place.offset >> 3)]
        placed = block.placement
        odd = placed.payload.enable[1][0]
        here = Cat(odd, Mux(odd, placed.payload.rows[1], placed.payload.rows[0])[:3])
        entries = reading == Read.ENTRIES
        with m.If(placed.valid):
            m.d.sync += place.eq(place + 1)
        m.d.comb += [
            Assume(~retired | asked),
            Assume(~placed.valid | asked),
            Assume(~placed.valid | ((place == here) & (place < GROUP))),
        ]
        #: its flush read is still to come back
        self.owes, self.place, self.asked, self.reads = [], place, asked, entries
        rows = {
            Read.ENTRIES: queue_row(self._now, "ring_lo"),
            Read.SHADOW: queue_row(self._now, "shadow_lo"),
            Read.FLUSH: slot_row(self._here(self.last_slot), "flush_lo"),
        }
        row = Mux(entries, rows[Read.ENTRIES], rows[Read.SHADOW])
        row = Mux(reading == Read.FLUSH, rows[Read.FLUSH], row)
        mask = self._here(self._work.settings).mask
        under_way, begins = sequencer.under_way, inside.part("sequencer.runs").begin.any()
        m.d.comb += [
            Assert(~job.valid | ~asked),
            Assert(~job.valid | (self._was_row == row)),
            Assert(
                ~job.valid
                | (
                    job.payload.address
                    == (table.word | Mux(entries, (sequencer.next & mask) << 3, 0))
                )
            ),
            # What is inside.
            Assert(~self._at("Job") | (reader == self._now)),
            Assert(under_way == (asked | self._at("Job"))),
            Assert(reading.as_value() != 3),
        ]
        for queue, phase in enumerate(self._phase):
            ours = reader == queue
            flushes = under_way & (reading == Read.FLUSH) & ours
            asks, owes = Signal(name=f"will_owe{queue}"), Signal(name=f"owes{queue}")
            with m.If(self._at("Look up") & (self._now == queue)):
                m.d.sync += asks.eq(begins & CONTROL(table.word[:32]).flush)
            with m.If(retired & (reading == Read.FLUSH) & ours):
                m.d.sync += owes.eq(0)
            with m.If(self._ends[queue]):
                m.d.sync += [owes.eq(asks), asks.eq(0)]
            self.owes.append(owes)
            begun = (phase == Phase.GRANT) | (phase == Phase.RUN)
            m.d.comb += [
                Assert(~owes | self.was_mine[queue]),
                # What is inside.
                Assert(owes == flushes),
                Assert(~flushes | self._work.ending[queue].at_work),
                Assert((phase == Phase.IDLE) | (asks == (begun & self.asks[queue].flush))),
            ]

    def _writes(self, m):
        """Record behind runs and flush read, done word behind the record."""
        table = self.inside.part("table")
        records, record = self.block.records, self.block.records.record.payload
        completion, completer = self._completion, self.inside.part("sequencer").completer
        takes, second = records.record.valid & records.record.ready, completion.second
        follows = self.inside("sequencer.completion.follows")
        #: what was taken last is not done, is a record, and whose; that record is done
        out, wide, whose, written = Signal(), Signal(), Signal(), Signal()
        with m.If(records.done):
            m.d.sync += [out.eq(0), written.eq(wide)]
        with m.If(takes):
            m.d.sync += [out.eq(1), wide.eq(record.wide), written.eq(0), whose.eq(self._now)]
        #: the record of the ticket that ends was taken
        self.recorded = [Signal(name=f"recorded{queue}") for queue in range(2)]
        for queue, recorded in enumerate(self.recorded):
            with m.If(takes & record.wide & (self._now == queue)):
                m.d.sync += recorded.eq(1)
            with m.If(self._ends[queue]):
                m.d.sync += recorded.eq(0)
        #: or would be, but for a first ticket that is set
        offered = self._offers
        mask, asks = self._here(self._work.settings).mask, self._here(self.asked_for)
        base = Mux(
            record.wide,
            queue_row(self._now, "records_lo"),
            slot_row(self._here(self.last_slot), "done_lo"),
        )
        recorded = self._here(self.recorded)
        ends = self._ends[0] | self._ends[1]
        m.d.comb += [
            Assume(~records.done | out),
            Assert(~records.record.valid | offered),
            Assert(~offered | ~out),
            Assert(~ends | ~self._here(self.runs)),
            Assert(~ends | ~out | (whose != self._now)),
            Assert(~offered | ~record.wide | ~self._here(self.owes)),
            Assert(~offered | record.wide | (written & (whose == self._now) & recorded)),
            Assert(~offered | record.wide | (asks.done & self._here(self.was_mine))),
            Assert(~offered | (self._was_row == base)),
            Assert(
                ~offered
                | (record.address == (table.word | Mux(record.wide, (self._oldest & mask) << 3, 0)))
            ),
            Assert(~offered | record.wide | (record.data == 1)),
            # What is inside.
            Assert(~offered | self._here(self._work.ending).at_work),
            Assert(~offered | (completer == self._now)),
            Assert(~offered | (recorded == second)),
            Assert(completion.under_way == out),
            Assert(~out | ((wide == ~second) & (whose == completer))),
            Assert(~second | out | (written & (whose == completer))),
        ]
        for queue, recorded in enumerate(self.recorded):
            ending, completes = self._work.ending[queue], completer == queue
            done = self.asked_for[queue].done & self.was_mine[queue]
            m.d.comb += [
                Assert(ending.recorded == recorded),
                Assert(~self.owes[queue] | ~recorded),
                Assert(~(out | second) | ~completes | (ending.at_work & recorded)),
                Assert(~(ending.at_work & recorded) | (completes & (out | second))),
                Assert(~second | ~completes | done),
                Assert(~out | ~completes | (follows == (wide & done))),
            ]
        self.cover(
            m,
            offered & ~record.wide & asks.flush,
            offered & ~record.wide & asks.pair,
            self.owes[0] & self.begun[0],
        )
        self.records = [takes & record.wide & (self._now == queue) for queue in range(2)]

    def _tails(self, m):
        """Tickets were rung, and have their records in order."""
        block, inside = self.block, self.inside
        sequencer, tails = inside.part("sequencer"), inside.part("tails")
        table = inside.part("table")
        bell, placed = block.doorbell, block.placement
        word, brought = DOORBELL(bell.data[:32]), DOORBELL_ENTRY(bell.data[32:])
        #: any ticket: what holds for it holds for each
        one = self.any(m, 16, "ticket")
        for queue, idle in enumerate(self._idle):
            head, tail = self._work.head[queue], Signal(16, name=f"full_tail{queue}")
            ahead = (tails.tail[queue] - head)[:TAIL_BITS]
            m.d.comb += tail.eq(head + Mux(inside(f"tails.level{queue}"), 0, ahead))
            settings = table.settings[queue]
            ours = self.reads & (sequencer.reader == queue)
            asked, asks = ours & self.asked, ours & self._at("Job")
            ending = self._work.ending[queue]
            #: the ticket that ends has no record
            before = Signal(name=f"before{queue}")
            ticket_next = Signal(16, name=f"next{queue}")
            m.d.comb += [
                before.eq(ending.at_work & ~self.recorded[queue]),
                ticket_next.eq(head + before),
            ]
            at_work = ~idle | ending.at_work
            busy = at_work | (sequencer.under_way & (sequencer.reader == queue))
            following = Signal(16, name=f"following{queue}")
            with m.If(table.load[queue]):
                m.d.sync += following.eq(table.first)
            with m.Elif(self.records[queue]):
                m.d.sync += following.eq(following + 1)
            #: a run for the next ticket has begun
            ran = Signal(name=f"ran{queue}")
            with m.If(self._ends[queue]):
                m.d.sync += ran.eq(0)
            with m.Elif(self.begun[queue]):
                m.d.sync += ran.eq(1)
            phase = self._phase[queue]
            entry = inside.word("entries.column0", Cat(ticket_next[:5], Const(queue, 1)))
            ones = inside.word("entries.column0", Cat(one[:5], Const(queue, 1)))
            fetched = inside(f"entries.fetched{queue}")
            #: how many are there, and whether that ticket's is one of them
            there = (fetched - ticket_next)[:16]
            is_there = (one - ticket_next)[:16] < there
            most = 2 * GROUP - ticket_next % GROUP
            lacks = there < (tail - ticket_next)[:16]
            odd_group, group = inside("entries.odd_group"), fetched[exact_log2(GROUP)]
            work = ~idle
            page = regs.DOORBELL_BASE + regs.DOORBELL_STRIDE * queue
            rung = (
                bell.valid
                & (bell.bar == regs.BAR_USER[0])
                & (bell.address == page >> 3)
                & bell.enable.all()
                & settings.armed
                & (word.generation == settings.generation)
                & ((word.tail - tail)[:16].as_signed() > 0)
            )
            comes = inside("entries.comes") & (inside("entries.whose") == queue)
            was_read = ours & placed.valid & (placed.payload.data[:16] == fetched)
            with_bell = rung & (word.tail == (fetched + 1)[:16])
            #: of that ticket: upper half of its number, and slot
            kept_one = Signal(22, name=f"kept_one{queue}")
            with m.If(comes & (fetched == one)):
                m.d.sync += kept_one.eq(
                    Mux(was_read, placed.payload.data[16:38], Cat(brought.ticket, brought.slot))
                )
            #: upper half of the number of the ticket that ends
            kept = Signal(16, name=f"kept{queue}")
            with m.If(self._ends[queue]):
                m.d.sync += kept.eq(entry[:16])
            slot = self._of("slot")[queue]
            ticket, upper = (block.records.record.payload.data[n : n + 16] for n in (0, 16))
            m.d.comb += [
                Assume(~table.load[queue] | ~(settings.armed | busy)),
                Assume(~table.armed[queue] | ~busy),
                Assert(~work | (ticket_next != tail)),
                Assert(~before | (head != tail)),
                Assert(head == following),
                Assert(~self.records[queue] | (ticket == following)),
                Assert(~comes | was_read | with_bell),
                Assert(~(work & (ticket_next == one)) | (slot == kept_one[16:])),
                Assert(~self.records[queue] | (upper == kept)),
                Assert(~ran | (phase == Phase.RUN)),
                # What is inside.
                Assert(~before | (ending.upper == kept)),
                Assert((tail - head)[:16] <= 256),
                Assert(~is_there | (ones == kept_one)),
                Assert(there <= most),
                Assert(~asks | ((odd_group == group) & (there < most))),
                Assert(~asked | (self.place != 0) | (odd_group != group) | (there < most)),
                # Up to a read's first entry, no doorbell brings one: what is read was rung before.
                Assert(~asks | lacks),
                Assert(~asked | (self.place != 0) | lacks),
                Assert(~work | (there != 0)),
            ]
