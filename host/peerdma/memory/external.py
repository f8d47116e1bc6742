# SPDX-License-Identifier: BSD-2-Clause
"""Arrays of other libraries: where their bytes are, and whether they still are there.

According to the protocols for sharing memory. Libraries take memory from arrays that live on:
PyTorch by ``resize_``, ``set_`` or ``.data =``, and sharded training frees parameters so; numpy by
``resize``. Nothing tells whoever has the address.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..errors import PeerdmaError, PinError
from . import dlpack
from .memory import array_interface, host_bytes, scattered
from .refused import masked, nonsense, refuse_mask, refused

__all__ = [
    "ALL_STREAMS",
    "LEGACY_STREAM",
    "ExternalArray",
    "Origin",
    "Part",
    "describe",
    "is_array",
]

#: What DLPack calls memory of the host.
_HOST = frozenset({dlpack.CPU, dlpack.CUDA_HOST})
_WANTED = (
    "give an array of numpy, PyTorch, CuPy or Numba, anything else with DLPack, "
    "__cuda_array_interface__ or the buffer protocol, a surface, or a peerdma.DmaBuf"
)
#: CUDA's legacy default stream, which waits for all streams that were not made non-blocking.
LEGACY_STREAM = 1
#: Stands for all streams of a GPU.
ALL_STREAMS = -1
#: Where the address of an array's bytes is in the object: the first member after Python's own.
_DATA = object.__basicsize__


class ExternalArray(NamedTuple):
    """A contiguous array of another library.

    Attributes
    ----------
    nbytes : int
        Length in bytes.
    on_gpu : bool
        Whether its library reports it in a GPU's memory.
    stream : int or None
        CUDA stream whose work has to finish before the bytes are used, or `ALL_STREAMS`.
    owner : object
        Object that keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    nbytes: int
    readonly: bool
    on_gpu: bool
    stream: int | None
    owner: object

    def bytes(self) -> np.ndarray:
        """The bytes as an array of uint8, which keeps the owner alive; only of host memory."""
        return host_bytes(self.address, self.nbytes, self.owner, self.readonly)


def is_array(thing: object) -> bool:
    """Whether `describe` takes it for an array; it may still refuse it."""
    try:
        return (
            isinstance(thing, np.ndarray)
            or hasattr(thing, "__dlpack_device__")
            or getattr(thing, "__cuda_array_interface__", None) is not None
            or _has_buffer(thing)
        )
    except Exception:
        # It has something of an array. What is wrong with it, `describe` says.
        return True


def _has_buffer(thing: Any) -> bool:
    try:
        memoryview(thing).release()
    except TypeError:
        return False
    except BufferError:
        return True
    return True


def describe(array: object, action: str = "register", *, ordered: bool = True) -> ExternalArray:
    """Where an array's bytes are.

    Parameters
    ----------
    array
        Of numpy, or with ``__cuda_array_interface__``, DLPack, or the buffer protocol.
    action : str
        What to do with it, for errors.
    ordered : bool
        Whether the bytes are used once the work in the array's `stream` has finished. If not,
        its library is not asked to order anything, and `stream` is None.

    Raises
    ------
    PinError
        If it is no array, or its bytes are not one contiguous piece of plain data. If its library
        raises another error, that is the cause.
    """
    if isinstance(array, np.ndarray):
        return _host(array, array, action)
    try:
        return _plausible(_foreign(array, action, ordered), array, action)
    except PeerdmaError:
        raise
    except Exception as error:
        raise refused(action, array, error) from error


def _foreign(array: Any, action: str, ordered: bool) -> ExternalArray:
    """What `describe` finds of another library's array; raises what that library does."""
    # Libraries may raise AttributeError where it does not apply, PyTorch for a tensor of the CPU.
    interface = getattr(array, "__cuda_array_interface__", None)
    exports = hasattr(array, "__dlpack_device__")
    # Before version 3, the interface says nothing of streams, as PyTorch's; DLPack does.
    if interface is not None and (interface.get("version", 0) >= 3 or not exports):
        return _cuda(array, interface, action, ordered)
    if exports:
        kind, _ = array.__dlpack_device__()
        try:
            return _imported(array, int(kind), action, ordered)
        except BufferError:
            # PyTorch exports only what is in its current GPU, and tells no stream otherwise.
            if interface is None:
                raise
            found = _cuda(array, interface, action, ordered)
            return found._replace(stream=ALL_STREAMS) if ordered else found
    if _has_buffer(array):
        return _buffer(array, action)
    raise PinError(f"cannot {action} a {type(array).__name__}, which is no array; {_WANTED}")


def _plausible(found: ExternalArray, array: Any, action: str) -> ExternalArray:
    """What was found; PinError if no memory can be like that."""
    numbers = (found.address, *found.shape, 0 if found.stream is None else found.stream)
    if not all(isinstance(number, int) for number in numbers):
        raise nonsense(action, array, f"{numbers} are not all whole numbers")
    if min(found.shape, default=0) < 0 or found.dtype.hasobject:
        raise nonsense(action, array, f"shape {found.shape} of {found.dtype}")
    if found.nbytes and not 0 < found.address <= (1 << 64) - found.nbytes:
        raise nonsense(action, array, f"{found.nbytes} bytes at address {found.address:#x}")
    return found


def _buffer(thing: Any, action: str) -> ExternalArray:
    try:
        view = memoryview(thing)
        array = np.asarray(view)
    except (BufferError, TypeError, ValueError) as error:
        what = f"cannot {action} a {type(thing).__name__}: {error}"
        raise PinError(f"{what}. Copy it to a numpy array first") from None
    return _host(array, thing, action)


def _host(array: np.ndarray, given: object, action: str) -> ExternalArray:
    if type(array) is not np.ndarray:
        refuse_mask(action, array)
    if not array.flags.c_contiguous or array.dtype.hasobject:
        raise scattered(action, given, array.shape, array.strides)
    address, readonly = array_interface(array)["data"]
    return ExternalArray(
        address, array.shape, array.dtype, array.nbytes, readonly, False, None, array
    )


def _cuda(array: Any, interface: dict[str, Any], action: str, ordered: bool) -> ExternalArray:
    shape, dtype = tuple(map(index, interface["shape"])), np.dtype(interface["typestr"])
    place, readonly = interface["data"]
    address = index(place or 0)
    strides = interface.get("strides")
    if interface.get("mask") is not None:
        raise masked(action, array)
    if not _contiguous(shape, strides, dtype.itemsize):
        raise scattered(action, array, shape, strides)
    stream = None
    if ordered:
        # Libraries that name no stream, as Numba, work in the default one unless told otherwise.
        stream = index(interface.get("stream") or LEGACY_STREAM)
    nbytes = math.prod(shape) * dtype.itemsize
    return ExternalArray(address, shape, dtype, nbytes, readonly, True, stream, array)


def _imported(array: Any, kind: int, action: str, ordered: bool) -> ExternalArray:
    if kind == dlpack.CUDA_MANAGED:
        raise PinError(
            f"cannot {action} a {type(array).__name__} in managed memory, which moves between CPU "
            "and GPU. Copy it into a surface of gpu.surface(...) instead"
        )
    on_gpu = kind == dlpack.CUDA
    if not on_gpu and kind not in _HOST:
        raise PinError(
            f"cannot {action} a {type(array).__name__} on a device of DLPack kind {kind}, "
            "which is neither the host nor a CUDA GPU. Move it to one of these first"
        )
    stream = (dlpack.STREAM if ordered else dlpack.NO_STREAM) if on_gpu else None
    tensor = dlpack.read(array, stream, action)
    # Of pinned memory PyTorch says so here, and there that it is the host's.
    if tensor.device != kind and not {tensor.device, kind} <= _HOST:
        raise nonsense(action, array, f"on devices of kind {kind} and of kind {tensor.device}")
    itemsize = tensor.dtype.itemsize
    strides = tensor.strides and tuple(stride * itemsize for stride in tensor.strides)
    if not _contiguous(tensor.shape, strides, itemsize):
        raise scattered(action, array, tensor.shape, strides)
    return ExternalArray(
        tensor.address,
        tensor.shape,
        tensor.dtype,
        math.prod(tensor.shape) * itemsize,
        tensor.readonly,
        on_gpu,
        stream if ordered else None,
        tensor.owner,
    )


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True


class Part(NamedTuple):
    """A piece of a GPU's memory, from an address on, that was mapped at once."""

    address: int
    #: BUFFER_ID of CUDA, never equal to that of another one
    identity: int


class Origin:
    """An array that was given, and where its bytes were then.

    Parameters
    ----------
    given : object
        The array; it is kept alive.
    array : ExternalArray
        What `describe` said of it.
    parts : sequence of Part
        What its memory consists of, for a GPU's.
    identity : callable, optional
        Returns the identity of what is at an address now; needed with `parts`.

    Attributes
    ----------
    produced : int
        The address, if it is of a GPU, whose library may queue work on it; else 0.
    """

    __slots__ = ("_expected", "_foreign", "_identity", "_parts", "_place", "_where", "produced")

    def __init__(
        self,
        given: object,
        array: ExternalArray,
        parts: Sequence[Part] = (),
        identity: Callable[[int], int] | None = None,
    ):
        #: for errors
        self._place = array.address, array.nbytes
        self._parts = parts
        self._identity = identity
        self._foreign = False
        if isinstance(given, np.ndarray):
            self._where = _numpy_place(given, array)
        else:
            self._foreign = True
            self._where = _foreign_place(given, array)
        self._expected = self._where()
        self.produced: int = array.address if array.on_gpu else 0

    def require_unmoved(self) -> None:
        """PinError if the bytes are somewhere else now, or are fewer."""
        try:
            found = self._where()
        except Exception as error:
            if not self._foreign:  # numpy raises nothing here: it is a signal handler's
                raise
            why = f"its library does not say where it is any more ({error})"
            raise self._moved(why) from error
        if found != self._expected:
            raise self._moved("its library has given that memory back, or taken other memory")
        for address, identity in self._parts:
            assert self._identity is not None
            if self._identity(address) != identity:
                raise self._moved("other memory of the GPU is mapped there, or none")

    def _moved(self, why: str) -> PinError:
        address, nbytes = self._place
        return PinError(
            f"cannot use {nbytes} bytes at {address:#x}: the array has moved since it was pinned, "
            f"prepared or registered: {why}. Nothing was transferred. Prepare the plan, pin or "
            "register the array again, as it is now, and keep its memory until the end: resize_, "
            "set_ and `.data =` of PyTorch and resize of numpy take it away"
        )


def _numpy_place(given: np.ndarray, array: ExternalArray) -> Callable[[], object]:
    """What returns where an array is now, in under a microsecond for most: any comparable value."""
    field = ctypes.c_void_p.from_address(id(given) + _DATA)
    if (field.value or 0) != array.address:  # another layout of numpy's objects
        return lambda: (given.__array_interface__["data"][0], given.nbytes, given.strides)
    owner = given
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner is given:
        return lambda: (field.value, given.nbytes, given.strides)
    # A view has an address of its own, which stays when the memory is taken from its base.
    root = ctypes.c_void_p.from_address(id(owner) + _DATA)
    return lambda: (field.value, given.nbytes, given.strides, root.value, owner.nbytes)


def _foreign_place(given: Any, array: ExternalArray) -> Callable[[], object]:
    """As `_numpy_place`, for arrays of other libraries."""
    for way in (_torch, _interface):
        found = way(given, array)
        if found is not None:
            return found

    def described() -> object:
        now = describe(given, ordered=False)
        return now.address, now.nbytes

    return described


def _torch(given: Any, array: ExternalArray) -> Callable[[], Any] | None:
    """For PyTorch's, which takes many times as long to export a tensor."""
    try:
        if given.data_ptr() != array.address or given.nbytes != array.nbytes:
            return None
        given.is_contiguous()
    except Exception:
        return None
    return lambda: (given.data_ptr(), given.nbytes, given.is_contiguous())


def _interface(given: Any, array: ExternalArray) -> Callable[[], Any] | None:
    """For arrays of a GPU that are described by ``__cuda_array_interface__``."""
    if not array.on_gpu:
        return None

    def found() -> Any:
        now = given.__cuda_array_interface__
        return now["data"][0], now["shape"], now.get("strides"), now["typestr"]

    try:
        address, shape, _, typestr = found()
    except Exception:
        return None
    same = math.prod(shape) * np.dtype(typestr).itemsize == array.nbytes
    return found if same and address == array.address else None
