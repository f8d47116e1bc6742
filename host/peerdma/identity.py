# SPDX-License-Identifier: BSD-2-Clause
"""What a board calls itself on the PCI bus, and how it is named by its place there."""

from __future__ import annotations

__all__ = ["IDENTITIES", "VFIO", "XILINX"]

#: What the names of boards begin with that are opened by the kernel's VFIO, before their address.
VFIO = "vfio:"

XILINX = 0x10EE

#: The functions that the kernel driver takes:
#: (vendor, device, subsystem vendor, subsystem), and whose design has it, as in driver/.
IDENTITIES = {
    (XILINX, 0x7021, XILINX, 0x5045): "peerdma",
    (XILINX, 0x8038, XILINX, 0x5045): "peerdma, UltraScale",
    (XILINX, 0x9038, XILINX, 0x5045): "peerdma, UltraScale+",
    (0x10DE, 0x0001, 0x10DE, 0x0001): "NVIDIA's design for the PicoEVB",
    (0x10DE, 0x0001, 0x10DE, 0x0002): "NVIDIA's design for the HTG-K800",
}
