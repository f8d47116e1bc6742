# SPDX-License-Identifier: BSD-2-Clause
"""Register banks, elaborated from the register map.

`amaranth_soc.csr` is not used: it has no byte enables, no W1S, W1C and read-to-clear aliases of one
register, and takes one cycle per bus word, where a 64-bit beat here accesses two registers at once.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma.regs import Access, Block, Register

from .bus import BusSignature

__all__ = ["RegisterBank", "field", "plain"]


def field(value: Value, register: Register, name: str) -> Value:
    """The bits of a register's value that are its field `name`; they can be assigned to, too."""
    bits = register.field(name)
    return value[bits.lsb : bits.lsb + bits.width]


def plain(block: Block) -> list[Register]:
    """The registers of a block that begin at 0 and read back as they were written, bit by bit."""
    aliased = {register.alias for register in block.registers}
    return [
        register
        for register in block.registers
        if register.access is Access.RW and not register.reset and register.name not in aliased
    ]


class RegisterBank(wiring.Component):
    """One instance of a `peerdma.regs.Block` at byte `base` of BAR `bar`.

    A write takes effect with all four byte enables of a register or not at all. Unused offsets
    read 0 and drop writes.

    Parameters
    ----------
    block : Block
    bar : int
        Number of the BAR.
    base : int, optional
        Byte address within the BAR, by default that of the block; aligned to the block's size.
    registered : bool
        Register the read data. A bank without that goes behind a `BusFanOut` that has it.
    in_file : bool
        Leave it to the register file to read back what is `plain`. The bank is behind one then.

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

    def __init__(
        self,
        block: Block,
        *,
        bar: int,
        base: int | None = None,
        registered: bool = True,
        in_file: bool = False,
    ):
        self._block = block
        self._in_file = plain(block) if in_file else []
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
        block, read, write = self._block, self.bus.read, self.bus.write
        size_bits = (block.size - 1).bit_length()

        def selected(access):
            here = access.address[size_bits - 3 :] == self._base >> size_bits
            return access.valid & (access.bar == self._bar) & here

        writing = Signal()
        reading = Signal()
        m.d.comb += [
            writing.eq(selected(write)),
            reading.eq(selected(read)),
        ]

        def hit(register, access):
            return access.address[: size_bits - 3] == register.offset >> 3

        def lane(register):
            return register.offset >> 2 & 1

        def written(register):
            """High while software writes the whole register."""
            return (
                writing & hit(register, write) & write.enable.word_select(lane(register), 4).all()
            )

        def was_read(register):
            """High while software reads the register; any of its bytes counts."""
            return reading & hit(register, read) & read.enable.word_select(lane(register), 4).any()

        def data_of(register):
            return write.data.word_select(lane(register), 32)

        # What the two registers of a word read as, and which of their bits the file has.
        words: dict[int, list] = {}
        nothing = Const(0, 32)

        def readable(register, value, in_file=nothing):
            assert len(value) == 32, f"{register.name} would shift its neighbour"
            lanes = words.setdefault(register.offset >> 3, [(nothing, nothing)] * 2)
            lanes[lane(register)] = (value, in_file)

        for register in block.registers:
            name = register.name
            aliases = [other for other in block.registers if other.alias == name]
            match register.access:
                case Access.RO:
                    value = getattr(self, name)
                    readable(register, value)
                    m.d.comb += getattr(self, f"{name}_read").eq(was_read(register))
                case Access.RW:
                    stored = Signal(32, init=register.reset & register.writable, name=name)
                    live = getattr(self, f"{name}_live")
                    strobe, data = getattr(self, f"{name}_strobe"), getattr(self, f"{name}_data")
                    read_only = 0xFFFF_FFFF ^ register.writable
                    if register in self._in_file:
                        # The file is not reset with the register.
                        in_file = Signal(name=f"{name}_in_file")
                        with m.If(strobe):
                            m.d.sync += in_file.eq(1)
                            m.d.comb += write.store[lane(register)].eq(1)
                        bits = in_file.replicate(32) & register.writable
                        readable(register, live & read_only, bits)
                    else:
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
                        with m.If(was_read(alias)):
                            m.d.comb += clear.eq(register.writable)
                case Access.WO | Access.ADD:
                    m.d.comb += [
                        getattr(self, f"{name}_strobe").eq(written(register)),
                        getattr(self, f"{name}_data").eq(data_of(register) & register.writable),
                    ]
                    if register.access is Access.ADD:
                        readable(register, getattr(self, name))

        domain = m.d.sync if self._registered else m.d.comb
        domain += [read.data.eq(0), read.stored.eq(0)]
        with m.If(reading), m.Switch(read.address[: size_bits - 3]):
            for word, lanes in words.items():
                values, in_file = zip(*lanes, strict=True)
                with m.Case(word):
                    domain += [read.data.eq(Cat(values)), read.stored.eq(Cat(in_file))]
        return m
