# SPDX-License-Identifier: BSD-2-Clause
"""Transfers by the kernel driver's jobs, against a stand-in for the driver."""

import errno

import numpy as np
import pytest

import peerdma
from peerdma.kernel import jobs
from peerdma.kernel import node as kernel_node
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


def test_ctrl_c_cancels_what_is_under_way(node_driver, node_board, monkeypatch):
    monkeypatch.setattr(jobs, "JOB_BYTES", 10)

    def interrupts(done, total):
        raise KeyboardInterrupt

    with node_board.pin(np.zeros(100, np.uint8)) as s, node_board.pin(np.ones(100, np.uint8)) as d:
        with pytest.raises(KeyboardInterrupt):
            node_board.copy(s, d, progress=interrupts)
        assert not node_driver._outstanding


def test_a_board_that_is_unplugged_is_told_from_one_that_is_slow(
    node_driver, node_board, monkeypatch
):
    class Gone:
        def poll(self, milliseconds):
            return [(0, kernel_node.select.POLLHUP)]

    node_driver.silent = True
    with (
        node_board.pin(np.zeros(10, np.uint8)) as source,
        node_board.pin(np.ones(10, np.uint8)) as target,
        monkeypatch.context() as patch,
    ):
        patch.setattr(node_board._backend._node, "_poll", Gone())
        with pytest.raises(peerdma.BoardLost, match="is gone"):
            node_board.copy(source, target)


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


def test_copies_are_not_remembered_without_end(node_driver, node_board):
    source, target = np.arange(200, dtype=np.uint8), np.zeros(200, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        for n in range(1, 150):
            node_board.copy(s[:n], d[:n])
            assert len(node_board._plans) <= 64
        assert (target[:149] == source[:149]).all()
    with pytest.raises(peerdma.PinError):
        node_board.copy(s[:1], d[:1])


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
