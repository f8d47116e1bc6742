# SPDX-License-Identifier: BSD-2-Clause
"""Host memory that board and driver share: descriptors, which it reads, and records of frames."""

from __future__ import annotations

import numpy as np

from ..regs import DESCRIPTOR, FRAME_RECORD
from ..vfio.platform import Platform
from .frames import Records

__all__ = ["SharedMemory"]

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

    def __init__(self, platform: Platform):
        start = _DESCRIPTORS * DESCRIPTOR.itemsize
        memory, address = platform.ring(start + _RECORDS * FRAME_RECORD.itemsize)
        self.ring: np.ndarray = np.frombuffer(memory, DESCRIPTOR, _DESCRIPTORS)
        self.ring_address: int = address
        self.records: Records = Records(
            np.frombuffer(memory, FRAME_RECORD, _RECORDS, start), address + start
        )
