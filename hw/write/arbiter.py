# SPDX-License-Identifier: BSD-2-Clause
"""Merges read and write requests into the one stream that goes to the PCIe block."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..seam import LinkState, RequestBeat, SentToken

__all__ = ["WRITE_WINDOW", "Sent", "TxArbiter"]

#: Transmit buffers that writes may take: enough for the link, few for a read to wait behind.
WRITE_WINDOW = 6


class Sent(data.Struct):
    """A write request was accepted by the PCIe block, or dropped because Bus Master is off."""

    token: 8
    dropped: 1


class TxArbiter(wiring.Component):
    """Reads go first, writes take turns, nothing ever goes into a packet.

    No latency and no gaps: a packet may follow another in the next cycle. Only a writer whose turn
    it is not waits one more cycle, and only if none was sending. A read starts if the block has a
    transmit buffer and the link partner a non-posted header credit for it, and not in the cycle
    after another read started; a write starts if fewer than `write_window` transmit buffers are
    taken, for reads cannot overtake what is in them. Link state counts as it was one cycle before.

    While Bus Master is off nothing starts: requests are consumed and dropped, writes among them
    reported in order with all others.

    Parameters
    ----------
    writers : int
    tx_buffers, credit_lag : int
        Of the block, as `hw.seam.Block` has them.
    write_window : int

    Members
    -------
    reads : In(stream of RequestBeat)
        Packets of one beat; their data is ignored.
    writes : array of In(stream of RequestBeat)
    requester : Out(stream of RequestBeat)
        Reads have arbitrary data, which may change while they wait.
    seam_sent : In(stream of SentToken, always ready)
        The block's tokens for what went to `requester`.
    sent : Out(stream of Sent, always ready)
        The tokens of all writes, in order, a cycle after the block told of them.
    link : In(LinkState)
    """

    def __init__(self, writers=1, *, tx_buffers, credit_lag, write_window=WRITE_WINDOW):
        if writers < 1:
            raise ValueError(f"writers must be at least 1, not {writers}")
        if not 1 <= write_window <= tx_buffers:
            raise ValueError(
                f"write_window must be 1 to tx_buffers ({tx_buffers}), not {write_window}"
            )
        self._writers = writers
        self._tx_buffers = tx_buffers
        self._credit_lag = credit_lag
        self._write_window = write_window
        super().__init__(
            {
                "reads": In(stream.Signature(RequestBeat)),
                "writes": In(stream.Signature(RequestBeat)).array(writers),
                "requester": Out(stream.Signature(RequestBeat)),
                "seam_sent": In(stream.Signature(SentToken, always_ready=True)),
                "sent": Out(stream.Signature(Sent, always_ready=True)),
                "link": In(LinkState),
            }
        )

    def elaborate(self, platform):
        m = Module()
        out = self.requester

        master = Signal()
        read_ok = Signal()
        write_ok = Signal()
        # A packet was offered but is not finished: what was chosen stays.
        locked = Signal()
        locked_reading = Signal()
        locked_dropping = Signal()

        reading = Signal()
        dropping = Signal()
        valid = Signal()
        ready = Signal()
        done = Signal()
        turn = Signal(range(self._writers))
        write = Signal(RequestBeat)
        write_valid = Signal()
        in_flight = Signal(range(self._tx_buffers + 1))

        with m.Switch(turn):
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
            ready.eq(valid & Mux(dropping, in_flight == 0, out.ready)),
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

        # The next writer that has something, once the present one has finished a packet or, between
        # packets of its own, has nothing to send.
        wrote = done & ~reading
        with m.If(wrote | (~write_valid & ~(locked & ~reading))), m.Switch(turn):
            for current in range(self._writers):
                with m.Case(current):
                    for step in reversed(range(1, self._writers)):
                        other = (current + step) % self._writers
                        with m.If(self.writes[other].valid):
                            m.d.sync += turn.eq(other)

        m.d.sync += in_flight.eq(in_flight + (wrote & ~dropping) - self.seam_sent.valid)
        m.d.sync += [
            self.sent.valid.eq(self.seam_sent.valid | (wrote & dropping)),
            self.sent.payload.token.eq(
                Mux(self.seam_sent.valid, self.seam_sent.payload.token, write.header.token)
            ),
            self.sent.payload.dropped.eq(~self.seam_sent.valid),
        ]

        # Reads that the block's count of credits may not show yet. Their time stands still while
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
        # Infinite credits need no care: they are reported as the largest number.
        credit = link.np_headers > unseen
        m.d.sync += [
            master.eq(link.bus_master),
            read_ok.eq((link.tx_buffers != 0) & credit & ~starting),
            write_ok.eq(link.tx_buffers > self._tx_buffers - self._write_window),
        ]
        return m
