# SPDX-License-Identifier: BSD-2-Clause
"""Allocations and copies that fail inside the driver: in a guest with the debug kernel.

    python3 -m tests.system.faults

Does everything that a program can ask for with its first allocation (or copy to or from the
program) failing, then with its second, and so on until all of them succeed. Each failure has to be
one that a program can understand, and must leave nothing behind. Only what the driver does counts:
the kernel looks for it in the stack.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from peerdma import uapi
from peerdma.uapi import Ioctl, LegacyFlag, Op
from tests.system import launching, picoevb
from tests.system.picoevb import GPU_PAGE, PAGE, Buffer, Gpu, Node

__all__ = ["KINDS", "injecting", "main"]

KINDS = ("failslab", "fail_page_alloc", "fail_usercopy")
_DEBUG = Path("/sys/kernel/debug")
#: What a program can do something about: with less memory, or with right pointers.
_EXPECTED = {errno.ENOMEM, errno.EFAULT}
#: No request has so many.
_MOST = 1000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]


def _code(symbols: str) -> tuple[str, str]:
    """Where the functions are that a pattern of lines of /proc/kallsyms names."""
    lines = Path("/proc/kallsyms").read_text()
    found = re.findall(rf"^(\w+) [tT] {symbols}$", lines, re.MULTILINE)
    addresses = [int(address, 16) for address in found]
    return hex(min(addresses)), hex(max(addresses) + PAGE)


@contextlib.contextmanager
def injecting(percent: int = 0) -> Iterator[None]:
    """Within, what the driver does may fail: so many of all, or the one that fail-nth names."""
    within, without = _code(r".*\[peerdma\]"), _code(r"debug_dma_\w+")
    for kind in KINDS:
        settings: dict[str, object] = {"verbose": 0, "times": -1}
        settings |= {"require-start": within[0], "require-end": within[1]}
        # That would turn the checks of mappings off.
        settings |= {"reject-start": without[0], "reject-end": without[1]}
        if kind != "fail_usercopy":
            settings |= {"ignore-gfp-wait": "N"}
        if kind == "fail_page_alloc":
            settings |= {"ignore-gfp-highmem": "N", "min-order": 0}
        # Last: until then it would be of everything.
        settings |= {"probability": percent}
        for name, value in settings.items():
            (_DEBUG / kind / name).write_text(str(value))
    try:
        yield
    finally:
        for kind in KINDS:
            (_DEBUG / kind / "probability").write_text("0")


def _failing(number: int, action: Callable[[], object]) -> tuple[bool, OSError | None]:
    """Does `action` with the given allocation failing: whether there was one, and the error."""
    raised = None
    nth = os.open("/proc/self/fail-nth", os.O_RDWR)
    os.pwrite(nth, b"%d" % number, 0)
    try:
        action()
    except OSError as error:
        raised = error
    left = int(os.pread(nth, 20, 0))
    os.pwrite(nth, b"0", 0)
    os.close(nth)
    return not left, raised


def _each_failing(action: Callable[[], object]) -> int:
    """How many failures `action` has had, one at a time, before all was well."""
    for number in range(1, _MOST):
        met, error = _failing(number, action)
        if error is not None and (not met or error.errno not in _EXPECTED):
            raise AssertionError(f"with failure {number}, which was {met and 'met'}: {error!r}")
        if not met:
            return number - 1
    raise AssertionError(f"{_MOST} failures, and no end")


# What programs ask for ----------------------------------------------------------------------------


def _scenarios() -> Iterator[tuple[str, Callable[[], object]]]:
    """Names and what to do again and again; each clears up after itself if it succeeds."""
    node, gpu = Node(), Gpu()
    source, destination = Buffer(4 * PAGE), Buffer(4 * PAGE)
    memory = gpu.alloc(2 * GPU_PAGE)
    peer, host = gpu.export(memory), gpu.export_host(GPU_PAGE)
    s, d = node.pages(source), node.pages(destination)
    cuda = node.cuda(memory, GPU_PAGE)
    bell = os.eventfd(0, os.EFD_NONBLOCK)

    def pinned(pin: Callable[[], int]) -> Callable[[], None]:
        def action() -> None:
            node.unpin(pin())

        return action

    yield "open", lambda: os.close(os.open("/dev/picoevb", os.O_RDWR))
    yield "GET_INFO", node.info
    yield "CARD_INFO", lambda: node.request(Ioctl.CARD_INFO, uapi.CardInfo())
    yield "LED", lambda: node.request(Ioctl.LED, 5)
    yield "PIN_PAGES", pinned(lambda: node.pages(source))
    yield "PIN_CUDA", pinned(lambda: node.cuda(memory, GPU_PAGE))
    yield "PIN_DMABUF of a GPU", pinned(lambda: node.dmabuf(peer))
    yield "PIN_DMABUF of the host", pinned(lambda: node.dmabuf(host))
    yield "QUERY", lambda: node.query(s)
    yield "MAP_INFO", lambda: node.place(cuda)
    yield "H2C", lambda: node.h2c(source.address + 1, 0, 3 * PAGE)
    yield "C2H", lambda: node.c2h(0, destination.address + 1, 3 * PAGE)
    yield "H2C2H", lambda: node.h2c2h(source.address, destination.address, 4 * PAGE)
    yield "H2C of a handle", lambda: node.h2c(s, 0, PAGE, LegacyFlag.H2C_SRC_IS_HANDLE)

    def job() -> None:
        node.submit(Op.COPY, 2 * PAGE, src_handle=s, dst_handle=d)
        node.events(1)

    def jobs() -> None:
        copy = uapi.Submit(op=Op.COPY, length=PAGE, src_handle=s, dst_handle=d)
        copy.flags, copy.eventfd = uapi.SubmitFlag.EVENTFD, bell
        submits = (uapi.Submit * 2)(copy, copy)
        batch = uapi.SubmitBatch(submits=ctypes.addressof(submits), count=2)
        node.request(Ioctl.SUBMIT_BATCH, batch)
        if batch.error:
            raise OSError(-batch.error, "of a batch")
        node.events(2)

    def cancelled() -> None:
        number = node.submit(Op.H2C, 3 * PAGE, src_handle=s)
        # It may have ended.
        with contextlib.suppress(FileNotFoundError):
            node.request(Ioctl.CANCEL, uapi.Cancel(job=number))
        node.events(1)

    def drained(action: Callable[[], None]) -> Callable[[], None]:
        def done() -> None:
            try:
                action()
            except OSError:
                # A job may have been taken though its number could not be told.
                picoevb.until(lambda: not node.query(s).jobs)
                while select.select([node.fd], [], [], 0)[0]:
                    node.events(1)
                raise

        return done

    yield "SUBMIT and read", drained(job)
    yield "SUBMIT_BATCH and read", drained(jobs)
    yield "CANCEL", drained(cancelled)
    yield "USER_REGISTER", lambda: node.request(Ioctl.USER_REGISTER, uapi.UserRegister())
    yield "READ_CLOCK", lambda: node.request(Ioctl.READ_CLOCK, uapi.Clock())
    yield "RESET", lambda: node.request(Ioctl.RESET, uapi.Reset())

    def closed_in_the_middle() -> None:
        with Node() as other:
            other.submit(Op.H2C, 3 * PAGE, src_handle=other.pages(source))
            other.dmabuf(peer)

    def in_context() -> None:
        with Node() as other:
            other.request(Ioctl.SET_CONTEXT, uapi.Context(ram_length=PAGE))

    def ring() -> None:
        with Node() as other:
            frames = (uapi.Frame * 2)(*[uapi.Frame(handle=other.pages(source), length=PAGE)] * 2)
            request = uapi.StartRing(flags=uapi.RingFlag.FRESH, count=2)
            request.set_frames(frames)
            job = other.request(Ioctl.START_RING, request).job
            other.request(Ioctl.RELEASE_FRAMES, uapi.ReleaseFrames(job=job))

    def queue() -> None:
        with Node() as other:
            created = launching.Queue(other)
            copy = {"src_handle": other.pages(source), "dst_handle": other.pages(destination)}
            slot = created.prepare(Op.COPY, 3 * PAGE, 0, **copy)
            assert created.run(slot) == [0]
            created.unprepare(slot)
            created.resume()
            created.query()
            created.destroy()

    yield "CREATE_QUEUE and PREPARE", queue
    yield "SET_CONTEXT", in_context
    yield "START_RING and close", ring
    yield "close", closed_in_the_middle
    yield "mmap of a GPU", lambda: _touched(node, node.place(cuda))
    mailbox = uapi.MapInfo(flags=uapi.MapFlag.MAILBOX)
    yield "mmap of the mailbox", lambda: _touched(node, node.request(Ioctl.MAP_INFO, mailbox))
    node.close()
    gpu.close()
    for fd in (peer, host, bell):
        os.close(fd)


def _touched(node: Node, place: uapi.MapInfo) -> None:
    """Maps and touches, by the kernel's hand: it says EFAULT, and raises no SIGBUS."""
    view = mmap.mmap(node.fd, place.length, offset=place.offset)
    at = ctypes.addressof(ctypes.c_char.from_buffer(view))
    with open("/dev/zero", "rb", buffering=0) as zero:
        if _libc.read(zero.fileno(), at, 8) < 0:
            raise OSError(ctypes.get_errno(), "cannot be touched")


def main() -> None:
    """Does all of it; prints how many failures each request has had, as JSON."""
    met: dict[str, int] = {}
    failures: list[str] = []
    with injecting():
        for name, action in _scenarios():
            try:
                met[name] = _each_failing(action)
            except AssertionError as error:
                failures.append(f"{name}: {error}")
    try:
        picoevb.leaves_nothing()
    except (AssertionError, OSError) as error:
        failures.append(f"afterwards: {error!r}")
    print(json.dumps({"met": met, "failures": failures}))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
