# SPDX-License-Identifier: BSD-2-Clause
"""What tests use inside of a guest: the driver's node, memory, modules and processes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import mmap
import os
import re
import select
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from peerdma import uapi
from peerdma.emulated.simulated_gpu import NODE
from peerdma.uapi import Access, Event, Info, Ioctl, MapInfo, Op, Submit
from tests.system.simgpu import PATIENCE, Gpu

BOTH = Access.READ | Access.WRITE
PAGE = 4096
GPU_PAGE = 65536
#: Card address of the user stream.
STREAM = 1 << 63
#: Bytes of a job that takes the board many seconds.
LASTING = 16 << 20
DRIVER = Path("/sys/bus/pci/drivers/peerdma")


class Buffer:
    """Host memory of this process: whole pages, with an address; shared with its children."""

    def __init__(self, size: int, content: bytes | None = None, flags: int = mmap.MAP_SHARED):
        self.memory = mmap.mmap(-1, size, flags | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.memory[:] = os.urandom(size) if content is None else content.ljust(size, b"\0")

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, place: slice) -> bytes:
        return self.memory[place]

    def __setitem__(self, place: slice, content: bytes) -> None:
        self.memory[place] = content


class Later:
    """Calls something in half a second; `begun` says whether it has."""

    def __init__(self, call: Callable, *arguments: object):
        self.begun = False
        self._call, self._arguments = call, arguments
        threading.Timer(0.5, self._run).start()

    def _run(self) -> None:
        self.begun = True
        self._call(*self._arguments)


class Node:
    """An open node of the driver; a context manager."""

    def __init__(self, path: str = "/dev/picoevb", flags: int = 0, mode: int = os.O_RDWR):
        self.fd = os.open(path, mode | os.O_CLOEXEC | flags)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes it; again does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def request(self, code: int, argument):
        """Makes a request and returns its structure; OSError if the driver refuses."""
        fcntl.ioctl(self.fd, code, argument)
        return argument

    def info(self) -> Info:
        """What the driver tells."""
        return self.request(Ioctl.GET_INFO, Info())

    def refuses(self, number: int, words: str, code: int, argument) -> None:
        """That a request fails with an errno, and these words (a pattern) say why."""
        with self.refused(number, words):
            self.request(code, argument)

    @contextlib.contextmanager
    def refused(self, number: int, words: str) -> Iterator[None]:
        """That what is within fails with an errno, and these words (a pattern) say why."""
        failed = 0
        try:
            yield
        except OSError as error:
            failed = error.errno or 0
        info = self.info()
        found = failed, info.last_errno, info.last_error.decode()
        assert found[:2] == (number, number), (found, errno.errorcode[number])
        assert re.search(words, found[2]), (found, words)

    # Pins ------------------------------------------------------------------------------------

    def pages(self, buffer: Buffer, start: int = 0, length: int = 0, access: int = BOTH) -> int:
        """Pins host memory: a handle."""
        length = length or len(buffer) - start
        pin = uapi.PinPages(address=buffer.address + start, length=length, access=access)
        return self.request(Ioctl.PIN_PAGES, pin).handle

    def cuda(self, va: int, length: int) -> int:
        """Pins by CUDA pointer: a handle."""
        return self.request(Ioctl.PIN_CUDA, uapi.PinCuda(va=va, size=length)).handle

    def dmabuf(self, fd: int, **more: int) -> int:
        """Pins a dma-buf: a handle."""
        return self.request(Ioctl.PIN_DMABUF, uapi.PinDmabuf(fd=fd, access=BOTH, **more)).handle

    def unpin(self, handle: int) -> None:
        """Takes a handle away."""
        self.request(Ioctl.UNPIN_CUDA, uapi.UnpinCuda(handle=handle))

    def query(self, handle: int) -> uapi.Query:
        """What is known of pinned memory."""
        return self.request(Ioctl.QUERY, uapi.Query(handle=handle))

    def place(self, handle: int) -> MapInfo:
        """How pinned memory is mapped."""
        return self.request(Ioctl.MAP_INFO, MapInfo(handle=handle))

    def map(self, handle: int) -> mmap.mmap:
        """Maps pinned memory: whole pages."""
        place = self.place(handle)
        return mmap.mmap(self.fd, place.length, offset=place.offset)

    def mailbox_place(self) -> MapInfo:
        """How the mailbox page is mapped."""
        return self.request(Ioctl.MAP_INFO, MapInfo(flags=uapi.MapFlag.MAILBOX))

    def mailbox(self) -> mmap.mmap:
        """Maps the mailbox page."""
        place = self.mailbox_place()
        return mmap.mmap(self.fd, place.length, offset=place.offset)

    # Transfers -------------------------------------------------------------------------------

    def h2c(self, source: int, card: int, length: int, flags: int = 0) -> int:
        """Copies to the card and waits; nanoseconds."""
        dma = uapi.H2cDma(src=source, dst=card, len=length, flags=flags)
        return self.request(Ioctl.H2C_DMA, dma).dma_time_ns

    def c2h(self, card: int, destination: int, length: int, flags: int = 0) -> int:
        """Copies from the card and waits; nanoseconds."""
        dma = uapi.C2hDma(src=card, dst=destination, len=length, flags=flags)
        return self.request(Ioctl.C2H_DMA, dma).dma_time_ns

    def h2c2h(self, source: int, destination: int, length: int, flags: int = 0) -> int:
        """Copies memory to memory and waits; nanoseconds."""
        dma = uapi.H2c2hDma(src=source, dst=destination, len=length, flags=flags)
        return self.request(Ioctl.H2C2H_DMA, dma).dma_time_ns

    def submit(self, op: Op, length: int, **more: int) -> int:
        """Queues a job: its number."""
        return self.request(Ioctl.SUBMIT, Submit(op=op, length=length, **more)).job

    def load(self, handle: int, count: int, length: int = GPU_PAGE) -> list[int]:
        """Queues jobs that read pinned memory; their numbers."""
        more = {"src_handle": handle}
        return [self.submit(Op.H2C, length, user_data=n, **more) for n in range(count)]

    def hang(self, handle: int) -> int:
        """Queues a job that reads memory in two, of which `HUNG` loses the second: its number.

        What was asked for by lost reads keeps taking room for completions, and jobs that find
        none fail at once instead of hanging: so it is little.
        """
        return self.submit(Op.H2C, SMALL, src_handle=handle, src_offset=AT_END)

    def endless(self, handle: int, **names: int) -> int:
        """Queues a job that waits for ever: for data of the user stream, which nobody sends."""
        return self.submit(Op.C2H, PAGE, dst_handle=handle, src_offset=STREAM, **names)

    def lasting(self) -> int:
        """Queues a copy that lasts for longer than a test is kept from the processor: its number.

        For tests that stop it: it takes seconds however fast the board is simulated.
        """
        handle = self.pages(Buffer(2 * LASTING, b""))
        both = {"src_handle": handle, "dst_handle": handle, "dst_offset": LASTING}
        return self.submit(Op.COPY, LASTING, **both)

    def cancel(self, job: int) -> None:
        """Has a job stopped."""
        self.request(Ioctl.CANCEL, uapi.Cancel(job=job))

    def events(self, count: int, patience: float = PATIENCE) -> list[Event]:
        """The next events: `count`, and not later than in `patience` seconds."""
        found: list[Event] = []
        deadline = time.monotonic() + patience
        # select() takes no descriptor above 1023.
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while len(found) < count:
            left = deadline - time.monotonic()
            assert left > 0, f"{len(found)} of {count} events came: {results(found)}"
            if poll.poll(left * 1000):
                data = os.read(self.fd, 64 * (count - len(found)))
                found += [Event.from_buffer_copy(data, at) for at in range(0, len(data), 64)]
        return found


#: The node of a board that answers nothing from its second read of memory on, so that no means but
#: a reset stops what it has begun, and whose time is the machine's.
HUNG = "/dev/picoevb1"
#: Milliseconds for which a job hangs there before it is late, where something else is to end it.
LATER = 60000
#: A guest that has it as its second board. With MSI, since the drivers then see two kinds of
#: interrupt; from the start on, since to plug one in takes lockdep away from the debug kernel.
WITH_HUNG_BOARD = {
    "configuration": "identity",
    "further_boards": [["--no-msix", "--fault", "hang@2", "--time-scale", "1"]],
}


#: Bytes, and their place in memory, that are read in two.
SMALL = 64
AT_END = PAGE - SMALL // 2


@contextlib.contextmanager
def hangs(gpu: Gpu, timeout_ms: int = 1) -> Iterator[tuple[Node, int, int]]:
    """A job that hangs and cannot be stopped: its node, the handle of GPU memory, its number.

    It is late at once: where it is still to hang later on, give it more time.
    """
    with setting("peerdma", "timeout_ms", timeout_ms), Node(HUNG) as node:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        yield node, handle, node.hang(handle)


def results(events: list[Event]) -> list[tuple[int, int]]:
    """Result and reason of each event."""
    return [(-event.result, event.reason) for event in events]


# The machine ---------------------------------------------------------------------------------


def parameter(module: str, name: str) -> Path:
    """The file of a module's parameter."""
    return Path(f"/sys/module/{module}/parameters/{name}")


@contextlib.contextmanager
def setting(module: str, name: str, value: object) -> Iterator[None]:
    """A module's parameter has another value within."""
    file = parameter(module, name)
    before = file.read_text().strip()
    file.write_text(str(value))
    try:
        yield
    finally:
        # A line even of nothing, as nothing at all is not written.
        file.write_text(f"{before}\n")


def shell(command: str) -> str:
    """Runs a shell command; AssertionError if it fails."""
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def remove(name: str) -> None:
    """Unloads a module, once what was pinned with it has been given back."""
    until(lambda: Path(f"/sys/module/{name}/refcnt").read_text() == "0\n")
    shell(f"rmmod {name}")


@contextlib.contextmanager
def module(name: str, parameters: str = "", *, instead: str = "") -> Iterator[None]:
    """A module is loaded with parameters within, instead of others; then those again."""
    for other in instead.split():
        remove(other)
    try:
        shell(f"insmod /run/guest/{name}.ko {parameters}")
        try:
            yield
        finally:
            remove(name)
    finally:
        for other in reversed(instead.split()):
            shell(f"insmod /run/guest/{other}.ko")


@contextlib.contextmanager
def callbacks() -> Iterator[None]:
    """NVIDIA's driver has no persistent pins, and those with callbacks are allowed."""
    with (
        setting("simgpu", "no_persistent", 1),
        module("peerdma_nvp2p", "callback=1", instead="peerdma_nvp2p"),
    ):
        yield


@contextlib.contextmanager
def tegra() -> Iterator[None]:
    """A machine whose GPU memory is pinned by Tegra's nv-p2p."""
    with (
        module("simtegra", instead="peerdma_nvp2p simgpu"),
        module("peerdma_nvp2p_tegra"),
    ):
        yield
        until(lambda: tegra_counts() == (0, 0))


def tegra_counts() -> tuple[int, int]:
    """Pinned and mapped by Tegra's nv-p2p."""
    return tuple(int(parameter("simtegra", n).read_text()) for n in ("tables", "mappings"))


def until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.01)


def child(function: Callable[[], object]) -> int:
    """Calls a function in a child process: its exit status, or minus the signal that ended it."""
    return ended(spawn(function))


def spawn(function: Callable[[], object]) -> int:
    """Starts a child process that calls a function; it ends with status 0, or 1 if that raises."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(pid: int) -> int:
    """Waits for a child process: its exit status, or minus the signal that ended it."""
    status = 0

    def gone() -> bool:
        nonlocal status
        found, status = os.waitpid(pid, os.WNOHANG)
        return found == pid

    until(gone)
    return os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def user(uid: int) -> Iterator[None]:
    """This process is another user's within, who has no capabilities and may open the boards."""
    nodes = list(Path("/dev").glob("picoevb*"))
    for node in nodes:
        node.chmod(0o666)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        for node in nodes:
            node.chmod(0o600)


def address_of_board(node: str = "picoevb") -> str:
    """PCI address of a board."""
    return Path(f"/sys/class/peerdma/{node}/device").resolve().name


def of_board(name: str, node: str = "picoevb") -> Path:
    """A file of the board's PCI function."""
    return Path("/sys/bus/pci/devices") / address_of_board(node) / name


def reset_function(node: str = "picoevb") -> None:
    """As an administrator would, through the PCI core."""
    of_board("reset", node).write_text("1")


@contextlib.contextmanager
def rebound(node: str = "picoevb") -> Iterator[None]:
    """The driver is unbound from a board within."""
    address = address_of_board(node)
    (DRIVER / "unbind").write_text(address)
    try:
        yield
    finally:
        (DRIVER / "bind").write_text(address)


# How tests are called ------------------------------------------------------------------------


def call(module: str, function: str, arguments: dict[str, object]) -> None:
    """Calls a test, and checks that nothing was left behind and the board works, before and after.

    What is needed for that is in memory then: a test may take the guest's root away.
    """
    leaves_nothing()
    getattr(importlib.import_module(module), function)(**arguments)
    # Expected errors hold frames, and so files and mappings: in cycles, from Python 3.12 on.
    gc.collect()
    leaves_nothing()


def leaves_nothing() -> None:
    """That nothing is pinned or mapped any more, and that the board copies."""
    with Node() as node:
        until(lambda: not node.info().pinned_bytes)
        assert node.info().state == uapi.BoardState.LIVE
        source, destination = Buffer(PAGE), Buffer(PAGE, b"")
        node.h2c2h(source.address, destination.address, PAGE)
        assert source[:] == destination[:]
    if os.path.exists(NODE):
        with Gpu() as gpu:
            until(lambda: gpu.counts()[:3] == (0, 0, 0))
