# SPDX-License-Identifier: BSD-2-Clause
"""What a driver in user space gets from its platform: a function, memory for DMA, the mailbox."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..memory.mailbox import DoorbellPage, MailboxPage
from ..memory.memory import DataPath, Memory
from .function import PciFunction

__all__ = ["Mapping", "Platform", "Window"]


class Window(NamedTuple):
    """Memory at bus address `address`, in a DMA window of whole pages from `base`."""

    address: int
    nbytes: int
    base: int
    size: int


class Mapping(NamedTuple):
    """Memory that is mapped: its windows, in order, and the path of the bytes.

    `provider` says why the board does not reach a GPU's memory by itself; it is empty otherwise.
    """

    windows: list[Window]
    path: DataPath
    provider: str = ""


class Platform(Protocol):
    """A board's function, reset and with bus mastering on, and what surrounds it."""

    #: whether the board can only be a simulated one
    simulated: bool

    @property
    def function(self) -> PciFunction:
        """The function; closing it ends all."""
        ...

    def notes(self, since: float) -> str:
        """What the board noted since a time of `time.monotonic`; empty if nothing is known."""
        ...

    def map(self, memory: Memory) -> Mapping:
        """Maps memory for the board's DMA.

        A window allows what the memory allows. PinError if the memory cannot be mapped; nothing of
        it is, then.
        """
        ...

    def unmap(self, windows: Sequence[Window]) -> None:
        """Undoes `map`; once it returns the board does not access the memory."""
        ...

    def ring(self, nbytes: int) -> tuple[mmap.mmap, int]:
        """Memory that driver and board share, mapped until the function is closed; its bus address.

        It is for descriptors and records of frames. The address is a multiple of a page.
        """
        ...

    def mailbox(self) -> MailboxPage:
        """Maps the mailbox page of a board that has one; UnsupportedError if it cannot be."""
        ...

    def doorbell(self, queue: int) -> DoorbellPage | str:
        """Maps the page of a launch queue's doorbell, or says why it cannot be mapped."""
        ...
