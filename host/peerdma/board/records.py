# SPDX-License-Identifier: BSD-2-Clause
"""The records of frames: memory of the host that the board writes, and a GPU of the ring reads."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import TransferError
from ..memory.memory import Memory
from ..regs import FRAME_NUMBER_VALID, FRAME_RECORD
from .backend import FrameRecord

__all__ = ["Records"]


class Records:
    """Places for records, one for each array of a ring.

    CuPy, PyTorch, Numba and kernels can read it as an array of `count` times 32 bytes in the GPU
    that the ring is in (``__cuda_array_interface__``), where that is a CUDA GPU.

    Parameters
    ----------
    count : int
    beside : iterable of Memory
        The ring.

    Attributes
    ----------
    array : numpy.ndarray of FRAME_RECORD
        The records, as the CPU reads them.
    """

    def __init__(self, count: int, beside: Iterable[Memory]):
        nbytes = count * FRAME_RECORD.itemsize
        devices: list[Any] = [getattr(each, "cuda_device", None) for each in beside]
        device = next(filter(None, devices), None)
        self._device_address = 0
        if device is None:
            # A page of its own: records have to be aligned to their size.
            pages = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        else:
            # Not imported before: it needs CUDA.
            from ..cuda.memory import allocate_host

            memory = allocate_host(device, nbytes)
            self._device_address = memory.device_address
            pages = memory.array()
        self.array: np.ndarray = pages[:nbytes].view(FRAME_RECORD)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For CuPy, PyTorch, Numba; AttributeError if the ring is in no CUDA GPU."""
        if not self._device_address:
            raise AttributeError("the ring of these records is in no CUDA GPU; see their array")
        return {
            "shape": (len(self.array), FRAME_RECORD.itemsize),
            "typestr": "|u1",
            "data": (self._device_address, False),
            "strides": None,
            "version": 3,
            "stream": None,
        }

    def read(self, frame: int, nbytes: int, overwrite: bool) -> FrameRecord | None:
        """What the board says of frame number `frame`, which is filled and has so many bytes.

        None if, with `overwrite`, a later one is in its place already. TransferError if it is no
        whole frame.
        """
        entry = self.array[frame % len(self.array)].copy()
        found, expected = int(entry["number"]), frame % FRAME_NUMBER_VALID
        ahead = (found - expected) % FRAME_NUMBER_VALID
        if found & FRAME_NUMBER_VALID and int(entry["bytes"]) == nbytes:
            if not ahead:
                cycles, dropped, crc = (int(entry[name]) for name in ("cycles", "dropped", "crc"))
                return FrameRecord(expected, cycles, nbytes, dropped, crc)
            if overwrite and not ahead % len(self.array):
                return None
        raise TransferError(
            f"frame {expected} is not {nbytes} bytes long: no record follows that many. Make "
            "arrays, or frame_bytes, as large as the source's frames, and start the source before "
            "the frames"
        )
