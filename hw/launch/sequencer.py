# SPDX-License-Identifier: BSD-2-Clause
"""The sequence of a ticket: entry, slot, channels, run, flush read, record, done word."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..channel.signatures import OwnerSignature
from ..records import ReadJob, Retired
from ..write.record_writer import DirectRecordSignature
from .completion import Completion
from .entries import BURST, GROUP
from .records import (
    CONTROL,
    ENTRY_BYTES,
    LEAST_BITS,
    ROW_BITS,
    SLOT_BITS,
    Phase,
    Read,
    queue_row,
    slot_row,
)
from .runs import Runs, channels_of
from .start import RunStart
from .work import READS, Here, Step

__all__ = ["HOLD", "PACE", "Sequencer"]

#: Cycles between polls of a shadow tail, and between repeated reads for an entry, at least.
PACE = 64
#: Cycles that a copy holds one channel of its pair and waits for the other.
HOLD = 16

_END, _STATUS = regs.LaunchEnd, regs.LaunchStatus


class Sequencer(wiring.Component):
    """Takes the tickets of all queues from their entries to their records.

    Of a queue's tickets at work one waits for its start, others run, and one, whose run has ended
    without error, waits for its flush read or for what is written. Runs begin and end in order.
    Several run only on one channel, or as copies on one pair, and only if the slots of all allow
    it, and no other queue waits for a channel.

    The queues take turns at what is shared: the look-up of a slot, the start of a run, the one read
    under way, and the record writer. While a ticket waits for a channel, a run, a read, or a write,
    another one goes on. After a run the other queues come first, so those that share a channel have
    it in turn.

    **Pairs.** A copy through the stream needs both channels of its pair. While it has one of them
    only, it gives that back after `HOLD` cycles at most, and asks for it again as many cycles
    later; for the other one it stays in line. So a copy of software's that has one channel gets the
    other one, too. When both are granted, the pair is flushed: what earlier runs have left there is
    not in the copy. While the pair is `claimed`, it is as if they were not. A copy that overlaps
    with those before finds the pair flushed for the first of them.

    **Packets.** A ticket for a packet requests its channel when there is one, and gives it back if
    software has taken the packet meanwhile.

    Parameters
    ----------
    queues, h2c, c2h, pairs : int
    packets : bool
        Slots may be for packets.

    Members
    -------
    queue, step, completer, here, under_way, reading, reader, tick, idle
        As at `hw.launch.work.QueueWork`.
    found, slot, upper, next, lacks
        As at `hw.launch.entries.EntryStore`.
    moved : In(queues)
        As at `hw.launch.tails.Tails`.
    load : In(queues), resume : In(queues), get, row, word
        As at `hw.launch.table.LaunchTable`.
    disarmed : In(queues)
        Queues whose tickets end at once.
    job : Out(stream of ReadJob), retired : In(stream of Retired, always ready)
        To the read engine. A job may be withdrawn for some cycles.
    owners : array of Out(OwnerSignature)
        H2C channels, then C2H channels.
    flush : Out(pairs)
        Flush these pairs, of which both channels are granted.
    claimed : In(pairs)
        As at `hw.launch.queues.LaunchQueues`.
    records : Out(DirectRecordSignature)
        Records, and done words.
    packets : In(pairs)
        Pairs of which a packet is there. Only with `packets`.
    """

    def __init__(self, *, queues: int, h2c: int, c2h: int, pairs: int, packets: bool = False):
        self._queues, self._h2c, self._c2h, self._pairs = queues, h2c, c2h, pairs
        self._packets = packets
        self._runs = Runs(queues, h2c=h2c, c2h=c2h, pairs=pairs, packets=packets)
        self._start = RunStart(h2c=h2c, c2h=c2h, pairs=pairs, packets=packets)
        self._completion = Completion()
        self._clock = Signal(range(PACE), name="clock")
        self._reads, self._what = Signal(name="reads"), Signal(Read, name="what")
        #: in this cycle the ticket up to the end of its run has its next step, or its queue reads
        self._acts = Signal(name="acts")
        #: the ticket that was looked up last waits for a channel: records go before the next look
        self._blocked = Signal(name="blocked")
        #: the ticket that is to be started takes a packet, and there is none
        self._absent = Signal(name="absent")
        #: that ticket has the channels that it needs
        self._granted = Signal(name="granted")
        #: queues that wait for a channel which another one has
        self._stalled = Signal(queues, name="stalled")
        #: queues that had nothing to do when they were served; since then they had no doorbell, and
        #: were not resumed
        self._rest = Signal(queues, name="rest")
        super().__init__(
            {
                "queue": Out(range(queues)),
                "step": Out(Step),
                "completer": Out(range(queues)),
                "here": In(Here),
                "under_way": Out(1),
                "reading": Out(Read),
                "reader": Out(range(queues)),
                "tick": Out(1),
                "idle": In(queues),
                "found": In(1),
                "slot": In(SLOT_BITS),
                "upper": In(16),
                "next": In(16),
                "lacks": In(1),
                "moved": In(queues),
                "load": In(queues),
                "resume": In(queues),
                "get": Out(1),
                "row": Out(ROW_BITS),
                "word": In(64),
                "disarmed": In(queues),
                "job": Out(stream.Signature(ReadJob)),
                "retired": In(stream.Signature(Retired, always_ready=True)),
                "owners": Out(OwnerSignature()).array(h2c + c2h),
                "flush": Out(pairs),
                "claimed": In(pairs),
                "records": Out(DirectRecordSignature()),
                **({"packets": In(pairs)} if packets else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        now, here, step = self.queue, self.here, self.step
        m.submodules.runs, m.submodules.start = runs, start = self._runs, self._start
        m.submodules.completion = completion = self._completion
        wiring.connect(m, completion.records, wiring.flipped(self.records))
        for inner, outer in zip(runs.owners, self.owners, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))
        # The one read under way, and what is written, are at the word that the table gives.
        address = Signal(64)
        #: that is a ring's
        of_ring = Signal()
        fetches = self.reading == Read.ENTRIES
        m.d.sync += [
            self._clock.eq(self._clock + 1),
            runs.more.eq(~self.idle.all() | (self.under_way & fetches)),
        ]
        m.d.comb += [
            self.tick.eq(self._clock == 0),
            step.kept.slot.eq(self.slot),
            step.kept.upper.eq(self.upper),
            self.flush.eq(start.flush),
            runs.queue.eq(now),
            runs.abort.eq(self.disarmed),
            runs.word.eq(self.word),
            start.grants.eq(Cat(owner.granted for owner in self.owners)),
            start.slot.eq(self.slot),
            start.pair.eq(here.known.pair),
            start.follows.eq(here.known.running.any()),
            start.receives.eq(here.known.receives),
            start.absent.eq(self._absent),
            self._absent.eq(here.known.receives & ~self._packet_of(runs.used)),
            self._granted.eq(
                runs.granted & ~(here.known.pair & self._is_of(runs.used, self.claimed))
            ),
            start.granted.eq(self._granted),
            runs.running.eq(here.known.running),
            runs.next.eq(step.ended & ~step.unstarted),
        ]
        for name in ("used", "ready", "pushed", "started"):
            m.d.comb += getattr(start, name).eq(getattr(runs, name))
        for name in ("target", "number", "push", "start", "reserve", "stop"):
            m.d.comb += getattr(runs, name).eq(getattr(start, name))

        # A read of entries ends with its group, or with a ring that is smaller.
        align, within = exact_log2(ENTRY_BYTES), self.next[: exact_log2(GROUP)]
        ends_soon = ~here.settings.mask[LEAST_BITS] | within[LEAST_BITS]
        left = BURST - Mux(ends_soon, within[:LEAST_BITS], 0)
        place = Mux(completion.active, here.oldest, self.next) & here.settings.mask
        m.d.comb += [
            address.eq(self.word | Mux(of_ring, place << align, 0)),
            self.job.payload.address.eq(address),
            self.job.payload.length.eq(Mux(fetches, left << align, 4)),
            # An entry has its own place in a row; anything else comes into the first one.
            self.job.payload.place.offset.eq(Mux(fetches, within << align, 0)),
            completion.hold.eq(self.load.any()),
            completion.has_done.eq(here.kept.has_done),
            completion.address.eq(address),
            completion.record.eq(Cat(here.oldest, here.kept.upper, here.ending.status)),
            step.counted.eq(completion.counted),
            step.lost.eq(completion.lost),
            step.finished.eq(completion.finished),
        ]
        for queue, rests in enumerate(self._rest):
            with m.If(now == queue):
                m.d.sync += rests.eq(self.idle[queue] & ~here.waits)
            with m.If(self.moved[queue] | self.resume[queue]):
                m.d.sync += rests.eq(0)
        with m.If(self.retired.valid):
            m.d.sync += self.under_way.eq(0)

        with m.If(self._reads):
            m.d.sync += [
                self.reading.eq(self._what),
                self.reader.eq(now),
                self.under_way.eq(1),
            ]

        with m.FSM():
            with m.State("Look"):
                m.d.comb += self.get.eq(1)
                self._look(m)
            with m.State("Job"):
                m.d.comb += [of_ring.eq(fetches), self.job.valid.eq(1)]
                with m.If(self.job.ready):
                    m.next = "Look"
            with m.State("Look up"):
                m.d.comb += self.get.eq(1)
                self._look_up(m)
            with m.State("Start"):
                m.d.comb += [self.get.eq(1), start.active.eq(1), self.row.eq(start.row)]
                with m.If(start.begun):
                    m.d.comb += step.starts.eq(1)
                    self._move(m, Phase.IDLE)
                with m.If(start.done):
                    m.next = "Look"
            with m.State("Complete"):
                # Not while a ticket's number is set: that takes the same way.
                m.d.comb += [completion.active.eq(1), of_ring.eq(~completion.second)]
                with m.If(completion.takes):
                    m.next = "Look"
        return m

    def _is_of(self, channels, pairs):
        """One of these C2H channels is of one of these pairs."""
        return (channels[self._h2c :][: self._pairs] & pairs).any()

    def _packet_of(self, channels):
        """There is a packet for one of these channels."""
        return self._is_of(channels, self.packets) if self._packets else Const(0)

    def _move(self, m, phase):
        """The ticket of the queue that is served is in this phase next."""
        m.d.comb += [self.step.moves.eq(1), self.step.phase.eq(phase)]

    def _stay(self, m, state):
        """Go on with the queue that is served."""
        m.d.sync += self.queue.eq(self.queue)
        m.next = state

    def _read(self, m, what):
        """Begin to read at the address that the row has."""
        m.d.comb += [self._reads.eq(1), self._what.eq(what), self._acts.eq(1)]
        self._stay(m, "Job")

    @property
    def _following(self):
        """The next queue."""
        return Mux(self.queue == self._queues - 1, 0, self.queue + 1)

    def _turn(self, m):
        """Another queue in each cycle.

        A doorbell's comes next, and while an entry is expected, and nothing else is at work, its
        queue stays.
        """
        now = self.queue
        rung = Signal.like(now)
        for queue in range(self._queues):
            with m.If(self.moved[queue]):
                m.d.comb += rung.eq(queue)
        others_rest = Cat((now == n) | self._rest[n] for n in range(self._queues)).all()
        expected = self.under_way & (self.reading == Read.ENTRIES) & (self.reader == now)
        with m.If(~(expected & others_rest)):
            m.d.sync += now.eq(Mux(self.moved.any(), rung, self._following))

    def _look(self, m):
        """What can be done for the queue that is served; the row is what that needs first."""
        here, step, known, now = self.here, self.step, self.here.known, self.queue
        runs, hold, ending = self._runs, self._clock[exact_log2(HOLD)], self.here.ending
        on = here.settings.armed
        going = on & (known.end == _END.NONE)
        runs_some, over = known.running.any(), known.phase == Phase.OVER
        unstarted = Mux(known.flushed, _STATUS.FLUSHED, _STATUS.SLOT)
        # The ticket before ends in what is left of the time.
        second, completer = self._completion.second, self.completer
        flushing = self.under_way & (self.reading == Read.FLUSH) & (self.reader == now)
        turn = ~self._completion.under_way & (~second | (completer == now))
        ends, leaves, ended = Signal(), Signal(), Signal()
        #: another ticket may begin beside what runs
        free = Signal()
        others_stalled = (self._stalled & ~(1 << now)).any()
        self._turn(m)
        m.d.comb += [
            ends.eq(ending.at_work & ~flushing & turn),
            leaves.eq((known.phase == Phase.GRANT) & runs.left),
            free.eq(~runs_some | (known.overlaps & ~known.running.all() & runs.granted)),
            step.unstarted.eq(~runs_some),
            step.outcome.eq(Mux(runs_some, runs.status, unstarted)),
            ended.eq(
                Mux(runs_some, runs.ended & ~(here.kept.flushes & self.under_way), over)
                & ~ending.at_work
                & ~leaves
            ),
        ]
        with m.If(leaves):
            m.d.comb += runs.release.eq(~runs_some)
            self._move(m, Phase.IDLE)
        with m.Elif(ended):
            m.d.comb += [self.row.eq(slot_row(here.kept.slot, "flush_lo")), step.ended.eq(1)]
            last = known.running[1:] == 0
            m.d.comb += [self._acts.eq(1), runs.release.eq(runs.left & last)]
            self._stay(m, "Look")
            with m.If(runs_some & here.kept.flushes):
                self._read(m, Read.FLUSH)
            with m.If(~runs_some):
                self._move(m, Phase.IDLE)
        with m.Elif((known.phase == Phase.IDLE) & runs_some):
            m.d.comb += self.row.eq(slot_row(self.slot, "control"))
            with m.If(self.lacks & ~self.under_way & ~(known.flushes & self.found)):
                m.d.comb += self.row.eq(queue_row(now, "ring_lo"))
                with m.If(going):
                    m.d.comb += step.reads_ahead.eq(1)
                    self._read(m, Read.ENTRIES)
            with m.Elif(going & here.waits & self.found & free & ~others_stalled & ~known.failed):
                m.d.comb += [step.found.eq(1), self._acts.eq(1)]
                self._stay(m, "Look up")
        with m.Elif(known.phase == Phase.IDLE):
            m.d.comb += self.row.eq(queue_row(now, "shadow_lo"))
            with m.If(here.waits):
                m.d.comb += self.row.eq(queue_row(now, "ring_lo"))
                with m.If(self.found):
                    m.d.comb += self.row.eq(slot_row(self.slot, "control"))
            with m.If(known.resuming):
                m.d.comb += step.resumes.eq(~ending.at_work)
            with m.Elif(going & ~here.waits):
                with m.If(here.settings.polls & ~self.under_way & known.due):
                    m.d.comb += step.paces.eq(1)
                    self._read(m, Read.SHADOW)
            with m.Elif(going & self.found & others_stalled):
                # The other one's turn comes first, if it still waits.
                with m.If(~ends):
                    m.d.sync += [self._stalled.eq(0), self.queue.eq(self._following)]
            with m.Elif(going & self.found & ~(ends & (self._blocked | here.kept.has_done))):
                m.d.comb += [step.found.eq(1), self._acts.eq(1)]
                self._stay(m, "Look up")
            with m.Elif(going & ~self.found & ~self.under_way & (~known.tried | known.due)):
                m.d.comb += [step.begins.eq(1), step.paces.eq(1)]
                with m.If(known.tried & (known.tries == READS)):
                    m.d.comb += step.gives_up.eq(1)
                with m.Else():
                    self._read(m, Read.ENTRIES)
        with m.Elif(known.phase == Phase.GRANT):
            m.d.comb += self.row.eq(slot_row(self.slot, "descriptor"))
            with m.If(self._absent):
                m.d.comb += runs.stop.eq(1)
            with m.Elif(Mux(runs_some, runs.ready, self._granted)):
                m.d.comb += self._acts.eq(1)
                self._stay(m, "Start")
            with m.Elif(known.pair & on & ~runs_some):
                m.d.comb += [runs.again.eq(~hold), runs.give_back.eq(hold)]

        with m.If(ends & ~self._acts):
            m.d.comb += self.row.eq(queue_row(now, "records_lo"))
            with m.If(second):
                m.d.comb += self.row.eq(slot_row(here.kept.slot, "done_lo"))
            m.d.sync += completer.eq(now)
            self._stay(m, "Complete")

    def _look_up(self, m):
        """The slot of the ticket: whether it can be started, and with which channels."""
        runs, step, known, control = self._runs, self.step, self.here.known, CONTROL(self.word[:32])
        channels, exists = channels_of(
            control, self._h2c, self._c2h, self._pairs, packets=self._packets
        )
        receives = control.receive if self._packets else Const(0)
        mine = control.valid & (control.queue == self.queue)
        m.d.comb += [
            self.row.eq(slot_row(self.slot, "descriptor")),
            step.looked_up.eq(1),
            step.kept.has_done.eq(control.done & mine),
            step.kept.flushes.eq(control.flush),
            step.pair.eq(control.pair),
            step.receives.eq(receives),
            runs.receives.eq(receives),
        ]
        overlaps = control.overlap & ~receives
        #: it can run beside others that do, on the same channel
        beside = (channels == runs.used) & overlaps & known.overlaps
        runs_some, own = known.running.any(), 1 << self.queue
        #: the channels are another queue's, or there is no packet
        taken, absent = (runs.taken & channels).any(), receives & ~self._packet_of(channels)
        m.d.comb += step.overlaps.eq(overlaps & (beside | ~runs_some))
        m.next = "Look"
        m.d.sync += self._blocked.eq(0)
        with m.If(known.failed | ~mine | ~exists):
            self._move(m, Phase.OVER)
        with m.Elif(runs_some):
            with m.If(beside & runs.granted):
                self._move(m, Phase.GRANT)
                m.next = "Start"
        with m.Elif(taken | absent):
            m.d.sync += [self.queue.eq(self._following), self._blocked.eq(1)]
            with m.If(~absent):
                m.d.sync += self._stalled.eq(self._stalled | own)
        with m.Else():
            m.d.comb += runs.begin.eq(channels)
            self._move(m, Phase.GRANT)
            m.next = "Start"
