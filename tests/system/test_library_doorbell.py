# SPDX-License-Identifier: BSD-2-Clause
"""device.cuh on the kernel driver: threads of C++ in a guest, which ring by page or shadow tail."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import numpy as np
import pytest

import peerdma
from sim.system import Guest
from sim.system.board import ROOT
from tests.host.board.launch_helpers import Copies, Threads, compiled
from tests.system.launching import WITH_QUEUES
from tests.system.picoevb import leaves_nothing, user

GUEST = WITH_QUEUES
pytestmark = pytest.mark.system

NODE = "/dev/picoevb"
SIZES = (64, 4096, 10_001)
_PATIENCE = 150.0


def by_threads(library: str, page: bool) -> None:
    """Copies that threads start, by the page alone or by the shadow tail.

    One thread at a time rings for the next ticket of a queue that has none: by the page, its entry
    comes along in one access. The one in the ring is out of the board's sight.
    """
    with peerdma.open(NODE) as board:
        copies = Copies(board, lambda size: np.zeros(size, np.uint8), SIZES)
        with board.queue(copies.plans, depth=8) as queue:
            device, other = queue.device, ctypes.c_uint32()
            assert queue.doorbell.startswith("page of registers" if page else "shadow tail: ")
            assert bool(device.doorbell) == page
            if page:
                device.tail = ctypes.addressof(other)
            plans = [0, 1, 2] * 10
            _, results = Threads(ctypes.CDLL(library)).work(device, plans, 3)
            assert results == [0] * len(plans)
            assert all(map(copies.right, range(len(SIZES))))
            assert queue.stats().ignored == 0
            assert bool(queue._memory._row["tail"]) != page
            if page:
                entries = (ctypes.c_uint64 * 8)()
                device.entries = ctypes.addressof(entries)
                copies.fill()
                _, results = Threads(ctypes.CDLL(library)).work(device, plans, 1)
                assert results == [0] * len(plans)
                assert all(map(copies.right, range(len(SIZES))))
                assert all(entries)


def in_guest(library: str) -> None:
    """As root, who gets a page, and as another user, who does not."""
    by_threads(library, True)
    with user(1000):
        by_threads(library, False)
    leaves_nothing()


def test_threads_ring_in_a_guest(guest: Guest):
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        compiled(Path(folder))
        code = f"from tests.system.test_library_doorbell import in_guest\nin_guest({folder!r} "
        guest.python(code + "+ '/producers.so')", _PATIENCE)
