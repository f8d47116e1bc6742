# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues behind the kernel driver, against a stand-in for the driver."""

import ctypes
import errno
import mmap
import os
import time

import numpy as np
import pytest

import peerdma
from peerdma.kernel.node import KernelNode
from peerdma.regs import LAUNCH_QUEUE, LaunchEnd, LaunchStatus
from peerdma.uapi import Access, Feature, Ioctl, Op, PrepareFlag, QueueWord, Reason
from tests.host.cuda.fake_cuda import Result, is_present
from tests.host.kernel.fake_launches import FIRST, GENERATION

NAMES = ("PIN_PAGES", "UNPIN_CUDA", "CREATE_QUEUE", "PREPARE", "UNPREPARE", "DESTROY_QUEUE")


@pytest.fixture
def driver(node_driver):
    """A driver whose board has a launch queue."""
    node_driver.launch_count = 1
    return node_driver


@pytest.fixture
def pins(driver, node_board):
    """Pins of a source and of a destination."""
    with node_board.pin(np.zeros(600, "u1")) as source, node_board.pin(np.ones(600, "u1")) as there:
        yield source, there


def names(driver) -> list[str]:
    return [name for name, _ in driver.named(*NAMES)]


def ended(queue):
    until = time.monotonic() + 20
    while not queue.stats().ended:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_driver_chooses_the_ticket_and_the_slots(driver, node_board, pins):
    source, there = pins
    plans = [
        node_board.prepare(source, there),
        node_board.prepare(source[8:72], there[100:164]),
        node_board.prepare_write(source[1:6], 4000),
        node_board.prepare_read(there[2:8], 5000),
    ]
    driver.calls.clear()
    with node_board.queue(plans, depth=8) as queue:
        memory, request = queue._memory, driver.queue.request
        assert driver.named("PIN_PAGES")[0][1]["access"] == Access.READ | Access.WRITE
        assert (memory.first, memory.drawn(), request.depth) == (FIRST, FIRST, 8)
        assert memory._row["published"][0] == FIRST and memory.record(FIRST) is None
        assert sorted(memory._row["written"][:8]) == list(range(FIRST - 8, FIRST))
        slots = [4, 6, 8, 10]
        assert (queue.device.generation, list(queue.device.slots[:4])) == (GENERATION, slots)
        here, to = source.handle.number, there.handle.number
        for number, op, handles, offsets, length in (
            (1, Op.COPY, (here, to), (8, 100), 64),
            (2, Op.H2C, (here, 0), (1, 4000), 5),
            (3, Op.C2H, (0, to), (5000, 2), 6),
        ):
            job = driver.queue.jobs[slots[number]]
            assert (job.op, job.src_handle, job.dst_handle) == (op, *handles)
            assert (job.src_offset, job.dst_offset, job.length) == (*offsets, length)
            assert (job.flags, job.done) == (PrepareFlag.DONE, memory.offset("done") + 4 * number)
        stats = queue.stats()
        assert (stats.submitted, stats.ended, stats.ignored, stats.cycles) == (0, "", 2, None)
    prepared = ["PREPARE"] * 4
    expected = ["PIN_PAGES", "CREATE_QUEUE", *prepared, "DESTROY_QUEUE", "UNPIN_CUDA"]
    assert names(driver) == expected
    queue.close()
    assert names(driver) == expected and not node_board._backend._jobs.listeners


@pytest.mark.parametrize("known", [True, False])
def test_copies_overlap_where_the_driver_knows_of_it(driver, known):
    """Those that read nothing that another one writes, and write nothing that one reads."""
    driver.info.features |= Feature.OVERLAP * known
    with peerdma.open(driver.path) as board, board.pin(np.zeros(400, "u1")) as pin:
        plans = [
            board.prepare(pin[:100], pin[100:200]),
            board.prepare(pin[150:250], pin[300:400]),
            board.prepare(pin[:50], pin[250:300]),
            board.prepare_read(pin[:50], 0),
        ]
        with board.queue(plans):
            jobs = [driver.queue.jobs[slot] for slot in (4, 6, 8, 10)]
            found = [PrepareFlag.OVERLAP in PrepareFlag(job.flags) for job in jobs]
            assert found == [False, False, known, False]


def test_what_cannot_be_a_queue(driver, node_board, pins):
    source, there = pins
    many = node_board.prepare(source, [there[:100], there[:0], there[100:]])
    with pytest.raises(peerdma.UnsupportedError, match="a plan of 2 pieces of memory"):
        node_board.queue([many])
    one = node_board.prepare(source[:100], [there[:100], there[:0]])
    with node_board.queue([one]), pytest.raises(peerdma.UnsupportedError, match="all 1 launch"):
        node_board.queue([one])


def test_nothing_is_left_of_a_queue_that_could_not_be_opened(driver, node_board, pins):
    plan = node_board.prepare(*pins)
    before = dict(driver.pins)
    driver.failures[Ioctl.PREPARE] = 1, errno.ENOSPC
    with pytest.raises(peerdma.UnsupportedError, match=r"PREPARE.* docs/launch\.md"):
        node_board.queue([plan, plan])
    assert (driver.pins, driver.queue) == (before, None)
    assert not node_board._backend._jobs.listeners
    driver.failures[Ioctl.CREATE_QUEUE] = 0, errno.ENOTTY
    with pytest.raises(peerdma.VersionMismatch, match="same release"):
        node_board.queue([plan])
    assert driver.pins == before


def test_a_pin_leaves_its_slot_before_it_is_closed(driver, node_board, pins):
    """Also a second one of the same plan, whose slot is gone then."""
    with node_board.queue([node_board.prepare(*pins)]):
        driver.calls.clear()
        for pin in pins:
            pin.close()
        assert names(driver) == ["UNPREPARE", "UNPIN_CUDA"] * 2
        assert not driver.queue.jobs


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        (Reason.RESET, peerdma.TransferError, "the board was reset"),
        (Reason.REVOKED, peerdma.PinError, "freed or moved by its owner"),
        (Reason.BUSY, peerdma.TransferError, "a ring of frames"),
        (Reason.TIMEOUT, peerdma.TransferError, "with smaller plans"),
        (Reason.LOST, peerdma.BoardLost, "the board went away"),
        (Reason.ENGINE, peerdma.TransferError, "never came"),
    ],
)
def test_an_end_by_the_driver_is_told_once(driver, node_board, pins, reason, kind, words):
    """Its event is read beside those of transfers; there is no queue to be destroyed then."""
    plan = node_board.prepare(*pins)
    end = LAUNCH_QUEUE["state"].field("end").put(LaunchEnd.ENTRY)
    with node_board.queue([plan], depth=8) as queue:
        tickets = [queue.submit(0) for _ in range(4)]
        driver.end_queue(reason, result=-errno.EIO, status=end)
        ended(queue)
        for ticket in tickets:
            with pytest.raises(peerdma.Cancelled, match=f"was not started: .*{words}"):
                queue.wait(ticket)
        with pytest.raises(kind, match=f"the queue has ended: .*{words}"):
            queue.submit(0)
        assert words in repr(queue)
        plan.run()
        driver.calls.clear()
    assert names(driver) == ["UNPIN_CUDA"]
    assert QueueWord.REASON.get(queue._memory.word()) == reason
    with node_board.queue([plan]) as another:
        assert not another.stats().ended


@pytest.mark.parametrize("call", ["wait", "stats", "resume"])
def test_an_end_whose_event_nobody_has_read(driver, node_board, pins, call):
    """The driver knows the queue until then, and says why it has ended."""
    with node_board.queue([node_board.prepare(*pins)], depth=8) as queue:
        ticket = queue.submit(0)
        with node_board._lock:  # else the queue's thread reads it
            driver.end_queue(Reason.RESET, result=-errno.EIO)
            if call == "stats":
                assert "the board was reset" in queue.stats().ended
            else:
                with pytest.raises(peerdma.TransferError, match="the board was reset"):
                    queue.resume() if call == "resume" else queue.wait(ticket)
        node_board.prepare(*pins).run()  # its event is behind that one
        driver.calls.clear()
    assert names(driver) == ["UNPIN_CUDA"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (LaunchStatus.FLUSHED, "was not started, as an earlier one failed with slot"),
        # It was under way with that one.
        (LaunchStatus.ABORTED, "is undefined, as an earlier one failed with slot"),
    ],
)
def test_an_error_is_kept_until_resume(driver, node_board, pins, status, words):
    with node_board.queue([node_board.prepare(*pins)], depth=8) as queue:
        ticket = queue.submit(0)
        driver.queue.state = QueueWord.STATUS.put(LaunchStatus.SLOT)
        assert queue.stats().first_error == LaunchStatus.SLOT
        queue._memory._records[ticket % 8] = ticket | status << 32
        with pytest.raises(peerdma.TransferError, match=words) as raised:
            queue.wait(ticket)
        assert raised.type is peerdma.TransferError
        queue.resume()
        assert queue.stats().first_error == 0


def test_a_board_that_is_gone(driver, node_board, pins):
    with node_board.queue([node_board.prepare(*pins)]) as queue:
        driver.unplug()
        ended(queue)
        with pytest.raises(peerdma.BoardLost, match="the board went away"):
            queue.submit(0)


@pytest.fixture
def page(driver, monkeypatch):
    """The page of a queue's doorbell, as the driver would map it; and what was mapped."""
    memory, mapped = mmap.mmap(-1, 4096), []
    driver.doorbell = 1 << 41

    def maps(_, offset, length):
        mapped.append((offset, length))
        return memory

    monkeypatch.setattr(KernelNode, "map", maps)
    return memory, mapped


def address(page: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def test_the_page_of_a_doorbell_for_threads(node_board, pins, page):
    with node_board.queue([node_board.prepare(*pins)], depth=8) as queue:
        assert page[1] == [(1 << 41, 4096)]
        assert queue.doorbell == "shadow tail: its page is not mapped before `device` is read"
        assert queue.device.doorbell == address(page[0])
        assert queue.doorbell == "page of registers"
        assert not page[0].closed
    assert page[0].closed  # else it would keep the node open


def test_the_page_of_a_doorbell_for_cuda(node_board, pins, page, device_gpu, cuda_api):
    """It is touched before CUDA looks for it, and given back with the queue."""
    memory, _ = page
    with node_board.queue([node_board.prepare(*pins)], depth=8, gpu=device_gpu) as queue:
        assert not is_present(address(memory))
        registered = cuda_api.named("cuMemHostRegister")
        assert queue.device.doorbell
        # CU_MEMHOSTREGISTER_IOMEMORY with PORTABLE and DEVICEMAP.
        assert (address(memory), 4096, 7) in cuda_api.named("cuMemHostRegister")
        assert len(registered) < len(cuda_api.named("cuMemHostRegister"))
        assert is_present(address(memory)) and queue.doorbell == "page of registers"
        at = address(memory)
        assert (at,) not in cuda_api.named("cuMemHostUnregister")
    assert (at,) in cuda_api.named("cuMemHostUnregister") and memory.closed


def test_a_doorbell_that_cuda_cannot_map(node_board, pins, page, device_gpu, cuda_api):
    """The shadow tail is there all the same."""
    with node_board.queue([node_board.prepare(*pins)], depth=8, gpu=device_gpu) as queue:
        cuda_api.failures["cuMemHostRegister"] = 1, Result.CUDA_ERROR_NOT_SUPPORTED
        assert queue.device.doorbell == 0 and queue.device.tail
        assert queue.doorbell.startswith("shadow tail: cannot map the page of a doorbell: ")
        assert "registers on this kernel" in queue.doorbell


def test_the_page_of_a_doorbell_for_other_devices(driver, node_board, pins, page):
    with node_board.queue([node_board.prepare(*pins)]) as queue:
        fd = queue.export_doorbell()
        assert f"exported {driver.queue.number}" in os.readlink(f"/proc/self/fd/{fd}")
        os.close(fd)
        driver.doorbell = 0
        words = "cannot export a doorbell: this file gets no doorbell.*docs/driver.md"
        with pytest.raises(peerdma.UnsupportedError, match=words):
            queue.export_doorbell()
    with pytest.raises(peerdma.PeerdmaError, match="closed"):
        queue.export_doorbell()


def test_why_there_is_no_page(driver, node_board, pins, monkeypatch):
    plan = node_board.prepare(*pins)
    with node_board.queue([plan]) as queue:
        assert queue.device.doorbell == 0
        assert "CAP_SYS_RAWIO" in queue.doorbell and "doorbell_pages=1" in queue.doorbell
    monkeypatch.setattr("peerdma.kernel.launch.DOORBELL_STRIDE", mmap.PAGESIZE // 2)
    with node_board.queue([plan]) as queue:
        assert f"pages of this kernel are {mmap.PAGESIZE} bytes" in queue.doorbell
