# SPDX-License-Identifier: BSD-2-Clause
"""The GTP transceiver: reference clock buffer, PLL, and the channel of the single lane."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .gtp_parameters import CHANNEL, COMMON, REFERENCE_CLOCK
from .pipe import PipeSignature
from .rx_width import DrpSignature
from .tx_align import TxPhaseSignature

__all__ = ["GtpChannel", "GtpCommon"]

#: Inputs of the common block that are tied off, (width, value), as in the reference.
_COMMON_TIED = {
    # Band gap and resistor calibration are automatic.
    "BGBYPASSB": (1, 1),
    "BGMONITORENB": (1, 1),
    "BGPDB": (1, 1),
    "BGRCALOVRD": (5, 31),
    "BGRCALOVRDENB": (1, 1),
    "RCALENB": (1, 1),
    # Other reference clocks are not connected.
    "GTREFCLK1": (1, 0),
    "GTEASTREFCLK0": (1, 0),
    "GTEASTREFCLK1": (1, 0),
    "GTWESTREFCLK0": (1, 0),
    "GTWESTREFCLK1": (1, 0),
    "GTGREFCLK0": (1, 1),
    "GTGREFCLK1": (1, 1),
    # PLL0 makes all clocks from GTREFCLK0; lock detection needs no clock from the fabric.
    "PLL0REFCLKSEL": (3, 1),
    "PLL0LOCKDETCLK": (1, 0),
    "PLL0LOCKEN": (1, 1),
    "PLL0PD": (1, 0),
    # PLL1 is off.
    "PLL1REFCLKSEL": (3, 1),
    "PLL1LOCKDETCLK": (1, 0),
    "PLL1LOCKEN": (1, 1),
    "PLL1PD": (1, 1),
    "PLL1RESET": (1, 1),
    "PLLRSVD1": (16, 0),
    "PLLRSVD2": (5, 31),
    "PMARSVD": (8, 0),
    # No reconfiguration.
    "DRPADDR": (8, 0),
    "DRPDI": (16, 0),
    "DRPEN": (1, 0),
    "DRPWE": (1, 0),
}

#: Inputs of the channel that are tied off, (width, value), as in the reference unless noted.
_CHANNEL_TIED = {
    # Clocks: all from PLL0; TXOUTCLK is the reference clock itself, so that it never stops.
    "TXSYSCLKSEL": (2, 0),
    "RXSYSCLKSEL": (2, 0),
    "TXOUTCLKSEL": (3, 3),
    "RXOUTCLKSEL": (3, 0),
    "CLKRSVD0": (1, 0),
    "CLKRSVD1": (1, 0),
    # Resets that the sequence does not use. The reference drives some of these for test modes.
    **dict.fromkeys(
        (
            "CFGRESET",
            "GTRESETSEL",
            "RESETOVRD",
            "TXPMARESET",
            "TXPCSRESET",
            "RXPMARESET",
            "RXPCSRESET",
            "RXBUFRESET",
            "RXCDRRESET",
            "RXCDRRESETRSV",
            "RXCDRFREQRESET",
            "RXLPMRESET",
            "RXOOBRESET",
            "RXOSCALRESET",
            "EYESCANRESET",
            "DMONFIFORESET",
        ),
        (1, 0),
    ),
    # Rate changes are synchronous to the PIPE clock.
    "TXRATEMODE": (1, 0),
    "RXRATEMODE": (1, 0),
    # 8b/10b coding in both directions, no bypass, running disparity.
    "TX8B10BEN": (1, 1),
    "RX8B10BEN": (1, 1),
    "TX8B10BBYPASS": (4, 0),
    "TXCHARDISPVAL": (4, 0),
    # Drive strength is set by PIPE margin and de-emphasis; manual cursors are off.
    "TXBUFDIFFCTRL": (3, 4),
    "TXDIFFCTRL": (4, 12),
    "TXDIFFPD": (1, 0),
    "TXINHIBIT": (1, 0),
    "TXMAINCURSOR": (7, 0),
    "TXPRECURSOR": (5, 0),
    "TXPRECURSORINV": (1, 0),
    "TXPOSTCURSOR": (5, 0),
    "TXPOSTCURSORINV": (1, 0),
    "TXSWING": (1, 0),
    "TXPOLARITY": (1, 0),
    "TXPISOPD": (1, 0),
    "TXPDELECIDLEMODE": (1, 0),
    "RXELECIDLEMODE": (2, 0),
    # Phase interpolator of the transmitter: not used.
    "TXPIPPMEN": (1, 0),
    "TXPIPPMOVRDEN": (1, 0),
    "TXPIPPMPD": (1, 0),
    "TXPIPPMSEL": (1, 0),
    "TXPIPPMSTEPSIZE": (5, 0),
    # Manual phase alignment of the transmitter, enabled.
    "TXPHALIGNEN": (1, 1),
    "TXPHDLYPD": (1, 0),
    "TXPHDLYRESET": (1, 0),
    "TXPHDLYTSTCLK": (1, 0),
    "TXPHOVRDEN": (1, 0),
    "TXDLYBYPASS": (1, 0),
    "TXDLYHOLD": (1, 0),
    "TXDLYOVRDEN": (1, 0),
    "TXDLYUPDOWN": (1, 0),
    # Automatic alignment is not used; the reference ties its chain into a ring of one.
    "TXSYNCMODE": (1, 1),
    "TXSYNCALLIN": (1, 0),
    "TXSYNCIN": (1, 0),
    # The receiver has its elastic buffer and needs no alignment.
    "RXPHALIGN": (1, 0),
    "RXPHALIGNEN": (1, 0),
    "RXPHDLYPD": (1, 0),
    "RXPHDLYRESET": (1, 0),
    "RXPHOVRDEN": (1, 0),
    "RXDLYBYPASS": (1, 1),
    "RXDLYEN": (1, 0),
    "RXDLYOVRDEN": (1, 0),
    "RXDLYSRESET": (1, 0),
    "RXDDIEN": (1, 0),
    "RXSYNCMODE": (1, 1),
    "RXSYNCALLIN": (1, 0),
    "RXSYNCIN": (1, 0),
    # Detect and align to commas of both polarities.
    "RXCOMMADETEN": (1, 1),
    "RXMCOMMAALIGNEN": (1, 1),
    "RXPCOMMAALIGNEN": (1, 1),
    "RXSLIDE": (1, 0),
    # One lane: no channel bonding.
    "RXCHBONDEN": (1, 0),
    "RXCHBONDI": (4, 0),
    "RXCHBONDLEVEL": (3, 0),
    "RXCHBONDMASTER": (1, 1),
    "RXCHBONDSLAVE": (1, 0),
    # Receiver adaptation is automatic; offset and equaliser loops run freely.
    "RXCDRHOLD": (1, 0),
    "RXCDROVRDEN": (1, 0),
    "RXDFEXYDEN": (1, 0),
    "RXADAPTSELTEST": (14, 0),
    "RXLPMHFHOLD": (1, 0),
    "RXLPMHFOVRDEN": (1, 0),
    "RXLPMLFHOLD": (1, 0),
    "RXLPMLFOVRDEN": (1, 0),
    "RXLPMOSINTNTRLEN": (1, 0),
    "RXOSHOLD": (1, 0),
    "RXOSOVRDEN": (1, 0),
    "RXOSINTCFG": (4, 2),
    "RXOSINTEN": (1, 1),
    "RXOSINTHOLD": (1, 0),
    "RXOSINTID0": (4, 0),
    "RXOSINTNTRLEN": (1, 0),
    "RXOSINTOVRDEN": (1, 0),
    "RXOSINTPD": (1, 0),
    "RXOSINTSTROBE": (1, 0),
    "RXOSINTTESTOVRDEN": (1, 0),
    # Not used: gearboxes, SATA, patterns, loopback, eye scan, test.
    "TXHEADER": (3, 0),
    "TXSEQUENCE": (7, 0),
    "TXSTARTSEQ": (1, 0),
    "RXGEARBOXSLIP": (1, 0),
    "TXCOMINIT": (1, 0),
    "TXCOMSAS": (1, 0),
    "TXCOMWAKE": (1, 0),
    "TXPRBSFORCEERR": (1, 0),
    "TXPRBSSEL": (3, 0),
    "RXPRBSCNTRESET": (1, 0),
    "RXPRBSSEL": (3, 0),
    "LOOPBACK": (3, 0),
    "EYESCANMODE": (1, 0),
    "EYESCANTRIGGER": (1, 0),
    "SETERRSTATUS": (1, 0),
    "DMONITORCLK": (1, 0),
    "GTRSVD": (16, 0),
    "PCSRSVDIN": (16, 0),
    "PMARSVDIN0": (1, 0),
    "PMARSVDIN1": (1, 0),
    "PMARSVDIN2": (1, 0),
    "PMARSVDIN3": (1, 0),
    "PMARSVDIN4": (1, 0),
    "TSTIN": (20, 0xF_FFFF),
}


def _tied(table):
    return {f"i_{name}": Const(value, width) for name, (width, value) in table.items()}


class GtpCommon(wiring.Component):
    """Reference clock buffer and the quad's PLL.

    Parameters
    ----------
    refclk_p, refclk_n : Value
        Pads.

    Members
    -------
    pll_reset : In(1), pll_lock : Out(1)
        Asynchronous.
    clocks : Out(4)
        PLL0CLK, PLL0REFCLK, PLL1CLK, PLL1REFCLK, on dedicated routing to the channel.
    drp_clock : In(1)
        Clock of the reconfiguration port, which is not used but has to be clocked.
    """

    pll_reset: In(1)
    pll_lock: Out(1)
    clocks: Out(4)
    drp_clock: In(1)

    def __init__(self, refclk_p, refclk_n):
        self._pads = refclk_p, refclk_n
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        reference = Signal()
        m.submodules.buffer = Instance(
            "IBUFDS_GTE2",
            **{f"p_{name}": value for name, value in REFERENCE_CLOCK.items()},
            i_I=self._pads[0],
            i_IB=self._pads[1],
            i_CEB=Const(0),  # enabled; left open, it would be disabled
            o_O=reference,
        )
        m.submodules.common = Instance(
            "GTPE2_COMMON",
            **{f"p_{name}": value for name, value in COMMON.items()},
            **_tied(_COMMON_TIED),
            i_GTREFCLK0=reference,
            i_PLL0RESET=self.pll_reset,
            i_DRPCLK=self.drp_clock,
            o_PLL0LOCK=self.pll_lock,
            o_PLL0OUTCLK=self.clocks[0],
            o_PLL0OUTREFCLK=self.clocks[1],
            o_PLL1OUTCLK=self.clocks[2],
            o_PLL1OUTREFCLK=self.clocks[3],
        )
        return m


class GtpChannel(wiring.Component):
    """GTPE2_CHANNEL as the PIPE of one lane, in the domain `pipe` unless noted.

    Parameters
    ----------
    rx_p, rx_n, tx_p, tx_n : Value
        Pads.

    Members
    -------
    pipe : In(PipeSignature)
    clocks : In(4)
        From `GtpCommon`.
    reset, user_ready : In(1)
        Asynchronous.
    rate : In(3)
    oob_clock : In(1)
    phase : In(TxPhaseSignature)
    drp : In(DrpSignature)
        In the domain `drp`.
    tx_out_clock : Out(1)
    tx_reset_done, rx_reset_done, rx_pma_reset_done : Out(1)
        Asynchronous.
    tx_rate_done, rx_rate_done : Out(1)
    """

    def __init__(self, rx_p, rx_n, tx_p, tx_n):
        self._pads = rx_p, rx_n, tx_p, tx_n
        super().__init__(
            {
                "pipe": In(PipeSignature()),
                "clocks": In(4),
                "reset": In(1),
                "user_ready": In(1),
                "rate": In(3),
                "oob_clock": In(1),
                "phase": In(TxPhaseSignature()),
                "drp": In(DrpSignature()),
                "tx_out_clock": Out(1),
                "tx_reset_done": Out(1),
                "rx_reset_done": Out(1),
                "rx_pma_reset_done": Out(1),
                "tx_rate_done": Out(1),
                "rx_rate_done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        pipe = self.pipe
        rx_p, rx_n, tx_p, tx_n = self._pads
        clock = ClockSignal("pipe")
        m.submodules.channel = Instance(
            "GTPE2_CHANNEL",
            **{f"p_{name}": value for name, value in CHANNEL.items()},
            **_tied(_CHANNEL_TIED),
            i_GTPRXP=rx_p,
            i_GTPRXN=rx_n,
            o_GTPTXP=tx_p,
            o_GTPTXN=tx_n,
            i_PLL0CLK=self.clocks[0],
            i_PLL0REFCLK=self.clocks[1],
            i_PLL1CLK=self.clocks[2],
            i_PLL1REFCLK=self.clocks[3],
            i_TXUSRCLK=clock,
            i_TXUSRCLK2=clock,
            i_RXUSRCLK=clock,
            i_RXUSRCLK2=clock,
            i_SIGVALIDCLK=self.oob_clock,
            o_TXOUTCLK=self.tx_out_clock,
            i_GTTXRESET=self.reset,
            i_GTRXRESET=self.reset,
            i_TXUSERRDY=self.user_ready,
            i_RXUSERRDY=self.user_ready,
            o_TXRESETDONE=self.tx_reset_done,
            o_RXRESETDONE=self.rx_reset_done,
            o_RXPMARESETDONE=self.rx_pma_reset_done,
            i_TXRATE=self.rate,
            i_RXRATE=self.rate,
            o_TXRATEDONE=self.tx_rate_done,
            o_RXRATEDONE=self.rx_rate_done,
            i_TXDATA=Cat(pipe.tx_data, Const(0, 16)),
            i_TXCHARISK=Cat(pipe.tx_char_is_k, Const(0, 2)),
            i_TXELECIDLE=pipe.tx_elec_idle,
            # A compliance pattern begins with negative disparity.
            i_TXCHARDISPMODE=Cat(pipe.tx_compliance, Const(0, 3)),
            i_TXDETECTRX=pipe.tx_detect_rx,
            i_TXDEEMPH=pipe.tx_deemph,
            i_TXMARGIN=pipe.tx_margin,
            i_TXPD=pipe.powerdown,
            i_RXPD=pipe.powerdown,
            i_RXPOLARITY=pipe.rx_polarity,
            o_RXDATA=Cat(pipe.rx_data, Signal(16)),
            o_RXCHARISK=Cat(pipe.rx_char_is_k, Signal(2)),
            o_RXVALID=pipe.rx_valid,
            o_RXELECIDLE=pipe.rx_elec_idle,
            o_RXSTATUS=pipe.rx_status,
            o_RXCHANISALIGNED=pipe.rx_aligned,
            o_PHYSTATUS=pipe.phystatus,
            i_TXDLYSRESET=self.phase.dlysreset,
            i_TXPHINIT=self.phase.phinit,
            i_TXPHALIGN=self.phase.phalign,
            i_TXDLYEN=self.phase.dlyen,
            o_TXDLYSRESETDONE=self.phase.dlysreset_done,
            o_TXPHINITDONE=self.phase.phinit_done,
            o_TXPHALIGNDONE=self.phase.phalign_done,
            i_DRPCLK=ClockSignal("drp"),
            i_DRPEN=self.drp.en,
            i_DRPWE=self.drp.we,
            i_DRPADDR=self.drp.addr,
            i_DRPDI=self.drp.di,
            o_DRPDO=self.drp.do,
            o_DRPRDY=self.drp.rdy,
        )
        return m
