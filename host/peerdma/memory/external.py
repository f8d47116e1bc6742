# SPDX-License-Identifier: BSD-2-Clause
"""Arrays of other libraries: where their bytes are, according to the protocols for sharing them."""

from __future__ import annotations

import math
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..errors import PeerdmaError, PinError
from . import dlpack
from .memory import address_of, host_bytes, scattered
from .refused import masked, nonsense, refuse_mask, refused

__all__ = ["ALL_STREAMS", "LEGACY_STREAM", "ExternalArray", "describe", "is_array"]

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


class ExternalArray(NamedTuple):
    """A contiguous array of another library.

    Attributes
    ----------
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
    readonly: bool
    on_gpu: bool
    stream: int | None
    owner: object

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def bytes(self) -> np.ndarray:
        """The bytes as an array of uint8, which keeps the owner alive; only of host memory."""
        return host_bytes(self.address, self.nbytes, self.owner, self.readonly)


def is_array(thing: Any) -> bool:
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


def describe(array: Any, action: str = "register", *, ordered: bool = True) -> ExternalArray:
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


def _host(array: np.ndarray, given: Any, action: str) -> ExternalArray:
    refuse_mask(action, array)
    if not array.flags.c_contiguous or array.dtype.hasobject:
        raise scattered(action, given, array.shape, array.strides)
    address = address_of(array)
    readonly = not array.flags.writeable
    return ExternalArray(address, array.shape, array.dtype, readonly, False, None, array)


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
    return ExternalArray(address, shape, dtype, readonly, True, stream, array)


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
