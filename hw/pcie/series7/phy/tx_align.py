# SPDX-License-Identifier: BSD-2-Clause
"""Aligns the transmitter's clocks: its buffer is bypassed, so nothing else takes up their phase."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .synchronise import rose, synchronised

__all__ = ["TxAlign"]


class TxAlign(wiring.Component):
    """The manual phase alignment of one lane (UG482, TX buffer bypass).

    Delay reset, phase initialisation, phase alignment, delay alignment: each is held until the
    transceiver answers with a rising edge. The last stays on, so that the delay follows voltage
    and temperature.

    Members
    -------
    request : In(1), done : Out(1)
        Four-phase, as `hw.pcie.series7.phy.rx_width.RxWidth`.
    dlysreset, phinit, phalign, dlyen : Out(1)
        TXDLYSRESET, TXPHINIT, TXPHALIGN, TXDLYEN.
    dlysreset_done, phinit_done, phalign_done : In(1)
        Asynchronous answers.
    """

    request: In(1)
    done: Out(1)
    dlysreset: Out(1)
    phinit: Out(1)
    phalign: Out(1)
    dlyen: Out(1)
    dlysreset_done: In(1)
    phinit_done: In(1)
    phalign_done: In(1)

    def elaborate(self, platform):
        m = Module()
        answers = [
            rose(m, synchronised(m, signal))
            for signal in (self.dlysreset_done, self.phinit_done, self.phalign_done)
        ]
        dlysreset_done, phinit_done, phalign_done = answers
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.request):
                    m.d.sync += [self.dlyen.eq(0), self.dlysreset.eq(1)]
                    m.next = "Delay-Reset"
            with m.State("Delay-Reset"):
                with m.If(dlysreset_done):
                    m.d.sync += [self.dlysreset.eq(0), self.phinit.eq(1)]
                    m.next = "Phase-Init"
            with m.State("Phase-Init"):
                with m.If(phinit_done):
                    m.d.sync += [self.phinit.eq(0), self.phalign.eq(1)]
                    m.next = "Phase-Align"
            with m.State("Phase-Align"):
                with m.If(phalign_done):
                    m.d.sync += [self.phalign.eq(0), self.dlyen.eq(1)]
                    m.next = "Delay-Align"
            with m.State("Delay-Align"):
                with m.If(phalign_done):
                    m.next = "Done"
            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                with m.If(~self.request):
                    m.next = "Idle"
        return m
