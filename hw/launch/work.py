# SPDX-License-Identifier: BSD-2-Clause
"""What is known of each launch queue and of its oldest ticket."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..records import Outcome, Retired
from .records import SETTINGS, SLOT_BITS, STATE, Phase, Read
from .runs import STATUS_BITS

__all__ = ["READS", "Here", "Known", "QueueWork", "Step"]

#: Reads for an entry, one after the other, before the queue ends.
READS = 31

_END, _STATUS = regs.LaunchEnd, regs.LaunchStatus


class Known(data.Struct):
    """What is kept of a queue and its oldest ticket."""

    phase: Phase
    slot: SLOT_BITS
    #: a `peerdma.regs.LaunchEnd`: why it takes no more tickets
    end: 3
    #: a `peerdma.regs.LaunchStatus`: of the ticket at work, or of the first one that failed
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
    #: its run has ended, or it has none, with this outcome
    ended: 1
    outcome: STATUS_BITS
    #: its ticket is in this phase next
    moves: 1
    phase: Phase
    #: a read for its entry begins; it has read, and must pace
    begins: 1
    paces: 1
    #: its entry never came; its record is lost
    gives_up: 1
    lost: 1
    #: it goes on behind a ticket that failed
    resumes: 1
    #: the ticket's record was taken; all that is to be written for it is
    counted: 1
    finished: 1


class Here(data.Struct):
    """The queue that is served."""

    known: Known
    settings: SETTINGS
    #: its oldest ticket, which was rung if the queue `waits`
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
    known : Out(Known), array of queues
    """

    def __init__(self, queues: int):
        self._queues = queues
        super().__init__(
            {
                "queue": In(range(queues)),
                "step": In(Step),
                "here": Out(Here),
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
                "under_way": In(1),
                "reading": In(Read),
                "reader": In(range(queues)),
                "retired": In(stream.Signature(Retired, always_ready=True)),
                "tick": In(1),
                "idle": Out(queues),
                "known": Out(Known).array(queues),
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
                        here.settings.eq(self.settings[queue]),
                        here.ticket.eq(self.head[queue]),
                        here.waits.eq(self.waits[queue]),
                    ]
        following = Signal(16)
        m.d.comb += following.eq(Mux(self.load.any(), self.first, here.ticket + 1))
        outcome, flushing = self.retired.payload.outcome, self.reading == Read.FLUSH
        for queue, known in enumerate(self.known):
            served, reads = self.queue == queue, self.reader == queue
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
                ]
            with m.If(step.ended & served):
                m.d.sync += known.status.eq(step.outcome)
            with m.If(failed_read & flushing & (known.status == _STATUS.OK)):
                m.d.sync += known.status.eq(outcome)

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
            with m.If(step.finished & served & ~known.failed):
                m.d.sync += known.failed.eq(known.status != _STATUS.OK)
            with m.If(step.resumes & served):
                m.d.sync += [known.failed.eq(0), known.resuming.eq(0)]
            with m.If(self.resume[queue]):
                m.d.sync += known.resuming.eq(1)
            with m.If(self.over[queue]):
                m.d.sync += known.end.eq(_END.TAIL)
            with m.Elif(step.lost & served):
                m.d.sync += known.end.eq(_END.RECORD)
            with m.Elif(step.gives_up & served):
                m.d.sync += known.end.eq(_END.ENTRY)
            with m.Elif(failed_read & ~flushing):
                m.d.sync += known.end.eq(_END.READ)
            with m.If(self.armed[queue]):
                cleared = known.end, known.status, known.failed, known.resuming
                m.d.sync += [register.eq(0) for register in cleared]

            state, works = STATE(self.state[queue]), known.phase != Phase.IDLE
            m.d.comb += [
                self.idle[queue].eq(~works),
                state.status.eq(known.status),
                state.failed.eq(known.failed),
                state.busy.eq(works | (step.looked_up & served) | (self.under_way & reads)),
                state.armed.eq(self.settings[queue].armed),
                state.end.eq(known.end),
                state.slot.eq(known.slot),
            ]
        return m
