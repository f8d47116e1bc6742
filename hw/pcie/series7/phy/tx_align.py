# SPDX-License-Identifier: BSD-2-Clause
"""Phase alignment of the transmitter's clocks, which have no buffer between them."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .synchronise import rose, synchronised

__all__ = ["TxAlign", "TxPhaseSignature"]


class TxPhaseSignature(wiring.Signature):
    """The transceiver's ports for manual phase alignment of its transmitter, seen from `TxAlign`.

    TXDLYSRESET, TXPHINIT, TXPHALIGN and TXDLYEN, and the answers to the first three, which are
    asynchronous.
    """

    def __init__(self):
        super().__init__(
            {
                "dlysreset": Out(1),
                "phinit": Out(1),
                "phalign": Out(1),
                "dlyen": Out(1),
                "dlysreset_done": In(1),
                "phinit_done": In(1),
                "phalign_done": In(1),
            }
        )


class TxAlign(wiring.Component):
    """Manual phase alignment of one lane (UG482, TX buffer bypass).

    The steps are delay reset, phase initialisation, phase alignment and delay alignment. Each
    request is held until its answer rises. Delay alignment stays on, so that the delay tracks
    voltage and temperature.

    Members
    -------
    request : In(1), done : Out(1)
        Four-phase handshake, as of `hw.pcie.series7.phy.rx_width.RxWidth`.
    phase : Out(TxPhaseSignature)
    """

    request: In(1)
    done: Out(1)
    phase: Out(TxPhaseSignature())

    def elaborate(self, platform):
        m = Module()
        phase = self.phase
        answers = [
            rose(m, synchronised(m, signal))
            for signal in (phase.dlysreset_done, phase.phinit_done, phase.phalign_done)
        ]
        dlysreset_done, phinit_done, phalign_done = answers
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.request):
                    m.d.sync += [phase.dlyen.eq(0), phase.dlysreset.eq(1)]
                    m.next = "Delay-Reset"
            with m.State("Delay-Reset"):
                with m.If(dlysreset_done):
                    m.d.sync += [phase.dlysreset.eq(0), phase.phinit.eq(1)]
                    m.next = "Phase-Init"
            with m.State("Phase-Init"):
                with m.If(phinit_done):
                    m.d.sync += [phase.phinit.eq(0), phase.phalign.eq(1)]
                    m.next = "Phase-Align"
            with m.State("Phase-Align"):
                with m.If(phalign_done):
                    m.d.sync += [phase.phalign.eq(0), phase.dlyen.eq(1)]
                    m.next = "Delay-Align"
            with m.State("Delay-Align"):
                with m.If(phalign_done):
                    m.next = "Done"
            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                with m.If(~self.request):
                    m.next = "Idle"
        return m
