# SPDX-License-Identifier: BSD-2-Clause
"""FPGA-to-GPU DMA over PCIe, without detours.

>>> import peerdma
>>> with peerdma.open() as board:
...     gpu = peerdma.gpu()
...     src, dst = gpu.surface((1024, 1024), "u4"), gpu.surface((1024, 1024), "u4")
...     src.fill(seed=1)
...     with board.pin(src) as s, board.pin(dst) as d:
...         transfer = board.copy(s, d)
...     gpu.verify(dst, seed=1)
"""

from .board.backend import BoardInfo
from .board.board import Board
from .board.job import Job
from .board.pattern_source import PatternSource
from .board.pin import Pin, Span
from .board.plan import Plan
from .board.streaming import Stream
from .board.transfer import Paths, Through, Transfer
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
from .memory.mailbox import Mailbox, Progress, Stamp, Watch
from .memory.memory import Path
from .memory.surface import Gpu, Surface
from .opening import open_board as open
from .uapi import Access

#: The one place that says it; pyproject.toml takes it from here.
__version__ = "0.1.0"

__all__ = [
    "Access",
    "Board",
    "BoardInfo",
    "BoardLost",
    "BoardNotFound",
    "Cancelled",
    "CudaError",
    "Gpu",
    "GpuNotFound",
    "Job",
    "Mailbox",
    "Path",
    "Paths",
    "PatternSource",
    "PeerdmaError",
    "Pin",
    "PinError",
    "Plan",
    "Progress",
    "ProtocolError",
    "Span",
    "Stamp",
    "Stream",
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
    "open",
]


def __dir__() -> list[str]:
    """The API. Importing the package also binds its folders and files, which are not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
