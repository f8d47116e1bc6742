# SPDX-License-Identifier: BSD-2-Clause
"""The PCIe block PCIE_2_1 with its buffers; ports that this design does not use are tied off."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...interface import PortsSignature
from ..parameters import PARAMETERS, SERIAL_NUMBER, USER_CLOCK_CODES, Identity
from ..ports import TRN_PORTS
from .pipe import PipeSignature
from .power import TurnOff
from .tlp_buffer import TlpBuffer

__all__ = ["TIED", "PcieBlock"]

#: Bits of a word of the transmit and the receive buffer.
_TX_WIDTH, _RX_WIDTH = 69, 68

#: Widths of ports of which a 64-bit core uses the low part only.
_WIDE = {"trntd": 128, "trntrem": 2, "trnrd": 128, "trnrrem": 2, "trntdstrdy": 4}

#: PIPE ports of lane 0, and those of all lanes, by the names in `hw.pcie.series7.phy.pipe`.
_PIPE_OUT = {
    "tx_data": "PIPETX0DATA",
    "tx_char_is_k": "PIPETX0CHARISK",
    "tx_elec_idle": "PIPETX0ELECIDLE",
    "tx_compliance": "PIPETX0COMPLIANCE",
    "tx_detect_rx": "PIPETXRCVRDET",
    "tx_deemph": "PIPETXDEEMPH",
    "tx_margin": "PIPETXMARGIN",
    "powerdown": "PIPETX0POWERDOWN",
    "rx_polarity": "PIPERX0POLARITY",
}
_PIPE_IN = {
    "rx_data": "PIPERX0DATA",
    "rx_char_is_k": "PIPERX0CHARISK",
    "rx_valid": "PIPERX0VALID",
    "rx_elec_idle": "PIPERX0ELECIDLE",
    "rx_status": "PIPERX0STATUS",
    "rx_aligned": "PIPERX0CHANISALIGNED",
    "phystatus": "PIPERX0PHYSTATUS",
}

#: Inputs that are tied off, (width, value). Active-low inputs are 1.
TIED = {
    # Resets of single layers: SYSRSTN resets the whole block.
    **dict.fromkeys(
        ("CMRSTN", "CMSTICKYRSTN", "DLRSTN", "FUNCLVLRSTN", "PLRSTN", "TLRSTN"), (1, 1)
    ),
    # No hot reset from an endpoint.
    "PLTRANSMITHOTRST": (1, 0),
    # Link speed and width are those of training: no directed changes, no forced LTSSM states.
    "PLDIRECTEDLINKAUTON": (1, 0),
    "PLDIRECTEDLINKCHANGE": (2, 0),
    "PLDIRECTEDLINKSPEED": (1, 0),
    "PLDIRECTEDLINKWIDTH": (2, 0),
    "PLDIRECTEDLTSSMNEW": (6, 0),
    "PLDIRECTEDLTSSMNEWVLD": (1, 0),
    "PLDIRECTEDLTSSMSTALL": (1, 0),
    "PLUPSTREAMPREFERDEEMPH": (1, 0),
    "PLDOWNSTREAMDEEMPHSOURCE": (1, 0),
    "PL2DIRECTEDLSTATE": (5, 0),
    # The block does link power management itself.
    "LL2SENDASREQL1": (1, 0),
    "LL2SENDENTERL1": (1, 0),
    "LL2SENDENTERL23": (1, 0),
    "LL2SENDPMACK": (1, 0),
    "LL2SUSPENDNOW": (1, 0),
    "LL2TLPRCV": (1, 0),
    "TL2ASPMSUSPENDCREDITCHECK": (1, 0),
    "TL2PPMSUSPENDREQ": (1, 0),
    "CFGPMFORCESTATE": (2, 0),
    "CFGPMFORCESTATEENN": (1, 1),
    "CFGPMHALTASPML0SN": (1, 1),
    "CFGPMHALTASPML1N": (1, 1),
    "CFGPMSENDPMETON": (1, 1),
    "CFGPMWAKEN": (1, 1),
    # The core sends no DLLPs.
    "TRNTDLLPDATA": (32, 0),
    "TRNTDLLPSRCRDY": (1, 0),
    # Errors that the core does not report here: it answers them with a completion, or counts them.
    **dict.fromkeys(
        (
            "CFGERRACSN",
            "CFGERRATOMICEGRESSBLOCKEDN",
            "CFGERRCORN",
            "CFGERRCPLABORTN",
            "CFGERRECRCN",
            "CFGERRINTERNALCORN",
            "CFGERRINTERNALUNCORN",
            "CFGERRLOCKEDN",
            "CFGERRMALFORMEDN",
            "CFGERRMCBLOCKEDN",
            "CFGERRNORECOVERYN",
            "CFGERRPOISONEDN",
            "CFGERRPOSTEDN",
            "CFGERRURN",
        ),
        (1, 1),
    ),
    "CFGERRAERHEADERLOG": (128, 0),
    "CFGERRTLPCPLHEADER": (48, 0),
    # The core does not access the configuration space.
    "CFGMGMTBYTEENN": (4, 15),
    "CFGMGMTDI": (32, 0),
    "CFGMGMTDWADDR": (10, 0),
    "CFGMGMTRDENN": (1, 1),
    "CFGMGMTWRENN": (1, 1),
    "CFGMGMTWRREADONLYN": (1, 1),
    "CFGMGMTWRRW1CASRWN": (1, 1),
    # Interrupt message numbers: vector 0. No link setting is forced.
    "CFGAERINTERRUPTMSGNUM": (5, 0),
    "CFGPCIECAPINTERRUPTMSGNUM": (5, 0),
    "CFGFORCECOMMONCLOCKOFF": (1, 0),
    "CFGFORCEEXTENDEDSYNCON": (1, 0),
    "CFGFORCEMPS": (3, 0),
    # For downstream ports and switches only.
    "CFGDSBUSNUMBER": (8, 0),
    "CFGDSDEVICENUMBER": (5, 0),
    "CFGDSFUNCTIONNUMBER": (3, 0),
    "CFGPORTNUMBER": (8, 0),
    # No reconfiguration, no debugging. The idle clock is high, as in the reference.
    "DRPADDR": (9, 0),
    "DRPCLK": (1, 1),
    "DRPDI": (16, 0),
    "DRPEN": (1, 0),
    "DRPWE": (1, 0),
    "DBGMODE": (2, 0),
    "DBGSUBMODE": (1, 0),
    "PLDBGMODE": (3, 0),
    # Lanes 1 to 7 do not exist: electrical idle.
    **{
        f"PIPERX{lane}{name}": tie
        for lane in range(1, 8)
        for name, tie in {
            "CHANISALIGNED": (1, 0),
            "CHARISK": (2, 0),
            "DATA": (16, 0),
            "ELECIDLE": (1, 1),
            "PHYSTATUS": (1, 0),
            "STATUS": (3, 0),
            "VALID": (1, 0),
        }.items()
    },
}


class PcieBlock(wiring.Component):
    """PCIE_2_1 with its buffers and the answer to PME_Turn_Off, in the user clock's domain.

    Parameters
    ----------
    identity : Identity
    clock_khz : int
        Frequency of the user clock, a key of `USER_CLOCK_CODES` in `hw.pcie.series7.parameters`.

    Members
    -------
    trn : In(PortsSignature)
    pipe : Out(PipeSignature)
        In the domain `pipe`.
    rate : Out(1)
        1 requests Gen2; in the domain `pipe`.
    ltssm : Out(6)
        PLLTSSMSTATE, by the codes of PG054; in the domain `pipe`.
    sys_reset_n : In(1)
        Asynchronous.
    user_reset_n, hot_reset : Out(1)
    """

    def __init__(self, identity: Identity = Identity(), clock_khz: int = 62_500):
        if clock_khz not in USER_CLOCK_CODES:
            raise ValueError(
                f"the user clock has {' or '.join(map(str, USER_CLOCK_CODES))} kHz, not {clock_khz}"
            )
        self._identity, self._clock_khz = identity, clock_khz
        super().__init__(
            {
                "trn": In(PortsSignature(TRN_PORTS)),
                "pipe": Out(PipeSignature()),
                "rate": Out(1),
                "ltssm": Out(6),
                "sys_reset_n": In(1),
                "user_reset_n": Out(1),
                "hot_reset": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        ports = {f"i_{name}": Const(value, width) for name, (width, value) in TIED.items()}
        for port in TRN_PORTS:
            signal = getattr(self.trn, port.name)
            width = _WIDE.get(port.name, port.width)
            if port.direction == "o":
                ports[f"i_{port.name.upper()}"] = Cat(signal, Const(0, width - port.width))
            else:
                ports[f"o_{port.name.upper()}"] = Cat(signal, Signal(width - port.width))
        ports |= {f"o_{port}": getattr(self.pipe, name) for name, port in _PIPE_OUT.items()}
        ports |= {f"i_{port}": getattr(self.pipe, name) for name, port in _PIPE_IN.items()}
        self._buffers(m, ports)

        m.submodules.turn_off = turn_off = TurnOff()
        m.d.comb += turn_off.pending_n.eq(self.trn.cfgtrnpendingn)
        ids = self._identity
        m.submodules.block = Instance(
            "PCIE_2_1",
            **{f"p_{name}": value for name, value in PARAMETERS.items()}
            | {"p_USER_CLK_FREQ": USER_CLOCK_CODES[self._clock_khz]},
            **ports,
            i_PIPECLK=ClockSignal("pipe"),
            i_USERCLK=ClockSignal(),
            i_USERCLK2=ClockSignal(),
            i_SYSRSTN=self.sys_reset_n,
            o_USERRSTN=self.user_reset_n,
            o_PLRECEIVEDHOTRST=self.hot_reset,
            o_PIPETXRATE=self.rate,
            o_PLLTSSMSTATE=self.ltssm,
            o_CFGMSGRECEIVEDPMETO=turn_off.received,
            i_CFGPMTURNOFFOKN=turn_off.ok_n,
            i_CFGVENDID=Const(ids.vendor, 16),
            i_CFGDEVID=Const(ids.device, 16),
            i_CFGSUBSYSVENDID=Const(ids.subsystem_vendor, 16),
            i_CFGSUBSYSID=Const(ids.subsystem, 16),
            i_CFGREVID=Const(ids.revision, 8),
            i_CFGDSN=Const(SERIAL_NUMBER, 64),
        )
        return m

    @staticmethod
    def _buffers(m, ports):
        for name, width in (("TX", _TX_WIDTH), ("RX", _RX_WIDTH)):
            m.submodules[f"{name.lower()}_buffer"] = buffer = TlpBuffer(width)
            spare = 13 - len(buffer.write_address)
            ports |= {
                f"o_MIM{name}WEN": buffer.write_enable,
                f"o_MIM{name}WADDR": Cat(buffer.write_address, Signal(spare)),
                f"o_MIM{name}WDATA": buffer.write_data,
                f"o_MIM{name}REN": buffer.read_enable,
                f"o_MIM{name}RADDR": Cat(buffer.read_address, Signal(spare)),
                f"i_MIM{name}RDATA": buffer.read_data,
            }
