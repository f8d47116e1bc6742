# SPDX-License-Identifier: BSD-2-Clause
"""Deficit round robin: shares by bytes instead of by requests."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

__all__ = ["ByteShares"]

#: Bytes are counted in units of so many.
UNIT = 16


class ByteShares(wiring.Component):
    """Says which of several requests a round robin may serve, so that all get as many bytes.

    In each round a client may have as many bytes as the largest request counts, rounded up to a
    power of two; what its last request had beyond that is taken off in the next round. Who has had
    them waits while another one waits that has not. A round begins when nobody waits that has some
    left, which is then lost: so no client's rest holds up another one, and one alone never waits.

    Shreedhar, Varghese: Efficient Fair Queuing Using Deficit Round-Robin (1996), but the order is
    the round robin's: clients that always wait with requests of one size take turns as without.

    A client that was served in the cycle before is not waited for, as what it requests next was not
    known then: shares are equal if no two requests are served in two cycles in a row.

    Parameters
    ----------
    count : int
        Number of clients; with one, nothing is built.
    most : int
        Most bytes of a request, a multiple of 16.
    extra : int
        Bytes that a request counts beyond its own: what else it costs on the link. A multiple of
        16, and not 0, for the parts of 16 bytes that its own are not.

    Members
    -------
    requests : In(count)
        Bit n: client n waits. It does so until it is served, or is withdrawn.
    served : In(count)
        Bit n: it is served in this cycle. One at most, which requests and is allowed.
    length : In(range(most + 1))
        Bytes of the one that is served.
    allowed : Out(count)
        Which may be served; depends on registers only. In the cycle after a request was withdrawn,
        maybe none of those that are left.

    Raises
    ------
    ValueError
        If a size is no multiple of 16, or `extra` is 0.
    """

    def __init__(self, count: int, *, most: int, extra: int):
        if most % UNIT or extra % UNIT or extra < UNIT:
            raise ValueError(
                f"bytes are counted in units of {UNIT}, which {most} at most and {extra} more are "
                "not; nor may a request count as nothing"
            )
        self._count = count
        self._extra = extra // UNIT
        #: units of a round
        self._round = 1 << ceil_log2((most + extra) // UNIT)
        super().__init__(
            {
                "requests": In(count),
                "served": In(count),
                "length": In(range(most + 1)),
                "allowed": Out(count),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self._count == 1:
            m.d.comb += self.allowed.eq(1)
            return m
        #: units that each client has had in this round: up to one less than a round, and a request
        had = [Signal(range(2 * self._round), name=f"had{n}") for n in range(self._count)]
        #: has had all of its round
        spent = Cat(units[-1] for units in had)
        #: one that is not served now can be served in the next cycle, and has not had its round
        waits = Signal()
        begins = Signal()
        m.d.comb += [
            self.allowed.eq(~spent | ~waits.replicate(self._count)),
            begins.eq((self.served & spent).any()),
        ]
        left = ~spent | begins.replicate(self._count)
        m.d.sync += waits.eq((self.requests & ~self.served & left).any())
        charge = self.length[exact_log2(UNIT) :] + self._extra
        for units, served in zip(had, self.served, strict=True):
            # What it has had too much in the last round
            deficit = units[:-1] & units[-1].replicate(len(units) - 1)
            m.d.sync += units.eq(Mux(begins, deficit, units) + Mux(served, charge, 0))
        return m
