# SPDX-License-Identifier: BSD-2-Clause
"""DLPack: tensors handed from library to library without a copy (DLPack 1.0, unversioned form).

A tensor travels as a capsule named "dltensor", which points to a record of ours or theirs. Who
takes it renames the capsule and calls the record's deleter when done; else the capsule's own
destructor does.
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
#: The stream that tensors are taken over in: CUDA's legacy default stream, as DLPack numbers it.
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
# The destructor gets the capsule when nothing refers to it any more: by address, not as an object.
_is_dying_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer_in_dying = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

#: Records in use by others, by address: the record, its shape, and the memory's owner.
_lent: dict[int, tuple[_Managed, Any, object]] = {}


@_Deleter
def _give_back(record, lent=_lent, address_of=ctypes.addressof):
    lent.pop(address_of(record.contents), None)


@_Destructor
def _unused(capsule, lent=_lent, name=_NAME, ours=_is_dying_capsule, pointer=_pointer_in_dying):
    if ours(capsule, name):
        lent.pop(pointer(capsule, name), None)


# Other libraries free tensors as late as at the program's end, when modules are taken apart.
for _needed in (_give_back, _unused):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_needed))


def export(
    address: int, shape: tuple[int, ...], dtype: np.dtype, device: int, owner: object
) -> object:
    """A capsule for memory of CUDA device `device`; `owner` lives as long as it is in use.

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
    record = _Managed(tensor, None, _give_back)
    _lent[ctypes.addressof(record)] = record, sizes, owner
    return _new_capsule(ctypes.byref(record), _NAME, _unused)


@dataclass(frozen=True)
class Imported:
    """A tensor of another library; it lives as long as `owner`."""

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
        If it is of a data type that numpy has none for.
    """
    capsule = array.__dlpack__(stream=STREAM)
    if not _is_capsule(capsule, _NAME):
        raise PinError(f"asked for a {type(array).__name__} by DLPack: it gave no tensor")
    # The capsule is not renamed: its destructor then ends the loan, with the last reference to it.
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
            # numpy has no such number: as plain bytes.
            return np.dtype(f"V{size}")
        for kind, code in _CODES.items():
            if code == found.code:
                return np.dtype(f"{kind}{size}")
    raise PinError(
        f"asked for a tensor of DLPack type {found.code}, {found.bits} bits, {found.lanes} lanes "
        "as a surface: numpy has no such type. View it as bytes first"
    )
