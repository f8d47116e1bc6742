# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors: slots are reserved before a read is issued; pushed ones are whole before a run."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.utils import exact_log2

from hw.channel.fetch import DESCRIPTOR_BYTES, PAGE_BYTES, READS, DescriptorFetch, _State
from hw.channel.push import PushWindow
from hw.records import FETCH_DESCRIPTORS, JOB_BYTES, Outcome
from peerdma import regs

from .property import Property

__all__ = ["Pushes", "Slots"]

_ALIGN = DESCRIPTOR_BYTES.bit_length() - 1


class Slots(Property):
    """A read of descriptors has its slots before it is issued; none is written while it counts.

    Each read is of whole descriptors, at most as many as credits and the read limit allow, and
    never across 4 KiB. Slots are free again once, when their descriptor is taken. Behind an error,
    nothing is written where its address is. Assumed: reads retire in their order, with the length
    that was asked for, and nothing else comes; a list begins when the one before has ended, with at
    most as many pushed descriptors as the window takes.
    """

    SLOTS = 32
    depth = 3

    def __init__(self):
        super().__init__(DescriptorFetch(c2h=False, slots=self.SLOTS))

    def _state(self, m):
        block, inside = self.block, self.inside
        job, retired, pushed = block.job, block.retired, block.control.pushed
        issue = job.valid & job.ready
        # Descriptors of the reads under way, the older one first.
        asked = [Signal(range(FETCH_DESCRIPTORS + 1), name=f"asked{n}") for n in range(READS)]
        flushed = Signal()
        count = job.payload.length >> _ALIGN
        with m.If(retired.valid):
            m.d.sync += [asked[0].eq(asked[1]), asked[1].eq(0)]
        with m.If(issue):
            with m.If((asked[0] == 0) | (retired.valid & (asked[1] == 0))):
                m.d.sync += asked[0].eq(count)
            with m.Else():
                m.d.sync += asked[1].eq(count)
        m.d.comb += [
            Assume(~(block.control.start & (block.control.active | block.control.flush))),
            Assume(block.control.credit <= FETCH_DESCRIPTORS),
            Assume(pushed.any | (pushed.count == 0)),
            Assume(~(pushed.any & pushed.whole) | (pushed.count <= regs.PUSH_DESCRIPTORS)),
            Assume(~retired.valid | (asked[0] != 0)),
            Assume(retired.payload.length == asked[0] << _ALIGN),
        ]
        reserved, filled, checked, taken = (
            inside(name) for name in ("reserved", "filled", "checked", "taken")
        )

        def ahead(position):
            return (reserved - position)[: len(reserved)]

        # Nothing comes but what was asked for: up to `reserved`.
        coming = asked[0] + asked[1]
        placed, ended = block.placement.payload, Signal()
        for enable, row in ((placed.enable[n], placed.rows[n]) for n in range(2)):
            here = block.placement.valid & enable.any()
            place = row[1:][: exact_log2(self.SLOTS)]
            m.d.comb += [
                Assume(~here | ((reserved - 1 - place)[: len(place)] < coming)),
                # The address of an error is where nothing that comes is written.
                Assert(~(ended & ~flushed & here) | (place != checked[: len(place)])),
            ]
        good = inside("outcome") == Outcome.OK
        out = inside("outstanding")
        offers = block.descriptor.valid & block.descriptor.ready
        m.d.comb += [
            # In use are those that are reserved and not taken; what is written is not looked at.
            Assert(flushed | (ahead(taken) <= self.SLOTS)),
            Assert(flushed | (ahead(checked) <= ahead(taken))),
            Assert(flushed | (ahead(filled) <= ahead(checked))),
            Assert(~(good & ~flushed) | (asked[0] + asked[1] == ahead(filled))),
            Assert(~issue | (ahead(taken) + count <= self.SLOTS)),
            Assert(~issue | ((count != 0) & (count <= FETCH_DESCRIPTORS))),
            Assert(~issue | (block.control.spent == count)),
            Assert(~issue | (job.payload.length[:_ALIGN] == 0)),
            Assert(~issue | (job.payload.address[:12] + job.payload.length <= PAGE_BYTES)),
            Assert(~issue | (job.payload.length <= JOB_BYTES)),
            Assert(~issue | (job.payload.place.as_value() == (reserved[:-1] << _ALIGN))),
            Assert(out == (asked[0] != 0) + (asked[1] != 0)),
            Assert((asked[1] == 0) | (asked[0] != 0)),
            Assert((asked[0] <= FETCH_DESCRIPTORS) & (asked[1] <= FETCH_DESCRIPTORS)),
        ]
        # What is inside: a job was planned with room for the largest one, and stands.
        planned, at, left = inside("count"), inside("at"), inside("left")
        runs = (inside("state") == _State.FETCH) | (inside("state") == _State.LOCATE)
        in_page = PAGE_BYTES // DESCRIPTOR_BYTES
        m.d.comb += [
            Assert(~job.valid | (inside("state") == _State.FETCH)),
            Assert(~job.valid | (good & ~flushed & (out < READS))),
            Assert(~job.valid | (ahead(taken) <= self.SLOTS - FETCH_DESCRIPTORS)),
            Assert(~job.valid | ((planned != 0) & (planned <= FETCH_DESCRIPTORS))),
            Assert(~job.valid | ((planned <= left) & (planned <= in_page - at))),
            Assert(at <= in_page),
            Assert(~runs | (ahead(checked) <= at)),
            ended.eq((inside("state") == _State.LOCATE) | (inside("state") == _State.REPORT)),
            Assert(flushed | ~ended | ~good),
            Assert(flushed | ~ended | (coming < ahead(checked)) | (coming == 0)),
            Assert(
                (inside("state") != _State.FETCH) | good | (coming < ahead(filled)) | (coming == 0)
            ),
            Assert(~flushed | (inside("state") == _State.IDLE)),
            Assert(~flushed | (checked == taken)),
        ]
        with m.If(block.control.flush):
            m.d.sync += flushed.eq(1)
        with m.If(block.control.start):
            m.d.sync += flushed.eq(0)
        self.cover(
            m,
            issue & (ahead(taken) == FETCH_DESCRIPTORS) & (asked[0] == FETCH_DESCRIPTORS),
            offers & block.descriptor.payload.stop,
            issue & (job.payload.address[:12] + job.payload.length == PAGE_BYTES),
            (ahead(taken) == self.SLOTS) & reserved[0],
            offers & (ahead(taken) == regs.PUSH_DESCRIPTORS) & (asked[0] == 1),
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
        most = regs.PUSH_DESCRIPTORS * DESCRIPTOR_BYTES // 4
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
