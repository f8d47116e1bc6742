# SPDX-License-Identifier: BSD-2-Clause
"""Turns read jobs of several clients into memory read requests."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..parts.round_robin import RoundRobin
from ..records import ReadJob
from ..seam import RequestBeat
from .records import Owner, Progress

__all__ = ["Issuer"]


class Issuer(wiring.Component):
    """Takes jobs round robin and makes a tagged request of each, one job in two cycles at best.

    Parameters
    ----------
    clients : int
        Number of clients.

    Members
    -------
    jobs : In(stream of ReadJob), one for each client
    free : In(stream of tag)
        Free tags.
    hold : In(1)
        No job is taken in this cycle.
    taken : Out(stream of Owner, always ready), job : Out(ReadJob), progress : Out(Progress)
        The job that is taken in this cycle, and what it expects first.
    request : Out(stream of RequestBeat)
        From the cycle after the job was taken.
    bus_master : In(1)
        Low: the job that is taken in this cycle makes no request.
    relaxed : In(1)
        Relaxed Ordering attribute of the job that is taken in this cycle.
    """

    def __init__(self, clients: int):
        self._clients = clients
        super().__init__(
            {
                "jobs": In(stream.Signature(ReadJob)).array(clients),
                "free": In(stream.Signature(8)),
                "hold": In(1),
                "taken": Out(stream.Signature(Owner, always_ready=True)),
                "job": Out(ReadJob),
                "progress": Out(Progress),
                "request": Out(stream.Signature(RequestBeat)),
                "bus_master": In(1),
                "relaxed": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.round_robin = round_robin = RoundRobin(self._clients)
        grant = round_robin.grant

        ready = Signal()
        taken = Signal()
        m.d.comb += [
            round_robin.requests.eq(Cat(client.valid for client in self.jobs)),
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
            m.d.comb += client.ready.eq(ready & (grant == number))

        offset = self.job.address[:2]
        m.d.comb += [
            self.progress.client.eq(grant),
            self.progress.start.eq(self.job.place.as_value() - offset),
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
                self.request.valid.eq(self.bus_master),
                header.tag.eq(self.free.p),
                header.relaxed.eq(self.relaxed),
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
