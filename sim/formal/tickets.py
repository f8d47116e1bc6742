# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: in which order a ticket goes through its steps, and what it can reach."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib.data import View
from amaranth.utils import exact_log2

from hw.channel.signatures import RUNS
from hw.launch.entries import GROUP
from hw.launch.queues import LaunchQueues
from hw.launch.records import (
    CONTROL,
    DOORBELL,
    DOORBELL_ENTRY,
    PLACES,
    STATE,
    Phase,
    Read,
    queue_row,
    slot_row,
)
from hw.launch.runs import DESCRIPTOR_WORDS
from hw.launch.tails import TAIL_BITS
from hw.records import Outcome
from peerdma import regs

from .property import Property

__all__ = ["Tickets"]


class Tickets(Property):
    """A ticket that was rung goes through its steps once, in order; no address is from a GPU.

    A ticket that is at work, up to its record, was rung. It begins one run on each of its channels,
    and ends only when those have ended, and the ticket before has its record and done word. One for
    a packet requests its channel when there is a packet, and its run begins with two descriptors,
    of the slot and of the one behind. Each ticket has one record, with its number, in the order of
    tickets; and that is not offered before the flush read, if the slot asks for one, has come back.
    The done word is that of its slot, and waits for the record. The queue's state shows the places
    of all that are at work, and those have their slots. Runs overlap on one channel only. No
    channel is two queues'. The runs, flush reads, and done words of a queue are of a slot that was
    valid and the queue's as it was looked up; all addresses, and the descriptors, are words that
    software has written to such a slot or to the queue. The slot is that of an entry with the
    ticket's number, or the one that came with the doorbell by which the tail moved to behind the
    ticket. Entries and doorbells are any words.

    Assumed: a channel's grant (what `grants` proves), reads that come back once, in the places that
    were asked for, writes that are reported done once. Software sets the first ticket while the
    queue is neither armed nor busy, and arms it while it is not busy.
    """

    depth = 2
    reach = 40

    def __init__(self):
        super().__init__(LaunchQueues(queues=2, h2c=1, c2h=1, pairs=1, width=64, packets=True))

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
            (phase == Phase.IDLE) & (running == 0) & ~(looks & (self._now == queue))
            for queue, (phase, running) in enumerate(
                zip(self._phase, self._of("running"), strict=True)
            )
        ]
        #: any ticket: what holds for it holds for each
        self._one = self.any(m, 16, "ticket")
        #: of it: upper half of its number, and slot
        self._kept_one = [Signal(22, name=f"kept_one{queue}") for queue in range(2)]
        #: for each queue: the oldest ticket at work, the oldest that has not ended, the next one to
        #: be started, and how many are at work
        self._first, self._oldest_of, self._next, self._count = [], [], [], []
        for queue, ending in enumerate(work.ending):
            first, oldest, following = (
                Signal(16, name=f"{name}{queue}") for name in ("first", "oldest", "next")
            )
            count = Signal(range(2 * PLACES), name=f"count{queue}")
            waits = (self._phase[queue] != Phase.IDLE) | (looks & (self._now == queue))
            running = self._of("running")[queue]
            m.d.comb += [
                first.eq(work.head[queue] - (ending.at_work & ending.recorded)),
                oldest.eq(work.head[queue] + self._before(queue)),
                following.eq(oldest + running),
                count.eq(running + ending.at_work + waits),
            ]
            self._first.append(first)
            self._oldest_of.append(oldest)
            self._next.append(following)
            self._count.append(count)
        m.d.comb += [
            # What is inside.
            Assert(self._at()),
        ]
        self._slots(m)
        self._channels(m)
        self._reads(m)
        self._writes(m)
        self._tails(m)

    def _before(self, queue):
        """The ticket that ends has no record."""
        ending = self._work.ending[queue]
        return ending.at_work & ~ending.recorded

    def _here(self, values):
        """That of the queue that is served."""
        chosen = Mux(self._now, *(Value.cast(each) for each in reversed(values)))
        return values[0].shape()(chosen) if isinstance(values[0], View) else chosen

    def _slots(self, m):
        """What is kept of a slot is from when it was looked up; runs are of its descriptor."""
        inside, table = self.inside, self.inside.part("table")
        looks, control = self._at("Look up"), CONTROL(table.word[:32])
        self.asks, self.mine, self.slot = [], [], []
        #: the same of that ticket
        self.asked_for, self.was_mine = [], []
        for queue, phase in enumerate(self._phase):
            asks, mine = Signal(CONTROL, name=f"asks{queue}"), Signal(name=f"mine{queue}")
            slot = Signal(6, name=f"looked_up{queue}")
            last = Signal(CONTROL, name=f"asked_for{queue}"), Signal(name=f"was_mine{queue}")
            looked_up = looks & (self._now == queue)
            ours = control.valid & (control.queue == queue)
            with m.If(looked_up):
                m.d.sync += [asks.eq(control), mine.eq(ours), slot.eq(self._was_row[3:])]
            with m.If(looked_up & (self._next[queue] == self._one)):
                m.d.sync += [last[0].eq(control), last[1].eq(ours)]
            self.asks.append(asks)
            self.mine.append(mine)
            self.slot.append(slot)
            self.asked_for.append(last[0])
            self.was_mine.append(last[1])
            ending, running = self._work.ending[queue], self._of("running")[queue]
            waits = (phase == Phase.GRANT) | (phase == Phase.OVER)
            state = STATE(self._work.state[queue])
            first, count = self._first[queue], self._count[queue]
            at_work = (self._one - first)[:16] < count
            kept = inside.word("work.tickets", Cat(self._one[:3], Const(queue, 1)))
            upper, slot_of = self._kept_one[queue][:16], self._kept_one[queue][16:]
            comes, asked_for = looked_up & (self._next[queue] == self._one), last[0]
            m.d.comb += [
                # The places that the state shows are those of all tickets at work, ...
                Assert(state.starting == (waits | looked_up)),
                Assert((state.place - state.recorded)[:3] == first[:3]),
                Assert(state.ending + state.running + state.starting == count),
                Assert((count == 0) | state.busy),
                Assert(count <= PLACES),
                # ... and each has its slot, with what that has asked for.
                Assert(
                    ~at_work
                    | comes
                    | (kept == Cat(slot_of, upper, asked_for.done & last[1], asked_for.flush))
                ),
                # What is inside.
                Assert(~ending.recorded | ending.at_work),
                Assert((phase != Phase.GRANT) | (running < RUNS)),
                Assert((running == 0) | ~waits | (running + ending.at_work < PLACES)),
                Assert((running <= 1) | self._single(queue)),
                Assert(~self._ends[queue] | ~ending.at_work),
                Assert(~looked_up | ~waits),
                Assert(~looked_up | (running < RUNS)),
                Assert(phase != 3),
                Assert((phase != Phase.GRANT) | mine),
                Assert(~waits | (self._of("pair")[queue] == asks.pair)),
                Assert(~waits | (self._of("receives")[queue] == asks.receive)),
                Assert(
                    ~(waits & (self._next[queue] == self._one))
                    | ((asks == last[0]) & (mine == last[1]) & (slot == slot_of))
                ),
            ]
        half, number = inside("sequencer.start.half"), inside.part("sequencer.start").number
        here, pair = self._here(self._phase), self._here(self._of("pair"))
        pushes, starts = self._pushes, self._starts
        slot = self._here(self.slot)
        runs, control = inside.part("sequencer.runs"), CONTROL(table.word[:32])
        word, behind_it = number[:2], number[2]
        behind = half | behind_it
        m.d.comb += [
            Assert(~(pushes | starts) | (here == Phase.GRANT)),
            Assert(~(pushes | starts) | ~half | pair),
            Assert(~(starts | looks) | (number == 0)),
            Assert(~half | pushes | starts | self._at("Look")),
            Assert(
                ~pushes
                | (self._was_row == slot_row(Cat(slot[0] | behind, slot[1:]), word | Const(0, 3)))
            ),
            # A packet's two descriptors are those of its slot and of the one behind.
            Assert(~behind_it | self._here(self.asks).receive),
            # A ticket for one requests its channel when there is one.
            Assert(~(looks & runs.begin.any() & control.receive) | self.block.packets.any()),
        ]
        for owner in self.block.owners:
            row = self._was_row
            m.d.comb += [
                Assert(~owner.word.valid | (row[4:] == slot[1:])),
                Assert(
                    ~owner.word.valid
                    | (row[3] == slot[0])
                    | self._here(self.asks).pair
                    | self._here(self.asks).receive
                ),
                Assert(~owner.word.valid | (row[:3] < DESCRIPTOR_WORDS)),
                Assert(~owner.word.valid | (owner.word.payload.data == table.word)),
                Assert(~owner.word.valid | self._here(self.mine)),
                Assert(~owner.word.valid | (owner.receives == self._here(self.asks).receive)),
                # The run begins with both.
                Assert(~owner.start | ~owner.receives | starts | behind_it),
            ]

    def _single(self, queue):
        """Its runs are of one channel."""
        mask = self.inside(f"sequencer.runs.mask{queue}")
        return (mask == 1) | (mask == 2)

    def _channels(self, m):
        """No channel is two queues', and none is a queue's that does not wait for it."""
        inside = self.inside
        masks = [inside(f"sequencer.runs.mask{queue}") for queue in range(2)]
        want, begin = inside("sequencer.runs.want"), inside.part("sequencer.runs").begin
        half, began = inside("sequencer.start.half"), inside("sequencer.start.began")
        starting = self._pushes | self._starts
        #: tickets of which a run has begun, and whose end was not looked at
        under_way = [
            running + (starting & (self._now == queue) & (half | began))
            for queue, running in enumerate(self._of("running"))
        ]
        #: for each channel: how many are under way
        self.runs = []
        for number, owner in enumerate(self.block.owners):
            end, was, ended = owner.ended.valid, {}, owner.ended.payload
            for name in ("request", "granted", "started", "runs"):
                was[name] = self.past(m, getattr(owner, name))
            over = end & ended.last
            was_over = self.past(m, over)
            #: runs of the channel
            runs = Signal(range(RUNS + 1), name=f"runs{number}")
            begins = owner.start & owner.ready
            m.d.sync += runs.eq(Mux(over, 0, runs + begins - end))
            broken = (ended.outcome != Outcome.OK) | ended.aborted
            left = Mux(self.past(m, broken), was["runs"], 0)
            m.d.comb += [
                # What a grant does.
                Assume(~owner.granted | was["granted"] | was["request"]),
                Assume(~owner.granted | ~was_over),
                Assume(~owner.granted | ~was["granted"] | was["started"] | was["request"]),
                Assume(owner.granted | ~was["started"] | was_over),
                Assume(owner.granted | ~was["granted"] | was_over | ~was["request"]),
                Assume(owner.granted | ~owner.started),
                Assume(owner.started == (runs != 0)),
                Assume(~owner.started | (owner.runs == runs)),
                Assume(~owner.granted | owner.started | (owner.runs == 1)),
                Assume(owner.granted | (owner.runs == Mux(was_over, left, was["runs"]))),
                Assume(~owner.ready | (owner.granted & owner.request & (runs != RUNS) & ~end)),
                Assume(~end | owner.started),
                Assume(~end | (ended.last == (broken | (runs == 1)))),
                Assume(self.started(m) | ~owner.granted),
            ]
            whose = Signal(name=f"whose{number}")
            with m.If(begin[number]):
                m.d.sync += whose.eq(self._now)
            self.runs.append(runs)
            mask = [each[number] for each in masks]
            begun = [Signal(name=f"begun{number}_{queue}") for queue in range(2)]
            for queue, each in enumerate(begun):
                here = (self._now == queue) & (self._next[queue] == self._one)
                with m.If(self._at("Look up") & here):
                    m.d.sync += each.eq(0)
                with m.Elif(begins & here):
                    m.d.sync += each.eq(1)
                one_waits = self._next[queue] == self._one
                waits = self._phase[queue] == Phase.GRANT
                begins_now = starting & (self._now == queue) & (began | (half & (number == 0)))
                has_begun = (self._of("running")[queue] != 0) | begins_now
                m.d.comb += [
                    # A run of each channel begins once for a ticket.
                    Assert(~(begins & here) | ~each),
                    # The oldest one's has ended where it ends.
                    Assert(
                        ~self._ends[queue]
                        | ~mask[queue]
                        | (runs < self._of("running")[queue])
                        | (runs == 0)
                    ),
                    # What is inside.
                    Assert(~(one_waits & waits & each) | begins_now),
                    Assert(~mask[queue] | (runs <= under_way[queue])),
                    Assert(~(mask[queue] & want[number] & has_begun) | owner.started),
                ]
            m.d.comb += [
                Assert(~(mask[0] & mask[1])),
                Assert(~owner.granted | Mux(whose, mask[1], mask[0])),
                # What is inside.
                Assert(~want[number] | Mux(whose, mask[1], mask[0])),
                Assert(~Mux(whose, mask[0], mask[1])),
            ]
        second = starting & self._here(self._of("pair"))
        m.d.comb += [
            Assert(~second | (self.runs[1] == 0)),
            Assert(~(starting & self._here(self._of("pair"))) | ~began),
        ]
        of = masks, self._phase, self._of("running"), self._of("pair")
        overlaps, receives = self._of("overlaps"), self._of("receives")
        for queue, (mask, phase, running, pair) in enumerate(zip(*of, strict=True)):
            for number, owner in enumerate(self.block.owners):
                waits = mask[number] & (phase == Phase.GRANT)
                m.d.comb += [
                    Assert(~waits | (owner.receives == receives[queue])),
                    Assert(~(mask[number] & overlaps[queue] & (running != 0)) | ~owner.receives),
                ]
            m.d.comb += [
                Assert((phase != Phase.GRANT) | (running == 0) | overlaps[queue]),
                Assert((phase != Phase.GRANT) | ~(overlaps[queue] & receives[queue])),
                Assert((mask != 0) == ((phase == Phase.GRANT) | (running != 0))),
                Assert((mask == 0) | (phase != Phase.GRANT) | ((mask == 3) == pair)),
                Assert((mask != 3) | (phase != Phase.GRANT) | (running == 0)),
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
            Read.FLUSH: slot_row(self._here(self._kept_one)[16:], "flush_lo"),
        }
        row = Mux(entries, rows[Read.ENTRIES], rows[Read.SHADOW])
        row = Mux(reading == Read.FLUSH, rows[Read.FLUSH], row)
        #: what is said of a ticket is said of that one
        of_it = self._here(self._first) == self._one
        mask = self._here(self._work.settings).mask
        under_way = sequencer.under_way
        m.d.comb += [
            Assert(~job.valid | ~asked),
            Assert(~job.valid | (self._was_row == row) | ((reading == Read.FLUSH) & ~of_it)),
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
        for queue in range(2):
            ours, ending = reader == queue, self._work.ending[queue]
            flushes = under_way & (reading == Read.FLUSH) & ours
            owes, oldest = Signal(name=f"owes{queue}"), self._first[queue] == self._one
            started = self._of("running")[queue] != 0
            with m.If(retired & (reading == Read.FLUSH) & ours):
                m.d.sync += owes.eq(0)
            with m.If(self._ends[queue] & oldest):
                m.d.sync += owes.eq(started & self.asked_for[queue].flush)
            self.owes.append(owes)
            m.d.comb += [
                Assert(~owes | self.was_mine[queue]),
                # What is inside.
                Assert(~(ending.at_work & oldest) | (owes == flushes)),
                Assert(~owes | (ending.at_work & oldest)),
                Assert(~flushes | (ending.at_work & ~ending.recorded)),
                Assert(~flushes | ~self._offers | (self._now != queue)),
                Assert(
                    ~((self._one - self._oldest_of[queue])[:16] < self._of("running")[queue])
                    | self.was_mine[queue]
                ),
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
            slot_row(self._here(self._kept_one)[16:], "done_lo"),
        )
        recorded = self._here(self.recorded)
        #: what is said of a ticket is said of that one
        of_it = self._here(self._first) == self._one
        ends = self._ends[0] | self._ends[1]
        m.d.comb += [
            Assume(~records.done | out),
            Assert(~records.record.valid | offered),
            Assert(~offered | ~out),
            Assert(~ends | ~out | (whose != self._now)),
            Assert(~offered | ~record.wide | ~self._here(self.owes)),
            Assert(~offered | record.wide | (written & (whose == self._now) & recorded)),
            Assert(~(offered & of_it) | record.wide | (asks.done & self._here(self.was_mine))),
            Assert(~(offered & (of_it | record.wide)) | (self._was_row == base)),
            Assert(
                ~offered
                | (record.address == (table.word | Mux(record.wide, (self._oldest & mask) << 3, 0)))
            ),
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
            of_it = self._first[queue] == self._one
            m.d.comb += [
                Assert(ending.recorded == (ending.at_work & recorded)),
                Assert(~self.owes[queue] | ~recorded),
                Assert(~(out | second) | ~completes | (ending.at_work & recorded)),
                Assert(~(ending.at_work & recorded) | (completes & (out | second))),
                Assert(~(second & of_it) | ~completes | done),
                Assert(~(out & of_it) | ~completes | (follows == (wide & done))),
                Assert(~out | wide | ~follows),
            ]
        self.cover(
            m,
            offered & ~record.wide & asks.flush,
            offered & ~record.wide & asks.pair,
            self.owes[0] & (self.runs[0] != 0),
            self.runs[1] == 2,
            self._here(self.asks).receive & (self.runs[1] != 0),
        )
        self.records = [takes & record.wide & (self._now == queue) for queue in range(2)]

    def _tails(self, m):
        """Tickets were rung, and have their records in order."""
        block, inside = self.block, self.inside
        sequencer, tails = inside.part("sequencer"), inside.part("tails")
        table = inside.part("table")
        bell, placed = block.doorbell, block.placement
        word, brought = DOORBELL(bell.data[:32]), DOORBELL_ENTRY(bell.data[32:])
        one = self._one
        for queue, idle in enumerate(self._idle):
            head, tail = self._work.head[queue], Signal(16, name=f"full_tail{queue}")
            ahead = (tails.tail[queue] - head)[:TAIL_BITS]
            m.d.comb += tail.eq(head + Mux(inside(f"tails.level{queue}"), 0, ahead))
            settings = table.settings[queue]
            ours = self.reads & (sequencer.reader == queue)
            asked, asks = ours & self.asked, ours & self._at("Job")
            ending = self._work.ending[queue]
            ticket_next, count = self._next[queue], self._count[queue]
            at_work = ~idle | ending.at_work
            busy = at_work | (sequencer.under_way & (sequencer.reader == queue))
            following = Signal(16, name=f"following{queue}")
            with m.If(table.load[queue]):
                m.d.sync += following.eq(table.first)
            with m.Elif(self.records[queue]):
                m.d.sync += following.eq(following + 1)
            entry = inside.word("entries.column0", Cat(ticket_next[:5], Const(queue, 1)))
            ones = inside.word("entries.column0", Cat(one[:5], Const(queue, 1)))
            fetched = inside(f"entries.fetched{queue}")
            #: how many are there, and whether that ticket's is one of them
            there = (fetched - ticket_next)[:16]
            is_there = (one - ticket_next)[:16] < there
            most = 2 * GROUP - ticket_next % GROUP
            lacks = there < (tail - ticket_next)[:16]
            odd_group, group = inside("entries.odd_group"), fetched[exact_log2(GROUP)]
            looked_up = self._at("Look up") & (self._now == queue)
            work = (self._phase[queue] != Phase.IDLE) | looked_up
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
            kept_one = self._kept_one[queue]
            with m.If(comes & (fetched == one)):
                m.d.sync += kept_one.eq(
                    Mux(was_read, placed.payload.data[16:38], Cat(brought.ticket, brought.slot))
                )
            slot = Mux(looked_up, self._was_row[3:], self.slot[queue])
            ticket, upper = (block.records.record.payload.data[n : n + 16] for n in (0, 16))
            m.d.comb += [
                Assume(~table.load[queue] | ~(settings.armed | busy)),
                Assume(~table.armed[queue] | ~busy),
                # All that are at work were rung.
                Assert((count == 0) | (((tail - self._first[queue])[:16] - count)[:16] <= 256)),
                Assert(head == following),
                Assert(~self.records[queue] | (ticket == following)),
                Assert(~comes | was_read | with_bell),
                Assert(~(work & (ticket_next == one)) | (slot == kept_one[16:])),
                Assert(~(self.records[queue] & (head == one)) | (upper == kept_one[:16])),
                # What is inside.
                Assert(~work | (entry[16:] == slot)),
                # What is inside.
                Assert(~looked_up | (self._was_row == slot_row(slot, "control"))),
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
