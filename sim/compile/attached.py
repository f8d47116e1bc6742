# SPDX-License-Identifier: BSD-2-Clause
"""The core without an adapter of a PCIe block: its seam is what the native model drives.

Each field of what crosses the seam becomes a port. The C++ that copies them is generated, too: it
names the members of `SeamPorts` in `sim/board/native/seam.h`, and what differs does not compile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from amaranth import Const, Elaboratable, Module, Shape, Signal, Value
from amaranth.back import verilog
from amaranth.lib import data
from amaranth.lib.wiring import In, PureInterface

from hw.core import Core, CoreConfig
from hw.endpoint import EXTRA_PORTS, MODULE_NAME, SIMULATION_PORTS
from hw.pcie.ports import Port
from hw.pcie.series7.block import SERIES7
from hw.seam import Block, SeamSignature
from peerdma import regs
from sim.board.session import Seam

from .front_end import Pin, front_end

__all__ = ["block_of", "front_end_of_seam", "ports_of_seam", "verilog_of_attached"]


class _Port(NamedTuple):
    """A field: its path in the seam, its value in the core, and whether it is an input of that."""

    path: str
    value: Value
    to_core: bool

    @property
    def name(self) -> str:
        """Of the Verilog module's port."""
        return self.path.replace(".", "_")


def verilog_of_attached(config: CoreConfig, seam: Seam) -> str:
    """Verilog of a core for simulation."""
    top = _Attached(config, seam)
    return verilog.convert(top, name=MODULE_NAME, ports=top.ports, emit_src=False)


def ports_of_seam(seam: Seam) -> list[Port]:
    """The module's ports to the block, one for each field of what crosses the seam."""
    signature = SeamSignature(block_of(seam))
    return [
        Port(port.name, "i" if port.to_core else "o", len(port.value), port.path)
        for port in _ports(signature, signature.create())
    ]


def front_end_of_seam(seam: Seam) -> str:
    """C++ that copies the seam's fields to a compiled core's ports and back."""
    signature = SeamSignature(block_of(seam))
    body = (
        "    template <class... Others>\n"
        "    FrontEnd(const Options &options, Others &...others)\n"
        "        : SeamBlock(options, others...) {\n"
        f"        require({seam.width});\n    }}\n"
    )
    pins = (
        Pin(port.name, port.path, seam.width, port.to_core, port.path.endswith(".data"))
        for port in _ports(signature, signature.create())
    )
    return front_end("hw/seam.py", "SeamBlock", "seam.h", body, pins)


def block_of(seam: Seam) -> Block:
    """The block that such a core is built for: otherwise as the 7-series', but for its tags."""
    return replace(
        SERIES7,
        width=seam.width,
        max_tags=64,
        completion_headers=seam.completion_headers,
        completion_credits=seam.completion_credits,
    )


def _ports(signature: SeamSignature, interface: PureInterface) -> Iterator[_Port]:
    for path, member, value in signature.flatten(interface):
        # What is always ready has no port.
        if not isinstance(Value.cast(value), Const):
            yield from _fields(".".join(map(str, path)), value, member.flow == In)


def _fields(path: str, value: Value | data.View, to_core: bool) -> Iterator[_Port]:
    if isinstance(value, data.View):
        for name, _ in data.Layout.cast(value.shape()):
            yield from _fields(f"{path}.{name}", getattr(value, name), to_core)
    else:
        yield _Port(path, Value.cast(value), to_core)


class _Attached(Elaboratable):
    """A core whose ports are signals of its own, one for each field."""

    def __init__(self, config: CoreConfig, seam: Seam):
        # As `hw.endpoint.Endpoint` has it for a simulation.
        config = replace(config, completion_timeout_us=regs.COMPLETION_TIMEOUTS_US[-1])
        self._core = core = Core(block_of(seam), config)
        board = [
            _Port(port.name, getattr(core, port.name), port.direction == "i")
            for port in (*EXTRA_PORTS, *SIMULATION_PORTS)
            if hasattr(core, port.name)
        ]
        self._signals = [
            (port, Signal(Shape.cast(port.value.shape()).width, name=port.name))
            for port in (*board, *_ports(core.seam.signature, core.seam))
        ]

    @property
    def ports(self) -> dict[str, tuple[Value, None]]:
        """Of the module, except clock and reset."""
        return {port.name: (signal, None) for port, signal in self._signals}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = self._core
        for port, signal in self._signals:
            ends = (port.value, signal) if port.to_core else (signal, port.value)
            m.d.comb += ends[0].eq(ends[1])
        return m
