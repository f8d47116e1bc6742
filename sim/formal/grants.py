# SPDX-License-Identifier: BSD-2-Clause
"""A channel's grant: one owner at a time, and turns."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.channel.grant import ChannelGrant
from hw.channel.signatures import RUNS
from hw.records import Outcome

from .property import Property

__all__ = ["Grants"]


class Grants(Property):
    """A channel has one owner at a time, and both take turns.

    The other owner has it after one run of software's at most, or when that has moved its share,
    and software after the last run that begins in the other owner's turn; a run that was
    interrupted rests, with nothing of it in the channel, and goes on.

    Nothing of software's runs reaches the channel's parts while the other owner has them, and the
    other way round; each run of the owner ends once, in order, and the last one when the channel is
    drained. One begins behind others only when their lists are fetched and none has failed, and not
    while software waits and the owner's turn is over. Assumed is that runs end: each of software's
    within some cycles of its start, or of an abort or an error, unless it moves its share and has
    not used the stream; then it is drained within as many, without its list. The owner's end within
    as many of the start of the last one, and as many more until the channel is drained. Nobody is
    kept from a start for longer, and an owner which is granted has started, or withdraws, within
    twice as many.
    """

    #: each of these numbers of cycles
    MOST = 2
    #: of the other owner's turn
    TURN = 4
    #: bytes of software's share
    SHARE = 16
    #: cycles from a request to its grant, and from software's Run bit to the start of its run
    GRANTED = 8 * MOST + 8
    STARTED = 6 * MOST + 4 + TURN

    depth = max(GRANTED, STARTED) + 2
    reach = 24

    def __init__(self):
        super().__init__(ChannelGrant(c2h=False, turn=self.TURN, share=self.SHARE))

    def _state(self, m):
        block = self.block
        host, owner, parts = block.host, block.owner, block.parts
        running, oldest = Signal(), parts.oldest.payload
        ends = self.free(1, "ends")
        m.d.sync += running.eq(host.start | (running & ~ends))
        clear = parts.stream.start_ok & ~block.stop
        rests, has = block.rests, Signal()
        #: software's run is aborted, or has failed
        stops, ending = Signal(), Signal()
        #: it has not moved its share, or has used the stream
        stays = ~self.inside("moved")[-1] | block.streams
        m.d.comb += [
            has.eq(running & ~rests),
            stops.eq(host.halt | host.flush | (has & (parts.failure != Outcome.OK))),
        ]
        m.d.sync += ending.eq(running & (ending | stops))

        def bounded(while_, most=self.MOST):
            return Assume(self.waiting(m, while_, most + 1) <= most)

        m.d.comb += [
            # What the run state of software's does.
            Assume(host.stream.running == running),
            Assume(host.start == (block.waits & host.stream.start_ok)),
            Assume(~(block.waits & running)),
            Assume(running | ~(host.flush | host.oldest.ready)),
            Assume(host.oldest.valid | ~host.oldest.ready),
            Assume(~(rests & host.stream.breaks)),
            Assume(~(block.empty & (parts.oldest.valid | (parts.failure != Outcome.OK)))),
            Assume(~self.past(m, has & block.streams) | ~has | block.streams),
            # What an owner does.
            bounded(owner.granted & ~owner.started & owner.request, 2 * self.MOST),
            # Runs end.
            bounded(has & stays & self.inside.state("", "Host")),
            bounded(self.inside.state("", "Interrupt")),
            bounded(ending & running),
            bounded(owner.started & ~parts.flush & ~parts.start),
            bounded(owner.started & parts.flush & ~parts.quiet),
            bounded(~clear),
        ]
        started, granted = owner.started, owner.granted
        # A run ends as it went: an end without an error has had all its descriptors.
        end, failed, whole = owner.ended.payload, Signal(), Signal()
        good = (end.outcome == Outcome.OK) & ~end.aborted
        leaves, ended = owner.ended.valid & ~end.last, self.past(m, owner.ended.valid & end.last)
        #: nothing has failed that is to be reported
        fine = Signal()
        follows = parts.follows & ~block.resume
        mine = parts.start & ~host.start
        #: runs of the owner under way; one ends well in this cycle
        under_way, retires = Signal(range(RUNS + 1)), Signal()
        m.d.comb += retires.eq(parts.oldest.ready & oldest.stop & started & ~parts.flush)
        m.d.sync += under_way.eq(Mux(owner.ended.valid & end.last, 0, under_way + mine - leaves))
        #: software's failed run broke the pair before the grant; a run of the owner's came behind
        before, behind = Signal(), Signal()
        #: the owner has had a run since software's last one
        again = Signal()
        given_up = self.past(m, block.waits) & ~block.waits
        lasts = host.stream.breaks & ~given_up
        m.d.sync += [
            before.eq(lasts & (~granted | before)),
            behind.eq(lasts & (behind | (mine & before))),
            again.eq(~host.start & (again | owner.ended.valid)),
        ]
        m.d.comb += [
            Assert(~(has & granted)),
            Assert(~rests | running | self.past(m, running)),
            # A run rests when nothing of it is left, and sees nothing of the owner's.
            Assert(~rests | self.past(m, rests | (parts.quiet & block.empty & ~block.streams))),
            Assert(~rests | (host.quiet & ~host.oldest.valid & (host.failure == Outcome.OK))),
            Assert(~(rests & host.streamed)),
            Assert(~(block.hold & (granted | rests | parts.start))),
            Assert(~block.resume | (running & ~granted & ~parts.flush & ~host.halt & ~mine)),
            Assert(~block.resume | (rests | (block.hold & parts.quiet & parts.follows))),
            Assert(~block.resume | ~rests | parts.stream.start_ok),
            Assert(~(host.start & granted)),
            Assert(~mine | (granted & owner.request & (started == parts.follows))),
            Assert(~mine | (owner.start & owner.ready)),
            Assert(~(owner.start & owner.ready) | mine),
            Assert(~parts.start | (parts.stream.start_ok & ~has)),
            Assert(~follows | (mine & ~parts.fetching & ~parts.flush & (under_way != RUNS))),
            Assert(~parts.follows | (parts.failure == Outcome.OK)),
            Assert(~follows | ~parts.oldest.valid),
            Assert(~follows | ~(block.waits | rests) | ~self.inside("turn")[-1]),
            Assert(~started | granted),
            Assert(block.owned == granted),
            Assert(~granted | ~host.oldest.valid),
            Assert(~parts.oldest.ready | has | (started & ~parts.flush)),
            Assert(~parts.flush | has | started),
            Assert(parts.stream.running == (has | started)),
            # The pair breaks by whoever has the channel; a run of the owner that is not whole does.
            Assert(~parts.stream.breaks | Mux(granted, started & parts.flush, host.stream.breaks)),
            Assert(granted | (parts.stream.breaks == (host.stream.breaks & ~behind))),
            Assert(~owner.ended.valid | (parts.stream.breaks == (parts.streamed & ~good))),
            Assert(~owner.ended.valid | started),
            Assert(~(owner.ended.valid & end.last) | (parts.flush & parts.quiet)),
            Assert(leaves == (retires & (under_way != 1))),
            Assert((under_way != 0) == started),
            # Behind the last one, those that have not ended by Stop are shown for as long.
            Assert(~started | (owner.runs == under_way)),
            Assert(granted | ended | (owner.runs == self.past(m, owner.runs))),
            Assert(~ended | (owner.runs == Mux(self.past(m, good), 0, self.past(m, under_way)))),
            Assert(self.waiting(m, owner.request & ~granted, self.GRANTED + 1) <= self.GRANTED),
            Assert(self.waiting(m, block.waits, self.STARTED + 1) <= self.STARTED),
            Assert(self.waiting(m, rests & ~ending, self.STARTED + 1) <= self.STARTED),
        ]
        with m.If(mine):
            m.d.sync += [failed.eq(0), whole.eq(0)]
        with m.If(started & ~parts.flush):
            with m.If(retires):
                m.d.sync += whole.eq(under_way == 1)
            with m.Elif(~parts.oldest.ready & (parts.oldest.valid | (parts.failure != Outcome.OK))):
                m.d.sync += failed.eq(owner.request & ~block.stop)
        m.d.comb += [
            Assert(~owner.ended.valid | (good == (whole | ~end.last))),
            Assert(~owner.ended.valid | ((end.outcome != Outcome.OK) == failed)),
            fine.eq((self.inside("outcome") == Outcome.OK) & ~self.inside("aborted")),
            # What is inside.
            Assert(~(granted & ~started) | (owner.runs == 1)),
            Assert(self.inside.state("")),
            Assert(self.inside.state("", "Run", "End") == started),
            Assert(self.inside.state("", "Host", "Interrupt") == ~granted),
            Assert(~self.inside.state("", "Interrupt") | ~rests),
            Assert(~granted | self.inside("host_first")),
            Assert(self.inside("served") == behind),
            Assert(~granted | (self.inside("broke") == before)),
            Assert(self.inside("flush") == self.inside.state("", "End")),
            Assert(~self.inside.state("", "Run") | (fine & ~whole & ~failed)),
            Assert(~self.inside.state("", "End") | (good == whole)),
            Assert(~self.inside.state("", "End") | ((end.outcome != Outcome.OK) == failed)),
        ]
        self.cover(
            m,
            owner.ended.valid & (end.count == 2) & good,
            owner.ended.valid & (end.outcome == Outcome.MAGIC),
            owner.ended.valid & end.aborted,
            mine & block.waits,
            host.start & owner.request,
            host.start & self.past(m, granted),
            host.start & owner.more & ~self.inside("turn")[-1],
            mine & block.waits & again,
            parts.follows & block.waits,
            leaves & (under_way == 3),
            ~granted & behind & host.stream.breaks,
            block.resume & ~rests,
            block.resume & self.past(m, granted),
            granted & rests & host.flush,
        )
