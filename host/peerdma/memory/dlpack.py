# SPDX-License-Identifier: BSD-2-Clause
"""DLPack: tensors handed from library to library without a copy.

A tensor is exported as a capsule, which points to a record of the exporter's. The consumer renames
the capsule and calls the record's deleter when done; if nobody consumed it, the capsule's
destructor does. From DLPack 1.0 on, a consumer asks for a record with version and flags, named
"dltensor_versioned"; libraries from before that know "dltensor" only.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import PinError
from .refused import nonsense

__all__ = [
    "CPU",
    "CUDA",
    "CUDA_HOST",
    "CUDA_MANAGED",
    "NO_STREAM",
    "STREAM",
    "Imported",
    "export",
    "read",
]

#: Kinds of device, DLDeviceType.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
#: The stream in which imported tensors are ready: DLPack's number for CUDA's legacy default stream.
STREAM = 1
#: Its number for: the producer orders nothing.
NO_STREAM = -1

#: Names of capsules: without and with version.
_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_VERSION = (1, 0)
#: Bits of a versioned record's flags.
_READ_ONLY, _IS_COPIED = 1, 2
#: DLDataTypeCode by numpy's kind; opaque bytes have none.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
#: No library has tensors with more.
_MOST_DIMENSIONS = 64


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """The record without version."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    """The record with version and flags."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
# The destructor gets the capsule when its reference count is 0: by address, not as an object.
_is_dying_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_in_dying = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

#: Exported records in use, by address: the record, its shape, and the memory's owner.
_exported: dict[int, tuple[_Managed | _Versioned, Any, object]] = {}


@_Deleter
def _release(record, exported=_exported):
    exported.pop(record, None)


@_Destructor
def _unused(
    capsule,
    exported=_exported,
    names=(_NAME, _VERSIONED_NAME),
    ours=_is_dying_capsule,
    pointer=_pointer_in_dying,
):
    for name in names:
        if ours(capsule, name):
            exported.pop(pointer(capsule, name), None)


# Other libraries free tensors as late as at interpreter exit, when modules are torn down.
for _needed in (_release, _unused):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_needed))


def export(
    address: int,
    device: tuple[int, int],
    shape: tuple[int, ...],
    dtype: np.dtype,
    owner: object,
    *,
    max_version: tuple[int, int] | None = None,
    copied: bool = False,
) -> object:
    """A capsule for memory of a device, which keeps `owner` alive while it is in use.

    Parameters
    ----------
    device : (int, int)
        Kind and number.
    max_version : (int, int), optional
        The newest version of DLPack that the consumer knows; None: one before 1.0.
    copied : bool
        Whether the memory is a copy that was made for this consumer.

    Raises
    ------
    BufferError
        If DLPack has no such data type.
    """
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    tensor = _Tensor(address, _Device(*device), len(shape), _data_type(dtype), sizes, None, 0)
    if max_version is None or max_version[0] < _VERSION[0]:
        name, record = _NAME, _Managed(tensor, None, _release)
    else:
        flags = _IS_COPIED if copied else 0
        name, record = _VERSIONED_NAME, _Versioned(*_VERSION, None, _release, flags, tensor)
    _exported[ctypes.addressof(record)] = record, sizes, owner
    return _new_capsule(ctypes.addressof(record), name, _unused)


@dataclass(frozen=True)
class Imported:
    """A tensor of another library; `owner` keeps it alive."""

    device: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype
    readonly: bool
    owner: object


def read(array: Any, stream: int | None = STREAM, action: str = "register") -> Imported:
    """The tensor that `array` exports, ready for work in a stream; None: it is the CPU's.

    Raises
    ------
    PinError
        If it is of a later major version of DLPack, or numpy does not have its data type.
    """
    try:
        capsule = array.__dlpack__(stream=stream, max_version=_VERSION)
    except TypeError:
        # Its library is older than DLPack 1.0.
        capsule = array.__dlpack__(stream=stream)
    # Not renamed, so that the capsule's destructor calls the deleter when nothing refers to it.
    flags = 0
    if _is_capsule(capsule, _VERSIONED_NAME):
        record = _Versioned.from_address(_pointer_in(capsule, _VERSIONED_NAME))
        if record.major != _VERSION[0]:
            raise _no_tensor(array, f"of DLPack {record.major}.{record.minor}")
        flags, tensor = record.flags, record.tensor
    elif _is_capsule(capsule, _NAME):
        tensor = _Managed.from_address(_pointer_in(capsule, _NAME)).tensor
    else:
        raise _no_tensor(array, "not as a DLPack tensor")
    if not 0 <= tensor.ndim <= _MOST_DIMENSIONS:
        raise nonsense(action, array, f"it has {tensor.ndim} dimensions")
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    dtype = _numpy_type(tensor.dtype, action)
    address = (tensor.data or 0) + tensor.byte_offset
    readonly = bool(flags & _READ_ONLY)
    return Imported(tensor.device.kind, address, shape, strides, dtype, readonly, (capsule, array))


def _no_tensor(array: Any, how: str) -> PinError:
    return PinError(
        f"cannot import a {type(array).__name__} by DLPack: its library exports it {how}, this one "
        f"knows DLPack {_VERSION[0]}. Copy it into a surface of gpu.surface(...) instead"
    )


def _data_type(dtype: np.dtype) -> _DataType:
    """numpy's type as DLPack's; two plain bytes are bfloat16, which numpy does not have."""
    code = _CODES.get(dtype.kind)
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None and not dtype.subdtype:
        code = _BFLOAT
    if code is None or dtype.byteorder == ">":
        raise BufferError(f"DLPack has no data type for {dtype}; view the surface as another")
    return _DataType(code, dtype.itemsize * 8, 1)


def _numpy_type(found: _DataType, action: str = "register") -> np.dtype:
    size = found.bits // 8
    if found.lanes == 1 and found.bits % 8 == 0:
        if found.code == _BFLOAT:
            # numpy has no bfloat16: as plain bytes.
            return np.dtype(f"V{size}")
        for kind, code in _CODES.items():
            if code == found.code:
                return np.dtype(f"{kind}{size}")
    raise PinError(
        f"cannot {action} a tensor of DLPack type {found.code}, {found.bits} bits, {found.lanes} "
        "lanes: numpy has no such type. View it as bytes first"
    )
