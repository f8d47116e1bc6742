# SPDX-License-Identifier: BSD-2-Clause
"""Adapter from the seam to the ports of the UltraScale and the UltraScale+ block.

requester ───▶ RequestTransmitter ────▶ s_axis_rq
    └─▶ SentWrites ◀── pcie_rq_seq_num
             └─▶ sent
m_axis_rc ───▶ CompletionReceiver ────▶ requester_completion
m_axis_cq ───▶ RequestReceiver ───────▶ target
completion ──▶ CompletionTransmitter ─▶ s_axis_cc
cfg_mgmt ────▶ DeviceControl ──────────▶ link
cfg_flr ─────▶ FunctionReset ──────────▶ function_reset
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...parts.reset import Resets
from ...seam import BUS_WIDTH, SeamSignature, TargetKind
from ..interface import PortsSignature
from .credits import NonPostedCredits, ReadRoom
from .family import Family
from .interrupts import Interrupts
from .management import DeviceControl
from .ports import (
    CQ_BYTE_ENABLES,
    CQ_DISCONTINUE,
    RC_DISCONTINUE,
    RC_FLAGS,
    ports_of_block,
)
from .receive import CompletionReceiver, RequestReceiver
from .reset import FunctionReset
from .sent import SentWrites
from .transmit import CompletionTransmitter, RequestTransmitter, is_read

__all__ = ["UltraScaleAdapter"]

#: Flow control information select: transmit credits available.
_FC_TRANSMIT_AVAILABLE = 4


class UltraScaleAdapter(wiring.Component):
    """The seam on one side, the ports of the PCIe block on the other.

    Latency: 1 cycle from `requester` or `completion` to their streams for a beat of descriptor, 2
    for payload (`Transmitter`s); 1 or 2 from the streams to `target` and `requester_completion`
    (`Receiver`s). `link` is not registered here.

    The block does not show whether extended tags and relaxed ordering are enabled: `DeviceControl`
    asks it. UltraScale does not show our bus number either, and the register that has it reads 0.
    The block itself reports timeouts and unexpected completions.

    Parameters
    ----------
    family : Family
    width : int
        Bits of data of the streams.

    Members
    -------
    seam : In(SeamSignature)
    pcie : Out(PortsSignature)
        `ports_of_block`.
    """

    def __init__(self, family: Family, width: int):
        self._family, self._width = family, width
        super().__init__(
            {
                "seam": In(SeamSignature(family.block(width))),
                "pcie": Out(PortsSignature(ports_of_block(family, width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        family, width = self._family, self._width
        seam, pcie, link = self.seam, self.pcie, self.seam.link

        m.submodules.requests = requests = RequestTransmitter(width, family.rq_user)
        m.submodules.completions = completions = CompletionTransmitter(width)
        for stream, transmitter, name in (
            (seam.requester, requests, "s_axis_rq"),
            (seam.completion, completions, "s_axis_cc"),
        ):
            wiring.connect(m, wiring.flipped(stream), transmitter.i)
            beat = transmitter.o.payload
            m.d.comb += [
                self._port(name, "tdata").eq(beat.data),
                self._port(name, "tkeep").eq(beat.keep),
                self._port(name, "tlast").eq(beat.last),
                self._port(name, "tuser").eq(beat.user),
                self._port(name, "tvalid").eq(transmitter.o.valid),
                transmitter.o.ready.eq(self._port(name, "tready")),
            ]

        narrow = width == BUS_WIDTH
        m.submodules.targets = targets = RequestReceiver(width, always_ready=narrow)
        m.submodules.answers = answers = CompletionReceiver(width)
        for stream, receiver, name, cut, used in (
            (seam.target, targets, "m_axis_cq", CQ_DISCONTINUE, CQ_BYTE_ENABLES),
            (seam.requester_completion, answers, "m_axis_rc", RC_DISCONTINUE, RC_FLAGS),
        ):
            wiring.connect(m, receiver.o, wiring.flipped(stream))
            beat, user = receiver.i.payload, self._port(name, "tuser")
            m.d.comb += [
                beat.data.eq(self._port(name, "tdata")),
                beat.keep.eq(self._port(name, "tkeep")),
                beat.last.eq(self._port(name, "tlast")),
                beat.discontinued.eq(user[cut]),
                beat.user.eq(user[used]),
                receiver.i.valid.eq(self._port(name, "tvalid")),
                self._port(name, "tready").eq(receiver.i.ready),
            ]

        request = seam.requester
        m.submodules.sent = sent = SentWrites(family.sequence_bits, len(family.sequence_ports))
        wiring.connect(m, sent.sent, wiring.flipped(seam.sent))
        m.d.comb += [
            sent.write.eq(request.payload.header.write),
            sent.token.eq(request.payload.header.token),
            sent.takes.eq(request.valid & request.ready & request.payload.last & sent.write),
            sent.bus_master.eq(link.bus_master),
            sent.max_payload.eq(link.max_payload),
            sent.speed.eq(link.speed),
            sent.width.eq(link.width),
            requests.sequence.eq(sent.sequence),
        ]
        for index, suffix in enumerate(family.sequence_ports):
            m.d.comb += [
                sent.valid[index].eq(getattr(pcie, f"pcie_rq_seq_num_vld{suffix}")),
                sent.number[index].eq(getattr(pcie, f"pcie_rq_seq_num{suffix}")),
            ]

        m.submodules.room = room = ReadRoom()
        out, first, read, kept = requests.o, Signal(init=1), Signal(), Signal()
        # `tuser` counts in a packet's first beat only.
        m.d.comb += [
            read.eq(Mux(first, is_read(out.payload.user, family.sequence_bits), kept)),
            room.takes.eq(request.valid & request.ready & ~sent.write),
            room.leaves.eq(out.valid & out.ready & out.payload.last & read),
            room.shown.eq(pcie.cfg_fc_nph),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += [first.eq(out.payload.last), kept.eq(read)]

        target = seam.target
        m.submodules.credits = credits = NonPostedCredits()
        kind = target.payload.header.kind
        m.d.comb += [
            credits.ok.eq(seam.target_np_ok),
            credits.arrives.eq(
                target.valid
                & target.ready
                & target.payload.first
                & ((kind == TargetKind.READ) | (kind == TargetKind.OTHER))
            ),
            pcie.pcie_cq_np_req.eq(credits.request),
        ]

        # A reset of the function deasserts INTA, and the block answers no request of before.
        resets = pcie.cfg_flr_in_process[0]
        interrupts = Interrupts()
        m.submodules.interrupts = Resets(resets)(interrupts)
        wiring.connect(m, wiring.flipped(seam.interrupt), interrupts.request)
        m.d.comb += [
            interrupts.msi_enable.eq(link.msi_enable),
            interrupts.msix_enable.eq(link.msix_enable),
            interrupts.sent.eq(pcie.cfg_interrupt_sent),
            interrupts.message_sent.eq(pcie.cfg_interrupt_msi_sent),
            interrupts.message_failed.eq(pcie.cfg_interrupt_msi_fail),
            pcie.cfg_interrupt_int.eq(interrupts.asserted),
            pcie.cfg_interrupt_pending.eq(interrupts.asserted),
            pcie.cfg_interrupt_msi_int.eq(interrupts.message),
        ]

        m.submodules.function_reset = function_reset = FunctionReset(family.rest)
        m.d.comb += [
            function_reset.asked.eq(resets),
            function_reset.moves.eq(pcie.m_axis_cq_tvalid | request.valid | out.valid),
            seam.function_reset.eq(function_reset.reset),
            pcie.cfg_flr_done.eq(seam.function_reset_done),
        ]

        m.submodules.control = control = DeviceControl()
        m.d.comb += [
            pcie.cfg_mgmt_addr.eq(family.device_control // 4),
            pcie.cfg_mgmt_read.eq(control.read),
            control.done.eq(pcie.cfg_mgmt_read_write_done),
            control.data.eq(pcie.cfg_mgmt_read_data),
            link.extended_tag.eq(control.extended_tag),
            link.relaxed_ordering.eq(control.relaxed_ordering),
        ]

        m.d.comb += [
            pcie.cfg_fc_sel.eq(_FC_TRANSMIT_AVAILABLE),
            link.link_up.eq(pcie.user_lnk_up),
            link.bus_master.eq(pcie.cfg_function_status[2] & ~resets),
            link.intx_disable.eq(pcie.cfg_function_status[3]),
            link.msi_enable.eq(pcie.cfg_interrupt_msi_enable[0]),
            link.msi_granted.eq(pcie.cfg_interrupt_msi_mmenable[:3]),
            link.msix_enable.eq(pcie.cfg_interrupt_msix_enable[0]),
            link.msix_mask.eq(pcie.cfg_interrupt_msix_mask[0]),
            link.max_payload.eq(pcie.cfg_max_payload),
            link.max_read_request.eq(pcie.cfg_max_read_req),
            link.rcb.eq(pcie.cfg_rcb_status[0]),
            link.read_room.eq(1),
            link.write_room.eq(sent.room),
            link.np_headers.eq(room.room),
        ]
        if family.bus_number:
            m.d.comb += link.requester_id.eq(Cat(C(0, 8), pcie.cfg_bus_number))
        speed, lanes = pcie.cfg_current_speed, pcie.cfg_negotiated_width
        if family.one_hot_speed:
            number = Cat(speed[0] | speed[2], speed[1] | speed[2])
            m.d.comb += [link.speed.eq(number), link.width.eq(lanes)]
        else:
            m.d.comb += [link.speed.eq(speed + 1), link.width.eq(1 << lanes)]
        return m

    def _port(self, stream: str, name: str):
        return getattr(self.pcie, f"{stream}_{name}")
