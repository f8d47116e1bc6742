# SPDX-License-Identifier: BSD-2-Clause
"""Host memory that board and driver share: descriptors, which it reads, and records of frames."""

from __future__ import annotations

import mmap
import os

import numpy as np

from ..regs import DESCRIPTOR, FRAME_RECORD
from ..vfio.client import VfioUserClient
from .frames import Records

__all__ = ["SharedMemory"]

#: Bus address of the descriptor ring, below 4 GiB, so that requests to it have short headers.
_ADDRESS = 0x1000_0000
_DESCRIPTORS = 4096
#: Behind the ring. A frame has two descriptors at least.
_RECORDS = _DESCRIPTORS // 2


class SharedMemory:
    """A descriptor ring with memory for records behind it, mapped for the board.

    Attributes
    ----------
    ring : numpy.ndarray of DESCRIPTOR
    ring_address : int
        Its bus address.
    records : Records
    """

    def __init__(self, client: VfioUserClient):
        start = _DESCRIPTORS * DESCRIPTOR.itemsize
        size = start + _RECORDS * FRAME_RECORD.itemsize
        fd = os.memfd_create("peerdma-ring", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            memory = mmap.mmap(fd, size)
            client.dma_map(_ADDRESS, size, memoryview(memory), fd=fd)
        finally:
            os.close(fd)
        self.ring: np.ndarray = np.frombuffer(memory, DESCRIPTOR, _DESCRIPTORS)
        self.ring_address: int = _ADDRESS
        self.records: Records = Records(
            np.frombuffer(memory, FRAME_RECORD, offset=start), _ADDRESS + start
        )
