# SPDX-License-Identifier: BSD-2-Clause
"""DLPack: tensors handed from library to library without a copy (DLPack 1.0, unversioned form).

A tensor is exported as a capsule named "dltensor", which points to a record of the exporter's. The
consumer renames the capsule and calls the record's deleter when done; if nobody consumed it, the
capsule's destructor does.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import PinError

__all__ = ["CPU", "CUDA", "CUDA_HOST", "CUDA_MANAGED", "STREAM", "Imported", "export", "read"]

#: Kinds of device, DLDeviceType.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
#: The stream in which imported tensors are ready: DLPack's number for CUDA's legacy default stream.
STREAM = 1

_NAME = b"dltensor"
#: DLDataTypeCode by numpy's kind; opaque bytes have none.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4


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


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (
    ("tensor", _Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
)

_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.POINTER(_Managed), ctypes.c_char_p, _Destructor
)(("PyCapsule_New", ctypes.pythonapi))
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
_exported: dict[int, tuple[_Managed, Any, object]] = {}


@_Deleter
def _release(record, exported=_exported, address_of=ctypes.addressof):
    exported.pop(address_of(record.contents), None)


@_Destructor
def _unused(
    capsule, exported=_exported, name=_NAME, ours=_is_dying_capsule, pointer=_pointer_in_dying
):
    if ours(capsule, name):
        exported.pop(pointer(capsule, name), None)


# Other libraries free tensors as late as at interpreter exit, when modules are torn down.
for _needed in (_release, _unused):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_needed))


def export(
    address: int, shape: tuple[int, ...], dtype: np.dtype, device: int, owner: object
) -> object:
    """A capsule for memory of CUDA device `device`; keeps `owner` alive while it is in use.

    Raises
    ------
    BufferError
        If DLPack has no such data type.
    """
    code = _CODES.get(dtype.kind)
    if code is None or dtype.byteorder == ">":
        raise BufferError(f"DLPack has no data type for {dtype}; view the surface as another")
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    data_type = _DataType(code, dtype.itemsize * 8, 1)
    tensor = _Tensor(address, _Device(CUDA, device), len(shape), data_type, sizes, None, 0)
    record = _Managed(tensor, None, _release)
    _exported[ctypes.addressof(record)] = record, sizes, owner
    return _new_capsule(ctypes.byref(record), _NAME, _unused)


@dataclass(frozen=True)
class Imported:
    """A tensor of another library; `owner` keeps it alive."""

    device: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype
    owner: object


def read(array: Any) -> Imported:
    """The tensor that `array` exports, ready for work in `STREAM`.

    Raises
    ------
    PinError
        If numpy does not have its data type.
    """
    capsule = array.__dlpack__(stream=STREAM)
    if not _is_capsule(capsule, _NAME):
        raise PinError(
            f"cannot import a {type(array).__name__} by DLPack: it exports no such tensor"
        )
    # Not renamed, so that the capsule's destructor calls the deleter when nothing refers to it.
    pointer = ctypes.cast(_pointer_in(capsule, _NAME), ctypes.POINTER(_Managed))
    tensor = pointer.contents.tensor
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    dtype = _numpy_type(tensor.dtype)
    address = (tensor.data or 0) + tensor.byte_offset
    return Imported(tensor.device.kind, address, shape, strides, dtype, (capsule, array))


def _numpy_type(found: _DataType) -> np.dtype:
    size = found.bits // 8
    if found.lanes == 1 and found.bits % 8 == 0:
        if found.code == _BFLOAT:
            # numpy has no bfloat16: as plain bytes.
            return np.dtype(f"V{size}")
        for kind, code in _CODES.items():
            if code == found.code:
                return np.dtype(f"{kind}{size}")
    raise PinError(
        f"cannot register a tensor of DLPack type {found.code}, {found.bits} bits, {found.lanes} "
        "lanes: numpy has no such type. View it as bytes first"
    )
