# SPDX-License-Identifier: BSD-2-Clause
"""Which board to use.

Each way to reach a board is imported where it is taken: with a board in the machine, nothing of
the simulation is loaded.
"""

from __future__ import annotations

import argparse
import logging
import os
import stat
from collections.abc import Sequence
from typing import Any

from .arguments import integer
from .board.backend import Backend
from .board.board import Board
from .errors import BoardNotFound
from .identity import VFIO
from .memory.files import kind_of

__all__ = ["add_board_option", "is_node", "open_board"]

_log = logging.getLogger(__name__)
#: The driver's first board.
_NODE = "/dev/picoevb"


def add_board_option(parser: argparse.ArgumentParser, *, simulates: bool = True) -> None:
    """Adds --board, with what `open_board` takes; `simulates`: whether auto can be sim, too."""
    auto = "the first that the kernel driver has"
    auto += ", or sim where there is none" if simulates else ""
    parser.add_argument(
        "--board",
        default="auto",
        metavar="auto|sim|PATH|vfio:ADDRESS",
        help=f"board to use: auto is {auto}; sim starts the simulated board (in a checkout, the "
        "first time builds its model, which takes minutes); PATH is a device node, or the socket "
        "of a simulated board that runs; ADDRESS is that of a PCI function bound to vfio-pci "
        "(default: auto)",
    )


def open_board(
    board: str | os.PathLike[str] = "auto",
    *,
    timeout: float | None = None,
    interrupts: str = "auto",
    max_payload: int = 128,
    max_read_request: int = 512,
    arguments: Sequence[str] = (),
    channel: int = 0,
    card_ram: int = 0,
) -> Board:
    """Opens a board.

    Parameters
    ----------
    board : "auto", "sim", "vfio:ADDRESS" or path
        A path is a device node of the kernel driver, ``/dev/picoevb``, or the socket of a
        simulated board that runs, ``.venv/bin/python -m sim.board --socket PATH``. "sim" starts
        the simulated board, which ends with `close`: this checkout's, whose model takes minutes to
        build the first time, or that of the wheel peerdma-sim. "auto" is the first device node, or
        "sim" where there is none.
        "vfio:0000:01:00.0" is a board that the kernel's vfio-pci has, and needs no driver of ours.
    timeout : float, optional
        Seconds to wait for any one answer of the board or descriptor chain. By default 60 s,
        and for chains a time that grows with their size and with how slowly the board runs.
    interrupts : "auto", "msi" or "intx"
        "auto" is MSI if the board has it, by VFIO MSI-X; the kernel driver decides itself.
    max_payload, max_read_request : int
        What the platform allows on the link, 128 to 4096 bytes; of simulated boards.
    arguments : sequence of str
        Further arguments for a simulated board that is started, see its ``--help``.
    channel : int
        Number of the channel that transfers use, of a board behind the kernel driver whose core
        has several each way. Programs with different channels do not wait for each other.
    card_ram : int
        Bytes of card RAM, a multiple of 4096, that the kernel driver keeps other programs from
        until this board is closed. ``info().own_card_ram`` says where they are.

    Raises
    ------
    BoardNotFound
        If there is no board there, or it does not start.
    VersionMismatch
        If its register map or its driver have another major version than this library knows.
    TransferError
        If so much card RAM is not to be had.
    """
    path = os.fspath(board)
    own = integer(channel, "a channel"), integer(card_ram, "a number of bytes of card RAM")
    options = {
        "timeout": timeout,
        "interrupts": interrupts,
        "max_payload": max_payload,
        "max_read_request": max_read_request,
    }
    backend = _backend(path, arguments, options, own)
    _log.info("opened %s", backend.info.name)
    return Board(backend)


def _backend(
    path: str, arguments: Sequence[str], options: dict[str, Any], own: tuple[int, int]
) -> Backend:
    """The way to a board; the arguments are those of `open_board`."""
    if path == "auto" and os.path.exists(_NODE):
        path = _NODE
    if any(own) and not is_node(path):
        raise ValueError(
            f"channel and card_ram are for boards behind the kernel driver. The board {path} is "
            "this program's alone, and uses channel 0"
        )
    if path in ("auto", "sim"):
        from .userspace.started import StartedBoard, board_module

        if path == "auto" and board_module() is None:
            raise BoardNotFound(
                f"no board found: there is no {_NODE}, and no simulated board to start, as neither "
                "the wheel peerdma-sim nor a source checkout is here. `peerdma doctor` says what "
                "keeps a board from being found"
            )
        return StartedBoard(arguments, **options)
    if arguments:
        raise ValueError(f"arguments are for a board that is started, not for the one at {path}")
    if path.startswith(VFIO):
        from .userspace.backend import UserSpaceBackend
        from .vfio_pci.platform import VfioPlatform

        platform = VfioPlatform(path[len(VFIO) :], interrupts=options["interrupts"])
        name = f"board at {platform.device.address}, by VFIO"
        return UserSpaceBackend(platform, name, timeout=options["timeout"])
    if is_node(path):
        from .kernel.backend import open_node

        return open_node(path, options["timeout"], *own)
    if os.path.exists(path) and not stat.S_ISSOCK(mode := os.stat(path).st_mode):
        raise BoardNotFound(
            f"cannot open a board at {path}, which is {kind_of(mode)}; a board is a device node, "
            f"such as {_NODE}, or the socket of a running simulated board"
        )
    from .userspace.backend import UserSpaceBackend
    from .vfio_user.platform import SocketPlatform

    platform = SocketPlatform(path, **options)
    return UserSpaceBackend(platform, f"board at {path}", timeout=options["timeout"])


def is_node(path: str) -> bool:
    """Whether a path is a device node, or would be one."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return path.startswith("/dev/")
