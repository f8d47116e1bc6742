# SPDX-License-Identifier: BSD-2-Clause
"""C++ that joins a compiled core to a front end of the native model.

Each is a class in `sim/board/native/`, whose `Inputs` and `Outputs` have a member for each port of
the core: what differs does not compile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["HEADER", "Pin", "front_end"]

#: The file, beside what Verilator made of the core.
HEADER = "front_end.h"
#: Bits of what the C++ of a port is.
_DWORD, _LONG = 32, 64


class Pin(NamedTuple):
    """A port of the core, and the member that has its value."""

    port: str
    member: str
    width: int
    to_core: bool
    #: the member is an array of dwords
    dwords: bool = False


def front_end(origin: str, base: str, header: str, body: str, pins: Iterable[Pin]) -> str:
    """The text of `HEADER`.

    Parameters
    ----------
    origin : str
        What it is made from, for people.
    base, header : str
        The class that drives the ports, and where it is declared.
    body : str
        Of the class `FrontEnd`, which derives from it.
    pins : iterable of Pin
    """
    pins = list(pins)
    drive = "".join(_copy(pin) for pin in pins if pin.to_core)
    sample = "".join(_copy(pin) for pin in pins if not pin.to_core)
    inputs, outputs = f"const {base}::Inputs &pins", f"{base}::Outputs &pins"
    return (
        f"// Generated from {origin}\n"
        f'#pragma once\n#include "{header}"\nnamespace peerdma {{\n'
        f"struct FrontEnd : {base} {{\n{body}}};\n"
        f"template <class Core> void drive(Core &core, {inputs}) {{\n{drive}}}\n"
        f"template <class Core> void sample(const Core &core, {outputs}) {{\n{sample}}}\n"
        "}\n"
    )


def _copy(pin: Pin) -> str:
    core, member = f"core.{pin.port}", f"pins.{pin.member}"
    pairs = [(core, member)]
    if pin.dwords and pin.width > _LONG:
        count = -(-pin.width // _DWORD)
        pairs = [(f"{core}[{at}]", f"{member}[{at}]") for at in range(count)]
    elif pin.dwords and pin.to_core:
        pairs = [(core, f"uint64_t({member}[1]) << {_DWORD} | {member}[0]")]
    elif pin.dwords:
        pairs = [(core, f"{member}[0]"), (f"{core} >> {_DWORD}", f"{member}[1]")]
    return "".join(
        f"    {inside} = {outside};\n" if pin.to_core else f"    {outside} = {inside};\n"
        for inside, outside in pairs
    )
