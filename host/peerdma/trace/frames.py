# SPDX-License-Identifier: BSD-2-Clause
"""Finds the records of frames among the writes of a board."""

from __future__ import annotations

import numpy as np

from .. import regs

__all__ = ["FrameRecords"]


class FrameRecords:
    """Knows how long the frames of each C2H channel are so far.

    Records look like data: what is taken for one has a descriptor of its own and a number that is
    marked as that of a record, and says that its frame is no longer than what came before.
    """

    def __init__(self):
        #: bytes since the last record, by track
        self._bytes: dict[str, int] = {}

    def written(self, track: str, descriptor: int, data: bytes) -> str:
        """What the record in the data of a write says; empty if there is none.

        `descriptor` is the length of the descriptor that the write is for.
        """
        before = self._bytes.get(track, 0)
        self._bytes[track] = before + len(data)
        if descriptor == len(data) == regs.FRAME_RECORD.itemsize:
            found = np.frombuffer(data, regs.FRAME_RECORD)[0]
            number, nbytes = int(found["number"]), int(found["bytes"])
            if number & regs.FRAME_NUMBER_VALID and 0 < nbytes <= before:
                self._bytes[track] = 0
                return (
                    f"record of frame {number ^ regs.FRAME_NUMBER_VALID}: {nbytes} bytes, begun at "
                    f"cycle {found['cycles']}, CRC-32 {found['crc']:#010x}, {found['dropped']} "
                    "frames dropped"
                )
        return ""

    def clear(self) -> None:
        """Forgets all frames, as a reset does."""
        self._bytes.clear()
