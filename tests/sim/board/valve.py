# SPDX-License-Identifier: BSD-2-Clause
"""A user block that stalls as software says: what a block of one's own does by mistake."""

from amaranth import Module

from hw.stream.user_blocks import UserBlock
from peerdma.regs import USER_BLOCK_BASE, Access, Block, Register

__all__ = ["GIVES", "TAKES", "Valve"]

#: Bits of its register, at offset 0: it takes bytes, and gives bytes.
TAKES, GIVES = 1, 2


class Valve(UserBlock):
    """Passes bytes on while it takes and gives, drops them while it takes only."""

    NAME = "VALV"
    REGISTERS = Block(
        "valve",
        USER_BLOCK_BASE,
        (Register("open", 0x00, Access.RW, "What it does", reset=0),),
        "User block VALV",
    )

    def elaborate(self, platform):
        m = Module()
        takes, gives = self.open[0], self.open[1]
        m.d.comb += [
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & takes & gives),
            self.i.ready.eq(takes & (self.o.ready | ~gives)),
        ]
        return m
