# SPDX-License-Identifier: BSD-2-Clause
"""The mailbox: registers that a GPU kernel writes as data arrives, timestamped by the board.

>>> with peerdma.open(arguments=["--mailbox-page"]) as board, peerdma.gpu() as gpu:
...     with board.mailbox() as mailbox, gpu.watch(dst, mailbox, seed=1) as watch:
...         board.copy(s, d)
...         watch.wait()
...         print(mailbox.read())
"""

from __future__ import annotations

import abc
import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..arguments import integer
from ..errors import PeerdmaError
from ..regs import MAILBOX

__all__ = ["Mailbox", "MailboxPage", "Progress", "Stamp", "Watch", "require_token"]


@dataclass(frozen=True)
class MailboxPage:
    """The mailbox page, as a backend maps it.

    Attributes
    ----------
    memory : mmap.mmap
        The page of registers, mapped; stores to it become writes of the registers.
    io : bool
        Whether that is device memory, and not host memory that a simulated board polls.
    read32 : callable
        Reads the register at an offset from `regs.MAILBOX.base`.
    """

    memory: mmap.mmap
    io: bool
    read32: Callable[[int], int]


class Stamp(NamedTuple):
    """A register of the mailbox: what was written, and at which cycle of the board's clock."""

    value: int
    cycle: int


class Progress(NamedTuple):
    """When a GPU saw the first word, saw the last word, and had checked the data."""

    first: Stamp
    last: Stamp
    done: Stamp


class Mailbox:
    """A board's mailbox. Use it as a context manager, or `close` it.

    Not to be built directly: use `Board.mailbox`.

    Attributes
    ----------
    page : MailboxPage
    address : int
        Virtual address of the page.
    """

    def __init__(self, page: MailboxPage):
        self.page = page
        self.closed = False
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(page.memory))
        self._in_use = False

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_):
        self.close()

    def read(self) -> Progress:
        """The registers' values. Includes every write of a GPU that finished before the call."""
        self.require_open()
        return Progress(*(self._stamp(name) for name in Progress._fields))

    def register(self, name: str) -> int:
        """Virtual address of the register `name`."""
        self.require_open()
        return self.address + MAILBOX[name].offset

    def acquire(self) -> None:
        """Reserves the registers for a watch until `release`; PeerdmaError if another has them."""
        self.require_open()
        if self._in_use:
            raise PeerdmaError("another watch uses the mailbox; close that one first")
        self._in_use = True

    def release(self) -> None:
        """Undoes `acquire`."""
        self._in_use = False

    def require_open(self) -> None:
        """PeerdmaError if the mailbox is closed."""
        if self.closed:
            raise PeerdmaError("the mailbox is closed; call board.mailbox() again")

    def close(self) -> None:
        """Unmaps the page; PeerdmaError while a watch uses it. Closing again does nothing."""
        if self._in_use:
            raise PeerdmaError("cannot close a mailbox that a watch uses; close the watch first")
        if not self.closed:
            self.closed = True
            self.page.memory.close()

    def _stamp(self, name: str) -> Stamp:
        """A register with its time, both of one write."""
        parts = [MAILBOX[part].offset for part in (name, f"{name}_time_lo", f"{name}_time_hi")]
        found: list[int] = []
        second = [self.page.read32(offset) for offset in parts]
        while found != second:
            found, second = second, [self.page.read32(offset) for offset in parts]
        value, low, high = found
        return Stamp(value, high << 32 | low)


class Watch(abc.ABC):
    """A GPU watching a surface for a pattern. Use it as a context manager, or `close` it.

    Not to be built directly: use `Gpu.watch`.
    """

    @abc.abstractmethod
    def wait(self) -> None:
        """Waits until the GPU is done.

        Raises
        ------
        Timeout
            If the first or the last word did not arrive in the time given.
        VerifyError
            If they did, but others are wrong.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the watch at any stage. Closing again does nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def require_token(token: int) -> None:
    """ValueError unless it is a number that a mailbox can tell from an empty register."""
    if not 0 < integer(token, "a token") < 1 << 32:
        raise ValueError(f"a token is 1 to {(1 << 32) - 1}, not {token}")
