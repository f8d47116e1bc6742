# SPDX-License-Identifier: BSD-2-Clause
"""A user block whose logic is outside of the core, behind AXI4-Stream ports."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..axi_stream import AxiStream, FromAxiStream, StreamResetPort, ToAxiStream, UserPorts
from .base import UserBlock

__all__ = ["Axis", "flat_ports", "user_module", "verilog_block"]

#: What the members of `UserPorts` are called by a module that is connected to them.
_PREFIXES = {
    "axis": "axis",
    "m_axis_h2c": "s_axis_h2c",
    "s_axis_c2h": "m_axis_c2h",
    "reg": "reg",
}


class Axis(UserBlock):
    """Hands the stream out of the core and takes another one in: see `UserPorts`.

    H2C comes out one cycle after the ring has it, C2H takes two cycles to the ring; both carry a
    beat in each cycle. Neither moves while `axis.aresetn` is low.

    A class derived from it may give the name and the ratio of the logic that is outside.

    Attributes
    ----------
    VERILOG : Path or None
        A file with that logic: the core then has its module `MODULE` inside, instead of ports.
    MODULE : str
    RESET_CYCLES : int
        For how long `axis.aresetn` is low: as long as Xilinx' AXI4-Stream blocks want it.

    Members
    -------
    axis, m_axis_h2c, s_axis_c2h
        As of `UserPorts`.
    """

    NAME = "AXIS"
    VERILOG: ClassVar[Path | None] = None
    MODULE: ClassVar[str] = ""
    RESET_CYCLES: ClassVar[int] = 16

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            width,
            axis=Out(StreamResetPort()),
            m_axis_h2c=Out(AxiStream(width)),
            s_axis_c2h=In(AxiStream(width)),
        )

    def elaborate(self, platform):
        m = Module()
        # A flush of the pair resets this block, and with it the counter.
        cycles = Signal(range(self.RESET_CYCLES))
        on = self.axis.aresetn
        with m.If(~on):
            m.d.sync += [cycles.eq(cycles + 1), on.eq(cycles == self.RESET_CYCLES - 1)]

        m.submodules.outwards = outwards = ToAxiStream(self._width)
        wiring.connect(m, outwards.o, wiring.flipped(self.m_axis_h2c))
        m.d.comb += [
            outwards.i.payload.eq(self.i.payload),
            outwards.i.valid.eq(self.i.valid & on),
            self.i.ready.eq(outwards.i.ready & on),
        ]
        m.submodules.inwards = inwards = FromAxiStream(self._width)
        wiring.connect(m, inwards.o, wiring.flipped(self.o))
        source, sink = self.s_axis_c2h, inwards.i
        m.d.comb += [
            sink.tdata.eq(source.tdata),
            sink.tkeep.eq(source.tkeep),
            sink.tlast.eq(source.tlast),
            sink.tvalid.eq(source.tvalid & on),
            source.tready.eq(sink.tready & on),
        ]
        return m


def verilog_block(path: Path) -> type[Axis]:
    """A block whose logic is the Verilog module in a file that is named as the module.

    The module has the ports ``clk`` and, as the other side of `UserPorts`, ``axis_aresetn``,
    ``s_axis_h2c_t...``, ``m_axis_c2h_t...`` and ``reg_...``. Its streams are as wide as the core's.

    Raises
    ------
    ValueError
        If the file cannot be read or has no such module.
    """
    path = path.resolve()
    name = path.stem
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the user block {path}: {error}") from error
    if not re.search(rf"^\s*module\s+{re.escape(name)}\b", text, re.MULTILINE):
        raise ValueError(f"{path} has no module {name}: name the module as its file")
    return type(name, (Axis,), {"__doc__": f"`{name}`", "VERILOG": path, "MODULE": name})


def flat_ports(
    number: int, width: int
) -> Iterator[tuple[str, wiring.Member, str, tuple[str, str]]]:
    """The ports of pair `number`: name in Verilog, member, text for people, path in `UserPorts`.

    A name has the pair's number behind the interface's: ``m_axis_h2c0_tdata``.
    """
    for (interface, name), member in UserPorts(width).flat_members():
        doc = UserPorts.DOCS[f"{interface}_{name}"]
        yield f"{interface}{number}_{name}", member, doc, (interface, name)


def user_module(user: type[Axis], ports) -> Instance:
    """The module of a block with `VERILOG`, connected to a pair's `UserPorts`."""
    pins = {"i_clk": ClockSignal()}
    for (interface, name), member in ports.signature.flat_members():
        way = "i" if member.flow == wiring.Out else "o"
        pins[f"{way}_{_PREFIXES[interface]}_{name}"] = getattr(getattr(ports, interface), name)
    return Instance(user.MODULE, **pins)
