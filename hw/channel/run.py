# SPDX-License-Identifier: BSD-2-Clause
"""The run state of a channel: from software's Run bit to the event that ends the run."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..records import ErrorReport, InFlight, Outcome
from ..stream.link import StreamRunSignature
from .errors import error_bits
from .signatures import STATUS_BITS, RunEventsSignature, WritebackSignature

__all__ = ["RunState"]

_STATUS = regs.Status


class RunState(wiring.Component):
    """Starts runs, retires descriptors, and ends runs: by Stop, by an error, or by an abort.

    The event of the end, busy and the count change in one cycle, so that a driver that sees one of
    them sees all, and only when nothing of the run can touch memory any more. In poll mode a
    descriptor that failed is counted earlier: what is written back has to include it.

    Parameters
    ----------
    c2h : bool
        The channel's direction, which decides about the status bits of errors.
    shared : bool
        The channel has another owner, too.
    doubtful : bool
        A run may be for the stream that is withdrawn before it begins.

    Members
    -------
    enable : In(1)
        The Run bit.
    stop : In(1)
        Abort, and start no run while this is high.
    poll_mode : In(1)
        Write completed counts back.
    accessed : In(1)
        Software accesses a register in this cycle. Events wait for a cycle without: whether the
        access clears the status would be known late in the cycle. There are always such cycles, as
        packets have gaps between them.
    quiet : In(1)
        Fetch, splitter and data path hold nothing of this channel.
    oldest : In(stream of InFlight), failure : In(Outcome)
        From the in-flight queue.
    error_address : In(64), streamed : In(1)
        From the intake.
    rests : In(1)
        The run is interrupted for the other owner. Only if `shared`.
    start : Out(1)
        High for one cycle: fetch descriptors.
    halt : Out(1)
        Fetch no more: Run was cleared.
    flush : Out(1)
        Drop descriptors and spans, start no requests. High until `quiet`.
    fall : Out(1)
        Run was cleared a cycle ago.
    stream : Out(StreamRunSignature)
    events : Out(RunEventsSignature)
    writeback : Out(WritebackSignature)
    error : Out(stream of ErrorReport, always ready)
        The error that ended a run.
    """

    def __init__(self, *, c2h: bool, shared: bool = False, doubtful: bool = True):
        self._c2h, self._shared, self._doubtful = c2h, shared, doubtful
        super().__init__(
            {
                "enable": In(1),
                "stop": In(1),
                "poll_mode": In(1),
                "accessed": In(1),
                "quiet": In(1),
                "oldest": In(stream.Signature(InFlight)),
                "failure": In(Outcome),
                "error_address": In(64),
                "streamed": In(1),
                **({"rests": In(1)} if shared else {}),
                "start": Out(1),
                "halt": Out(1),
                "flush": Out(1),
                "fall": Out(1),
                "stream": Out(StreamRunSignature()),
                "events": Out(RunEventsSignature()),
                "writeback": Out(WritebackSignature()),
                "error": Out(stream.Signature(ErrorReport, always_ready=True)),
            }
        )
        self._outcome = Signal(Outcome)
        #: a descriptor without Stop has completed, and status does not show it yet
        self._completed = Signal()
        #: software has started the next run while this one was ending
        self._restarted = Signal()
        #: nothing of the run can touch memory any more, and the event of its end can come
        self._settled = Signal()

    def elaborate(self, platform):
        m = Module()
        events, writeback, use = self.events, self.writeback, self.stream
        run, rise, busy = Signal(), events.rise, events.busy
        was_running = Signal()
        m.d.sync += was_running.eq(run)
        m.d.comb += [
            run.eq(self.enable & ~self.stop),
            rise.eq(run & ~was_running),
            self.fall.eq(was_running & ~run),
            self.halt.eq(~run),
            writeback.allowed.eq(run),
            writeback.hold.eq(self.flush & ~self.quiet),
        ]

        oldest, ready = self.oldest.payload, self.oldest.valid
        ending = Signal(STATUS_BITS)
        completed, restarted, settled = self._completed, self._restarted, self._settled
        #: the descriptor that failed is not counted yet
        uncounted = Signal()
        resting = Signal()
        #: the run ends by an error, and may have left bytes in the stream
        spoilt = Signal()
        # An error of the oldest descriptor itself comes before one of a span behind it. The report
        # of the former has an address, which the intake keeps; the data path reports the latter's.
        outcome, of_fetch = self._outcome, Signal()
        report = self.error.payload
        m.d.comb += [
            settled.eq(self.quiet & ~self.accessed & ~completed & ~writeback.pending),
            use.running.eq(busy & ~resting),
            outcome.eq(Mux(ready, oldest.outcome, self.failure)),
            of_fetch.eq(ready & oldest.from_fetch),
            report.address.eq(self.error_address),
            spoilt.eq(self.streamed & (ending & int(_STATUS.errors())).any()),
        ]
        m.d.sync += [self.error.valid.eq(0), restarted.eq(restarted | rise)]

        with m.FSM():
            with m.State("Idle"):
                m.d.comb += resting.eq(1)
                with m.If(run):
                    m.d.comb += busy.eq(1)
                    with m.If(use.start_ok):
                        m.d.comb += self.start.eq(1)
                        m.next = "Run"
                if self._doubtful:
                    with m.Elif(self.fall):
                        m.next = "Dropped"
            with m.State("Run"):
                m.d.comb += busy.eq(1)
                m.d.sync += restarted.eq(rise)
                with m.If(~was_running):
                    m.next = "Abort"
                with m.Elif(completed):
                    pass  # the writeback and the event of the last descriptor come first
                with m.Elif(outcome != Outcome.OK):
                    m.d.comb += [
                        writeback.request.eq(self.poll_mode),
                        writeback.error.eq(1),
                        events.counted.eq(self.poll_mode),
                    ]
                    m.d.sync += [
                        uncounted.eq(~self.poll_mode),
                        ending.eq(
                            error_bits(outcome, of_fetch, c2h=self._c2h)
                            | _STATUS.DESCRIPTOR_STOPPED
                        ),
                        self.flush.eq(1),
                        self.error.valid.eq(1),
                        report.outcome.eq(outcome),
                        report.descriptor.eq(of_fetch),
                        report.located.eq(ready),
                    ]
                    m.next = "End"
                with m.Elif(ready):
                    self._retire(m)
                    m.d.comb += writeback.request.eq(self.poll_mode & oldest.completed)
                    with m.If(oldest.stop):
                        bits = Mux(oldest.completed, int(_STATUS.DESCRIPTOR_COMPLETED), 0)
                        stopped = bits | _STATUS.DESCRIPTOR_STOPPED
                        with m.If(settled & ~writeback.request):
                            m.d.comb += events.event.eq(stopped)
                            m.next = "Idle"
                            with m.If(run):
                                m.next = "Stopped"
                        with m.Else():
                            m.d.sync += [ending.eq(stopped), self.flush.eq(1)]
                            m.next = "End"
                    with m.Else():
                        m.d.sync += completed.eq(oldest.completed)
            with m.State("End"):
                m.d.comb += [busy.eq(1), use.breaks.eq(spoilt)]
                with m.If(settled):
                    m.d.sync += [self.flush.eq(0), uncounted.eq(0)]
                    m.next = "Idle"
                    with m.If(~restarted & ~rise):
                        m.d.comb += [events.event.eq(ending), events.counted.eq(uncounted)]
                        with m.If(run):
                            m.next = "Stopped"
                            with m.If(spoilt):
                                m.next = "Failed"
            with m.State("Stopped"):
                with m.If(~run):
                    m.next = "Idle"
            with m.State("Failed"):
                # Until software has seen it, it may start the other half of the copy.
                m.d.comb += [resting.eq(1), use.breaks.eq(1)]
                with m.If(~run):
                    m.next = "Dropped"
            with m.State("Dropped"):
                # The pair may be another owner's, and is flushed behind its run. The next run
                # may be given up here, too.
                m.d.comb += [resting.eq(1), use.breaks.eq(1), busy.eq(run)]
                with m.If(use.start_ok & ~self.fall):
                    m.next = "Idle"
            self._abort(m)
        self._complete(m)
        return m

    def _retire(self, m):
        """Take the oldest descriptor, whose data has been moved, off the queue."""
        m.d.comb += [self.oldest.ready.eq(1), self.events.counted.eq(1)]

    def _abort(self, m):
        """The states of a run that software has cleared Run of, to "Idle"."""
        events, oldest = self.events, self.oldest
        with m.State("Abort"):
            m.d.comb += [events.busy.eq(1), self.halt.eq(1)]
            # What has finished still counts. A run that was started meanwhile must not see it,
            # and in the cycle of its rising edge nothing counts.
            fine = oldest.valid & (self._outcome == Outcome.OK) & ~self._completed
            with m.If(fine & ~self._restarted):
                self._retire(m)
                m.d.sync += self._completed.eq(oldest.payload.completed)
            with m.Else():
                m.d.sync += self.flush.eq(1)
                m.next = "Drain"
        with m.State("Drain"):
            m.d.comb += [events.busy.eq(1), self.stream.breaks.eq(self.streamed)]
            with m.If(self._settled):
                m.d.sync += self.flush.eq(0)
                with m.If(~self._restarted & ~events.rise):
                    # Stopped as well: Linux' driver waits for an interrupt after it has cleared
                    # Run, and does not enable the other bit.
                    m.d.comb += events.event.eq(
                        int(_STATUS.IDLE_STOPPED | _STATUS.DESCRIPTOR_STOPPED)
                    )
                m.next = "Idle"
                if self._shared:
                    # The pair may be another owner's, and hold what was for this run.
                    with m.If(self.rests):
                        m.next = "Dropped"

    def _complete(self, m):
        """Have the status show that a descriptor without Stop has completed."""
        events, completed = self.events, self._completed
        # In a cycle in which software cannot clear the status: a clear then shows as a low
        # interrupt request, and the event makes a new edge.
        with m.If(completed & ~self.writeback.pending & ~self.accessed):
            m.d.comb += events.event.eq(int(_STATUS.DESCRIPTOR_COMPLETED))
            m.d.sync += completed.eq(0)
        with m.If(events.rise):
            m.d.sync += completed.eq(0)
