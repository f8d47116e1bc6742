# SPDX-License-Identifier: BSD-2-Clause
"""The grant of a channel: runs that software starts by register, and those of another owner."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import InFlight, Outcome, PushedWord
from ..stream.link import StreamRunSignature
from .signatures import OwnerSignature

__all__ = ["SHARE", "TURN", "ChannelGrant", "RunPartsSignature"]

#: Cycles of the other owner's turn, see `ChannelGrant`: about what a run of 16 KiB takes.
TURN = 4096
#: Bytes that a run of software's may move before it is interrupted for the other owner.
SHARE = 4096


class RunPartsSignature(wiring.Signature):
    """What a run needs of its channel, from the run's side; members as in `RunState`.

    Members
    -------
    follows : Out(1)
        What starts is behind other runs that are under way.
    fetching : In(1)
        The list of the run that has started last is not all fetched.
    """

    def __init__(self):
        super().__init__(
            {
                "start": Out(1),
                "follows": Out(1),
                "halt": Out(1),
                "flush": Out(1),
                "quiet": In(1),
                "fetching": In(1),
                "oldest": In(stream.Signature(InFlight)),
                "failure": In(Outcome),
                "streamed": In(1),
                "stream": Out(StreamRunSignature()),
            }
        )


class ChannelGrant(wiring.Component):
    """Gives the channel to software's runs, one at a time, or to those of another owner.

    Both take turns. The other owner has the channel after one run of software's at most. It may
    begin runs, which tend to be small, until `turn` cycles after that run; then, or as soon as it
    has no `more` or withdraws a request, software's run comes first.

    A run of software's that has moved `share` bytes is interrupted behind a descriptor, for a turn
    of an owner that waits: its list is put aside, what was begun of it completes, and then the
    channel is the owner's. Later its list goes on where it was. Software sees nothing of that: its
    run is busy all the time. Bytes of one run stay together in the stream, so a run that has used
    it goes on at once, and is interrupted no more.

    A run of the other owner ends by Stop, by an error, by the withdrawal of its request, or by
    `stop`, and only when nothing of it can touch memory any more. Up to `RUNS` may be under way at
    once: the next one begins when all descriptors of those before are taken. It begins behind none
    where software waits and the owner's turn is over, but for one that was promised before.

    A run of software's that has failed breaks its pair for as long as software has not seen it.
    Where it had the pair flushed before an H2C run of the owner, it breaks it no more: what comes
    then is the owner's. A failed C2H run goes on, as software's H2C may bring its bytes yet.

    Parameters
    ----------
    c2h : bool
        The channel's direction.
    turn : int
        Cycles of the other owner's turn, a power of two.
    share : int
        Bytes, a power of two of at least 8.

    Members
    -------
    host : In(RunPartsSignature)
        Software's runs. `stream.start_ok` is low while the channel is not theirs.
    waits : In(1)
        Software has started a run that has not begun.
    beats : In(8)
        64-bit data beats moved in this cycle.
    streams : In(1)
        Of the run that has the channel, a descriptor that was taken uses the stream.
    empty : In(1)
        There is no descriptor between the fetch and the end of its data.
    owner : In(OwnerSignature), word : Out(stream of PushedWord)
        `word` is that of the owner.
    stop : In(1)
        Abort, and start no run while this is high.
    long : In(1)
        The packet that the run has taken was longer than its memory.
    parts : Out(RunPartsSignature)
        The channel's parts, for whoever has the channel.
    owned : Out(1)
        The other owner has the channel.
    hold : Out(1), resume : Out(1)
        As in `FetchSignature`, for software's list. To the intake, one that goes on starts; that
        its run has used the stream `follows` then.
    rests : Out(1)
        A run of software's is interrupted.
    """

    def __init__(self, *, c2h: bool, turn: int = TURN, share: int = SHARE):
        self._c2h, self._turn, self._share = c2h, turn, share
        super().__init__(
            {
                "host": In(RunPartsSignature()),
                "waits": In(1),
                "beats": In(8),
                "streams": In(1),
                "empty": In(1),
                "owner": In(OwnerSignature()),
                "word": Out(stream.Signature(PushedWord)),
                "stop": In(1),
                "long": In(1),
                "parts": Out(RunPartsSignature()),
                "owned": Out(1),
                "hold": Out(1),
                "resume": Out(1),
                "rests": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        host, owner, parts, rests = self.host, self.owner, self.parts, self.rests
        oldest, end = parts.oldest.payload, owner.ended.payload
        #: runs of the owner under way, and then those that have not ended by Stop
        runs = Signal.like(owner.runs)
        #: the last of them is promised and has not begun
        owes = Signal()
        #: how the last one ends
        outcome = Signal(Outcome)
        descriptor = Signal()
        aborted = Signal()
        #: descriptors of the oldest one that have completed, with that of this cycle
        count, counted = Signal.like(end.count), Signal.like(end.count)
        #: of both, software is served first, once the other owner's turn is over
        host_first = Signal(init=1)
        #: cycles of its turn that have passed; the upper bit says that it is over
        turn = Signal(exact_log2(self._turn) + 1, init=self._turn)
        lasts, keeps = ~turn[-1], Signal()
        flush = Signal()
        #: software's run may begin in this cycle
        hosts = Signal()
        #: a failed run of software's has broken the pair since before the grant
        broke = Signal()
        #: behind it the owner had a run, which began when the pair was flushed
        served = Signal()
        waited = Signal()
        #: software's run has the channel, or waits for it
        has, waits = Signal(), Signal()
        #: beats that it has moved since it began or went on; the upper bit says that it was enough
        moved = Signal(exact_log2(self._share // 8) + 1)
        m.d.comb += [has.eq(host.stream.running & ~rests), waits.eq(self.waits | rests)]
        with m.If(host.start | self.resume):
            m.d.sync += [host_first.eq(0), turn.eq(0), moved.eq(0)]
        with m.Else():
            with m.If(lasts & ~has):
                m.d.sync += turn.eq(turn + 1)
            with m.If(~moved[-1]):
                m.d.sync += moved.eq(moved + self.beats)
        m.d.comb += keeps.eq(lasts & (owner.request | owner.more))

        # Passed on; software's runs rest while the channel is not theirs.
        m.d.comb += [
            parts.start.eq(host.start),
            parts.halt.eq(host.halt & ~self.owned),
            parts.flush.eq((host.flush & ~rests) | flush),
            parts.oldest.ready.eq(host.oldest.ready),
            parts.stream.running.eq(has | owner.started),
            # A run of software's that is over breaks nothing of the owner's.
            parts.stream.breaks.eq(host.stream.breaks & ~self.owned & ~served),
            host.stream.start_ok.eq(parts.stream.start_ok & hosts),
            # Nothing of a run that rests is anywhere.
            host.quiet.eq(parts.quiet | rests),
            host.oldest.payload.eq(oldest),
            host.oldest.valid.eq(parts.oldest.valid & ~self.owned & ~rests),
            host.failure.eq(Mux(rests, Outcome.OK, parts.failure)),
            host.streamed.eq(parts.streamed & ~rests),
            owner.granted.eq(self.owned),
            owner.runs.eq(runs),
            counted.eq(count + (parts.oldest.ready & self.owned)),
            end.count.eq(counted),
            end.long.eq(self.long),
            self.word.valid.eq(owner.word.valid),
            self.word.payload.eq(owner.word.payload),
            owner.word.ready.eq(self.word.ready),
        ]
        with m.FSM():
            with m.State("Host"):
                m.d.comb += hosts.eq(Mux(host_first, ~keeps, ~owner.request))
                softwares = waits & host_first & ~keeps
                going = host.stream.running & ~host.halt & ~host.flush
                with m.If(owner.request & ~has & ~softwares):
                    m.d.sync += host_first.eq(1)
                    m.d.sync += [broke.eq(host.stream.breaks), runs.eq(1)]
                    m.next = "Granted"
                with m.Elif(rests & going & hosts & parts.stream.start_ok):
                    m.d.comb += self.resume.eq(1)
                    m.d.sync += rests.eq(0)
                with m.Elif(owner.request & has & going & moved[-1] & ~self.streams):
                    m.next = "Interrupt"
            with m.State("Interrupt"):
                m.d.comb += self.hold.eq(1)
                with m.If(~going):
                    # It ends by itself.
                    m.next = "Host"
                with m.Elif(parts.quiet & self.empty):
                    m.next = "Host"
                    with m.If(self.streams):
                        m.d.comb += [self.resume.eq(1), parts.follows.eq(1)]
                    with m.Else():
                        m.d.sync += rests.eq(1)
            with m.State("Granted"):
                m.d.comb += self.owned.eq(1)
                with m.If(~owner.request):
                    # Software may have the other channel that it needs.
                    m.d.sync += turn[-1].eq(1)
                    m.next = "Host"
                with m.Else():
                    m.d.comb += owner.ready.eq(parts.stream.start_ok & ~self.stop)
                with m.If(owner.start & owner.ready):
                    m.d.comb += parts.start.eq(1)
                    m.d.sync += [
                        count.eq(0),
                        outcome.eq(Outcome.OK),
                        descriptor.eq(0),
                        aborted.eq(0),
                    ]
                    if not self._c2h:
                        m.d.sync += served.eq(broke | served)
                    m.next = "Run"
            with m.State("Run"):
                m.d.comb += [self.owned.eq(1), owner.started.eq(1)]
                m.d.sync += count.eq(counted)
                # Nothing but an abort keeps a run that was promised from its start.
                owed = owes & ~parts.fetching & (parts.failure == Outcome.OK)
                with m.If(~owner.request | self.stop):
                    m.d.sync += [flush.eq(1), aborted.eq(1)]
                    m.next = "End"
                with m.Elif(parts.oldest.valid & (oldest.outcome == Outcome.OK)):
                    m.d.comb += [parts.oldest.ready.eq(1), owner.ready.eq(owed)]
                    with m.If(oldest.stop & (runs == 1)):
                        m.d.sync += flush.eq(1)
                        m.next = "End"
                    with m.Elif(oldest.stop):
                        m.d.comb += owner.ended.valid.eq(1)
                        m.d.sync += [runs.eq(runs - 1), count.eq(0)]
                with m.Elif(parts.oldest.valid | (parts.failure != Outcome.OK)):
                    m.d.sync += [
                        flush.eq(1),
                        outcome.eq(Mux(parts.oldest.valid, oldest.outcome, parts.failure)),
                        descriptor.eq(parts.oldest.valid & oldest.from_fetch),
                    ]
                    m.next = "End"
                with m.Else():
                    ready = parts.stream.start_ok & ~parts.fetching & ~runs.all()
                    m.d.comb += owner.ready.eq(owed | (ready & ~owes & ~(waits & ~lasts)))
                    with m.If(owner.ready & ~owes & (owner.start | owner.reserve)):
                        m.d.sync += [runs.eq(runs + 1), owes.eq(~owner.start)]
                with m.If(owner.start & owner.ready):
                    m.d.comb += [parts.start.eq(1), parts.follows.eq(1)]
                    m.d.sync += owes.eq(0)
            with m.State("End"):
                good = ~aborted & (outcome == Outcome.OK)
                m.d.comb += [
                    self.owned.eq(1),
                    owner.started.eq(1),
                    end.outcome.eq(outcome),
                    end.descriptor.eq(descriptor),
                    end.aborted.eq(aborted),
                    end.last.eq(1),
                    parts.stream.breaks.eq(parts.streamed & ~good),
                ]
                with m.If(parts.quiet):
                    m.d.comb += owner.ended.valid.eq(1)
                    m.d.sync += [flush.eq(0), owes.eq(0), runs.eq(Mux(good, 0, runs))]
                    m.next = "Host"
        with m.If(~host.stream.running):
            m.d.sync += rests.eq(0)
        # The next run of software's may be given up meanwhile, for which the pair is flushed, too.
        m.d.sync += waited.eq(self.waits)
        with m.If(~host.stream.breaks | (waited & ~self.waits)):
            m.d.sync += [broke.eq(0), served.eq(0)]
        return m
