# SPDX-License-Identifier: BSD-2-Clause
"""Frames and the user block behind the kernel driver, against a stand-in for the driver."""

import errno
import threading
import time

import numpy as np
import pytest

import peerdma
from peerdma.kernel import frames as kernel_frames
from peerdma.kernel import jobs
from peerdma.regs import FRAME_RECORD, Capability, WaitsFor
from peerdma.testing import pattern
from peerdma.uapi import Feature, Ioctl, Op, PrepareFlag, Reason, RingFlag

FRAME = 600


def user_block(name: str, taken: int, made: int) -> dict[str, int]:
    """Members of the driver's information for a user block."""
    letters = int.from_bytes(name.encode(), "little")
    return {"user_block": letters, "user_ratio": taken | made << 8}


@pytest.fixture
def driver(node_driver):
    """A driver whose board has a source of frames, with records."""
    told = user_block("PATN", 0, 1)
    told["capabilities"] = node_driver.info.capabilities | Capability.FRAME_RECORDS
    for name, value in told.items():
        setattr(node_driver.info, name, value)
    return node_driver


@pytest.fixture
def board(driver):
    with peerdma.open(driver.path) as board:
        yield board


@pytest.fixture
def half(node_driver):
    """A board whose user block makes two bytes of four."""
    for name, value in user_block("BF16", 4, 2).items():
        setattr(node_driver.info, name, value)
    with peerdma.open(node_driver.path) as board:
        yield board


def ring_of(count: int) -> list[np.ndarray]:
    return [np.zeros(FRAME, np.uint8) for _ in range(count)]


def test_frames_come_in_order_and_go_back_when_the_next_is_asked_for(driver, board):
    ring = ring_of(3)
    with board.frames(ring) as frames:
        assert (driver.ring.flags, len(driver.ring.frames)) == (RingFlag.FRESH, 3)
        assert driver.fill(5, seed=7) == 3
        for number in range(7):
            frame = next(frames)
            assert (frame.number, frame.record.number) == (number, number)
            assert frame.array is ring[number % 3]
            assert (frame.array == pattern.fill_bytes(7 + number, 0, FRAME)).all()
            assert frame.intact()
            assert driver.ring.released == number
            driver.fill(5, seed=7)
            assert driver.ring.filled == number + 3
    assert driver.ring is None
    assert driver.named("CANCEL", "RELEASE_FRAMES")[-1][0] == "CANCEL"
    assert not driver.pins


def test_frames_have_times(driver, board):
    """To within what the clocks may be off; the stand-in's counter is exact."""
    with board.frames(ring_of(3)) as frames:
        for number in range(5):
            before = time.monotonic_ns()
            driver.fill(1, seed=7)
            after = time.monotonic_ns()
            when = next(frames).time
            received = time.monotonic_ns()
            assert not when.simulated
            assert before <= when.ns + when.bound_ns and when.ns - when.bound_ns <= after, number
            assert when.bound_ns <= received - before + 1000


def test_a_counter_that_was_reset_gives_no_wrong_times(driver, board, monkeypatch):
    """Frames that may be from before have none; those that cannot be have theirs."""
    with board.frames(ring_of(2)) as frames:
        driver.fill(2, seed=7)
        assert next(frames).time is not None
        monkeypatch.setattr(driver, "cycles", lambda: (time.monotonic_ns() - started) // 8)
        started = time.monotonic_ns()
        found = []
        for _ in range(6):
            found.append(next(frames).time)
            driver.fill(1, seed=7)
    assert found[:2] == [None] * 2
    assert all(when.ns + when.bound_ns >= started for when in found[2:])


def test_a_launch_queue_takes_frames(driver):
    driver.launch_count = 1
    driver.info.capabilities |= Capability.LAUNCH | Capability.RECEIVE
    array, places = np.zeros(FRAME, np.uint8), np.zeros(2 * FRAME_RECORD.itemsize, np.uint8)
    record = places[-places.ctypes.data % FRAME_RECORD.itemsize :][: FRAME_RECORD.itemsize]
    old = pytest.raises(peerdma.UnsupportedError, match="the board's driver does not support that")
    with peerdma.open(driver.path) as board, old:
        board.prepare_receive(array, record)
    driver.info.features |= Feature.RECEIVE
    with (
        peerdma.open(driver.path) as board,
        board.pin(array) as pin,
        board.queue([board.prepare_receive(pin[9:500], record)]),
    ):
        (job,) = driver.queue.jobs.values()
        assert job.flags == PrepareFlag.DONE | PrepareFlag.RECEIVE
        assert (job.op, job.src_handle, job.src_offset) == (Op.C2H, 0, peerdma.USER_STREAM)
        assert (job.dst_handle, job.dst_offset, job.length) == (pin.handle.number, 9, 491)
        address, _ = driver.pins[job.record_handle]
        assert address + job.record_offset == record.ctypes.data


@pytest.mark.parametrize("without", [Feature.CLOCK, None])
def test_a_driver_or_board_without_a_clock_gives_no_times(driver, without):
    if without is not None:
        driver.info.features &= ~without
    else:
        driver.info.clock_khz = 0
    with peerdma.open(driver.path) as board, board.frames(ring_of(1)) as frames:
        driver.fill(1, seed=1)
        frame = next(frames)
    assert frame.record is not None and frame.time is None
    assert not driver.named("READ_CLOCK")


def test_frames_without_records(node_driver):
    for name, value in user_block("PATN", 0, 1).items():
        setattr(node_driver.info, name, value)
    with peerdma.open(node_driver.path) as board, board.frames(ring_of(1)) as frames:
        assert node_driver.ring.records == (0, 0)
        node_driver.fill(1, seed=1)
        assert next(frames).record is None


def test_what_is_released_before_the_driver_has_told_of_it_is_given_back_later(driver, board):
    with board.frames(ring_of(2)) as frames:
        run = frames._run
        run.release(2)
        assert not driver.named("RELEASE_FRAMES")
        driver.fill(2, seed=1)
        next(frames)
        assert driver.named("RELEASE_FRAMES")[0][1]["count"] == 2
        run.release(1)
        assert len(driver.named("RELEASE_FRAMES")) == 1


@pytest.mark.parametrize(
    ("members", "kind", "words"),
    [
        ({"result": -errno.EIO, "reason": Reason.ENGINE, "status": 64}, "TransferError", "0x40"),
        ({"result": -errno.ESTALE, "reason": Reason.REVOKED}, "PinError", "freed, moved"),
        ({"result": -errno.ENODEV, "reason": Reason.LOST}, "BoardLost", "went away"),
        ({"result": -errno.EIO, "reason": Reason.RESET}, "TransferError", "after 2 frames: the"),
    ],
)
def test_the_end_of_a_ring_is_an_error_behind_its_frames(driver, board, members, kind, words):
    with board.frames(ring_of(2)) as frames:
        driver.fill(2, seed=1)
        assert [next(frames).number, next(frames).number] == [0, 1]
        driver.end_ring(**members)
        with pytest.raises(getattr(peerdma, kind), match=words):
            next(frames)
        assert frames.closed
    assert not driver.pins
    assert not driver.named("CANCEL")


def test_a_board_that_is_gone_ends_the_frames(driver, board):
    with board.frames(ring_of(2)) as frames:
        driver.unplug()
        with pytest.raises(peerdma.BoardLost):
            next(frames)


def test_no_frame_in_time(driver, board):
    driver.info.c2h_waits_for = WaitsFor.USER_OUTPUT
    words = "within 0.1 s, after 0 frames.*the user block to give data"
    with (
        board.frames(ring_of(2), timeout=0.1) as frames,
        pytest.raises(peerdma.Timeout, match=words),
    ):
        next(frames)
    assert driver.ring is None


def test_a_driver_that_does_not_end_a_ring(driver, board, monkeypatch):
    monkeypatch.setattr(kernel_frames, "CANCEL_SECONDS", 0.1)
    driver.stuck = True
    frames = board.frames(ring_of(1))
    with pytest.raises(peerdma.Timeout, match="does not end a ring"):
        frames.close()
    driver.stuck = False
    driver.end_ring(result=-errno.ECANCELED, reason=Reason.CANCELLED)


def test_closed_while_another_thread_waits(driver, board):
    frames = board.frames(ring_of(2))
    found = []
    thread = threading.Thread(target=lambda: found.extend(frames))
    thread.start()
    while not board._jobs._led:
        pass
    frames.close()
    thread.join(20)
    assert not thread.is_alive()
    assert found == []


def test_rings_that_are_refused(driver, board):
    with pytest.raises(peerdma.UnsupportedError, match="Leave overwrite out"):
        board.frames(ring_of(2), overwrite=True)
    driver.failures[Ioctl.START_RING] = 0, errno.EBUSY
    with pytest.raises(
        peerdma.TransferError, match="fill 2 frames of 600 bytes: the driver's words"
    ):
        board.frames(ring_of(2))
    assert not driver.pins


def test_a_driver_without_them(driver):
    driver.info.features &= ~Feature.STREAMS
    with (
        peerdma.open(driver.path) as board,
        pytest.raises(peerdma.UnsupportedError, match="makes no frames"),
    ):
        board.frames(ring_of(2))


def test_process(node_driver, half):
    values = np.arange(100, dtype=np.float32)
    made = np.zeros(100, np.uint16)
    steps = []
    transfer = half.process(values, made, progress=lambda *step: steps.append(step))
    assert (made == values.view(np.uint32) >> 16).all()
    assert (transfer.bytes, transfer.through) == (400, "user stream")
    assert steps[-1] == (400, 400)
    ((_, job),) = node_driver.named("SUBMIT")
    assert (job["op"], job["length"], job["dst_length"]) == (Op.PROCESS, 400, 200)


def test_process_is_divided_where_bytes_belong_together(node_driver, half, monkeypatch):
    monkeypatch.setattr(jobs, "JOB_BYTES", 90)
    values, made = np.arange(100, dtype=np.float32), np.zeros(100, np.uint16)
    with half.pin(values) as s, half.pin(made) as d:
        transfer = half.process([s[:120], s[120:]], [d[:100], d[100:]])
        assert (made == values.view(np.uint32) >> 16).all()
        assert transfer.bytes == 400
        lengths = [job["length"] for _, job in node_driver.named("SUBMIT")]
        assert {length % 4 for length in lengths} == {0}
        assert max(lengths) == 88
        for sides in (([s[:6], s[6:12]], d[:6]), (s[:12], [d[:3], d[3:6]])):
            with pytest.raises(peerdma.TransferError, match="4 bytes of the source, or 2"):
                half.process(*sides)


def test_process_with_lengths_that_do_not_match(half):
    with pytest.raises(peerdma.TransferError, match="makes 2 bytes of each 4"):
        half.process(np.zeros(8, np.uint8), np.zeros(8, np.uint8))
