# SPDX-License-Identifier: BSD-2-Clause
"""What a finished transfer reports."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ..memory.memory import DataPath

__all__ = ["Paths", "Through", "Transfer"]


class Through(str, enum.Enum):
    """Where bytes pass on the board."""

    #: the user stream: in and out at the same time, nothing is stored
    STREAM = "user stream"
    #: its memory: filled first, then emptied
    CARD_RAM = "card RAM"

    def __str__(self) -> str:
        return self.value


class Paths(NamedTuple):
    """The path of the bytes, per direction; None for a direction without bytes."""

    to_board: DataPath | None
    from_board: DataPath | None

    def __str__(self) -> str:
        ways = (("to the board", self.to_board), ("from the board", self.from_board))
        return ", ".join(f"{way} {name}" for name, way in ways if way)


class Transfer(NamedTuple):
    """A finished transfer.

    Attributes
    ----------
    bytes : int
        Payload; a copy counts each byte once.
    cycles : int
        Clock cycles of the board during which its channels were busy.
    seconds : float
        Time on the board's clock (simulated, on a simulated board) from the start of the transfer
        until software saw its end, including the time that software took in between. If the board
        does not report that, the time of `cycles`; if it does not report its clock rate either,
        `wall_seconds`.
    wall_seconds : float
        Real time that the call took.
    limit : float or None
        Most bytes per second that the board's link can carry of such a transfer, see
        `peerdma.board.link`; None if the board does not report its link.
    path : Paths
    through : Through or None
        Where the bytes passed on the board; None if there were none, or the driver does not
        report it.
    simulated : bool
        Whether the board is simulated.
    """

    bytes: int
    cycles: int
    seconds: float
    wall_seconds: float
    limit: float | None
    path: Paths
    through: Through | None
    simulated: bool

    @property
    def rate(self) -> float:
        """Bytes per second on the board's clock; 0 if nothing was moved."""
        return self.bytes / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        what = f" through the board's {self.through}" if self.through else ""
        where = " (simulated board)" if self.simulated else ""
        return f"{self.bytes} bytes in {self.seconds * 1e6:.1f} µs{what}, {self.path}{where}"
