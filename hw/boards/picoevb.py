# SPDX-License-Identifier: BSD-2-Clause
"""PicoEVB (RHS Research): XC7A50T on an M.2 card, PCIe Gen2 x1.

Pins as in NVIDIA's constraints for this board.
"""

from amaranth.build import Attrs, Clock, DiffPairs, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import XilinxPlatform

__all__ = ["PicoEVBPlatform"]


class PicoEVBPlatform(XilinxPlatform):
    """The board's pins; all I/O is 3.3 V."""

    device = "xc7a50t"
    package = "csg325"
    speed = "2"
    resources = [  # noqa: RUF012, Amaranth's convention
        Resource(
            "pcie",
            0,
            Subsignal("refclk", DiffPairs("B6", "B5", dir="i"), Clock(100e6)),
            Subsignal("rx", DiffPairs("G4", "G3", dir="i")),
            Subsignal("tx", DiffPairs("B2", "B1", dir="o")),
            # The host asserts it until its power is good. Pulled low, so also asserted without one.
            Subsignal(
                "perst", PinsN("A10", dir="i"), Attrs(IOSTANDARD="LVCMOS33", PULLDOWN="TRUE")
            ),
            Subsignal(
                "clkreq", PinsN("A9", dir="o"), Attrs(IOSTANDARD="LVCMOS33", PULLDOWN="TRUE")
            ),
        ),
        Resource(
            "led",
            0,
            PinsN("V12 V13 V14", dir="o"),
            Attrs(IOSTANDARD="LVCMOS33", PULLUP="TRUE", DRIVE="8"),
        ),
        # Pins 1, 2, 4 and 5 of the connector.
        Resource("gpio", 0, Pins("A14 A13 B12 A12", dir="i"), Attrs(IOSTANDARD="LVCMOS33")),
    ]
    connectors = []  # noqa: RUF012
