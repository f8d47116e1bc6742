# SPDX-License-Identifier: BSD-2-Clause
"""The configuration space that the hard block has in the reference configuration."""

from __future__ import annotations

from cocotbext.pcie.core import Endpoint
from cocotbext.pcie.core.caps import MsiCapability, MsixCapability

from peerdma import regs

__all__ = ["configuration_space"]


def configuration_space(lanes: int) -> Endpoint:
    """The function with its BARs and capabilities, on a Gen2 link of so many lanes."""
    function = Endpoint()
    function.vendor_id, function.device_id = 0x10EE, 0x7021
    function.subsystem_vendor_id, function.subsystem_id = 0x10EE, 0x5045
    function.class_code = 0x058000
    function.interrupt_pin = 1
    for bar, size in (regs.BAR_USER, regs.BAR_DMA):
        function.configure_bar(bar, size)
    capability = function.pcie_cap
    capability.max_payload_size_supported = 2
    capability.max_link_speed = capability.current_link_speed = 2
    capability.max_link_width = capability.negotiated_link_width = lanes
    msi = MsiCapability()
    msi.msi_64bit_address_capable = 1
    function.msi_cap = msi
    function.register_capability(msi)
    msix = MsixCapability()
    msix.msix_table_size = regs.MSIX_ENTRIES - 1
    msix.msix_table_bar_indicator_register = regs.BAR_DMA[0]
    msix.msix_table_offset = regs.MSIX_TABLE_OFFSET
    msix.msix_pba_bar_indicator_register = regs.BAR_DMA[0]
    msix.msix_pba_offset = regs.MSIX_PBA_OFFSET
    function.msix_cap = msix
    function.register_capability(msix)
    return function
