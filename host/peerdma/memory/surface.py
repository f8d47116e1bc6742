# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces, arrays in GPU memory, and what every kind of GPU can do with them."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..arguments import integer, wrong_type
from ..errors import PinError, Timeout, VerifyError
from . import dlpack, files, pattern
from .mailbox import Mailbox, Watch, require_token
from .memory import Extent, Path

__all__ = ["Gpu", "Surface", "layout", "not_arrived", "wrong_word"]


class Gpu(abc.ABC):
    """A GPU, real or emulated: allocates surfaces and runs kernels on them.

    Use it as a context manager, or `close` it, when done. Surfaces keep their memory after that.

    Attributes
    ----------
    name : str
        As shown to users.
    emulated : bool
        Whether its memory and kernels are the CPU's.
    memory : str
        Where surfaces are allocated and why, as shown to users.
    """

    name: str
    emulated: bool
    memory: str

    @abc.abstractmethod
    def surface(self, shape: int | Sequence[int], dtype: DTypeLike = "u1") -> Surface:
        """A new surface, zeroed; PeerdmaError if there is no memory for it."""

    @abc.abstractmethod
    def register(self, array: Any) -> Surface:
        """Makes a surface of an existing array; it shares the array's memory and keeps it alive.

        Parameters
        ----------
        array : numpy.ndarray, or another library's
            C-contiguous and writable, in memory that this GPU and a board can access: of numpy, or
            with ``__cuda_array_interface__`` or DLPack, such as those of CuPy and PyTorch.

        Raises
        ------
        PinError
            If it does not meet these conditions; says what to do.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Waits until all work that this process queued on the GPU is done, by any library.

        This library's own work has finished when its calls return. Work that other libraries
        queued, PyTorch for example, must be waited for before a board reads a surface.
        """

    @abc.abstractmethod
    def fill(self, surface: Surface, seed: int) -> None:
        """Writes the pattern of `seed` (see `peerdma.memory.pattern`), from its word 0 on."""

    @abc.abstractmethod
    def verify(self, surface: Surface, *, seed: int) -> None:
        """Checks the pattern of `seed` on the GPU; VerifyError names the first wrong word."""

    @abc.abstractmethod
    def compare(self, surface: Surface, other: Surface) -> None:
        """Checks on the GPU that `surface` equals `other`; VerifyError as `verify`."""

    @abc.abstractmethod
    def checksum(self, surface: Surface) -> int:
        """The surface's checksum (see `peerdma.memory.pattern`), computed on the GPU."""

    @abc.abstractmethod
    def watch(
        self,
        surface: Surface,
        mailbox: Mailbox,
        *,
        seed: int,
        token: int = 1,
        timeout: float = 60.0,
    ) -> Watch:
        """Starts a kernel that reports to a board when a pattern arrives in a surface.

        It writes `token` to `first` of the mailbox when the surface's first word matches the
        pattern of `seed`, to `last` when the last word does, and to `done` when it has checked
        every word, whether they match or not.

        Parameters
        ----------
        token : int
            1 to 2**32 - 1.
        timeout : float
            Seconds until it gives up.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Releases all that no surface uses. Closing again does nothing."""

    def require_own(self, surface: Surface) -> None:
        """ValueError if the surface is another GPU's, TypeError if it is no surface."""
        if not isinstance(surface, Surface):
            raise wrong_type(
                "a GPU works on surfaces",
                surface,
                "make one with gpu.surface(...), or of an array with gpu.register(array)",
            )
        if surface.gpu is not self:
            raise ValueError(f"{surface!r} is not a surface of {self!r}; ask its own GPU")

    def require_comparable(self, surface: Surface, other: Surface) -> None:
        """ValueError if these two, which this GPU has to own, differ in size."""
        self.require_own(surface)
        self.require_own(other)
        if surface.nbytes != other.nbytes:
            raise ValueError(
                f"cannot compare a surface of {surface.nbytes} bytes with one of {other.nbytes}; "
                "only surfaces of one size can be equal"
            )

    def require_watchable(self, surface: Surface, seed: int, token: int) -> None:
        """ValueError if these are invalid arguments of `watch`."""
        self.require_own(surface)
        pattern.require_seed(seed)
        require_token(token)
        if not surface.nbytes:
            raise ValueError("cannot watch an empty surface: nothing can arrive")

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
    on_gpu : bool
        Whether the memory is a real GPU's own.
    readonly : bool
        False: every surface can be written.
    """

    address: int
    path: Path
    on_gpu: bool = False
    readonly: bool = False

    def __init__(self, gpu: Gpu, shape: int | Sequence[int], dtype: DTypeLike):
        self.gpu = gpu
        self.shape, self.dtype, self.nbytes = layout(shape, dtype)
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

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(
                    f"cannot share {self!r} as {np.dtype(dtype)}: that needs a copy. Leave out "
                    f"copy=False, or ask for {array.dtype}"
                )
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device, as DLPack numbers them."""
        return dlpack.CPU, 0

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The surface as a tensor that shares its memory, and keeps it alive after `close`.

        With `copy` it is a tensor of a copy. Two plain bytes, dtype ``"V2"``, are bfloat16.

        Raises
        ------
        BufferError
            If DLPack has no such data type, or the memory is not on `dl_device`.
        """
        here = dlpack.CPU, 0
        if dl_device not in (None, here):
            raise BufferError(f"{self!r} is no memory of device {dl_device}; copy it there")
        array = self.get() if copy else self.array
        return dlpack.export(
            array.ctypes.data,
            here,
            array.shape,
            array.dtype,
            array,
            max_version=max_version,
            copied=bool(copy),
        )

    def get(self) -> np.ndarray:
        """A copy of the content, in an array of the host."""
        data = np.empty(self.shape, self.dtype)
        self.copy_out(0, data.reshape(-1).view(np.uint8))
        return data

    def set(self, array: np.ndarray) -> None:
        """Copies an array into the surface; its shape must broadcast to the surface's."""
        whole = np.broadcast_to(np.asarray(array, self.dtype), self.shape)
        self.copy_in(0, np.ascontiguousarray(whole).reshape(-1).view(np.uint8))

    def copy_in(self, start: int, data: np.ndarray) -> None:
        """Copies an array of uint8 to the surface's bytes from `start` on."""
        self._bytes()[start : start + data.size] = data

    def copy_out(self, start: int, data: np.ndarray) -> None:
        """Copies the surface's bytes from `start` on to an array of uint8."""
        data[:] = self._bytes()[start : start + data.size]

    def load(self, path: files.File) -> files.FileTransfer:
        """Reads the surface's content from a file of its size; see `peerdma.memory.files.load`."""
        return files.load(self, path)

    def save(self, path: files.File) -> files.FileTransfer:
        """Writes the surface's content to a file; see `peerdma.memory.files.save`."""
        return files.save(self, path)

    def _bytes(self) -> np.ndarray:
        return self.array.reshape(-1).view(np.uint8)

    @abc.abstractmethod
    def extents(self) -> list[Extent]:
        """The pieces of the memory, see `peerdma.memory.memory.Memory`."""

    def acquire(self) -> None:
        """Adds a user: the surface cannot be closed until each has called `release`."""
        if self.closed:
            raise PinError("the surface is closed; make a new one")
        self._pins += 1

    def release(self) -> None:
        """Undoes one `acquire`."""
        self._pins -= 1

    @abc.abstractmethod
    def flush_writes(self) -> None:
        """Makes what a board wrote visible; see `peerdma.memory.memory.Memory`."""

    def close(self) -> None:
        """Frees the memory; PinError while it is pinned. Closing again does nothing."""
        if self._pins:
            raise PinError(
                f"cannot close a surface that is pinned {self._pins} times; close the pins first"
            )
        if not self.closed:
            self.closed = True
            self._free()

    @abc.abstractmethod
    def _free(self) -> None:
        """Frees the memory."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def layout(
    shape: int | Sequence[int], dtype: DTypeLike
) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, data type and length in bytes of a surface.

    Raises
    ------
    TypeError
        If the shape is no integer nor a sequence of them, or `dtype` is no data type.
    ValueError
        If a dimension is negative, or the elements are Python objects.
    """
    each = shape if isinstance(shape, Iterable) and not isinstance(shape, str) else (shape,)
    sizes = tuple(integer(size, "a dimension of a surface") for size in each)
    if min(sizes, default=0) < 0:
        raise ValueError(f"a surface's dimensions are 0 or more, not {sizes}")
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ValueError(f"a surface holds plain data, not Python objects ({kind})")
    return sizes, kind, math.prod(sizes) * kind.itemsize


def not_arrived(surface: Surface, word: int, timeout: float) -> Timeout:
    """The error for a word of the pattern that a watch did not see in time."""
    return Timeout(
        f"word {word} of the pattern did not arrive in a surface of {surface.nbytes} bytes: the "
        f"watch was closed, or {timeout:g} s passed. Check that the transfer into this surface "
        "was started, covers all of it, and has the pattern's seed as its source"
    )


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
