# SPDX-License-Identifier: BSD-2-Clause
"""The doctor's checks of a board that the kernel's vfio-pci has, for use without our driver."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from ..errors import BoardNotFound
from ..identity import VFIO
from ..vfio_pci.place import DRIVER, Place, memlock_command, own_command
from .pci import PciDevice
from .system import Finding, System, fail, note, ok, warn

__all__ = ["look_at_vfio"]

#: Bytes of locked memory that are enough for descriptors and arrays of a usual size.
_ENOUGH = 256 << 20


def look_at_vfio(system: System, board: PciDevice) -> Iterator[Finding]:
    """Whether VFIO offers a board that is bound to vfio-pci, to this user, and with what limits."""
    address = board.address
    place = Place(address, system.root)
    yield ok("driver", f"{address} is bound to {DRIVER}: open it as {VFIO}{address}")
    try:
        place.require_bound()
        place.require_viable()
    except BoardNotFound as error:
        yield fail("group", str(error), "", BoardNotFound)
        return
    yield ok("group", f"{address} is in the IOMMU group {place.group}, which VFIO can use")
    closed = place.closed_nodes
    for node in closed:
        yield fail("node", f"this user may not open {node}", own_command(node), BoardNotFound)
    if not closed:
        way = "iommufd" if place.by_iommufd else f"VFIO's group {place.group}"
        yield ok("node", f"{address} can be opened by {way}")
    if system.here:
        yield _locked_memory()
    yield _reset(place)
    yield note("GPU", "by VFIO a board reaches host memory only; for GPU memory load the driver")


def _locked_memory() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY or limit >= _ENOUGH:
        return ok("locked memory", "the limit (ulimit -l) is high enough for arrays of 100 MB")
    return warn(
        "locked memory",
        f"the limit (ulimit -l) is {limit} bytes, for all that a program pins; root has none",
        memlock_command(),
    )


def _reset(place: Place) -> Finding:
    if place.resets:
        return ok("reset", f"the kernel can reset {place.address}")
    return warn(
        "reset",
        f"the kernel has no way to reset {place.address}: the engine's own reset is used, which "
        "leaves configuration space as it is",
        f"`cat /sys/bus/pci/devices/{place.address}/reset_method` lists ways; a slot of its own "
        "behind a root port allows a bus reset",
    )
