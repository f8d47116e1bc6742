# SPDX-License-Identifier: BSD-2-Clause
"""The PIPE interface between transceiver and PCIe block."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FROM_BLOCK", "TO_BLOCK", "VALID_CYCLES", "OobClock", "Pipe", "PipeSignature"]

#: Cycles that RXVALID must be steady and without errors before it is passed to the PCIe block: at
#: the end of an electrical idle the receiver finds commas in noise.
VALID_CYCLES = 16

#: PIPE signals of one lane (PHY Interface for PCI Express 2.00) and what they are at reset.
FROM_BLOCK = {
    "tx_data": (16, 0),
    "tx_char_is_k": (2, 0),
    "tx_elec_idle": (1, 1),
    "tx_compliance": (1, 0),
    "tx_detect_rx": (1, 0),
    "tx_deemph": (1, 0),
    "tx_margin": (3, 0),
    "powerdown": (2, 2),  # P1, where a transceiver waits after reset
    "rx_polarity": (1, 0),
}
TO_BLOCK = {
    "rx_data": (16, 0),
    "rx_char_is_k": (2, 0),
    "rx_valid": (1, 0),
    "rx_elec_idle": (1, 1),
    "rx_status": (3, 0),
    "rx_aligned": (1, 0),
    "phystatus": (1, 1),
}


class PipeSignature(wiring.Signature):
    """PIPE of one lane, seen from the PCIe block."""

    def __init__(self):
        members = {name: Out(width, init=init) for name, (width, init) in FROM_BLOCK.items()}
        members |= {name: In(width, init=init) for name, (width, init) in TO_BLOCK.items()}
        super().__init__(members)


class Pipe(wiring.Component):
    """One register in each direction, and PHYSTATUS as the sequences require it.

    Transceiver and PCIe block are far apart on the die; with a register between them each path has
    a whole period. RXVALID is passed on once it has been steady for `VALID_CYCLES` without an error
    in RXSTATUS; errors after that are the block's to count. PHYSTATUS is 1 until the transceiver is
    up, which holds the PCIe block in its Detect state. During a rate change RXVALID is 0, for the
    receiver is in reset, and the transceiver's own PHYSTATUS is masked; a pulse of one cycle ends
    the change.

    Members
    -------
    block : In(PipeSignature), gt : Out(PipeSignature)
        Towards the PCIe block and towards the transceiver. All of it is synchronous.
    ready : In(1)
        The reset sequence has finished.
    rate_idle, rate_done : In(1)
        No rate change is in progress; pulses at the end of one.
    """

    block: In(PipeSignature())
    gt: Out(PipeSignature())
    ready: In(1)
    rate_idle: In(1)
    rate_done: In(1)

    def elaborate(self, platform):
        m = Module()
        gt, block = self.gt, self.block
        for name in FROM_BLOCK:
            m.d.sync += getattr(gt, name).eq(getattr(block, name))
        for name in ("rx_data", "rx_char_is_k", "rx_elec_idle", "rx_status", "rx_aligned"):
            m.d.sync += getattr(block, name).eq(getattr(gt, name))

        valid, error = self.rate_idle & gt.rx_valid, gt.rx_status[2]
        count = Signal(range(VALID_CYCLES + 1))
        steady = count == VALID_CYCLES
        with m.If(~valid | (error & ~steady)):
            m.d.sync += count.eq(0)
        with m.Elif(~steady):
            m.d.sync += count.eq(count + 1)
        m.d.sync += [
            block.rx_valid.eq(self.ready & valid & steady),
            block.phystatus.eq(~self.ready | (self.rate_idle & gt.phystatus) | self.rate_done),
        ]
        return m


class OobClock(wiring.Component):
    """Divides the PIPE clock to 62.5 MHz for the transceiver's electrical idle detector.

    Members
    -------
    fast : In(1)
        The PIPE clock has 250 MHz instead of 125.
    clock : Out(1)
    """

    fast: In(1)
    clock: Out(1)

    def elaborate(self, platform):
        m = Module()
        count = Signal(2)
        m.d.sync += [count.eq(count + 1), self.clock.eq(Mux(self.fast, count[1], count[0]))]
        return m
