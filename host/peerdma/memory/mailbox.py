# SPDX-License-Identifier: BSD-2-Clause
"""The mailbox: registers that a GPU kernel writes as data arrives, timestamped by the board.

>>> with peerdma.open(arguments=["--mailbox-page"]) as board, peerdma.gpu() as gpu:
...     with board.mailbox() as mailbox, gpu.map_mailbox(mailbox) as page:
...         launch(kernel, page.register("first"))  # a kernel of yours stores a 32-bit word there
...         print(mailbox.read().first)
"""

from __future__ import annotations

import abc
import ctypes
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ..arguments import integer
from ..errors import PeerdmaError
from ..process import OneProcess, forked, here, own, watched
from ..regs import MAILBOX

__all__ = [
    "DoorbellPage",
    "Mailbox",
    "MailboxMap",
    "MailboxPage",
    "Stamp",
    "Stamps",
    "Watch",
    "require_token",
]

_Watch = TypeVar("_Watch", bound="Watch")


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


class DoorbellPage(NamedTuple):
    """The page of a launch queue's doorbell, mapped into this process until somebody closes it.

    A store to it can raise SIGBUS once the queue has ended.
    """

    memory: mmap.mmap
    #: whether it is a board's registers; False: memory, which a simulated board polls
    io: bool


class Stamp(NamedTuple):
    """A register of the mailbox: what was written, and at which cycle of the board's clock."""

    value: int
    cycle: int


class Stamps(NamedTuple):
    """The mailbox's registers. What they mean is up to the kernel that writes them.

    `peerdma.testing.watch` writes them when it sees the first word of a pattern, when it sees the
    last, and when it has checked all of them.
    """

    first: Stamp
    last: Stamp
    done: Stamp


class Mailbox(OneProcess):
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
        self.closed: bool = False
        self.address: int = ctypes.addressof(ctypes.c_char.from_buffer(page.memory))
        self._in_use = False
        self._process = here()
        watched(self)

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> Stamps:
        """The registers' values. Includes every write of a GPU that finished before the call."""
        self.require_open()
        return Stamps(*(self._stamp(name) for name in Stamps._fields))

    def write(self, name: str, token: int) -> None:
        """Writes a register from the CPU; the board stamps it as a kernel's write.

        Parameters
        ----------
        name : str
            first, last or done.
        token : int
            1 to 2**32 - 1.
        """
        require_token(token)
        ctypes.c_uint32.from_address(self.register(name)).value = token

    def register(self, name: str) -> int:
        """Virtual address of the register `name`: first, last or done."""
        self.require_open()
        return self.address + _offset(name)

    def acquire(self) -> None:
        """Reserves the registers for one user until `release`; PeerdmaError if it has another."""
        self.require_open()
        if self._in_use:
            raise PeerdmaError("another map or watch uses the mailbox; close that one first")
        self._in_use = True

    def release(self) -> None:
        """Undoes `acquire`."""
        self._in_use = False

    def require_open(self) -> None:
        """PeerdmaError if the mailbox is closed, or was opened by another process."""
        if self._process != here():
            raise PeerdmaError(forked())
        if self.closed:
            raise PeerdmaError("the mailbox is closed; call board.mailbox() again")

    def close(self) -> None:
        """Unmaps the page; PeerdmaError while it is in use. Closing again does nothing."""
        if self._process != here():
            return
        if self._in_use:
            raise PeerdmaError("cannot close a mailbox that a map or watch uses; close that first")
        if not self.closed:
            self.closed = True
            self.page.memory.close()

    def disown(self) -> None:
        """Unmaps a child's copy of the page, which would keep the board's node open."""
        mmap.mmap.close(self.page.memory)

    def _stamp(self, name: str) -> Stamp:
        """A register with its time, both of one write."""
        parts = [MAILBOX[part].offset for part in (name, f"{name}_time_lo", f"{name}_time_hi")]
        found: list[int] = []
        second = [self.page.read32(offset) for offset in parts]
        while found != second:
            found, second = second, [self.page.read32(offset) for offset in parts]
        value, low, high = found
        return Stamp(value, high << 32 | low)


class MailboxMap:
    """A mailbox as kernels of a GPU reach it. Use it as a context manager, or `close` it.

    Not to be built directly: use `Gpu.map_mailbox`.

    Parameters
    ----------
    address : int
        Of the page, in kernels.
    undo : callable
        Unmaps it, and releases the mailbox.

    Attributes
    ----------
    address : int
    """

    def __init__(self, address: int, undo: Callable[[], object]):
        self.address: int = address
        self._undo: Callable[[], object] | None = own(undo)

    def __enter__(self) -> MailboxMap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(self, name: str) -> int:
        """Address to which a kernel stores a 32-bit word: first, last or done.

        The board stamps each store. A word that says "the data before this is complete" takes a
        ``__threadfence_system()`` before it. Words are not 0, which an empty register of the
        simulated board's page is.
        """
        if self._undo is None:
            raise PeerdmaError("the map is closed; call gpu.map_mailbox(...) again")
        return self.address + _offset(name)

    def close(self) -> None:
        """Unmaps the page; kernels that use it have ended by then. Closing again does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()


class Watch(abc.ABC):
    """A GPU watching a surface for a pattern. Use it as a context manager, or `close` it.

    Not to be built directly: use `peerdma.testing.watch`.
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

    def __enter__(self: _Watch) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _offset(name: str) -> int:
    """Byte of the page at which a register is."""
    if name not in Stamps._fields:
        names = ", ".join(Stamps._fields)
        raise ValueError(f"a mailbox has the registers {names}, not {name!r}")
    return MAILBOX[name].offset


def require_token(token: int) -> None:
    """ValueError unless it is a number that a mailbox can tell from an empty register."""
    if not 0 < integer(token, "a token") < 1 << 32:
        raise ValueError(f"a token is 1 to {(1 << 32) - 1}, not {token}")
