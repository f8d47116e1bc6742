# SPDX-License-Identifier: BSD-2-Clause
"""The IRQ block: enables, requests, vectors, and the messages they turn into.

A request is source AND enable. INTx follows the OR of all requests. MSI and MSI-X send one message
for each rising edge of a request, so a driver that masks, handles and unmasks gets a message for
what came in between. Channels hold a source that is cleared low for at least one cycle, so an event
that coincides with a clear still makes an edge. A request that falls in the cycle before its
message is sent, or earlier, withdraws it: software has seen what it was for.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..registers.bank import RegisterBank
from ..registers.bus import BusFanOut, BusSignature
from ..seam import InterruptRequest, LinkState
from ..write.record_writer import RecordSignature
from .edges import EdgeTracker
from .msix import MsixTable, entry_word

__all__ = ["USER_INTERRUPTS", "InterruptBlock"]

USER_INTERRUPTS = 16


class InterruptBlock(wiring.Component):
    """Turns channel and user sources into INTx, MSI or MSI-X.

    Without contention a channel's message is offered one cycle after its request rose, an MSI-X
    message of a user source three cycles, an MSI of one four; a change of INTx one. Messages wait
    while Bus Master is off, and those of masked vectors in the pending bits; among those that can
    go the lowest source comes first.

    Parameters
    ----------
    channels : int
        Channel sources, H2C channels from bit 0, then C2H channels; at most 8.

    Members
    -------
    bus : In(BusSignature)
    channel, user : In
        Level sources.
    link : In(LinkState)
        MSI-X on silences INTx and MSI.
    interrupt : Out(stream of InterruptRequest)
        INTx and MSI.
    records : Out(RecordSignature)
        MSI-X. A message is withdrawn if its request falls, if the function is masked, and while
        Bus Master is off. It is not sent if its vector is found masked when it is taken, and sent
        again if it is dropped.
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
                "link": In(LinkState),
                "interrupt": Out(stream.Signature(InterruptRequest)),
                "records": Out(RecordSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        link = self.link
        m.submodules.registers = csr = RegisterBank(regs.IRQ, bar=regs.BAR_DMA[0], in_file=True)
        m.submodules.table = table = MsixTable()
        m.submodules.fan_out = fan_out = BusFanOut(2, registered=False)
        wiring.connect(m, wiring.flipped(self.bus), fan_out.bus)
        wiring.connect(m, fan_out.targets[0], csr.bus)
        wiring.connect(m, fan_out.targets[1], table.bus)

        sources = Cat(self.channel, self.user)
        enables = Cat(csr.channel_enable[: self._channels], csr.user_enable[:USER_INTERRUPTS])
        count = self._channels + USER_INTERRUPTS
        m.submodules.edges = edges = EdgeTracker(count, early=self._channels)
        request, picked = edges.request, edges.picked
        m.d.comb += [
            request.eq(sources & enables),
            csr.identifier.eq(regs.identifier(2)),
            csr.channel_request.eq(request[: self._channels]),
            csr.user_request.eq(request[self._channels :]),
            csr.channel_pending.eq(self.channel),
            csr.user_pending.eq(self.user),
        ]

        mask_before, changed, written = Signal(), Signal(), Signal()
        m.d.sync += mask_before.eq(link.msix_mask)
        m.d.comb += [
            edges.enabled.eq(link.msi_enable | link.msix_enable),
            table.pend.eq(edges.masked),
            # Pending bits stand for vectors that sources had, when they had them.
            written.eq(self._vectors_written(csr)),
            table.clear.eq(~link.msix_enable | written),
            # On any change that may let a deferred message go, all are looked at again. So they are
            # when one was taken back: another source may have the same vector, and its pending bit.
            changed.eq(table.clear | table.changed | (link.msix_mask != mask_before)),
            edges.recheck.eq(changed | edges.settled),
        ]

        vectors = [self._vector(csr, "channel", n) for n in range(self._channels)]
        vectors += [self._vector(csr, "user", n) for n in range(USER_INTERRUPTS)]
        vector = Signal.like(table.vector)
        for bit, each in zip(picked, vectors, strict=True):
            with m.If(bit):
                m.d.comb += vector.eq(each)

        asserted = Signal()
        wanted = Signal()
        m.d.comb += wanted.eq(request.any() & ~link.intx_disable)
        out, message = self.interrupt, self.records.record
        granted_mask = Signal(5)
        m.d.comb += [
            granted_mask.eq((1 << link.msi_granted) - 1),
            message.payload.where.eq(entry_word(table.vector, 0)),
            message.payload.what.eq(entry_word(table.vector, 1)),
            message.payload.message.eq(1),
        ]
        known, may_send = Signal.like(table.vector), Signal()
        m.d.comb += may_send.eq(link.msi_enable & link.bus_master & ~out.valid)
        for number in reversed(range(self._channels)):
            with m.If(edges.alone[number]):
                m.d.comb += known.eq(vectors[number])

        def send(vector):
            m.d.sync += [
                out.valid.eq(1),
                out.payload.msi.eq(1),
                out.payload.vector.eq(vector & granted_mask),
            ]

        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.FSM():
            with m.State("Pick"):
                m.d.sync += picked.eq(edges.ready & -edges.ready)  # the lowest
                # With nothing but edges of channels, the lowest one's vector is known at once,
                # unless it may just be written.
                m.d.sync += table.vector.eq(known)
                with m.If(edges.alone.any() & ~written):
                    with m.If(may_send & ~link.msix_enable):
                        send(known)
                        m.d.comb += edges.gone.eq(1)
                    with m.Else():
                        m.d.comb += edges.chosen.eq(1)
                        m.next = "Offer"
                with m.Elif(edges.ready.any()):
                    m.next = "Vector"
            with m.State("Vector"):
                m.d.sync += table.vector.eq(vector)
                m.next = "Offer"
            with m.State("Offer"):
                with m.If(~edges.alive):
                    m.d.comb += [edges.settled.eq(1), table.settle.eq(1)]
                    m.next = "Pick"
                with m.Elif(~link.msix_enable):
                    with m.If(may_send):
                        send(table.vector)
                        m.d.comb += edges.sent.eq(1)
                        m.next = "Pick"
                with m.Elif(link.msix_mask):
                    m.d.comb += edges.masked.eq(~changed)
                    m.next = "Pick"
                with m.Elif(link.bus_master):
                    m.d.comb += message.valid.eq(1)
                    with m.If(message.ready & self.records.masked):
                        m.d.comb += edges.masked.eq(~changed)
                        m.next = "Pick"
                    with m.Elif(message.ready):
                        m.d.comb += [edges.sent.eq(1), table.settle.eq(1)]
                        m.next = "Wait"
            with m.State("Wait"):
                with m.If(self.records.done):
                    m.d.comb += edges.lost.eq(self.records.dropped)
                    m.next = "Pick"
        with m.If(link.msi_enable | link.msix_enable):
            # Enabling messages ends INTx without a request: the block would send that as an MSI.
            m.d.sync += asserted.eq(0)
        with m.Elif(~out.valid & (wanted != asserted)):
            m.d.sync += [
                asserted.eq(wanted),
                out.valid.eq(1),
                out.payload.msi.eq(0),
                out.payload.asserted.eq(wanted),
            ]
        return m

    def _vectors_written(self, csr):
        written = {
            f"{name}_vector{number // 4}_strobe"
            for name, count in (("channel", self._channels), ("user", USER_INTERRUPTS))
            for number in range(count)
        }
        return Cat(getattr(csr, strobe) for strobe in sorted(written)).any()

    @staticmethod
    def _vector(csr, name, number):
        register = getattr(csr, f"{name}_vector{number // 4}")
        return register[8 * (number % 4) : 8 * (number % 4) + 5]
