# SPDX-License-Identifier: BSD-2-Clause
"""A part of a BAR for registers that are outside of the core."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .bus import BusSignature

__all__ = ["RegisterPort", "RegisterWindow"]


class RegisterPort(wiring.Signature):
    """Accesses of the host to registers of a user's logic, from the core's side.

    It is the engine's own register bus rather than AXI4-Lite, whose slaves may make an access wait.
    Here none can wait: writes come from the link at up to eight bytes per cycle, and the receive
    side never stalls; reads are answered in order after a fixed number of cycles, so that one whose
    answer never came would hold up all that follow, those of the engine's registers included. With
    a fixed latency a read ends whatever the user's logic does.

    A word is 64 bits, as a beat of a TLP: the register at offset 0 is in its lower half, the one at
    offset 4 in its upper half. A read and a write may come in the same cycle.

    Parameters
    ----------
    bits : int
        Width of a byte address within the window.

    Members
    -------
    aresetn : Out(1)
        Low for at least one cycle: reset the registers. They keep their values when the streams of
        their pair are reset.
    waddr : Out(bits), wdata : Out(64)
        Byte address, a multiple of 8, and what is written there.
    wstrb : Out(8)
        The bytes that are written in this cycle; 0 in all others.
    raddr : Out(bits)
        Byte address, a multiple of 8.
    rstrb : Out(8)
        The bytes that are read in this cycle; 0 in all others.
    rdata : In(64)
        Sampled in the cycle after `rstrb`, not before and not later.
    """

    def __init__(self, bits: int):
        super().__init__(
            {
                "aresetn": Out(1),
                "waddr": Out(bits),
                "wdata": Out(64),
                "wstrb": Out(8),
                "raddr": Out(bits),
                "rstrb": Out(8),
                "rdata": In(64),
            }
        )


class RegisterWindow(wiring.Component):
    """The accesses of the register bus to a part of a BAR, as a `RegisterPort`.

    Read latency is one cycle, as that of a `RegisterBank`.

    Parameters
    ----------
    bar : int
        Number of the BAR.
    base, size : int
        Bytes within the BAR; `size` is a power of two, of which `base` is a multiple.

    Members
    -------
    bus : In(BusSignature)
    port : Out(RegisterPort)
    """

    def __init__(self, *, bar: int, base: int, size: int):
        self._bits = (size - 1).bit_length()
        if size != 1 << self._bits or base % size:
            raise ValueError(
                f"a window must be a power of two, at a multiple of it, not {size:#x} bytes at "
                f"{base:#x}"
            )
        self._bar, self._base = bar, base
        super().__init__({"bus": In(BusSignature()), "port": Out(RegisterPort(self._bits))})

    def elaborate(self, platform):
        m = Module()
        port, bits = self.port, self._bits

        def enabled(access):
            here = access.address[bits - 3 :] == self._base >> bits
            return (access.valid & (access.bar == self._bar) & here).replicate(8) & access.enable

        def address(access):
            return Cat(Const(0, 3), access.address[: bits - 3])

        write, read = self.bus.write, self.bus.read
        answered = Signal()
        m.d.sync += [port.aresetn.eq(1), answered.eq(port.rstrb.any())]
        m.d.comb += [
            port.waddr.eq(address(write)),
            port.wdata.eq(write.data),
            port.wstrb.eq(enabled(write)),
            port.raddr.eq(address(read)),
            port.rstrb.eq(enabled(read)),
            read.data.eq(answered.replicate(64) & port.rdata),
        ]
        return m
