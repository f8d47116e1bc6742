# SPDX-License-Identifier: BSD-2-Clause
"""The configuration space that a PCIe block has with its parameters (UG477 says where each is).

What a write changes is as the PCI Express Base Specification has it for these capabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hw.pcie.series7.parameters import PARAMETERS, SERIAL_NUMBER, Identity
from hw.pcie.ultrascale import parameters as ultrascale
from sim.board.config_space import SIZE, ConfigSpace

__all__ = ["configuration_space"]

_Parameters = Mapping[str, int | str]


@dataclass(frozen=True)
class _Row:
    """`size` bytes at `offset`: reset value, bits a write sets, bits that writing 1 clears."""

    offset: int
    size: int
    value: int = 0
    writable: int = 0
    clearable: int = 0


def configuration_space(family: str = "series7") -> ConfigSpace:
    """The function's configuration space, on a link as fast and wide as it can be.

    `family` is a block's name in `hw.pcie.adapters.ADAPTERS`, without its width.
    """
    identity, of = Identity(), PARAMETERS
    if family != "series7":
        identity, of = Identity(device=ultrascale.DEVICES[family]), ultrascale.PARAMETERS[family]
    rows = _header(identity, of)
    for name, value in of.items():
        if name.endswith("_CAP_ON") and value == "TRUE":
            capability = name.removesuffix("_CAP_ON")
            rows += _CAPABILITIES[capability](of[f"{capability}_BASE_PTR"], of)
    images = bytearray(SIZE), bytearray(SIZE), bytearray(SIZE)
    for row in rows:
        for image, value in zip(images, (row.value, row.writable, row.clearable), strict=True):
            image[row.offset : row.offset + row.size] = value.to_bytes(row.size, "little")
    return ConfigSpace(*map(bytes, images))


def _bits(of: _Parameters, prefix: str, **lowest: int) -> int:
    """Parameters as fields of a register: the rest of the name, and the field's lowest bit."""
    found = 0
    for name, low in lowest.items():
        value = of[f"{prefix}_{name}"]
        found |= (value == "TRUE" if isinstance(value, str) else value) << low
    return found


def _header(identity: Identity, of: _Parameters) -> list[_Row]:
    bars = [(0x10 + 4 * number, of[f"BAR{number}"]) for number in range(6)]
    return [
        _Row(0x00, 2, identity.vendor),
        _Row(0x02, 2, identity.device),
        # Command: memory space, bus master, parity error response, SERR#, interrupt disable.
        _Row(0x04, 2, writable=0x0146 | _bits(of, "CMD", INTX_IMPLEMENTED=10)),
        # Status: capabilities list; the error bits are cleared by writing 1.
        _Row(0x06, 2, 0x0010, clearable=0xF900),
        _Row(0x08, 1, identity.revision),
        _Row(0x09, 3, of["CLASS_CODE"]),
        _Row(0x0C, 1, writable=0xFF),  # cache line size
        _Row(0x0E, 1, of["HEADER_TYPE"]),
        # Ones where the address can be written; the lowest bits say what kind of BAR it is.
        *(_Row(offset, 4, bar & 0xF, writable=bar & 0xFFFF_FFF0) for offset, bar in bars),
        _Row(0x28, 4, of["CARDBUS_CIS_POINTER"]),
        _Row(0x2C, 2, identity.subsystem_vendor),
        _Row(0x2E, 2, identity.subsystem),
        _Row(0x30, 4, writable=of["EXPANSION_ROM"]),
        _Row(0x34, 1, of["CAPABILITIES_PTR"]),
        _Row(0x3C, 1, writable=0xFF),  # interrupt line
        _Row(0x3D, 1, of["INTERRUPT_PIN"]),
    ]


def _power(at: int, of: _Parameters) -> list[_Row]:
    power = _bits(
        of,
        "PM_CAP",
        VERSION=0,
        PME_CLOCK=3,
        DSI=5,
        AUXCURRENT=6,
        D1SUPPORT=9,
        D2SUPPORT=10,
        PMESUPPORT=11,
    )
    # PMCSR: power state; PME enable and status, which are there only if PME is.
    enable, status = (0x0100, 0x8000) if of["PM_CAP_PMESUPPORT"] else (0, 0)
    control = _bits(of, "PM_CSR", NOSOFTRST=3)
    return [
        _Row(at, 2, _bits(of, "PM_CAP", ID=0, NEXTPTR=8)),
        _Row(at + 2, 2, power),
        _Row(at + 4, 2, control, writable=0x0003 | enable, clearable=status),
    ]


def _msi(at: int, of: _Parameters) -> list[_Row]:
    """With a 64-bit address, without mask bits."""
    control = _bits(of, "MSI", CAP_MULTIMSGCAP=1, CAP_64_BIT_ADDR_CAPABLE=7)
    return [
        _Row(at, 2, _bits(of, "MSI_CAP", ID=0, NEXTPTR=8)),
        _Row(at + 2, 2, control, writable=0x0071),  # enable, number of messages granted
        _Row(at + 4, 4, writable=0xFFFF_FFFC),
        _Row(at + 8, 4, writable=0xFFFF_FFFF),
        _Row(at + 12, 2, writable=0xFFFF),
    ]


def _express(at: int, of: _Parameters) -> list[_Row]:
    device = _bits(
        of,
        "DEV_CAP",
        MAX_PAYLOAD_SUPPORTED=0,
        PHANTOM_FUNCTIONS_SUPPORT=3,
        EXT_TAG_SUPPORTED=5,
        ENDPOINT_L0S_LATENCY=6,
        ENDPOINT_L1_LATENCY=9,
        ROLE_BASED_ERROR=15,
        FUNCTION_LEVEL_RESET_CAPABLE=28,
    )
    link = _bits(
        of,
        "LINK_CAP",
        MAX_LINK_SPEED=0,
        MAX_LINK_WIDTH=4,
        ASPM_SUPPORT=10,
        L0S_EXIT_LATENCY_GEN2=12,
        L1_EXIT_LATENCY_GEN2=15,
        CLOCK_POWER_MANAGEMENT=18,
        ASPM_OPTIONALITY=22,
    )
    # Supported Link Speeds, from bit 1 on: blocks without 8 GT/s may leave it out.
    fastest = of["LINK_CAP_MAX_LINK_SPEED"]
    speeds = (2 << fastest) - 2 if fastest > 2 else 0
    # The completion timeout can be set if any range is supported.
    timeout = 0x000F if of["CPL_TIMEOUT_RANGES_SUPPORTED"] else 0
    status = _bits(
        of, "LINK", CAP_MAX_LINK_SPEED=0, CAP_MAX_LINK_WIDTH=4, STATUS_SLOT_CLOCK_CONFIG=12
    )
    return [
        _Row(at, 2, _bits(of, "PCIE_CAP", CAPABILITY_ID=0, NEXTPTR=8)),
        _Row(at + 2, 2, _bits(of, "PCIE_CAP", CAPABILITY_VERSION=0, DEVICE_PORT_TYPE=4)),
        _Row(at + 4, 4, device),
        # Device Control: relaxed ordering, no snoop, MPS 128, MRRS 512. Device Status.
        _Row(at + 8, 2, 0x2810, writable=0x78FF | _bits(of, "DEV_CAP", EXT_TAG_SUPPORTED=8)),
        _Row(at + 0xA, 2, clearable=0x000F),
        _Row(at + 0xC, 4, link),
        _Row(at + 0x10, 2, _bits(of, "LINK_CONTROL", RCB=3), writable=0x00CB),
        _Row(at + 0x12, 2, status),
        _Row(at + 0x24, 4, _bits(of, "CPL_TIMEOUT", RANGES_SUPPORTED=0, DISABLE_SUPPORTED=4)),
        _Row(at + 0x28, 2, writable=timeout | _bits(of, "CPL_TIMEOUT", DISABLE_SUPPORTED=4)),
        _Row(at + 0x2C, 4, speeds),
        _Row(at + 0x30, 2, _bits(of, "LINK_CTRL2", TARGET_LINK_SPEED=0), writable=0x1FBF),
    ]


def _msix(at: int, of: _Parameters) -> list[_Row]:
    return [
        _Row(at, 2, _bits(of, "MSIX_CAP", ID=0, NEXTPTR=8)),
        _Row(at + 2, 2, _bits(of, "MSIX_CAP", TABLE_SIZE=0), writable=0xC000),
        _Row(at + 4, 4, _bits(of, "MSIX_CAP", TABLE_BIR=0, TABLE_OFFSET=3)),
        _Row(at + 8, 4, _bits(of, "MSIX_CAP", PBA_BIR=0, PBA_OFFSET=3)),
    ]


def _serial(at: int, of: _Parameters) -> list[_Row]:
    return [
        _Row(at, 4, _bits(of, "DSN_CAP", ID=0, VERSION=16, NEXTPTR=20)),
        _Row(at + 4, 8, SERIAL_NUMBER),
    ]


#: Capabilities that may be on, by the names of their parameters.
_CAPABILITIES = {
    "PM": _power,
    "MSI": _msi,
    "PCIE": _express,
    "MSIX": _msix,
    "DSN": _serial,
}
