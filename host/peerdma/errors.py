# SPDX-License-Identifier: BSD-2-Clause
"""One tree of errors. Each message says what failed, why, and what to do next.

Each class has the exit code that `peerdma` and `host/demo.py` end with when it is the cause. Those
that report what the system or a device answered are an `OSError` too, and `Timeout` is a
`TimeoutError`. All of them can be pickled, so that they reach the caller from another process.
"""

from __future__ import annotations

import copyreg
import shlex
import sys
from typing import Any

__all__ = [
    "CANCELLED",
    "BoardLost",
    "BoardNotFound",
    "Cancelled",
    "CudaError",
    "GpuNotFound",
    "PeerdmaError",
    "PinError",
    "ProtocolError",
    "Timeout",
    "TransferError",
    "UnsupportedError",
    "VerifyError",
    "VersionMismatch",
    "exit_codes",
    "install_command",
]


class PeerdmaError(Exception):
    """Base of all errors of this library.

    Attributes
    ----------
    errno : int or None
        The system's error number, where one was the cause.
    """

    exit_code = 1
    cause = "any other error"

    def __init__(self, message: str, *, errno: int | None = None):
        super().__init__(message)
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is otherwise unpickled by calling its class with `args`, the message alone.
        state = {**vars(self), "args": self.args, "errno": self.errno}
        return copyreg.__newobj__, (type(self),), state  # type: ignore[attr-defined]


class BoardNotFound(PeerdmaError, OSError):
    """There is no board in the given place, or it did not start."""

    exit_code = 3
    cause = "no board, or it did not start"


class BoardLost(PeerdmaError, OSError):
    """The board went away while it was in use."""

    exit_code = 4
    cause = "the board went away"


class Timeout(PeerdmaError, TimeoutError):
    """The board is there, but did not answer or finish in time."""

    exit_code = 5
    cause = "the board did not answer in time"


class TransferError(PeerdmaError, OSError):
    """A DMA transfer failed, or its arguments were invalid.

    Attributes
    ----------
    status : int
        The channel's status register, see `peerdma.regs.Status`; 0 if no DMA was started, or the
        board reported none: it does not learn of writes that reached no memory.
    kind : peerdma.regs.ErrorKind or None
        What the board captured as the first error.
    address : int or None
        The bus address (or card address, for a decode error) that failed.
    """

    exit_code = 6
    cause = "a transfer failed"

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        kind: int | None = None,
        address: int | None = None,
        errno: int | None = None,
    ):
        super().__init__(message, errno=errno)
        self.status = status
        self.kind = kind
        self.address = address


class Cancelled(TransferError):
    """A transfer was cancelled before its end."""


#: What an error says of a transfer that its owner cancelled.
CANCELLED = "the transfer was cancelled before its end. The content of the destination is undefined"


class VerifyError(PeerdmaError):
    """Memory does not have the expected content.

    Attributes
    ----------
    offset : int
        Byte offset of the first wrong word in the surface.
    expected, found : int
        What the word should be and what it is.
    wrong : int
        How many words are wrong.
    """

    exit_code = 7
    cause = "the data did not verify"

    def __init__(self, message: str, *, offset: int, expected: int, found: int, wrong: int):
        super().__init__(message)
        self.offset = offset
        self.expected = expected
        self.found = found
        self.wrong = wrong


class VersionMismatch(PeerdmaError, OSError):
    """Board and library are of incompatible versions."""

    exit_code = 8
    cause = "board and library versions are incompatible"


class PinError(PeerdmaError, OSError):
    """Memory cannot be pinned, or is not pinned where it must be."""

    exit_code = 9
    cause = "memory could not be pinned"


class UnsupportedError(PeerdmaError, OSError):
    """This version, board or GPU does not support the operation."""

    exit_code = 10
    cause = "not in this version, or not on this board or GPU"


class ProtocolError(PeerdmaError, OSError):
    """The other side of the socket answered with an error, or violated the protocol."""

    exit_code = 11
    cause = "the board refused a request or broke the protocol"


class GpuNotFound(PeerdmaError):
    """There is no CUDA GPU, or what is needed to use it is not installed.

    Attributes
    ----------
    found : str
        What there is instead.
    """

    exit_code = 12
    cause = "no CUDA GPU, or what it needs is not installed"

    def __init__(self, action: str, found: str, step: str):
        super().__init__(f"cannot {action}: {found}. {step}")
        self.found = found


class CudaError(PeerdmaError):
    """CUDA refused or failed.

    Attributes
    ----------
    name : str
        The error's name in CUDA, such as ``CUDA_ERROR_OUT_OF_MEMORY``.
    found, step : str
        What CUDA says, and what to do.
    """

    exit_code = 13
    cause = "CUDA failed"

    def __init__(self, action: str, found: str, step: str, *, name: str):
        super().__init__(f"cannot {action}: {found}. {step}")
        self.name = name
        self.found = found
        self.step = step


def exit_codes() -> dict[int, str]:
    """Every exit code of the commands and what causes it."""
    codes = {0: "success", 2: "wrong arguments", 130: "interrupted"}
    for kind in (PeerdmaError, *PeerdmaError.__subclasses__()):
        codes[kind.exit_code] = kind.cause
    return dict(sorted(codes.items()))


def install_command(extra: str) -> str:
    """What to type to install an extra of this package.

    For the environment that this program runs in, or a new one where that is the system's, into
    which pip is not to install.
    """
    if sys.prefix != sys.base_prefix:
        return f"in a checkout, `{shlex.quote(sys.executable)} -m pip install '.[{extra}]'`"
    return (
        f"in a checkout, `python3 -m venv ~/peerdma && ~/peerdma/bin/pip install '.[{extra}]'`, "
        "and use the Python of that environment"
    )
