# SPDX-License-Identifier: BSD-2-Clause
"""The physical side of a 7-series PCIe endpoint: transceiver, clocks, and the PCIe block itself."""

from .phy import Pads, Phy

__all__ = ["Pads", "Phy"]
