# SPDX-License-Identifier: BSD-2-Clause
"""Brings read data to the memory of its client."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import CardMemory, InOrderMark, placement

__all__ = ["PlacementSwitch"]


class PlacementSwitch(wiring.Component):
    """Hands each placement to the descriptor fetch, to card RAM, or to an inbound ring.

    Combinational. The first clients of the read engine are the descriptor fetch, for each channel,
    the next one is the launch queues if there are any, the others are the data paths of H2C
    channels, of which the first ones have a ring.

    Parameters
    ----------
    fetches, rings : int
        Number of clients that are the descriptor fetch, and of rings.
    width : int
        Bits of a word.
    launch_queues : bool
        There are launch queues.

    Members
    -------
    placement : In(stream of placement, always ready)
    mark : In(stream of InOrderMark, always ready)
    fetch : Out(stream of placement, always ready)
    fetch_mark : Out(stream of InOrderMark, always ready)
    launch : Out(stream of placement, always ready)
        Only with `launch_queues`.
    ram : Out(stream of placement, always ready)
    rings : array of Out(stream of placement, always ready)
    marks : array of Out(stream of InOrderMark, always ready)
        For each ring those of its client, whatever memory the client's read is for.
    """

    def __init__(self, fetches: int, rings: int, *, width: int, launch_queues: bool = False):
        placed = stream.Signature(placement(width), always_ready=True)
        mark = stream.Signature(InOrderMark, always_ready=True)
        self._fetches, self._launch_queues = fetches, launch_queues
        super().__init__(
            {
                "placement": In(placed),
                "mark": In(mark),
                "fetch": Out(placed),
                "fetch_mark": Out(mark),
                **({"launch": Out(placed)} if launch_queues else {}),
                "ram": Out(placed),
                "rings": Out(placed).array(rings),
                "marks": Out(mark).array(rings),
            }
        )

    def elaborate(self, platform):
        m = Module()
        placed, fetches = self.placement.payload, self._fetches
        first = fetches + self._launch_queues
        in_ring = placed.memory == CardMemory.RING
        targets = [(self.fetch, placed.client < fetches)]
        if self._launch_queues:
            targets.append((self.launch, placed.client == fetches))
        targets += [(self.ram, (placed.client >= first) & ~in_ring)]
        targets += [
            (port, (placed.client == n) & in_ring) for n, port in enumerate(self.rings, first)
        ]
        for port, chosen in targets:
            m.d.comb += [port.payload.eq(placed), port.valid.eq(self.placement.valid & chosen)]
        mark = self.mark.payload
        receivers = [(self.fetch_mark, mark.client < fetches)]
        receivers += [(port, mark.client == n) for n, port in enumerate(self.marks, first)]
        for port, chosen in receivers:
            m.d.comb += [port.payload.eq(mark), port.valid.eq(self.mark.valid & chosen)]
        return m
