# SPDX-License-Identifier: BSD-2-Clause
"""The IRQ block: enables, requests, vectors, and the messages they turn into.

A request is source AND enable. INTx follows the OR of all requests; MSI sends one message for
each rising edge of a request, so a driver that masks, handles and unmasks gets a message for what
came in between. A source that is cleared goes low for at least one cycle (the channels see to
it), so an event that coincides with a clear still makes an edge.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .csr import BusSignature, RegisterBank
from .seam import InterruptRequest

__all__ = ["USER_INTERRUPTS", "InterruptBlock"]

USER_INTERRUPTS = 16


class InterruptBlock(wiring.Component):
    """Turns channel and user sources into INTx or MSI messages.

    Parameters
    ----------
    channels : int
        Channel sources, H2C channels from bit 0, then C2H channels; at most 8.

    Members
    -------
    bus : In(BusSignature)
    channel, user : In
        Level sources.
    msi_enable, msi_granted, msix_enable, intx_disable, bus_master : In
        As in `hw.seam.LinkState`. MSI-X on silences INTx and MSI.
    interrupt : Out(stream of InterruptRequest)
    """

    def __init__(self, channels: int):
        if not 1 <= channels <= 8:
            raise ValueError(f"channels must be 1 to 8, not {channels}")
        self._channels = channels
        super().__init__(
            {
                "bus": In(BusSignature()),
                "channel": In(channels),
                "user": In(USER_INTERRUPTS),
                "msi_enable": In(1),
                "msi_granted": In(3),
                "msix_enable": In(1),
                "intx_disable": In(1),
                "bus_master": In(1),
                "interrupt": Out(stream.Signature(InterruptRequest)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = csr = RegisterBank(regs.IRQ, bar=regs.BAR_DMA[0])
        wiring.connect(m, wiring.flipped(self.bus), csr.bus)

        sources = Cat(self.channel, self.user)
        enables = Cat(csr.channel_enable[: self._channels], csr.user_enable[:USER_INTERRUPTS])
        count = self._channels + USER_INTERRUPTS
        request = Signal(count)
        before = Signal(count)
        m.d.comb += [
            request.eq(sources & enables),
            csr.identifier.eq(regs.identifier(2)),
            csr.channel_request.eq(request[: self._channels]),
            csr.user_request.eq(request[self._channels :]),
            csr.channel_pending.eq(self.channel),
            csr.user_pending.eq(self.user),
        ]

        msi = Signal()
        m.d.comb += msi.eq(self.msi_enable & ~self.msix_enable)
        pending = Signal(count)
        sent = Signal(count)
        # Edges count from the moment MSI is on: what is requested by then gives a message.
        m.d.sync += [
            before.eq(Mux(msi, request, 0)),
            pending.eq(Mux(msi, (pending & ~sent) | (request & ~before), 0)),
        ]

        vectors = Array(
            [self._vector(csr, "channel", n) for n in range(self._channels)]
            + [self._vector(csr, "user", n) for n in range(USER_INTERRUPTS)]
        )
        chosen = Signal(range(count))
        for n in reversed(range(count)):
            with m.If(pending[n]):
                m.d.comb += chosen.eq(n)
        granted_mask = Signal(5)
        m.d.comb += granted_mask.eq((1 << self.msi_granted) - 1)

        asserted = Signal()
        wanted = Signal()
        m.d.comb += wanted.eq(request.any() & ~self.intx_disable)
        out = self.interrupt
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(~out.valid):
            m.d.sync += [
                out.payload.msi.eq(msi),
                out.payload.asserted.eq(wanted),
                out.payload.vector.eq(vectors[chosen] & granted_mask),
            ]
            with m.If(msi):
                with m.If(pending.any() & self.bus_master):
                    m.d.sync += out.valid.eq(1)
                    m.d.comb += sent.eq(1 << chosen)
            with m.Elif(~self.msix_enable & ~self.msi_enable & (wanted != asserted)):
                m.d.sync += [out.valid.eq(1), asserted.eq(wanted)]
        # Enabling MSI ends INTx without a message: the block would send it as an MSI.
        with m.If(self.msi_enable | self.msix_enable):
            m.d.sync += asserted.eq(0)
        return m

    @staticmethod
    def _vector(csr, name, number):
        register = getattr(csr, f"{name}_vector{number // 4}")
        return register[8 * (number % 4) : 8 * (number % 4) + 5]
