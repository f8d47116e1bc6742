# SPDX-License-Identifier: BSD-2-Clause
"""Tests of transfers, run on the GPU: a pattern is written, moved, and verified where it arrived.

No transfer needs any of this. For a CUDA GPU, NVRTC compiles the kernels when they are first used.

>>> from peerdma import testing
>>> testing.fill(src, seed=1)
>>> board.copy(s, d)
>>> testing.verify(dst, seed=1)
"""

from __future__ import annotations

from ..memory.mailbox import Mailbox, Watch
from ..memory.surface import SelfTest, Surface, require_surface
from . import pattern
from .pattern_source import PatternSource

__all__ = ["PatternSource", "checksum", "compare", "fill", "pattern", "verify", "watch"]


def fill(surface: Surface, seed: int) -> None:
    """Writes the pattern of `seed` (see `peerdma.testing.pattern`), from its word 0 on.

    Parameters
    ----------
    seed : int
        0 to 2**32 - 1.

    Raises
    ------
    GpuNotFound
        If kernels cannot be compiled; says what to install. All functions here raise it.
    """
    _kernels(surface).fill(surface, seed)


def verify(surface: Surface, *, seed: int) -> None:
    """Checks the pattern of `seed` on the GPU; VerifyError names the first wrong word."""
    _kernels(surface).verify(surface, seed)


def compare(surface: Surface, other: Surface) -> None:
    """Checks on the GPU that `surface` equals `other`, of the same GPU; VerifyError as `verify`."""
    _kernels(surface, other).compare(surface, other)


def checksum(surface: Surface) -> int:
    """The surface's 64-bit checksum (see `peerdma.testing.pattern`), computed on the GPU."""
    return _kernels(surface).checksum(surface)


def watch(
    surface: Surface, mailbox: Mailbox, *, seed: int, token: int = 1, timeout: float = 60.0
) -> Watch:
    """Starts a kernel that reports to a board when a pattern arrives in a surface.

    It writes `token` to `first` of the mailbox when the surface's first word matches the pattern of
    `seed`, to `last` when the last word does, and to `done` when it has checked every word, whether
    they match or not.

    Parameters
    ----------
    token : int
        1 to 2**32 - 1.
    timeout : float
        Seconds until it gives up.
    """
    return _kernels(surface).watch(surface, mailbox, seed, token, timeout)


def _kernels(*surfaces: Surface) -> SelfTest:
    """The kernels of the GPU that the first surface belongs to."""
    require_surface(surfaces[0])
    return surfaces[0].gpu.self_test(*surfaces)
