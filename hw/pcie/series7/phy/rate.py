# SPDX-License-Identifier: BSD-2-Clause
"""Rate changes between Gen1 and Gen2: 2.5 and 5 GT/s, PIPE clocks of 125 and 250 MHz."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .synchronise import synchronised

__all__ = ["DRAIN_CYCLES", "RateChange"]

#: Cycles from the last word at TXDATA to its last bit on the wire, with margin (UG482, TX latency);
#: a power of two.
DRAIN_CYCLES = 16


class RateChange(wiring.Component):
    """Sequence of a rate change, which the PCIe block asks for and the transceiver executes.

    1. Wait until the last word is sent; switch the PIPE clock, which is this component's clock.
    2. Set the receiver to 16 bits and give the transceiver its new rate.
    3. When the transceiver has put its receiver into reset, set the receiver back to 20 bits.
    4. Wait for TXRATEDONE, RXRATEDONE and PHYSTATUS, in any order.
    5. Align the transmitter.

    Members
    -------
    rate : In(1)
        The rate that the PCIe block requests: 1 is Gen2.
    enable : In(1)
        The transceiver is up.
    clock_select : Out(1)
        1 is 250 MHz.
    gt_rate : Out(3)
        TXRATE and RXRATE: 0 selects the divider of the parameters, which is 2; 1 divides by 1.
    rx_pma_reset_done : In(1)
        Asynchronous.
    tx_rate_done, rx_rate_done, phystatus : In(1)
        Pulses, synchronous to this clock.
    width_request, width_narrow, width_done, align_request, align_done
        As in `hw.pcie.series7.phy.reset.ResetSequence`.
    done : Out(1)
        High for one cycle after a change.
    idle : Out(1)
        No change is in progress.
    """

    rate: In(1)
    enable: In(1)
    clock_select: Out(1)
    gt_rate: Out(3)
    rx_pma_reset_done: In(1)
    tx_rate_done: In(1)
    rx_rate_done: In(1)
    phystatus: In(1)
    width_request: Out(1)
    width_narrow: Out(1)
    width_done: In(1)
    align_request: Out(1)
    align_done: In(1)
    done: Out(1)
    idle: Out(1)

    def elaborate(self, platform):
        m = Module()
        pma_done = synchronised(m, self.rx_pma_reset_done, init=1)
        width_done = synchronised(m, self.width_done)
        # From 1, so that its highest bit says that it is over: a comparison is long at 250 MHz.
        drained = Signal(range(DRAIN_CYCLES + 1))
        answers = Signal(3)
        new = Signal(3)
        m.d.comb += new.eq(Cat(self.tx_rate_done, self.rx_rate_done, self.phystatus))
        m.d.sync += answers.eq(answers | new)
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += drained.eq(1)
                with m.If(self.enable & (self.rate != self.clock_select)):
                    m.next = "Drain"
            with m.State("Drain"):
                m.d.sync += drained.eq(drained + 1)
                with m.If(drained[-1]):
                    m.d.sync += self.clock_select.eq(self.rate)
                    m.next = "Narrow-Start"
            with m.State("Narrow-Start"):
                m.d.sync += [self.width_narrow.eq(1), self.width_request.eq(1)]
                m.next = "Narrow"
            with m.State("Narrow"):
                with m.If(width_done):
                    m.d.sync += [
                        self.width_request.eq(0),
                        self.gt_rate.eq(self.clock_select),
                        answers.eq(0),
                    ]
                    m.next = "PMA-Down"
            with m.State("PMA-Down"):
                with m.If(~pma_done & ~width_done):
                    m.d.sync += [self.width_narrow.eq(0), self.width_request.eq(1)]
                    m.next = "Widen"
            with m.State("Widen"):
                with m.If(width_done):
                    m.d.sync += self.width_request.eq(0)
                    m.next = "Answers"
            with m.State("Answers"):
                with m.If(answers.all() & ~width_done):
                    m.d.sync += self.align_request.eq(1)
                    m.next = "Align"
            with m.State("Align"):
                with m.If(self.align_done):
                    m.d.sync += self.align_request.eq(0)
                    m.next = "Done"
            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                m.next = "Idle"
        return m
