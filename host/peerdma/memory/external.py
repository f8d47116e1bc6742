# SPDX-License-Identifier: BSD-2-Clause
"""Arrays of other libraries: where their bytes are, according to the protocols for sharing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import PinError
from . import dlpack

__all__ = ["ExternalArray", "describe"]

_WANTED = (
    "give a numpy array, or one with __cuda_array_interface__ or DLPack, such as those of CuPy "
    "and PyTorch"
)


@dataclass(frozen=True)
class ExternalArray:
    """A contiguous array of another library.

    Attributes
    ----------
    on_gpu : bool
        Whether its library reports it in a GPU's memory.
    stream : int or None
        CUDA stream whose work has to finish before the bytes are used.
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
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def describe(array: Any) -> ExternalArray:
    """Where an array's bytes are: of numpy, or by ``__cuda_array_interface__`` or DLPack.

    Raises
    ------
    PinError
        If it is no array, or its bytes are not one contiguous piece of plain data.
    """
    if isinstance(array, np.ndarray):
        return _host(array)
    # Libraries may raise AttributeError where it does not apply, PyTorch for a tensor of the CPU.
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _cuda(array, interface)
    if hasattr(array, "__dlpack_device__"):
        kind, _ = array.__dlpack_device__()
        if kind in (dlpack.CPU, dlpack.CUDA_HOST):
            return _host(np.from_dlpack(array))
        return _imported(array)
    raise PinError(f"cannot register a {type(array).__name__}, which is no array; {_WANTED}")


def _host(array: np.ndarray) -> ExternalArray:
    if not array.flags.c_contiguous or array.dtype.hasobject:
        raise _scattered(array, array.shape, array.strides)
    return ExternalArray(
        array.ctypes.data, array.shape, array.dtype, not array.flags.writeable, False, None, array
    )


def _cuda(array: Any, interface: dict[str, Any]) -> ExternalArray:
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    address, readonly = interface["data"]
    strides = interface.get("strides")
    if interface.get("mask") is not None or not _contiguous(shape, strides, dtype.itemsize):
        raise _scattered(array, shape, strides)
    stream = interface.get("stream")
    return ExternalArray(address, shape, dtype, readonly, True, stream, array)


def _imported(array: Any) -> ExternalArray:
    tensor = dlpack.read(array)
    if tensor.device == dlpack.CUDA_MANAGED:
        raise PinError(
            f"cannot register a {type(array).__name__} in managed memory, which moves between CPU "
            "and GPU. Copy it into a surface of gpu.surface(...) instead"
        )
    if tensor.device != dlpack.CUDA:
        raise PinError(
            f"cannot register a {type(array).__name__} on a device of DLPack kind {tensor.device}, "
            "which is neither the host nor a CUDA GPU. Move it to one of these first"
        )
    itemsize = tensor.dtype.itemsize
    strides = tensor.strides and tuple(stride * itemsize for stride in tensor.strides)
    if not _contiguous(tensor.shape, strides, itemsize):
        raise _scattered(array, tensor.shape, strides)
    stream = dlpack.STREAM
    return ExternalArray(
        tensor.address, tensor.shape, tensor.dtype, tensor.readonly, True, stream, tensor.owner
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


def _scattered(array: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> PinError:
    return PinError(
        f"cannot register a {type(array).__name__} of shape {shape} and strides {strides}: its "
        "bytes are not one contiguous piece of plain data. Make it contiguous first"
    )
