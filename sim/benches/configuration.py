# SPDX-License-Identifier: BSD-2-Clause
"""The configuration space that the hard block has in the reference configuration."""

from __future__ import annotations

from cocotbext.pcie.core import Endpoint
from cocotbext.pcie.core.caps import MsiCapability, MsixCapability

from hw.pcie.series7.parameters import PARAMETERS, Identity
from peerdma import regs

__all__ = ["configuration_space", "reset_configuration"]


def configuration_space(lanes: int) -> Endpoint:
    """The function with its BARs and capabilities, on a Gen2 link of so many lanes."""
    function = Endpoint()
    ids = Identity()
    function.vendor_id, function.device_id = ids.vendor, ids.device
    function.subsystem_vendor_id, function.subsystem_id = ids.subsystem_vendor, ids.subsystem
    function.class_code = PARAMETERS["CLASS_CODE"]
    function.interrupt_pin = PARAMETERS["INTERRUPT_PIN"]
    for bar, size in (regs.BAR_USER, regs.BAR_DMA):
        function.configure_bar(bar, size)
    capability = function.pcie_cap
    capability.max_payload_size_supported = PARAMETERS["DEV_CAP_MAX_PAYLOAD_SUPPORTED"]
    speed = PARAMETERS["LINK_CAP_MAX_LINK_SPEED"]
    capability.max_link_speed = capability.current_link_speed = speed
    capability.max_link_width = capability.negotiated_link_width = lanes
    msi = MsiCapability()
    msi.msi_64bit_address_capable = 1
    function.msi_cap = msi
    function.register_capability(msi)
    msix = MsixCapability()
    msix.msix_table_size = PARAMETERS["MSIX_CAP_TABLE_SIZE"]
    msix.msix_table_bar_indicator_register = PARAMETERS["MSIX_CAP_TABLE_BIR"]
    msix.msix_table_offset = 8 * PARAMETERS["MSIX_CAP_TABLE_OFFSET"]
    msix.msix_pba_bar_indicator_register = PARAMETERS["MSIX_CAP_PBA_BIR"]
    msix.msix_pba_offset = 8 * PARAMETERS["MSIX_CAP_PBA_OFFSET"]
    function.msix_cap = msix
    function.register_capability(msix)
    return function


def reset_configuration(function: Endpoint) -> None:
    """As after power-up, but for the numbers of bus and device."""
    capability = function.pcie_cap
    for bar, _ in (regs.BAR_USER, regs.BAR_DMA):
        function.bar[bar] = 0
    function.bus_master_enable = function.memory_space_enable = False
    function.interrupt_disable = function.interrupt_status = False
    function.msi_cap.msi_enable = function.msix_cap.msix_enable = False
    function.msi_cap.msi_multiple_message_enable = 0
    function.msix_cap.msix_function_mask = False
    capability.max_payload_size, capability.max_read_request_size = 0, 2
    capability.enable_relaxed_ordering, capability.read_completion_boundary = True, False
    capability.extended_tag_field_enable = False
