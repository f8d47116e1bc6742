# SPDX-License-Identifier: BSD-2-Clause
"""Brings read data to the memory of its client."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import CardMemory, InOrderMark, Placement

__all__ = ["PlacementSwitch"]


class PlacementSwitch(wiring.Component):
    """Hands each placement to a descriptor fetch, to card RAM, or to an inbound ring.

    Combinational. The first clients of the read engine are descriptor fetches, the others the data
    paths of H2C channels, of which the first ones have a ring.

    Parameters
    ----------
    fetches, rings : int
        Number of clients that are descriptor fetches, and of rings.

    Members
    -------
    placement : In(stream of Placement, always ready)
    mark : In(stream of InOrderMark, always ready)
    fetches : array of Out(stream of Placement, always ready)
    ram : Out(stream of Placement, always ready)
    rings : array of Out(stream of Placement, always ready)
    marks : array of Out(stream of InOrderMark, always ready)
        For each ring those of its client, whatever memory the client's read is for.
    """

    def __init__(self, fetches: int, rings: int):
        placement = stream.Signature(Placement, always_ready=True)
        mark = stream.Signature(InOrderMark, always_ready=True)
        super().__init__(
            {
                "placement": In(placement),
                "mark": In(mark),
                "fetches": Out(placement).array(fetches),
                "ram": Out(placement),
                "rings": Out(placement).array(rings),
                "marks": Out(mark).array(rings),
            }
        )

    def elaborate(self, platform):
        m = Module()
        placed, first = self.placement.payload, len(self.fetches)
        in_ring = placed.memory == CardMemory.RING
        targets = [(port, placed.client == n) for n, port in enumerate(self.fetches)]
        targets += [(self.ram, (placed.client >= first) & ~in_ring)]
        targets += [
            (port, (placed.client == n) & in_ring) for n, port in enumerate(self.rings, first)
        ]
        for port, chosen in targets:
            m.d.comb += [port.payload.eq(placed), port.valid.eq(self.placement.valid & chosen)]
        for client, port in enumerate(self.marks, first):
            m.d.comb += [
                port.payload.eq(self.mark.payload),
                port.valid.eq(self.mark.valid & (self.mark.payload.client == client)),
            ]
        return m
