# SPDX-License-Identifier: BSD-2-Clause
"""Block RAM in which the PCIe block buffers TLPs to transmit and received ones."""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..parameters import BUFFER_DEPTH

__all__ = ["TlpBuffer"]


class TlpBuffer(wiring.Component):
    """One write and one read port in the user clock's domain; read latency `BUFFER_READ_LATENCY`.

    Parameters
    ----------
    width : int
        Bits: 69 for transmit, 68 for receive.
    """

    def __init__(self, width: int):
        self._width = width
        address = (BUFFER_DEPTH - 1).bit_length()
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(address),
                "write_data": In(width),
                "read_enable": In(1),
                "read_address": In(address),
                "read_data": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.storage = storage = memory.Memory(
            shape=self._width, depth=BUFFER_DEPTH, init=[]
        )
        write, read = storage.write_port(), storage.read_port()
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
        ]
        # Not reset with the core: the PCIe block may already use its buffers.
        output = Signal(self._width, reset_less=True)
        m.d.sync += output.eq(read.data)
        m.d.comb += self.read_data.eq(output)
        return m
