# SPDX-License-Identifier: BSD-2-Clause
"""What stays in the user stream of a pair when runs end."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.channel.run import RunState
from hw.records import Outcome
from hw.stream.pair import StreamPair
from hw.stream.user_blocks import PassThrough
from peerdma.regs import Status

from .property import Property

__all__ = ["Ends", "Leftovers"]


class Ends(Property):
    """A run that ends by anything but Stop breaks its pair, unless it is known to be of card RAM.

    It does so in its last cycle; after an error also until Run is cleared, and a run that was given
    up before its turn until the pair may be flushed. Nothing else does. Assumed is nothing.
    """

    def __init__(self):
        super().__init__(RunState(c2h=False))

    def _state(self, m):
        block, inside = self.block, self.inside
        use, oldest = block.stream, block.oldest
        known = Cat(*(oldest.payload.outcome == one for one in Outcome)).any()
        known_failure = Cat(*(block.failure == one for one in Outcome)).any()
        #: the descriptor that was retired last had Stop
        whole = Signal()
        with m.If(block.start):
            m.d.sync += whole.eq(0)
        with m.Elif(oldest.valid & oldest.ready):
            m.d.sync += whole.eq(oldest.payload.stop)
        over = self.past(m, use.running) & ~use.running
        waited = self.past(m, block.events.busy & ~use.running & ~block.start)
        given_up = waited & ~block.events.busy
        wrong = (inside("ending") & int(Status.errors())).any()
        told = (block.events.event & int(Status.errors())).any()
        unseen = use.breaks & told & block.enable & ~block.stop
        m.d.comb += [
            # Codes that mean no outcome.
            Assume(known & known_failure),
            Assert(~over | whole | self.past(m, use.breaks) | ~self.past(m, block.streamed)),
            Assert(~self.past(m, given_up) | use.breaks),
            Assert(~self.past(m, unseen) | use.breaks),
            Assert(~use.breaks | use.running | inside.state("", "Failed", "Dropped")),
            Assert(~inside.state("", "Failed") | ~block.start),
            # What is inside.
            Assert(inside.state("")),
            Assert(~inside.state("", "End") | whole | wrong),
            Assert(~inside.state("", "Failed") | wrong),
            Assert(use.running == (block.events.busy & ~inside("resting"))),
        ]
        m.d.comb += Assert(
            ~self.past(m, inside.state("", "Failed") & block.enable & ~block.stop) | use.breaks
        )
        self.cover(
            m,
            over & whole,
            over & ~whole & self.past(m, use.breaks),
            over & ~whole & ~self.past(m, block.streamed),
            given_up,
            inside.state("", "Failed") & self.past(m, inside.state("", "Failed")),
        )


class Leftovers(Property):
    """No run of C2H begins while bytes of before a failed run, or beside it, are in the pair.

    Assumed: a run starts only if it may, and reads only while it is under way.
    """

    def __init__(self):
        super().__init__(StreamPair(PassThrough, inbound=1024, width=64))

    def _state(self, m):
        block, inside = self.block, self.inside
        h2c, c2h = block.h2c.run, block.c2h.run
        flush = inside.part("path").flush
        breaks = h2c.breaks | c2h.breaks | block.flush
        #: since the last flush, H2C has read something; of that, a break has made leftovers
        dirty, stale = Signal(), Signal()
        starts = [
            side.running & ~self.past(m, side.running) & self.started(m) for side in (h2c, c2h)
        ]
        with m.If(flush):
            m.d.sync += [dirty.eq(0), stale.eq(0)]
        with m.Else():
            m.d.sync += [
                dirty.eq(dirty | block.h2c.reservation.take),
                stale.eq(stale | ((dirty | block.h2c.reservation.take) & breaks)),
            ]
        m.d.comb += [
            *(
                Assume(~start | self.past(m, side.start_ok))
                for start, side in zip(starts, (h2c, c2h), strict=True)
            ),
            Assume(self.started(m) | ~(h2c.running | c2h.running)),
            Assume(~block.h2c.reservation.take | h2c.running),
            Assert(~(starts[1] & stale)),
            Assert(~stale | inside("was_broken")),
            Assert(~flush | ~(h2c.running | c2h.running)),
        ]
        self.cover(
            m,
            stale & c2h.running,
            starts[1] & self.past(m, stale & flush),
            # The other half of a copy that has failed.
            starts[0] & c2h.breaks & ~c2h.running,
        )
