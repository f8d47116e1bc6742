# SPDX-License-Identifier: BSD-2-Clause
"""What can be pinned for DMA: the protocol, and plain numpy arrays in host memory."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np

from ..errors import PinError
from .refused import refuse_mask

__all__ = [
    "DataPath",
    "DmaBufMemory",
    "Extent",
    "GpuFile",
    "Holder",
    "HostArray",
    "Memory",
    "Staged",
    "array_interface",
    "host_bytes",
    "is_memory",
    "scattered",
]


#: Where numpy has an array's bytes, whatever a class derived from it says: the value of
#: ``__array_interface__``.
array_interface: Callable[[np.ndarray], dict[str, Any]] = np.ndarray.__dict__[
    "__array_interface__"
].__get__


class DataPath(str, enum.Enum):
    """The way the bytes take between the memory and the board."""

    #: straight into or out of the GPU's memory
    PEER_TO_PEER = "peer-to-peer"
    #: through host memory that GPU and board can both access
    HOST_MEMORY = "host memory"
    #: straight into or out of the GPU's memory, by the processor that simulates the board
    GPU_BAR = "CPU stores through the GPU's BAR1, simulated card"
    #: copied by the CPU on the way: only where nothing else works, and for a simulated board
    STAGED = "staged"

    def __str__(self) -> str:
        return self.value


class Staged(abc.ABC):
    """Memory that the CPU can only copy from and to; acts as a memoryview of bytes."""

    readonly: bool

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def __getitem__(self, key: slice) -> Staged: ...

    @abc.abstractmethod
    def __setitem__(self, key: slice, data: bytes) -> None: ...

    @abc.abstractmethod
    def __bytes__(self) -> bytes: ...


@dataclass(frozen=True)
class GpuFile:
    """A piece of a GPU's memory in a file, for another process of this machine.

    Attributes
    ----------
    fd : int
    nbytes : int
        Of the whole allocation, which the file is.
    offset : int
        Of the piece in it.
    identity : int
        Equal for files of the same allocation, and for no others of this process; 0: of this alone.
    device : bytes
        The GPU's UUID.
    mappable : bool
        Whether it is a dma-buf that a process can map, else what Vulkan can import.
    """

    fd: int
    nbytes: int
    offset: int
    identity: int
    device: bytes
    mappable: bool


@dataclass(frozen=True)
class Extent:
    """A contiguous piece of memory, for backends that map memory themselves.

    `memory` is the piece itself. `bus_address` is where it appears on the bus; None lets the
    backend choose. `fd` and `fd_offset` give the file that backs it, if there is one. `gpu_file`
    exports it, if it is a GPU's memory; UnsupportedError if that cannot be.
    """

    memory: memoryview | Staged
    bus_address: int | None = None
    fd: int | None = None
    fd_offset: int = 0
    gpu_file: Callable[[], AbstractContextManager[GpuFile]] | None = None


class Memory(Protocol):
    """Memory that `Board.pin` takes."""

    @property
    def address(self) -> int:
        """Virtual address of the first byte, unique in the process."""
        ...

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        ...

    @property
    def on_gpu(self) -> bool:
        """Whether it is GPU memory, which the GPU's driver has to pin, and not process memory."""
        ...

    @property
    def path(self) -> DataPath:
        """The way the bytes take between this memory and a board that can reach it."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether a board may only read it."""
        ...

    def extents(self) -> list[Extent]:
        """The pieces of the memory, in order; for backends that map them themselves.

        The memory starts at the beginning of the first piece; the last may run past its end.
        """
        ...

    def acquire(self) -> None:
        """Adds a user: the memory must not be freed or moved until each has called `release`."""
        ...

    def release(self) -> None:
        """Undoes one `acquire`."""
        ...

    def flush_writes(self) -> None:
        """Makes what a board wrote visible to the memory's users; called after a transfer.

        Where the memory is not on a GPU, there is nothing to do.
        """
        ...


def is_memory(thing: object) -> TypeGuard[Memory]:
    """Whether an object has the methods of `Memory`; it need not derive from it."""
    # Called for each array of each transfer: most have no `extents`.
    try:
        return (
            hasattr(thing, "extents")
            and hasattr(thing, "acquire")
            and hasattr(thing, "release")
            and hasattr(thing, "readonly")
        )
    except Exception:  # what raises another error than AttributeError is not ours
        return False


@runtime_checkable
class DmaBufMemory(Memory, Protocol):
    """Memory that can be handed to other drivers as a dma-buf."""

    def dmabuf(self) -> Any:
        """The dma-buf: a context manager with `fd`, `offset` and `nbytes`."""
        ...


def scattered(
    action: str, array: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> PinError:
    """The error for an array whose bytes are not in one piece, or are no plain data."""
    return PinError(
        f"cannot {action} a {type(array).__name__} of shape {shape} and strides {strides}: its "
        "bytes are not one contiguous piece of plain data in C order. For a source, take a "
        "contiguous copy, as by numpy.ascontiguousarray(...) or tensor.contiguous(). For a "
        "destination, transfer into a contiguous array and assign that to this one afterwards: "
        "array[...] = contiguous"
    )


class _Bytes:
    """Lets numpy make an array of memory, which the array then keeps alive."""

    def __init__(self, address: int, nbytes: int, owner: object, readonly: bool):
        self._owner = owner
        self.__array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, readonly),
            "version": 3,
        }


def host_bytes(address: int, nbytes: int, owner: object, readonly: bool = False) -> np.ndarray:
    """Memory that the CPU reaches, as an array of uint8 that keeps its owner alive."""
    return np.asarray(cast(np.ndarray, _Bytes(address, nbytes, owner, readonly)))


class Holder(Protocol):
    """A board that pins memory by itself, for as long as a transfer or a plan has it."""

    def reap(self) -> None:
        """Releases what transfers and plans do not have any more; from any thread."""
        ...


class HostArray:
    """A numpy array as memory to pin.

    Parameters
    ----------
    array : numpy.ndarray
        Any C-contiguous array; a read-only one can be a source only.

    Raises
    ------
    PinError
        If the array's bytes are not one contiguous piece, or are Python objects.
    """

    path = DataPath.HOST_MEMORY
    on_gpu = False

    def __init__(self, array: np.ndarray):
        if type(array) is not np.ndarray:
            refuse_mask("pin", array)
        if not array.flags.c_contiguous or array.dtype.hasobject:
            raise scattered("pin", array, array.shape, array.strides)
        self._bytes = array.reshape(-1).view(np.uint8)
        self.readonly: bool = not self._bytes.flags.writeable
        self.nbytes: int = array.nbytes
        self.address: int = array_interface(array)["data"][0]
        #: tells whether the array has moved, where it is pinned explicitly: an `Origin`
        self.origin: Any = None

    def __repr__(self) -> str:
        return f"<HostArray {self.nbytes} bytes at {self.address:#x}>"

    def extents(self) -> list[Extent]:
        """One piece that no file backs; none if the array is empty."""
        return [Extent(self._bytes.data)] if self.nbytes else []

    def acquire(self) -> None:
        """Nothing to do: the reference to the array keeps it alive."""

    def release(self) -> None:
        """Nothing to do."""

    def flush_writes(self) -> None:
        """Nothing to do: the host's memory is coherent."""
