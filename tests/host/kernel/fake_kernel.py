# SPDX-License-Identifier: BSD-2-Clause
"""A stand-in for the kernel driver: records every request, and copies between pinned memory.

The "device node" is a named pipe: events written to it are read and polled as the driver's are.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import threading
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from peerdma import uapi
from peerdma.regs import FRAME_NUMBER_VALID, FRAME_RECORD
from peerdma.testing import pattern
from peerdma.uapi import Feature, Ioctl, Op, Placement, Reason, RegisterFlag
from tests.host.kernel.fake_launches import FakeLaunches

CARD_RAM = 65_536


class FakeKernel(FakeLaunches):
    """Acts like `fcntl.ioctl` on a node of the driver.

    Attributes
    ----------
    calls : list of (str, dict)
        Requests by name and what they said, in order.
    failures : dict of Ioctl to (int, int)
        Which request of a kind fails, counted from 0 from now on, and the errno.
    ends : list of dict
        How the next jobs end: members of their events; those after them succeed.
    silent : bool
        Whether jobs end only when they are cancelled, or by `end_all`.
    stuck : bool
        Whether they do not end then, either.
    gone : bool
        Whether the board was unplugged: there are no events any more.
    most_jobs : int
        Jobs outstanding until the driver says EAGAIN.
    """

    def __init__(self, folder: Path, calls: list | None = None):
        self.path = str(folder / "picoevb")
        os.mkfifo(self.path)
        self.pipe = os.open(self.path, os.O_RDWR)
        self.calls = [] if calls is None else calls
        self.failures: dict[Ioctl, tuple[int, int]] = {}
        self.ends: list[dict] = []
        self.silent = self.stuck = self.gone = False
        self.most_jobs = 4
        self.placement = Placement.PEER
        self.peer = b"0000:01:00.0"
        self.pins: dict[int, tuple[int, int]] = {}
        #: who pinned, by handle
        self.providers: dict[int, bytes] = {}
        #: addresses behind dma-bufs, by descriptor
        self.dmabufs: dict[int, int] = {}
        #: by user block and offset
        self.registers: dict[tuple[int, int], int] = {}
        self.card = np.zeros(CARD_RAM, np.uint8)
        #: one thread at a time, as under the driver's lock
        self._lock = threading.RLock()
        self._handles = itertools.count(1)
        self._jobs = itertools.count(100)
        #: jobs without an event that was read, and whether they have one
        self._outstanding: dict[int, bool] = {}
        self._requests: dict[int, SimpleNamespace] = {}
        self._last_error = (0, b"")
        #: the ring, as it was asked for: its job, frames and the place of its records
        self.ring: SimpleNamespace | None = None
        self.info = uapi.Info(
            uapi_version=0x10000,
            board_version=0x10000,
            capabilities=7,
            features=Feature.STREAM_COPY
            | Feature.MAILBOX
            | Feature.CUDA
            | Feature.DMABUF
            | Feature.STREAMS
            | Feature.CLOCK,
            index=0,
            vendor=0x10EE,
            device=0x7021,
            subsystem_vendor=0x10EE,
            subsystem_device=0x5045,
            interrupts=uapi.Interrupts.MSIX,
            h2c_channels=1,
            c2h_channels=1,
            link_speed=2,
            link_width=1,
            max_payload=128,
            max_read_request=512,
            card_ram_size=CARD_RAM,
            clock_khz=125_000,
            time_scale=1,
            bus_id=b"0000:01:00.0",
        )

    def close(self) -> None:
        """Closes the driver's end; nothing may be pinned."""
        os.close(self.pipe)

    def named(self, *names: str) -> list[tuple[str, dict]]:
        """The calls of these names."""
        return [call for call in self.calls if call[0] in names]

    def ioctl(self, fd: int, code: int, argument):
        """As `fcntl.ioctl`."""
        with self._lock:
            return self._request(Ioctl(code), argument)

    def _request(self, code: Ioctl, argument):
        fields = getattr(argument, "_fields_", None)
        said = {name: getattr(argument, name) for name, _ in fields} if fields else argument
        if code is not Ioctl.GET_INFO:
            self.calls.append((code.name, said))
        if fields and fields[0][0] == "size":
            assert argument.size == ctypes.sizeof(argument)
        if code in self.failures:
            left, number = self.failures[code]
            if left == 0:
                del self.failures[code]
                self._fail(number, f"the driver's words on {code.name}")
            self.failures[code] = left - 1, number
        return getattr(self, f"_{code.name.lower()}")(argument)

    def _fail(self, number: int, words: str):
        self._last_error = number, words.encode()
        raise OSError(number, os.strerror(number))

    def _get_info(self, info):
        ctypes.memmove(ctypes.byref(info), ctypes.byref(self.info), ctypes.sizeof(info))
        info.last_errno, info.last_error = self._last_error

    def _pin(self, address: int, length: int, provider: bytes) -> int:
        handle = next(self._handles)
        self.pins[handle] = address, length
        self.providers[handle] = provider
        return handle

    def _pin_cuda(self, pin):
        pin.handle = self._pin(pin.va, pin.size, b"nvp2p")

    def _pin_pages(self, pin):
        pin.handle = self._pin(pin.address, pin.length, b"pages")

    def _pin_dmabuf(self, pin):
        os.fstat(pin.fd)
        pin.handle = self._pin(self.dmabufs[pin.fd] + pin.offset, pin.length, b"dmabuf")
        pin.placement = self.placement

    def _unpin_cuda(self, unpin):
        del self.pins[unpin.handle]

    def _query(self, query):
        query.placement = self.placement
        query.provider = self.providers[query.handle]
        query.peer = self.peer
        query.length = self.pins[query.handle][1]

    def _led(self, value):
        assert isinstance(value, int)

    def _user_register(self, register):
        if register.flags & RegisterFlag.WRITE:
            self.registers[register.block, register.offset] = register.value
        else:
            register.value = self.registers.get((register.block, register.offset), 0)

    def cycles(self) -> int:
        """The board's counter, which keeps this machine's time."""
        return time.monotonic_ns() // 8

    def _read_clock(self, clock):
        clock.before_ns = time.monotonic_ns()
        clock.cycles = self.cycles()
        clock.after_ns = time.monotonic_ns()

    def _set_context(self, context):
        context.ram_address = CARD_RAM - context.ram_length

    def _map_info(self, place):
        assert place.flags == uapi.MapFlag.MAILBOX
        place.offset, place.length = 1 << 40, 4096

    def _export_dmabuf(self, request):
        if request.flags & uapi.ExportFlag.DOORBELL:
            self._find(request.queue)
            if not self.doorbell:
                self._fail(errno.EPERM, "this file gets no doorbell")
        elif not self.info.features & Feature.MAILBOX:
            self._fail(errno.EOPNOTSUPP, "this board has no mailbox page")
        request.fd = os.memfd_create(f"exported {request.queue}", os.MFD_CLOEXEC)

    def _side(self, handle: int, offset: int, length: int) -> np.ndarray:
        if not handle:
            return self.card[offset : offset + length]
        address, size = self.pins[handle]
        assert offset + length <= size
        return np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address + offset))

    def _submit(self, submit):
        if len(self._outstanding) >= self.most_jobs:
            self._fail(errno.EAGAIN, "too many jobs")
        submit.job = next(self._jobs)
        assert bool(submit.src_handle) == (submit.op != Op.C2H)
        assert bool(submit.dst_handle) == (submit.op != Op.H2C)
        self._outstanding[submit.job] = False
        members = {name: getattr(submit, name) for name, _ in submit._fields_}
        self._requests[submit.job] = SimpleNamespace(**members)
        if not self.silent:
            self._end_well(submit.job, **(self.ends.pop(0) if self.ends else {}))

    def _end_well(self, job: int, **members) -> None:
        """Ends a job; it has moved its bytes unless `members` of its event say else."""
        request = self._requests.pop(job)
        if not members:
            source = self._side(request.src_handle, request.src_offset, request.length)
            if request.op == Op.PROCESS:  # as BF16 does, but for its rounding
                source = source.view("<u2")[1::2].copy().view(np.uint8)
            self._side(request.dst_handle, request.dst_offset, len(source))[:] = source
        received = request.dst_length or request.length
        self._end(job, **{"bytes": received, "cycles": 10, **members})

    # Rings -----------------------------------------------------------------------------------

    def _start_ring(self, ring):
        frames = (uapi.Frame * ring.count).from_address(ring.frames)
        ring.job = next(self._jobs)
        self.ring = SimpleNamespace(
            job=ring.job,
            flags=ring.flags,
            frames=[(frame.handle, frame.offset, frame.length) for frame in frames],
            records=(ring.records_handle, ring.records_offset),
            filled=0,
            released=0,
        )
        self._outstanding[ring.job] = False

    def _release_frames(self, release):
        if self.ring is None or release.job != self.ring.job:
            self._fail(errno.ENOENT, "no such job")
        if release.count > self.ring.filled:
            self._fail(errno.EINVAL, "more than have been filled")
        self.ring.released = max(self.ring.released, release.count)

    def fill(self, count: int, seed: int) -> int:
        """The source makes frames; how many of them were filled, as there was room."""
        ring, begin = self.ring, self.ring.filled
        size = len(ring.frames)
        for number in range(begin, min(begin + count, ring.released + size)):
            data = pattern.fill_bytes(seed + number, 0, ring.frames[number % size][2])
            self._side(*ring.frames[number % size])[:] = data
            handle, offset = ring.records
            if handle:
                record = np.zeros(1, FRAME_RECORD)
                record["number"], record["bytes"] = number | FRAME_NUMBER_VALID, len(data)
                record["crc"], record["cycles"] = zlib.crc32(data), self.cycles()
                at = offset + number % size * FRAME_RECORD.itemsize
                self._side(handle, at, FRAME_RECORD.itemsize)[:] = record.view(np.uint8)
            ring.filled = number + 1
        event = uapi.Event(job=ring.job, bytes=ring.filled, reason=Reason.FRAMES)
        os.write(self.pipe, bytes(event))
        return ring.filled - begin

    def end_ring(self, **members) -> None:
        """The ring ends with these members of its event."""
        job, filled, self.ring = self.ring.job, self.ring.filled, None
        self._end(job, bytes=filled, **members)

    def _cancel(self, cancel):
        if cancel.job not in self._outstanding:
            self._fail(errno.ENOENT, "no such job")
        if not self._outstanding[cancel.job] and not self.stuck:
            members = {"result": -errno.ECANCELED, "reason": Reason.CANCELLED}
            if self.ring is not None and cancel.job == self.ring.job:
                self.end_ring(**members)
            else:
                self._end(cancel.job, **members)

    def _end(self, job: int, **members) -> None:
        """The job's event; one of a newer driver, with a member more."""
        self._outstanding[job] = True
        event = uapi.Event(job=job, **members)
        event.size += 8
        os.write(self.pipe, bytes(event) + bytes(8))

    def end_all(self, **members) -> None:
        """Ends the jobs that have not ended, with these members of their events."""
        with self._lock:
            for job in [job for job, ended in self._outstanding.items() if not ended]:
                self._end_well(job, **members)

    def unplug(self) -> None:
        """As when the board is pulled out: the node can be read, and says ENODEV."""
        self.gone = True
        os.write(self.pipe, b"?")

    def read(self, data: bytes) -> bytes:
        """What `os.read` of the node returns, given what is in the pipe."""
        if self.gone:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self.taken(data)
        return data

    def taken(self, data: bytes) -> None:
        """The program has read events."""
        with self._lock:
            while data:
                event = uapi.Event.from_buffer_copy(data)
                if event.reason != Reason.FRAMES:
                    del self._outstanding[event.job]
                    if self.queue is not None and event.job == self.queue.number:
                        self.queue = None
                data = data[int.from_bytes(data[:4], "little") :]
