# SPDX-License-Identifier: BSD-2-Clause
"""The core behind the adapter of UltraScale or UltraScale+: C++ that joins it to the native model.

It names the members of `UltraScalePorts` in `sim/board/native/ultrascale.h`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hw.pcie.adapters import ADAPTERS
from hw.pcie.ultrascale.family import FAMILIES, Family

from .front_end import Pin, front_end

__all__ = ["front_end_of_streams"]


def front_end_of_streams(name: str) -> str:
    """For one of `hw.pcie.adapters.ADAPTERS`; KeyError if it is another block's."""
    family = FAMILIES[name.rsplit("-", 1)[0]]
    block = ADAPTERS[name].block
    flags = ", ".join(str(flag).lower() for flag in (family.one_hot_speed, family.bus_number))
    # No member of the class: dlopen gives all libraries in a process the first one's.
    numbers = f"{block.width}, {family.sequence_bits}"
    kind = f'UltraScaleKind{{"{name}", {numbers}, {flags}}}'
    body = (
        "    template <class... Others>\n"
        "    FrontEnd(const Options &options, Others &...others)\n"
        f"        : UltraScaleBlock({kind}, options, others...) {{}}\n"
    )
    pins = _pins(name, family)
    return front_end("hw/pcie/ultrascale/ports.py", "UltraScaleBlock", "ultrascale.h", body, pins)


def _pins(name: str, family: Family) -> Iterator[Pin]:
    first, *others = family.sequence_ports
    for port in ADAPTERS[name].ports:
        member, dwords = port.name, False
        if "_axis_" in member:
            stream, _, signal = member.rpartition("_")
            member, dwords = f"{stream}.{signal}", signal in ("tdata", "tuser")
        elif member.startswith("pcie_rq_seq_num"):
            # Numbers come back at the first of these ports only.
            if any(member.endswith(suffix) for suffix in others):
                continue
            member = member.removesuffix(first)
        yield Pin(port.name, member, port.width, port.direction == "i", dwords)
