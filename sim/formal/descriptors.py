# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch: slots are reserved before a read is issued."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.channel.fetch import DESCRIPTOR_BYTES, PAGE_BYTES, READS, DescriptorFetch, _State
from hw.records import FETCH_DESCRIPTORS, JOB_BYTES, Outcome

from .property import Property

__all__ = ["Slots"]

_ALIGN = DESCRIPTOR_BYTES.bit_length() - 1


class Slots(Property):
    """A read of descriptors has its slots before it is issued; none is written while it counts.

    Each read is of whole descriptors, at most as many as credits and the read limit allow, and
    never across 4 KiB. Slots are free again once, when their descriptor is taken. Assumed: reads
    retire in their order, with the length that was asked for; a list begins when the one before
    has ended.
    """

    SLOTS = 32
    depth = 3

    def __init__(self):
        super().__init__(DescriptorFetch(c2h=False, slots=self.SLOTS))

    def _state(self, m):
        block, inside = self.block, self.inside
        job, retired = block.job, block.retired
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
            Assume(~retired.valid | (asked[0] != 0)),
            Assume(retired.payload.length == asked[0] << _ALIGN),
        ]
        reserved, filled, checked, taken = (
            inside(name) for name in ("reserved", "filled", "checked", "taken")
        )

        def ahead(position):
            return (reserved - position)[: len(reserved)]

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
        )
