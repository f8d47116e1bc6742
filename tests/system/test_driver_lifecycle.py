# SPDX-License-Identifier: BSD-2-Clause
"""What a program, or a process that ends, may do at any time: every event in every state.

States: nothing under way; a job that waits; one that runs, and can be stopped; one that hangs, and
cannot be stopped; memory that has been revoked. Tests are in this file unless another is named
(memory, mappings, jobs, watchdog: test_driver_*.py; taken: test_driver_taken.py, where memory is
taken away; resets, suspend, boards: where the board is reset or unbound, sleeps, or goes away).

====================  =========================================================================
Event                 Tests
====================  =========================================================================
UNPIN                 test_unpin_[nothing|waits|runs|killed|hangs|revoked]
close                 test_close_[nothing|waits|runs|hangs], taken: test_callback_then_close
SIGKILL of a waiter   test_kill_[waits|runs_or_hangs], boards: test_a_board_that_dies
other signals         test_signals_do_not_end_a_transfer[|_that_waits]
free with callback    taken: test_callback_[nothing|waits|runs|hangs|twice]
process ends          taken: test_callback_at_[exit|munmap]
free, persistent      memory: test_what_persistent_pins_outlive, taken: test_free_of_what_stays
Tegra notifier        taken: test_tegra_[nothing|waits|runs|hangs|exit|twice]
dma-buf invalidate    taken: test_invalidate_[nothing_and_twice|waits|runs|hangs], memory:
                      test_a_dma_buf_that_moves_is_pinned_again
GPU driver unload     test_modules_in_use_stay
GPU lost              test_a_gpu_that_is_lost, boards: test_errors_of_the_board
surprise removal      boards: test_a_board_that_dies, test_a_board_that_is_pulled
AER                   link: test_errors_of_the_link_*
reset                 jobs: test_reset, resets: test_function_reset_*, test_reset_request_*
DMA timeout           test_timeout_hangs, watchdog: test_*
suspend, resume       suspend: test_suspend_in_every_state
unbind, rmmod         test_modules_in_use_stay, resets: test_unbind_*, taken:
                      test_board_is_unbound_after_*
shutdown              link: test_a_restart_under_load
fork                  test_a_child_uses_the_file, memory: test_pinned_pages_are_the_parents_*,
                      mappings: test_a_child_does_not_inherit_it
exec, fd passing      test_the_last_user_is_another_process, test_exec_closes
second process        test_a_hang_is_its_boards_own, jobs: test_jobs_of_two_files_take_turns
munmap, mremap        mappings: test_parts_and_what_processes_do_with_them
====================  =========================================================================
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from peerdma.regs import WaitsFor
from peerdma.uapi import BoardState, Ioctl, Op, Reason, SurfaceState, UnpinCuda
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    AT_END,
    GPU_PAGE,
    HUNG,
    LATER,
    PAGE,
    SMALL,
    STREAM,
    WITH_HUNG_BOARD,
    Buffer,
    Gpu,
    Node,
    callbacks,
    child,
    ended,
    hangs,
    results,
    setting,
    shell,
    spawn,
    until,
)

GUEST = WITH_HUNG_BOARD
pytestmark = IN_GUEST

CANCELLED = (errno.ECANCELED, Reason.CANCELLED)
UNPINNED = (errno.ECANCELED, Reason.UNPINNED)
TIMEOUT = (errno.ETIMEDOUT, Reason.TIMEOUT)


def by_job(node: Node, count: int) -> dict[int, tuple[int, int]]:
    """Result and reason of the next events by job."""
    return {event.job: results([event])[0] for event in node.events(count)}


def gone(node: Node, handle: int) -> bool:
    """Whether a handle names nothing any more."""
    try:
        node.query(handle)
    except OSError as error:
        return error.errno == errno.EINVAL
    return False


# UNPIN ---------------------------------------------------------------------------------------


def test_unpin_nothing():
    with Gpu() as gpu, Node() as node:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        assert gpu.counts()[1:3] == (1, 1)
        node.unpin(handle)
        assert gpu.counts()[1:3] == (0, 0)
        node.refuses(errno.EINVAL, "no memory", Ioctl.UNPIN_CUDA, UnpinCuda(handle=handle))


def test_unpin_waits():
    """Jobs of this memory that wait are cancelled, those of other memory stay."""
    with Gpu() as gpu, Node() as node:
        page, busy = node.pages(Buffer(PAGE)), node.pages(Buffer(PAGE))
        running = node.endless(busy)
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        copies = [
            node.submit(Op.COPY, 8, src_handle=s, dst_handle=d)
            for s, d in ((handle, page), (page, handle), (page, busy))
        ]
        node.unpin(handle)
        assert gpu.counts()[1:3] == (0, 0)
        assert by_job(node, 2) == dict.fromkeys(copies[:2], UNPINNED)
        node.cancel(running)
        assert by_job(node, 2) == {running: CANCELLED, copies[2]: (0, 0)}


def test_unpin_runs():
    with Gpu() as gpu, Node() as node:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        running = node.endless(handle)
        unpinning = threading.Thread(target=node.unpin, args=(handle,))
        unpinning.start()
        until(lambda: gone(node, handle))
        # The memory is the job's until it has ended.
        assert gpu.counts()[1:3] == (1, 1)
        node.cancel(running)
        unpinning.join()
        assert gpu.counts()[1:3] == (0, 0)
        assert by_job(node, 1) == {running: CANCELLED}


def test_unpin_killed():
    """Who waits for the job is killed: the job gives the memory back."""
    with Gpu() as gpu, Node() as node:
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        running = node.endless(handle)
        pid = spawn(lambda: node.unpin(handle))
        until(lambda: gone(node, handle))
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        assert gpu.counts()[1:3] == (1, 1)
        node.cancel(running)
        assert by_job(node, 1) == {running: CANCELLED}
        until(lambda: gpu.counts()[1:3] == (0, 0))


def test_unpin_hangs():
    with Gpu() as gpu, hangs(gpu) as (node, handle, job):
        node.unpin(handle)
        assert gpu.counts()[1:3] == (0, 0)
        assert by_job(node, 1) == {job: TIMEOUT}


def test_unpin_revoked():
    with callbacks(), Gpu() as gpu, Node() as node:
        va = gpu.alloc(GPU_PAGE)
        handle = node.cuda(va, GPU_PAGE)
        gpu.free(va)
        assert node.query(handle).state == SurfaceState.REVOKED
        node.unpin(handle)
        assert gone(node, handle)


# close() -------------------------------------------------------------------------------------


def test_close_nothing():
    with Gpu() as gpu:
        node = Node()
        node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        node.pages(Buffer(PAGE))
        node.close()
        assert gpu.counts()[1:3] == (0, 0)


def test_close_waits():
    with Gpu() as gpu, Node() as other:
        running = other.endless(other.pages(Buffer(PAGE)))
        node = Node()
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        node.submit(Op.COPY, 8, src_handle=handle, dst_handle=node.pages(Buffer(PAGE)))
        failures = other.info().failures
        node.close()
        assert other.info().failures == failures + 1
        until(lambda: gpu.counts()[1:3] == (0, 0))
        other.cancel(running)
        assert by_job(other, 1) == {running: CANCELLED}


def test_close_runs():
    with Gpu() as gpu, Node() as other:
        node = Node()
        handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        node.endless(handle)
        node.load(handle, 3)
        node.close()
        until(lambda: gpu.counts()[1:3] == (0, 0))
        # The engine is free.
        other.load(other.pages(Buffer(PAGE)), 1, PAGE)
        assert results(other.events(1)) == [(0, 0)]


def test_close_hangs():
    with Gpu() as gpu, Node(HUNG) as other:
        generation = other.info().generation
        with hangs(gpu, LATER) as (node, _, _):
            node.close()
        until(lambda: gpu.counts()[1:3] == (0, 0))
        until(lambda: other.info().generation == generation + 1)


# Signals -------------------------------------------------------------------------------------


def test_kill_waits():
    memory = Buffer(2 * PAGE)
    with Node() as node:
        running = node.endless(node.pages(Buffer(PAGE)))
        failures = node.info().failures

        def transfer():
            with Node() as own:
                own.h2c2h(memory.address, memory.address + PAGE, PAGE)

        pinned = node.info().pinned_bytes
        pid = spawn(transfer)
        until(lambda: node.info().pinned_bytes == pinned + 2 * PAGE)
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        until(lambda: node.info().failures == failures + 1)
        until(lambda: node.info().pinned_bytes == pinned)
        node.cancel(running)
        assert by_job(node, 1) == {running: CANCELLED}


@pytest.mark.parametrize("board", ["/dev/picoevb", HUNG])
def test_kill_runs_or_hangs(board):
    memory = Buffer(PAGE)
    with Node(board) as node:
        before = node.info()

        def transfer():
            with Node(board) as own:
                own.c2h(STREAM, memory.address, PAGE)

        with setting("peerdma", "timeout_ms", 1 if board == HUNG else 3000):
            pid = spawn(transfer)
            until(lambda: node.info().pinned_bytes == PAGE)
            time.sleep(0.1)
            os.kill(pid, signal.SIGKILL)
            assert ended(pid) == -signal.SIGKILL
        until(lambda: node.info().failures == before.failures + 1)
        until(lambda: not node.info().pinned_bytes)
        assert node.info().state == BoardState.LIVE


def test_signals_do_not_end_a_transfer():
    size = 8 * GPU_PAGE
    source, destination = Buffer(size), Buffer(size, b"")

    def transfer():
        came = []
        signal.signal(signal.SIGALRM, lambda *_: came.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with Node() as node:
            node.h2c2h(source.address, destination.address, size)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert came
        assert source[:] == destination[:]

    assert child(transfer) == 0


def test_signals_do_not_end_a_transfer_that_waits():
    memory = Buffer(2 * PAGE)
    came, told = os.pipe()

    def transfer():
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told)
        with Node() as node:
            node.h2c2h(memory.address, memory.address + PAGE, PAGE)
        assert memory[:PAGE] == memory[PAGE:]
        # It came, and was only told of now.
        assert os.read(came, 1) == bytes([signal.SIGUSR1])

    with Node() as node:
        running = node.endless(node.pages(Buffer(PAGE)))
        pinned = node.info().pinned_bytes
        pid = spawn(transfer)
        until(lambda: node.info().pinned_bytes == pinned + 2 * PAGE)
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.1)
        assert node.info().pinned_bytes == pinned + 2 * PAGE
        node.cancel(running)
        assert by_job(node, 1) == {running: CANCELLED}
        assert ended(pid) == 0


# Timeouts ------------------------------------------------------------------------------------


def test_timeout_hangs():
    """The board is reset; what had not started is tried after that, and times out as well."""
    with Gpu() as gpu, Node(HUNG) as other:
        generation = other.info().generation
        with hangs(gpu) as (node, handle, job):
            (later,) = node.load(handle, 1, SMALL)
            assert by_job(node, 2) == {job: TIMEOUT, later: TIMEOUT}
            until(lambda: other.info().generation == generation + 2)
            assert node.info().state == BoardState.LIVE


def test_a_waiter_is_told_why():
    memory = Buffer(2 * PAGE)
    words = "failed after 0: it waited for the completion of a read, status 0x1; the"
    with (
        Node(HUNG) as node,
        setting("peerdma", "timeout_ms", 1),
        node.refused(errno.ETIMEDOUT, words),
    ):
        node.h2c(memory.address + AT_END, 0, SMALL)


def test_a_hang_is_its_boards_own():
    with Gpu() as gpu, hangs(gpu, LATER) as (node, _, job), Node() as other:
        until(lambda: node.info().h2c_waits_for == WaitsFor.COMPLETION)
        other.load(other.pages(Buffer(GPU_PAGE)), 2)
        assert results(other.events(2)) == [(0, 0)] * 2
        node.cancel(job)
        assert by_job(node, 1) == {job: CANCELLED}


# Modules and processes -----------------------------------------------------------------------


def test_modules_in_use_stay():
    def stays(name: str) -> None:
        done = subprocess.run(["rmmod", name], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert Path(f"/sys/module/{name}").exists()

    with Gpu() as gpu:
        with Node() as node:
            node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
            for name in ("peerdma_nvp2p", "simgpu", "peerdma"):
                stays(name)
        until(lambda: gpu.counts()[1:3] == (0, 0))
        stays("simgpu")
        stays("peerdma")  # its provider holds it
        until(lambda: Path("/sys/module/peerdma_nvp2p/refcnt").read_text() == "0\n")
        shell("rmmod peerdma_nvp2p")
        shell("insmod /run/guest/peerdma_nvp2p.ko")


def test_a_gpu_that_is_lost():
    """Its driver says so when the memory is put: it is gone all the same."""
    with Gpu() as gpu, Node() as node, setting("simgpu", "put_error", -5):
        node.unpin(node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE))
        assert gpu.counts()[1:3] == (0, 0)


def test_a_child_uses_the_file():
    source, destination = Buffer(PAGE), Buffer(PAGE, b"")
    with Node() as node:
        s, d = node.pages(source), node.pages(destination)

        def transfer():
            node.submit(Op.COPY, PAGE, src_handle=s, dst_handle=d)
            assert results(node.events(1)) == [(0, 0)]

        assert child(transfer) == 0
        # The pages are the parent's.
        assert destination[:] == source[:]


def test_exec_closes():
    with Node() as node:
        node.pages(Buffer(PAGE))
        done = subprocess.run(
            ["sh", "-c", f"ls -l /proc/self/fd/{node.fd}"], capture_output=True, check=False
        )
        assert done.returncode != 0


@pytest.mark.parametrize("persistent", [True, False])
def test_the_last_user_is_another_process(persistent):
    """It cannot give pins with callbacks back: they are until the memory is freed."""

    def scenario():
        with Gpu() as gpu:
            node = Node()
            va = gpu.alloc(GPU_PAGE)
            node.cuda(va, GPU_PAGE)
            read, write = os.pipe()

            def hold():
                os.close(write)
                os.read(read, 1)

            pid = spawn(hold)
            node.close()
            os.close(write)
            assert ended(pid) == 0
            if not persistent:
                until(lambda: not gpu.counts()[2])
                time.sleep(0.3)
                assert gpu.counts()[1:3] == (1, 0)
                gpu.free(va)
            until(lambda: gpu.counts()[1:3] == (0, 0))

    if persistent:
        scenario()
    else:
        with callbacks():
            scenario()
