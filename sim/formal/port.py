# SPDX-License-Identifier: BSD-2-Clause
"""A receive port behind its link, while more is asked for than the block holds."""

from dataclasses import replace

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.pcie.series7.block import SERIES7
from hw.pcie.series7.port_lag import LARGEST_TLP, PortLag
from hw.pcie.tlp import Dword0
from hw.records import JOB_BYTES
from hw.seam import FRAMING_BYTES

from .property import Property

__all__ = ["Fits", "Lag"]

_CLOCK_KHZ = 125_000
#: Bytes that the link brings in a cycle, at most.
_RATE = 4


class Lag(Property):
    """Unless the port is said to be behind, little waits beside what waited at its last pause.

    That is no more than what comes in half of the lag, and in two cycles. And it is said only if so
    much may wait, or if as much and more than a TLP waited at the pause.

    Followed are the bytes that have come and not passed, without those of non-posted requests.
    Assumed is that the link brings no more than it can, that nothing passes before it has come, and
    TLPs as they are at the port, none of them cut off. The buffer is a small one.
    """

    BLOCK = replace(SERIES7, completion_headers=6)
    reach = 40

    def __init__(self):
        super().__init__(PortLag(self.BLOCK, _CLOCK_KHZ))

    def _state(self, m):
        block, most_quiet, half = self.block, self.BLOCK.port.idle, self.block.half
        come = self.free(3, "come")
        dword0 = Dword0(block.dword0)
        written = (dword0.type == 0) & dword0.with_data
        # Of memory, I/O, configuration, and atomic ones
        requests = dword0.type.matches("0000-", "00010", "0010-", "011--") & ~written
        kept = dword0.type.matches("0101-", "10---") | written
        inside, was_request = Signal(), Signal()
        counts = ~Mux(block.first, requests, was_request)
        passed, waits = Signal(5), Signal(12)
        quiet = Signal(range(most_quiet + 1), init=most_quiet)
        with m.If(block.valid & counts):
            m.d.comb += passed.eq(Mux(block.last, Mux(block.whole, 8, 4) + FRAMING_BYTES, 8))
        with m.If(block.valid):
            m.d.sync += [inside.eq(~block.last), quiet.eq(0)]
            with m.If(block.first):
                m.d.sync += was_request.eq(requests)
        with m.Elif(~inside & (quiet != most_quiet)):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.sync += waits.eq(waits + come - passed)
        m.d.comb += [
            Assume(come <= _RATE),
            Assume(passed <= waits),
            Assume(waits + come < 1 << len(waits)),
            Assume(~block.valid | (block.first == ~inside)),
            Assume(~(block.valid & block.first) | requests | kept),
            Assume(~block.discontinued),
        ]

        # The block looks at the cycle before. What waited then, and when it seemed to be empty last
        ahead, behind, empty = self.inside("ahead"), block.behind, self.inside("empty")
        waited, at_pause = Signal.like(waits), Signal.like(waits)
        m.d.sync += waited.eq(waits)
        with m.If(empty):
            m.d.sync += at_pause.eq(Mux(self.inside("valid_before"), waited, waits))
        started = self.started(m)
        for name in ("dword0", "valid", "first", "last", "whole", "discontinued"):
            before = self.past(m, getattr(block, name))
            m.d.comb += Assert(self.inside(f"{name}_before") == before)
        rises = started & behind & ~self.past(m, behind)
        m.d.comb += [
            Assert(self.inside("inside") == self.past(m, inside)),
            Assert(~inside | ~self.past(m, inside) | (was_request == self.past(m, was_request))),
            Assert(self.inside("uncounted") == self.past(m, was_request)),
            Assert(empty == (~started | self.past(m, quiet == most_quiet))),
            Assert(empty | (self.inside("idle") == self.past(m, quiet))),
            Assert(~inside | (quiet == 0)),
            Assert(behind | (waited + ahead <= at_pause)),
            Assert(behind | (ahead >= -half - _RATE)),
            Assert(behind | (waits <= at_pause + half + 2 * _RATE)),
            Assert(~rises | (self.past(m, ahead) < -half) | (at_pause > LARGEST_TLP + half)),
        ]
        self.cover(m, behind & (at_pause == 0), empty & (at_pause != 0))


class Fits(Property):
    """Completions that wait no longer than the lag of the port's contract fit into the buffer.

    Followed is one completion that has come whole, whichever, and those that come behind it: while
    it is the oldest one, they are all that the buffer holds. Assumed is that the link brings no
    more than it can, and that the completion passes in time. The buffer is a small one.
    """

    BLOCK = replace(SERIES7, completion_headers=6, completion_credits=80)
    reach = 40

    def __init__(self):
        super().__init__(PortLag(self.BLOCK, _CLOCK_KHZ))

    def _state(self, m):
        lag, header = self.BLOCK.port_lag(_CLOCK_KHZ), (12 + FRAMING_BYTES) // _RATE
        # Of one that is coming: dwords, as many as cycles
        part, comes, ends = Signal(8), self.free(1, "comes"), self.free(1, "ends")
        waits, chosen, leaves = Signal(), self.free(1, "chosen"), self.free(1, "leaves")
        age, headers, credits = Signal(8), Signal(7), Signal(10)
        payload, taken = Signal(8), Signal(6)
        m.d.comb += [
            payload.eq(part + 1 - header),
            taken.eq((payload + 3) >> 2),
            Assume(comes | ~ends),
            Assume(~ends | (part + 1 >= header)),
            Assume(part + comes <= header + JOB_BYTES // 4),
            Assume(~waits | (age <= lag)),
        ]
        with m.If(ends):
            m.d.sync += part.eq(0)
        with m.Elif(comes):
            m.d.sync += part.eq(part + 1)
        with m.If(~waits):
            m.d.sync += [waits.eq(ends & chosen), age.eq(0), headers.eq(1), credits.eq(taken)]
        with m.Else():
            m.d.sync += [age.eq(age + 1), waits.eq(~leaves)]
            with m.If(ends):
                m.d.sync += [headers.eq(headers + 1), credits.eq(credits + taken)]
        coming, largest = part != 0, JOB_BYTES // 16 + 1
        m.d.comb += [
            Assert(part <= header + JOB_BYTES // 4),
            Assert(~waits | (header * (headers - 1) + part <= age)),
            Assert(~waits | (4 * (credits - JOB_BYTES // 16) + part <= age)),
            Assert(~waits | (headers + coming <= self.BLOCK.completion_headers)),
            Assert(~waits | (credits + Mux(coming, largest, 0) <= self.BLOCK.completion_credits)),
        ]
        self.cover(m, waits & (headers == self.BLOCK.completion_headers - 1))
