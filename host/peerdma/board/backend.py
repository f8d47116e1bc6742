# SPDX-License-Identifier: BSD-2-Clause
"""What `Board` stands on: one class per way to reach a board, all with this interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..errors import UnsupportedError
from ..memory.mailbox import MailboxPage
from ..memory.memory import Memory, Path
from ..regs import Capability
from ..uapi import Access
from .link import Link
from .transfer import Through

__all__ = [
    "Backend",
    "BoardInfo",
    "Extension",
    "Filling",
    "Moved",
    "Piece",
    "Progress",
    "StreamBackend",
    "stream_backend",
]

#: Called with (bytes done, bytes in all) while a transfer runs.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Extension:
    """What the extension block reports about a board."""

    #: (major, minor) of the register map
    version: tuple[int, int]
    capabilities: Capability
    #: bytes
    card_ram_size: int
    #: as it was when the board was opened
    link: Link
    clock_khz: int
    #: how much slower than real time the board runs; 1 on hardware
    time_scale: int
    #: four characters, see `peerdma.regs`; "" if there is none, or the driver does not report it
    user_block: str = ""
    #: it makes the second number of bytes out of the first; of a source the first is 0
    user_ratio: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BoardInfo:
    """What is known about a board; `extension` is None on a plain XDMA core."""

    #: to be shown
    name: str
    simulated: bool
    #: PCI vendor and device, subsystem vendor and subsystem
    identity: tuple[int, int, int, int]
    #: how the board interrupts
    interrupts: str
    #: (H2C, C2H)
    channels: tuple[int, int]
    #: bytes
    card_ram_size: int
    extension: Extension | None


class Piece(NamedTuple):
    """Bytes `start` to `stop` of pinned memory."""

    #: what `Backend.pin` returned
    handle: Any
    start: int
    stop: int


class Moved(NamedTuple):
    """What a backend reports about a finished transfer."""

    #: clock cycles that the board's channels were busy
    cycles: int
    #: most bytes per second that the link can carry of such a transfer; None if not known
    limit: float | None
    #: None if the driver does not report it
    through: Through | None = None
    #: clock cycles of the board from before the first start to after the last end, or None
    elapsed: int | None = None


class Backend(Protocol):
    """A way to reach a board.

    Callers have checked ranges, overlaps, that there is something to move and that handles are
    live. What transfers raise is in `peerdma.errors`; when they raise nothing moves any more.
    """

    @property
    def info(self) -> BoardInfo:
        """What is known about the board."""
        ...

    def pin(self, memory: Memory, access: Access) -> Any:
        """Makes memory reachable for the board; a handle for `Piece` and `unpin`.

        The board needs no more than this access, which the memory allows. It may get more: callers
        also check each transfer.
        """
        ...

    def path(self, handle: Any) -> Path:
        """The way the bytes of pinned memory take on this board."""
        ...

    def unpin(self, handle: Any) -> None:
        """Undoes one `pin`; the board does not access the memory after this."""
        ...

    def copy(
        self, source: Sequence[Piece], destination: Sequence[Piece], progress: Progress | None
    ) -> Moved:
        """Copies memory to memory; both sides have the same length."""
        ...

    def prepare_copy(
        self, source: Sequence[Piece], destination: Sequence[Piece]
    ) -> Callable[[], Moved] | None:
        """What `copy` does with these, as often as it is called while all is pinned.

        None if that would save nothing.
        """
        ...

    def write(self, source: Piece, card_address: int) -> Moved:
        """Copies memory to the card."""
        ...

    def read(self, destination: Piece, card_address: int) -> Moved:
        """Copies from the card to memory."""
        ...

    def mailbox(self) -> MailboxPage:
        """Maps the mailbox page; UnsupportedError if the board offers none."""
        ...

    def leds(self, value: int | None) -> int:
        """Sets the LEDs unless `value` is None; returns their state."""
        ...

    def close(self) -> None:
        """Releases the board and all pins. Closing again does nothing."""
        ...


class Filling(Protocol):
    """A run that fills frames from the user stream.

    Attributes
    ----------
    ended : bool
        It is over: all is filled, or it was stopped.
    """

    ended: bool

    def filled(self) -> int:
        """Frames filled since the start; TransferError if not all of them arrived."""
        ...

    def wait(self) -> None:
        """Waits until that may have changed, or the run has ended; Timeout, TransferError."""
        ...

    def stop(self) -> None:
        """Ends the run; nothing moves any more."""
        ...


@runtime_checkable
class StreamBackend(Protocol):
    """A backend that also reaches the user block; rules as for `Backend`."""

    def process(
        self, source: Sequence[Piece], destination: Sequence[Piece], progress: Progress | None
    ) -> Moved:
        """Moves memory through the user block to memory, whose lengths are as its ratio says."""
        ...

    def fill(
        self, frames: Sequence[Piece], *, cyclic: bool, fresh: bool, timeout: float | None
    ) -> Filling:
        """Begins to fill frames from the user stream: once, or round and round if `cyclic`.

        `fresh` first drops what was in the stream. `timeout` is how many seconds to wait for a
        frame; None: chosen to fit.
        """
        ...

    def user_register(self, offset: int, value: int | None) -> int:
        """Writes the user block's register at byte `offset` unless `value` is None; reads it."""
        ...


def stream_backend(backend: Backend) -> tuple[StreamBackend, Extension]:
    """The same backend, which reaches the user block, and what the extension block says.

    Raises
    ------
    UnsupportedError
        If the board has no user block, or its driver does not reach it.
    """
    extension = backend.info.extension
    if extension is None or Capability.STREAM not in extension.capabilities:
        raise UnsupportedError(
            "asked for the board's user block; its gateware has none. Build it with --user"
        )
    if not isinstance(backend, StreamBackend):
        raise UnsupportedError(
            "asked for the board's user block; its driver does not reach that. So far the "
            "simulated board's does"
        )
    return backend, extension
