# SPDX-License-Identifier: BSD-2-Clause
"""Pieces of an H2C channel as jobs of the read engine."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import Piece, PieceReport, ReadJob, Retired

__all__ = ["PieceReads"]


class PieceReads(wiring.Component):
    """The data client of one H2C channel. Combinational.

    Members
    -------
    piece : In(stream of Piece)
    report : Out(stream of PieceReport, always ready)
    job : Out(stream of ReadJob)
    retired : In(stream of Retired, always ready)
    """

    piece: In(stream.Signature(Piece))
    report: Out(stream.Signature(PieceReport, always_ready=True))
    job: Out(stream.Signature(ReadJob))
    retired: In(stream.Signature(Retired, always_ready=True))

    def elaborate(self, platform):
        m = Module()
        piece, job = self.piece.payload, self.job.payload
        m.d.comb += [
            self.job.valid.eq(self.piece.valid),
            self.piece.ready.eq(self.job.ready),
            job.address.eq(piece.address),
            job.place.eq(piece.place),
            job.length.eq(piece.length),
            job.last.eq(piece.last),
            self.report.valid.eq(self.retired.valid),
            self.report.payload.last.eq(self.retired.payload.last),
            self.report.payload.outcome.eq(self.retired.payload.outcome),
        ]
        return m
