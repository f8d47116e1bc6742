# SPDX-License-Identifier: BSD-2-Clause
"""Ranges at both ends of the number line, asked for by users without rights: in a guest.

    python3 -m tests.system.fuzz_ranges --seed N --calls N

Every request that takes a place and a length, with one pair of `pairs` in an otherwise right
structure: by the system call of 64-bit programs and by that of 32-bit ones, with and without a
provider for a GPU. Processes with several threads make them, and are killed at random moments. Then
all that was pinned has been given back, no file is open any more, and the module can be unloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from peerdma import uapi
from peerdma.uapi import Ioctl
from tests.system import picoevb
from tests.system.fuzz_requests import ERRNOS, STRUCTURES, name_of
from tests.system.hostile import libc, nodes_of_all, start
from tests.system.pairs import PAIRS, STREAM, draw
from tests.system.picoevb import PAGE, Buffer
from tests.system.simgpu import PATIENCE

__all__ = ["WIDTHS", "main"]

#: Bits of the programs whose system calls are made.
WIDTHS = (64, 32)
_PROCESSES, _THREADS = 2, 3
#: Pairs that are drawn before, as that takes longer than a call; and how many a request has.
_PAIRS, _IN_A_ROW = 5000, 16
#: Bytes that are right to pin, and that each handle has.
_ARENA, _PIN = 1 << 20, 2 * PAGE
_CARD = 65536
_GPU_MODULE = "peerdma_nvp2p"
#: Rows of what was counted: each request, then those that are none.
_ROWS = [*(code.name for code in PAIRS), "pointer", "mmap", "read"]
_COLUMNS = 160

#: ioctl() as a program of 32 bits makes it: its number, then descriptor, code and pointer.
_IOCTL_32 = bytes.fromhex("53 b8 36000000 89fb 89f1 cd80 5b c3")
_MAP_32BIT = 0x40
#: Of 32-bit x86, where the structure has no padding.
_PIN_CUDA_32 = uapi.request_code("P", 1, 3, uapi.PinCuda) & ~(0x3FFF << 16) | 20 << 16

libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def _map(size: int, protection: int = 3) -> int:
    """Memory that 32-bit programs can name: its address."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_32BIT
    at = libc.mmap(None, size, protection, flags, -1, 0)
    assert at != ctypes.c_void_p(-1).value
    return at


class _Worker:
    """The threads of a process share what it has opened and pinned."""

    def __init__(self, fuzz: _Fuzz, width: int, queue: bool):
        self.width, self.arena = width, fuzz.arena
        self.pairs, self.counts = fuzz.pairs, fuzz.counts
        self.fd = os.open("/dev/picoevb", os.O_RDWR | os.O_NONBLOCK)
        code = _map(PAGE, 7)
        ctypes.memmove(code, _IOCTL_32, len(_IOCTL_32))
        kinds = (ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_ulong)
        self._ioctl_32 = ctypes.CFUNCTYPE(*kinds)(code)
        self.gpu = picoevb.Gpu()
        self.va = self.gpu.alloc(picoevb.GPU_PAGE)
        self.dmabuf = self.gpu.export(self.va)
        pin = uapi.PinPages(address=self.arena, length=_PIN, access=3)
        assert libc.ioctl(self.fd, Ioctl.PIN_PAGES, ctypes.addressof(pin)) == 0
        self.handle = pin.handle
        self.queue = self._create_queue() if queue else 1

    def _create_queue(self) -> int:
        """A launch queue, if there is one to be had: its number."""
        wanted = uapi.CreateQueue(depth=8, handle=self.handle, records=64, shadow=128, word=132)
        libc.ioctl(self.fd, Ioctl.CREATE_QUEUE, ctypes.addressof(wanted))
        return wanted.queue

    def ioctl(self, fd: int, code: int, pointer: int) -> int:
        """An errno, or 0."""
        if self.width == 64:
            return ctypes.get_errno() if libc.ioctl(fd, code, pointer) < 0 else 0
        code = _PIN_CUDA_32 if code == Ioctl.PIN_CUDA else code
        return -min(0, self._ioctl_32(fd, code, pointer % (1 << 32)))

    def count(self, row: int, number: int) -> None:
        """A call and its errno; threads may lose some."""
        self.counts[row * _COLUMNS + min(number, _COLUMNS - 1)] += 1

    def run(self, seed: str) -> None:
        """A thread, for ever."""
        thread = _Thread(self, random.Random(seed))
        while True:
            thread.step()


class _Thread:
    def __init__(self, worker: _Worker, chance: random.Random):
        self.worker, self.random = worker, chance
        #: Where this thread has its structure, what that points to, and events.
        self._at = _map(3 * PAGE)
        self._next = chance.randrange(len(worker.pairs))

    def step(self) -> None:
        """Several calls of a kind, and what it takes to undo them: all kinds are as likely."""
        kind = self.random.choice([*PAIRS, self._pointer, self._mmap, self._read])
        if kind in PAIRS:
            self._request(kind)
            return
        for _ in range(_IN_A_ROW):
            kind()

    def _draw(self) -> tuple[int, int]:
        pairs = self.worker.pairs
        self._next = (self._next + 1) % len(pairs)
        return pairs[self._next]

    def _sane(self, code: Ioctl) -> ctypes.Structure:
        """A structure of which one pair may be wrong."""
        worker, more = self.worker, {}
        op, handle = self.random.randrange(4), worker.handle
        ends = {"src_handle": handle if op != 1 else 0, "dst_handle": handle if op else 0}
        match code:
            case Ioctl.PIN_CUDA:
                more = {"va": self.random.choice([worker.va, worker.arena]), "size": PAGE}
            case Ioctl.H2C_DMA | Ioctl.C2H_DMA | Ioctl.H2C2H_DMA:
                flags = self.random.randrange(4 if code is Ioctl.H2C2H_DMA else 2)
                more = {"len": 64, "flags": flags}
                if code is not Ioctl.C2H_DMA:
                    more["src"] = handle if flags & 1 else worker.arena
                if code is not Ioctl.H2C_DMA:
                    bit = 2 if code is Ioctl.H2C2H_DMA else 1
                    more["dst"] = handle if flags & bit else worker.arena + 2 * PAGE
            case Ioctl.PIN_DMABUF:
                more = {"fd": worker.dmabuf, "access": 3}
            case Ioctl.PIN_PAGES:
                more = {"address": worker.arena, "length": PAGE, "access": 1 + op % 3}
            case Ioctl.SUBMIT:
                more = {"op": op, "length": 64, **ends, "dst_length": 64 if op == 3 else 0}
            case Ioctl.SUBMIT_BATCH:
                more = {"submits": self._at + PAGE, "count": 2}
                for n in range(2):
                    submit = uapi.Submit(op=0, src_handle=handle, length=64)
                    submit.src_offset, submit.length = self._draw()
                    at = self._at + PAGE + n * ctypes.sizeof(submit)
                    ctypes.memmove(at, ctypes.addressof(submit), ctypes.sizeof(submit))
            case Ioctl.START_RING:
                frame = uapi.Frame(handle=handle, length=64)
                frame.offset, frame.length = self._draw()
                ctypes.memmove(self._at + PAGE, ctypes.addressof(frame), ctypes.sizeof(frame))
                more = {"frames": self._at + PAGE, "count": 1, "flags": uapi.RingFlag.FRESH}
                more["records_handle"] = handle if op == 3 else 0
            case Ioctl.CREATE_QUEUE:
                more = {"depth": 8, "handle": handle, "records": 64, "shadow": 128, "word": 132}
            case Ioctl.PREPARE:
                more = {"queue": worker.queue, "op": op % 3, "length": 64, "flags": 1, "done": 256}
                more |= {"src_handle": handle if op % 3 != 1 else 0}
                more |= {"dst_handle": handle if op % 3 else 0}
            case Ioctl.UNPREPARE | Ioctl.RELEASE_FRAMES:
                more = {("queue" if code is Ioctl.UNPREPARE else "job"): worker.queue}
        return STRUCTURES[code](**more)

    def _request(self, code: Ioctl) -> None:
        """The same request with several pairs."""
        sane, row = self._sane(code), _ROWS.index(code.name)
        argument = type(sane).from_address(self._at)
        first, second = self.random.choice(PAIRS[code])
        # Only one context to a file.
        fresh = code is Ioctl.SET_CONTEXT
        for _ in range(_IN_A_ROW):
            ctypes.memmove(self._at, ctypes.addressof(sane), ctypes.sizeof(sane))
            start, length = self._draw()
            if code is Ioctl.PIN_CUDA and 0 <= start - self.worker.arena < _ARENA:
                start += self.random.choice([0, self.worker.va - self.worker.arena])
            # Nothing comes from the stream.
            setattr(argument, first, start + (start == STREAM))
            setattr(argument, second, length)
            fd = os.open("/dev/picoevb", os.O_RDWR) if fresh else self.worker.fd
            number = self.worker.ioctl(fd, code, self._at)
            self.worker.count(row, number)
            if fresh:
                os.close(fd)
            if not number:
                self._undo(code, argument)
        if sane._fields_[0][0] == "size":
            sane.size = self._draw()[1]
            ctypes.memmove(self._at, ctypes.addressof(sane), ctypes.sizeof(sane))
            self.worker.count(row, self.worker.ioctl(self.worker.fd, code, self._at))

    def _undo(self, code: Ioctl, done: ctypes.Structure) -> None:
        fd = self.worker.fd
        if code in (Ioctl.PIN_CUDA, Ioctl.PIN_PAGES, Ioctl.PIN_DMABUF):
            unpin = uapi.UnpinCuda(handle=done.handle)
            libc.ioctl(fd, Ioctl.UNPIN_CUDA, ctypes.addressof(unpin))
        elif code in (Ioctl.START_RING, Ioctl.CREATE_QUEUE):
            cancel = uapi.Cancel(job=done.job if code is Ioctl.START_RING else done.queue)
            libc.ioctl(fd, Ioctl.CANCEL, ctypes.addressof(cancel))
        elif code is Ioctl.PREPARE:
            undo = uapi.Unprepare(queue=done.queue, slot=done.slot)
            libc.ioctl(fd, Ioctl.UNPREPARE, ctypes.addressof(undo))
        libc.read(fd, self._at + 2 * PAGE, PAGE)

    def _pointer(self) -> None:
        """A structure where none can be."""
        code = self.random.choice(list(PAIRS))
        number = self.worker.ioctl(self.worker.fd, code, self._draw()[0])
        self.worker.count(_ROWS.index("pointer"), number)

    def _mmap(self) -> None:
        offset, length = self._draw()
        offset = ctypes.c_long(offset & -PAGE).value
        at = libc.mmap(None, length, 3, mmap.MAP_SHARED, self.worker.fd, offset)
        failed = at == ctypes.c_void_p(-1).value
        self.worker.count(_ROWS.index("mmap"), ctypes.get_errno() if failed else 0)
        if not failed:
            libc.munmap(at, length)

    def _read(self) -> None:
        at, length = self._draw()
        failed = libc.read(self.worker.fd, at, length) < 0
        self.worker.count(_ROWS.index("read"), ctypes.get_errno() if failed else 0)


class _Fuzz:
    def __init__(self, seed: int):
        self._seed, self.random, self._started = seed, random.Random(seed), 0
        self.failures: list[str] = []
        arena = _map(_ARENA)
        ctypes.memset(arena, 1, _ARENA)
        ends = [arena, arena + _ARENA, _PIN, _CARD, PAGE]
        self.arena, self.pairs = arena, [draw(self.random, ends) for _ in range(_PAIRS)]
        self._memory = Buffer(4 * len(_ROWS) * _COLUMNS, b"")
        kind = ctypes.c_uint32 * (len(_ROWS) * _COLUMNS)
        self.counts = kind.from_address(self._memory.address)

    def run(self, width: int, calls: int) -> None:
        """So many more calls."""
        end = sum(self.counts) + calls
        deadline = time.monotonic() + calls / 100 + 10 * PATIENCE
        with nodes_of_all():
            pids = [self._start(width) for _ in range(_PROCESSES)]
            while sum(self.counts) < end:
                time.sleep(self.random.uniform(0.05, 1.0) * PATIENCE / 60)
                if time.monotonic() > deadline:
                    self.failures.append(f"{end - sum(self.counts)} calls were not made in time")
                    break
                victim = self.random.randrange(_PROCESSES)
                self._kill(pids[victim])
                pids[victim] = self._start(width)
            for pid in pids:
                self._kill(pid)

    def _start(self, width: int) -> int:
        self._started += 1
        name, user = f"{self._seed}/{self._started}", self.random.choice([1000, 1001])
        # With it, other limits come before those of the driver.
        limited, queue = self.random.random() < 0.5, self.random.random() < 0.5

        def work() -> None:
            worker = _Worker(self, width, queue)
            for number in range(_THREADS):
                thread = threading.Thread(target=_guarded, args=(worker, f"{name}/{number}"))
                thread.start()
            signal.pause()

        if not limited:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
        pid = start(work, user)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, resource.RLIM_INFINITY))
        return pid

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        status = picoevb.ended(pid)
        if status != -signal.SIGKILL:
            self.failures.append(f"a process ended with {status} before its time")

    def table(self) -> dict[str, dict[str, int]]:
        """How often each request had each result."""
        found = {}
        for n, row in enumerate(_ROWS):
            line = self.counts[n * _COLUMNS : (n + 1) * _COLUMNS]
            found[row] = {name_of(number): count for number, count in enumerate(line) if count}
        return found

    def check(self) -> None:
        """That all errors are documented, and that each request has got through, or could not."""
        documented = {*ERRNOS.values(), "ok"}
        for row, results in self.table().items():
            wrong = set(results) - documented
            # Of mmap() and read() the kernel has some of its own.
            if wrong and row not in ("mmap", "read"):
                self.failures.append(f"{row} failed with {wrong}, which is not documented")


def _guarded(worker: _Worker, seed: str) -> None:
    try:
        worker.run(seed)
    except BaseException as error:
        print(f"fuzz_ranges: a bug of its own: {error!r}", flush=True)
        os._exit(3)


def _held() -> int:
    """Pages that are pinned on this machine."""
    lines = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(lines["nr_foll_pin_acquired"]) - int(lines["nr_foll_pin_released"])


@contextlib.contextmanager
def _loaded(gpu: bool) -> Iterator[None]:
    """The driver is loaded anew within; and again afterwards, with the provider."""
    try:
        picoevb.remove(_GPU_MODULE)
        picoevb.remove("peerdma")
        for name in ("peerdma", *([_GPU_MODULE] if gpu else [])):
            picoevb.shell(f"insmod /run/guest/{name}.ko")
        picoevb.until(lambda: os.path.exists("/dev/picoevb"))
        yield
    finally:
        if not gpu:
            picoevb.shell(f"insmod /run/guest/{_GPU_MODULE}.ko")


def main() -> None:
    """Fuzzes, then prints one JSON object; exit status 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True, help="of each width, at least")
    arguments = parser.parse_args()
    fuzz = _Fuzz(arguments.seed)
    for width in WIDTHS:
        for gpu in (True, False):
            with _loaded(gpu):
                held = _held()
                fuzz.run(width, arguments.calls // 2)
                picoevb.leaves_nothing()
                picoevb.until(lambda held=held: _held() == held)
    with _loaded(True):
        picoevb.leaves_nothing()
    fuzz.check()
    print(json.dumps({"counts": fuzz.table(), "failures": fuzz.failures}))
    sys.exit(bool(fuzz.failures))


if __name__ == "__main__":
    main()
