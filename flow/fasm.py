# SPDX-License-Identifier: BSD-2-Clause
"""FASM, the text form of a configuration: one feature per line, `TILE.FEATURE` or with a value.

Functions of this package pass a configuration as a set of single-bit features: a value of several
bits is one feature per bit that is set, `TILE.FEATURE[7]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["line", "parse"]

_LINE = re.compile(r"([^\s\[=]+)(?:\[(\d+)(?::(\d+))?\])?(?:\s*=\s*(\S+))?$")


def parse(lines: Iterable[str]) -> set[str]:
    """The features of a FASM file.

    Raises
    ------
    ValueError
        If a line is not FASM.
    """
    found = set()
    for text in lines:
        text = re.sub(r"\{.*?\}", "", text).partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.match(text)
        if not match:
            raise ValueError(f"not a line of FASM: {text!r}")
        name, high, low, value = match.groups()
        number = _number(value) if value else 1
        if high is None:
            if number:
                found.add(name)
            continue
        first = int(low if low is not None else high)
        bits = range(number.bit_length())
        found |= {f"{name}[{first + bit}]" for bit in bits if number >> bit & 1}
    return found


def line(name: str, value: int, width: int) -> str:
    """The line that sets a feature of `width` bits to a value."""
    return f"{name}[{width - 1}:0] = {width}'b{value:0{width}b}"


def _number(text: str) -> int:
    _, quote, digits = text.partition("'")
    if not quote:
        return int(text, 0)
    return int(digits[1:].replace("_", ""), {"b": 2, "h": 16, "d": 10, "o": 8}[digits[0]])
