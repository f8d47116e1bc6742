# SPDX-License-Identifier: BSD-2-Clause
"""device.cuh as C++, by threads: on its own, and on a simulated board with launch queues."""

import ctypes
import mmap
import random
import threading
import time
from pathlib import Path

import pytest

import peerdma
from peerdma.board.queue_memory import DEPTHS, QueueMemory
from peerdma.regs import FRAME_RECORD, LaunchStatus
from peerdma.testing import PatternSource
from peerdma.uapi import Reason
from tests.boards import options
from tests.host.board.launch_helpers import LAUNCHING, PAGES, Copies, Threads, compiled, kernel_end

#: What the functions return, as in device.cuh.
OK, PENDING, TIMEOUT, ENDED, NO_PLAN, LONG = 0, -1, -2, -3, -4, LaunchStatus.LONG
SIZES = (64, 4096, 10_001, 1)
MOMENT = ctypes.c_ulonglong(10_000_000)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("a folder"))


@pytest.fixture(scope="module", params=[(), PAGES], ids=["shadow", "page"])
def board(request):
    with peerdma.open("sim", arguments=(*LAUNCHING, *request.param)) as board:
        yield board


@pytest.fixture
def copies(board):
    with peerdma.gpu("emulated", memory="host") as gpu:
        yield Copies(board, gpu.surface, SIZES)


def test_the_struct_is_what_the_library_hands_out(library):
    found = (ctypes.c_uint * (len(peerdma.DeviceQueue._fields_) + 1))()
    library.layout(found)
    size, *offsets = found
    assert size == ctypes.sizeof(peerdma.DeviceQueue)
    names = [name for name, *_ in peerdma.DeviceQueue._fields_]
    assert offsets == [getattr(peerdma.DeviceQueue, name).offset for name in names]


@pytest.mark.parametrize("page", [False, True])
@pytest.mark.parametrize("depth", [DEPTHS[0], DEPTHS[-1]])
@pytest.mark.parametrize("threads", [1, 5])
def test_no_entry_is_lost_and_none_announced_too_early(library, depth, threads, page):
    """Through 2^32, where the tail wraps, too; no doorbell says of another that it is next."""
    memory, doorbell = QueueMemory(depth), ctypes.c_uint64()
    memory.start(2**32 - 300)
    address = ctypes.addressof(doorbell) if page else 0
    queue = memory.device(memory.pages.address, 7, [3, 63, 8], address)
    limit = ctypes.c_ulonglong(120_000_000_000)
    assert library.race(ctypes.byref(queue), threads, 900, limit) == 0


@pytest.mark.parametrize("driver", ["kernel", "user-space"])
def test_the_end_is_told_right_in_the_order_of_each_driver(library, tmp_path, driver):
    """Who waits for a ticket that the board did is told so, and each other one that it was not."""
    kernel = kernel_end(tmp_path) if driver == "kernel" else None
    limit = ctypes.c_ulonglong(60_000_000_000)
    for turn in range(200):
        memory = QueueMemory(8)
        memory.start(2**32 - 2)

        def end(memory=memory):
            if kernel:
                kernel(memory, Reason.RESET, LaunchStatus.FLUSHED)
            else:
                memory.end(Reason.RESET)

        queue = memory.device(memory.pages.address, 7, [0])
        call = ctypes.CFUNCTYPE(None)(end)
        assert library.ending(ctypes.byref(queue), 4, turn % 5, limit, call) == 0


def test_threads_submit_and_see_every_copy(library, board, copies, seed):
    rng = random.Random(seed)
    plans = [rng.randrange(len(SIZES)) for _ in range(320)]
    with board.queue(copies.plans, depth=8) as queue:
        device = queue.device
        tickets, results = Threads(library).work(device, plans, 4)
        assert results == [OK] * len(plans)
        first = min(ticket + (ticket < 1 << 31) * (1 << 32) for ticket in tickets)
        expected = [(first + n) % (1 << 32) for n in range(len(plans))]
        assert sorted(tickets) == sorted(expected) and 0 in tickets
        assert all(copies.right(index) for index in set(plans))
        stats = queue.stats()
        assert (stats.submitted, stats.completed, stats.first_error) == (320, 320, 0)


def test_a_thread_sees_the_bytes_of_its_own_copy(library, board, copies):
    with board.queue(copies.plans) as queue:
        for index in range(len(SIZES)):
            copies.fill()
            _, results = Threads(library).work(queue.device, [index], 1)
            assert results == [OK] and copies.right(index)


def test_a_thread_learns_of_a_frame_that_is_too_long(library):
    """That is no failure: the next tickets take the next frames."""
    with (
        peerdma.open("sim", arguments=options("receiver")) as board,
        peerdma.gpu("emulated", memory="host") as gpu,
    ):
        plans = [
            board.prepare_receive(gpu.surface(nbytes), gpu.surface(1, FRAME_RECORD))
            for nbytes in (99, 100)
        ]
        PatternSource(board).start(100)
        with board.queue(plans) as queue:
            _, results = Threads(library).work(queue.device, [0, 1, 0, 0, 1], 1)
            assert results == [LONG, OK, LONG, LONG, OK]
            queue.check()
    header = Path(peerdma.include_dir(), "peerdma/device.cuh").read_text()
    assert f"PEERDMA_LONG = {LONG:d}," in header


def test_a_page_that_is_smaller_than_the_kernels_is_not_mapped(board, copies, monkeypatch):
    monkeypatch.setattr("peerdma.vfio_user.platform.DOORBELL_STRIDE", mmap.PAGESIZE // 2)
    with board.queue(copies.plans) as queue:
        assert queue.device.doorbell == 0
        assert "a kernel whose pages have 4 KiB" in queue.doorbell


def test_a_thread_rings_by_the_page_alone(library):
    """Neither shadow tail nor ring has anything: the page brings the entry along."""
    nothing, entries = ctypes.c_uint32(), (ctypes.c_uint64 * 8)()
    with (
        peerdma.open("sim", arguments=(*LAUNCHING, *PAGES)) as board,
        peerdma.gpu("emulated", memory="host") as gpu,
    ):
        copies = Copies(board, gpu.surface, SIZES)
        # The second queue has the second page.
        with board.queue(copies.plans, depth=8), board.queue(copies.plans, depth=8) as queue:
            device = queue.device
            assert queue.doorbell == "page of registers"
            device.tail, device.entries = ctypes.addressof(nothing), ctypes.addressof(entries)
            plans = [0, 1, 2, 3] * 5
            _, results = Threads(library).work(device, plans, 1)
            assert results == [OK] * len(plans) and nothing.value
            assert all(copies.right(index) for index in set(plans))
            # Another generation
            word = ctypes.c_uint64.from_address(device.doorbell)
            word.value = (device.generation ^ 1) << 16 | 5
            until = time.monotonic() + 30
            while not queue.stats().ignored:
                assert time.monotonic() < until
            word.value = device.generation << 16 | queue._memory.drawn() + 9 & 0xFFFF
            while not (ended := queue.stats().ended):
                assert time.monotonic() < until
            assert "further ahead than the queue is deep" in ended
        # Whoever has the page of a queue that was closed rings for nobody.
        with pytest.raises(ValueError, match="closed"):
            queue._run.page.memory[0]


def test_the_library_copies_beside_the_threads(library, board, copies):
    with peerdma.gpu("emulated", memory="host") as gpu:
        mine = Copies(board, gpu.surface, [30_000], seed=5)
        with board.queue(copies.plans, depth=8) as queue:
            device, found = queue.device, []
            plans = [0, 1, 2] * 40
            working = threading.Thread(
                target=lambda: found.append(Threads(library).work(device, plans, 2))
            )
            working.start()
            made = 0
            while working.is_alive() or not made:
                mine.fill()
                mine.plans[0].run()
                assert mine.right(0)
                made += 1
            working.join()
        ((_, results),) = found
        assert results == [OK] * len(plans)
        assert all(copies.right(index) for index in range(3))


def test_what_is_wrong_comes_back_in_time(library, board, copies):
    ticket = ctypes.c_uint(77)
    with board.queue(copies.plans, depth=8) as queue:
        device = queue.device
        submit = library.submit
        arguments = ctypes.byref(ticket), MOMENT
        assert submit(ctypes.byref(device), len(SIZES), *arguments) == NO_PLAN
        assert ticket.value == 77
        # A ticket that nobody has drawn
        assert library.test(ctypes.byref(device), queue._memory.first) == PENDING
        assert library.wait(ctypes.byref(device), queue._memory.first, MOMENT) == PENDING
        # The board waits for an answer that only this thread could give
    with board.queue([board.prepare(bytearray(5000), bytearray(5000))], depth=8) as queue:
        device = queue.device
        with board._lock:
            found = [submit(ctypes.byref(device), 0, *arguments) for _ in range(9)]
        assert found == [OK] * 8 + [TIMEOUT]
        last = queue._memory.drawn() - 1
        queue.wait(last)
        assert library.wait(ctypes.byref(device), last, MOMENT) == OK
    assert submit(ctypes.byref(device), 0, *arguments) == ENDED


@pytest.mark.parametrize("by", ["queue", "board"])
def test_threads_that_wait_learn_of_the_end(library, by):
    with peerdma.open("sim", arguments=LAUNCHING) as board:
        queue = board.queue([board.prepare(bytearray(900_000), bytearray(900_000))], depth=8)
        device, found = queue.device, []
        working = threading.Thread(
            target=lambda: found.append(Threads(library).work(device, [0] * 64, 8))
        )
        with board._lock:
            working.start()
            while queue._memory.drawn() == queue._memory.first:
                time.sleep(0.001)
        began = time.monotonic()
        (queue if by == "queue" else board).close()
        working.join(60)
        assert not working.is_alive() and time.monotonic() - began < 30
        ((_, results),) = found
        assert set(results) <= {OK, LaunchStatus.ABORTED, ENDED} and ENDED in results
