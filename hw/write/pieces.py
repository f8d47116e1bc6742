# SPDX-License-Identifier: BSD-2-Clause
"""Pieces of C2H channels as jobs of the writer."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..parts.byte_shares import ByteShares
from ..parts.round_robin import RoundRobin
from ..records import JOB_BYTES, Outcome, Piece, PieceReport, Sent, WriteJob, WriteToken

__all__ = ["EXTRA_BYTES", "PieceWrites", "token_of"]

#: What a write costs on the link beside its data: about its header.
EXTRA_BYTES = 16


def token_of(sent) -> data.View:
    """The `WriteToken` in a `Sent`."""
    return data.View(WriteToken, sent.token[: WriteToken.as_shape().size])


class PieceWrites(wiring.Component):
    """Serves C2H channels round robin, by bytes, and reports to each what was sent.

    Combinational, but for whose turn it is (`hw.parts.byte_shares`).

    Parameters
    ----------
    channels : int
        Number of C2H channels, 1 to 4.

    Members
    -------
    pieces : array of In(stream of Piece)
    job : Out(stream of WriteJob)
    sent : In(stream of Sent, always ready)
        Of all writes, those of records among them.
    reports : array of Out(stream of PieceReport, always ready)
    released : Out(channels)
        Bit n: the piece of channel n that is reported came from its ring.
    """

    def __init__(self, channels: int):
        always = {"always_ready": True}
        super().__init__(
            {
                "pieces": In(stream.Signature(Piece)).array(channels),
                "job": Out(stream.Signature(WriteJob)),
                "sent": In(stream.Signature(Sent, **always)),
                "reports": Out(stream.Signature(PieceReport, **always)).array(channels),
                "released": Out(channels),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.round_robin = round_robin = RoundRobin(len(self.pieces))
        m.submodules.shares = shares = ByteShares(
            len(self.pieces), most=JOB_BYTES, extra=EXTRA_BYTES
        )
        job, token = self.job.payload, Signal(WriteToken)
        m.d.comb += [
            shares.requests.eq(Cat(piece.valid for piece in self.pieces)),
            shares.served.eq(Cat(piece.valid & piece.ready for piece in self.pieces)),
            shares.length.eq(job.length),
            round_robin.requests.eq(shares.requests & shares.allowed),
            round_robin.advance.eq(self.job.valid & self.job.ready),
            self.job.valid.eq(round_robin.requests.any()),
            token.channel.eq(round_robin.grant),
            job.token.eq(token),
        ]
        # A piece of the stream is offered a cycle after it has found its bytes, when this was its
        # channel's slot already if it is now.
        before = Signal.like(round_robin.grant)
        m.d.sync += before.eq(round_robin.grant)
        m.d.comb += job.steady.eq(token.stream & (round_robin.grant == before))
        with m.Switch(round_robin.grant):
            for number, stream_ in enumerate(self.pieces):
                with m.Case(number):
                    piece = stream_.payload
                    m.d.comb += [
                        stream_.ready.eq(self.job.ready & shares.allowed[number]),
                        job.address.eq(piece.address),
                        job.place.eq(piece.place),
                        job.length.eq(piece.length),
                        token.stream.eq(piece.stream),
                        token.last.eq(piece.last),
                    ]

        back, sent = token_of(self.sent.payload), self.sent.payload
        outcome = Signal(Outcome)
        with m.If(sent.dropped):
            m.d.comb += outcome.eq(
                Mux(sent.by_block, Outcome.WRITE_DROPPED, Outcome.BUS_MASTER_OFF)
            )
        for number, report in enumerate(self.reports):
            m.d.comb += [
                report.valid.eq(self.sent.valid & ~back.record & (back.channel == number)),
                report.payload.last.eq(back.last),
                report.payload.outcome.eq(outcome),
                self.released[number].eq(report.valid & back.stream),
            ]
        return m
