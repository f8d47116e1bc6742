# SPDX-License-Identifier: BSD-2-Clause
"""A board behind the kernel driver: the same as any other, by the driver's requests."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..board.backend import BoardInfo, Extension, Moved, Piece, Progress
from ..board.link import Link
from ..board.transfer import Through
from ..errors import (
    BoardLost,
    PeerdmaError,
    PinError,
    Timeout,
    TransferError,
    UnsupportedError,
    VersionMismatch,
)
from ..memory.mailbox import MailboxPage
from ..memory.memory import DmaBufMemory, Memory, Path
from ..regs import EXTENSION_VERSION, Capability
from ..uapi import (
    Access,
    Cancel,
    Event,
    Feature,
    Interrupts,
    Ioctl,
    MapFlag,
    MapInfo,
    Op,
    PinCuda,
    PinDmabuf,
    PinPages,
    Placement,
    Query,
    Reason,
    Submit,
    UnpinCuda,
)
from .node import KernelNode

__all__ = ["KernelBackend", "open_node"]

#: Bytes of one job: progress is reported, and Ctrl-C acted on, between jobs.
_JOB_BYTES = 64 << 20
#: Seconds beyond what a transfer should take, and bytes per second that any board reaches, times
#: its time scale. The driver's own watchdog ends jobs long before.
_PATIENCE, _SLOWEST = 60.0, 100e6
#: The link's read completion boundary, which the driver does not tell, hardly matters to limits.
_BOUNDARY = 64
_PATHS = {
    Placement.HOST: Path.HOST_MEMORY,
    Placement.PEER: Path.PEER_TO_PEER,
    Placement.MIXED: Path.HOST_MEMORY,
}


@dataclass(frozen=True)
class _Pinned:
    """Memory that the driver pinned; handle 0 if there are no bytes."""

    handle: int
    path: Path


class _Job(NamedTuple):
    """What one job moves: (handle, first byte) of either side, card addresses with handle 0."""

    source: tuple[int, int]
    destination: tuple[int, int]
    length: int


class KernelBackend:
    """See `peerdma.board.backend.Backend`.

    Parameters
    ----------
    node : KernelNode
        The board's; closed with the backend.
    timeout : float or None
        Seconds to wait for one transfer; None: chosen to fit.
    """

    def __init__(self, node: KernelNode, *, timeout: float | None = None):
        self._node = node
        self._timeout = timeout
        self._closed = False
        info = node.info()
        self._features = Feature(info.features)
        self._time_scale = info.time_scale
        self._info = _describe(node.path, info)
        streams = Feature.STREAM_COPY in self._features
        self._copies_through = Through.STREAM if streams else Through.CARD_RAM

    @property
    def info(self) -> BoardInfo:
        """What is known about the board."""
        return self._info

    # Pins ------------------------------------------------------------------------------------

    def pin(self, memory: Memory, access: Access) -> _Pinned:
        """Pins the memory: a GPU's as dma-buf where it can be, else by its CUDA address."""
        if not memory.nbytes:
            return _Pinned(0, memory.path)
        handle = (self._pin_gpu if memory.on_gpu else self._pin_pages)(memory, access)
        try:
            query = Query(handle=handle)
            self._node.request(Ioctl.QUERY, query, "where pinned memory is")
        except BaseException:
            self._unpin(handle)
            raise
        return _Pinned(handle, _PATHS[Placement(query.placement)])

    def path(self, handle: _Pinned) -> Path:
        """The path of the bytes, as the driver reports it."""
        return handle.path

    def unpin(self, handle: _Pinned) -> None:
        """Takes back one `pin`; jobs that use it have ended when this returns."""
        if handle.handle:
            with contextlib.suppress(BoardLost):
                self._unpin(handle.handle)

    def _pin_pages(self, memory: Memory, access: Access) -> int:
        pin = PinPages(address=memory.address, length=memory.nbytes, access=access)
        asked = f"{memory.nbytes} bytes of host memory at {memory.address:#x} to be pinned"
        self._node.request(Ioctl.PIN_PAGES, pin, asked)
        return pin.handle

    def _pin_gpu(self, memory: Memory, access: Access) -> int:
        if Feature.DMABUF in self._features and isinstance(memory, DmaBufMemory):
            try:
                return self._pin_dmabuf(memory, access)
            except UnsupportedError:
                # Of this memory, or to this board; the GPU's own driver may still pin it.
                if Feature.CUDA not in self._features:
                    raise
        pin = PinCuda(va=memory.address, size=memory.nbytes)
        asked = f"{memory.nbytes} bytes of GPU memory at {memory.address:#x} to be pinned"
        self._node.request(Ioctl.PIN_CUDA, pin, asked)
        return pin.handle

    def _pin_dmabuf(self, memory: DmaBufMemory, access: Access) -> int:
        with memory.dmabuf() as exported:
            pin = PinDmabuf(
                fd=exported.fd,
                access=access,
                offset=exported.offset,
                length=exported.nbytes,
            )
            asked = f"{exported.nbytes} bytes of GPU memory to be pinned as a dma-buf"
            self._node.request(Ioctl.PIN_DMABUF, pin, asked)
        return pin.handle

    def _unpin(self, handle: int) -> None:
        self._node.request(Ioctl.UNPIN_CUDA, UnpinCuda(handle), "memory to be unpinned")

    # Transfers -------------------------------------------------------------------------------

    def copy(
        self, source: Sequence[Piece], destination: Sequence[Piece], progress: Progress | None
    ) -> Moved:
        """Copies memory to memory, in as many jobs as the two sides' pieces make."""
        total = sum(piece.stop - piece.start for piece in source)
        jobs = (_request(Op.COPY, job) for job in _pairs(source, destination))
        cycles = self._run(jobs, self._seconds(total), total, progress)
        return Moved(cycles, self._copy_limit(), self._copies_through)

    def prepare_copy(
        self, source: Sequence[Piece], destination: Sequence[Piece]
    ) -> Callable[[], Moved] | None:
        """The same, with its requests made out once; None if they are many."""
        total = sum(piece.stop - piece.start for piece in source)
        if total > _JOB_BYTES:
            return None
        jobs = [_request(Op.COPY, job) for job in _pairs(source, destination)]
        seconds, limit = self._seconds(total), self._copy_limit()
        return lambda: Moved(self._run(jobs, seconds, total, None), limit, self._copies_through)

    def _copy_limit(self) -> float | None:
        """Not found out before there is a copy: a board that does not answer has no link."""
        link = self._link()
        return link.copy_limit(wide=False) if link else None

    def write(self, source: Piece, card_address: int) -> Moved:
        """Copies memory to the card."""
        length, link = source.stop - source.start, self._link()
        job = _Job((source.handle.handle, source.start), (0, card_address), length)
        cycles = self._run([_request(Op.H2C, job)], self._seconds(length), length, None)
        return Moved(cycles, link.read_limit(wide=False) if link else None)

    def read(self, destination: Piece, card_address: int) -> Moved:
        """Copies from the card to memory."""
        length, link = destination.stop - destination.start, self._link()
        job = _Job((0, card_address), (destination.handle.handle, destination.start), length)
        cycles = self._run([_request(Op.C2H, job)], self._seconds(length), length, None)
        return Moved(cycles, link.write_limit(wide=False) if link else None)

    def _seconds(self, total: int) -> float:
        """How long to wait for the end of so many bytes."""
        return self._timeout or _PATIENCE + total * self._time_scale / _SLOWEST

    def _run(
        self, jobs: Iterable[Submit], seconds: float, total: int, progress: Progress | None
    ) -> int:
        """Does all jobs and returns their cycles; when it raises, none is under way any more."""
        deadline = time.monotonic() + seconds
        under_way: set[int] = set()
        cycles = done = 0
        left = iter(jobs)
        try:
            job = next(left, None)
            while job or under_way:
                if job and self._submit(job, under_way):
                    job = next(left, None)
                    continue
                for event in self._events(under_way, deadline):
                    if event.result:
                        raise _failure(event)
                    cycles += event.cycles
                    done += event.bytes
                    if progress:
                        progress(done, total)
        except BaseException:
            self._abort(under_way)
            raise
        return cycles

    def _submit(self, submit: Submit, under_way: set[int]) -> bool:
        """Starts a job; False if others have to end before."""
        submit.job = 0  # the driver's answer to the request before, if it was made before
        try:
            self._node.request(Ioctl.SUBMIT, submit, "{0.length} bytes to be moved")
        except PeerdmaError as error:
            if error.errno == errno.EAGAIN and under_way:
                return False
            raise
        under_way.add(submit.job)
        return True

    def _events(self, under_way: set[int], deadline: float) -> list[Event]:
        events = self._node.wait(deadline - time.monotonic())
        if not events:
            raise Timeout(
                f"{len(under_way)} jobs of the board at {self._node.path} did not end in time; "
                "they were cancelled. The kernel's log may say why (dmesg)"
            )
        ours = [event for event in events if event.job in under_way]
        for event in ours:
            under_way.discard(event.job)
        return ours

    def _abort(self, under_way: set[int]) -> None:
        """Cancels the jobs under way and waits for their end, a wait that the driver bounds."""
        for job in under_way:
            # It may have ended meanwhile.
            with contextlib.suppress(PeerdmaError):
                self._node.request(Ioctl.CANCEL, Cancel(job=job), "a job to be cancelled")
        deadline = time.monotonic() + _PATIENCE
        with contextlib.suppress(PeerdmaError):
            while under_way:
                self._events(under_way, deadline)

    # The rest --------------------------------------------------------------------------------

    def leds(self, value: int | None) -> int:
        """Sets the LEDs; the driver cannot read their state."""
        if value is None:
            raise UnsupportedError(
                "asked which LEDs are lit: the kernel driver can only set them. Give a value"
            )
        self._node.request(Ioctl.LED, value, "LEDs to be set")
        return value

    def mailbox(self) -> MailboxPage:
        """The mailbox page of the board itself."""
        if Feature.MAILBOX not in self._features:
            raise UnsupportedError("asked for the mailbox: this board's gateware has none")
        place = MapInfo(flags=MapFlag.MAILBOX)
        self._node.request(Ioctl.MAP_INFO, place, "the mailbox page")
        memory = self._node.map(place.offset, place.length)

        def read32(register: int) -> int:
            return ctypes.c_uint32.from_buffer(memory, register).value

        return MailboxPage(memory, True, read32)

    def close(self) -> None:
        """Closes the node, and all pins with it."""
        if not self._closed:
            self._closed = True
            self._node.close()

    def _link(self) -> Link | None:
        return self._info.extension.link if self._info.extension else None


def open_node(path: str, timeout: float | None) -> KernelBackend:
    """The board at a device node."""
    node = KernelNode(path)
    try:
        return KernelBackend(node, timeout=timeout)
    except BaseException:
        node.close()
        raise


def _describe(path: str, info) -> BoardInfo:
    extension = None
    if info.board_version:
        version = (info.board_version >> 16, info.board_version & 0xFFFF)
        if version[0] != EXTENSION_VERSION[0]:
            raise VersionMismatch(
                f"the board at {path} has register map {version[0]}.{version[1]}, this library "
                f"knows {EXTENSION_VERSION[0]}.{EXTENSION_VERSION[1]}. Install a library of the "
                "gateware's release"
            )
        extension = Extension(
            version=version,
            capabilities=Capability(info.capabilities),
            card_ram_size=info.card_ram_size,
            link=Link(
                info.link_speed,
                info.link_width,
                info.max_payload,
                info.max_read_request,
                _BOUNDARY,
            ),
            clock_khz=info.clock_khz,
            time_scale=info.time_scale,
        )
    return BoardInfo(
        name=f"board {info.index} at {info.bus_id.decode()}",
        simulated=info.time_scale > 1,
        identity=(info.vendor, info.device, info.subsystem_vendor, info.subsystem_device),
        interrupts=Interrupts(info.interrupts).name,
        channels=(info.h2c_channels, info.c2h_channels),
        card_ram_size=info.card_ram_size,
        extension=extension,
    )


def _request(op: Op, job: _Job) -> Submit:
    """The request for a job."""
    return Submit(
        op=op,
        src_handle=job.source[0],
        dst_handle=job.destination[0],
        src_offset=job.source[1],
        dst_offset=job.destination[1],
        length=job.length,
    )


def _pairs(source: Sequence[Piece], destination: Sequence[Piece]) -> Iterator[_Job]:
    """The jobs of a copy whose sides are divided differently."""
    targets = iter(destination)
    handle, at, stop = 0, 0, 0
    for piece in source:
        start = piece.start
        while start < piece.stop:
            while at == stop:
                target = next(targets)
                handle, at, stop = target.handle.handle, target.start, target.stop
            length = min(piece.stop - start, stop - at, _JOB_BYTES)
            yield _Job((piece.handle.handle, start), (handle, at), length)
            start += length
            at += length


def _failure(event: Event) -> PeerdmaError:
    """The error for a job that did not succeed."""
    number = -event.result
    reason = Reason(event.reason)
    if reason is Reason.LOST:
        return BoardLost("the board went away during a transfer. Open it again", errno=number)
    if reason is Reason.TIMEOUT:
        return Timeout(
            "the board did not finish a transfer in time; it was stopped. Try again; `peerdma "
            "doctor` tests the way to the memory",
            errno=number,
        )
    if reason in (Reason.REVOKED, Reason.UNPINNED):
        return PinError(
            "pinned memory was freed, moved or unpinned during a transfer. Keep surfaces open "
            "until transfers end, and pin them again",
            errno=number,
        )
    what = {
        Reason.ENGINE: f"the board reported an error, status {event.status:#x}, at address "
        f"{event.address:#x}",
        Reason.RESET: "the board was reset or suspended",
    }.get(reason, f"it was cancelled ({reason.name})")
    return TransferError(
        f"a transfer failed after {event.bytes} bytes: {what}. What the destination holds is not "
        "known; `peerdma doctor` tests the way to the memory",
        status=event.status,
        address=event.address or None,
        errno=number,
    )
