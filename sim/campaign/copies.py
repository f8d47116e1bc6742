# SPDX-License-Identifier: BSD-2-Clause
"""Launched copies that are under way at once, and which may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .slots import LaunchSlot

__all__ = ["CopyWatch"]


class CopyWatch:
    """Judge of the copies of a batch that ends well: one may begin before the end of another only
    if both may overlap, and all between them.

    Attributes
    ----------
    at_once : int
        So many were seen under way at once: an earlier one lacked some of its bytes when data of
        the others had been asked for.
    """

    def __init__(self, slots: Sequence[LaunchSlot]):
        self.at_once = 1
        self._slots, seen = slots, Counter()
        #: place in the batch, slot, and how many tickets of that are before
        self._copies: list[tuple[int, LaunchSlot, int]] = []
        for place, slot in enumerate(slots):
            if slot.plan.kind == "copy":
                self._copies.append((place, slot, seen[slot]))
                seen[slot] += 1
        for slot in seen:
            slot.wrote = self._wrote

    def _wrote(self) -> None:
        """Data of one of them is written."""
        left = (n for n, (_, slot, number) in enumerate(self._copies) if not slot.written(number))
        first = next(left, len(self._copies))
        begun = [place for place, slot, number in self._copies[first + 1 :] if slot.begun(number)]
        if not begun:
            return
        place, slot, _ = self._copies[first]
        between = self._slots[place : begun[-1] + 1]
        assert all(one.overlaps and one.channels == slot.channels for one in between), (
            f"{between[-1]!r} has begun before the end of {slot!r}"
        )
        self.at_once = max(self.at_once, 1 + len(begun))
