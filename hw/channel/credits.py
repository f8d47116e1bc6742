# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor credits of a channel (PG195, descriptor credit mode)."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import FETCH_DESCRIPTORS

__all__ = ["CreditPool"]

_BITS = regs.SGDMA["descriptor_credits"].writable.bit_length()


class CreditPool(wiring.Component):
    """Counts the descriptors that software has provided and the engine has not fetched yet.

    Credits may be given before a run. Software must keep their sum within the register.

    Parameters
    ----------
    shared : bool
        What was fetched may come back.

    Members
    -------
    mode : In(1)
        Low: there are no credits and any number of descriptors may be fetched.
    clear : In(1)
        No credits from the next cycle on.
    give : In(1), given : In
        Software adds so many.
    spent : In(range(FETCH_DESCRIPTORS + 1))
        Descriptors that a read asks for in this cycle.
    back : In(8)
        Descriptors that were fetched in vain: they will be again. Only if `shared`.
    credits : Out
        For software to read.
    allowed : Out(range(FETCH_DESCRIPTORS + 1))
        Descriptors that the next read may ask for, at most as many as one read can; follows
        `spent` in the next cycle.
    """

    def __init__(self, shared: bool = False):
        self._shared = shared
        super().__init__(
            {
                "mode": In(1),
                "clear": In(1),
                "give": In(1),
                "given": In(_BITS),
                "spent": In(range(FETCH_DESCRIPTORS + 1)),
                **({"back": In(8)} if shared else {}),
                "credits": Out(_BITS),
                "allowed": Out(range(FETCH_DESCRIPTORS + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        left = Signal(signed(_BITS + 1))
        kept = self.credits - self.spent
        m.d.comb += left.eq(kept + self.back if self._shared else kept)
        with m.If(self.give):
            m.d.sync += self.credits.eq(left + self.given)
        with m.Else():
            m.d.sync += self.credits.eq(left)
        # Negative if a read was planned before credit mode was switched on.
        with m.If(~self.mode | self.clear | (left < 0)):
            m.d.sync += self.credits.eq(0)
        plenty = ~self.mode | self.credits[exact_log2(FETCH_DESCRIPTORS) :].any()
        m.d.comb += self.allowed.eq(Mux(plenty, FETCH_DESCRIPTORS, self.credits))
        return m
