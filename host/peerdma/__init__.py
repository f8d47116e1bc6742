# SPDX-License-Identifier: BSD-2-Clause
"""FPGA-to-GPU DMA over PCIe, without detours.

`peerdma.testing` has more for tests of transfers.

>>> import peerdma
>>> with peerdma.open() as board:
...     gpu = peerdma.gpu()
...     src, dst = gpu.surface((1024, 1024), "u4"), gpu.surface((1024, 1024), "u4")
...     src.fill(seed=1)
...     with board.pin(src) as s, board.pin(dst) as d:
...         transfer = board.copy(s, d)
...     gpu.verify(dst, seed=1)
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from .board.backend import BoardInfo, FrameRecord
from .board.board import Board
from .board.clock import ClockRate, FrameTime
from .board.job import Job
from .board.pin import Pin, Span
from .board.plan import USER_STREAM, Plan
from .board.queue import Queue, QueueStats, include_dir
from .board.queue_memory import DeviceQueue
from .board.streaming import Frame, Frames
from .board.transfer import Paths, Through, Transfer
from .deprecated import deprecated
from .errors import (
    BoardLost,
    BoardNotFound,
    Cancelled,
    CudaError,
    GpuNotFound,
    PeerdmaError,
    PinError,
    ProtocolError,
    Timeout,
    TransferError,
    UnsupportedError,
    VerifyError,
    VersionMismatch,
)
from .gpus import gpu
from .memory.dmabuf import DmaBuf
from .memory.mailbox import Mailbox, MailboxMap, Stamp, Stamps, Watch
from .memory.memory import DataPath
from .memory.surface import Gpu, Surface
from .opening import open_board as open
from .uapi import Access

#: pyproject.toml takes it from here. DKMS needs a copy, in driver/dkms.conf: tests compare them.
__version__ = "0.2.0"

__all__ = [
    "USER_STREAM",
    "Access",
    "Board",
    "BoardInfo",
    "BoardLost",
    "BoardNotFound",
    "Cancelled",
    "ClockRate",
    "CudaError",
    "DataPath",
    "DeviceQueue",
    "DmaBuf",
    "Frame",
    "FrameRecord",
    "FrameTime",
    "Frames",
    "Gpu",
    "GpuNotFound",
    "Job",
    "Mailbox",
    "MailboxMap",
    "Paths",
    "PeerdmaError",
    "Pin",
    "PinError",
    "Plan",
    "ProtocolError",
    "Queue",
    "QueueStats",
    "Span",
    "Stamp",
    "Stamps",
    "Surface",
    "Through",
    "Timeout",
    "Transfer",
    "TransferError",
    "UnsupportedError",
    "VerifyError",
    "VersionMismatch",
    "Watch",
    "__version__",
    "gpu",
    "include_dir",
    "open",
]


# Programs that want the log set it up; the others see nothing of it.
logging.getLogger(__name__).addHandler(logging.NullHandler())

#: Former names, and what to write instead.
_RENAMED = {
    "Path": "peerdma.DataPath",
    "PatternSource": "peerdma.testing.PatternSource",
    "Progress": "peerdma.Stamps",
    "Stream": "peerdma.Frames",
}

# For a type checker, `peerdma` would have any name with this.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        new = _RENAMED.get(name)
        if new is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        deprecated(f"peerdma.{name}", new)
        module, _, member = new.rpartition(".")
        return getattr(importlib.import_module(module), member)


def __dir__() -> list[str]:
    """The API. Importing the package also binds its folders and files, which are not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
