# SPDX-License-Identifier: BSD-2-Clause
"""Brings PLL and transceiver up after configuration and after every PERST#."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .synchronise import synchronised

__all__ = ["SETTLE_CYCLES", "TIMEOUT_CYCLES", "Patience", "ResetSequence"]

#: From the start of the clock to the PLL's reset: at least 500 ns after configuration (UG482), at
#: up to 250 MHz.
SETTLE_CYCLES = 256

#: What a sequence may take: 16.8 ms at 125 MHz. PLL lock and receiver reset need about 1 ms, and
#: software waits 100 ms after a reset before it looks for the card (PCI Express 6.6.1).
TIMEOUT_CYCLES = 1 << 21


class ResetSequence(wiring.Component):
    """UG482's sequence for PLL, transmitter and receiver, with the receiver narrow meanwhile.

    PLL and channel in reset; receiver to 16 bits; PLL out of reset and locked; channel out of
    reset; RXPMARESETDONE goes up and down again; receiver back to 20 bits; clocks are good;
    channel ready; transmitter aligned. It starts with its clock, and again when it is reset.

    Parameters
    ----------
    settle : int
        Cycles before the PLL's reset; fewer are for tests.

    Members
    -------
    pll_lock, rx_pma_reset_done, reset_done, phystatus, mmcm_locked : In(1)
        Asynchronous: of PLL0, RXPMARESETDONE, TXRESETDONE and RXRESETDONE, PHYSTATUS, LOCKED.
    pll_reset, gt_reset : Out(1)
    user_ready : Out(1)
        TXUSERRDY and RXUSERRDY.
    width_request, width_narrow : Out(1), width_done : In(1)
        To `hw.pcie.series7.phy.rx_width.RxWidth`; `width_done` is asynchronous.
    align_request : Out(1), align_done : In(1)
        To `hw.pcie.series7.phy.tx_align.TxAlign`.
    ready : Out(1)
        The sequence is through.
    """

    pll_lock: In(1)
    rx_pma_reset_done: In(1)
    reset_done: In(1)
    phystatus: In(1)
    mmcm_locked: In(1)
    pll_reset: Out(1)
    gt_reset: Out(1)
    user_ready: Out(1)
    width_request: Out(1)
    width_narrow: Out(1)
    width_done: In(1)
    align_request: Out(1)
    align_done: In(1)
    ready: Out(1)

    def __init__(self, settle: int = SETTLE_CYCLES):
        self._settle = settle
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        pll_lock = synchronised(m, self.pll_lock)
        pma_done = synchronised(m, self.rx_pma_reset_done)
        reset_done = synchronised(m, self.reset_done)
        phystatus = synchronised(m, self.phystatus, init=1)
        locked = synchronised(m, self.mmcm_locked)
        width_done = synchronised(m, self.width_done)

        settled = Signal(range(self._settle + 1))
        with m.FSM():
            with m.State("Settle"):
                m.d.sync += settled.eq(settled + 1)
                with m.If(settled == self._settle):
                    m.d.sync += [self.pll_reset.eq(1), self.gt_reset.eq(1)]
                    m.next = "Reset"
            with m.State("Reset"):
                with m.If(~pll_lock & ~reset_done & ~width_done):
                    m.d.sync += [self.width_narrow.eq(1), self.width_request.eq(1)]
                    m.next = "Narrow"
            with m.State("Narrow"):
                with m.If(width_done):
                    m.d.sync += [self.width_request.eq(0), self.pll_reset.eq(0)]
                    m.next = "PLL-Lock"
            with m.State("PLL-Lock"):
                with m.If(pll_lock & ~width_done):
                    m.d.sync += self.gt_reset.eq(0)
                    m.next = "PMA-Up"
            with m.State("PMA-Up"):
                with m.If(pma_done):
                    m.next = "PMA-Down"
            with m.State("PMA-Down"):
                with m.If(~pma_done):
                    m.d.sync += [self.width_narrow.eq(0), self.width_request.eq(1)]
                    m.next = "Widen"
            with m.State("Widen"):
                with m.If(width_done):
                    m.d.sync += self.width_request.eq(0)
                    m.next = "Clocks"
            with m.State("Clocks"):
                with m.If(locked & ~width_done):
                    m.d.sync += self.user_ready.eq(1)
                    m.next = "Channel"
            with m.State("Channel"):
                with m.If(reset_done & ~phystatus):
                    m.d.sync += self.align_request.eq(1)
                    m.next = "Align"
            with m.State("Align"):
                with m.If(self.align_done):
                    m.d.sync += self.align_request.eq(0)
                    m.next = "Ready"
            with m.State("Ready"):
                m.d.comb += self.ready.eq(1)
        return m


class Patience(wiring.Component):
    """Says when a sequence has hung.

    Parameters
    ----------
    limit : int
        Cycles that a sequence may take.

    Members
    -------
    done : In(1)
    expired : Out(1)
        For one cycle: `done` was 0 for `limit` cycles.
    """

    done: In(1)
    expired: Out(1)

    def __init__(self, limit: int = TIMEOUT_CYCLES):
        self._limit = limit
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        left = Signal(range(self._limit), init=self._limit - 1)
        m.d.sync += [left.eq(left - 1), self.expired.eq(left == 1)]
        with m.If(self.done | self.expired):
            m.d.sync += [left.eq(self._limit - 1), self.expired.eq(0)]
        return m
