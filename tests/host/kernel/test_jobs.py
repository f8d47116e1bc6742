# SPDX-License-Identifier: BSD-2-Clause
"""Transfers by the kernel driver's jobs, against a stand-in for the driver."""

import errno
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import peerdma
from peerdma.board import job_runner
from peerdma.kernel import jobs
from peerdma.uapi import Op, Reason


def test_write_and_read_are_jobs_of_their_own(node_driver, node_board):
    data, back = np.arange(200, dtype=np.uint8), np.zeros(200, np.uint8)
    with node_board.pin(data) as s, node_board.pin(back) as d:
        node_board.write(s[10:110], 500)
        node_board.read(d[20:120], 500)
    assert (back[20:120] == data[10:110]).all()
    sides = ("op", "src_handle", "src_offset", "dst_handle", "dst_offset", "length")
    assert [tuple(job[name] for name in sides) for _, job in node_driver.named("SUBMIT")] == [
        (Op.H2C, 1, 10, 0, 500, 100),
        (Op.C2H, 0, 500, 2, 20, 100),
    ]


def test_sides_that_are_divided_differently_make_a_job_each(node_driver, node_board, seed):
    random = np.random.default_rng(seed)
    source, target = random.integers(0, 256, (2, 10_000), np.uint8)
    cuts = [sorted(random.integers(0, 5000, 7).tolist()) for _ in range(2)]
    with node_board.pin(source) as s, node_board.pin(target) as d:
        sides = [
            [pin[a:b] for a, b in zip([0, *cut], [*cut, 5000], strict=True)]
            for pin, cut in zip((s, d), cuts, strict=True)
        ]
        steps = []
        transfer = node_board.copy(*sides, progress=lambda *step: steps.append(step))
    assert (target[:5000] == source[:5000]).all()
    submitted = node_driver.named("SUBMIT")
    # Of these the driver refused some with EAGAIN, and took them again.
    assert transfer.cycles == 10 * len(steps) <= 10 * len(submitted)
    assert len(steps) == len({*cuts[0], *cuts[1], 5000} - {0})
    assert steps[-1] == (5000, 5000)


def test_large_copies_are_several_jobs(node_driver, node_board, monkeypatch):
    monkeypatch.setattr(jobs, "JOB_BYTES", 1000)
    source, target = np.arange(2500, dtype="u2").view("u1"), np.zeros(5000, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        node_board.copy(s, d)
    assert (target == source).all()
    assert {job["length"] for _, job in node_driver.named("SUBMIT")} == {1000}


def test_nothing_to_move_asks_nothing_of_the_driver(node_driver, node_board):
    with node_board.pin(np.zeros(0)) as empty, node_board.pin(np.zeros(10, np.uint8)) as pin:
        node_board.copy(empty, pin[:0])
        node_board.write(pin[:0])
    assert not node_driver.named("SUBMIT")
    assert len(node_driver.named("PIN_PAGES")) == 1


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        ({"reason": Reason.ENGINE, "status": 0x4200, "address": 0x1234}, "TransferError", "0x4200"),
        ({"reason": Reason.ENGINE, "status": 0x4200}, "TransferError", r"status 0x4200\. "),
        ({"reason": Reason.TIMEOUT}, "Timeout", "did not finish a transfer in time"),
        ({"reason": Reason.REVOKED}, "PinError", "Keep surfaces open"),
        ({"reason": Reason.UNPINNED}, "PinError", "unpinned during"),
        ({"reason": Reason.RESET}, "TransferError", "was reset or suspended"),
        ({"reason": Reason.BUSY}, "TransferError", "waits for data of the user stream, or a ring"),
        ({"reason": Reason.CANCELLED}, "TransferError", "it was cancelled"),
        ({"reason": Reason.LOST}, "BoardLost", "went away"),
    ],
)
def test_jobs_that_fail_end_the_copy_and_the_other_jobs(
    node_driver, node_board, monkeypatch, end, kind, message
):
    monkeypatch.setattr(jobs, "JOB_BYTES", 100)
    node_driver.ends = [{}, {"result": -errno.EIO, "bytes": 30, **end}]
    source, target = np.ones(600, np.uint8), np.zeros(600, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        with pytest.raises(getattr(peerdma, kind), match=message) as caught:
            node_board.copy(s, d)
        assert caught.value.errno == errno.EIO
        if kind == "TransferError" and end["reason"] is Reason.ENGINE:
            place = end.get("address")
            assert (caught.value.status, caught.value.address) == (0x4200, place)
        assert not node_driver._outstanding
        target[:] = 0
        node_board.copy(s, d)
        assert (target == 1).all()


def test_a_driver_that_hangs_is_given_up_and_its_jobs_cancelled(node_driver):
    node_driver.silent = True
    with peerdma.open(node_driver.path, timeout=0.05) as board:
        array, other = np.zeros(10, np.uint8), np.zeros(10, np.uint8)
        s, d = board.pin(array), board.pin(other)
        with s, d, pytest.raises(peerdma.Timeout, match=r"1 jobs .* did not end in time"):
            board.copy(s, d)
        assert [call["job"] for _, call in node_driver.named("CANCEL")] == [100]
        assert not node_driver._outstanding


def test_the_time_of_a_transfer_counts_from_the_end_of_those_before(node_driver):
    node_driver.silent = True
    memory = [np.zeros(10, np.uint8) for _ in range(2)]
    with peerdma.open(node_driver.path, timeout=0.4) as board:
        s, d = (board.pin(each) for each in memory)
        began = time.monotonic()
        for job in board.submit_batch([(s, d)] * 3):
            with pytest.raises(peerdma.Timeout, match=r"1 jobs .* did not end in time"):
                job.result(20)
        assert time.monotonic() - began >= 3 * 0.4
        s.close()
        d.close()


def test_a_driver_that_does_not_end_jobs_is_given_up(node_driver, monkeypatch):
    """The owner is told in bounded time; the memory is kept, as the board may still write it."""
    monkeypatch.setattr(jobs, "CANCEL_SECONDS", 0.1)
    node_driver.silent = node_driver.stuck = True
    # In which the last copy has to be made, on a machine that is busy, too.
    with peerdma.open(node_driver.path, timeout=1) as board:
        s, d = board.pin(np.zeros(10, np.uint8)), board.pin(np.zeros(10, np.uint8))
        job = board.submit(s, d)
        with pytest.raises(peerdma.Timeout):
            job.result(20)
        kept = weakref.ref(job)
        del job
        gc.collect()
        assert kept() is not None
        node_driver.silent = node_driver.stuck = False
        node_driver.end_all()
        board.copy(s, d)
        gc.collect()
        assert kept() is None
        s.close()
        d.close()


def test_a_board_with_a_stuck_driver_is_closed(node_driver, monkeypatch):
    monkeypatch.setattr(job_runner, "_CLOSE_SECONDS", 0.3)
    node_driver.silent = node_driver.stuck = True
    board = peerdma.open(node_driver.path)
    job = board.submit(board.pin(np.zeros(10, np.uint8)), board.pin(np.zeros(10, np.uint8)))
    began = time.monotonic()
    board.close()
    assert time.monotonic() - began < 10
    with pytest.raises(peerdma.Cancelled, match="the board was closed before the end"):
        job.result(0)
    node_driver.pins.clear()  # as the driver does when its node is closed


def test_more_jobs_than_the_driver_takes(node_driver, node_board):
    """They wait here, in order; one that is cancelled meanwhile never reaches the driver."""
    source, target = np.arange(200, dtype=np.uint8), np.zeros(200, np.uint8)
    node_driver.silent = True
    with node_board.pin(source) as s, node_board.pin(target) as d:
        many = node_board.submit_batch([(s[n : n + 10], d[n : n + 10]) for n in range(0, 200, 10)])
        many[10].cancel()
        with pytest.raises(peerdma.Cancelled):
            many[10].result(20)
        node_driver.silent = False
        node_driver.end_all()
        assert all(job.result(20).bytes == 10 for job in many[:10] + many[11:])
    assert (target[:100] == source[:100]).all() and not target[100:110].any()
    taken = [call["src_offset"] for _, call in node_driver.named("SUBMIT")]
    assert 100 not in taken and list(dict.fromkeys(taken)) == sorted(set(taken))


def test_one_way_and_the_other_from_two_threads(node_driver, node_board):
    """Both are in the driver's queue at the same time."""
    node_driver.silent = True
    data, back = np.ones(100, np.uint8), np.zeros(100, np.uint8)
    with node_board.pin(data) as s, node_board.pin(back) as d:
        threads = [
            threading.Thread(target=node_board.write, args=(s,)),
            threading.Thread(target=node_board.read, args=(d, 500)),
        ]
        for thread in threads:
            thread.start()
        while len(node_driver._outstanding) < 2:
            time.sleep(0.001)
        assert list(node_driver._outstanding.values()) == [False, False]
        node_driver.end_all()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


def test_a_driver_that_reports_too_few_bytes_is_not_believed(node_driver, node_board):
    node_driver.ends = [{"bytes": 7}]
    with (
        node_board.pin(np.zeros(10, np.uint8)) as s,
        node_board.pin(np.zeros(10, np.uint8)) as d,
        pytest.raises(peerdma.TransferError, match="7 of 10 bytes only"),
    ):
        node_board.copy(s, d)


def test_ctrl_c_cancels_what_is_under_way(node_driver, node_board, monkeypatch):
    monkeypatch.setattr(jobs, "JOB_BYTES", 10)

    def interrupts(done, total):
        raise KeyboardInterrupt

    with node_board.pin(np.zeros(100, np.uint8)) as s, node_board.pin(np.ones(100, np.uint8)) as d:
        with pytest.raises(KeyboardInterrupt):
            node_board.copy(s, d, progress=interrupts)
        assert not node_driver._outstanding


def test_a_board_that_is_unplugged_is_told_from_one_that_is_slow(node_driver, node_board):
    node_driver.silent = True
    with (
        node_board.pin(np.zeros(10, np.uint8)) as source,
        node_board.pin(np.ones(10, np.uint8)) as target,
    ):
        jobs = node_board.submit_batch([(source[:5], target[:5]), (source[5:], target[5:])])
        node_driver.unplug()
        for job in jobs:
            with pytest.raises(peerdma.BoardLost, match="is gone"):
                job.result(10)


def test_a_copy_that_is_made_again_is_the_same_request(node_driver, node_board):
    source, target = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        for n in range(3):
            source += 1
            transfer = node_board.copy(s, d)
            assert (target == source).all() and transfer.bytes == 100
            assert node_board.copy(s[:50], d[50:]).bytes == 50
            assert (target[50:] == source[:50]).all(), n
    first, part, *rest = node_driver.named("SUBMIT")
    assert rest == [first, part] * 2


def test_a_pin_that_is_closed_is_not_copied_again(node_driver, node_board):
    source, target = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    with node_board.pin(source) as s:
        with node_board.pin(target) as d:
            node_board.copy(s, d)
        with pytest.raises(peerdma.PinError, match="closed"):
            node_board.copy(s, d)
        with node_board.pin(target) as d:
            node_board.copy(s, d)
    handles = [job["dst_handle"] for _, job in node_driver.named("SUBMIT")]
    assert handles[0] != handles[1] and len(handles) == 2


def test_copies_leave_nothing_behind(node_driver, node_board):
    """However many there are, none is remembered, so that each costs the same."""
    source, target = np.arange(200, dtype=np.uint8), np.zeros(200, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        for n in range(1, 200):
            node_board.copy(s[:n], d[:n])
        assert (target[:199] == source[:199]).all()
        assert not [each for each in gc.get_objects() if type(each) is peerdma.Plan]


def test_a_copy_that_failed_is_made_again(node_driver, node_board):
    source, target = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        node_board.copy(s, d)
        node_driver.ends = [{"result": -5, "reason": Reason.ENGINE}]
        with pytest.raises(peerdma.TransferError):
            node_board.copy(s, d)
        target[:] = 0
        node_board.copy(s, d)
    assert (target == source).all()
