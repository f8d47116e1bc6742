# SPDX-License-Identifier: BSD-2-Clause
"""Interim arbiter by the architect so that the top level elaborates; gw-io replaces this file.

Interface that hw/core.py uses: reads, writes[n], requester, link, seam_sent, sent(token, dropped).
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .seam import LinkState, RequestBeat, SentToken

__all__ = ["Sent", "TxArbiter"]


class Sent(data.Struct):
    """A write left for the block, or was dropped because Bus Master is off."""

    token: 8
    dropped: 1


class TxArbiter(wiring.Component):
    """Reads first, at packet boundaries."""

    def __init__(self):
        super().__init__(
            {
                "reads": In(stream.Signature(RequestBeat)),
                "writes": In(stream.Signature(RequestBeat)).array(1),
                "requester": Out(stream.Signature(RequestBeat)),
                "link": In(LinkState),
                "seam_sent": In(stream.Signature(SentToken, always_ready=True)),
                "sent": Out(stream.Signature(Sent, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        inside = Signal()
        write = self.writes[0]
        with m.If(self.reads.valid & ~inside):
            m.d.comb += [
                self.requester.payload.eq(self.reads.payload),
                self.requester.valid.eq(1),
                self.reads.ready.eq(self.requester.ready),
            ]
        with m.Else():
            m.d.comb += [
                self.requester.payload.eq(write.payload),
                self.requester.valid.eq(write.valid),
                write.ready.eq(self.requester.ready),
            ]
            with m.If(write.valid):
                m.d.sync += inside.eq(~(write.ready & write.payload.last))
        m.d.comb += [
            self.sent.valid.eq(self.seam_sent.valid),
            self.sent.payload.token.eq(self.seam_sent.payload.token),
        ]
        return m
