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

__all__ = ["Copies", "Tickets"]

_STATUS = regs.LaunchStatus


class Tickets(Property):
    """A ticket that was rung goes through its steps once, in order; no address is from a GPU.

    A ticket that is at work, up to its record, was rung. It begins one run on each of its channels,
    and ends only when those have ended, and the ticket before has its record and done word. One for
    a packet requests its channel when there is a packet, and its run begins with two descriptors,
    of the slot and of the one behind. Each ticket has one record, with its number, in the order of
    tickets; and that is not offered before the flush read, if the slot asks for one, has come back.
    The done word is that of its slot, and waits for the record. The queue's state shows the places
    of all that are at work, and those have their slots. Runs overlap only on the channel or pair
    that the slots of all name, and only if all of these allow it. A copy's H2C run begins before
    that of C2H, behind others together with the promise of that one; and the pair is flushed before
    the first one, when none is under way. If one half of a copy fails, the other one is aborted,
    but not what its channel has of tickets before. No channel is two queues'. The runs, flush
    reads, and done words of a queue are of a slot that was valid and the queue's as it was looked
    up; all addresses, and the descriptors, are words that software has written to such a slot or to
    the queue. The slot is that of an entry with the ticket's number, or the one that came with the
    doorbell by which the tail moved to behind the ticket. Entries and doorbells are any words.

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

    def _assert(self, condition):
        """What is said of anything but channels."""
        return Assert(condition, src_loc_at=1)

    def _assert_of_copies(self, condition):
        """What is said of copies; bugs in that are found by `Copies`."""
        return [] if self.finding else Assert(condition, src_loc_at=1)

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
                self._assert(state.starting == (waits | looked_up)),
                self._assert((state.place - state.recorded)[:3] == first[:3]),
                self._assert(state.ending + state.running + state.starting == count),
                self._assert((count == 0) | state.busy),
                self._assert(count <= PLACES),
                # ... and each has its slot, with what that has asked for.
                self._assert(
                    ~at_work
                    | comes
                    | (kept == Cat(slot_of, upper, asked_for.done & last[1], asked_for.flush))
                ),
                # What is inside.
                self._assert(~ending.recorded | ending.at_work),
                self._assert((phase != Phase.GRANT) | (running < RUNS)),
                self._assert((running == 0) | ~waits | (running + ending.at_work < PLACES)),
                self._assert(~self._ends[queue] | ~ending.at_work),
                self._assert(~looked_up | ~waits),
                self._assert(~looked_up | (running < RUNS)),
                self._assert(phase != 3),
                self._assert((phase != Phase.GRANT) | mine),
                self._assert(~waits | (self._of("pair")[queue] == asks.pair)),
                self._assert(~waits | (self._of("receives")[queue] == asks.receive)),
                self._assert(
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
            self._assert(~(pushes | starts) | (here == Phase.GRANT)),
            self._assert(~(pushes | starts) | ~half | pair),
            self._assert(~(starts | looks) | (number == 0)),
            self._assert(~half | pushes | starts | self._at("Look")),
            self._assert(
                ~pushes
                | (self._was_row == slot_row(Cat(slot[0] | behind, slot[1:]), word | Const(0, 3)))
            ),
            # A packet's two descriptors are those of its slot and of the one behind.
            self._assert(~behind_it | self._here(self.asks).receive),
            # A ticket for one requests its channel when there is one.
            self._assert(~(looks & runs.begin.any() & control.receive) | self.block.packets.any()),
        ]
        for owner in self.block.owners:
            row = self._was_row
            m.d.comb += [
                self._assert(~owner.word.valid | (row[4:] == slot[1:])),
                self._assert(
                    ~owner.word.valid
                    | (row[3] == slot[0])
                    | self._here(self.asks).pair
                    | self._here(self.asks).receive
                ),
                self._assert(~owner.word.valid | (row[:3] < DESCRIPTOR_WORDS)),
                self._assert(~owner.word.valid | (owner.word.payload.data == table.word)),
                self._assert(~owner.word.valid | self._here(self.mine)),
                self._assert(~owner.word.valid | (owner.receives == self._here(self.asks).receive)),
                # The run begins with both.
                self._assert(~owner.start | ~owner.receives | starts | behind_it),
            ]

    @staticmethod
    def _channels_of(control):
        """Those that a slot names."""
        return Mux(control.pair, 3, Mux(control.c2h, 2, 1))

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
        #: for each channel: how many are under way; the last one is promised and has not begun
        self.begun, self.runs, self.promised, begins_on, promises_on = [], [], [], [], []
        #: for each channel, whether a run has failed or was aborted, and of which ticket
        failed, failed_one = [], []
        #: for each channel and queue, the ticket of the oldest run that is under way, or follows
        oldest_run = []
        for number, owner in enumerate(self.block.owners):
            end, was, ended = owner.ended.valid, {}, owner.ended.payload
            for name in ("request", "granted", "started", "runs"):
                was[name] = self.past(m, getattr(owner, name))
            over = end & ended.last
            was_over = self.past(m, over)
            #: runs of the channel
            runs = Signal(range(RUNS + 1), name=f"runs{number}")
            owes = Signal(name=f"promised{number}")
            begins = owner.start & owner.ready
            promises = owner.reserve & owner.ready & ~owner.start & owner.started & ~owes
            adds = (begins & ~owes) | promises
            with m.If(over):
                m.d.sync += [runs.eq(0), owes.eq(0)]
            with m.Else():
                m.d.sync += [runs.eq(runs + adds - end), owes.eq(promises | (owes & ~begins))]
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
                Assume(~owner.ready | (owner.granted & owner.request)),
                Assume(~owner.ready | Mux(owes, ~over, (runs != RUNS) & ~end)),
                Assume(~end | owner.started),
                # What has not begun does not end by Stop.
                Assume(~end | broken | (runs != owes)),
                Assume(~end | (ended.last == (broken | (runs == 1)))),
                Assume(self.started(m) | ~owner.granted),
            ]
            whose = Signal(name=f"whose{number}")
            with m.If(begin[number]):
                m.d.sync += whose.eq(self._now)
            self.runs.append(runs)
            self.promised.append(owes)
            begins_on.append(begins)
            promises_on.append(promises)
            fails, of = Signal(name=f"fails{number}"), Signal(16, name=f"fails_of{number}")
            follows = [running != 0 for running in self._of("running")]
            #: a run of the ticket that is started is under way here
            one_more = [
                starting
                & (self._now == queue)
                & (Mux(pair, follows[queue] & (half | began), began) if number else half | began)
                for queue, pair in enumerate(self._of("pair"))
            ]
            oldest_run.append(
                [
                    (self._oldest_of[queue] + running + one_more[queue] - runs)[:16]
                    for queue, running in enumerate(self._of("running"))
                ]
            )
            with m.If(begin[number]):
                m.d.sync += fails.eq(0)
            with m.Elif(end & broken):
                m.d.sync += [fails.eq(1), of.eq(Mux(whose, *reversed(oldest_run[-1])))]
            failed.append(fails)
            failed_one.append(of)
            mask = [each[number] for each in masks]
            begun = [Signal(name=f"begun{number}_{queue}") for queue in range(2)]
            self.begun.append(begun)
            for queue, each in enumerate(begun):
                here = (self._now == queue) & (self._next[queue] == self._one)
                with m.If(self._at("Look up") & here):
                    m.d.sync += each.eq(0)
                with m.Elif(begins & here):
                    m.d.sync += each.eq(1)
                one_waits = self._next[queue] == self._one
                waits = self._phase[queue] == Phase.GRANT
                begun_now = one_more[queue] | (self._of("running")[queue] != 0)
                m.d.comb += Assert(~(mask[queue] & fails) | begun_now)
                pair = self._of("pair")[queue]
                one_begun = Mux(pair, half & began, began) if number else half | began
                begins_now = starting & (self._now == queue) & one_begun
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
                Assert(~fails | ~(want[number] | owner.granted)),
                Assert(~owes | (runs != 0)),
            ]
        copies = starting & self._here(self._of("pair"))
        self.both, self.failed = (masks[0] == 3) & (want == 3), failed
        behind, (h2c, c2h) = self._here(self._of("running")) != 0, self.block.owners
        #: a copy's H2C run has begun behind others, and not that of C2H
        between = copies & behind & (half ^ began)
        #: the pair of the copy that is started was flushed
        flushed, flush = Signal(), self.block.flush[0]
        m.d.sync += flushed.eq((flushed | flush) & copies)
        start = inside.part("sequencer.start")
        begun_here = [self._here([each[0], each[1]]) for each in self.begun]
        of_it = copies & (self._here(self._next) == self._one)
        whole = begun_here[1] | begins_on[1] | start.stop
        m.d.comb += [
            # A copy's halves begin one after the other.
            self._assert_of_copies(~(begins_on[0] & copies) | ~half),
            self._assert_of_copies(~(begins_on[1] & copies) | half),
            self._assert_of_copies(~(copies & ~behind) | (self.runs[1] == 0)),
            self._assert_of_copies(~copies | ~began | behind),
            # Behind others, H2C begins when C2H is promised, and C2H is, up to its start.
            self._assert_of_copies((promises_on[1] | h2c.reserve | c2h.reserve) == c2h.reserve),
            self._assert_of_copies(c2h.reserve == (begins_on[0] & copies & behind)),
            self._assert_of_copies(~c2h.reserve | promises_on[1]),
            self._assert_of_copies(~(between & c2h.started) | self.promised[1]),
            self._assert_of_copies(~self.promised[1] | between | ~want[1]),
            self._assert_of_copies(~(begins_on[1] & copies & behind) | self.promised[1]),
            self._assert_of_copies(~self.promised[0]),
            # Either both of them have begun, or none, or all are aborted.
            self._assert_of_copies(~(of_it & start.begun) | (begun_here[0] & whole)),
            self._assert_of_copies(
                ~(of_it & start.done & ~start.begun) | ~(begun_here[0] | begun_here[1])
            ),
            # What earlier runs have left is not in the first one, and what runs is not flushed.
            self._assert_of_copies(~flush | (copies & h2c.granted & c2h.granted)),
            self._assert_of_copies(~flush | ((self.runs[0] == 0) & (self.runs[1] == 0))),
            self._assert_of_copies(~(begins_on[0] & copies & ~behind) | flushed),
            # What is inside.
            self._assert_of_copies(~(copies & ~behind & (half | self._starts)) | flushed),
            self._assert_of_copies(
                ~(copies & ~behind & (half | self._starts) & want[1]) | c2h.granted
            ),
            self._assert_of_copies(~of_it | (begun_here[0] == (half | began))),
            self._assert_of_copies(~of_it | (begun_here[1] == (half & began))),
        ]
        runs, disarmed = inside.part("sequencer.runs"), inside.part("sequencer").disarmed
        step = inside.part("sequencer").step
        good = (step.outcome == _STATUS.OK) | (step.outcome == _STATUS.LONG)
        well = [ends & ~step.unstarted & good for ends in self._ends]
        for one, other in ((0, 1), (1, 0)):
            owner, end = self.block.owners[one], self.block.owners[one].ended
            for queue, mask in enumerate(masks):
                ours = mask == 3
                #: the oldest run of the one is of the ticket that failed on the other one, or later
                reached = ~(oldest_run[one][queue] - failed_one[other])[15]
                is_behind = ~(self._oldest_of[queue] - failed_one[other])[15]
                aborts = disarmed[queue] | ((runs.stop | runs.give_back) & (self._now == queue))
                drops = (end.valid & end.payload.last) | aborts
                m.d.comb += [
                    # The other half of a copy that failed is aborted, and no copy before.
                    self._assert_of_copies(
                        ~self.past(m, ours & failed[other] & reached) | ~want[one]
                    ),
                    self._assert_of_copies(
                        ~self.past(m, ours & want[one] & ~drops & ~(failed[other] & reached))
                        | want[one]
                    ),
                    # A ticket that is said to have ended well is before one that failed.
                    self._assert_of_copies(
                        ~(well[queue] & mask[other] & failed[other]) | ~is_behind
                    ),
                    # What is inside.
                    self._assert_of_copies(
                        ~(mask[other] & failed[other])
                        | (
                            failed_one[other]
                            == (oldest_run[other][queue] - self.block.owners[other].runs)[:16]
                        )
                    ),
                ]
        m.d.comb += self._assert_of_copies(inside("sequencer.runs.failed") == Cat(failed))
        of = masks, self._phase, self._of("running"), self._of("pair")
        overlaps, receives = self._of("overlaps"), self._of("receives")
        for queue, (mask, phase, running, pair) in enumerate(zip(*of, strict=True)):
            for number, owner in enumerate(self.block.owners):
                waits = mask[number] & (phase == Phase.GRANT)
                m.d.comb += [
                    Assert(~waits | (owner.receives == receives[queue])),
                    Assert(~(mask[number] & overlaps[queue] & (running != 0)) | ~owner.receives),
                ]
            one_runs = (self._one - self._oldest_of[queue])[:16] < running
            asked_for = self.asked_for[queue]
            m.d.comb += [
                Assert((phase != Phase.GRANT) | (running == 0) | overlaps[queue]),
                Assert((phase != Phase.GRANT) | ~(overlaps[queue] & receives[queue])),
                Assert((mask != 0) == ((phase == Phase.GRANT) | (running != 0))),
                Assert((mask == 0) | (phase != Phase.GRANT) | ((mask == 3) == pair)),
                Assert((phase != Phase.GRANT) | (mask == self._channels_of(self.asks[queue]))),
                Assert((phase != Phase.GRANT) | ~overlaps[queue] | self.asks[queue].overlap),
                # Those that run are of the same channels; those that overlap all allow it.
                self._assert_of_copies(~one_runs | (mask == self._channels_of(asked_for))),
                self._assert_of_copies(
                    ~(one_runs & (overlaps[queue] | (running > 1))) | asked_for.overlap
                ),
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
            self._assert(~job.valid | ~asked),
            self._assert(~job.valid | (self._was_row == row) | ((reading == Read.FLUSH) & ~of_it)),
            self._assert(
                ~job.valid
                | (
                    job.payload.address
                    == (table.word | Mux(entries, (sequencer.next & mask) << 3, 0))
                )
            ),
            # What is inside.
            self._assert(~self._at("Job") | (reader == self._now)),
            self._assert(under_way == (asked | self._at("Job"))),
            self._assert(reading.as_value() != 3),
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
                self._assert(~owes | self.was_mine[queue]),
                # What is inside.
                self._assert(~(ending.at_work & oldest) | (owes == flushes)),
                self._assert(~owes | (ending.at_work & oldest)),
                self._assert(~flushes | (ending.at_work & ~ending.recorded)),
                self._assert(~flushes | ~self._offers | (self._now != queue)),
                self._assert(
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
            self._assert(~records.record.valid | offered),
            self._assert(~offered | ~out),
            self._assert(~ends | ~out | (whose != self._now)),
            self._assert(~offered | ~record.wide | ~self._here(self.owes)),
            self._assert(~offered | record.wide | (written & (whose == self._now) & recorded)),
            self._assert(
                ~(offered & of_it) | record.wide | (asks.done & self._here(self.was_mine))
            ),
            self._assert(~(offered & (of_it | record.wide)) | (self._was_row == base)),
            self._assert(
                ~offered
                | (record.address == (table.word | Mux(record.wide, (self._oldest & mask) << 3, 0)))
            ),
            # What is inside.
            self._assert(~offered | self._here(self._work.ending).at_work),
            self._assert(~offered | (completer == self._now)),
            self._assert(~offered | (recorded == second)),
            self._assert(completion.under_way == out),
            self._assert(~out | ((wide == ~second) & (whose == completer))),
            self._assert(~second | out | (written & (whose == completer))),
        ]
        for queue, recorded in enumerate(self.recorded):
            ending, completes = self._work.ending[queue], completer == queue
            done = self.asked_for[queue].done & self.was_mine[queue]
            of_it = self._first[queue] == self._one
            m.d.comb += [
                self._assert(ending.recorded == (ending.at_work & recorded)),
                self._assert(~self.owes[queue] | ~recorded),
                self._assert(~(out | second) | ~completes | (ending.at_work & recorded)),
                self._assert(~(ending.at_work & recorded) | (completes & (out | second))),
                self._assert(~(second & of_it) | ~completes | done),
                self._assert(~(out & of_it) | ~completes | (follows == (wide & done))),
                self._assert(~out | wide | ~follows),
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
                self._assert(
                    (count == 0) | (((tail - self._first[queue])[:16] - count)[:16] <= 256)
                ),
                self._assert(head == following),
                self._assert(~self.records[queue] | (ticket == following)),
                self._assert(~comes | was_read | with_bell),
                self._assert(~(work & (ticket_next == one)) | (slot == kept_one[16:])),
                self._assert(~(self.records[queue] & (head == one)) | (upper == kept_one[:16])),
                # What is inside.
                self._assert(~work | (entry[16:] == slot)),
                # What is inside.
                self._assert(~looked_up | (self._was_row == slot_row(slot, "control"))),
                self._assert((tail - head)[:16] <= 256),
                self._assert(~is_there | (ones == kept_one)),
                self._assert(there <= most),
                self._assert(~asks | ((odd_group == group) & (there < most))),
                self._assert(~asked | (self.place != 0) | (odd_group != group) | (there < most)),
                # Up to a read's first entry, no doorbell brings one: what is read was rung before.
                self._assert(~asks | lacks),
                self._assert(~asked | (self.place != 0) | lacks),
                self._assert(~work | (there != 0)),
            ]


class Copies(Tickets):
    """Copies of a queue overlap, and begin and fail as a whole: what `tickets` says of channels.

    There it holds for ever, with the rest, which says how inner registers belong together. Here it
    is alone: bugs that show when copies run beside each other, which is late after reset, are found
    in a short time.
    """

    forever = False
    depth = 8
    reach = 24

    def _assert(self, condition):
        return []

    def _assert_of_copies(self, condition):
        return Assert(condition, src_loc_at=1)

    def _state(self, m):
        super()._state(m)
        c2h, promised, both = self.block.owners[1].ended, self.promised[1], self.both
        self.cover(
            m,
            both & (self.runs[0] == 2) & (self.runs[1] == 2) & ~promised,
            # One has ended on H2C alone.
            both & (self.runs[0] == 1) & (self.runs[1] == 2) & ~promised,
            promised & (self.runs[1] == 1),
            # A copy ends well, and the one behind has failed.
            self.failed[0] & (self.runs[1] == 2) & c2h.valid & ~c2h.payload.last,
        )
