# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: in which order a ticket goes through its steps, and what it can reach."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib.data import View

from hw.launch.queues import LaunchQueues
from hw.launch.records import (
    CONTROL,
    DOORBELL,
    DOORBELL_ENTRY,
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

    A ticket that is at work, up to its record, was rung. Each has one record, with its number, in
    the order of tickets; and that is not offered before all runs for the ticket have ended, and
    the flush read, if the slot asks for one, has come back. The done word is that of its slot, and
    waits for the record. No channel is two queues'. The runs, flush reads, and done words of a
    queue are of a slot that was valid and the queue's as it was looked up; all addresses, and
    the descriptors, are words that software has written to such a slot or to the queue. The slot is
    the one that the ticket's doorbell brings, if that announces the next ticket of a queue that has
    none, else that of an entry with the ticket's number. Entries and doorbells are any words.

    Assumed: a channel's grant (what `grants` proves), reads that come back once, in the places that
    were asked for, writes that are reported done once. Software sets the first ticket
    while the queue is neither armed nor busy, and arms it while it is not busy.
    """

    depth = 2
    reach = 40

    def __init__(self):
        super().__init__(LaunchQueues(queues=2, h2c=1, c2h=1, pairs=1))

    def _state(self, m):
        inside = self.inside
        sequencer = inside.part("sequencer")
        self._work = work = inside.part("work")
        self._now, self._row = sequencer.queue, sequencer.row
        self._ticket = work.here.ticket
        self._at = lambda *names: inside.state("sequencer", *names)
        starts, completes = self._at("Start"), self._at("Complete")
        started, taken = inside("sequencer.start.starts"), inside("sequencer.completion.taken")
        self._pushes, self._starts = starts & ~started, starts & started
        self._offers, self._written = completes & ~taken, completes & taken
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
            begun = (phase == Phase.GRANT) | (phase == Phase.RUN)
            kept = begun | (phase == Phase.RECORD)
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
        asked, place = Signal(), Signal(4)
        with m.If(retired):
            m.d.sync += asked.eq(0)
        with m.If(takes):
            m.d.sync += [asked.eq(1), place.eq(job.payload.place.offset >> 3)]
        placed = block.placement
        odd = placed.payload.enable[1].any()
        here = Cat(odd, Mux(odd, placed.payload.rows[1], placed.payload.rows[0])[:2])
        entries = reading == Read.ENTRIES
        with m.If(placed.valid):
            m.d.sync += place.eq(place + 1)
        m.d.comb += [
            Assume(~retired | asked),
            Assume(~placed.valid | asked),
            Assume(~placed.valid | ((place == here) & (place < 8))),
        ]
        #: its flush read is still to come back
        self.owes, self.place, self.asked, self.reads = [], place, asked, entries
        rows = {
            Read.ENTRIES: queue_row(self._now, "ring_lo"),
            Read.SHADOW: queue_row(self._now, "shadow_lo"),
            Read.FLUSH: slot_row(self._here(self.slot), "flush_lo"),
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
                    == (table.word | Mux(entries, (self._ticket & mask) << 3, 0))
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
            owes = Signal(name=f"owes{queue}")
            with m.If(self._at("Look up") & (self._now == queue)):
                m.d.sync += owes.eq(begins & CONTROL(table.word[:32]).flush)
            with m.If(retired & (reading == Read.FLUSH) & ours):
                m.d.sync += owes.eq(0)
            self.owes.append(owes)
            m.d.comb += [
                Assert(~owes | self.mine[queue]),
                # What is inside.
                Assert(~flushes | (phase == Phase.RECORD)),
                Assert((phase != Phase.RECORD) | (owes == flushes)),
                Assert(
                    ~((phase == Phase.GRANT) | (phase == Phase.RUN))
                    | (owes == self.asks[queue].flush)
                ),
            ]

    def _writes(self, m):
        """Record behind runs and flush read, done word behind the record."""
        table = self.inside.part("table")
        records, record = self.block.records, self.block.records.record.payload
        takes, second = (
            records.record.valid & records.record.ready,
            self.inside.part("sequencer.completion").second,
        )
        out, wide, written = Signal(), Signal(), Signal()
        with m.If(records.done):
            m.d.sync += [out.eq(0), written.eq(wide)]
        with m.If(takes):
            m.d.sync += [out.eq(1), wide.eq(record.wide), written.eq(0)]
        with m.If(self._at("Look")):
            m.d.sync += written.eq(0)
        #: or would be, but for a first ticket that is set
        offered = self._offers
        started = self._here(self.runs)
        mask = self._here(self._work.settings).mask
        base = Mux(
            record.wide,
            queue_row(self._now, "records_lo"),
            slot_row(self._here(self.slot), "done_lo"),
        )
        m.d.comb += [
            Assume(~records.done | out),
            Assert(~records.record.valid | offered),
            Assert(~offered | ~out),
            Assert(~offered | ~record.wide | ~started),
            Assert(~offered | ~record.wide | ~self._here(self.owes)),
            Assert(~offered | record.wide | written),
            Assert(~offered | record.wide | (self._here(self.asks).done & self._here(self.mine))),
            Assert(~offered | (self._was_row == base)),
            Assert(
                ~offered
                | (record.address == (table.word | Mux(record.wide, (self._ticket & mask) << 3, 0)))
            ),
            Assert(~offered | record.wide | (record.data == 1)),
            # What is inside.
            Assert(~self._at("Complete") | (self._here(self._phase) == Phase.RECORD)),
            Assert(~self._at("Complete") | ~self._here(self.owes)),
            Assert(self._written == out),
            Assert(~out | (wide == ~second)),
            Assert(~self._offers | (written == second)),
        ]
        self.cover(
            m,
            offered & ~record.wide & self._here(self.asks).flush,
            offered & ~record.wide & self._here(self.asks).pair,
        )
        #: the record of the ticket at work was taken
        self.recorded = [
            (self._now == queue) & (self._written | (self._offers & second)) for queue in range(2)
        ]
        self.records = [takes & record.wide & (self._now == queue) for queue in range(2)]

    def _tails(self, m):
        """Tickets were rung, and have their records in order."""
        block, inside = self.block, self.inside
        sequencer, tails = inside.part("sequencer"), inside.part("tails")
        table = inside.part("table")
        self._fresh, self._came, self._entries = (
            [inside(f"entries.{name}{queue}") for queue in range(2)]
            for name in ("fresh", "came", "came_entry")
        )
        for queue, idle in enumerate(self._idle):
            head, tail = self._work.head[queue], Signal(16, name=f"full_tail{queue}")
            ahead = (tails.tail[queue] - head)[:TAIL_BITS]
            m.d.comb += tail.eq(head + Mux(tails.waits[queue], ahead, 0))
            settings = table.settings[queue]
            ours = self.reads & (sequencer.reader == queue)
            asked, asks = ours & self.asked, ours & self._at("Job")
            busy = ~idle | (sequencer.under_way & (sequencer.reader == queue))
            following = Signal(16, name=f"following{queue}")
            with m.If(table.load[queue]):
                m.d.sync += following.eq(table.first)
            with m.Elif(self.records[queue]):
                m.d.sync += following.eq(following + 1)
            #: a run for the ticket has begun
            ran = Signal(name=f"ran{queue}")
            with m.If(self.records[queue]):
                m.d.sync += ran.eq(0)
            with m.Elif(self.begun[queue]):
                m.d.sync += ran.eq(1)
            phase = self._phase[queue]
            entry = inside.word("entries.entries", Cat(head[:3], Const(queue, 1)))
            work = ~idle & ~self.recorded[queue]
            #: the oldest ticket's entry came with its doorbell, and what it was
            came, brought = Signal(name=f"came_with{queue}"), Signal(DOORBELL_ENTRY)
            bell = block.doorbell
            word, page = DOORBELL(bell.data[:32]), regs.DOORBELL_BASE + regs.DOORBELL_STRIDE * queue
            comes = (
                bell.valid
                & (bell.bar == regs.BAR_USER[0])
                & (bell.address == page >> 3)
                & bell.enable.all()
                & settings.armed
                & (word.generation == settings.generation)
                & (head == tail)
                & (word.tail == (head + 1)[:16])
            )
            with m.If(table.armed[queue] | self.records[queue]):
                m.d.sync += came.eq(0)
            with m.If(comes):
                m.d.sync += [came.eq(1), brought.eq(bell.data[32:])]
            slot, fits = self._of("slot")[queue], entry[:16] == head
            ticket, upper = (block.records.record.payload.data[n : n + 16] for n in (0, 16))
            m.d.comb += [
                Assume(~table.load[queue] | ~(settings.armed | busy)),
                Assume(~table.armed[queue] | ~busy),
                Assert(~work | (head != tail)),
                Assert(head == following),
                Assert(~self.records[queue] | (ticket == following)),
                Assert(~work | Mux(came, slot == brought.slot, fits & (slot == entry[32:]))),
                Assert(~self.records[queue] | (upper == Mux(came, brought.ticket, entry[16:32]))),
                Assert(~ran | (phase == Phase.RUN) | (phase == Phase.RECORD)),
                Assert(~ran | ~self.recorded[queue]),
                # What is inside.
                Assert((tail - head)[:16] <= 256),
                Assert(self._came[queue] == came),
                Assert(~came | (self._entries[queue] == Value.cast(brought))),
                Assert(~(work & asked) | came | (self.place > head[:3])),
                Assert(~(asked | asks) | ~self._fresh[queue]),
                Assert(~asks | idle),
            ]
