# SPDX-License-Identifier: BSD-2-Clause
"""The configuration space of our function behind either block, where it is not the 7 series' one.

Names and codes are those of `hw.pcie.series7.parameters`. `PARAMETERS` is as complete as the table
there, of which it has all that is not named here: header, BARs, MSI-X table, what is off. Vivado's
IP has the like of each as an option, but the places of capabilities are the blocks' own. This is
plain data, which imports no Amaranth.
"""

from ..series7 import parameters as series7

__all__ = ["DEVICES", "PARAMETERS", "PLACES"]

#: Where a block has its capabilities, in the order of their list. UltraScale: parameters in
#: projects of its IP (PF0_CAPABILITY_POINTER is 0x80, PF0_PM_CAP_NEXTPTR 0x90 to MSI or 0xB0 to
#: MSI-X, PF0_MSIX_CAP_NEXTPTR 0xC0), and cocotbext-pcie's model; UltraScale+: that model.
PLACES = {
    "ultrascale": {"PM": 0x80, "MSI": 0x90, "MSIX": 0xB0, "PCIE": 0xC0},
    "ultrascale_plus": {"PM": 0x40, "MSI": 0x48, "MSIX": 0x60, "PCIE": 0x70},
}
#: Device IDs. Vivado's default is 8 or 9 for the family, 0 for an endpoint, generation, and lanes
#: (PG302, "Capabilities Tab").
DEVICES = {"ultrascale": 0x8038, "ultrascale_plus": 0x9038}

#: Gen3 x8.
_SPEED, _LANES = 3, 8


def _parameters(places: dict[str, int]) -> dict[str, int | str]:
    """All of a block that has its capabilities there."""
    following = [*places.values(), 0][1:]
    pointers = {f"{name}_BASE_PTR": at for name, at in places.items()}
    pointers |= {f"{name}_CAP_NEXTPTR": at for name, at in zip(places, following, strict=True)}
    return {
        **series7.PARAMETERS,
        **pointers,
        "CAPABILITIES_PTR": min(places.values()),
        "DEV_CAP_FUNCTION_LEVEL_RESET_CAPABLE": "TRUE",
        "LINK_CAP_MAX_LINK_SPEED": _SPEED,
        "LINK_CAP_MAX_LINK_WIDTH": _LANES,
        "LINK_CTRL2_TARGET_LINK_SPEED": _SPEED,
    }


PARAMETERS = {name: _parameters(places) for name, places in PLACES.items()}
PARAMETERS["ultrascale_plus_pcie4c"] = PARAMETERS["ultrascale_plus"]
