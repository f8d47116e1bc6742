# SPDX-License-Identifier: BSD-2-Clause
"""The backend that starts a simulated board, and ends it with `close`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..vfio_user.platform import SocketPlatform
from ..vfio_user.simboard import SimulatedBoard, board_module
from .backend import UserSpaceBackend

__all__ = ["StartedBoard", "board_module"]


class StartedBoard(UserSpaceBackend):
    """A simulated board in a process of its own, which `close` ends."""

    def __init__(self, arguments: Sequence[str], *, timeout: float | None, **options: Any):
        self._process = SimulatedBoard(arguments)
        try:
            platform = SocketPlatform(
                self._process.path, timeout=timeout, process=self._process, **options
            )
            super().__init__(platform, "simulated board", timeout=timeout)
        except BaseException:
            self._process.close()
            raise
        self._process.connected()

    def close(self) -> None:
        """Ends the connection, then the process."""
        super().close()
        self._process.close()
