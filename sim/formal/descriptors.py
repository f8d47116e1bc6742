# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors: slots are reserved before a read is issued; pushed ones are whole before a run."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.utils import exact_log2

from hw.channel.fetch import DescriptorFetch, _known, _State
from hw.channel.lists import READS
from hw.channel.plan import ALIGN, IN_PAGE, PAGE_BYTES
from hw.channel.push import PushWindow
from hw.channel.slots import DescriptorSlots
from hw.records import FETCH_DESCRIPTORS, ReadJob
from peerdma import regs

from .property import Property

__all__ = ["Pushes", "Slots", "Stored"]


class Slots(Property):
    """A read of descriptors has its slots before it is issued; none is written while it counts.

    Each read is of whole descriptors, at most as many as credits and the read limit allow, and
    never across 4 KiB. Slots are free again once, when their descriptor is handed on; none is
    handed on before it has arrived, and none behind a read that failed. Followed is any one of the
    channels. Assumed: what arrives was asked for and not marked yet, marks tell of no more, and
    nothing comes when all reads have retired without an error; a list begins when the one before
    has ended, with at most as many pushed descriptors as the window takes.
    """

    SLOTS = 16
    depth = 2

    def __init__(self):
        super().__init__(DescriptorFetch(h2c=1, c2h=1, width=64, slots=self.SLOTS))

    def _state(self, m):
        block, inside = self.block, self.inside
        follow = self.any(m, range(2), "follow")

        def its(ports, name):
            return Mux(follow, *(Value.cast(getattr(ports[n], name)) for n in (1, 0)))

        def bit(name):
            return inside(f"lists.{name}").bit_select(follow, 1)

        filled, turn = inside.word("lists.filled.memory", follow), inside("turn")
        known = Signal(_known(self.SLOTS))
        m.d.comb += known.eq(inside.word("table.memory", follow))
        job = Signal(ReadJob)
        m.d.comb += job.eq(inside("plan.job"))
        outstanding = Array(inside(f"lists.outstanding{n}") for n in range(2))[follow]
        count, state = inside("plan.count"), inside("state")
        planned = inside("plan.planned") & (inside("plan.of") == follow)
        issued = inside("plan.issued") & (inside("plan.of") == follow)
        issue = planned & its(block.jobs, "ready")
        running, failed = bit("running"), bit("failed_lists")
        good = running & ~bit("starting")

        def since(position, later):
            """Descriptors from a position to a later one."""
            return (later - position)[: len(filled)]

        #: where what was asked for ends
        end = Signal.like(filled)
        m.d.comb += end.eq(known.reserved + Mux(issued, count, 0))
        # Descriptors that were asked for and not marked yet
        coming = Signal(range(2 * self.SLOTS + FETCH_DESCRIPTORS))
        mark, placed = block.mark.payload, block.placement.payload
        marks = block.mark.valid & (mark.client == follow)
        moved = since(filled, (mark.place.as_value() >> ALIGN)[: len(filled)])
        m.d.sync += coming.eq(coming + Mux(issue, count, 0) - Mux(marks & ~failed, moved, 0))
        with m.If(its(block.control, "start")):
            m.d.sync += coming.eq(0)
        for n, port in enumerate(block.control):
            pushed = port.pushed
            m.d.comb += [
                Assume(~(port.start & (port.active | port.flush))),
                Assume(port.credit <= FETCH_DESCRIPTORS),
                Assume(pushed.any | (pushed.count == 0)),
                Assume(~(pushed.any & pushed.whole) | (pushed.count <= regs.PUSH_DESCRIPTORS)),
                Assume(~block.retired[n].valid | (inside(f"lists.outstanding{n}") != 0)),
            ]
        m.d.comb += [
            Assume(~block.mark.valid | (mark.client < 2)),
            Assume(~block.placement.valid | (placed.client < 2)),
            Assume(~marks | failed | (moved <= coming)),
            Assume(~marks | failed | (outstanding != 0)),
        ]
        for enable, row in ((placed.enable[n], placed.rows[n]) for n in range(2)):
            here = block.placement.valid & (placed.client == follow) & enable.any()
            slot = row[1:][: exact_log2(self.SLOTS)]
            m.d.comb += [
                Assume(~here | failed | ((slot - filled)[: len(slot)] < coming)),
                # Not into one that is in the ring, and not handed on.
                Assert(
                    ~(here & good & ~failed & ~known.pushed)
                    | ((slot - known.taken)[: len(slot)] >= since(known.taken, filled))
                ),
            ]

        hands_on = (state == _State.CONTROL) | (state == _State.CARD) | (state == _State.PCI)
        ring = good & ~known.pushed
        links = (state == _State.ADJACENT) | (state == _State.FOLLOW)
        used = since(known.taken, end)
        m.d.comb += [
            # In use are those that are reserved and not taken.
            Assert(~good | (used <= self.SLOTS)),
            Assert(~good | (since(known.taken, filled) <= used)),
            Assert(~(good & ~failed) | (since(filled, end) == coming)),
            Assert(~(ring & hands_on & (turn == follow)) | (known.taken != filled)),
            Assert(~issue | (used + count <= self.SLOTS) | ~good),
            Assert(~planned | ((count != 0) & (count <= FETCH_DESCRIPTORS))),
            Assert(~planned | (job.length == count << ALIGN)),
            Assert(~planned | (job.address[:ALIGN] == 0)),
            Assert(~planned | (job.address[:12] + job.length <= PAGE_BYTES)),
            Assert(~planned | ~good | (job.place.as_value() == known.reserved << ALIGN)),
            Assert(its(block.control, "spent") == Mux(issue, count, 0)),
            # The one behind a read that failed is where the error is.
            Assert(~self.past(m, failed & ~its(block.control, "start")) | ~good | failed),
            Assert(~self.past(m, failed & marks) | (filled == self.past(m, filled))),
            # What is inside: a job was planned with room for the largest one, and stands.
            Assert(~(inside("plan.planned") & inside("plan.issued"))),
            Assert(~planned | ~good | (used <= self.SLOTS - FETCH_DESCRIPTORS)),
            Assert(~(planned | issued) | ~known.pushed),
            Assert(~(planned | issued) | (count <= known.block.left)),
            Assert(~(planned | issued) | (count <= IN_PAGE - known.block.at)),
            Assert(~(planned | issued) | ~(links & (turn == follow))),
            Assert(~(running & bit("starting")) | (coming == 0)),
            Assert(~issued | (count <= FETCH_DESCRIPTORS)),
            Assert(known.block.at <= IN_PAGE),
            Assert(outstanding <= READS),
            Assert(~planned | (outstanding < READS)),
            Assert(~planned | ~bit("starting")),
        ]
        self.cover(
            m,
            issue & (used == 0) & (count == FETCH_DESCRIPTORS),
            good & (used == self.SLOTS),
            issue & (job.address[:12] + job.length == PAGE_BYTES),
            good & failed & (state == _State.REPORT) & (turn == follow),
            good & known.pushed & (state == _State.PCI) & (turn == follow),
        )


class Pushes(Property):
    """A pushed descriptor counts when all its dwords were written, and none while a run is on.

    Followed is any one dword of the window: that it was written since its first dword was.
    """

    depth = 2
    reach = 24

    def __init__(self):
        super().__init__(PushWindow(index=0, c2h=False))

    def _state(self, m):
        block, dwords = self.block, self.inside("dwords")
        pushed, word = block.pushed, block.word
        most = regs.PUSH_DESCRIPTORS * regs.DESCRIPTOR.itemsize // 4
        follow = self.any(m, range(most), "follow")

        def written(dword):
            """The word that is written has this one in it."""
            bank, row = dword[1], dword >> 2
            enable = Mux(bank, word.payload.enable[1], word.payload.enable[0])
            rows = Mux(bank, word.payload.rows[1], word.payload.rows[0])
            return word.valid & (rows == row) & enable.bit_select(dword[0] << 2, 4).all()

        there = Signal()
        with m.If(written(Const(0, 5))):
            m.d.sync += there.eq((follow == 0) | written(follow))
        with m.Elif(written(follow)):
            m.d.sync += there.eq(1)
        counts = pushed.any & pushed.whole & (follow < pushed.count * (most // 4))
        spoilt = dwords == ~Const(0, len(dwords))
        m.d.comb += [
            Assert(~counts | there),
            Assert(~word.valid | block.open),
            Assert(~(pushed.any & pushed.whole) | (pushed.count != 0)),
            Assert(~pushed.whole | (pushed.count <= regs.PUSH_DESCRIPTORS)),
            Assert(pushed.any | pushed.whole),
            # What is inside.
            Assert(spoilt | (dwords <= most)),
            Assert(spoilt | (follow >= dwords) | there),
        ]
        self.cover(
            m,
            counts & (pushed.count == regs.PUSH_DESCRIPTORS) & (follow == most - 1),
            pushed.any & ~pushed.whole & ~spoilt,
            spoilt,
        )


class Stored(Property):
    """What a placement brings for a dword of a slot is what is read there, until another one does.

    Followed is any one dword, of a memory of 64, 128 or 256 bits. Assumed: a placement is for one
    of the rings, and has each of its dwords for one row and whole.
    """

    RINGS, SLOTS = 2, 4
    depth = 2

    def __init__(self, width: int):
        super().__init__(DescriptorSlots(self.RINGS, self.SLOTS, width=width))
        self._columns = width // 32

    def _state(self, m):
        block, placed = self.block, self.block.placement.payload
        at = self.any(m, range(regs.DESCRIPTOR.itemsize // 4 * self.SLOTS), "dword")
        ring = self.any(m, range(self.RINGS), "in_ring")
        half, word, slot = at[0], at[1:3], at[3:]
        lanes = exact_log2(self._columns)
        column, bank, row = at[:lanes], at[lanes], at[lanes + 1 :]
        kept, there, comes = Signal(32), Signal(), Signal()
        enables = [placed.enable[n].bit_select(column << 2, 1) for n in range(2)]
        rows = [placed.rows[n][: len(row)] for n in range(2)]
        m.d.comb += [
            Assume(~block.placement.valid | (placed.client < self.RINGS)),
            Assume(~block.placement.valid | ~enables[0] | ~enables[1]),
            comes.eq(
                block.placement.valid
                & (placed.client == ring)
                & Mux(bank, enables[1] & (rows[1] == row), enables[0] & (rows[0] == row))
            ),
        ]
        with m.If(comes):
            m.d.sync += [kept.eq(placed.data.word_select(column, 32)), there.eq(1)]
        reads = (block.ring == ring) & (block.slot == slot) & (block.word == word)
        known, wanted = self.past(m, reads & there), self.past(m, kept)
        inside = Array(
            self.inside.word(f"column{n}", Cat(at[lanes:], ring)) for n in range(self._columns)
        )
        m.d.comb += [
            Assert(~known | (block.data.word_select(half, 32) == wanted)),
            # What is inside.
            Assert(~there | (inside[column] == kept)),
        ]
        self.cover(m, known & comes, known & (at == 0), known & (at == (1 << len(at)) - 1))
