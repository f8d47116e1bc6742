# SPDX-License-Identifier: BSD-2-Clause
"""Adapter from the seam to the transaction ports of the Xilinx 7-series block `PCIE_2_1`.

completion ─┐                                               ┌─▶ target
            ├─▶ Transmitter ─▶ trnt…        trnr… ─▶ Receiver
requester ──┘        └─▶ sent                               └─▶ requester_completion
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...seam import SeamSignature
from ..interface import PortsSignature
from ..tlp import Dword0
from .block import SERIES7
from .port_lag import PortLag
from .ports import TRN_PORTS
from .receive import Receiver
from .transmit import Transmitter
from .window import WriteWindow

__all__ = ["Series7Adapter"]

#: Flow control information select: transmit credits available.
FC_TRANSMIT_AVAILABLE = 4


class Series7Adapter(wiring.Component):
    """The seam on one side, the ports of the PCIe block on the other.

    Latency: 1 cycle from `requester` or `completion` to `trntd`, 1 or 2 from `trnrd` to `target`
    or `requester_completion` (see `Transmitter` and `Receiver`), none from `interrupt` to
    `cfginterruptn`. `link` is not registered here. One interrupt request is outstanding at a time,
    and held until the block takes it. The block reports ECRC errors itself; a TLP with one is
    passed on all the same.

    Parameters
    ----------
    clock_khz : int
    overcommit : bool
        As for `hw.seam.SeamSignature`.

    Members
    -------
    seam : In(SeamSignature)
    trn : Out(PortsSignature)
        `TRN_PORTS`.

    Raises
    ------
    ValueError
        If the block's parameters say that its ports have not 64 bits, or if with `overcommit` its
        receive port is too slow.
    """

    def __init__(self, clock_khz: int, *, overcommit: bool = False):
        if SERIES7.width != 64:
            raise ValueError(f"the adapter is for TRN ports of 64 bits, not {SERIES7.width}")
        self._clock_khz = clock_khz
        self._port_lag = PortLag(SERIES7, clock_khz) if overcommit else None
        super().__init__(
            {
                "seam": In(SeamSignature(SERIES7, overcommit=overcommit)),
                "trn": Out(PortsSignature(TRN_PORTS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        seam, trn = self.seam, self.trn

        requester_id = Signal(16)
        with m.If(~trn.cfgmsgreceived):
            m.d.sync += requester_id.eq(trn.cfgmsgdata)

        m.submodules.transmitter = transmitter = Transmitter(SERIES7.drop_lag)
        wiring.connect(m, transmitter.requester, wiring.flipped(seam.requester))
        wiring.connect(m, transmitter.completion, wiring.flipped(seam.completion))
        wiring.connect(m, transmitter.sent, wiring.flipped(seam.sent))
        beat = transmitter.tlp.payload
        m.d.comb += [
            transmitter.requester_id.eq(requester_id),
            transmitter.drop.eq(trn.trnterrdrop),
            transmitter.tlp.ready.eq(trn.trntdstrdy),
            trn.trntsrcrdy.eq(transmitter.tlp.valid),
            trn.trntd.eq(beat.data),
            trn.trntrem.eq(beat.rem),
            trn.trntsof.eq(beat.sof),
            trn.trnteof.eq(beat.eof),
            trn.trntcfggnt.eq(1),
        ]

        m.submodules.window = window = WriteWindow(self._clock_khz)
        m.d.comb += [
            window.link_up.eq(trn.trnlnkup),
            window.speed.eq(trn.cfglinkstatuscurrentspeed),
            window.lanes.eq(trn.cfglinkstatusnegotiatedwidth),
            window.beat.eq(transmitter.tlp.valid & transmitter.tlp.ready),
            window.first.eq(beat.sof),
            window.last.eq(beat.eof),
            window.payload.eq(Dword0(beat.data[32:]).with_data),
            window.free.eq(trn.trntbufav),
        ]

        m.submodules.receiver = receiver = Receiver()
        wiring.connect(m, receiver.target, wiring.flipped(seam.target))
        wiring.connect(m, receiver.completion, wiring.flipped(seam.requester_completion))
        m.d.comb += [
            receiver.data.eq(trn.trnrd),
            receiver.sof.eq(trn.trnrsof),
            receiver.valid.eq(trn.trnrsrcrdy),
            receiver.discontinued.eq(trn.trnrsrcdsc),
            receiver.error.eq(trn.trnrerrfwd),
            receiver.bar_hit.eq(trn.trnrbarhit),
            trn.trnrdstrdy.eq(1),
            trn.trnrfcpret.eq(1),
            trn.trnrnpok.eq(seam.target_np_ok),
        ]

        if self._port_lag:
            m.submodules.port_lag = lag = self._port_lag
            m.d.comb += [
                lag.dword0.eq(trn.trnrd[32:]),
                lag.valid.eq(trn.trnrsrcrdy),
                lag.first.eq(trn.trnrsof),
                lag.last.eq(trn.trnreof),
                lag.whole.eq(trn.trnrrem),
                lag.discontinued.eq(trn.trnrsrcdsc),
                seam.behind.eq(lag.behind),
            ]

        link = seam.link
        m.d.comb += [
            trn.trnfcsel.eq(FC_TRANSMIT_AVAILABLE),
            link.link_up.eq(trn.trnlnkup),
            link.bus_master.eq(trn.cfgcommandbusmasterenable),
            link.intx_disable.eq(trn.cfgcommandinterruptdisable),
            link.msi_enable.eq(trn.cfginterruptmsienable),
            link.msi_granted.eq(trn.cfginterruptmmenable),
            link.msix_enable.eq(trn.cfginterruptmsixenable),
            link.msix_mask.eq(trn.cfginterruptmsixfm),
            link.max_payload.eq(trn.cfgdevcontrolmaxpayload),
            link.max_read_request.eq(trn.cfgdevcontrolmaxreadreq),
            link.rcb.eq(trn.cfglinkcontrolrcb),
            link.extended_tag.eq(trn.cfgdevcontrolexttagen),
            link.relaxed_ordering.eq(trn.cfgdevcontrolenablero),
            link.requester_id.eq(requester_id),
            # The block has the low bits of both fields of Link Status; its higher bits would be 0.
            link.speed.eq(trn.cfglinkstatuscurrentspeed),
            link.width.eq(trn.cfglinkstatusnegotiatedwidth),
            link.read_room.eq(window.read),
            link.write_room.eq(window.write),
            link.np_headers.eq(trn.trnfcnph),
        ]

        # The block gets a cycle without a request behind each that it has taken.
        interrupt, requesting, taken = seam.interrupt.payload, Signal(), Signal()
        m.d.sync += taken.eq(seam.interrupt.ready)
        m.d.comb += [
            requesting.eq(seam.interrupt.valid & ~taken),
            seam.interrupt.ready.eq(requesting & ~trn.cfginterruptrdyn),
            trn.cfginterruptn.eq(~requesting),
            trn.cfginterruptassertn.eq(interrupt.msi | ~interrupt.asserted),
            trn.cfginterruptdi.eq(Mux(interrupt.msi, interrupt.vector, 0)),
            trn.cfginterruptstatn.eq(1),
        ]

        # Inactive (1) in reset too: the block would log a pulse as an error.
        for port, event in (
            (trn.cfgtrnpendingn, seam.reads_pending),
            (trn.cfgerrcpltimeoutn, seam.timed_out),
            (trn.cfgerrcplunexpectn, seam.unexpected),
        ):
            idle = Signal(init=1)
            m.d.sync += idle.eq(~event)
            m.d.comb += port.eq(idle)
        return m
