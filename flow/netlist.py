# SPDX-License-Identifier: BSD-2-Clause
"""Prepares Yosys' netlist so that nextpnr-himbaechel can place and route it with its hard blocks.

nextpnr knows the sites of transceiver and PCIe block and routes to their pins, but does not pack
them: ports of several bits have to be split into pins, and dedicated wires that are not general
routing (pads, PLL outputs to the channel) have to be removed. The blocks' parameters are returned
for `flow.hard_blocks`.

nextpnr does not route constant inputs: an open input reads 1 (UG474), and `flow.ground` ties the
others to 0. `flow.checks` verifies that in the bitstream.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from .primitives import Primitive, Value, value

__all__ = ["BEL_TYPES", "DEDICATED", "HardBlock", "NetlistError", "pin", "prepare"]

#: Hard blocks that nextpnr does not pack -> nextpnr's type of bel.
BEL_TYPES = {
    "GTPE2_CHANNEL": "GTPE2_CHANNEL",
    "GTPE2_COMMON": "GTPE2_COMMON",
    "IBUFDS_GTE2": "IBUFDS_GTE2",
    "PCIE_2_1": "PCIE_2_1_PCIE_2_1",
}

#: Ports with dedicated wires, fixed by the site: pads, and clocks within the quad.
DEDICATED = {
    "GTPE2_CHANNEL": {
        *("GTPRXN", "GTPRXP", "GTPTXN", "GTPTXP"),
        *("PLL0CLK", "PLL0REFCLK", "PLL1CLK", "PLL1REFCLK"),
    },
    "GTPE2_COMMON": {
        *("GTREFCLK0", "GTREFCLK1", "GTEASTREFCLK0", "GTEASTREFCLK1"),
        *("GTWESTREFCLK0", "GTWESTREFCLK1"),
        *("PLL0OUTCLK", "PLL0OUTREFCLK", "PLL1OUTCLK", "PLL1OUTREFCLK"),
    },
    "IBUFDS_GTE2": {"I", "IB", "O", "ODIV2"},
    "PCIE_2_1": set(),
}
_PADS = {"GTPRXN", "GTPRXP", "GTPTXN", "GTPTXP", "I", "IB"}

#: Inputs with a programmable inverter: for a constant 0 they are left open, so 1, and inverted, as
#: Vivado does it, which a parameter then says; `flow.corrections` sets the inverters.
_OPEN_LOW = {
    "MMCME2_ADV": {"RST", "PWRDWN", "PSEN", "PSINCDEC"},
    "BUFGCTRL": {"IGNORE0", "IGNORE1"},
}


class NetlistError(Exception):
    """No bitstream can be made of the netlist; the message names cells and ports."""


@dataclass
class HardBlock:
    """One hard block of a netlist.

    Attributes
    ----------
    name, type : str
        Cell, and primitive.
    parameters : dict of str to Value
        All parameters of the primitive.
    inputs : dict of str to str or int
        By the site's name of the pin: "0", "1", or the number of a net.
    inverted : set of str
        Clock inputs that are constant 0: open, so 1, and inverted.
    """

    name: str
    type: str
    parameters: dict[str, Value]
    inputs: dict[str, str | int] = field(default_factory=dict)
    inverted: set[str] = field(default_factory=set)


def pin(primitive: str, port: str, index: int, width: int) -> str:
    """The site's name for a bit of a port."""
    return port if width == 1 else f"{port}{index}"


def prepare(
    design: dict, top: str, primitives: Mapping[str, Primitive]
) -> tuple[dict, list[HardBlock]]:
    """A netlist for nextpnr, and its hard blocks.

    Parameters
    ----------
    design : dict
        Of Yosys' write_json; unchanged.
    top : str
    primitives : mapping of str to Primitive

    Raises
    ------
    NetlistError
        If an input of a hard block is not connected, or a parameter is none of the primitive's.
    """
    module = copy.deepcopy(design["modules"][top])
    blocks, pads, wrong = [], set(), []
    for name, cell in module["cells"].items():
        for port in _OPEN_LOW.get(cell["type"], ()):
            if cell["connections"].get(port) == ["0"]:
                del cell["connections"][port]
                cell["parameters"][f"IS_{port}_INVERTED"] = "1"
        if cell["type"] not in BEL_TYPES:
            continue
        primitive = primitives[cell["type"]]
        block = HardBlock(name, cell["type"], dict(primitive.defaults))
        for parameter, given in cell["parameters"].items():
            if parameter not in primitive.defaults:
                wrong.append(f"{block.type} has no parameter {parameter}")
            block.parameters[parameter] = value(given)
        wrong += _inputs(block, cell, primitive)
        for port in _PADS & cell["connections"].keys() & DEDICATED[block.type]:
            pads.update(cell["connections"][port])
        _flatten(block, cell, primitive)
        blocks.append(block)
    if wrong:
        raise NetlistError("\n".join(wrong))
    _drop_pads(module, pads)
    return {"creator": design["creator"], "modules": {top: module}}, blocks


def _inputs(block: HardBlock, cell: dict, primitive: Primitive) -> list[str]:
    """Fills the block's inputs; returns errors for those that are not connected."""
    wrong = []
    for port, width in primitive.inputs.items():
        bits = cell["connections"].get(port, ())
        if len(bits) != width or "x" in bits or "z" in bits:
            wrong.append(f"{block.type} {block.name}: input {port} is not connected")
            continue
        for index, bit in enumerate(bits):
            block.inputs[pin(block.type, port, index, width)] = bit
        if bits == ["0"] and f"IS_{port}_INVERTED" in block.parameters:
            block.inverted.add(port)
    return wrong


def _flatten(block: HardBlock, cell: dict, primitive: Primitive) -> None:
    """Changes the cell to nextpnr's type and pins, with only the connections to route."""
    connections, directions = {}, {}
    for port, bits in cell["connections"].items():
        if port in DEDICATED[block.type] or port in block.inverted:
            continue
        width = (primitive.inputs | primitive.outputs)[port]
        for index, bit in enumerate(bits):
            if bit in ("0", "1") and port in primitive.inputs:
                continue
            # nextpnr names the common block's pins with an index in brackets.
            bracket = block.type == "GTPE2_COMMON" and width > 1
            name = f"{port}[{index}]" if bracket else pin(block.type, port, index, width)
            connections[name] = [bit]
            directions[name] = cell["port_directions"][port]
    cell.update(
        type=BEL_TYPES[block.type],
        connections=connections,
        port_directions=directions,
        parameters={},
        attributes={},
    )


def _drop_pads(module: dict, pads: set) -> None:
    """Removes the transceiver's ports, and the I/O buffers that synthesis added to some."""
    for name, cell in list(module["cells"].items()):
        if cell["type"] in ("IBUF", "OBUF"):
            bits = {*cell["connections"]["I"], *cell["connections"]["O"]}
            if bits & pads:
                pads |= bits
                del module["cells"][name]
    for name, port in list(module["ports"].items()):
        if pads & set(port["bits"]):
            del module["ports"][name]
