# SPDX-License-Identifier: BSD-2-Clause
"""Electrical idle, announced by the link partner: nothing received in it reaches the PCIe block."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .pipe import FROM_BLOCK, TO_BLOCK, PipeSignature
from .synchronise import synchronised

__all__ = ["COM", "IDL", "IDLE_WITHIN", "LATENCY", "LTSSM_L0", "EiosFilter"]

#: Control symbols (PCI Express, appendix B): K28.5 begins an ordered set, K28.3 is Electrical Idle.
COM, IDL = 0xBC, 0x7C

#: PLLTSSMSTATE of the PCIe block in L0 (PG054, table of `pl_ltssm_state`; LitePCIe's LTSSM tracer
#: and the wrappers that Xilinx generates have the same code).
LTSSM_L0 = 0x16

#: Cycles in which the transceiver's detector must report electrical idle after an EIOS: 512 ns at
#: Gen1. It needs some 100 ns, and the ordered set itself waits about as long in the elastic buffer.
IDLE_WITHIN = 64

#: Cycles from the transceiver to the PCIe block, of all signals alike.
LATENCY = 2

#: What comes with a word. Electrical idle is asynchronous and goes another way.
_WORD = data.StructLayout(
    {name: width for name, (width, _) in TO_BLOCK.items() if name != "rx_elec_idle"}
)
_INIT = {name: TO_BLOCK[name][1] for name, _ in _WORD}


class EiosFilter(wiring.Component):
    """Ends RXVALID behind an electrical idle ordered set (EIOS), until the link is driven again.

    A transmitter sends COM IDL IDL IDL, twice at Gen2, and then stops driving the link: on the way
    to L1, which a host enters with D3hot whether or not ASPM is on, to L0s and L2, and before a
    rate change. The receiver goes on and makes symbols of noise, which the PCIe block would count
    as errors of the link. So once COM IDL IDL, in either alignment, has passed, RXVALID and
    RXCHARISK are 0 until an electrical idle has been seen and is over. If none is seen within
    `IDLE_WITHIN` cycles, it was too short for the detector, and reception goes on then.

    This holds in every state of the LTSSM: the block may have left L0 for L1 before the partner's
    EIOS arrives. RXSTATUS, however, is cleared in L0 only, for in Detect it says whether there is a
    receiver.

    All signals to the block take `LATENCY` cycles, those from it none.

    Members
    -------
    block : In(PipeSignature), gt : Out(PipeSignature)
        Towards the PCIe block and towards the transceiver, whose RXELECIDLE is asynchronous.
    ltssm : In(6)
        PLLTSSMSTATE.
    """

    block: In(PipeSignature())
    gt: Out(PipeSignature())
    ltssm: In(6)

    def elaborate(self, platform):
        m = Module()
        gt, block = self.gt, self.block
        for name in FROM_BLOCK:
            m.d.comb += getattr(gt, name).eq(getattr(block, name))

        # Symbols are decoded between two registers, for the comparison is long at 250 MHz.
        received, word = Signal(_WORD, init=_INIT), Signal(_WORD, init=_INIT)
        for name, _ in _WORD:
            m.d.sync += received[name].eq(getattr(gt, name))
            m.d.comb += getattr(block, name).eq(word[name])
        com, idl = Signal(2), Signal(2)
        for lane in range(2):
            control = received.rx_valid & received.rx_char_is_k[lane]
            symbol = received.rx_data.word_select(lane, 8)
            m.d.sync += [com[lane].eq(control & (symbol == COM))]
            m.d.sync += [idl[lane].eq(control & (symbol == IDL))]
        com_idl, only_com, in_l0 = Signal(), Signal(), Signal()
        m.d.sync += [
            word.eq(received),
            com_idl.eq(com[0] & idl[1]),
            only_com.eq(com[1]),
            in_l0.eq(self.ltssm == LTSSM_L0),
        ]
        eios = (com_idl & idl[0]) | (only_com & idl.all())

        idle = synchronised(m, gt.rx_elec_idle, init=1)
        left = Signal(range(IDLE_WITHIN))
        silence = Signal()
        with m.FSM():
            with m.State("Pass"):
                m.d.comb += silence.eq(eios)
                m.d.sync += left.eq(IDLE_WITHIN - 1)
                with m.If(eios):
                    m.next = "Idle-Expected"
            with m.State("Idle-Expected"):
                m.d.comb += silence.eq(1)
                m.d.sync += left.eq(left - 1)
                with m.If(idle):
                    m.next = "Idle"
                with m.Elif(left == 0):
                    m.d.comb += silence.eq(0)
                    m.next = "Pass"
            with m.State("Idle"):
                m.d.comb += silence.eq(idle)
                with m.If(~idle):
                    m.next = "Pass"

        # Registers of their own, as there is more logic behind them at 250 MHz.
        silent, status_cleared = Signal(), Signal()
        m.d.sync += [silent.eq(silence), status_cleared.eq(silence & in_l0)]
        m.d.comb += block.rx_elec_idle.eq(idle)
        with m.If(silent):
            m.d.comb += [block.rx_valid.eq(0), block.rx_char_is_k.eq(0)]
        with m.If(status_cleared):
            m.d.comb += block.rx_status.eq(0)
        return m
