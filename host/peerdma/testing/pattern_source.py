# SPDX-License-Identifier: BSD-2-Clause
"""The pattern source: frames of test data made on the board, in place of a sensor."""

from __future__ import annotations

from ..board.board import Board
from ..errors import UnsupportedError
from ..regs import PATTERN_SOURCE, PATTERN_SOURCE_NAME
from .pattern import WORD_BYTES

__all__ = ["PatternSource"]

_MOST = 0xFFFF_FFFF


class PatternSource:
    """The board's pattern source, a user block that its gateware is built with (--user pattern).

    Frame n holds the pattern of seed ``seed + n``, so that ``gpu.verify(surface, seed=seed + n)``
    checks it. After a stream has ended it begins with frame 0 again.

    Raises
    ------
    UnsupportedError
        If the board has another user block, or its driver does not support user blocks.
    """

    def __init__(self, board: Board):
        extension = board.info().extension
        found = extension.user_block if extension else ""
        if found != PATTERN_SOURCE_NAME:
            raise UnsupportedError(
                f"this board has no pattern source: its user block is {found or 'unknown'}. "
                'Build its gateware with --user pattern; the simulated board: open("sim", '
                'arguments=["--user", "pattern"])'
            )
        self._board = board

    def start(self, frame_bytes: int, *, interval: int = 0, seed: int = 0) -> None:
        """Starts making frames.

        Parameters
        ----------
        frame_bytes : int
            A multiple of 4.
        interval : int
            Clock cycles of the board from the start of a frame to that of the next; a frame for
            which there is no room by then is dropped. 0: back to back, as fast as there is room.
        seed : int
            Of the first frame.
        """
        words, rest = divmod(frame_bytes, WORD_BYTES)
        if rest or not 0 < words <= _MOST:
            raise ValueError(
                f"frames are 1 to {_MOST} words of {WORD_BYTES} bytes, not {frame_bytes} bytes"
            )
        for name, value in (("interval", interval), ("seed", seed), ("frame_words", words)):
            if not 0 <= value <= _MOST:
                raise ValueError(f"{name} is 0 to {_MOST}, not {value}")
            self._register(name, value)

    def stop(self) -> None:
        """Stops making frames."""
        self._register("frame_words", 0)

    @property
    def dropped(self) -> int:
        """Frames dropped since the stream began because there was no room."""
        return self._register("dropped")

    def _register(self, name: str, value: int | None = None) -> int:
        return self._board.user_register(PATTERN_SOURCE[name].offset, value)
