# SPDX-License-Identifier: BSD-2-Clause
"""The arbiter of requests."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.pcie.series7.block import SERIES7
from hw.write.arbiter import RequestArbiter

from .property import Property

__all__ = ["Arbiter"]


class Arbiter(Property):
    """Packets stay whole, none is lost, and nothing starts without Bus Master or room.

    Each packet goes out, or is dropped while Bus Master is off; each write, sent or dropped, is
    reported once; a sink that takes what it is offered gets the packet of whoever waits. What is
    dropped was offered in the cycle before, as the data of a first beat may be late. Assumed:
    sources keep what they offer, the sink's tokens are for writes that it has.
    """

    depth = 4
    BUFFERS = 6

    def __init__(self):
        super().__init__(
            RequestArbiter(
                width=SERIES7.width,
                writers=2,
                transmit_buffers=self.BUFFERS,
                credit_lag=SERIES7.credit_lag,
            )
        )

    def _keeps_the_rules(self, m, stream, *, assume: bool) -> tuple[Signal, Signal, Signal]:
        """What is offered stays; first and last frame packets of one header.

        Whether it is within a packet, whether the last beat that was offered waits, its header.
        """
        rule = Assume if assume else Assert
        waits = self.past(m, stream.valid & ~stream.ready)
        within, header = Signal(), Signal.like(Value.cast(stream.payload.header))
        last = self.past(m, stream.payload.last)
        with m.If(stream.valid):
            m.d.sync += header.eq(stream.payload.header)
            m.d.comb += [
                rule(stream.payload.first == ~within),
                rule(~(within | waits) | (Value.cast(stream.payload.header) == header)),
                rule(~waits | (stream.payload.last == last)),
            ]
        with m.If(stream.valid & stream.ready):
            m.d.sync += within.eq(~stream.payload.last)
        m.d.comb += rule(~waits | stream.valid)
        return within, waits, header

    def _state(self, m):
        block, out = self.block, self.block.request
        sources = (block.reads, *block.writes)
        within, held, headers = zip(
            *(self._keeps_the_rules(m, source, assume=True) for source in sources), strict=True
        )
        m.d.comb += [
            Assume(block.reads.payload.first & block.reads.payload.last),
            Assume(~block.reads.payload.header.write),
            *(Assume(stream.payload.header.write) for stream in block.writes),
        ]
        inside, waits, header = self._keeps_the_rules(m, out, assume=False)
        sending = out.valid & out.ready
        starts = out.valid & ~inside & ~waits
        master = self.past(m, block.link.bus_master)
        m.d.comb += [
            Assert(~starts | master),
            Assert(~(starts & out.payload.header.write) | self.past(m, block.link.write_room)),
            Assert(~(starts & ~out.payload.header.write) | self.past(m, self._read_ok(block))),
        ]

        # One beat in is one beat out, or it is dropped; out comes what went in.
        taken = [s.valid & s.ready for s in sources]
        dropping = self.inside("dropping")
        m.d.comb += [
            Assert(sum(taken) <= 1),
            Assert(sending == (Cat(taken).any() & ~dropping)),
        ]
        for stream, goes, inner, before in zip(sources, taken, within, held, strict=True):
            m.d.comb += Assert(~(goes & dropping) | inner | before)
            with m.If(goes & ~dropping):
                m.d.comb += [
                    Assert(Value.cast(out.payload.header) == Value.cast(stream.payload.header)),
                    Assert(out.payload.last == stream.payload.last),
                ]
                if stream is not block.reads:
                    m.d.comb += Assert(out.payload.data == stream.payload.data)

        # What is inside: what was chosen stays until its packet has ended.
        turn, locked = self.inside("round_robin.last"), self.inside("locked")
        reading, lost = self.inside("locked_reading"), self.inside("locked_dropping")
        m.d.comb += [
            Assert(inside == (Cat(within[1:]).any() & ~lost)),
            Assert(~waits | (locked & ~lost)),
            Assert(~within[0]),
            Assert(~(locked & reading) | (held[0] & ~inside)),
            Assert(~(locked & reading & ~lost) | waits),
        ]
        for number in range(2):
            mine = locked & ~reading & (turn == number)
            m.d.comb += [
                Assert(~within[1 + number] | mine),
                Assert(~mine | within[1 + number] | held[1 + number]),
                Assert(~(mine & inside) | (header == headers[1 + number])),
                Assert(~(mine & ~lost) | inside | waits),
                Assert(~(mine & waits) | (header == headers[1 + number])),
                Assert(~(mine & waits) | held[1 + number]),
            ]
        m.d.comb += Assert(~(locked & reading & waits) | (header == headers[0]))

        # Reports: as many as writes that were taken, never before the sink's token.
        wrote = (
            Cat(taken[1:]).any()
            & Cat(
                goes & s.payload.last for goes, s in zip(taken[1:], block.writes, strict=True)
            ).any()
        )
        owed, reported = Signal(4), Signal()
        in_flight = self.inside("in_flight")
        drops = wrote & dropping
        m.d.sync += [
            owed.eq(owed + (wrote & ~dropping) - block.seam_sent.valid),
            reported.eq(block.seam_sent.valid | drops),
        ]
        m.d.comb += [
            Assume(~block.seam_sent.valid | (owed != 0)),
            Assume((owed < self.BUFFERS) | ~out.ready),
            Assert(in_flight == owed),
            Assert(~(block.seam_sent.valid & drops)),
            Assert(block.sent.valid == reported),
        ]

        # Something goes on if a source waits: the sink takes, has room, and nobody pauses.
        link = block.link
        easy = (
            out.ready
            & link.read_room
            & link.write_room
            & (link.np_headers == 0xFF)
            & ~block.seam_sent.valid
            & (owed == 0)
            & ~Cat(i & ~s.valid for i, s in zip(within, sources, strict=True)).any()
        )
        for stream, goes in zip(sources, taken, strict=True):
            idle = self.waiting(m, stream.valid & easy & ~Cat(taken).any(), 4)
            m.d.comb += Assert(idle < 4)
            self.cover(m, goes & out.valid, goes & dropping)
        self.cover(
            m,
            sending & inside & self.past(m, sending & inside),
            block.sent.valid & block.sent.payload.dropped & self.past(m, block.link.bus_master),
            drops & within[1],
        )

    @staticmethod
    def _read_ok(block):
        return block.link.read_room & (block.link.np_headers != 0)
