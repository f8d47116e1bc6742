# SPDX-License-Identifier: BSD-2-Clause
"""What is written for a ticket: its record, and its slot's done word behind that."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..write.record_writer import DirectRecordSignature

__all__ = ["Completion"]


class Completion(wiring.Component):
    """Writes the record of a ticket, and then a done word.

    Its address is needed only until the record writer has taken it. What is taken is on its way
    for some cycles, in which nothing is asked of whoever has the address.

    Members
    -------
    active : In(1)
        Have this written, from this cycle up to that of `takes`; only while nothing is `under_way`.
    hold : In(1)
        Nothing can be written in this cycle.
    has_done : In(1)
        There is a done word. Has to stay until the record is taken.
    address : In(64), record : In(64)
        Where this is written, or the done word; and the record.
    records : Out(DirectRecordSignature)
    second : Out(1)
        What is to be written next, or was taken, is the done word of the ticket before.
    under_way : Out(1)
        Something was taken that is not done.
    takes, counted : Out(1)
        Something is taken in this cycle; and it is the record.
    lost : Out(1)
        What was taken was dropped.
    finished : Out(1)
        All of the ticket is written.
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
                "under_way": Out(1),
                "takes": Out(1),
                "counted": Out(1),
                "lost": Out(1),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        offer, second, under_way = self.records.record, self.second, self.under_way
        #: a done word follows the record that was taken
        follows = Signal()
        m.d.comb += [
            offer.payload.wide.eq(~second),
            offer.payload.address.eq(self.address),
            offer.payload.data.eq(self.record),
        ]
        m.d.comb += [
            offer.valid.eq(self.active & ~self.hold),
            self.takes.eq(offer.valid & offer.ready),
            # Who sees the record may at once fill its place again.
            self.counted.eq(self.takes & ~second),
        ]
        with m.If(self.takes):
            m.d.sync += [under_way.eq(1), follows.eq(self.has_done & ~second)]
        with m.If(under_way & self.records.done):
            m.d.comb += [self.lost.eq(self.records.dropped), self.finished.eq(~follows)]
            m.d.sync += [under_way.eq(0), second.eq(follows)]
        return m
