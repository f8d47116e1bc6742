# SPDX-License-Identifier: BSD-2-Clause
"""Random requests of the driver, with values that are right, nearly right, and absurd."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import mmap
import os
import random
import re
import select
import time
from collections.abc import Callable
from pathlib import Path

from peerdma import uapi
from peerdma.uapi import Ioctl
from tests.system import picoevb
from tests.system.pairs import PAIRS, draw

__all__ = ["ERRNOS", "STRUCTURES", "Process", "Thread", "name_of"]

_HEADER = Path(__file__).resolve().parents[2] / "driver/peerdma_uapi.h"
#: What the header documents, number to name: Linux has two names for some.
ERRNOS = {
    getattr(errno, name): name
    for name in re.findall(r"^ \*  (E[A-Z0-9]+) ", _HEADER.read_text(), re.MULTILINE)
}
_ARENA = 1 << 20
_EDGES = [0, 1, 2, 3, 63, 64, 4095, 4096, 4097, 65535, 65536, 65537]
_WIDE = [0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 32, 1 << 44, 1 << 63, (1 << 64) - 1]
#: MADV_*: DONTNEED, FREE, REMOVE, DONTFORK, DOFORK, MERGEABLE, COLD, PAGEOUT
_ADVICE = [4, 8, 9, 10, 11, 12, 20, 21]
#: What each request points to.
STRUCTURES = {
    Ioctl.PIN_CUDA: uapi.PinCuda,
    Ioctl.UNPIN_CUDA: uapi.UnpinCuda,
    Ioctl.H2C2H_DMA: uapi.H2c2hDma,
    Ioctl.CARD_INFO: uapi.CardInfo,
    Ioctl.H2C_DMA: uapi.H2cDma,
    Ioctl.C2H_DMA: uapi.C2hDma,
    Ioctl.GET_INFO: uapi.Info,
    Ioctl.PIN_DMABUF: uapi.PinDmabuf,
    Ioctl.PIN_PAGES: uapi.PinPages,
    Ioctl.SUBMIT: uapi.Submit,
    Ioctl.CANCEL: uapi.Cancel,
    Ioctl.QUERY: uapi.Query,
    Ioctl.MAP_INFO: uapi.MapInfo,
    Ioctl.RESET: uapi.Reset,
    Ioctl.USER_REGISTER: uapi.UserRegister,
    Ioctl.READ_CLOCK: uapi.Clock,
    Ioctl.SUBMIT_BATCH: uapi.SubmitBatch,
    Ioctl.SET_CONTEXT: uapi.Context,
    Ioctl.START_RING: uapi.StartRing,
    Ioctl.RELEASE_FRAMES: uapi.ReleaseFrames,
    Ioctl.EXPORT_DMABUF: uapi.ExportDmabuf,
    Ioctl.CREATE_QUEUE: uapi.CreateQueue,
    Ioctl.DESTROY_QUEUE: uapi.DestroyQueue,
    Ioctl.RESUME_QUEUE: uapi.ResumeQueue,
    Ioctl.PREPARE: uapi.Prepare,
    Ioctl.UNPREPARE: uapi.Unprepare,
    Ioctl.QUERY_QUEUE: uapi.QueryQueue,
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mremap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value


def name_of(number: int) -> str:
    """Of an errno; "ok" for 0."""
    return ERRNOS.get(number) or errno.errorcode.get(number, str(number)) if number else "ok"


class Process:
    """What the threads of a process share, all of it without locks: they are to race."""

    def __init__(self, shared: list[int]):
        self.fds = list(shared)
        self.shared = set(shared)
        self.handles: list[int] = []
        self.jobs: list[int] = []
        self.dmabufs: list[int] = []
        self.gpu_memory: list[int] = []
        #: (address, length)
        self.views: list[tuple[int, int]] = []
        self.gpu = picoevb.Gpu()
        self.zero = os.open("/dev/zero", os.O_RDONLY)
        #: an eventfd
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.arena = _libc.mmap(None, _ARENA, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        #: Holes and pages that can only be read, and what is no memory.
        _libc.munmap(self.arena + _ARENA // 2, 4096)
        _libc.mprotect(self.arena + _ARENA // 4, 4096, mmap.PROT_READ)
        self.counts: collections.Counter[str] = collections.Counter()


class Thread:
    """One sequence of random requests."""

    def __init__(self, process: Process, seed: str):
        self.random = random.Random(seed)
        self.process = process
        actions: dict[Callable[[], None], float] = {
            self._open: 2,
            self._close: 2,
            self._request: 30,
            self._raw: 6,
            self._pin: 18,
            self._unpin: 5,
            self._transfer: 8,
            self._submit: 10,
            self._batch: 4,
            self._ring: 3,
            self._queue: 3,
            self._release: 3,
            self._cancel: 4,
            self._events: 10,
            self._map: 4,
            self._touch: 6,
            self._unmap: 3,
            self._gpu: 6,
            self._memory: 6,
            self._fork: 0.2,
        }
        self._actions, self._weights = list(actions), list(actions.values())

    def run(self) -> None:
        """For ever."""
        while True:
            (action,) = self.random.choices(self._actions, self._weights)
            action()

    # Values ----------------------------------------------------------------------------------

    def _some(self, values: list[int], otherwise: int = 0) -> int:
        """One of a list that other threads may be emptying."""
        try:
            return self.random.choice(values)
        except IndexError:
            return otherwise

    def _number(self) -> int:
        kind = self.random.random()
        if kind < 0.5:
            return self.random.choice(_EDGES)
        if kind < 0.8:
            return self.random.randrange(70_000)
        return (self.random.choice(_WIDE) + self.random.randrange(-2, 3)) % (1 << 64)

    def _address(self) -> int:
        kind = self.random.random()
        if kind < 0.75:
            return self.process.arena + self.random.randrange(_ARENA)
        if kind < 0.85:
            return self._some(self.process.gpu_memory) + self.random.choice(_EDGES)
        if kind < 0.9 and self.process.views:
            return self._some([view[0] for view in self.process.views])
        return self._number()

    def _length(self) -> int:
        kind = self.random.random()
        if kind < 0.9:
            return min(self.random.choice(_EDGES), 1 + self.random.randrange(20_000))
        return self._number()

    def _fd(self) -> int:
        return self._some(self.process.fds, -1)

    def _handle(self) -> int:
        return self._some(self.process.handles, 1) if self.random.random() < 0.9 else self._number()

    # Requests --------------------------------------------------------------------------------

    def _ask(self, code: Ioctl, argument: object) -> bool:
        """A request that is well made; whether it succeeded."""
        pointer = argument if isinstance(argument, int) else ctypes.addressof(argument)
        return self._count(code.name, _libc.ioctl(self._fd(), code, pointer))

    def _count(self, name: str, result: int) -> bool:
        number = ctypes.get_errno() if result < 0 else 0
        self.process.counts[f"{name} {name_of(number)}"] += 1
        return not number

    def _open(self) -> None:
        if len(self.process.fds) > 12:
            self._close()
        with contextlib.suppress(OSError):
            self.process.fds.append(os.open("/dev/picoevb", os.O_RDWR | os.O_NONBLOCK))

    def _close(self) -> None:
        own = [fd for fd in self.process.fds if fd not in self.process.shared]
        if own:
            fd = self.random.choice(own)
            with contextlib.suppress(ValueError, OSError):
                self.process.fds.remove(fd)
                os.close(fd)

    def _request(self) -> None:
        """Any request, every member at random."""
        code = self.random.choice([*STRUCTURES, Ioctl.LED])
        if code is Ioctl.RESET and self.random.random() < 0.9:
            code = Ioctl.GET_INFO
        if code is Ioctl.LED:
            self._ask(code, self._number() % (1 << 32))
            return
        argument = STRUCTURES[code]()
        for name, kind in argument._fields_:
            if name == "size" and self.random.random() < 0.9:
                continue
            if name == "flags" and self.random.random() < 0.7:
                continue
            if issubclass(kind, ctypes.Array):
                continue
            value = self._number()
            if "handle" in name or (name in ("src", "dst") and self.random.random() < 0.4):
                value = self._handle()
            elif name == "queue":
                value = self._some(self.process.jobs, 1)
            elif name in ("src", "dst", "va", "address", "submits", "frames"):
                value = self._address()
            elif name in ("len", "length", "size", "ram_length", "dst_length"):
                value = self._length()
            elif name == "fd":
                value = self._some(self.process.dmabufs, self._number() % 1000)
            elif name == "eventfd":
                value = self.random.choice([self.process.bell, self._number() % 1000])
            setattr(argument, name, value % (1 << 8 * ctypes.sizeof(kind)))
        if code in PAIRS and self.random.random() < 0.5:
            pair = self.random.choice(PAIRS[code])
            for name, value in zip(pair, draw(self.random, [self.process.arena]), strict=True):
                setattr(argument, name, value)
        if self._ask(code, argument) and code is Ioctl.EXPORT_DMABUF:
            self.process.dmabufs.append(argument.fd)

    def _raw(self) -> None:
        """A code and a pointer that nobody made."""
        code = self.random.choice([*STRUCTURES, self._number() % (1 << 32)])
        if self.random.random() < 0.5:
            code = (int(code) ^ 1 << self.random.randrange(32)) % (1 << 32)
        # At the end of a page behind which is nothing, as often as not.
        edge = self.process.arena + _ARENA // 2 - self.random.randrange(400)
        self._count(
            "raw", _libc.ioctl(self._fd(), code, self.random.choice([edge, self._address()]))
        )

    def _pin(self) -> None:
        kind = self.random.random()
        address = self.process.arena + self.random.randrange(_ARENA // 4 - 70_000)
        length = self.random.randrange(1, 70_000)
        if kind < 0.4:
            pin = uapi.PinPages(address=address, length=length, access=self.random.randrange(1, 4))
            code = Ioctl.PIN_PAGES
        elif kind < 0.7:
            va = self._some(self.process.gpu_memory, address)
            pin, code = uapi.PinCuda(va=va, size=length), Ioctl.PIN_CUDA
        else:
            pin = uapi.PinDmabuf(fd=self._some(self.process.dmabufs, self._fd()), access=3)
            code = Ioctl.PIN_DMABUF
        if self._ask(code, pin):
            self.process.handles.append(pin.handle)

    def _unpin(self) -> None:
        handle = self._handle()
        if self._ask(Ioctl.UNPIN_CUDA, uapi.UnpinCuda(handle % (1 << 32))):
            with contextlib.suppress(ValueError):
                self.process.handles.remove(handle)

    def _transfer(self) -> None:
        code = self.random.choice([Ioctl.H2C_DMA, Ioctl.C2H_DMA, Ioctl.H2C2H_DMA])
        dma = STRUCTURES[code](len=self.random.randrange(9_000))
        handle = self.random.random() < 0.5
        dma.flags = self.random.randrange(4 if code is Ioctl.H2C2H_DMA else 2) if handle else 0

        def end(is_handle: int) -> int:
            if is_handle:
                return self._handle() % (1 << 64)
            return self.process.arena + self.random.randrange(_ARENA // 4 - 9_000)

        dma.src = self.random.randrange(60_000) if code is Ioctl.C2H_DMA else end(dma.flags & 1)
        to_handle = dma.flags & (2 if code is Ioctl.H2C2H_DMA else 1)
        dma.dst = self.random.randrange(60_000) if code is Ioctl.H2C_DMA else end(to_handle)
        self._ask(code, dma)

    def _wanted(self) -> uapi.Submit:
        """A job that is well made."""
        submit = uapi.Submit(op=self.random.randrange(4), length=self.random.randrange(9_000))
        if submit.op != uapi.Op.C2H:
            submit.src_handle = self._handle() % (1 << 32)
        if submit.op != uapi.Op.H2C:
            submit.dst_handle = self._handle() % (1 << 32)
        if submit.op == uapi.Op.PROCESS:
            submit.dst_length = self.random.choice([*[submit.length] * 8, 0, self._number()])
        submit.src_offset = self.random.choice([*[0] * 8, 1, 100, self._number()])
        submit.dst_offset = self.random.choice([*[0] * 8, 1, 100, self._number()])
        if self.random.random() < 0.3:
            submit.flags, submit.eventfd = uapi.SubmitFlag.EVENTFD, self.process.bell
        return submit

    def _submit(self) -> None:
        submit = self._wanted()
        if self._ask(Ioctl.SUBMIT, submit):
            self.process.jobs.append(submit.job)
            del self.process.jobs[:-40]

    def _batch(self) -> None:
        submits = (uapi.Submit * 8)(*(self._wanted() for _ in range(8)))
        address = ctypes.addressof(submits)
        batch = uapi.SubmitBatch(submits=address, count=self.random.choice([0, 1, 5, 8]))
        if self._ask(Ioctl.SUBMIT_BATCH, batch):
            self.process.jobs += [submit.job for submit in submits[: batch.taken]]
            self.process.counts[f"SUBMIT_BATCH {name_of(-batch.error)}"] += 1
            del self.process.jobs[:-40]

    def _ring(self) -> None:
        """A ring that is well made, or nearly; it runs until something ends it."""
        count = self.random.choice([1, 1, 1, 2, 3, 256])
        frames = (uapi.Frame * count)()
        handle, wrong = self._handle() % (1 << 32), self.random.random() < 0.2
        for frame in frames:
            frame.handle = self._handle() % (1 << 32) if wrong else handle
            frame.offset = self._number() if wrong else self.random.choice([0, 1, 100])
            frame.length = 1 + self.random.randrange(1_000)
        ring = uapi.StartRing(flags=self.random.randrange(2), count=count)
        if self.random.random() < 0.1:
            ring.records_handle, ring.records_offset = self._handle() % (1 << 32), self._number()
        ring.set_frames(frames)
        if self._ask(Ioctl.START_RING, ring):
            self.process.jobs.append(ring.job)
            del self.process.jobs[:-40]
            if self.random.random() < 0.9:  # or others find the channel busy
                self._ask(Ioctl.CANCEL, uapi.Cancel(job=ring.job))

    def _queue(self) -> None:
        """A launch queue with jobs in slots; it runs until something ends it."""
        at = self.process.arena + self.random.randrange(_ARENA // 8192) * 4096
        fd = self._fd()
        pin = uapi.PinPages(address=at, length=8192, access=3)
        if not self._count("PIN_PAGES", _libc.ioctl(fd, Ioctl.PIN_PAGES, ctypes.addressof(pin))):
            return
        queue = uapi.CreateQueue(depth=8, handle=pin.handle, records=64, shadow=128, word=132)
        at = ctypes.addressof(queue)
        if not self._count("CREATE_QUEUE", _libc.ioctl(fd, Ioctl.CREATE_QUEUE, at)):
            return
        self.process.jobs.append(queue.queue)
        del self.process.jobs[:-40]
        prepare = uapi.Prepare(queue=queue.queue, op=self.random.randrange(3), length=4096)
        if prepare.op != uapi.Op.C2H:
            prepare.src_handle = self._handle() % (1 << 32)
        if prepare.op != uapi.Op.H2C:
            prepare.dst_handle = self._handle() % (1 << 32)
        prepare.flags, prepare.done = 1, self.random.choice([256, 256, 258, 8192])
        if prepare.op == uapi.Op.COPY:
            prepare.flags |= self.random.choice([0, uapi.PrepareFlag.OVERLAP])
        for _ in range(self.random.randrange(4)):
            self._count("PREPARE", _libc.ioctl(fd, Ioctl.PREPARE, ctypes.addressof(prepare)))
        if self.random.random() < 0.8:  # or others find none
            self._ask(Ioctl.CANCEL, uapi.Cancel(job=queue.queue))

    def _release(self) -> None:
        count = self.random.choice([0, 0, 1, 2, self._number()])
        release = uapi.ReleaseFrames(job=self._some(self.process.jobs, 1), count=count)
        self._ask(Ioctl.RELEASE_FRAMES, release)

    def _cancel(self) -> None:
        self._ask(Ioctl.CANCEL, uapi.Cancel(job=self._some(self.process.jobs, 1)))

    def _events(self) -> None:
        fd = self._fd()
        with contextlib.suppress(OSError, ValueError):
            if select.select([fd], [], [], 0.001)[0]:
                os.set_blocking(fd, False)
                os.read(fd, self.random.choice([1, 64, 128, 1000, 4096]))
                self.process.counts["read ok"] += 1

    # Mappings and memory ---------------------------------------------------------------------

    def _map(self) -> None:
        place = uapi.MapInfo(handle=self._handle() % (1 << 32))
        if self.random.random() < 0.2:
            place = uapi.MapInfo(flags=uapi.MapFlag.MAILBOX)
        if not self._ask(Ioctl.MAP_INFO, place):
            return
        offset, length = place.offset, place.length
        if self.random.random() < 0.2:
            offset, length = self._number() & ~4095, self._length()
        flags = self.random.choice([mmap.MAP_SHARED] * 6 + [mmap.MAP_PRIVATE])
        protection = self.random.choice([3, 3, 3, 1, 2, 7])
        offset = ctypes.c_long(offset).value
        at = _libc.mmap(None, min(length, 1 << 20), protection, flags, self._fd(), offset)
        self._count("mmap", -1 if at == _MAP_FAILED else 0)
        if at != _MAP_FAILED:
            self.process.views.append((at, min(length, 1 << 20)))

    def _touch(self) -> None:
        """By the kernel's hand: where there is nothing, it says EFAULT, and raises no SIGBUS."""
        if views := list(self.process.views):
            at, length = self.random.choice(views)
            at += self.random.randrange(max(1, length - 8))
            self._count("touch", _libc.read(self.process.zero, at, 8))

    def _unmap(self) -> None:
        with contextlib.suppress(IndexError):
            at, length = self.process.views.pop(self.random.randrange(len(self.process.views) or 1))
            if self.random.random() < 0.3:  # a part of it
                length = max(4096, length // 2 & ~4095)
            _libc.munmap(at, length)

    def _memory(self) -> None:
        """Pinned or not: pages that are taken away, or may be written no more."""
        at = self.process.arena + self.random.randrange(_ARENA // 4096 // 4) * 4096
        kind = self.random.random()
        if kind < 0.2:
            _libc.mprotect(at, 4096, self.random.choice([1, 3, 3]))
            return
        if kind < 0.5:
            _libc.madvise(at, 4096, self.random.choice(_ADVICE))
            return
        if kind < 0.7:
            to = self.process.arena + self.random.randrange(_ARENA // 4096 // 4) * 4096
            _libc.mremap(at, 4096, 4096, 3, to)  # MREMAP_MAYMOVE, MREMAP_FIXED
        fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED: new pages
        _libc.mmap(at, 4096, 3, fixed, -1, 0)

    def _fork(self) -> None:
        """A child has the files and the memory for a moment, also if this process is killed."""
        if not os.fork():
            time.sleep(0.05)
            os._exit(0)

    def _gpu(self) -> None:
        process, gpu = self.process, self.process.gpu
        kind = self.random.random()
        try:
            if kind < 0.35 and len(process.gpu_memory) < 8:
                process.gpu_memory.append(gpu.alloc(self.random.choice([1, 2, 3]) << 16))
            elif kind < 0.6 and len(process.dmabufs) < 8:
                host = self.random.random() < 0.3
                va = self._some(process.gpu_memory)
                process.dmabufs.append(gpu.export_host(65536) if host else gpu.export(va))
            elif kind < 0.7 and process.dmabufs:
                fd = process.dmabufs.pop()
                process.counts["dma-buf closed"] += 1
                os.close(fd)
            elif kind < 0.8 and process.gpu_memory:
                gpu.free(process.gpu_memory.pop())
                process.counts["GPU memory freed"] += 1
            elif process.dmabufs:
                move = self.random.random() < 0.5
                left = gpu.revoke(self._some(process.dmabufs), move=move, patience=10)
                process.counts[f"revoke {'left' if left else 'ok'}"] += 1
        except (OSError, IndexError):
            pass
