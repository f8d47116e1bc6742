# SPDX-License-Identifier: BSD-2-Clause
"""Clock generation, from the transceiver's copy of the reference clock.

TXOUTCLK 100 MHz ─┬─▶ MMCM x 10 ─┬─▶ /8  125 MHz ─┬─▶ drp
                  │              │                └─▶┐
                  │              ├─▶ /4  250 MHz ──▶ mux ─▶ pipe   (Gen1: 125, Gen2: 250)
                  │              └─▶ /16 or /8 ───────────▶ sync   (user clock)
                  └─▶ reference, which runs without the MMCM's lock
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .synchronise import synchronised

__all__ = ["REFERENCE_KHZ", "VCO_KHZ", "ClockTree", "MmcmReset"]

REFERENCE_KHZ = 100_000
#: Of the MMCM; 600 to 1440 MHz in speed grade 2 (DS181).
VCO_KHZ = 1_000_000

#: Cycles of the reference clock: of a reset pulse, which is at least 5 ns long (DS181), and from
#: one pulse to the next: 164 µs, of which locking takes 100 µs at most (DS181, TLOCKMAX).
_PULSE_CYCLES, _RETRY_CYCLES = 16, 1 << 14


class MmcmReset(wiring.Component):
    """Resets an MMCM that is not locked, again and again until it is.

    An MMCM whose input stopped does not lock again by itself when the input returns: it has to be
    reset then (PG065, resets). This component runs on the input clock, so it stops and returns with
    it, and begins with a pulse.

    Parameters
    ----------
    retry : int
        Cycles from one pulse to the next, a power of two.

    Members
    -------
    locked : In(1)
        Asynchronous.
    reset : Out(1)
    """

    locked: In(1)
    reset: Out(1)

    def __init__(self, retry: int = _RETRY_CYCLES):
        self._retry = retry
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        locked = synchronised(m, self.locked)
        count = Signal(range(self._retry))
        m.d.sync += [
            count.eq(Mux(locked, 0, count + 1)),
            self.reset.eq(~locked & (count < _PULSE_CYCLES)),
        ]
        return m


class ClockTree(wiring.Component):
    """MMCM and clock buffers for the domains `sync`, `pipe` and `drp`.

    Parameters
    ----------
    clock_khz : int
        Frequency of the user clock.

    Members
    -------
    tx_out_clock : In(1)
        100 MHz while the reference clock runs, independent of the transceiver's PLL.
    reset : In(1)
        Resets the MMCM; asynchronous.
    fast : In(1)
        Selects a PIPE clock of 250 MHz, without a glitch; in the domain `pipe`.
    reference_clock : Out(1)
        `tx_out_clock` on a clock net.
    sync_clock, pipe_clock, drp_clock : Out(1)
        Good while `locked`.
    locked : Out(1)
        Asynchronous.
    """

    def __init__(self, clock_khz: int):
        if VCO_KHZ % clock_khz:
            raise ValueError(f"{clock_khz} kHz is no integer fraction of {VCO_KHZ}")
        self._divide = VCO_KHZ // clock_khz
        super().__init__(
            {
                "tx_out_clock": In(1),
                "reset": In(1),
                "fast": In(1),
                "reference_clock": Out(1),
                "sync_clock": Out(1),
                "pipe_clock": Out(1),
                "drp_clock": Out(1),
                "locked": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        feedback = Signal()
        made = Signal(3)
        m.submodules.reference = Instance("BUFG", i_I=self.tx_out_clock, o_O=self.reference_clock)
        m.submodules.mmcm = Instance(
            "MMCME2_ADV",
            p_BANDWIDTH="OPTIMIZED",
            p_COMPENSATION="ZHOLD",
            p_STARTUP_WAIT="FALSE",
            p_CLKIN1_PERIOD=1e6 / REFERENCE_KHZ,
            p_REF_JITTER1=0.01,
            p_DIVCLK_DIVIDE=1,
            p_CLKFBOUT_MULT_F=float(VCO_KHZ // REFERENCE_KHZ),
            p_CLKOUT0_DIVIDE_F=8.0,
            p_CLKOUT1_DIVIDE=4,
            p_CLKOUT2_DIVIDE=self._divide,
            i_CLKIN1=self.reference_clock,
            i_CLKIN2=Const(0),
            i_CLKINSEL=Const(1),
            i_CLKFBIN=feedback,
            o_CLKFBOUT=feedback,
            o_CLKOUT0=made[0],
            o_CLKOUT1=made[1],
            o_CLKOUT2=made[2],
            o_LOCKED=self.locked,
            i_RST=self.reset,
            i_PWRDWN=Const(0),
            # No reconfiguration and no phase shift.
            i_DADDR=Const(0, 7),
            i_DCLK=Const(0),
            i_DEN=Const(0),
            i_DI=Const(0, 16),
            i_DWE=Const(0),
            i_PSCLK=Const(0),
            i_PSEN=Const(0),
            i_PSINCDEC=Const(0),
        )
        m.submodules.drp = Instance("BUFG", i_I=made[0], o_O=self.drp_clock)
        m.submodules.user = Instance("BUFG", i_I=made[2], o_O=self.sync_clock)
        m.submodules.pipe = Instance(
            "BUFGCTRL",
            i_I0=made[0],
            i_I1=made[1],
            i_S0=~self.fast,
            i_S1=self.fast,
            i_CE0=Const(1),
            i_CE1=Const(1),
            # Both clocks always run, so the multiplexer may wait for edges of either.
            i_IGNORE0=Const(0),
            i_IGNORE1=Const(0),
            o_O=self.pipe_clock,
        )
        return m
