# SPDX-License-Identifier: BSD-2-Clause
"""What `hw.parts.byte_shares` has to do, in Python."""

from __future__ import annotations

__all__ = ["Shares"]


class Shares:
    """Bytes that clients have had.

    Attributes
    ----------
    had : list of int
        Units of 16 bytes of each client, in the round so far.
    """

    #: units of a round, with requests of up to 512 bytes
    ROUND = 64

    def __init__(self, count: int, extra: int):
        self.had = [0] * count
        self._extra = extra
        self._waits = False

    def charge(self, length: int) -> int:
        """Units that a request counts."""
        return (length + self._extra) // 16

    def allowed(self) -> list[bool]:
        """Who may be served in this cycle."""
        return [len(self.had) == 1 or units < self.ROUND or not self._waits for units in self.had]

    def step(self, lengths: list[int], served: int | None) -> None:
        """A cycle with requests of so many bytes, 0 for none, of which one may be served."""
        if served is not None:
            if self.had[served] >= self.ROUND:
                self.had = [max(0, units - self.ROUND) for units in self.had]
            self.had[served] += self.charge(lengths[served])
        self._waits = any(
            length and number != served and units < self.ROUND
            for number, (length, units) in enumerate(zip(lengths, self.had, strict=True))
        )
