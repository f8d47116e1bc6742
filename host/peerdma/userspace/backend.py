# SPDX-License-Identifier: BSD-2-Clause
"""The backend for a board whose driver is this process: over vfio-user or the kernel's VFIO."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from ..board.backend import BoardInfo, Launching, LaunchPlan, Piece, Pinned, Transfers
from ..board.clock import Bracket
from ..board.queue_memory import QueueMemory
from ..board.transfer import Through
from ..errors import PeerdmaError, UnsupportedError
from ..memory.mailbox import MailboxPage
from ..memory.memory import Memory
from ..memory.scatter import ScatterList
from ..regs import BAR_USER, DESCRIPTOR, STREAM_WINDOW, USER, USER_BLOCK_BASE, Capability
from ..uapi import Access
from ..vfio.platform import Platform
from .frames import FrameRun
from .launch import LaunchJob, LaunchQueues, LaunchRun, Leg, no_dmabuf
from .prepared import Lazy, Prepared, Step
from .scheduler import Scheduler
from .xdma import Direction, Mapped, Mappings, Xdma

__all__ = ["UserSpaceBackend"]


def _limits(of: Callable[..., float] | None) -> tuple[float | None, float | None]:
    """What a link can carry of transfers that are not `wide`, and of those that are."""
    return (of(wide=False), of(wide=True)) if of else (None, None)


def _scatter(pieces: Sequence[Piece]) -> ScatterList:
    parts: list[ScatterList] = []
    for handle, start, stop in pieces:
        assert isinstance(handle, Mapped), "not this backend's"
        parts.append(handle.scatter.part(start, stop))
    return parts[0] if len(parts) == 1 else ScatterList.join(parts)


def _launch_job(plan: LaunchPlan) -> LaunchJob:
    copies = plan.source and plan.destination
    card = STREAM_WINDOW if copies else plan.card_address
    sides = (Direction.H2C, plan.source), (Direction.C2H, plan.destination)
    legs = [Leg(direction, _scatter(pieces), card) for direction, pieces in sides if pieces]
    if plan.record is None:
        return LaunchJob(plan.destination, legs, independent=plan.independent)
    return LaunchJob([*plan.destination, plan.record], legs, _scatter([plan.record]))


def _descriptor_ring(platform: Platform) -> tuple[np.ndarray, int]:
    """An array of DESCRIPTOR that is mapped for the board, and its bus address."""
    memory, address = platform.ring(_DESCRIPTORS * DESCRIPTOR.itemsize)
    return np.frombuffer(memory, DESCRIPTOR, _DESCRIPTORS), address


_DESCRIPTORS = 4096
#: Bytes that go into the user stream between two reports of progress.
_STREAM_STEP = 1 << 20
_BOTH = frozenset(Direction)
_ONE_WAY = {direction: frozenset({direction}) for direction in Direction}


class UserSpaceBackend:
    """See `peerdma.board.backend.Backend`.

    Parameters
    ----------
    platform : Platform
        Closed with the backend, also if that cannot be made.
    name : str
        Name of the board, as shown to users.
    timeout : float or None
        Seconds to wait for one descriptor chain; None: chosen to fit.

    Raises
    ------
    BoardNotFound, VersionMismatch
        As `Xdma`.
    """

    def __init__(
        self,
        platform: Platform,
        name: str,
        *,
        timeout: float | None = None,
    ):
        self._mappings = Mappings(platform)
        self._platform = platform
        self._function = platform.function
        with contextlib.ExitStack() as undo:
            undo.callback(self._function.close)
            self._driver = Xdma(self._function, *_descriptor_ring(platform), timeout)
            # Whoever drove the board before may have ended in the middle of a run of frames.
            self._driver.engine.channels[Direction.C2H].use_credits(False)
            self._scheduler = Scheduler(self._driver.engine, platform)
            self.transfers: Transfers = self._scheduler
            #: made for the first queue
            self._queues: LaunchQueues | None = None
            self.info: BoardInfo = self._describe(name)
            # What a link can carry is calculated once.
            extension = self._driver.extension
            link = extension.link if extension else None
            self._copy_limits = _limits(link and link.copy_limit)
            self._read_limits = _limits(link and link.read_limit)
            self._write_limits = _limits(link and link.write_limit)
            undo.pop_all()

    def pin(self, memory: Memory, access: Access) -> Mapped:
        """Maps the memory for the board's DMA, with all that the memory allows."""
        return self._mappings.pin(memory)

    def unpin(self, handle: Pinned) -> None:
        """Unmaps the memory with its last pin."""
        assert isinstance(handle, Mapped), "not this backend's"
        self._mappings.unpin(handle)

    def prepare_copy(self, source: Sequence[Piece], destination: Sequence[Piece]) -> Prepared:
        """Prepares a copy: in one pass if the board can, else through card RAM, piece by piece."""
        driver = self._driver
        sources, destinations = _scatter(source), _scatter(destination)
        limit = self._copy_limits[sources.wide or destinations.wide]
        if driver.copies:
            return self._streamed(sources, destinations, (1, 1), limit, repeats=True)
        rings, size, total = driver.rings, driver.card_ram_size, sources.nbytes

        def steps() -> Iterator[Step]:
            for start in range(0, total, size):
                stop = min(start + size, total)
                yield rings.card(Direction.H2C, sources.part(start, stop), 0, start)
                yield rings.card(Direction.C2H, destinations.part(start, stop), 0, stop)

        return Prepared(Lazy(steps), total, _BOTH, limit, Through.CARD_RAM)

    def prepare_process(self, source: Sequence[Piece], destination: Sequence[Piece]) -> Prepared:
        """Prepares a transfer through the user block."""
        extension = self._driver.extension
        assert extension, "no user block without the extension block"
        memories = _scatter(source), _scatter(destination)
        return self._streamed(*memories, extension.user_ratio, None, repeats=False)

    def _streamed(
        self,
        source: ScatterList,
        destination: ScatterList,
        ratio: tuple[int, int],
        limit: float | None,
        *,
        repeats: bool,
    ) -> Prepared:
        """A transfer that makes ratio[1] bytes of every ratio[0]; `repeats` as for `Step`."""
        rings, total = self._driver.rings, source.nbytes

        def parts() -> Iterator[Step]:
            most = _STREAM_STEP - _STREAM_STEP % ratio[0]
            for start in range(0, total, most):
                stop = min(start + most, total)
                ends = (end * ratio[1] // ratio[0] for end in (start, stop))
                pair = source.part(start, stop), destination.part(*ends)
                yield rings.stream(*pair, stop, repeats=repeats)

        steps: Iterable[Step]
        if total <= _STREAM_STEP:
            steps = (rings.stream(source, destination, repeats=repeats),)
        else:
            steps = Lazy(parts)
        return Prepared(steps, total, _BOTH, limit, Through.STREAM)

    def prepare_write(self, source: Piece, card_address: int) -> Prepared:
        """Prepares a transfer from memory to the card."""
        memory = _scatter([source])
        limit = self._read_limits[memory.wide]
        return self._card(Direction.H2C, memory, card_address, limit)

    def prepare_read(self, destination: Piece, card_address: int) -> Prepared:
        """Prepares a transfer from the card to memory."""
        memory = _scatter([destination])
        limit = self._write_limits[memory.wide]
        return self._card(Direction.C2H, memory, card_address, limit)

    def _card(
        self, direction: Direction, memory: ScatterList, card_address: int, limit: float | None
    ) -> Prepared:
        step = self._driver.rings.card(direction, memory, card_address)
        through = Through.STREAM if card_address == STREAM_WINDOW else Through.CARD_RAM
        return Prepared((step,), memory.nbytes, _ONE_WAY[direction], limit, through)

    def fill(
        self, frames: Sequence[Sequence[Piece]], *, overwrite: bool, timeout: float | None
    ) -> FrameRun:
        """Begins to fill frames from the user stream."""
        run = self._scheduler.frames = FrameRun(
            self._driver,
            [_scatter(pieces) for pieces in frames],
            overwrite=overwrite,
            timeout=timeout,
        )
        return run

    def queue(self, plans: Sequence[LaunchPlan], memory: QueueMemory) -> Launching:
        """Opens a launch queue."""
        if self._queues is None:
            self._queues = LaunchQueues(self._driver, self._platform, self._mappings)
        return LaunchRun(self._queues, [_launch_job(plan) for plan in plans], memory)

    def user_register(self, offset: int, value: int | None) -> int:
        """Writes a register of the user block unless `value` is None; returns what it reads."""
        return self._register(USER_BLOCK_BASE + offset, value)

    def read_clock(self) -> Bracket | None:
        """Reads the cycle counter of the extension block."""
        before = time.monotonic_ns()
        cycles = self._driver.engine.clock()
        after = time.monotonic_ns()
        return None if cycles is None else Bracket(before, cycles, after)

    def mailbox(self) -> MailboxPage:
        """Maps the page, if the gateware has it."""
        extension = self._driver.extension
        if extension is None or Capability.MAILBOX not in extension.capabilities:
            raise UnsupportedError("this board's gateware has no mailbox")
        return self._platform.mailbox()

    def export_mailbox(self) -> int:
        """Not possible: dma-bufs are made in the kernel."""
        raise no_dmabuf()

    def leds(self, value: int | None) -> int:
        """Sets the LEDs unless `value` is None; returns their state."""
        return self._register(USER.address("led"), value)

    def _register(self, offset: int, value: int | None) -> int:
        """Writes a register of the user BAR unless `value` is None; returns what it reads."""
        if value is not None:
            self._function.device.write32(BAR_USER[0], offset, value)
        return self._function.device.read32(BAR_USER[0], offset)

    def close(self) -> None:
        """Ends the connection to the board, and all mappings with it."""
        self._mappings.clear()
        with contextlib.suppress(PeerdmaError):
            # Nothing can be cleaned up on a board that is gone or hangs.
            self._function.close()

    # Information -----------------------------------------------------------------------------

    def _describe(self, name: str) -> BoardInfo:
        function, driver = self._function, self._driver
        return BoardInfo(
            name=name,
            simulated=self._platform.simulated or self._slow(),
            identity=function.identity,
            interrupts=function.interrupt.name,
            channels=driver.engine.channel_counts,
            card_ram_size=driver.card_ram_size,
            extension=driver.extension,
            receives=driver.receives,
        )

    def _slow(self) -> bool:
        """Whether the board runs slower than real time, as simulations do."""
        extension = self._driver.extension
        return extension is not None and extension.time_scale > 1
