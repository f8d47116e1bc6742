# SPDX-License-Identifier: BSD-2-Clause
"""What is known of each launch queue, and of its tickets: the next one, those that run, and the
one that ends."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..channel.signatures import RUNS
from ..records import Outcome, Retired
from .records import PLACES, SETTINGS, SLOT_BITS, STATE, Phase, Read
from .runs import STATUS_BITS

__all__ = ["READS", "Ending", "Here", "Kept", "Known", "QueueWork", "Step"]

#: Reads for an entry, one after the other, before the queue ends.
READS = 31

_END, _STATUS = regs.LaunchEnd, regs.LaunchStatus
_PLACE_BITS = exact_log2(PLACES)


class Known(data.Struct):
    """What is kept of a queue and its next ticket, up to the start of that one's run."""

    phase: Phase
    #: tickets whose runs are under way, or have ended and were not looked at
    running: range(RUNS + 1)
    #: the ticket that was looked up last, and those that run, may overlap with others
    overlaps: 1
    #: a `peerdma.regs.LaunchEnd`: why it takes no more tickets
    end: 3
    #: a `peerdma.regs.LaunchStatus`: of the first ticket that failed, or OK
    status: STATUS_BITS
    #: a ticket has failed; software has it go on all the same
    failed: 1
    resuming: 1
    #: reads for the same entry, if there was one
    tries: range(READS + 1)
    tried: 1
    #: it may read the shadow tail, or the same entry again
    due: 1
    #: of its slot: it is a pair's; it takes a packet; it has a flush read
    pair: 1
    receives: 1
    flushes: 1
    #: an earlier ticket had failed when its slot was looked up
    flushed: 1


class Ending(data.Struct):
    """What is kept of a ticket whose run has ended, or that is not started."""

    #: there is one: it waits for its flush read, or what is written for it is not yet done
    at_work: 1
    #: and its record was taken
    recorded: 1
    #: a `peerdma.regs.LaunchStatus`
    status: STATUS_BITS


class Kept(data.Struct):
    """What is kept of each ticket from when its slot was looked up."""

    slot: SLOT_BITS
    #: upper half of its number
    upper: 16
    #: of its slot: it has a done word, and is this queue's; it has a flush read
    has_done: 1
    flushes: 1


class Step(data.Struct):
    """What happens to the queue that is served, in a cycle."""

    #: its entry was found
    found: 1
    #: its slot is looked up; as in its control, but that it does not overlap with what runs now
    looked_up: 1
    kept: Kept
    overlaps: 1
    pair: 1
    receives: 1
    #: its run has begun
    starts: 1
    #: the run of the oldest one has ended, or it has none, with this outcome: it ends
    ended: 1
    unstarted: 1
    outcome: STATUS_BITS
    #: its ticket is in this phase next
    moves: 1
    phase: Phase
    #: a read for its entry begins, or for later ones; it has read, and must pace
    begins: 1
    reads_ahead: 1
    paces: 1
    #: its entry never came
    gives_up: 1
    #: it goes on behind a ticket that failed
    resumes: 1
    #: the record of the ticket that ends was taken
    counted: 1
    #: of the queue that completes: what was written is lost; all of a ticket is written
    lost: 1
    finished: 1


class Here(data.Struct):
    """The queue that is served."""

    known: Known
    ending: Ending
    settings: SETTINGS
    #: its oldest ticket that has no record; and the next one to be started, which was rung if the
    #: queue `waits`
    oldest: 16
    ticket: 16
    waits: 1
    #: of the oldest one at work
    kept: Kept


class QueueWork(wiring.Component):
    """Registers of all queues, of which one is served in a cycle.

    The registers stand behind what happens, and not in the states of a machine: so they are enabled
    and cleared without a LUT for each bit.

    Parameters
    ----------
    queues : int
    packets : bool
        Slots may be for packets.

    Members
    -------
    queue : In(range(queues)), step : In(Step), here : Out(Here)
        The queue that is served, what happens to it, and what it is.
    completer : In(range(queues))
        The queue that completes a ticket.
    settings, armed, load, first, resume, state
        As at `hw.launch.table.LaunchTable`.
    waits, moved, over, head
        As at `hw.launch.tails.Tails`.
    under_way : In(1), reading : In(Read), reader : In(range(queues))
        A read, what it reads, and for which queue.
    retired : In(stream of Retired, always ready)
        How it has ended.
    tick : In(1)
        Each queue may read once more.
    idle : Out(queues)
        Queues without a ticket at work.
    place : In(range(PLACES * queues)), slot : Out(SLOT_BITS)
        Slot of the ticket of this place, in the same cycle.
    known : Out(Known), ending : Out(Ending), arrays of queues
    """

    def __init__(self, queues: int, *, packets: bool = False):
        self._queues, self._packets = queues, packets
        super().__init__(
            {
                "queue": In(range(queues)),
                "step": In(Step),
                "here": Out(Here),
                "completer": In(range(queues)),
                "settings": In(SETTINGS).array(queues),
                "armed": In(queues),
                "load": In(queues),
                "first": In(16),
                "resume": In(queues),
                "state": Out(32).array(queues),
                "waits": In(1),
                "moved": In(queues),
                "over": In(queues),
                "head": Out(16).array(queues),
                "under_way": In(1),
                "reading": In(Read),
                "reader": In(range(queues)),
                "retired": In(stream.Signature(Retired, always_ready=True)),
                "tick": In(1),
                "idle": Out(queues),
                "place": In(range(PLACES * queues)),
                "slot": Out(SLOT_BITS),
                "known": Out(Known).array(queues),
                "ending": Out(Ending).array(queues),
            }
        )

    def _good(self, status: Value) -> Value:
        """Tickets behind one with this status are started."""
        good = status == _STATUS.OK
        return good | (status == _STATUS.LONG) if self._packets else good

    def elaborate(self, platform):
        m = Module()
        here, step = self.here, self.step
        with m.Switch(self.queue):
            for queue in range(self._queues):
                with m.Case(queue):
                    m.d.comb += [
                        here.known.eq(self.known[queue]),
                        here.ending.eq(self.ending[queue]),
                        here.settings.eq(self.settings[queue]),
                        here.oldest.eq(self.head[queue]),
                    ]
        ahead, running, following = Signal(), Signal(16), Signal(16)
        m.d.comb += [
            here.waits.eq(self.waits),
            ahead.eq(here.ending.at_work & ~here.ending.recorded),
            running.eq(here.oldest + ahead),
            here.ticket.eq(running + here.known.running),
            # Behind the one whose record was taken
            following.eq(Mux(self.load.any(), self.first, running)),
        ]
        # The oldest one at work may have its record.
        m.submodules.tickets = tickets = memory.Memory(
            shape=Kept, depth=PLACES * self._queues, init=[]
        )
        put, get = tickets.write_port(), tickets.read_port(domain="comb")
        shown = tickets.read_port(domain="comb")
        oldest = here.oldest - here.ending.recorded
        m.d.comb += [
            put.en.eq(step.looked_up),
            put.addr.eq(Cat(here.ticket[:_PLACE_BITS], self.queue)),
            put.data.eq(step.kept),
            get.addr.eq(Cat(oldest[:_PLACE_BITS], self.queue)),
            here.kept.eq(get.data),
            shown.addr.eq(self.place),
            self.slot.eq(shown.data.slot),
        ]
        outcome, flushing = self.retired.payload.outcome, self.reading == Read.FLUSH
        for queue, (known, ending) in enumerate(zip(self.known, self.ending, strict=True)):
            served, reads = self.queue == queue, self.reader == queue
            completes = self.completer == queue
            failed_read = self.retired.valid & reads & (outcome != Outcome.OK)
            with m.If(self.load[queue] | (step.counted & served)):
                m.d.sync += self.head[queue].eq(following)
            with m.If(step.moves & served):
                m.d.sync += known.phase.eq(step.phase)
            with m.If(step.looked_up & served):
                m.d.sync += [
                    known.overlaps.eq(step.overlaps),
                    known.pair.eq(step.pair),
                    known.receives.eq(step.receives),
                    known.flushes.eq(step.kept.flushes),
                    known.flushed.eq(known.failed),
                ]
            with m.If(step.starts & served):
                m.d.sync += known.running.eq(known.running + 1)
            with m.If(step.ended & ~step.unstarted & served):
                m.d.sync += known.running.eq(known.running - 1)
            with m.If(step.ended & served):
                m.d.sync += ending.at_work.eq(1)
            with m.If(step.counted & served):
                m.d.sync += ending.recorded.eq(1)
            with m.If(step.finished & completes):
                m.d.sync += [ending.at_work.eq(0), ending.recorded.eq(0)]
            failed_flush = failed_read & flushing
            status = Mux(failed_flush, outcome, step.outcome)
            with m.If((step.ended & served) | (failed_flush & self._good(ending.status))):
                m.d.sync += ending.status.eq(status)
            # No ticket is started behind a failed one, but for one that has begun by then.
            fails = (step.ended & served & ~self._good(step.outcome)) | failed_flush
            with m.If(fails & ~known.failed):
                m.d.sync += [known.failed.eq(1), known.status.eq(status)]

            with m.If(self.tick):
                m.d.sync += known.due.eq(1)
            with m.Elif(step.paces & served):
                m.d.sync += known.due.eq(0)
            with m.If(step.begins & served):
                m.d.sync += [
                    known.tries.eq(Mux(here.known.tried, here.known.tries + 1, 1)),
                    known.tried.eq(1),
                ]
            with m.If((step.found & served) | self.moved[queue] | self.armed[queue]):
                m.d.sync += known.tried.eq(0)
            with m.If(step.resumes & served):
                m.d.sync += [known.failed.eq(0), known.resuming.eq(0), known.status.eq(0)]
            with m.If(self.resume[queue]):
                m.d.sync += known.resuming.eq(1)
            with m.If(self.over[queue]):
                m.d.sync += known.end.eq(_END.TAIL)
            with m.Elif(step.lost & completes):
                m.d.sync += known.end.eq(_END.RECORD)
            with m.Elif(step.gives_up & served):
                m.d.sync += known.end.eq(_END.ENTRY)
            with m.Elif(failed_read & ~flushing):
                m.d.sync += known.end.eq(_END.READ)
            with m.If(self.armed[queue]):
                cleared = known.end, known.status, known.failed, known.resuming
                m.d.sync += [register.eq(0) for register in cleared]

            state = STATE(self.state[queue])
            waiting = known.phase != Phase.IDLE
            looked_up = step.looked_up & served
            works = waiting | known.running.any() | ending.at_work
            m.d.comb += [
                self.idle[queue].eq(~works),
                state.status.eq(known.status),
                state.failed.eq(known.failed),
                state.busy.eq(works | looked_up | (self.under_way & reads)),
                state.armed.eq(self.settings[queue].armed),
                state.end.eq(known.end),
                state.place.eq(self.head[queue]),
                state.recorded.eq(ending.recorded),
                state.ending.eq(ending.at_work),
                state.running.eq(known.running),
                state.starting.eq(waiting | looked_up),
            ]
        return m
