# SPDX-License-Identifier: BSD-2-Clause
"""Adapter from the seam to the transaction ports of the Xilinx 7-series block `PCIE_2_1`.

completion ─┐                                               ┌─▶ target
            ├─▶ Transmitter ─▶ trnt…        trnr… ─▶ Receiver
requester ──┘        └─▶ sent                               └─▶ requester_completion
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...seam import InterruptRequest, SeamSignature
from .ports import TRN_PORTS
from .receive import Receiver
from .transmit import Transmitter

__all__ = ["Series7Adapter"]

#: Flow control information select: transmit credits available.
FC_TRANSMIT_AVAILABLE = 4


class Series7Adapter(wiring.Component):
    """The seam on one side, the ports of `hw.pcie.series7.ports.TRN_PORTS` on the other.

    Latency: 1 cycle from `requester` or `completion` to `trntd`, 1 or 2 from `trnrd` to `target`
    or `requester_completion` (see `Transmitter` and `Receiver`). `link` is not registered here.
    Interrupts go one at a time, each held until the block takes it. ECRC errors are the block's
    to report; its receive-side check does not keep a TLP back.
    """

    def __init__(self):
        flow = {"i": In, "o": Out}
        super().__init__(
            {"seam": In(SeamSignature())}
            | {port.name: flow[port.direction](port.width) for port in TRN_PORTS}
        )

    def elaborate(self, platform):
        m = Module()
        seam = self.seam

        requester_id = Signal(16)
        with m.If(~self.cfgmsgreceived):
            m.d.sync += requester_id.eq(self.cfgmsgdata)

        m.submodules.transmitter = transmitter = Transmitter()
        wiring.connect(m, transmitter.requester, wiring.flipped(seam.requester))
        wiring.connect(m, transmitter.completion, wiring.flipped(seam.completion))
        wiring.connect(m, transmitter.sent, wiring.flipped(seam.sent))
        beat = transmitter.tlp.payload
        m.d.comb += [
            transmitter.requester_id.eq(requester_id),
            transmitter.tlp.ready.eq(self.trntdstrdy),
            self.trntsrcrdy.eq(transmitter.tlp.valid),
            self.trntd.eq(beat.data),
            self.trntrem.eq(beat.rem),
            self.trntsof.eq(beat.sof),
            self.trnteof.eq(beat.eof),
            self.trntcfggnt.eq(1),
        ]

        m.submodules.receiver = receiver = Receiver()
        wiring.connect(m, receiver.target, wiring.flipped(seam.target))
        wiring.connect(m, receiver.completion, wiring.flipped(seam.requester_completion))
        m.d.comb += [
            receiver.data.eq(self.trnrd),
            receiver.sof.eq(self.trnrsof),
            receiver.valid.eq(self.trnrsrcrdy),
            receiver.discontinued.eq(self.trnrsrcdsc),
            receiver.error.eq(self.trnrerrfwd),
            receiver.bar_hit.eq(self.trnrbarhit),
            self.trnrdstrdy.eq(1),
            self.trnrfcpret.eq(1),
            self.trnrnpok.eq(seam.target_np_ok),
        ]

        link = seam.link
        m.d.comb += [
            self.trnfcsel.eq(FC_TRANSMIT_AVAILABLE),
            link.link_up.eq(self.trnlnkup),
            link.bus_master.eq(self.cfgcommandbusmasterenable),
            link.intx_disable.eq(self.cfgcommandinterruptdisable),
            link.msi_enable.eq(self.cfginterruptmsienable),
            link.msi_granted.eq(self.cfginterruptmmenable),
            link.msix_enable.eq(self.cfginterruptmsixenable),
            link.msix_mask.eq(self.cfginterruptmsixfm),
            link.max_payload.eq(self.cfgdevcontrolmaxpayload),
            link.max_read_request.eq(self.cfgdevcontrolmaxreadreq),
            link.rcb.eq(self.cfglinkcontrolrcb),
            link.extended_tag.eq(self.cfgdevcontrolexttagen),
            link.relaxed_ordering.eq(self.cfgdevcontrolenablero),
            link.requester_id.eq(requester_id),
            link.speed.eq(self.cfglinkstatuscurrentspeed),
            link.width.eq(self.cfglinkstatusnegotiatedwidth),
            link.tx_buffers.eq(self.trntbufav),
            link.np_headers.eq(self.trnfcnph),
        ]

        requesting = Signal()
        interrupt = Signal(InterruptRequest)
        m.d.comb += seam.interrupt.ready.eq(~requesting)
        with m.If(~requesting):
            m.d.sync += [requesting.eq(seam.interrupt.valid), interrupt.eq(seam.interrupt.payload)]
        with m.Elif(~self.cfginterruptrdyn):
            m.d.sync += requesting.eq(0)
        m.d.comb += [
            self.cfginterruptn.eq(~requesting),
            self.cfginterruptassertn.eq(interrupt.msi | ~interrupt.asserted),
            self.cfginterruptdi.eq(Mux(interrupt.msi, interrupt.vector, 0)),
            self.cfginterruptstatn.eq(1),
        ]

        # Idle is 1, in reset too: a pulse there would be logged as an error.
        for port, event in (
            (self.cfgtrnpendingn, seam.reads_pending),
            (self.cfgerrcpltimeoutn, seam.timed_out),
            (self.cfgerrcplunexpectn, seam.unexpected),
        ):
            idle = Signal(init=1)
            m.d.sync += idle.eq(~event)
            m.d.comb += port.eq(idle)
        return m
