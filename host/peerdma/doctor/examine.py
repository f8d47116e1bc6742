# SPDX-License-Identifier: BSD-2-Clause
"""`peerdma doctor`: finds what keeps a board and a GPU from working together."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator
from itertools import chain

from ..errors import PeerdmaError
from ..gpus import gpu
from ..identity import VFIO
from ..kernel.node import KernelNode
from ..opening import add_board_option, is_node, open_board
from ..regs import Capability
from ..vfio_pci.place import DRIVER
from .board import (
    look_at_clock,
    look_at_counts,
    look_at_gateware,
    look_at_overcommit,
    look_at_versions,
    try_doorbell,
    try_gpu_memory,
    try_host_memory,
    try_mailbox,
)
from .gpu import gpus, look_at_gpus, look_at_iommu, look_at_path
from .machine import (
    boards,
    look_at_board,
    look_at_driver,
    look_at_nodes,
    look_for_boards,
)
from .system import Finding, System, Verdict, fail, note
from .vfio import look_at_vfio

__all__ = ["add_doctor", "examine"]

_DESCRIPTION = """Find what keeps a board and a GPU from working together, and say what to do.

Examines the bus, the driver, GPUs and the path between board and GPU, then tries transfers in each
direction, which overwrite the first 16 KiB of card RAM. Root sees more. The exit code is that of
the first check that fails, 0 if none does."""


def add_doctor(command: argparse.ArgumentParser) -> None:
    """Adds the command's arguments and description."""
    command.description = _DESCRIPTION
    add_board_option(command, simulates=False)
    command.add_argument("--json", action="store_true", help="print one JSON object instead")
    command.set_defaults(action=_run)


def _run(arguments: argparse.Namespace) -> int:
    findings = []
    for finding in examine(arguments.board):
        findings.append(finding)
        if not arguments.json:
            print(_text(finding), flush=True)
    code = next((f.exit_code for f in findings if f.verdict is Verdict.FAIL), 0)
    if arguments.json:
        rows = [{**dataclasses.asdict(f), "verdict": f.verdict.value} for f in findings]
        print(json.dumps({"findings": rows, "exit_code": code}))
    else:
        print(_summary(findings))
    return code


def _text(finding: Finding) -> str:
    line = f"{finding.verdict.value:<5} {finding.subject}: {finding.found}"
    return f"{line}\n      next: {finding.step}" if finding.step else line


def _summary(findings: Iterable[Finding]) -> str:
    verdicts = [finding.verdict for finding in findings]
    failed, warned = verdicts.count(Verdict.FAIL), verdicts.count(Verdict.WARN)
    if not failed and not warned:
        return "no problems found"
    return f"{failed} failed, {warned} warnings"


def examine(board: str = "auto", system: System | None = None) -> Iterator[Finding]:
    """Yields all findings, each after those that it depends on.

    Transfers of the test overwrite the first 16 KiB of card RAM.

    Parameters
    ----------
    board : str
        As for `peerdma.open`, but "auto" never starts the simulated board.
    system : System, optional
        By default this machine. Boards are only opened on this machine.
    """
    system = system or System()
    hardware = board == "auto" or is_node(board) or board.startswith(VFIO)
    if hardware:
        yield from _around(system)
        if board == "auto":
            by_vfio = (f"{VFIO}{each.address}" for each in boards(system) if each.driver == DRIVER)
            board = next(chain(system.nodes, by_vfio), "")
        if not board or not system.here:
            text = "no transfers were tried: there is no board to open"
            yield note("test", f"{text}. `peerdma doctor --board sim` tries a simulated one")
            return
    yield from _inside(board, hardware)


def _around(system: System) -> Iterator[Finding]:
    """Board, driver and GPU as the kernel shows them."""
    yield from look_for_boards(system)
    found = boards(system)
    by_vfio = [each for each in found if each.driver == DRIVER]
    for each in by_vfio:
        yield from look_at_vfio(system, each)
    by_driver = [each for each in found if each not in by_vfio]
    if by_driver or not by_vfio:
        yield from look_at_driver(system, by_driver)
        yield from look_at_nodes(system)
    for each in found:
        yield from look_at_board(system, each)
        yield look_at_iommu(system, each)
    yield from look_at_gpus(system)
    for each in found:
        for other in gpus(system):
            yield look_at_path(each, other)


def _inside(path: str, hardware: bool) -> Iterator[Finding]:
    """The board itself: its registers, and test transfers."""
    try:
        if not hardware:
            yield from _transfers(path, "auto")
            return
        if path.startswith(VFIO):
            yield from _transfers(path, None)
            return
        with contextlib.closing(KernelNode(path)) as node:
            yield from look_at_versions(node)
            yield from _transfers(path, "cuda")
            yield look_at_counts(node)
    except PeerdmaError as error:
        # The error's text ends with the next step.
        yield fail("board", f"{type(error).__name__}: {error}", "", type(error))


def _transfers(path: str, kind: str | None) -> Iterator[Finding]:
    with open_board(path) as board:
        yield from look_at_gateware(board)
        yield from look_at_clock(board)
        yield from look_at_overcommit(board)
        failed = False
        for finding in try_host_memory(board):
            failed |= finding.verdict is Verdict.FAIL
            yield finding
        if failed:
            yield note("test", "GPU memory was not tried, as host memory does not work")
            return
        if kind is None:
            return
        try:
            device = gpu(kind)
        except PeerdmaError as error:
            yield note("test", f"GPU memory was not tried: {error}")
            return
        with device:
            yield from try_gpu_memory(board, device)
            yield try_mailbox(board, device)
            extension = board.info().extension
            if extension and Capability.LAUNCH in extension.capabilities:
                yield try_doorbell(board, device)
