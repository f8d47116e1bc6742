# SPDX-License-Identifier: BSD-2-Clause
"""Which board to use."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .board import Board
from .errors import UnsupportedError
from .simboard import SimulatedBoard
from .userspace import UserSpaceBackend

__all__ = ["open_board"]


class _StartedBoard(UserSpaceBackend):
    """The simulated board with a process of its own, which ends with it."""

    def __init__(self, arguments: Sequence[str], **options):
        self._process = SimulatedBoard(arguments)
        try:
            super().__init__(
                self._process.path, "simulated board", why_lost=self._process.why_lost, **options
            )
        except BaseException:
            self._process.close()
            raise
        self._process.connected()

    def close(self) -> None:
        super().close()
        self._process.close()


def open_board(
    board: str | os.PathLike[str] = "auto",
    *,
    timeout: float | None = None,
    interrupts: str = "auto",
    max_payload: int = 128,
    max_read_request: int = 512,
    arguments: Sequence[str] = (),
) -> Board:
    """Opens a board.

    Parameters
    ----------
    board : "auto", "sim" or path
        "auto" and "sim" start the simulated board of this checkout, which ends with `close`;
        building its model the first time takes minutes. A path is the socket of one that runs:
        ``python -m sim.board --socket PATH``.
    timeout : float, optional
        Seconds to wait for any one answer of the board or descriptor chain. By default 60 s,
        and for chains a time that grows with their size and with how slowly the board runs.
    interrupts : "auto", "msi" or "intx"
        "auto" is MSI if the board has it.
    max_payload, max_read_request : int
        What the platform allows on the link, 128 to 4096 bytes.
    arguments : sequence of str
        Further arguments for a simulated board that is started, see its ``--help``.

    Raises
    ------
    BoardNotFound
        If there is no board there, or it does not start.
    VersionMismatch
        If its register map has another major version than this library knows.
    UnsupportedError
        For a device file: this version has no kernel driver.
    """
    path = os.fspath(board)
    options = {
        "timeout": timeout,
        "interrupts": interrupts,
        "max_payload": max_payload,
        "max_read_request": max_read_request,
    }
    if path in ("auto", "sim"):
        return Board(_StartedBoard(arguments, **options))
    if path.startswith("/dev/"):
        raise UnsupportedError(
            f"asked for the board at {path}: this version of peerdma drives only the simulated "
            'board, not yet one behind the kernel driver. Use open("sim") or --board sim'
        )
    if arguments:
        raise ValueError(f"arguments are for a board that is started, not for the one at {path}")
    return Board(UserSpaceBackend(path, f"board at {path}", **options))
