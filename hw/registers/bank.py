# SPDX-License-Identifier: BSD-2-Clause
"""Registers: a 64-bit bus, and banks that elaborate from the register map."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma.regs import Access, Block

__all__ = ["READ_LATENCY", "BusSignature", "RegisterBank", "delayed", "fan_out"]

#: Clock cycles from `read_valid` of whoever reads to `read_data`: one on the way to the banks, one
#: in the bank, or where a few are merged, and one where all are.
READ_LATENCY = 3


class BusSignature(wiring.Signature):
    """Register bus, from the initiator's side; 64 bits wide, so that a beat of a TLP is one cycle.

    Reads and writes are independent; a write is visible to a read of a later cycle.

    Members
    -------
    write_valid : Out(1)
    write_bar, write_address : Out
        BAR number, and byte address within the BAR >> 3.
    write_data, write_enable : Out(64), Out(8)
    read_valid : Out(1)
        Side effects of reading happen in this cycle.
    read_bar, read_address : Out
    read_enable : Out(8)
        The bytes that are really read: no other register is affected.
    read_data : In(64)
        Valid `READ_LATENCY` cycles after `read_valid`; 0 where nothing is.
    """

    def __init__(self):
        super().__init__(
            {
                "write_valid": Out(1),
                "write_bar": Out(3),
                "write_address": Out(13),
                "write_data": Out(64),
                "write_enable": Out(8),
                "read_valid": Out(1),
                "read_bar": Out(3),
                "read_address": Out(13),
                "read_enable": Out(8),
                "read_data": In(64),
            }
        )


def delayed(m, bus):
    """The same bus, a cycle later; `bus.read_data` remains to be driven."""
    later = BusSignature().create()
    for member in bus.signature.members:
        if member != "read_data":
            m.d.sync += getattr(later, member).eq(getattr(bus, member))
    return later


def fan_out(m, bus, targets):
    """Connect several targets to one bus; their read data, 0 unless selected, is merged by OR."""
    merged = 0
    for target in targets:
        for name in ("valid", "bar", "address", "data", "enable"):
            m.d.comb += getattr(target, f"write_{name}").eq(getattr(bus, f"write_{name}"))
        for name in ("valid", "bar", "address", "enable"):
            m.d.comb += getattr(target, f"read_{name}").eq(getattr(bus, f"read_{name}"))
        merged = merged | target.read_data
    return merged


class RegisterBank(wiring.Component):
    """One instance of a `peerdma.regs.Block` at byte `base` of BAR `bar`.

    Writes take effect with all four byte enables of a register or not at all. Unused offsets read
    0 and drop writes. `bus.read_data` is 0 unless selected, so that banks are merged by OR, and
    registered once: in the bank or, if not `registered`, by whoever merges it with others.

    Members, for each register of the block
    ---------------------------------------
    RO : ``name`` In(32), the value; ``name_read`` Out(1), high while it is read
    RW : ``name`` Out(32), the value; ``name_live`` In(32), what its read-only bits read as;
        ``name_strobe`` Out(1) and ``name_data`` Out(32), high for the cycle of a write
    RW1C : ``name`` In(32), the value; ``name_clear`` Out(32), the bits that software clears in
        this cycle, through this register or its RC alias
    WO : ``name_strobe`` Out(1), ``name_data`` Out(32)
    ADD : ``name`` In(32), the value; ``name_strobe`` Out(1), ``name_data`` Out(32), what to add
    """

    def __init__(self, block: Block, *, bar: int, base: int | None = None, registered: bool = True):
        self._block = block
        self._registered = registered
        self._bar = bar
        self._base = block.base if base is None else base
        if self._base % block.size:
            raise ValueError(f"base {self._base:#x} of {block.name} is not aligned to its size")
        members = {"bus": In(BusSignature())}
        for register in block.registers:
            name = register.name
            match register.access:
                case Access.RO:
                    members |= {name: In(32, init=register.reset), f"{name}_read": Out(1)}
                case Access.RW:
                    members |= {
                        name: Out(32),
                        f"{name}_live": In(32),
                        f"{name}_strobe": Out(1),
                        f"{name}_data": Out(32),
                    }
                case Access.RW1C:
                    members |= {name: In(32), f"{name}_clear": Out(32)}
                case Access.WO:
                    members |= {f"{name}_strobe": Out(1), f"{name}_data": Out(32)}
                case Access.ADD:
                    members |= {
                        name: In(32),
                        f"{name}_strobe": Out(1),
                        f"{name}_data": Out(32),
                    }
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        bus, block = self.bus, self._block
        size_bits = (block.size - 1).bit_length()

        def selected(valid, bar, address):
            return (
                valid & (bar == self._bar) & (address[size_bits - 3 :] == self._base >> size_bits)
            )

        writing = Signal()
        reading = Signal()
        m.d.comb += [
            writing.eq(selected(bus.write_valid, bus.write_bar, bus.write_address)),
            reading.eq(selected(bus.read_valid, bus.read_bar, bus.read_address)),
        ]

        def hit(register, active, address, enable):
            lane = register.offset >> 2 & 1
            return (
                active
                & (address[: size_bits - 3] == register.offset >> 3)
                & enable[4 * lane : 4 * lane + 4].all()
            )

        def written(register):
            return hit(register, writing, bus.write_address, bus.write_enable)

        def data_of(register):
            lane = register.offset >> 2 & 1
            return bus.write_data[32 * lane : 32 * lane + 32]

        words: dict[int, list] = {}

        def readable(register, value):
            assert len(value) == 32, f"{register.name} would shift its neighbour"
            lanes = words.setdefault(register.offset >> 3, [Const(0, 32), Const(0, 32)])
            lanes[register.offset >> 2 & 1] = value

        for register in block.registers:
            name = register.name
            aliases = [other for other in block.registers if other.alias == name]
            match register.access:
                case Access.RO:
                    value = getattr(self, name)
                    readable(register, value)
                    m.d.comb += getattr(self, f"{name}_read").eq(self._read(register, reading))
                case Access.RW:
                    stored = Signal(32, init=register.reset & register.writable, name=name)
                    live = getattr(self, f"{name}_live")
                    strobe, data = getattr(self, f"{name}_strobe"), getattr(self, f"{name}_data")
                    read_only = 0xFFFF_FFFF ^ register.writable
                    readable(register, stored | (live & read_only))
                    m.d.comb += [
                        getattr(self, name).eq(stored),
                        strobe.eq(written(register)),
                        data.eq(data_of(register)),
                    ]
                    # One beat can carry a write to both aliases.
                    keep = Mux(strobe, data, stored)
                    for alias in aliases:
                        bits = Mux(written(alias), data_of(alias), 0)
                        keep = keep | bits if alias.access is Access.W1S else keep & ~bits
                    m.d.sync += stored.eq(keep & register.writable)
                case Access.RW1C:
                    value = getattr(self, name)
                    clear = getattr(self, f"{name}_clear")
                    readable(register, value)
                    with m.If(written(register)):
                        m.d.comb += clear.eq(data_of(register) & register.writable)
                    for alias in aliases:
                        readable(alias, value)
                        with m.If(self._read(alias, reading)):
                            m.d.comb += clear.eq(register.writable)
                case Access.WO | Access.ADD:
                    m.d.comb += [
                        getattr(self, f"{name}_strobe").eq(written(register)),
                        getattr(self, f"{name}_data").eq(data_of(register) & register.writable),
                    ]
                    if register.access is Access.ADD:
                        readable(register, getattr(self, name))

        domain = m.d.sync if self._registered else m.d.comb
        domain += bus.read_data.eq(0)
        with m.If(reading), m.Switch(bus.read_address[: size_bits - 3]):
            for word, lanes in words.items():
                with m.Case(word):
                    domain += bus.read_data.eq(Cat(*lanes))
        return m

    def _read(self, register, reading):
        """High while software reads `register`; any of its bytes counts."""
        lane = register.offset >> 2 & 1
        size_bits = (self._block.size - 1).bit_length()
        return (
            reading
            & (self.bus.read_address[: size_bits - 3] == register.offset >> 3)
            & self.bus.read_enable[4 * lane : 4 * lane + 4].any()
        )
