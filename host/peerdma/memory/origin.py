# SPDX-License-Identifier: BSD-2-Clause
"""Whether the bytes of an array are still where they were when it was pinned or registered.

Libraries take memory from arrays that live on: PyTorch by ``resize_``, ``set_`` or ``.data =``, and
sharded training frees parameters so; numpy by ``resize``. Nothing tells whoever has the address.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import PinError
from .external import ExternalArray, describe

__all__ = ["Origin", "Part"]

#: Where the address of an array's bytes is in the object: the first member after Python's own.
_DATA = object.__basicsize__


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

    __slots__ = ("_action", "_expected", "_foreign", "_identity", "_parts", "_where", "produced")

    def __init__(
        self,
        given: Any,
        array: ExternalArray,
        parts: Sequence[Part] = (),
        identity: Callable[[int], int] | None = None,
    ):
        self._parts = parts
        self._identity = identity
        self._foreign = not isinstance(given, np.ndarray)
        self._where = _follow(given, array)
        self._expected = self._where()
        self.produced: int = array.address if array.on_gpu else 0
        self._action = f"{array.nbytes} bytes at {array.address:#x}"

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
        return PinError(
            f"cannot use {self._action}: the array has moved since it was pinned, prepared or "
            f"registered: {why}. Nothing was transferred. Prepare the plan, pin or register the "
            "array again, as it is now, and keep its memory until the end: resize_, set_ and "
            "`.data =` of PyTorch and resize of numpy take it away"
        )


def _follow(given: Any, array: ExternalArray) -> Callable[[], Any]:
    """What returns where an array is now, in under a microsecond for most: any comparable value."""
    if isinstance(given, np.ndarray):
        return _numpy(given, array.address)
    for way in (_torch, _interface):
        found = way(given, array)
        if found is not None:
            return found

    def described() -> Any:
        now = describe(given, ordered=False)
        return now.address, now.nbytes

    return described


def _numpy(array: np.ndarray, address: int) -> Callable[[], Any]:
    field = ctypes.c_void_p.from_address(id(array) + _DATA)
    if (field.value or 0) != address:  # another layout of numpy's objects
        return lambda: (array.__array_interface__["data"][0], array.nbytes, array.strides)
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner is array:
        return lambda: (field.value, array.nbytes, array.strides)
    # A view has an address of its own, which stays when the memory is taken from its base.
    root = ctypes.c_void_p.from_address(id(owner) + _DATA)
    return lambda: (field.value, array.nbytes, array.strides, root.value, owner.nbytes)


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
