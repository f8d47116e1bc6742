# SPDX-License-Identifier: BSD-2-Clause
"""The MSI-X table and its pending bits (PCI Local Bus Specification 3.0, section 6.8.2)."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..registers.bus import READ_LATENCY, BusSignature

__all__ = ["MsixTable", "entry_word"]

_BAR = regs.BAR_DMA[0]
_ENTRIES = regs.MSIX_ENTRIES
#: Words of the register bus: the address of an entry's message; its data and vector control.
_WORDS = 2 * _ENTRIES
_PLACE = (_WORDS - 1).bit_length()
_BASE = regs.MSIX_TABLE_OFFSET // 8 >> _PLACE


def entry_word(vector: Value, word: int) -> Value:
    """Address on the register bus of word 0 or 1 of an entry."""
    return Cat(Const(word, 1), vector, Const(_BASE, 13 - _PLACE))


class MsixTable(wiring.Component):
    """Keeps the mask bit and the pending bit of each vector; its message is in the register file.

    Each dword of an entry is written with all four byte enables or not at all. Of vector control
    only the mask bit is kept; it is 1 after reset. A message that was written before a reset is
    still there after it, masked.

    Members
    -------
    bus : In(BusSignature)
        The record writer reads messages over it, too.
    changed : Out(1)
        A mask bit was written; reads of the table that began before may return the old one.
    pend : In(1), settle : In(1), vector : In(5)
        Set the pending bit of a vector, or clear it.
    clear : In(1)
        Clear all pending bits; wins over `pend`.
    """

    bus: In(BusSignature())
    changed: Out(1)
    pend: In(1)
    settle: In(1)
    vector: In(range(_ENTRIES))
    clear: In(1)

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        masks = Signal(_ENTRIES, init=-1)
        pending = Signal(_ENTRIES)

        def in_table(bar, address):
            return (bar == _BAR) & (address[_PLACE:] == _BASE)

        odd = bus.write.address[0]
        dwords = Cat(bus.write.enable[:4].all(), bus.write.enable[4:].all())
        masking = Signal()
        with m.If(bus.write.valid & in_table(bus.write.bar, bus.write.address)):
            m.d.comb += [bus.write.store.eq(dwords), masking.eq(odd & dwords[1])]
        with m.If(masking):
            m.d.sync += masks.bit_select(bus.write.address[1:_PLACE], 1).eq(bus.write.data[32])

        # A read that began up to `READ_LATENCY` cycles ago returns the old mask bit.
        late = Signal(READ_LATENCY)
        m.d.sync += late.eq(Cat(masking, late))
        m.d.comb += self.changed.eq(masking | late.any())

        from_table, from_control, from_pending, mask = Signal(), Signal(), Signal(), Signal()
        reading = bus.read.valid & in_table(bus.read.bar, bus.read.address)
        m.d.sync += [
            from_table.eq(reading),
            from_control.eq(reading & bus.read.address[0]),
            from_pending.eq(
                bus.read.valid
                & (bus.read.bar == _BAR)
                & (bus.read.address == regs.MSIX_PBA_OFFSET // 8)
            ),
            mask.eq(masks.bit_select(bus.read.address[1:_PLACE], 1)),
        ]
        message = Cat(from_table.replicate(32), (from_table & ~from_control).replicate(32))
        m.d.comb += [
            bus.read.stored.eq(message),
            bus.read.data.eq(Cat(Mux(from_pending, pending, 0), from_control & mask)),
        ]

        with m.If(self.pend | self.settle):
            m.d.sync += pending.bit_select(self.vector, 1).eq(self.pend)
        with m.If(self.clear):
            m.d.sync += pending.eq(0)
        return m
