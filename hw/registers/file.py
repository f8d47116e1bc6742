# SPDX-License-Identifier: BSD-2-Clause
"""The register file: a block RAM that keeps what software reads back as it wrote it.

The MSI-X table is in it, and the registers of the banks that read back unchanged: a multiplexer of
all of them would take hundreds of LUTs.
"""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from .bus import BusSignature, hand_on

__all__ = ["RegisterFile", "row"]

_ROWS = 512


def row(address: Value) -> Value:
    """The row for an address on the register bus, of whichever BAR.

    That is the word within 1 KiB, which is what four channels have, and four bits above it made
    into two. `tests/hw/registers/test_file.py` checks that no two stored words share a row.
    """
    page = address[9:]
    word = address[:7] | page[2] << 1
    return Cat(word, page[0] | page[3], page[1] | page[3])


class RegisterFile(wiring.Component):
    """Hands accesses on to a target, and stores and reads what the target leaves to it.

    The target says, too, whether something was stored since its last reset: rows have none.

    Members
    -------
    bus : In(BusSignature)
    target : Out(BusSignature)
        Answers a read in the next cycle. `bus` has the answer one cycle later.
    """

    bus: In(BusSignature())
    target: Out(BusSignature())

    def elaborate(self, platform):
        m = Module()
        bus, target = self.bus, self.target
        m.submodules.rows = rows = memory.Memory(
            shape=64, depth=_ROWS, init=[], attrs={"ram_style": "block"}
        )
        write, read = rows.write_port(granularity=32), rows.read_port()
        m.d.comb += [
            *hand_on(bus, target),
            write.addr.eq(row(bus.write.address)),
            write.data.eq(bus.write.data),
            write.en.eq(target.write.store),
            read.addr.eq(row(bus.read.address)),
        ]
        m.d.sync += bus.read.data.eq(target.read.data | (read.data & target.read.stored))
        return m
