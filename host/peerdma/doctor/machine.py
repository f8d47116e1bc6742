# SPDX-License-Identifier: BSD-2-Clause
"""The doctor's checks of a board from outside: on the bus, its driver and its device node."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import BoardLost, BoardNotFound
from ..identity import IDENTITIES, XILINX
from .pci import PciDevice, functions
from .system import Finding, System, fail, note, ok, warn

__all__ = ["boards", "look_at_board", "look_at_driver", "look_at_nodes", "look_for_boards"]

_MODULE = "peerdma"
#: Max read request in bytes below which reads are slower; the engine's requests are not larger.
_READ_REQUEST = 512
_RESCAN = (
    "Check that it is powered and seated. A board that loads its design too late is not found at "
    "boot: restart without switching off, or as root: echo 1 > /sys/bus/pci/rescan"
)


def boards(system: System) -> list[PciDevice]:
    """The PCI functions that the driver binds to."""
    return [each for each in functions(system) if each.identity in IDENTITIES]


def look_for_boards(system: System) -> Iterator[Finding]:
    """Whether there is a board on the bus."""
    found = boards(system)
    for each in found:
        yield ok("board", f"{each.address} is {_ids(each.identity)}, {IDENTITIES[each.identity]}")
    if found:
        return
    everything = functions(system)
    known = "; ".join(f"{_ids(identity)} ({name})" for identity, name in IDENTITIES.items())
    like = [each for each in everything if each.identity[0] == XILINX]
    text = f"none of the {len(everything)} PCI functions is a known board: {known}"
    step = _RESCAN
    if like:
        names = ", ".join(f"{each.address} is {_ids(each.identity)}" for each in like)
        text += f"; but {names}, an unknown Xilinx design"
        step = (
            "If that is the board, load gateware with one of these identities; or, for an XDMA "
            "design with the same BARs, give its ids to the driver: "
            "/sys/bus/pci/drivers/peerdma/new_id"
        )
    yield fail("board", text, step, BoardNotFound)


def look_at_driver(system: System, found: list[PciDevice]) -> Iterator[Finding]:
    """Whether the kernel module is loaded and bound to the board."""
    if not system.module(_MODULE):
        yield _not_loaded(system)
        return
    yield ok("module", f"{_MODULE} is loaded, kernel {system.kernel}")
    for each in found:
        if each.driver == _MODULE:
            yield ok("driver", f"{each.address} is bound to {_MODULE}")
        elif each.driver:
            yield fail(
                "driver",
                f"{each.address} is bound to {each.driver}",
                f"As root: echo {each.address} > /sys/bus/pci/drivers/{each.driver}/unbind; "
                f"echo {each.address} > /sys/bus/pci/drivers/{_MODULE}/bind; "
                "docs/driver.md says how to choose for good (Another driver has the board)",
                BoardNotFound,
            )
        else:
            yield fail(
                "driver",
                f"{_MODULE} is loaded, but not bound to {each.address}",
                f"dmesg | grep {_MODULE} says why; docs/driver.md lists possible causes",
                BoardNotFound,
            )


def _not_loaded(system: System) -> Finding:
    if not system.installed(_MODULE):
        found = f"{_MODULE} is not loaded, and not installed for kernel {system.kernel}"
        other = [
            release
            for release in system.names("lib/modules")
            if f"/{_MODULE}.ko" in (system.text(f"lib/modules/{release}/modules.dep") or "")
        ]
        step = "Install it: the package peerdma-dkms, or driver/install.sh (docs/driver.md)"
        if other:
            found += f", but for {', '.join(other)}"
            step = f"Install linux-headers-{system.kernel}, then: dkms autoinstall"
        return fail("module", found, step, BoardNotFound)
    if system.secure_boot:
        return fail(
            "module",
            f"{_MODULE} is installed, but not loaded, and Secure Boot is on: the kernel loads only "
            "modules signed with a key that the machine's owner enrolled",
            "modprobe peerdma; if it says “Key was rejected”: mokutil --import "
            f"{system.dkms_certificate}, or what mok_certificate in /etc/dkms/framework.conf is; "
            "restart, and enroll the key in the screen that appears",
            BoardNotFound,
        )
    return fail(
        "module",
        f"{_MODULE} is installed, but not loaded",
        "As root: modprobe peerdma",
        BoardNotFound,
    )


def look_at_nodes(system: System) -> Iterator[Finding]:
    """Whether there are device nodes, and this user may open them."""
    nodes = system.nodes
    if not nodes:
        if system.module(_MODULE):
            yield fail(
                "node",
                "there is no /dev/picoevb, though the module is loaded",
                "dmesg | grep peerdma says whether the driver bound to the board",
                BoardNotFound,
            )
        else:
            yield note("node", "there is no /dev/picoevb, as the module is not loaded")
    for node in nodes:
        if system.may_open(node[1:]):
            yield ok("node", f"{node} can be opened")
            continue
        yield fail(
            "node",
            f"{node} exists, but this user may not open it",
            "Log in at the machine itself, or join the node's group: usermod -aG video USER, and "
            "log in again. Without the udev rule only root may: the package peerdma-dkms and "
            "driver/install.sh install it",
            BoardNotFound,
        )


def look_at_board(system: System, board: PciDevice) -> Iterator[Finding]:
    """A board's link, packet sizes, BARs, interrupts and errors."""
    if not board.answers:
        yield fail(
            "board",
            f"{board.address} does not answer: its configuration space reads all ones",
            "It lost its link or its power, or its design was reloaded. Remove it (echo 1 > "
            f"/sys/bus/pci/devices/{board.address}/remove), rescan, or restart the machine",
            BoardLost,
        )
        return
    yield from _link(board)
    yield from _packets(board)
    missing = [n for n in (0, 1) if not board.bars[n : n + 1] or not board.bars[n].start]
    if missing:
        yield fail(
            "BARs",
            f"{board.address} has no address for BAR {' and '.join(map(str, missing))}",
            "The bridge above it has no address space left: start the kernel with pci=realloc, or "
            "remove other cards",
            BoardNotFound,
        )
    if board.driver == _MODULE:
        yield _interrupts(board)
    yield _errors(board)


def _link(board: PciDevice) -> Iterator[Finding]:
    now, own = board.speed("current"), board.speed("max")
    if not (now and own):
        yield note("link", f"{board.address}: the kernel does not report its link")
        return
    slot = board.parent.speed("max") if board.parent else None
    most = own.limited(slot)
    if now.generation < most.generation or now.width < most.width:
        yield warn(
            "link",
            f"{board.address} runs at {now}, though board and slot support {most}",
            "Bad contact, a riser or adapter, or power saving: reseat it, try another slot, start "
            "the kernel with pcie_aspm=off; the firmware's setup may limit the slot",
        )
    elif slot and most != own:
        yield note("link", f"{board.address} runs at {now}, its slot's most; it supports {own}")
    else:
        yield ok("link", f"{board.address} runs at {now}, the most it supports")


def _packets(board: PciDevice) -> Iterator[Finding]:
    sizes = board.packet_sizes
    if sizes is None:
        yield note("packets", f"{board.address}: only root sees the sizes")
        return
    supported, payload, request = sizes
    above = board.parent.packet_sizes if board.parent else None
    possible = min(supported, above[0]) if above else supported
    found = f"{board.address} has max payload {payload} B, max read request {request} B"
    if payload < possible:
        yield warn(
            "packets",
            f"{found}, though board and slot support a payload of {possible} B",
            "Start the kernel with pci=pcie_bus_perf; writes get faster",
        )
    elif request < _READ_REQUEST:
        yield warn(
            "packets",
            f"{found}; reads are faster with {_READ_REQUEST} B",
            f"As root: setpci -s {board.address} CAP_EXP+8.w=2000:7000",
        )
    else:
        yield ok("packets", found)


def _interrupts(board: PciDevice) -> Finding:
    kinds = board.messages
    if kinds:
        name = {"msi": "MSI", "msix": "MSI-X"}.get(kinds[0], "messages")
        return ok("interrupts", f"{board.address} uses {name}, {len(kinds)} vectors")
    line = board.number("irq")
    if line:
        return note("interrupts", f"{board.address} uses INTx, line {line}, maybe shared")
    return fail(
        "interrupts",
        f"{board.address} has neither MSI nor an INTx line",
        "Start the kernel without pci=nomsi, and look for IRQ messages in dmesg",
    )


def _errors(board: PciDevice) -> Finding:
    counts = {kind: board.errors(kind) for kind in ("correctable", "nonfatal", "fatal")}
    found = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    if not found:
        return ok("bus errors", f"{board.address}: none counted")
    step = "Reseat the board, try another slot or without a riser; dmesg | grep AER has details"
    return warn("bus errors", f"{board.address} since the machine started: {found}", step)


def _ids(identity: tuple[int, int, int, int]) -> str:
    vendor, device, *subsystem = identity
    return f"{vendor:04x}:{device:04x}, subsystem {subsystem[0]:04x}:{subsystem[1]:04x}"
