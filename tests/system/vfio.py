# SPDX-License-Identifier: BSD-2-Clause
"""What tests use inside of a guest whose boards vfio-pci has, as a user without privileges."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import peerdma
from peerdma.doctor.machine import boards
from peerdma.doctor.system import System
from peerdma.vfio_pci.place import Place
from tests.system.picoevb import until

NOBODY = 65534
#: Of the configuration space: the command register, and its bit for the bus.
COMMAND, MASTER = 4, 1 << 2
#: Imported by tests, whose user may not read the checkout.
_IMPORTED = (
    "asyncio",
    "numpy.random",
    "peerdma.emulated.gpu",
    "peerdma.testing.cpu",
    "peerdma.userspace.backend",
    "peerdma.vfio_pci.platform",
)


def addresses() -> list[str]:
    """The boards, in the order of their slots."""
    return [board.address for board in boards(System())]


def bind(address: str) -> None:
    """Gives a board to vfio-pci."""
    folder = Path("/sys/bus/pci/devices", address)
    (folder / "driver_override").write_text("vfio-pci")
    if Place(address).driver:
        (folder / "driver/unbind").write_text(address)
    Path("/sys/bus/pci/drivers_probe").write_text(address)


def is_master(address: str) -> bool:
    """Whether a board may use the bus."""
    config = Path("/sys/bus/pci/devices", address, "config").read_bytes()
    return bool(config[COMMAND] & MASTER)


def wait_for_boards(count: int) -> None:
    """Waits until there are so many; one that was just plugged in takes a moment."""
    until(lambda: len(addresses()) == count)


def wait_until_lost(board: peerdma.Board) -> None:
    """Waits for the end of a board that is not used meanwhile."""
    until(lambda: board._backend._function.lost, 60.0)  # type: ignore[attr-defined]


def import_all() -> None:
    """Imports what a user without privileges could not."""
    for name in _IMPORTED:
        importlib.import_module(name)


def become_nobody() -> None:
    """Binds the boards, gives their nodes to a user, and becomes that user, for good."""
    import_all()
    for address in addresses():
        if Place(address).driver != "vfio-pci":
            bind(address)
        os.chown(Place(address).group_node, NOBODY, NOBODY)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    assert "CapEff:\t0000000000000000\n" in Path("/proc/self/status").read_text()


def opened(number: int = 0, **options) -> peerdma.Board:
    """A board by VFIO."""
    return peerdma.open(f"vfio:{addresses()[number]}", **options)


def call(module: str, function: str, arguments: dict[str, object]) -> None:
    """Calls a test as that user, and checks that no board can use the bus afterwards."""
    test = getattr(importlib.import_module(module), function)
    become_nobody()
    test(**arguments)
    assert not any(map(is_master, addresses()))
