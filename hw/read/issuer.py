# SPDX-License-Identifier: BSD-2-Clause
"""Turns read jobs of several clients into memory read requests."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..parts.byte_shares import ByteShares
from ..parts.round_robin import RoundRobin
from ..records import JOB_BYTES, Outcome, ReadJob, moved
from ..seam import RequestHeader, beat
from .records import Owner, Progress

__all__ = ["EXTRA_BYTES", "Issuer"]

#: What a read costs on the link beside its data: about a header of each completion, and, as it may
#: be all of its descriptor, that.
EXTRA_BYTES = 48


class Issuer(wiring.Component):
    """Takes jobs round robin and makes a tagged request of each, one job in two cycles at best.

    Clients that are no fetches share by bytes (`hw.parts.byte_shares`).

    A job for which there is no room waits, and those of other clients pass it; but while one of the
    first `fetches` clients waits for room, only they get what becomes free.

    Parameters
    ----------
    clients, fetches, offset_bits, width : int
        As for `hw.read.engine.ReadEngine`.

    Members
    -------
    jobs : In(stream of ReadJob), one for each client
    free : In(stream of tag)
        Free tags.
    hold : In(1)
        No job is taken in this cycle.
    room, data_room, hopeless : In(1)
        Of `CompletionSpace`: for the first `fetches` clients, for the others, and for none.
    taken : Out(stream of Owner, always ready), job : Out(ReadJob), progress : Out(Progress)
        The job that is taken in this cycle, and what it expects first.
    outcome : Out(Outcome)
        OK: it makes a request. Else why it makes none.
    short : Out(clients)
        Bit n: there is no room for the job of client n.
    request : Out(stream of beats of RequestHeader)
        From the cycle after the job was taken.
    bus_master : In(1)
        Low: the job that is taken in this cycle ends with BUS_MASTER_OFF.
    relaxed : In(1)
        Relaxed Ordering attribute of the job that is taken in this cycle, if it is no fetch: the
        writes of a descriptor's owner come before those that say that it is there.
    """

    def __init__(self, clients: int, fetches: int, offset_bits: int, width: int):
        self._offset_bits = offset_bits
        self._clients = clients
        self._fetches = fetches
        super().__init__(
            {
                "jobs": In(stream.Signature(ReadJob)).array(clients),
                "free": In(stream.Signature(8)),
                "hold": In(1),
                "room": In(1),
                "data_room": In(1),
                "hopeless": In(1),
                "taken": Out(stream.Signature(Owner, always_ready=True)),
                "job": Out(ReadJob),
                "progress": Out(Progress),
                "outcome": Out(Outcome),
                "short": Out(clients),
                "request": Out(stream.Signature(beat(RequestHeader, width))),
                "bus_master": In(1),
                "relaxed": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.round_robin = round_robin = RoundRobin(self._clients)
        grant = round_robin.grant

        valid = Cat(client.valid for client in self.jobs)
        allowed = self._allowed(m, valid)
        fetch_waits = Signal()
        served, may = Signal(self._clients), Signal(self._clients)
        for number in range(self._clients):
            room = self.room if number < self._fetches else self.data_room & ~fetch_waits
            m.d.comb += served[number].eq(room | self.hopeless)

        ready = Signal()
        taken = Signal()
        room = Signal()
        fetch = grant < self._fetches
        m.d.comb += [
            fetch_waits.eq(valid[: self._fetches].any() & ~self.room),
            room.eq(Mux(fetch, self.room, self.data_room)),
            may.eq(served & allowed),
            round_robin.requests.eq(valid & may),
            self.short.eq(valid & ~served),
            round_robin.advance.eq(taken),
            ready.eq(self.free.valid & ~self.request.valid & ~self.hold),
            taken.eq(ready & round_robin.requests.any()),
            self.free.ready.eq(taken),
            self.job.eq(Array(client.p for client in self.jobs)[grant]),
            self.taken.valid.eq(taken),
            self.taken.p.client.eq(grant),
            self.taken.p.tag.eq(self.free.p),
        ]
        for number, client in enumerate(self.jobs):
            m.d.comb += client.ready.eq(ready & may[number] & (grant == number))
        with m.If(~self.bus_master):
            m.d.comb += self.outcome.eq(Outcome.BUS_MASTER_OFF)
        with m.Elif(~room):
            m.d.comb += self.outcome.eq(Outcome.NO_COMPLETION_SPACE)

        offset = self.job.address[:2]
        m.d.comb += [
            self.progress.client.eq(grant),
            self.progress.start.eq(moved(self.job.place.as_value(), -offset, self._offset_bits)),
            self.progress.end.eq(self.job.length + offset),
            self.progress.lower_address.eq(self.job.address),
        ]

        address = Signal(64)
        end = Signal(10)
        header = self.request.p.header
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(taken):
            m.d.sync += [
                address.eq(self.job.address),
                end.eq(self.progress.end),
                self.request.valid.eq(self.outcome == Outcome.OK),
                header.tag.eq(self.free.p),
                header.relaxed.eq(self.relaxed & ~fetch),
            ]

        single = Signal()
        first_be = Signal(4)
        last_be = Signal(4)
        m.d.comb += [
            single.eq(end <= 4),
            first_be.eq(0xF << address[:2]),
            last_be.eq(Array((0xF, 0x1, 0x3, 0x7))[end[:2]]),
            header.address.eq(Cat(C(0, 2), address[2:])),
            header.dwords.eq((end + 3)[2:]),
            header.first_be.eq(Mux(single, first_be & last_be, first_be)),
            header.last_be.eq(Mux(single, 0, last_be)),
            self.request.p.first.eq(1),
            self.request.p.last.eq(1),
        ]
        return m

    def _allowed(self, m, valid) -> Value:
        """Which clients have their turn: fetches always, data of channels by bytes."""
        data = self.jobs[self._fetches :]
        fetches = Const((1 << self._fetches) - 1, self._fetches)
        if not data:
            return fetches
        m.submodules.shares = shares = ByteShares(len(data), most=JOB_BYTES, extra=EXTRA_BYTES)
        m.d.comb += [
            shares.requests.eq(valid[self._fetches :]),
            shares.served.eq(Cat(client.valid & client.ready for client in data)),
            shares.length.eq(self.job.length),
        ]
        return Cat(fetches, shares.allowed)
