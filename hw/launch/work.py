# SPDX-License-Identifier: BSD-2-Clause
"""What is known of each launch queue, of its next ticket, and of the one that ends."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..records import Outcome, Retired
from .records import SETTINGS, SLOT_BITS, STATE, Phase, Read
from .runs import STATUS_BITS

__all__ = ["READS", "Ending", "Here", "Known", "QueueWork", "Step"]

#: Reads for an entry, one after the other, before the queue ends.
READS = 31

_END, _STATUS = regs.LaunchEnd, regs.LaunchStatus


class Known(data.Struct):
    """What is kept of a queue and its next ticket, up to the end of that one's run."""

    phase: Phase
    slot: SLOT_BITS
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
    #: of its slot: it has a done word, and is this queue's; it is a pair's; it has a flush read
    has_done: 1
    pair: 1
    flushes: 1
    #: an earlier ticket had failed when its slot was looked up
    flushed: 1


class Ending(data.Struct):
    """What is kept of a ticket whose run has ended, or that is not started."""

    #: there is one: it waits for its flush read, or what is written for it is not yet done
    at_work: 1
    #: its record was taken
    recorded: 1
    slot: SLOT_BITS
    has_done: 1
    #: a `peerdma.regs.LaunchStatus`
    status: STATUS_BITS
    #: upper half of its number
    upper: 16


class Step(data.Struct):
    """What happens to the queue that is served, in a cycle."""

    #: its entry was found, and names this slot
    found: 1
    slot: SLOT_BITS
    #: its slot is looked up; as in its control
    looked_up: 1
    has_done: 1
    pair: 1
    flushes: 1
    #: its run has ended, or it has none, with this outcome: it ends; upper half of its number
    ended: 1
    outcome: STATUS_BITS
    upper: 16
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
    #: its oldest ticket that has no record; and the next one to end its run, or to be started,
    #: which was rung if the queue `waits`
    oldest: 16
    ticket: 16
    waits: 1


class QueueWork(wiring.Component):
    """Registers of all queues, of which one is served in a cycle.

    The registers stand behind what happens, and not in the states of a machine: so they are enabled
    and cleared without a LUT for each bit.

    Parameters
    ----------
    queues : int

    Members
    -------
    queue : In(range(queues)), step : In(Step), here : Out(Here)
        The queue that is served, what happens to it, and what it is.
    completer : In(range(queues))
        The queue that completes a ticket.
    settings, armed, load, first, resume, state
        As at `hw.launch.table.LaunchTable`.
    waits, moved, over, head, ahead
        As at `hw.launch.tails.Tails`.
    under_way : In(1), reading : In(Read), reader : In(range(queues))
        A read, what it reads, and for which queue.
    retired : In(stream of Retired, always ready)
        How it has ended.
    tick : In(1)
        Each queue may read once more.
    idle : Out(queues)
        Queues without a ticket at work.
    known : Out(Known), ending : Out(Ending), arrays of queues
    """

    def __init__(self, queues: int):
        self._queues = queues
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
                "waits": In(queues),
                "moved": In(queues),
                "over": In(queues),
                "head": Out(16).array(queues),
                "ahead": Out(queues),
                "under_way": In(1),
                "reading": In(Read),
                "reader": In(range(queues)),
                "retired": In(stream.Signature(Retired, always_ready=True)),
                "tick": In(1),
                "idle": Out(queues),
                "known": Out(Known).array(queues),
                "ending": Out(Ending).array(queues),
            }
        )

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
                        here.waits.eq(self.waits[queue]),
                    ]
        ahead, following = Signal(), Signal(16)
        m.d.comb += [
            ahead.eq(here.ending.at_work & ~here.ending.recorded),
            here.ticket.eq(here.oldest + ahead),
            # Behind the one whose record was taken
            following.eq(Mux(self.load.any(), self.first, here.ticket)),
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
            with m.If(step.found & served):
                m.d.sync += known.slot.eq(step.slot)
            with m.If(step.looked_up & served):
                m.d.sync += [
                    known.has_done.eq(step.has_done),
                    known.pair.eq(step.pair),
                    known.flushes.eq(step.flushes),
                    known.flushed.eq(known.failed),
                ]
            with m.If(step.ended & served):
                m.d.sync += [
                    ending.at_work.eq(1),
                    ending.recorded.eq(0),
                    ending.slot.eq(known.slot),
                    ending.has_done.eq(known.has_done),
                    ending.status.eq(step.outcome),
                    ending.upper.eq(step.upper),
                ]
            with m.If(step.counted & served):
                m.d.sync += ending.recorded.eq(1)
            with m.If(step.finished & completes):
                m.d.sync += ending.at_work.eq(0)
            failed_flush = failed_read & flushing
            with m.If(failed_flush & (ending.status == _STATUS.OK)):
                m.d.sync += ending.status.eq(outcome)
            # No ticket is started behind a failed one, but for one that has begun by then.
            fails = (step.ended & served & (step.outcome != _STATUS.OK)) | failed_flush
            with m.If(fails & ~known.failed):
                failure = Mux(failed_flush, outcome, step.outcome)
                m.d.sync += [known.failed.eq(1), known.status.eq(failure)]

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
            works = (known.phase != Phase.IDLE) | ending.at_work
            m.d.comb += [
                self.ahead[queue].eq(ending.at_work & ~ending.recorded),
                self.idle[queue].eq(~works),
                state.status.eq(known.status),
                state.failed.eq(known.failed),
                state.busy.eq(works | (step.looked_up & served) | (self.under_way & reads)),
                state.armed.eq(self.settings[queue].armed),
                state.end.eq(known.end),
                state.slot.eq(known.slot),
                state.ending.eq(ending.at_work),
                state.ending_slot.eq(ending.slot),
            ]
        return m
