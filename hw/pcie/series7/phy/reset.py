# SPDX-License-Identifier: BSD-2-Clause
"""Reset sequence of PLL and transceiver, after configuration and after every PERST#."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .clocking import REFERENCE_KHZ
from .synchronise import synchronised

__all__ = ["SETTLE_CYCLES", "TIMEOUT_CYCLES", "ResetSequence", "Watchdog"]

#: Cycles from the start of the clock to the PLL's reset, which may not come earlier than 500 ns
#: after configuration (UG482); the clock has at most 250 MHz.
SETTLE_CYCLES = 256

#: Cycles of the reference clock that a sequence may take: 17 ms. PLL lock and receiver reset need
#: about 1 ms, so that a second attempt, too, ends within the 20 ms after a reset in which the link
#: has to begin its training (PCI Express 6.6.1).
TIMEOUT_CYCLES = 17 * REFERENCE_KHZ


class ResetSequence(wiring.Component):
    """Reset sequence of PLL, transmitter and receiver (UG482).

    1. Put PLL and channel into reset, and set the receiver to 16 bits.
    2. Release the PLL and wait for its lock; release the channel.
    3. Wait until RXPMARESETDONE has risen and fallen; set the receiver back to 20 bits.
    4. Wait for the MMCM, report the user clocks ready, and wait for the channel.
    5. Align the transmitter.

    Starts when its clock starts, and again after each reset of its domain.

    Parameters
    ----------
    settle : int
        Cycles before the PLL's reset; tests use fewer.

    Members
    -------
    pll_lock, rx_pma_reset_done, reset_done, phystatus, mmcm_locked : In(1)
        PLL0LOCK, RXPMARESETDONE, TXRESETDONE and RXRESETDONE, PHYSTATUS, the MMCM's LOCKED.
        Asynchronous.
    pll_reset, gt_reset : Out(1)
    user_ready : Out(1)
        TXUSERRDY and RXUSERRDY.
    width_request, width_narrow : Out(1), width_done : In(1)
        To `hw.pcie.series7.phy.rx_width.RxWidth`; `width_done` is asynchronous.
    align_request : Out(1), align_done : In(1)
        To `hw.pcie.series7.phy.tx_align.TxAlign`.
    ready : Out(1)
        The sequence has finished.
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


class Watchdog(wiring.Component):
    """Pulses `expired` when `done` was 0 for `limit` cycles, and again after each `limit` more.

    Parameters
    ----------
    limit : int

    Members
    -------
    done : In(1)
        Restarts the count.
    expired : Out(1)
        High for one cycle.
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
