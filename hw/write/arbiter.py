# SPDX-License-Identifier: BSD-2-Clause
"""Merges read and write requests into the one stream that goes to the PCIe block."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..parts.round_robin import RoundRobin
from ..records import Sent
from ..seam import LinkState, RequestHeader, SentToken, beat

__all__ = ["RequestArbiter"]


class RequestArbiter(wiring.Component):
    """Reads have priority, writers are served round robin, packets are never interleaved.

    No latency and no gaps: a packet may follow another in the next cycle. Only a writer that is not
    granted waits one more cycle, and only if none was sending. A read starts if the block has room
    and the link partner a non-posted header credit for it, and not in the cycle after another read
    started; a write starts if the block has room for it. The link state is registered: that of the
    cycle before counts.

    While Bus Master is off nothing starts: requests are consumed and dropped, writes among them
    reported in order with all others. As at the seam, a write's first beat is never consumed in the
    cycle in which it is first offered.

    Parameters
    ----------
    writers : int
    width : int
        Bits of a beat.
    transmit_buffers, credit_lag : int
        Of the block, as `hw.seam.Block` has them. It owes tokens for no more writes than buffers.

    Members
    -------
    reads : In(stream of beats of RequestHeader)
        Packets of one beat; their data is ignored.
    writes : array of In(stream of beats of RequestHeader)
    request : Out(stream of beats of RequestHeader)
        Reads have arbitrary data, which may change while they wait.
    seam_sent : In(stream of SentToken, always ready)
        The block's tokens for what went to `request`.
    sent : Out(stream of Sent, always ready)
        The tokens of all writes, in order, in the cycle after `seam_sent`.
    link : In(LinkState)
    """

    def __init__(self, writers=1, *, width, transmit_buffers, credit_lag):
        if writers < 1:
            raise ValueError(f"writers must be at least 1, not {writers}")
        self._writers = writers
        self._transmit_buffers = transmit_buffers
        self._credit_lag = credit_lag
        self._beat = beat(RequestHeader, width)
        request = stream.Signature(self._beat)
        super().__init__(
            {
                "reads": In(request),
                "writes": In(request).array(writers),
                "request": Out(request),
                "seam_sent": In(stream.Signature(SentToken, always_ready=True)),
                "sent": Out(stream.Signature(Sent, always_ready=True)),
                "link": In(LinkState),
            }
        )

    def elaborate(self, platform):
        m = Module()
        out = self.request

        master = Signal()
        read_ok = Signal()
        write_ok = Signal()
        # A packet was offered but is not finished: the choice is kept.
        locked = Signal()
        locked_reading = Signal()
        locked_dropping = Signal()

        reading = Signal()
        dropping = Signal()
        valid = Signal()
        ready = Signal()
        done = Signal()
        write = Signal(self._beat)
        write_valid = Signal()
        in_flight = Signal(range(self._transmit_buffers + 1))

        m.submodules.round_robin = round_robin = RoundRobin(self._writers, registered=True)
        with m.Switch(round_robin.grant):
            for number in range(self._writers):
                with m.Case(number):
                    source = self.writes[number]
                    m.d.comb += [
                        write.eq(source.payload),
                        write_valid.eq(source.valid),
                        source.ready.eq(ready & ~reading),
                    ]
        m.d.comb += [
            dropping.eq(Mux(locked, locked_dropping, ~master)),
            reading.eq(Mux(locked, locked_reading, self.reads.valid & (read_ok | ~master))),
            valid.eq(reading | (write_valid & (locked | write_ok | ~master))),
            out.payload.eq(write),
            out.valid.eq(valid & ~dropping),
            # Tokens of dropped writes must not overtake those that the block still owes.
            ready.eq(valid & Mux(dropping, locked & (in_flight == 0), out.ready)),
            done.eq(ready & out.payload.last),
            self.reads.ready.eq(ready & reading),
        ]
        with m.If(reading):
            m.d.comb += [
                out.payload.header.eq(self.reads.payload.header),
                out.payload.first.eq(1),
                out.payload.last.eq(1),
            ]
        m.d.sync += [
            locked.eq((locked | valid) & ~done),
            locked_reading.eq(reading),
            locked_dropping.eq(dropping),
        ]

        # Grant the next writer once the present one has finished a packet or has nothing to send
        # between two packets.
        wrote = done & ~reading
        m.d.comb += [
            round_robin.requests.eq(Cat(source.valid for source in self.writes)),
            round_robin.advance.eq(wrote | (~write_valid & ~(locked & ~reading))),
        ]
        m.d.sync += in_flight.eq(in_flight + (wrote & ~dropping) - self.seam_sent.valid)
        m.d.sync += [
            self.sent.valid.eq(self.seam_sent.valid | (wrote & dropping)),
            self.sent.payload.token.eq(
                Mux(self.seam_sent.valid, self.seam_sent.payload.token, write.header.token)
            ),
            self.sent.payload.dropped.eq(~self.seam_sent.valid | self.seam_sent.payload.dropped),
            self.sent.payload.by_block.eq(self.seam_sent.valid),
        ]

        # Reads that the block's count of credits may not show yet. Their age does not advance while
        # the block takes nothing.
        starting = Signal()
        recent = Signal(self._credit_lag)
        unseen = Signal(range(self._credit_lag + 1))
        m.d.comb += starting.eq(~locked & reading & ~dropping)
        with m.If(starting | ~out.valid | out.ready):
            m.d.sync += [
                recent.eq(Cat(starting, recent)),
                unseen.eq(unseen + starting - recent[-1]),
            ]

        link = self.link
        # Infinite credits need no special case: the block reports them as the largest number.
        credit = link.np_headers > unseen
        m.d.sync += [
            master.eq(link.bus_master),
            read_ok.eq(link.read_room & credit & ~starting),
            write_ok.eq(link.write_room),
        ]
        return m
