# SPDX-License-Identifier: BSD-2-Clause
"""Ports and parameters of Xilinx' primitives, from Yosys' library of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Primitive", "Value", "load", "value"]

#: A parameter's value: an integer, a real number or a word such as "TRUE".
Value = int | float | str

_DECLARATION = re.compile(r"^\s*(input|output|inout)\s+(?:\[(\d+):0\]\s*)?(\w+);", re.MULTILINE)
_PARAMETER = re.compile(
    r"^\s*parameter\s+(?:integer\s+|real\s+)?(?:\[(\d+):0\]\s*)?(\w+)\s*=\s*(.+);", re.MULTILINE
)


@dataclass(frozen=True)
class Primitive:
    """One primitive.

    Attributes
    ----------
    inputs, outputs : dict of str to int
        Width by port.
    defaults : dict of str to Value
        By parameter.
    """

    inputs: dict[str, int]
    outputs: dict[str, int]
    defaults: dict[str, Value]


def load(library: Path) -> dict[str, Primitive]:
    """The primitives of `cells_xtra.v`, by name."""
    found = {}
    for match in re.finditer(r"^module (\w+)\b.*?^endmodule", library.read_text(), re.M | re.S):
        ports: dict[str, dict[str, int]] = {"input": {}, "output": {}, "inout": {}}
        for direction, high, name in _DECLARATION.findall(match.group(0)):
            ports[direction][name] = int(high or 0) + 1
        defaults = {name: value(text) for _, name, text in _PARAMETER.findall(match.group(0))}
        found[match.group(1)] = Primitive(ports["input"], ports["output"], defaults)
    return found


def value(text: str | int | float) -> Value:
    """A parameter's value, from Verilog or from Yosys' JSON, where numbers are strings of bits."""
    if not isinstance(text, str):
        return text
    text = text.strip().strip('"').strip()
    if match := re.fullmatch(r"\d+'([bhdo])([0-9a-fA-F_]+)", text):
        return int(
            match.group(2).replace("_", ""), {"b": 2, "h": 16, "d": 10, "o": 8}[match.group(1)]
        )
    if re.fullmatch(r"[01]{6,}", text):
        return int(text, 2)
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d+", text):
        return float(text)
    return text
