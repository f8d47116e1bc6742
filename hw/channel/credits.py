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
    credits : Out
        For software to read.
    allowed : Out(range(FETCH_DESCRIPTORS + 1))
        Descriptors that the next read may ask for, at most as many as one read can; follows
        `spent` in the next cycle.
    """

    mode: In(1)
    clear: In(1)
    give: In(1)
    given: In(_BITS)
    spent: In(range(FETCH_DESCRIPTORS + 1))
    credits: Out(_BITS)
    allowed: Out(range(FETCH_DESCRIPTORS + 1))

    def elaborate(self, platform):
        m = Module()
        left = Signal(signed(_BITS + 1))
        m.d.comb += left.eq(self.credits - self.spent)
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
