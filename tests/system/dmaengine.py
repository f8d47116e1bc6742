# SPDX-License-Identifier: BSD-2-Clause
"""What tests of the kernel's own driver for XDMA use inside of a guest: boards, rings, memory."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from peerdma import regs
from tests.system.picoevb import PAGE, Buffer

#: As in driver/testing/dmaengine/xdma_client_uapi.h.
MEMORY = 1 << 17
#: Seconds without an interrupt, after which none is under way.
QUIET = 0.2
TIMEOUT = Path("/sys/module/xdma_client/parameters/timeout_ms")


class RingRequest(ctypes.Structure):
    """struct xdma_client_ring"""

    _fields_ = (
        ("card", ctypes.c_uint64),
        ("periods", ctypes.c_uint32),
        ("period", ctypes.c_uint32),
        ("to_card", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class State(ctypes.Structure):
    """struct xdma_client_state"""

    _fields_ = (
        ("callbacks", ctypes.c_uint64),
        ("terminate_ns", ctypes.c_uint64),
        ("residue", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


def _request(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | ord("X") << 8 | number


_START = _request(1, 0, ctypes.sizeof(RingRequest))
_STATE = _request(2, 1, ctypes.sizeof(State))
_STOP = _request(0, 2, 0)


class Client:
    """An open node of the client; a context manager."""

    def __init__(self, index: int = 0):
        self.fd = os.open(f"/dev/xdma_client{index}", os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def to_card(self, card: int, *segments: memoryview | bytes) -> None:
        """One H2C transfer of all segments, to consecutive card addresses; OSError if it fails."""
        assert os.pwritev(self.fd, segments, card) == sum(map(len, segments))

    def from_card(self, card: int, *segments: memoryview) -> None:
        """One C2H transfer from consecutive card addresses; OSError if it fails."""
        assert os.preadv(self.fd, segments, card) == sum(map(len, segments))

    def state(self) -> State:
        """How the ring is; OSError with EIO if it ended with an error."""
        state = State()
        fcntl.ioctl(self.fd, _STATE, state)
        return state

    @contextlib.contextmanager
    def ring(self, card: int, periods: int, period: int, *, to_card: bool = False) -> Iterator:
        """A cyclic transfer while the ``with`` block lasts."""
        request = RingRequest(card=card, periods=periods, period=period, to_card=to_card)
        fcntl.ioctl(self.fd, _START, request)
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Terminates the ring; the next transfer may start."""
        fcntl.ioctl(self.fd, _STOP)
        settle()

    def memory(self) -> mmap.mmap:
        """The memory of rings."""
        return mmap.mmap(self.fd, MEMORY)

    def terminate_ms(self) -> float:
        """What the last termination took, by the guest's clock."""
        return self.state().terminate_ns / 1e6


def pieces(memory: mmap.mmap | bytearray, places: Sequence[tuple[int, int]]) -> list[memoryview]:
    """Parts of memory by their offsets and lengths."""
    whole = memoryview(memory)
    return [whole[offset : offset + length] for offset, length in places]


@contextlib.contextmanager
def timeout(milliseconds: int) -> Iterator[None]:
    """The client terminates transfers after this time."""
    before = TIMEOUT.read_text()
    TIMEOUT.write_text(str(milliseconds))
    try:
        yield
    finally:
        TIMEOUT.write_text(before)


def completed(channel: int) -> int:
    """The first board's count of descriptors of a channel's last run, from its register."""
    resource = Path(f"/sys/class/misc/xdma_client0/device/resource{regs.BAR_DMA[0]}")
    with resource.open("rb") as file:
        size = regs.BAR_DMA[1]
        with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as bar:
            return memoryview(bar).cast("I")[
                (channel + regs.CHANNEL.address("completed_count")) // 4
            ]


def interrupts(name: str) -> int:
    """How often handlers ran whose names end so: "xdma-h2c-channel", "xdma-c2h-channel"."""
    lines = Path("/proc/interrupts").read_text().splitlines()
    words = [line.split() for line in lines if line.endswith(name)]
    return sum(int(word) for each in words for word in each[1:] if word.isdecimal())


def settle() -> None:
    """Waits until no interrupt of the driver came for a while; after each termination.

    The driver does not wait for the last interrupt of a channel that has stopped already. One that
    is handled when the next transfer is there, as a virtual machine's may be, fails that one:
    "channel error, status register value: 0x1".
    """
    handled = None
    while handled != (handled := interrupts("-channel")):
        time.sleep(QUIET)


def works() -> None:
    """That the first board moves data both ways."""
    source, target = Buffer(2 * PAGE), Buffer(2 * PAGE, b"")
    with Client() as client:
        client.to_card(0, *pieces(source.memory, [(1, PAGE), (PAGE + 99, 1000)]))
        client.from_card(0, *pieces(target.memory, [(2, 1000), (1003, PAGE)]))
    assert target[2:1002] + target[1003:5099] == source[1:4097] + source[4195:5195]


def call(module: str, function: str, arguments: dict[str, object]) -> None:
    """Calls a test, and checks that the first board works before and after."""
    works()
    getattr(importlib.import_module(module), function)(**arguments)
    works()
