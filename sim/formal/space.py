# SPDX-License-Identifier: BSD-2-Clause
"""Room for completions: what is charged is what may come, and never more than there is room for."""

from functools import reduce
from operator import add

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.read.completion_space import OVERCOMMIT, CompletionSpace
from hw.records import JOB_BYTES

from .property import Property

__all__ = ["AbuttingSpace", "OvercommittedSpace", "Space"]


class Space(Property):
    """The completions that may come always have room, and none is counted that cannot come.

    Followed is what of each tag has not begun to come: its bytes, and where they begin; and whether
    a completion of it has begun and not ended, which counts as one until it has. Assumed is what
    the read engine sees to: a job is taken when there is room for it, at most every other cycle,
    for a tag of which no completion may come, and not in a cycle with another event; completions
    come one after the other; one ends at a read completion boundary or with its request's last
    dword, and a request is closed with the last one's end, or before; only what may come is late,
    and closed.
    """

    TAGS, CAPACITY, ABUT, OVERCOMMIT = 3, 13, False, False

    def __init__(self):
        super().__init__(
            CompletionSpace(4, self.CAPACITY, fetches=1, abut=self.ABUT, overcommit=self.OVERCOMMIT)
        )

    def _state(self, m):
        block = self.block
        taken, job, tag = block.taken, block.job, block.tag
        data = self.free(1, "data")
        asked = taken.valid & block.asks
        event = block.begins | block.late | block.closed
        # What the completion that has begun counts as beside the charges, and of which read it was.
        begun = self.inside("begun") if self.ABUT else Const(0)
        begun_late, begun_data = Signal(), Signal()
        if not self.ABUT:
            event |= block.arrives
        # The completion that has begun: what does not change until its end.
        place, dwords, drains = Signal(7), Signal(11), Signal(self.TAGS)
        with m.If(block.begins):
            m.d.sync += [place.eq(block.lower_address), dwords.eq(block.dwords)]
        # Where packets may abut, a completion is cut off by the next one; and what closes a request
        # is said of one that begins, or of none.
        apart = Const(not self.ABUT)
        m.d.comb += [
            Assume(~(taken.valid & event)),
            Assume(~(taken.valid & self.past(m, taken.valid))),
            Assume(taken.payload.tag < self.TAGS),
            Assume(tag < self.TAGS),
            Assume((job.length != 0) & (job.length <= JOB_BYTES)),
            Assume(~data | (job.address[:9] + job.length <= JOB_BYTES)),
            Assume(~asked | Mux(data, block.data_room, block.room)),
            Assume(~(apart & block.begins) | ~drains.any()),
            Assume(~block.begins | (block.dwords != 0) & (block.dwords <= 129)),
            Assume(~(apart & block.begins) | block.arrives | ~block.closed),
            Assume(
                ~block.arrives
                | block.begins
                | self.ABUT
                | (block.lower_address == place) & (block.dwords == dwords)
            ),
            Assume(~(block.late & block.closed)),
            Assert((drains & (drains - 1)[: self.TAGS]) == 0),
            Assume(data == (taken.payload.client >= 1)),
        ]
        wide = self.past(m, block.boundary_128)
        charges, lost, under_way = [], [], []
        for number in range(self.TAGS):
            here = tag == number
            begins = taken.valid & (taken.payload.tag == number)
            # Where what has not come begins, in its block of 128 bytes, and its length.
            begin, left = Signal(7, name=f"begin{number}"), Signal(10, name=f"left{number}")
            boundary, late = Signal(name=f"wide{number}"), Signal(name=f"late{number}")
            of_data = Signal(name=f"data{number}")
            last = begin + left - 1
            may_come = Mux(left == 0, 0, Mux(boundary, last[7:] + 1, last[6:] + 1 - begin[6:]))
            came = ((block.dwords << 2) - begin[:2])[:11]
            end = (begin + came)[:11]
            drain, cut = drains[number], Signal(name=f"cut{number}")
            comes, ends = here & block.begins, here & block.arrives
            if self.ABUT:
                ends = (comes | drain) & block.arrives
            open_ = (left != 0) | drain | cut
            rest = Mux(comes, Mux(came < left, left - came, 0), left)
            closes = comes & block.closed & self.ABUT
            m.d.comb += [
                Assume(~begins | ~open_),
                Assume(~(here & event) | open_),
                Assume(~(here & block.late) | ~(block.begins | block.closed | late)),
                Assume(~(here & block.late) | ~(apart & ends)),
                # An error ends a read of which nothing is left to come.
                Assume(~comes | (left != 0) | (closes & block.arrives)),
                Assume(~ends | comes | drain),
                Assume(~comes | (block.lower_address == begin)),
                # No more dwords than are missing.
                Assume(~comes | closes | (came < left + 4)),
                Assume(~comes | closes | (came >= left) | ((end[:6] == 0) & (~boundary | ~end[6]))),
                Assume(~(comes if self.ABUT else ends) | (rest != 0) | (here & block.closed)),
            ]
            with m.If(block.begins & drain):
                m.d.sync += [drain.eq(0), cut.eq(1)]
            with m.If(here & block.closed):
                m.d.sync += [left.eq(0), drain.eq(closes & ~block.arrives), cut.eq(0)]
            with m.Elif(comes | ends):
                m.d.sync += [left.eq(rest), drain.eq(~ends)]
                with m.If(comes):
                    m.d.sync += begin.eq(end)
            with m.If(here & block.late):
                m.d.sync += late.eq(1)
            with m.If(begins):
                m.d.sync += [
                    begin.eq(job.address),
                    left.eq(Mux(block.asks, job.length, 0)),
                    boundary.eq(wide),
                    late.eq(0),
                    of_data.eq(data),
                ]
            word = self.inside.word("charges", Const(number, 2))
            m.d.comb += [
                Assert(left <= JOB_BYTES),
                # What a job that makes no request leaves there counts for nobody.
                Assert(~open_ | (word[:4] == may_come + (drain & apart))),
                Assert(~open_ | (word[4] == boundary)),
                Assert(~open_ | (word[5] == late)),
                Assert(~open_ | (word[6] == of_data & ~late)),
                # A completion that is not the last one has begun: it ends at a boundary.
                Assert(
                    ~drain
                    | (left == 0)
                    | (begin == (Cat(C(0, 2), place[2:]) + (dwords << 2))[:7])
                    & (begin[:6] == 0)
                    & (~boundary | ~begin[6])
                ),
            ]
            if self.ABUT:
                m.d.comb += Assert(~drain | begun)
                with m.If(comes):
                    m.d.sync += [begun_late.eq(late), begun_data.eq(of_data & ~late)]
            charged = may_come + (drain & apart)
            charges.append(charged)
            lost.append(Mux(late, charged, 0))
            under_way.append(Mux(of_data & ~late, charged, 0))
        charges.append(begun)
        lost.append(begun & begun_late)
        under_way.append(begun & begun_data)
        if self.ABUT:
            kind = self.inside("kind")
            m.d.comb += Assert(~begun | ((kind[5] == begun_late) & (kind[6] == begun_data)))
        total, most = Signal(8), self.CAPACITY
        #: more may be under way than there is room for: some of it was asked for with overcommit
        over = Signal()
        if self.OVERCOMMIT:
            most *= OVERCOMMIT
            allowed = self.past(m, block.overcommit)
            m.d.sync += over.eq((over & (total > self.CAPACITY)) | (asked & allowed))
        following = self.inside("following")
        gone = self.inside("lost") + self.inside("lost_charged") - self.inside("lost_returned")
        # While no data is under way, its limits do not hold up a read.
        idle = self.past(m, reduce(add, under_way) == 0)
        m.d.comb += [
            total.eq(reduce(add, charges)),
            Assert(following == total),
            Assert(gone == reduce(add, lost)),
            Assert(total <= most),
            Assert(over | (total <= self.CAPACITY)),
            Assert(self.inside("expected") <= most),
            Assert(self.inside("following_data") == reduce(add, under_way)),
        ]
        m.d.comb += Assert(~(idle & block.room) | block.data_room)
        self.cover(
            m,
            total == most,
            block.hopeless,
            ~block.room & block.data_room,
            self.past(m, block.hopeless) & ~block.hopeless & block.room,
        )


class AbuttingSpace(Space):
    """The same where packets may abut: what a last beat gives back is kept beside the charges.

    A job may be taken with a last beat, another read be late or closed; and a read be closed when
    its last completion begins, or when one of it has begun, which still counts until its last beat,
    or until another begins if it has none.
    """

    ABUT = True


class OvercommittedSpace(Space):
    """The same, and as much again while that is allowed; room for all, if read after it was not.

    More may come than there is room for only if a read was asked for while `overcommit` was high,
    and until there is room for the rest. It rises and falls at any time.
    """

    OVERCOMMIT = True
