# SPDX-License-Identifier: BSD-2-Clause
"""Clock generation, from the transceiver's copy of the reference clock.

TXOUTCLK 100 MHz ─▶ MMCM x 10 ─┬─▶ /8  125 MHz ─┬─▶ drp
                               │                └─▶┐
                               ├─▶ /4  250 MHz ──▶ mux ─▶ pipe   (Gen1: 125, Gen2: 250)
                               └─▶ /16 or /8 ───────────▶ sync   (user clock)
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["REFERENCE_KHZ", "VCO_KHZ", "ClockTree"]

REFERENCE_KHZ = 100_000
#: Of the MMCM; 600 to 1440 MHz in speed grade 2 (DS181).
VCO_KHZ = 1_000_000


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
    fast : In(1)
        Selects a PIPE clock of 250 MHz, without a glitch; in the domain `pipe`.
    sync_clock, pipe_clock, drp_clock : Out(1)
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
                "fast": In(1),
                "sync_clock": Out(1),
                "pipe_clock": Out(1),
                "drp_clock": Out(1),
                "locked": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        reference, feedback = Signal(), Signal()
        made = Signal(3)
        m.submodules.reference = Instance("BUFG", i_I=self.tx_out_clock, o_O=reference)
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
            i_CLKIN1=reference,
            i_CLKIN2=Const(0),
            i_CLKINSEL=Const(1),
            i_CLKFBIN=feedback,
            o_CLKFBOUT=feedback,
            o_CLKOUT0=made[0],
            o_CLKOUT1=made[1],
            o_CLKOUT2=made[2],
            o_LOCKED=self.locked,
            # Never reset: its input is stable before anything uses its outputs, and LOCKED, when
            # it falls, resets all that uses them.
            i_RST=Const(0),
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
