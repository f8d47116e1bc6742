# SPDX-License-Identifier: BSD-2-Clause
"""Shares of a round robin by bytes."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.parts.byte_shares import UNIT, ByteShares

from .property import Property

__all__ = ["Shares"]


class Shares(Property):
    """Clients that wait get as many bytes but for a round and a request, and none is left out.

    Of those that wait, one may always be served, unless one was just withdrawn. While any one
    waits, any other one is served no more than two rounds and two requests. Two that both wait, in
    whatever order they are served, never differ by more than a round and a request, if none is
    served in two cycles in a row. Assumed: one is served at a time, which waits and may be.
    """

    COUNT = 3
    #: units: of a request at most, and of a round, which is the next power of two
    LARGEST = 5
    ROUND = 8

    def __init__(self):
        most, extra = (self.LARGEST - 1) * UNIT, UNIT
        super().__init__(ByteShares(self.COUNT, most=most, extra=extra))

    def _state(self, m):
        block, count = self.block, self.COUNT
        requests, served = block.requests, block.served
        had = Array(self.inside(f"had{number}") for number in range(count))
        one, other = (self.any(m, range(count), name) for name in ("one", "other"))
        m.d.comb += [
            Assume(sum(served) <= 1),
            Assume(~(served & ~(requests & block.allowed)).any()),
            Assume(block.length <= (self.LARGEST - 1) * UNIT),
            Assume((one < count) & (other < count) & (one != other)),
            # What is inside.
            *(Assert(units < self.ROUND + self.LARGEST) for units in had),
        ]

        # Somebody may go on.
        withdrawn = (self.past(m, requests & ~served) & ~requests).any()
        m.d.comb += Assert(~requests.any() | (requests & block.allowed).any() | withdrawn)

        # While one waits, another one has so much and no more.
        charge = (block.length >> 4) + 1
        mine, others = (served.bit_select(client, 1) for client in (one, other))
        asks, asks_too = (requests.bit_select(client, 1) for client in (one, other))
        waits = asks & ~mine
        most = self.ROUND - 1 + self.LARGEST
        meanwhile = Signal(range(4 * self.ROUND))
        m.d.sync += meanwhile.eq(Mux(waits, meanwhile + Mux(others, charge, 0), 0))
        spent = had[one] >= self.ROUND
        m.d.comb += [
            Assert(meanwhile <= 2 * most),
            Assert(meanwhile <= had[other] + Mux(spent, 0, most)),
            Assert(~self.past(m, waits) | spent | self.inside("waits")),
        ]

        # Two that both wait: what they have had differs by what the counts of this round do.
        both = asks & asks_too
        calm = ~(served.any() & self.past(m, served.any()))
        follows, more = Signal(), Signal(signed(8))
        ahead = Signal(signed(8))
        m.d.comb += ahead.eq(Mux(follows, more, had[one] - had[other]))
        m.d.sync += [
            follows.eq(both & self.past(m, both) & calm),
            more.eq(ahead + Mux(mine, charge, 0) - Mux(others, charge, 0)),
        ]
        m.d.comb += Assert(~follows | (ahead == had[one] - had[other]))
        self.cover(
            m,
            meanwhile == most,
            spent & (meanwhile != 0) & self.past(m, both),
            follows & (ahead == self.ROUND),
            requests.any() & ~(requests & block.allowed).any(),
        )
