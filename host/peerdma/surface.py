# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces, arrays in GPU memory, and what every kind of GPU can do with them."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from .errors import PinError, VerifyError
from .memory import Extent, Path

__all__ = ["Gpu", "Surface", "wrong_word"]


class Gpu(abc.ABC):
    """A GPU, real or emulated: allocates surfaces and runs kernels on them.

    Use it as a context manager, or `close` it, when done. Surfaces keep what they need of it.

    Attributes
    ----------
    name : str
        For people to read.
    emulated : bool
        Whether its memory and kernels are the CPU's.
    """

    name: str
    emulated: bool

    @abc.abstractmethod
    def surface(self, shape: int | Sequence[int], dtype: DTypeLike = "u1") -> Surface:
        """A new surface, zeroed; PeerdmaError if there is no memory for it."""

    @abc.abstractmethod
    def fill(self, surface: Surface, seed: int) -> None:
        """Writes the pattern of `seed` (see `peerdma.pattern`), from its word 0 on."""

    @abc.abstractmethod
    def verify(self, surface: Surface, *, seed: int) -> None:
        """Checks the pattern of `seed` on the GPU; VerifyError names the first wrong word."""

    @abc.abstractmethod
    def compare(self, surface: Surface, other: Surface) -> None:
        """Checks on the GPU that `surface` equals `other`; VerifyError as `verify`."""

    @abc.abstractmethod
    def checksum(self, surface: Surface) -> int:
        """The surface's checksum (see `peerdma.pattern`), computed on the GPU."""

    @abc.abstractmethod
    def close(self) -> None:
        """Gives back what is not in use by surfaces. Closing again does nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Surface(abc.ABC):
    """An array in GPU memory. Use it as a context manager, or `close` it, to free the memory.

    Not to be built directly: use `Gpu.surface`.

    Attributes
    ----------
    gpu : Gpu
    shape : tuple of int
    dtype : numpy.dtype
    nbytes : int
    address : int
        Virtual address of the first byte.
    path : Path
        The way the bytes take between the surface and a board.
    """

    address: int
    path: Path

    def __init__(self, gpu: Gpu, shape: int | Sequence[int], dtype: DTypeLike):
        self.gpu = gpu
        self.shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        if min(self.shape, default=0) < 0:
            raise ValueError(f"a surface's dimensions are 0 or more, not {self.shape}")
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise ValueError(f"a surface holds plain data, not Python objects ({self.dtype})")
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self.closed = False
        self._pins = 0

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self.address:#x} of {self.gpu.name}"
        return f"<Surface {self.shape} {self.dtype}, {self.nbytes} bytes, {state}>"

    def fill(self, seed: int) -> None:
        """Writes the test pattern of `seed` on the GPU."""
        self.gpu.fill(self, seed)

    @property
    @abc.abstractmethod
    def array(self) -> np.ndarray:
        """The surface as a numpy array that shares its memory; UnsupportedError if no CPU can."""

    @abc.abstractmethod
    def extents(self) -> list[Extent]:
        """The pieces of the memory, see `peerdma.memory.Memory`."""

    def hold(self) -> None:
        """The surface was pinned: it cannot be closed until as many calls of `drop`."""
        if self.closed:
            raise PinError("asked to pin a surface that is closed; make a new one")
        self._pins += 1

    def drop(self) -> None:
        """One pin less."""
        self._pins -= 1

    def close(self) -> None:
        """Frees the memory; PinError while it is pinned. Closing again does nothing."""
        if self._pins:
            raise PinError(
                f"asked to close a surface that is pinned {self._pins} times; close the pins first"
            )
        if not self.closed:
            self.closed = True
            self._free()

    @abc.abstractmethod
    def _free(self) -> None:
        """Gives the memory back."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def wrong_word(
    surface: Surface, wanted: str, offset: int, expected: int, found: int, wrong: int
) -> VerifyError:
    """The error for a surface with `wrong` wrong words, the first at byte `offset`."""
    element = offset // surface.dtype.itemsize
    index = tuple(int(n) for n in np.unravel_index(element, surface.shape))
    total = -(-surface.nbytes // 4)
    return VerifyError(
        f"{wanted} was expected in a surface of {surface.nbytes} bytes, but {wrong} of {total} "
        f"words differ. First wrong word: number {offset // 4}, byte offset {offset:#x}, element "
        f"{index}: expected {expected:#010x}, found {found:#010x}. Check that the transfer into "
        "this surface had finished, covered all of it, and came from the right source",
        offset=offset,
        expected=expected,
        found=found,
        wrong=wrong,
    )
