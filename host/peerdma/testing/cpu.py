# SPDX-License-Identifier: BSD-2-Clause
"""The tests of transfers for GPUs whose memory the CPU reaches, as the emulated GPU's: by numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..memory.mailbox import Mailbox
from ..memory.surface import Surface
from . import pattern
from .cpu_watch import CpuWatch
from .kernels import Kernels

__all__ = ["CpuKernels"]


class CpuKernels(Kernels):
    """See `Kernels`."""

    def _fill(self, surface: Surface, seed: int) -> None:
        for start, block in pattern.blocks(surface.bytes):
            block[:] = pattern.fill_bytes(seed, start, block.size)

    def _verify(self, surface: Surface, seed: int) -> tuple[int, int]:
        return _differences(surface, lambda start, n: pattern.fill_bytes(seed, start, n))

    def _compare(self, surface: Surface, other: Surface) -> tuple[int, int]:
        wanted = other.bytes

        def expected(start: int, count: int) -> np.ndarray:
            first = start * pattern.WORD_BYTES
            return wanted[first : first + count]

        return _differences(surface, expected)

    def _checksum(self, surface: Surface) -> int:
        return pattern.checksum(surface.bytes)

    def _watch(
        self, surface: Surface, mailbox: Mailbox, seed: int, token: int, timeout: float
    ) -> CpuWatch:
        def verify() -> None:
            self.verify(surface, seed)

        return CpuWatch(surface, mailbox, seed, token, timeout, verify)


def _differences(surface: Surface, expected: Callable[[int, int], np.ndarray]) -> tuple[int, int]:
    """(first, count) of the words that are not ``expected(first word, bytes)``."""
    first = wrong = 0
    for start, block in pattern.blocks(surface.bytes):
        found = pattern.as_words(block)
        want = pattern.as_words(expected(start, block.size))
        differing = np.flatnonzero(found != want)
        if differing.size and not wrong:
            first = start + int(differing[0])
        wrong += differing.size
    return first, wrong
