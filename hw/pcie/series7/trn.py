# SPDX-License-Identifier: BSD-2-Clause
"""The table of the PCIe block's ports as an interface of Amaranth."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .ports import TRN_PORTS

__all__ = ["TrnSignature"]


class TrnSignature(wiring.Signature):
    """`TRN_PORTS` as an interface, seen from the core; the PCIe block has it with `In`."""

    def __init__(self):
        flow = {"i": In, "o": Out}
        super().__init__({port.name: flow[port.direction](port.width) for port in TRN_PORTS})
