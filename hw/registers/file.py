# SPDX-License-Identifier: BSD-2-Clause
"""The register file: a block RAM that keeps what software reads back as it wrote it.

The MSI-X table is in it, the registers of the banks that read back unchanged, and constants: a
multiplexer of all of them would take hundreds of LUTs.
"""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from .bus import BusSignature, hand_on

__all__ = ["RegisterFile", "row"]

_ROWS = 512


def row(address):
    """The row for an address on the register bus, a number or a Value, of whichever BAR.

    That is the word within 1 KiB, which is what four channels have, and four bits above it made
    into two. `tests/hw/registers/test_file.py` checks that no two stored words share a row.
    """
    page = address >> 9
    word = address & 0x7F | (page & 4) >> 1 | (page & page >> 3 & 1) << 6
    return word | (page & 3 | (page >> 3 & 1) * 3) << 7


class RegisterFile(wiring.Component):
    """Hands accesses on to a target, and stores and reads what the target leaves to it.

    The target says, too, whether something was stored since its last reset: rows have none.

    Parameters
    ----------
    contents : dict of int to int
        What words hold from the beginning, by address on the bus.

    Members
    -------
    bus : In(BusSignature)
    target : Out(BusSignature)
        Answers a read in the next cycle. `bus` has the answer one cycle later.
    """

    bus: In(BusSignature())
    target: Out(BusSignature())

    def __init__(self, contents: dict[int, int]):
        self._rows = [0] * _ROWS
        for address, word in contents.items():
            self._rows[row(address)] = word
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        bus, target = self.bus, self.target
        m.submodules.rows = rows = memory.Memory(
            shape=64, depth=_ROWS, init=self._rows, attrs={"ram_style": "block"}
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
