# SPDX-License-Identifier: BSD-2-Clause
"""Scatter lists: memory as a sequence of contiguous pieces of bus address space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["Numbers", "ScatterList"]

#: Of one piece, or of several: those are an array of uint64.
Numbers = Sequence[int] | np.ndarray


class ScatterList:
    """Pieces of bus address space, in the order of the memory they make up.

    Adjacent pieces that continue each other are merged and empty ones dropped. Immutable.

    Attributes
    ----------
    single : (int, int) or None
        Bus address and length of the piece if there is one only, as most memory is: numpy would
        take longer for it than the transfer.
    nbytes : int
        Length of the whole.
    """

    __slots__ = ("_arrays", "_ends", "nbytes", "single")

    def __init__(self, addresses: Iterable[int] | np.ndarray, lengths: Iterable[int] | np.ndarray):
        address = _array(addresses)
        length = _array(lengths)
        if not length.all():
            address, length = address[length > 0], length[length > 0]
        if len(address) > 1:
            starts = np.flatnonzero(
                np.concatenate(([True], address[1:] != address[:-1] + length[:-1]))
            )
            address, length = address[starts], np.add.reduceat(length, starts)
        self._arrays: tuple[np.ndarray, np.ndarray] | None = address, length
        self._ends = np.cumsum(length, dtype=np.uint64)
        self.nbytes: int = int(self._ends[-1]) if len(self._ends) else 0
        self.single: tuple[int, int] | None = None
        if len(address) == 1:
            self.single = int(address[0]), self.nbytes

    @classmethod
    def piece(cls, address: int, nbytes: int) -> ScatterList:
        """One piece of so many bytes, more than none."""
        made = cls.__new__(cls)
        made.single = address, nbytes
        made.nbytes = nbytes
        made._arrays = None
        return made

    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        if self._arrays is None:
            assert self.single
            address, length = self.single
            self._arrays = np.array([address], np.uint64), np.array([length], np.uint64)
        return self._arrays

    @property
    def addresses(self) -> np.ndarray:
        """Bus address of each piece, an array of uint64."""
        return self._columns()[0]

    @property
    def lengths(self) -> np.ndarray:
        """Length in bytes of each piece, an array of uint64."""
        return self._columns()[1]

    def __len__(self) -> int:
        return 1 if self.single else len(self.addresses)

    def __repr__(self) -> str:
        return f"<ScatterList {self.nbytes} bytes in {len(self)} pieces>"

    @property
    def wide(self) -> bool:
        """Whether some of it lies at 4 GiB or above, where packets have longer headers."""
        if self.single:
            return self.single[0] + self.nbytes > 1 << 32
        return bool((self.addresses + self.lengths > np.uint64(1 << 32)).any())

    def part(self, start: int, stop: int) -> ScatterList:
        """Bytes `start` to `stop` of it; ValueError if they are not all inside."""
        if self.single and 0 <= start < stop <= self.nbytes:
            return ScatterList.piece(self.single[0] + start, stop - start)
        if not 0 <= start <= stop <= self.nbytes:
            raise ValueError(f"bytes {start} to {stop} of a scatter list of {self.nbytes} bytes")
        if start == stop:
            return ScatterList((), ())
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop, side="left"))
        address = self.addresses[first : last + 1].copy()
        length = self.lengths[first : last + 1].copy()
        length[-1] -= np.uint64(int(self._ends[last]) - stop)
        head = np.uint64(start - (int(self._ends[first]) - int(self.lengths[first])))
        address[0] += head
        length[0] -= head
        return ScatterList(address, length)

    def pieces_up_to(self, max_length: int) -> tuple[Numbers, Numbers]:
        """(addresses, lengths) with pieces longer than `max_length` bytes divided."""
        if self.single and self.nbytes <= max_length:
            return self.single[:1], self.single[1:]
        counts = -(-self.lengths.astype(np.int64) // max_length)
        owner = np.repeat(np.arange(len(self)), counts)
        index = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        skipped = (index * max_length).astype(np.uint64)
        lengths = np.minimum(self.lengths[owner] - skipped, np.uint64(max_length))
        return self.addresses[owner] + skipped, lengths

    @staticmethod
    def join(lists: Sequence[ScatterList]) -> ScatterList:
        """One list of all the pieces of `lists`, in order."""
        if len(lists) < 2:
            return lists[0] if lists else ScatterList((), ())
        return ScatterList(
            np.concatenate([each.addresses for each in lists]),
            np.concatenate([each.lengths for each in lists]),
        )


def _array(values: Iterable[int] | np.ndarray) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values.astype(np.uint64)
    return np.fromiter(values, dtype=np.uint64)
