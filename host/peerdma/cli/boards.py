# SPDX-License-Identifier: BSD-2-Clause
"""``peerdma list``: the boards of this machine, with a driver or without."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ..doctor.machine import boards
from ..doctor.system import System
from ..errors import PeerdmaError
from ..identity import IDENTITIES, VFIO
from ..kernel.node import KernelNode
from ..vfio_pci.place import DRIVER

__all__ = ["Listed", "add_list", "listed"]


@dataclass(frozen=True)
class Listed:
    """A board of the machine.

    Attributes
    ----------
    node : str
        What `peerdma.open` takes; "" if neither the peerdma driver nor vfio-pci has the board.
    address : str
        On the PCI bus; "" if the node cannot be opened.
    name : str
        Whose design it is, or what keeps the board from being used.
    """

    node: str
    address: str
    name: str


def add_list(command: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    command.add_argument("--json", action="store_true", help="print one JSON array instead")
    command.set_defaults(action=_run)


def listed(system: System) -> Iterator[Listed]:
    """The boards behind the driver, by their nodes, then those with another driver, or none."""
    found = set()
    for node in system.nodes:
        try:
            with contextlib.closing(KernelNode(node)) as board:
                info = board.info()
        except PeerdmaError as error:
            yield Listed(node, "", str(error))
            continue
        address = info.bus_id.decode()
        found.add(address)
        identity = (info.vendor, info.device, info.subsystem_vendor, info.subsystem_device)
        yield Listed(node, address, IDENTITIES.get(identity, "of unknown design"))
    for each in boards(system):
        if each.address not in found:
            if each.driver == DRIVER:
                yield Listed(f"{VFIO}{each.address}", each.address, IDENTITIES[each.identity])
                continue
            driver = f"bound to {each.driver}" if each.driver else "no driver is bound to it"
            yield Listed("", each.address, f"{IDENTITIES[each.identity]}, {driver}")


def _run(arguments: argparse.Namespace) -> int:
    found = list(listed(System()))
    if arguments.json:
        print(json.dumps([dataclasses.asdict(each) for each in found]))
    elif not found:
        print("peerdma: no boards; `peerdma doctor` says what it looked at", file=sys.stderr)
    for each in [] if arguments.json else found:
        print(f"{each.node or '-':<17} {each.address or '-':<13} {each.name}")
    return 0
