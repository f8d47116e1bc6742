# SPDX-License-Identifier: BSD-2-Clause
"""The read of descriptors that is offered to the read engine next."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import FETCH_DESCRIPTORS, PlacementAddress, ReadJob
from .splitter import request_bytes

__all__ = ["ALIGN", "BLOCK", "IN_PAGE", "PAGE_BITS", "PAGE_BYTES", "Block", "ReadPlan"]

DESCRIPTOR_BYTES = regs.DESCRIPTOR.itemsize
#: Adjacent descriptors of a block at most: Nxt_adj has 6 bits.
BLOCK = 64
#: No read crosses a multiple of this.
PAGE_BYTES = 4096
#: Descriptors in a page, and bits of the numbers of bytes and of pages.
IN_PAGE = PAGE_BYTES // DESCRIPTOR_BYTES
ALIGN = exact_log2(DESCRIPTOR_BYTES)
PAGE_BITS = 64 - exact_log2(PAGE_BYTES)


class Block(data.Struct):
    """What is not read yet of a block: `left` descriptors from number `at` of a page on."""

    #: up to the end of the page
    at: range(IN_PAGE + 1)
    left: range(BLOCK + 1)


class ReadPlan(wiring.Component):
    """Plans one read at a time, a cycle ahead, so that the read engine sees registers only.

        plan ─▶ offered in the next cycle ─▶ issued, or withdrawn
                                               └─▶ issued, until `noted`

    Parameters
    ----------
    channels : int

    Members
    -------
    plan : In(1)
        Only while `free`: plan a read for this channel. Not one of no descriptors.
    channel : In(range(channels)), block : In(Block), page : In, place : In(PlacementAddress)
        Of which block to read, in which page, and where to.
    credit : In
        Most descriptors that it may ask for.
    limit : In(3)
        Max read request size, PCIe encoding.
    withdraw : In(channels)
        Offer no read of these channels in the next cycle.
    noted : In(1)
        What was issued is taken into account.
    free : Out(1)
        No read is planned, or issued and not noted.
    jobs : array of Out(stream of ReadJob)
    issue : Out(channels)
        A read is taken in this cycle, of this channel.
    issued : Out(1), of : Out(range(channels)), count : Out
        A read was taken and is not noted; of which channel, and of how many descriptors.
    """

    def __init__(self, channels: int):
        counts = range(FETCH_DESCRIPTORS + 1)
        super().__init__(
            {
                "plan": In(1),
                "channel": In(range(channels)),
                "block": In(Block),
                "page": In(PAGE_BITS),
                "place": In(PlacementAddress),
                "credit": In(counts),
                "limit": In(3),
                "withdraw": In(channels),
                "noted": In(1),
                "free": Out(1, init=1),
                "jobs": Out(stream.Signature(ReadJob)).array(channels),
                "issue": Out(channels),
                "issued": Out(1),
                "of": Out(range(channels)),
                "count": Out(counts),
            }
        )

    def elaborate(self, platform):
        m = Module()
        job = Signal(ReadJob)
        planned = Signal()
        block = self.block
        one_read = request_bytes(self.limit) >> ALIGN
        limit = Mux(one_read < self.credit, one_read, self.credit)
        # Capped at what a read can ask for: comparisons are short, and are made side by side.
        bits = exact_log2(FETCH_DESCRIPTORS)
        left = Mux(block.left[bits:].any(), FETCH_DESCRIPTORS, block.left[:bits])
        last_ones = block.at[bits:-1].all()
        here = Mux(last_ones, FETCH_DESCRIPTORS - block.at[:bits], FETCH_DESCRIPTORS)
        nearest = Mux(left < here, left, here)
        most = Mux(Mux(left < here, left < limit, here < limit), nearest, limit)
        with m.If(self.plan):
            m.d.sync += [
                self.of.eq(self.channel),
                self.count.eq(most),
                job.address.eq(Cat(Const(0, ALIGN), block.at[:-1], self.page)),
                job.place.eq(self.place),
            ]
        m.d.comb += job.length.eq(self.count << ALIGN)
        for number, offered in enumerate(self.jobs):
            m.d.comb += [
                offered.payload.eq(job),
                offered.valid.eq(planned & (self.of == number)),
                self.issue[number].eq(offered.valid & offered.ready),
            ]
        with m.If(self.issue.any()):
            m.d.sync += self.issued.eq(1)
        with m.If(self.issue.any() | self.withdraw.bit_select(self.of, 1)):
            m.d.sync += planned.eq(0)
        with m.If(self.noted):
            m.d.sync += self.issued.eq(0)
        with m.If(self.plan):
            m.d.sync += planned.eq(1)
        m.d.comb += self.free.eq(~planned & ~self.issued)
        return m
