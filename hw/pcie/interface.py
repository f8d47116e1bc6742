# SPDX-License-Identifier: BSD-2-Clause
"""The table of a PCIe block's ports as an interface of Amaranth."""

from collections.abc import Iterable

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .ports import Port

__all__ = ["PortsSignature"]


class PortsSignature(wiring.Signature):
    """Ports as an interface, seen from the core; the PCIe block has it with `In`."""

    def __init__(self, ports: Iterable[Port]):
        flow = {"i": In, "o": Out}
        super().__init__({port.name: flow[port.direction](port.width) for port in ports})
