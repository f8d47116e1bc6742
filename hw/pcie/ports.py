# SPDX-License-Identifier: BSD-2-Clause
"""How the ports of a PCIe block are listed. Plain data, which imports no Amaranth."""

from dataclasses import dataclass

__all__ = ["Port", "port_rows"]


@dataclass(frozen=True)
class Port:
    """One port of the core towards the hard block."""

    name: str
    direction: str
    width: int
    doc: str


def port_rows(direction: str, *rows: tuple[str, int, str]) -> tuple[Port, ...]:
    """Ports of one direction, the core's: "o" drives the hard block."""
    return tuple(Port(name, direction, width, doc) for name, width, doc in rows)
