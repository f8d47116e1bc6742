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
        m.d.sync += settled.eq(settled + 1)
        # What each step waits for, and what then happens.
        steps = {
            "Settle": (settled == self._settle, [self.pll_reset.eq(1), self.gt_reset.eq(1)]),
            "Reset": (
                ~pll_lock & ~reset_done & ~width_done,
                [self.width_narrow.eq(1), self.width_request.eq(1)],
            ),
            "Narrow": (width_done, [self.width_request.eq(0), self.pll_reset.eq(0)]),
            "PLL-Lock": (pll_lock & ~width_done, [self.gt_reset.eq(0)]),
            "PMA-Up": (pma_done, []),
            "PMA-Down": (~pma_done, [self.width_narrow.eq(0), self.width_request.eq(1)]),
            "Widen": (width_done, [self.width_request.eq(0)]),
            "Clocks": (locked & ~width_done, [self.user_ready.eq(1)]),
            "Channel": (reset_done & ~phystatus, [self.align_request.eq(1)]),
            "Align": (self.align_done, [self.align_request.eq(0)]),
        }
        # Looked at one cycle before, as the choice among all of them is long at 250 MHz.
        holds, met = Signal(), Signal()
        m.d.sync += met.eq(holds & ~met)
        with m.FSM():
            for (name, (condition, actions)), following in zip(
                steps.items(), (*list(steps)[1:], "Ready"), strict=True
            ):
                with m.State(name):
                    m.d.comb += holds.eq(condition)
                    with m.If(met):
                        m.d.sync += actions
                        m.next = following
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
