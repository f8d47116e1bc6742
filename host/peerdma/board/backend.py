# SPDX-License-Identifier: BSD-2-Clause
"""The interface of backends: one class per way to reach a board, all used by `Board`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..errors import PeerdmaError, Timeout, UnsupportedError
from ..memory.mailbox import DoorbellPage, MailboxPage
from ..memory.memory import DataPath, Memory
from ..regs import Capability
from ..uapi import Access
from ..waiting import Waiter
from .clock import Bracket
from .link import Link
from .queue_memory import QueueMemory
from .transfer import Through

__all__ = [
    "Backend",
    "BoardInfo",
    "Extension",
    "Filling",
    "FrameRecord",
    "LaunchCounts",
    "LaunchPlan",
    "Launching",
    "Moved",
    "Piece",
    "Pinned",
    "Prepared",
    "Progress",
    "Transfers",
    "require_user_block",
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
    #: (H2C, C2H): as text, what this program's channel waited for when the board was opened;
    #: "nothing" if it moved, was idle, or the board does not tell
    waits_for: tuple[str, str]
    #: four characters, see `peerdma.regs`; "" if there is none, or the driver does not report it
    user_block: str = ""
    #: (bytes in, bytes out): for every so many bytes in, the user block puts so many out; a
    #: source takes 0
    user_ratio: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BoardInfo:
    """What is known about a board; `extension` is None on a plain XDMA core."""

    #: as shown to users
    name: str
    simulated: bool
    #: PCI vendor and device, subsystem vendor and subsystem
    identity: tuple[int, int, int, int]
    #: kind of interrupt in use: INTX, MSI or MSIX
    interrupts: str
    #: (H2C, C2H)
    channels: tuple[int, int]
    #: bytes
    card_ram_size: int
    extension: Extension | None
    #: (card address, bytes) of what is this program's alone, see `peerdma.open`; (0, 0): nothing
    own_card_ram: tuple[int, int] = (0, 0)
    #: whether plans of `Board.prepare_receive` can be launched, by the board and its driver
    receives: bool = False


class Pinned:
    """What a backend knows of memory that it pinned."""

    def __init__(self, path: DataPath, provider: str = "", number: int = 0):
        #: of the bytes between the memory and the board
        self.path: DataPath = path
        #: who pinned the memory, of several that can, and why not another; empty if one can
        self.provider: str = provider
        #: by which a driver in the kernel knows it; 0 if there is none, or no byte of memory
        self.number: int = number


class Prepared:
    """A transfer that a backend has prepared, to be started any number of times."""

    __slots__ = ()


class Piece(NamedTuple):
    """Bytes `start` to `stop` of pinned memory.

    A `Span` of a backend's: a backend knows its handles, but neither pins nor who owns the memory.
    """

    #: what `Backend.pin` returned
    handle: Pinned
    start: int
    stop: int


class LaunchPlan(NamedTuple):
    """What a launch queue starts: a copy, a transfer between memory and the card, or a receive."""

    #: empty: it comes from the card
    source: Sequence[Piece]
    #: empty: it goes to the card
    destination: Sequence[Piece]
    #: of the side that is the card, or USER_STREAM; not of a copy
    card_address: int
    #: Of a receive, which takes the next frame of the USER_STREAM: where its record goes. That has
    #: a descriptor of its own, also where it comes right behind the destination. Such plans are
    #: opened only if `BoardInfo.receives`.
    record: Piece | None = None
    #: of a copy: it reads nothing that another copy of the queue writes, and the other way round
    independent: bool = False


class Moved(NamedTuple):
    """A backend's report on a finished transfer."""

    #: clock cycles that the board's channels were busy
    cycles: int
    #: most bytes per second that the link can carry of such a transfer; None if not known
    limit: float | None
    #: None if the driver does not report it
    through: Through | None = None
    #: clock cycles of the board from before the first start to after the last end, or None
    elapsed: int | None = None


class Transfers(Protocol):
    """The transfers of a board: starts what its `Backend` has prepared, and says how it ended.

    One thread at a time calls these methods, and none of them waits for a transfer.

    Attributes
    ----------
    waiter : Waiter
        Waits until something has happened on the board, without the lock; any thread may wake it.
    """

    waiter: Waiter

    def start(self, prepared: Prepared, tag: object, progress: Progress | None, /) -> None:
        """Starts a transfer that was prepared, as soon as the board can take it.

        It ends in `collect`, with its tag, an object that no other transfer in progress has. Raises
        no error of the board. `progress` is called in `collect`.
        """
        ...

    def cancel(self, tag: object, /) -> bool:
        """Stops a transfer; returns before its end, which may still be that it succeeded.

        False if it never started: then it has no end either.
        """
        ...

    def deadline(self, until: float | None) -> float | None:
        """When `collect` has to be called again at the latest, or `until` if that is before.

        As `time.monotonic` counts. None if nothing is in progress and `until` is None; a time that
        is over if `collect` has something to return now.
        """
        ...

    def collect(self) -> deque[tuple[object, Moved | PeerdmaError]]:
        """The tags of transfers that have ended, and how; does not wait.

        The caller takes them off, when each has been seen to. An interrupt may keep it from that:
        a transfer may then be there twice. Whatever interrupts this method itself, the next call
        makes up for it, and is due at once.

        The board accesses no memory any more for those that failed, except after a Timeout of a
        driver that does not end what it was told to cancel.
        """
        ...


class Backend(Protocol):
    """A way to reach a board.

    One thread at a time calls these methods, and none of them waits for a transfer. Callers have
    checked ranges, overlaps, that there is something to transfer and that handles are valid.

    Attributes
    ----------
    info : BoardInfo
        What is known about the board.
    transfers : Transfers
        Those that it has prepared and that were started.
    """

    info: BoardInfo
    transfers: Transfers

    def pin(self, memory: Memory, access: Access) -> Pinned:
        """Pins memory for the board's DMA; returns a handle for `Piece` and `unpin`.

        The memory allows `access`. The mapping may give the board more than that, as callers check
        the access of each transfer.
        """
        ...

    def unpin(self, handle: Pinned) -> None:
        """Undoes one `pin`; the board does not access the memory after this."""
        ...

    def prepare_copy(self, source: Sequence[Piece], destination: Sequence[Piece]) -> Prepared:
        """Prepares a copy from memory to memory; both sides have the same length."""
        ...

    def prepare_write(self, source: Piece, card_address: int) -> Prepared:
        """Prepares a transfer from memory to card RAM, or to the USER_STREAM."""
        ...

    def prepare_read(self, destination: Piece, card_address: int) -> Prepared:
        """Prepares a transfer from card RAM, or from the USER_STREAM, to memory."""
        ...

    def prepare_process(self, source: Sequence[Piece], destination: Sequence[Piece]) -> Prepared:
        """Prepares a transfer through the user block; lengths match `user_ratio`."""
        ...

    def fill(
        self, frames: Sequence[Sequence[Piece]], *, overwrite: bool, timeout: float | None
    ) -> Filling:
        """Starts filling a ring of frames from the user stream: frame k goes to frames[k % n].

        The stream is emptied first, so that frame 0 is whole, and number 0 to the board. Where the
        board has `Capability.FRAME_RECORDS`, it makes records, and each frame's last piece is the
        place of its record.

        At a frame that is not released, see `Filling.release`, the board waits, unless `overwrite`.
        Its source then drops frames, and counts them.

        Parameters
        ----------
        frames : sequence of sequences of Piece
            Where each frame goes, piece after piece; all have the same length in bytes.
        overwrite : bool
            Whether the board writes over frames that are not released.
        timeout : float or None
            Seconds to wait for a report; None: by the frames' size and the board's time scale.

        Raises
        ------
        TransferError
            If the frames are too many, or in too many pieces.
        """
        ...

    def queue(self, plans: Sequence[LaunchPlan], memory: QueueMemory) -> Launching:
        """Opens a launch queue for plans, one at least.

        The first queue with plans that receive begins with a whole frame, number 0 to the board:
        records are switched on, then the stream is emptied.

        UnsupportedError if the board or its driver has no such queue, or none that is free.
        """
        ...

    def read_clock(self) -> Bracket | None:
        """Reads the board's cycle counter; None if it has none, or its driver does not tell."""
        ...

    def mailbox(self) -> MailboxPage:
        """Maps the mailbox page; UnsupportedError if the board offers none."""
        ...

    def export_mailbox(self) -> int:
        """The mailbox page as a dma-buf: a file descriptor; UnsupportedError if there is none."""
        ...

    def leds(self, value: int | None) -> int:
        """Sets the LEDs unless `value` is None; returns their state."""
        ...

    def user_register(self, offset: int, value: int | None) -> int:
        """Writes the user block's register at byte `offset` unless `value` is None; reads it."""
        ...

    def close(self) -> None:
        """Releases the board and all pins. Closing again does nothing."""
        ...


@dataclass(frozen=True)
class FrameRecord:
    """What the board says of a frame: see `FRAME_RECORD` in `peerdma.regs`."""

    #: counted by the board, from 0 for the first one after `Board.frames` was called
    number: int
    #: clock cycles of the board when the frame began, of which it makes `clock_khz` * 1000 a second
    cycles: int
    #: length in bytes
    nbytes: int
    #: frames that the board has dropped so far, for want of room
    dropped: int
    #: CRC-32 of its bytes, that of `zlib.crc32`
    crc: int


class Filling(Protocol):
    """A run that fills frames from the user stream; it goes on until it fails or is stopped.

    Attributes
    ----------
    ended : bool
        Whether it has failed or was stopped: the board writes nothing any more.
    reports : int
        Counts what the board reported of it; `check` and `filled` may then say something new.
    """

    ended: bool
    reports: int

    def filled(self) -> int:
        """Frames filled since the start; TransferError if not all of them arrived."""
        ...

    def release(self, count: int) -> None:
        """Lets the board write over the first `count` frames since the start, filled or not.

        Of n frames in the ring, the board then fills those up to number ``count + n - 1``. A
        smaller count than before changes nothing; nor does any with `overwrite`.
        """
        ...

    def check(self) -> None:
        """Ends the run and raises the error if the board reported that it failed."""
        ...

    def seconds(self) -> float:
        """How long to wait for a report, at most."""
        ...

    def late(self) -> Timeout:
        """Ends the run; returns the error for a board that did not report in its time."""
        ...

    def stop(self) -> None:
        """Ends the run; the board writes nothing any more."""
        ...


class LaunchCounts(NamedTuple):
    """What a board counts of its launch queues, see docs/queue.md."""

    #: doorbells that were ignored, of all queues together; stays at 255
    ignored: int
    #: its free-running clock now, in cycles; None if it has none, or its driver does not report it
    cycles: int | None


class Launching(Protocol):
    """A launch queue at work, whose memory was started: see `QueueMemory.start`.

    Attributes
    ----------
    slots : list of int
        That of each plan.
    generation : int
    page : DoorbellPage or str
        The page of its doorbell, which the caller closes; or why it has none.
    reports : bool
        Its end comes as those of transfers do, see `Transfers`. Otherwise `check` has to be called
        now and then.
    """

    slots: list[int]
    generation: int
    page: DoorbellPage | str
    reports: bool

    def check(self) -> None:
        """Looks whether a ticket has failed, or the board has ended the queue; ends it then."""
        ...

    def counts(self) -> LaunchCounts:
        """What the board counts."""
        ...

    def export(self) -> int:
        """The page of its doorbell as a dma-buf: a file descriptor; else UnsupportedError."""
        ...

    def resume(self) -> None:
        """Has tickets started again after one that failed."""
        ...

    def invalidate(self, index: int) -> None:
        """The board does not use the memory of a plan any more when this returns.

        A ticket of it at work may end by itself for a while; after that the queue ends.
        """
        ...

    def close(self) -> None:
        """Ends the queue. Every ticket has a record, and the board does not use its memory."""
        ...


def require_user_block(backend: Backend) -> Extension:
    """The board's extension block; UnsupportedError if the board has no user block."""
    extension = backend.info.extension
    if extension is None or Capability.STREAM not in extension.capabilities:
        raise UnsupportedError("this board has no user block; build its gateware with --user")
    return extension
