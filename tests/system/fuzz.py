# SPDX-License-Identifier: BSD-2-Clause
"""Requests of the driver at random, by racing threads of processes that are killed: in a guest.

    python3 -m tests.system.fuzz --seed N --seconds S

First everything once, as it succeeds. Then every request at random, with values that are right,
nearly right, and absurd. Each thread's requests are those of its seed; what else happens meanwhile,
and so what comes of them, differs each time. What counts is what the kernel says. Here fails what
programs see: an errno that is not documented, a process that cannot be killed, and anything that is
left at the end.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import errno
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

from peerdma import uapi
from peerdma.uapi import Ioctl
from tests.system import picoevb
from tests.system.faults import injecting
from tests.system.fuzz_requests import ERRNOS, Process, Thread, name_of
from tests.system.launching import Queue
from tests.system.picoevb import GPU_PAGE, PAGE, Buffer, Gpu, Node
from tests.system.simgpu import PATIENCE

__all__ = ["main"]

_PROCESSES, _THREADS = 3, 3
#: Seconds that a process may take to die.
_DEATH = 90.0


class _CountingNode(Node):
    """An open node that counts the requests that succeed."""

    def __init__(self, counts: collections.Counter[str]):
        super().__init__()
        self.counts = counts

    def request(self, code: int, argument):
        done = super().request(code, argument)
        self.counts[f"{Ioctl(code).name} ok"] += 1
        return done


def _all_requests(counts: collections.Counter[str]) -> None:
    """Every request, reading of events, and a mapping, each with success; OSError if not."""
    memory = Buffer(2 * PAGE)
    with Gpu() as gpu, _CountingNode(counts) as node:
        va = gpu.alloc(GPU_PAGE)
        # Without a provider, memory by pointer is the host's.
        discrete = b"nvp2p" in node.info().providers
        fd = gpu.export(va)
        handles = [
            node.pages(memory),
            node.dmabuf(fd),
            node.cuda(va if discrete else memory.address, PAGE),
        ]
        os.close(fd)
        node.h2c(memory.address, 0, PAGE)
        node.c2h(0, memory.address, PAGE)
        node.h2c2h(memory.address, memory.address + PAGE, PAGE)
        node.load(handles[0], 1, PAGE)
        node.cancel(node.endless(handles[0]))
        counts["read ok"] += len(node.events(2))
        submits = (uapi.Submit * 2)(*[uapi.Submit(src_handle=handles[0], length=PAGE)] * 2)
        batch = uapi.SubmitBatch(submits=ctypes.addressof(submits), count=2)
        assert node.request(Ioctl.SUBMIT_BATCH, batch).taken == len(node.events(2))
        ring = uapi.StartRing(count=1)
        ring.set_frames((uapi.Frame * 1)(uapi.Frame(handle=handles[0], length=PAGE)))
        job = node.request(Ioctl.START_RING, ring).job
        node.request(Ioctl.RELEASE_FRAMES, uapi.ReleaseFrames(job=job))
        node.cancel(job)
        counts["read ok"] += len(node.events(1))
        _queue_requests(node, handles[0])
        with node.mailbox() as mapped, memoryview(mapped).cast("I") as words:
            counts["mmap ok"] += 1
            counts["touch ok"] += words[0] is not None
        os.close(node.request(Ioctl.EXPORT_DMABUF, uapi.ExportDmabuf()).fd)
        node.query(handles[0])
        node.request(Ioctl.CARD_INFO, uapi.CardInfo())
        node.request(Ioctl.LED, 0)
        node.request(Ioctl.USER_REGISTER, uapi.UserRegister())
        node.request(Ioctl.READ_CLOCK, uapi.Clock())
        node.request(Ioctl.RESET, uapi.Reset())
        with _CountingNode(counts) as fresh:
            fresh.request(Ioctl.SET_CONTEXT, uapi.Context(ram_length=PAGE))
        for handle in handles:
            node.unpin(handle)


def _queue_requests(node: Node, handle: int) -> None:
    """Those of launch queues, which there are not where memory has to be synchronised."""
    try:
        queue = Queue(node)
    except OSError:
        with node.refused(errno.EOPNOTSUPP, "do not see each other's writes"):
            raise
        return
    slot = queue.prepare(uapi.Op.H2C, PAGE, 0, src_handle=handle)
    assert queue.run(slot) == [0]
    queue.resume()
    queue.unprepare(slot)
    assert not queue.query().slots
    queue.destroy()
    node.unpin(queue.handle)


def _work(seed: str, shared: list[int], report: int) -> None:
    """A process: never returns."""
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    process = Process(shared)
    for number in range(_THREADS):
        thread = Thread(process, f"{seed}/{number}")
        threading.Thread(target=_guarded, args=(thread,), daemon=True).start()
    while True:
        time.sleep(0.2)
        counts, process.counts = process.counts, collections.Counter()
        os.write(report, json.dumps(counts).encode() + b"\n")


def _guarded(thread: Thread) -> None:
    try:
        thread.run()
    except BaseException as error:
        print(f"fuzz: a bug of its own: {error!r}", flush=True)
        os._exit(3)


class _Fuzz:
    """All processes, and what happens to them."""

    def __init__(self, seed: int, *, rebind: bool):
        self.random = random.Random(seed)
        self.rebind = rebind
        self.counts: collections.Counter[str] = collections.Counter()
        #: of what was done once
        self.once: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._rest = b""
        self._seed, self._started = seed, 0
        self.board = picoevb.address_of_board()

    def begin(self) -> None:
        """Everything once, while nothing else happens."""
        _all_requests(self.once)
        if self.rebind:
            with picoevb.rebound():
                self.once["unbind ok"] += 1
            self.once["bind ok"] += 1
            picoevb.until(lambda: os.path.exists("/dev/picoevb"))

    def run(self, seconds: float) -> None:
        """Lets them race for a while, then ends all of them."""
        end = time.monotonic() + seconds
        shared = self._open_shared()
        processes = [self._start(shared) for _ in range(_PROCESSES)]
        while time.monotonic() < end and not self.failures:
            time.sleep(self.random.uniform(0.1, 1.0))
            self._take_reports()
            kind = self.random.random()
            if kind < 0.5:
                victim = self.random.randrange(_PROCESSES)
                self._kill(processes[victim])
                processes[victim] = self._start(shared)
            elif kind < 0.6:
                self._write_file(f"/sys/bus/pci/devices/{self.board}/reset", "1")
            elif kind < 0.7 and self.rebind:
                self._write_file(f"{picoevb.DRIVER}/unbind", self.board)
                # Memory may be too short for it at first.
                while not (picoevb.DRIVER / self.board).exists():
                    self._write_file(f"{picoevb.DRIVER}/bind", self.board)
                for fd in shared:
                    os.close(fd)
                shared = self._open_shared()
                # What they have open is of the board that was.
                for pid in processes:
                    self._kill(pid)
                processes = [self._start(shared) for _ in range(_PROCESSES)]
        for pid in processes:
            self._kill(pid)
        for fd in shared:
            os.close(fd)
        self._take_reports()

    def _open_shared(self) -> list[int]:
        """Files that all processes have."""
        picoevb.until(lambda: os.path.exists("/dev/picoevb"))
        shared: list[int] = []
        deadline = time.monotonic() + PATIENCE
        while len(shared) < 2:
            try:
                shared.append(os.open("/dev/picoevb", os.O_RDWR | os.O_NONBLOCK))
            except OSError as error:
                # Memory may be too short for it at first.
                if error.errno != errno.ENOMEM or time.monotonic() > deadline:
                    raise
        return shared

    def _start(self, shared: list[int]) -> int:
        self._started += 1
        pid = os.fork()
        if not pid:
            try:
                _work(f"{self._seed}/{self._started}", shared, self._write)
            finally:
                os._exit(3)
        return pid

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _DEATH
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                break
            if time.monotonic() > deadline:
                where = "\n".join(p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/stack"))
                self.failures.append(f"a process does not die; it is in\n{where}")
                return
            time.sleep(0.01)
        if os.WIFEXITED(status):
            self.failures.append(f"a process ended with {os.WEXITSTATUS(status)} before its time")

    def _write_file(self, path: str, text: str) -> None:
        name = path.rpartition("/")[2]
        try:
            Path(path).write_text(text)
            self.counts[f"{name} ok"] += 1
        except OSError as error:
            self.counts[f"{name} {name_of(error.errno or 0)}"] += 1

    def _take_reports(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._read, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    with contextlib.suppress(json.JSONDecodeError):  # it was killed as it wrote
                        self.counts.update(json.loads(line))

    def check(self) -> None:
        """What programs see of the driver all along, and at the end."""
        # EBADF is of a descriptor that another thread closed.
        documented = {*ERRNOS.values(), "EBADF", "ok"}
        for what in self.counts:
            request, _, number = what.rpartition(" ")
            if request in Ioctl.__members__ and number not in documented:
                self.failures.append(f"{request} failed with {number}, which is not documented")
        try:
            picoevb.leaves_nothing()
        except (AssertionError, OSError) as error:
            self.failures.append(f"afterwards: {error!r}")


def main() -> None:
    """Fuzzes, then prints one JSON object; exit status 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rebind", action="store_true", help="take the driver from the board, too")
    parser.add_argument("--faults", type=int, metavar="PERCENT", help="of allocations that fail")
    arguments = parser.parse_args()
    fuzz = _Fuzz(arguments.seed, rebind=arguments.rebind)
    fuzz.begin()
    with injecting(arguments.faults) if arguments.faults else contextlib.nullcontext():
        fuzz.run(arguments.seconds)
    fuzz.check()
    counts = {
        name: dict(sorted(found.items()))
        for name, found in (("once", fuzz.once), ("counts", fuzz.counts))
    }
    print(json.dumps({**counts, "failures": fuzz.failures}))
    sys.exit(bool(fuzz.failures))


if __name__ == "__main__":
    main()
