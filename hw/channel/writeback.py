# SPDX-License-Identifier: BSD-2-Clause
"""Poll-mode writeback of a channel: the completed count, written to memory (PG195)."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..write.record_writer import RecordSignature
from .signatures import WritebackSignature

__all__ = ["Writeback"]


class Writeback(wiring.Component):
    """Turns requests into records, one at a time.

    Parameters
    ----------
    where, what : int
        Words of the register bus that hold the address of the writeback and the completed count.

    Members
    -------
    control : In(WritebackSignature)
    records : Out(RecordSignature)
    """

    def __init__(self, *, where: int, what: int):
        self._where = where
        self._what = what
        super().__init__({"control": In(WritebackSignature()), "records": Out(RecordSignature())})

    def elaborate(self, platform):
        m = Module()
        control, offered = self.control, self.records.record
        #: to be taken; taken, and not written yet
        owed, writing = Signal(), Signal()
        m.d.comb += [
            offered.valid.eq(owed & control.allowed & ~control.hold),
            offered.payload.where.eq(self._where),
            offered.payload.what.eq(self._what),
            control.pending.eq(owed | writing),
        ]
        with m.If(control.request):
            m.d.sync += [owed.eq(1), offered.payload.error.eq(control.error)]
        with m.If(self.records.done):
            m.d.sync += writing.eq(0)
        with m.If(offered.valid & offered.ready):
            m.d.sync += [owed.eq(0), writing.eq(1)]
        with m.If(~control.allowed):
            m.d.sync += owed.eq(0)
        return m
