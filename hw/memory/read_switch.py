# SPDX-License-Identifier: BSD-2-Clause
"""Joins the writer's read port to the memories of the card."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..records import CardMemory, WordAddress
from .card_ram import ReadPortSignature

__all__ = ["ReadSwitch"]


class ReadSwitch(wiring.Component):
    """Reads card RAM or the outbound ring of a pair, as the address says.

    Parameters
    ----------
    rings : int
        Number of pairs.

    Members
    -------
    port : In(ReadPortSignature)
        The address is a `WordAddress`. Of a memory that does not exist the data means nothing.
    ram : Out(ReadPortSignature), rings : array of Out(ReadPortSignature)
    """

    def __init__(self, rings: int):
        super().__init__(
            {
                "port": In(ReadPortSignature()),
                "ram": Out(ReadPortSignature()),
                "rings": Out(ReadPortSignature()).array(rings),
            }
        )

    def elaborate(self, platform):
        m = Module()
        address = data.View(WordAddress, self.port.address)
        in_ring = address.memory == CardMemory.RING
        memories = [(self.ram, ~in_ring)]
        memories += [(ring, in_ring & (address.pair == n)) for n, ring in enumerate(self.rings)]
        m.d.comb += self.port.data.eq(self.ram.data)
        for index, (memory, chosen) in enumerate(memories):
            # The data comes in the cycle after the address.
            was_chosen = Signal(name=f"was_chosen{index}")
            m.d.comb += [
                memory.address.eq(self.port.address),
                memory.enable.eq(self.port.enable & chosen),
            ]
            with m.If(self.port.enable):
                m.d.sync += was_chosen.eq(chosen)
            with m.If(was_chosen):
                m.d.comb += self.port.data.eq(memory.data)
        return m
