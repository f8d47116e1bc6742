# SPDX-License-Identifier: BSD-2-Clause
"""The PCIe block is given the configuration space that the simulated board shows."""

from __future__ import annotations

import struct

from hw.pcie.series7.phy.pcie_block import _TIED, SERIAL_NUMBER, Identity
from hw.pcie.series7.phy.pcie_parameters import PARAMETERS
from sim.board import config_space

TRUE = {"TRUE": 1, "FALSE": 0}


def bits(*fields: tuple[str, int]) -> int:
    """Parameters in a register: (name, lowest bit)."""
    found = 0
    for name, low in fields:
        value = PARAMETERS[name]
        found |= (TRUE[value] if isinstance(value, str) else value) << low
    return found


def from_parameters() -> dict[tuple[int, str], int]:
    """(Offset, format) -> what the block answers at reset, by UG477's table of parameters."""
    ours = Identity()
    power, msi = PARAMETERS["PM_BASE_PTR"], PARAMETERS["MSI_BASE_PTR"]
    express, msix = PARAMETERS["PCIE_BASE_PTR"], PARAMETERS["MSIX_BASE_PTR"]
    serial = PARAMETERS["DSN_BASE_PTR"]
    assert bits(("PM_CAP_ON", 0), ("MSI_CAP_ON", 1), ("PCIE_CAP_ON", 2), ("MSIX_CAP_ON", 3)) == 15
    assert bits(("DSN_CAP_ON", 0)) == 1
    return {
        (0x00, "H"): ours.vendor,
        (0x02, "H"): ours.device,
        (0x08, "B"): _TIED["CFGREVID"][1],
        (0x08, "I"): PARAMETERS["CLASS_CODE"] << 8 | _TIED["CFGREVID"][1],
        (0x0E, "B"): PARAMETERS["HEADER_TYPE"],
        (0x28, "I"): PARAMETERS["CARDBUS_CIS_POINTER"],
        (0x2C, "H"): ours.subsystem_vendor,
        (0x2E, "H"): ours.subsystem,
        (0x30, "I"): PARAMETERS["EXPANSION_ROM"],
        (0x34, "B"): PARAMETERS["CAPABILITIES_PTR"],
        (0x3D, "B"): PARAMETERS["INTERRUPT_PIN"],
        (power, "H"): bits(("PM_CAP_ID", 0), ("PM_CAP_NEXTPTR", 8)),
        (power + 2, "H"): bits(
            ("PM_CAP_VERSION", 0),
            ("PM_CAP_PME_CLOCK", 3),
            ("PM_CAP_DSI", 5),
            ("PM_CAP_AUXCURRENT", 6),
            ("PM_CAP_D1SUPPORT", 9),
            ("PM_CAP_D2SUPPORT", 10),
            ("PM_CAP_PMESUPPORT", 11),
        ),
        (power + 4, "H"): bits(("PM_CSR_NOSOFTRST", 3)),
        (msi, "H"): bits(("MSI_CAP_ID", 0), ("MSI_CAP_NEXTPTR", 8)),
        (msi + 2, "H"): bits(
            ("MSI_CAP_MULTIMSGCAP", 1),
            ("MSI_CAP_64_BIT_ADDR_CAPABLE", 7),
            ("MSI_CAP_PER_VECTOR_MASKING_CAPABLE", 8),
        ),
        (express, "H"): bits(("PCIE_CAP_CAPABILITY_ID", 0), ("PCIE_CAP_NEXTPTR", 8)),
        (express + 2, "H"): bits(
            ("PCIE_CAP_CAPABILITY_VERSION", 0),
            ("PCIE_CAP_DEVICE_PORT_TYPE", 4),
            ("PCIE_CAP_SLOT_IMPLEMENTED", 8),
        ),
        (express + 4, "I"): bits(
            ("DEV_CAP_MAX_PAYLOAD_SUPPORTED", 0),
            ("DEV_CAP_PHANTOM_FUNCTIONS_SUPPORT", 3),
            ("DEV_CAP_EXT_TAG_SUPPORTED", 5),
            ("DEV_CAP_ENDPOINT_L0S_LATENCY", 6),
            ("DEV_CAP_ENDPOINT_L1_LATENCY", 9),
            ("DEV_CAP_ROLE_BASED_ERROR", 15),
            ("DEV_CAP_FUNCTION_LEVEL_RESET_CAPABLE", 28),
        ),
        (express + 0xC, "I"): bits(
            ("LINK_CAP_MAX_LINK_SPEED", 0),
            ("LINK_CAP_MAX_LINK_WIDTH", 4),
            ("LINK_CAP_ASPM_SUPPORT", 10),
            ("LINK_CAP_L0S_EXIT_LATENCY_GEN2", 12),
            ("LINK_CAP_L1_EXIT_LATENCY_GEN2", 15),
            ("LINK_CAP_CLOCK_POWER_MANAGEMENT", 18),
            ("LINK_CAP_ASPM_OPTIONALITY", 22),
        ),
        (express + 0x24, "I"): bits(
            ("CPL_TIMEOUT_RANGES_SUPPORTED", 0), ("CPL_TIMEOUT_DISABLE_SUPPORTED", 4)
        ),
        (express + 0x30, "H"): bits(("LINK_CTRL2_TARGET_LINK_SPEED", 0)),
        (msix, "H"): bits(("MSIX_CAP_ID", 0), ("MSIX_CAP_NEXTPTR", 8)),
        (msix + 2, "H"): bits(("MSIX_CAP_TABLE_SIZE", 0)),
        (msix + 4, "I"): bits(("MSIX_CAP_TABLE_BIR", 0), ("MSIX_CAP_TABLE_OFFSET", 3)),
        (msix + 8, "I"): bits(("MSIX_CAP_PBA_BIR", 0), ("MSIX_CAP_PBA_OFFSET", 3)),
        (serial, "I"): bits(("DSN_CAP_ID", 0), ("DSN_CAP_VERSION", 16), ("DSN_CAP_NEXTPTR", 20)),
        (serial + 4, "Q"): SERIAL_NUMBER,
    }


def test_simulated_board_and_pcie_block_agree():
    image = config_space.build().image
    expected = from_parameters()
    found = {key: struct.unpack_from(f"<{key[1]}", image, key[0])[0] for key in expected}
    assert found == expected


def test_bars_agree():
    space = config_space.build()
    for number in range(6):
        writable = struct.unpack_from("<I", space.writable, 0x10 + 4 * number)[0]
        assert PARAMETERS[f"BAR{number}"] == writable  # memory, 32-bit, not prefetchable: flags 0


def test_link_status_agrees():
    image = config_space.build().image
    status = struct.unpack_from("<H", image, config_space.EXPRESS + 0x12)[0]
    assert status >> 12 & 1 == TRUE[PARAMETERS["LINK_STATUS_SLOT_CLOCK_CONFIG"]]


def test_nothing_else_is_advertised():
    """What is off here has no place in the simulated board's lists either."""
    for name in ("AER_CAP_ON", "VC_CAP_ON", "VSEC_CAP_ON", "RBAR_CAP_ON"):
        assert PARAMETERS[name] == "FALSE"
    image = config_space.build().image
    known = {key[0] for key in from_parameters()}
    at, seen = image[0x34], set()
    while at:
        seen.add(at)
        at = image[at + 1]
    assert seen <= known
    assert not any(image[0x100 + 12 :])
