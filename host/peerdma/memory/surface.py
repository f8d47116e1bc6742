# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces, arrays in GPU memory, and what every kind of GPU can do with them."""

from __future__ import annotations

import abc
import math
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from ..arguments import integer, wrong_type
from ..deprecated import deprecated
from ..errors import PinError
from ..process import OneProcess, here
from . import dlpack, files
from .external import Origin
from .mailbox import Mailbox, MailboxMap, Watch
from .memory import DataPath, Extent, Holder
from .refused import refuse_mask

__all__ = ["Gpu", "SelfTest", "Surface", "layout", "require_surface"]

_Gpu = TypeVar("_Gpu", bound="Gpu")
_Surface = TypeVar("_Surface", bound="Surface")


class Gpu(OneProcess, abc.ABC):
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
    def map_mailbox(self, mailbox: Mailbox) -> MailboxMap:
        """Maps a board's mailbox for kernels of this GPU, which then write its words by themselves.

        Raises
        ------
        CudaError
            If CUDA cannot map the registers of a real board; says what to use instead.
        PeerdmaError
            If another map or watch uses the mailbox.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Releases all that no surface uses. Closing again does nothing."""

    # Tests of transfers ------------------------------------------------------------------------

    def verify(self, surface: Surface, *, seed: int) -> None:
        """Checks a test pattern on the GPU; see `peerdma.testing.verify`."""
        self.self_test(surface).verify(surface, seed)

    def self_test(self, *surfaces: Surface) -> SelfTest:
        """The kernels behind `peerdma.testing`, for surfaces of this GPU.

        Raises
        ------
        ValueError, TypeError
            If one is another GPU's, or no surface.
        GpuNotFound
            If kernels cannot be compiled; says what to install.
        """
        for surface in surfaces:
            require_surface(surface)
            if surface.gpu is not self:
                raise ValueError(f"{surface!r} is not a surface of {self!r}; ask its own GPU")
        return self._self_test()

    @abc.abstractmethod
    def _self_test(self) -> SelfTest:
        """The kernels, compiled on first use."""

    def fill(self, surface: Surface, seed: int) -> None:
        """Former name of `Surface.fill`."""
        deprecated("gpu.fill(surface, seed)", "surface.fill(seed)")
        self.self_test(surface).fill(surface, seed)

    def compare(self, surface: Surface, other: Surface) -> None:
        """Former name of `peerdma.testing.compare`."""
        deprecated("gpu.compare(...)", "peerdma.testing.compare(...)")
        self.self_test(surface, other).compare(surface, other)

    def checksum(self, surface: Surface) -> int:
        """Former name of `peerdma.testing.checksum`."""
        deprecated("gpu.checksum(...)", "peerdma.testing.checksum(...)")
        return self.self_test(surface).checksum(surface)

    def watch(
        self,
        surface: Surface,
        mailbox: Mailbox,
        *,
        seed: int,
        token: int = 1,
        timeout: float = 60.0,
    ) -> Watch:
        """Former name of `peerdma.testing.watch`."""
        deprecated("gpu.watch(...)", "peerdma.testing.watch(...)")
        return self.self_test(surface).watch(surface, mailbox, seed, token, timeout)

    def __enter__(self: _Gpu) -> _Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SelfTest(Protocol):
    """What a GPU can do to test transfers; the functions of `peerdma.testing` have the same names.

    Surfaces are the GPU's own; the other arguments are checked here.
    """

    def fill(self, surface: Surface, seed: int) -> None:
        """Writes a pattern."""
        ...

    def verify(self, surface: Surface, seed: int) -> None:
        """Checks a pattern."""
        ...

    def compare(self, surface: Surface, other: Surface) -> None:
        """Checks that two surfaces are equal."""
        ...

    def checksum(self, surface: Surface) -> int:
        """A number that differs if the content does."""
        ...

    def watch(
        self, surface: Surface, mailbox: Mailbox, seed: int, token: int, timeout: float
    ) -> Watch:
        """Reports to a board when a pattern arrives."""
        ...


class Surface(OneProcess, abc.ABC):
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
    path : DataPath
        The way the bytes take between the surface and a board.
    on_gpu : bool
        Whether the memory is a real GPU's own.
    readonly : bool
        False: every surface can be written.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    address: int
    path: DataPath
    on_gpu: bool = False
    readonly: bool = False

    def __init__(
        self,
        gpu: Gpu,
        shape: int | Sequence[int],
        dtype: DTypeLike,
        origin: Origin | None = None,
    ):
        self.gpu = gpu
        #: of a registered array
        self.origin: Origin | None = origin
        self.shape, self.dtype, self.nbytes = layout(shape, dtype)
        self.closed: bool = False
        self._process = here()
        self._pins = 0
        #: boards that may have pins of it which nobody uses any more
        self.holders: weakref.WeakSet[Holder] = weakref.WeakSet()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self.address:#x} of {self.gpu.name}"
        return f"<Surface {self.shape} {self.dtype}, {self.nbytes} bytes, {state}>"

    def fill(self, seed: int) -> None:
        """Writes a test pattern on the GPU; see `peerdma.testing.fill`."""
        self.gpu.self_test(self).fill(self, seed)

    @property
    @abc.abstractmethod
    def array(self) -> np.ndarray:
        """The surface as a numpy array that shares its memory; UnsupportedError if no CPU can."""

    @property
    def bytes(self) -> np.ndarray:
        """The same as a flat array of uint8."""
        return self.array.reshape(-1).view(np.uint8)

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
        """Copies an array into the surface; its shape must broadcast to the surface's.

        PinError if it has a mask, which would be lost.
        """
        if type(array) is not np.ndarray:
            refuse_mask("set a surface to", array)
        whole = np.broadcast_to(np.asarray(array, self.dtype), self.shape)
        self.copy_in(0, np.ascontiguousarray(whole).reshape(-1).view(np.uint8))

    def copy_in(self, start: int, data: np.ndarray) -> None:
        """Copies an array of uint8 to the surface's bytes from `start` on."""
        self.bytes[start : start + data.size] = data

    def copy_out(self, start: int, data: np.ndarray) -> None:
        """Copies the surface's bytes from `start` on to an array of uint8."""
        data[:] = self.bytes[start : start + data.size]

    def load(self, path: files.File) -> files.FileTransfer:
        """Reads the surface's content from a file of its size; see `peerdma.memory.files.load`."""
        return files.load(self, path)

    def save(self, path: files.File) -> files.FileTransfer:
        """Writes the surface's content to a file; see `peerdma.memory.files.save`."""
        return files.save(self, path)

    @abc.abstractmethod
    def extents(self) -> list[Extent]:
        """The pieces of the memory, see `peerdma.memory.memory.Memory`."""

    def acquire(self) -> None:
        """Adds a user: the surface cannot be closed until each has called `release`."""
        self.require_open()
        self._pins += 1

    def release(self) -> None:
        """Undoes one `acquire`."""
        self._pins -= 1

    def require_open(self) -> None:
        """PinError if the surface is closed, or is of a registered array that has moved."""
        if self.closed:
            raise PinError("the surface is closed; make a new one")
        if self.origin is not None:
            self.origin.require_unmoved()

    @abc.abstractmethod
    def flush_writes(self) -> None:
        """Makes what a board wrote visible; see `peerdma.memory.memory.Memory`."""

    def close(self) -> None:
        """Frees the memory; PinError while it is pinned. Closing again does nothing.

        In a child that was forked, the memory stays: it is its parent's.
        """
        if self._process != here():
            self.closed = True
            return
        if self._pins:
            for holder in list(self.holders):
                holder.reap()
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

    def __enter__(self: _Surface) -> _Surface:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def require_surface(thing: Any) -> None:
    """TypeError unless it is a surface."""
    if not isinstance(thing, Surface):
        raise wrong_type(
            "a GPU works on surfaces",
            thing,
            "make one with gpu.surface(...), or of an array with gpu.register(array)",
        )


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
