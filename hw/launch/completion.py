# SPDX-License-Identifier: BSD-2-Clause
"""The end of a ticket: its record, and its slot's done word behind that."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..write.record_writer import DirectRecordSignature

__all__ = ["Completion"]


class Completion(wiring.Component):
    """Writes the record of a ticket, and then a done word.

    Members
    -------
    active : In(1)
        High up to the last cycle.
    hold : In(1)
        Nothing can be written in this cycle.
    has_done : In(1)
        There is a done word.
    address : In(64), record : In(64)
        Where this is written, or the done word; and the record.
    records : Out(DirectRecordSignature)
    second : Out(1)
        What is written is the done word.
    writes : Out(1)
        Something is to be taken: the address has to stay.
    counted : Out(1)
        The record is taken in this cycle.
    lost : Out(1)
        What was taken was dropped.
    finished : Out(1)
        This is the last cycle: all is written.
    """

    def __init__(self):
        super().__init__(
            {
                "active": In(1),
                "hold": In(1),
                "has_done": In(1),
                "address": In(64),
                "record": In(64),
                "records": Out(DirectRecordSignature()),
                "second": Out(1),
                "writes": Out(1),
                "counted": Out(1),
                "lost": Out(1),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        offer, second = self.records.record, self.second
        #: what is written has been taken
        taken = Signal()
        m.d.comb += [
            offer.payload.wide.eq(~second),
            offer.payload.address.eq(self.address),
            offer.payload.data.eq(Mux(second, 1, self.record)),
        ]
        with m.If(~self.active):
            m.d.sync += [second.eq(0), taken.eq(0)]
        with m.Elif(~taken):
            m.d.comb += [self.writes.eq(1), offer.valid.eq(~self.hold)]
            with m.If(offer.valid & offer.ready):
                # Who sees the record may at once fill its place again.
                m.d.comb += self.counted.eq(~second)
                m.d.sync += taken.eq(1)
        with m.Elif(self.records.done):
            m.d.comb += [
                self.lost.eq(self.records.dropped),
                self.finished.eq(second | ~self.has_done),
            ]
            m.d.sync += [second.eq(1), taken.eq(0)]
        return m
