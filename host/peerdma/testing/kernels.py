# SPDX-License-Identifier: BSD-2-Clause
"""What the kernels of every GPU have in common: arguments are checked, and errors made."""

from __future__ import annotations

import abc

import numpy as np

from ..errors import Timeout, VerifyError
from ..memory.mailbox import Mailbox, Watch, require_token
from ..memory.surface import Surface
from . import pattern

__all__ = ["Kernels", "not_arrived", "not_the_pattern"]


class Kernels(abc.ABC):
    """See `peerdma.memory.surface.SelfTest`; a class per kind of GPU.

    Checks return (number of the first wrong word, number of wrong words).
    """

    def fill(self, surface: Surface, seed: int) -> None:
        """Writes the pattern of `seed`."""
        pattern.require_seed(seed)
        surface.require_open()
        if surface.nbytes:
            self._fill(surface, seed)

    def verify(self, surface: Surface, seed: int) -> None:
        """Checks the pattern of `seed`; VerifyError if a word differs."""
        pattern.require_seed(seed)
        surface.require_open()
        first, wrong = self._verify(surface, seed) if surface.nbytes else (0, 0)
        if wrong:
            raise not_the_pattern(surface, seed, first, wrong)

    def compare(self, surface: Surface, other: Surface) -> None:
        """Checks that two surfaces are equal; VerifyError if a word differs."""
        if surface.nbytes != other.nbytes:
            raise ValueError(
                f"cannot compare a surface of {surface.nbytes} bytes with one of {other.nbytes}; "
                "only surfaces of one size can be equal"
            )
        for each in (surface, other):
            each.require_open()
        first, wrong = self._compare(surface, other) if surface.nbytes else (0, 0)
        if wrong:
            expected = _word(other, first)
            raise _wrong_word(surface, "The content of another surface", first, expected, wrong)

    def checksum(self, surface: Surface) -> int:
        """The surface's checksum."""
        surface.require_open()
        return self._checksum(surface) if surface.nbytes else 0

    def watch(
        self, surface: Surface, mailbox: Mailbox, seed: int, token: int, timeout: float
    ) -> Watch:
        """Starts a watch."""
        pattern.require_seed(seed)
        require_token(token)
        surface.require_open()
        if not surface.nbytes:
            raise ValueError("cannot watch an empty surface: nothing can arrive")
        return self._watch(surface, mailbox, seed, token, timeout)

    @abc.abstractmethod
    def _fill(self, surface: Surface, seed: int) -> None: ...

    @abc.abstractmethod
    def _verify(self, surface: Surface, seed: int) -> tuple[int, int]: ...

    @abc.abstractmethod
    def _compare(self, surface: Surface, other: Surface) -> tuple[int, int]: ...

    @abc.abstractmethod
    def _checksum(self, surface: Surface) -> int: ...

    @abc.abstractmethod
    def _watch(
        self, surface: Surface, mailbox: Mailbox, seed: int, token: int, timeout: float
    ) -> Watch: ...


def not_arrived(surface: Surface, word: int, timeout: float) -> Timeout:
    """The error for a word of the pattern that a watch did not see in time."""
    return Timeout(
        f"word {word} of the pattern did not arrive in a surface of {surface.nbytes} bytes: the "
        f"watch was closed, or {timeout:g} s passed. Check that the transfer into this surface "
        "was started, covers all of it, and has the pattern's seed as its source"
    )


def not_the_pattern(surface: Surface, seed: int, first: int, wrong: int) -> VerifyError:
    """The error for a surface with `wrong` words that are not the pattern's, from word `first`."""
    left = surface.nbytes - first * pattern.WORD_BYTES
    expected = pattern.fill_bytes(seed, first, min(left, pattern.WORD_BYTES))
    return _wrong_word(surface, f"The pattern of seed {seed}", first, expected, wrong)


def _wrong_word(
    surface: Surface, wanted: str, first: int, expected: np.ndarray, wrong: int
) -> VerifyError:
    """The error; `expected` is what the bytes of the first wrong word should be."""
    want, found = (int(pattern.as_words(data)[0]) for data in (expected, _word(surface, first)))
    offset = first * pattern.WORD_BYTES
    element = offset // surface.dtype.itemsize
    index = tuple(int(n) for n in np.unravel_index(element, surface.shape))
    total = -(-surface.nbytes // pattern.WORD_BYTES)
    return VerifyError(
        f"{wanted} was expected in a surface of {surface.nbytes} bytes, but {wrong} of {total} "
        f"words differ. First wrong word: number {first}, byte offset {offset:#x}, element "
        f"{index}: expected {want:#010x}, found {found:#010x}. Check that the transfer into "
        "this surface had finished, covered all of it, and came from the right source",
        offset=offset,
        expected=want,
        found=found,
        wrong=wrong,
    )


def _word(surface: Surface, number: int) -> np.ndarray:
    """The bytes of a word of a surface."""
    start = number * pattern.WORD_BYTES
    data = np.empty(min(pattern.WORD_BYTES, surface.nbytes - start), np.uint8)
    surface.copy_out(start, data)
    return data
