# SPDX-License-Identifier: BSD-2-Clause
"""A board's device node: the kernel driver's ioctls, with readable errors."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import select
import time
from collections import deque

from ..errors import (
    BoardLost,
    BoardNotFound,
    PeerdmaError,
    PinError,
    Timeout,
    TransferError,
    UnsupportedError,
    VersionMismatch,
)
from ..process import keep, watched
from ..uapi import UAPI_VERSION, Event, ExportDmabuf, Info, Ioctl
from ..waiting import Waiter

__all__ = ["KernelNode"]

#: What is raised for other numbers than these, if it is no TransferError.
_REFUSALS: dict[Ioctl, type[PeerdmaError]] = {
    Ioctl.PIN_CUDA: PinError,
    Ioctl.PIN_DMABUF: PinError,
    Ioctl.PIN_PAGES: PinError,
    Ioctl.CREATE_QUEUE: UnsupportedError,
    Ioctl.PREPARE: UnsupportedError,
    Ioctl.EXPORT_DMABUF: UnsupportedError,
}
_KINDS: dict[int, type[PeerdmaError]] = {
    errno.ETIMEDOUT: Timeout,
    errno.ENODEV: BoardLost,
    errno.EOPNOTSUPP: UnsupportedError,
    errno.ENOTTY: VersionMismatch,
    errno.E2BIG: VersionMismatch,
}
#: What to do, by errno, in case the driver's own message does not say.
_NEXT_STEPS = {
    errno.ENOMEM: "Use less memory, or raise the limit of locked memory (ulimit -l)",
    errno.EFAULT: "Check that the memory belongs to this process and is still allocated",
    errno.EOPNOTSUPP: "`peerdma doctor` shows which provider modules are loaded",
    errno.ENOTTY: "Install driver and library of the same release",
    errno.E2BIG: "Install driver and library of the same release",
    errno.ENODEV: "Check the board and open it again",
    errno.EBUSY: "Try again",
    errno.EACCES: "Use lower card addresses, or open the board with card RAM of its own (card_ram) "
    "or with another channel, which has a user stream of its own",
    errno.ENOSPC: "Ask for less, or close boards that were opened with card RAM of their own",
}
_QUEUES = "docs/launch.md says what launch queues need"
#: What to do if what the request is for is not supported.
_DOCUMENTS = {
    Ioctl.CREATE_QUEUE: _QUEUES,
    Ioctl.PREPARE: _QUEUES,
    Ioctl.EXPORT_DMABUF: "docs/driver.md says who gets which page of a board",
}
_EVENTS_AT_ONCE = 64
_EVENT_BYTES = ctypes.sizeof(Event)


class KernelNode(Waiter):
    """An open device node. As a `Waiter`, it waits for events of jobs, or the board's end.

    Raises
    ------
    BoardNotFound
        If there is none, or it cannot be opened.
    VersionMismatch
        If it belongs to another driver, or to one of another major version.
    """

    def __init__(self, path: str):
        self.path = path
        #: what was read, and the events in it
        self._data: deque[bytes] = deque()
        self._events: deque[Event] = deque()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise BoardNotFound(
                f"cannot open the board at {path}: {error.strerror}. {_how_to_open(error)}",
                errno=error.errno,
            ) from None
        try:
            super().__init__(self._fd)
            try:
                self._require_version()
            except BaseException:
                super().close()
                raise
        except BaseException:
            os.close(self._fd)
            raise
        watched(self)

    def close(self) -> None:
        """Closes the node: the driver stops this process's jobs and unpins its memory."""
        super().close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def disown(self) -> None:
        """Closes a child's copies: the node is its parent's until the parent closes it."""
        self.close()

    def info(self) -> Info:
        """What the driver reports about itself, the board and this file descriptor."""
        info = Info()
        self.request(Ioctl.GET_INFO, info, "query the board")
        return info

    def request(self, code: Ioctl, argument: ctypes.Structure | int, action: str) -> None:
        """Makes a request; `argument` is a structure, which the driver fills in, or a number.

        An error says "cannot `action`"; `action` may have fields of the argument for `str.format`.

        Raises
        ------
        PeerdmaError
            Of the class that fits, with the errno, if the driver refuses.
        """
        try:
            fcntl.ioctl(self._fd, code, argument)
        except OSError as error:
            raise self._failure(code, action.format(argument), error.errno or errno.EIO) from None

    def export(self, request: ExportDmabuf, action: str) -> int:
        """A page of the board as a dma-buf: a file descriptor. Raises as `request`."""
        self.request(Ioctl.EXPORT_DMABUF, request, action)
        return request.fd

    def wait_for_event(self, until: float) -> None:
        """Waits for an event, or the board's end, up to a time of `time.monotonic`.

        Another thread may be in `wait` meanwhile.
        """
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.poll(max(0.0, until - time.monotonic()) * 1000)

    def events(self) -> deque[Event]:
        """The events of jobs that have ended; whoever has seen to one takes it off.

        After an interrupt, one may come twice.

        Raises
        ------
        BoardLost
            If the board is gone and all events have been seen to.
        """
        events = self._events
        try:
            keep(self._data, os.read, self._fd, _EVENTS_AT_ONCE * _EVENT_BYTES)
        except BlockingIOError:
            pass
        except OSError as error:
            if not events:
                raise BoardLost(
                    f"the board at {self.path} is gone. Check it and open it again",
                    errno=error.errno,
                ) from None
        while self._data:
            events.extend(_events(self._data[0]))
            self._data.popleft()
        return events

    def map(self, offset: int, length: int) -> mmap.mmap:
        """Maps the board's registers, a range that a request reported as mappable."""
        try:
            return mmap.mmap(self._fd, length, offset=offset)
        except OSError as error:
            action, number = "map the board's registers", error.errno or errno.EIO
            raise self._failure(Ioctl.MAP_INFO, action, number) from None

    def _require_version(self) -> None:
        try:
            version = self.info().uapi_version
        except VersionMismatch as error:
            raise VersionMismatch(
                f"cannot use the board at {self.path}: its driver does not know this library's "
                "requests. NVIDIA's picoevb driver uses the same node: load the peerdma driver "
                "instead",
                errno=error.errno,
            ) from None
        if version >> 16 != UAPI_VERSION[0]:
            raise VersionMismatch(
                f"cannot use the board at {self.path}: its driver's interface has version "
                f"{version >> 16}.{version & 0xFFFF}, this library's {UAPI_VERSION[0]}."
                f"{UAPI_VERSION[1]}. Install driver and library of the same release"
            )

    def _failure(self, code: Ioctl, action: str, number: int) -> PeerdmaError:
        refusal = _REFUSALS.get(code, TransferError)
        kind = _KINDS.get(number, refusal)
        words = os.strerror(number)
        if code is not Ioctl.GET_INFO:
            info = Info()
            try:
                fcntl.ioctl(self._fd, Ioctl.GET_INFO, info)
            except OSError:
                pass
            else:
                if info.last_errno == number and info.last_error:
                    words = info.last_error.decode(errors="replace")
        step = _NEXT_STEPS.get(number, "The kernel's log may say more (dmesg)")
        if kind is refusal:
            step = _DOCUMENTS.get(code, step)
        return kind(f"cannot {action}: {words}. {step}", errno=number)


def _events(data: bytes) -> list[Event]:
    """Events as they were read."""
    events, at, end = [], 0, len(data)
    while at < end:
        # A newer driver's records are longer, an older one's shorter.
        size = int.from_bytes(data[at : at + 4], "little")
        if size >= _EVENT_BYTES <= end - at:
            event = Event.from_buffer_copy(data, at)
        else:
            event = Event()
            ctypes.memmove(ctypes.byref(event), data[at:], min(size, end - at))
        events.append(event)
        at += size
    return events


def _how_to_open(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return "Add this user to the group that the driver's udev rule gives the board to"
    if error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV):
        return "Check that the board is there (lspci) and the driver loaded (lsmod)"
    return "`peerdma doctor` may say more"
