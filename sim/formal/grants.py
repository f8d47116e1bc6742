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
    drained. One begins behind others, or is promised to, only when their lists are fetched and none
    has failed, and not while software waits and the owner's turn is over. One that is promised is
    under way from then on: the channel is the owner's until it has begun, or all are aborted, and
    it begins whenever the owner likes; no other one does before. Assumed is that runs end: each of
    software's within some cycles of its start, or of an abort or an error, unless it moves its
    share and has not used the stream; then it is drained within as many, without its list. The
    owner's end within as many of the start of the last one, and as many more until the channel is
    drained. Nobody is kept from a start for longer. An owner which is granted has started, or
    withdraws, within twice as many; and so does one that may begin a run that was promised. Of runs
    that have not begun come no descriptors, and no list is fetched.
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
        started, granted = owner.started, owner.granted
        #: runs of the owner under way; the last of them is promised and has not begun
        under_way, owes = Signal(range(RUNS + 1)), Signal()
        ends = self.free(1, "ends")
        m.d.sync += running.eq(host.start | (running & ~ends))
        clear = parts.stream.start_ok & ~block.stop
        rests, has = block.rests, Signal()
        #: there is an error; software's run is aborted, or has failed
        failed_now, stops, ending = Signal(), Signal(), Signal()
        #: it has not moved its share, or has used the stream
        stays = ~self.inside("moved")[-1] | block.streams
        m.d.comb += [
            has.eq(running & ~rests),
            failed_now.eq(parts.failure != Outcome.OK),
            stops.eq(host.halt | host.flush | (has & failed_now)),
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
            Assume(~(block.empty & (parts.oldest.valid | failed_now))),
            Assume(~self.past(m, has & block.streams) | ~has | block.streams),
            # What an owner does.
            bounded(granted & ~started & owner.request, 2 * self.MOST),
            bounded(owes & owner.ready & ~owner.start, 2 * self.MOST),
            # An error stays until all is dropped.
            Assume(self.past(m, ~failed_now | parts.flush) | failed_now),
            # Nothing comes of what has not begun.
            Assume(~(started & parts.oldest.valid) | (under_way != owes)),
            Assume(~parts.fetching | self.past(m, parts.fetching | parts.start | block.resume)),
            # Runs end.
            bounded(has & stays & self.inside.state("", "Host")),
            bounded(self.inside.state("", "Interrupt")),
            bounded(ending & running),
            bounded(started & ~parts.flush & ~parts.start & ~(owes & owner.ready)),
            bounded(started & parts.flush & ~parts.quiet),
            bounded(~clear),
        ]
        # A run ends as it went: an end without an error has had all its descriptors.
        end, failed, whole = owner.ended.payload, Signal(), Signal()
        good = (end.outcome == Outcome.OK) & ~end.aborted
        leaves, ended = owner.ended.valid & ~end.last, self.past(m, owner.ended.valid & end.last)
        #: nothing has failed that is to be reported
        fine = Signal()
        follows = parts.follows & ~block.resume
        mine = parts.start & ~host.start
        #: one of the owner's ends well in this cycle; one is promised
        retires, reserves = Signal(), Signal()
        begins = (mine & ~owes) | reserves
        m.d.comb += [
            retires.eq(parts.oldest.ready & oldest.stop & started & ~parts.flush),
            reserves.eq(owner.reserve & owner.ready & ~owner.start & started & ~owes),
        ]
        with m.If(owner.ended.valid & end.last):
            m.d.sync += [under_way.eq(0), owes.eq(0)]
        with m.Else():
            m.d.sync += [
                under_way.eq(under_way + begins - leaves),
                owes.eq(reserves | (owes & ~mine)),
            ]
        #: all are aborted, or one has failed
        stuck = ~owner.request | block.stop | failed_now
        stuck = stuck | (parts.oldest.valid & (oldest.outcome != Outcome.OK))
        #: the owner begins a run behind others, or is promised one
        behind_others = (follows & ~owes) | reserves
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
            # What was promised began to use the stream with those before.
            Assert(~parts.start | ((parts.stream.start_ok | owes) & ~has)),
            Assert(~(follows | reserves) | (granted & ~parts.fetching & ~parts.flush)),
            Assert(~follows | mine),
            Assert(~(parts.follows | reserves) | ~failed_now),
            Assert(~behind_others | (parts.stream.start_ok & (under_way != RUNS))),
            Assert(~behind_others | ~parts.oldest.valid),
            Assert(~behind_others | ~(block.waits | rests) | ~self.inside("turn")[-1]),
            # One that was promised begins unless all end.
            Assert(~follows | ~parts.oldest.valid | (oldest.outcome == Outcome.OK)),
            Assert(~owes | started),
            Assert(~owes | parts.flush | owner.ready | stuck),
            Assert(~owner.ready | (granted & owner.request)),
            Assert(~owner.ready | owes | ((under_way != RUNS) & ~owner.ended.valid)),
            Assert(~(owner.ready & owner.ended.valid) | ~end.last),
            Assert(~owner.ended.valid | ~good | (under_way != owes)),
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
            with m.Elif(~parts.oldest.ready & (parts.oldest.valid | failed_now)):
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
            Assert(self.inside("owes") == owes),
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
            reserves & (under_way == RUNS - 1),
            follows & owes & block.waits & self.inside("turn")[-1] & (under_way == 1),
            follows & owes & retires,
            owner.ended.valid & end.aborted & owes,
            ~granted & behind & host.stream.breaks,
            block.resume & ~rests,
            block.resume & self.past(m, granted),
            granted & rests & host.flush,
        )
