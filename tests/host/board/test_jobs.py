# SPDX-License-Identifier: BSD-2-Clause
"""Jobs and plans, on the simulated board and on the kernel driver's."""

import asyncio
import gc
import logging
import queue
import re
import select
import selectors
import threading
import time
import weakref

import numpy as np
import pytest

import peerdma
from tests.host.conftest import open_files
from tests.host.programs import ROOT

#: No step takes longer, in seconds.
PATIENCE = 60.0
#: Bytes that the simulated board takes long for.
LONG = 24 << 20


@pytest.fixture(params=["board", "node_board"], ids=["simulated", "kernel"])
def any_board(request):
    """A board on each backend."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def pair(any_board):
    """Random bytes and as many zeros, with their pins."""
    source = np.random.default_rng(1).integers(1, 256, 5000, np.uint8)
    target = np.zeros_like(source)
    with any_board.pin(source) as s, any_board.pin(target) as d:
        yield source, target, s, d


class Held:
    """A board that has a job in progress, which takes long."""

    def __init__(self, board, kernel):
        self.board = board
        self.source = np.ones(4096 if kernel else LONG, np.uint8)
        self.target = np.zeros_like(self.source)
        self.pins = board.pin(self.source), board.pin(self.target)
        self.kernel = kernel
        if kernel:
            kernel.silent = True
        self.job = board.submit(*self.pins)

    def release(self):
        """The board goes on as ever from here on."""
        if self.kernel:
            self.kernel.silent = False
            self.kernel.end_all()


@pytest.fixture(params=["simulated", "kernel"])
def held(request):
    """On each backend; the board is the test's own."""
    if request.param == "kernel":
        kernel = request.getfixturevalue("node_driver")
        with peerdma.open(kernel.path) as board:
            yield Held(board, kernel)
            kernel.end_all()
            board.close()
            kernel.pins.clear()  # as the driver does when its node is closed
    else:
        with peerdma.open("sim") as board:
            yield Held(board, None)


def works(board):
    """A copy between arrays arrives."""
    source = np.random.default_rng(2).integers(0, 256, 3000, np.uint8)
    target = np.zeros_like(source)
    with board.pin(source) as s, board.pin(target) as d:
        board.copy(s, d)
    assert (target == source).all()


# Futures -------------------------------------------------------------------------------------


def test_a_job_is_a_copy_that_can_be_waited_for(any_board, pair):
    source, target, s, d = pair
    job = any_board.submit(s, d)
    transfer = job.result(PATIENCE)
    assert (target == source).all()
    assert job.done() and job.exception() is None and job.result() is transfer
    assert not job.cancel()
    assert repr(job) == "<Job of 5000 bytes, done>"
    again = any_board.copy(s, d)
    fields = ("bytes", "limit", "path", "through", "simulated")
    assert [getattr(transfer, name) for name in fields] == [getattr(again, name) for name in fields]
    assert transfer.cycles > 0 and transfer.wall_seconds > 0


def test_what_is_wrong_with_the_arguments_is_said_at_once(any_board, pair):
    _, target, s, d = pair
    with pytest.raises(peerdma.TransferError, match="give both sides the same length"):
        any_board.submit(s, d[1:])
    with pytest.raises(TypeError, match="a transfer takes an array, a pin"):
        any_board.submit(5000, d)
    with pytest.raises(peerdma.TransferError, match="overlap"):
        any_board.submit_batch([(s, d), (d[:10], d[5:15])])
    assert not target.any()


def test_a_batch_is_a_job_for_each_pair(any_board, pair):
    source, target, s, d = pair
    jobs = any_board.submit_batch(
        (s[at : at + 100], d[at : at + 100]) for at in range(0, 5000, 100)
    )
    assert [job.result(PATIENCE).bytes for job in jobs] == [100] * 50
    assert (target == source).all()
    assert any_board.submit_batch([]) == []


def test_coroutines_await_jobs(any_board, pair):
    source, target, s, d = pair

    async def one(at):
        job = any_board.submit(s[at : at + 500], d[at : at + 500])
        return await job

    async def all_of_them():
        return await asyncio.gather(*(one(at) for at in range(0, 5000, 500)))

    transfers = asyncio.run(asyncio.wait_for(all_of_them(), PATIENCE))
    assert [transfer.bytes for transfer in transfers] == [500] * 10
    assert (target == source).all()


def test_a_selector_takes_jobs(any_board, pair):
    _, _, s, d = pair
    files = open_files()
    with selectors.DefaultSelector() as selector:
        jobs = {any_board.submit(s[:n], d[:n]) for n in (10, 20, 30)}
        for job in jobs:
            selector.register(job, selectors.EVENT_READ)
        while jobs:
            ready = [key.fileobj for key, _ in selector.select(PATIENCE)]
            assert ready and all(job.done() for job in ready)
            for job in ready:
                selector.unregister(job)
                jobs.remove(job)
    # Readable also if it is asked for afterwards, and for good.
    for _ in range(2):
        assert select.select([job], [], [], 0)[0] == [job]
    del job, ready
    assert open_files() == files


def test_callbacks(any_board, pair, caplog):
    """In a thread of the library, or at once if the job is over; they may use it, and fail."""
    source, target, s, d = pair
    called = queue.Queue()

    def note(job):
        called.put((job, threading.current_thread() is threading.main_thread()))

    def work(job):
        any_board.copy(s[:10], d[:10])
        any_board.submit(s[10:20], d[10:20]).result(PATIENCE)

    def fail(job):
        raise RuntimeError("as a test")

    job = any_board.submit(s, d)
    for call in (note, work, fail, note):
        job.add_done_callback(call)
    # The job may end, and its first callbacks be on their way, before the last one is added.
    assert [called.get(timeout=PATIENCE)[0] for _ in range(2)] == [job, job]
    assert (target == source).all()
    job.add_done_callback(note)
    assert called.get_nowait() == (job, True)
    job.add_done_callback(fail)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * caplog.text.count(
        "RuntimeError: as a test"
    )


def test_a_job_that_is_over_holds_nothing(any_board):
    source, target = np.ones(100, np.uint8), np.zeros(100, np.uint8)
    with any_board.pin(source) as s, any_board.pin(target) as d:
        job = any_board.submit(s, d)
        job.result(PATIENCE)
    dead = weakref.ref(target)
    del source, target, s, d
    gc.collect()
    assert dead() is None
    assert job.result().bytes == 100


def test_the_documentation(any_board, pair):
    """What docs/jobs.md shows, as it is there; test_ordered.py has what it shows of streams."""
    source, target, s, d = pair
    text = (ROOT / "docs/jobs.md").read_text().split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        target[:] = 0
        exec(block, {"board": any_board, "s": s, "d": d})
        assert (target == source).all()


# Plans ---------------------------------------------------------------------------------------


def test_a_plan_is_run_any_number_of_times(any_board, pair):
    source, target, s, d = pair
    plan = any_board.prepare([s[:100], s[200:300]], d[:200])
    assert (plan.nbytes, len(plan.pins)) == (200, 2)
    for _ in range(3):
        source += 1
        assert plan.run().bytes == 200
        assert (target[:200] == np.concatenate([source[:100], source[200:300]])).all()
    jobs = [plan.submit() for _ in range(5)]
    assert {job.result(PATIENCE).path for job in jobs} == {plan.path}
    steps = []
    plan.run(progress=lambda *step: steps.append(step))
    assert steps[-1] == (200, 200)


def test_a_plan_needs_its_pins(any_board, pair):
    _, _, s, d = pair
    with any_board.pin(np.zeros(10, np.uint8)) as other:
        plan = any_board.prepare(s[:10], other)
        plan.run()
    for start in (plan.run, plan.submit):
        with pytest.raises(peerdma.PinError, match="their pin is closed"):
            start()
    nothing = any_board.prepare(s[:0], d[:0])
    assert nothing.run().bytes == nothing.submit().result().bytes == 0


def test_no_transfer_after_the_board_is_closed(node_driver):
    board = peerdma.open(node_driver.path)
    s, d = board.pin(np.zeros(10, np.uint8)), board.pin(np.zeros(10, np.uint8))
    plan = board.prepare(s, d)
    board.close()
    node_driver.pins.clear()
    for start in (plan.run, plan.submit, lambda: board.prepare(s, d)):
        with pytest.raises(peerdma.PeerdmaError, match=r"board is closed|pin is closed"):
            start()


# While a job is in progress ------------------------------------------------------------------


def test_the_board_answers_while_a_job_is_in_progress(held):
    began = time.monotonic()
    assert held.board.leds(5) == 5
    with held.board.pin(np.zeros(100, np.uint8)):
        assert "pins" in repr(held.board)
    assert not held.job.done()
    assert time.monotonic() - began < 10
    assert repr(held.job) == f"<Job of {held.source.nbytes} bytes, in progress>"


def test_a_wait_can_end_before_the_job(held):
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s; it goes on"):
        held.job.result(0.05)
    assert not held.job.done()
    held.job.cancel()


def test_a_cancelled_job_ends_and_the_next_one_is_clean(held):
    waiting = held.board.submit(*held.pins)
    began = time.monotonic()
    for job in (held.job, waiting):
        assert job.cancel()
    for job in (held.job, waiting):
        with pytest.raises(peerdma.Cancelled, match="was cancelled before its end"):
            job.result(PATIENCE)
        assert repr(job).endswith("Cancelled>")
        assert not job.cancel()
    assert time.monotonic() - began < 20
    assert not held.target.all()
    held.release()
    works(held.board)


def test_a_task_that_is_cancelled_cancels_its_job(held):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(wait()), 0.1)

    async def wait():
        await held.job

    asyncio.run(main())
    assert isinstance(held.job.exception(PATIENCE), peerdma.Cancelled)


def test_closing_the_board_ends_its_jobs(held):
    """Whoever waits for them is told; whether by a job, a copy, or a callback."""
    errors, called = [], threading.Event()
    held.job.add_done_callback(lambda job: called.set())

    def copy():
        try:
            held.board.copy(*held.pins)
        except peerdma.PeerdmaError as error:
            errors.append(error)

    thread = threading.Thread(target=copy)
    thread.start()
    while len(held.board._jobs._pending) < 2:
        time.sleep(0.001)
    began = time.monotonic()
    held.board.close()
    assert time.monotonic() - began < 20
    thread.join(PATIENCE)
    assert [type(error) for error in errors] == [peerdma.Cancelled]
    assert isinstance(held.job.exception(0), peerdma.Cancelled)
    assert called.wait(PATIENCE)
    assert not held.board._jobs._thread.is_alive()


def test_the_board_can_be_closed_in_a_callback(held):
    closed = threading.Event()

    def close(job):
        held.board.close()
        closed.set()

    held.job.add_done_callback(close)
    held.job.cancel()
    assert closed.wait(PATIENCE)


@pytest.mark.parametrize("name", ["start", "wait", "collect"])
def test_ctrl_c_anywhere_ends_the_copy_and_leaves_the_board_usable(node_board, monkeypatch, name):
    """Also before the backend has heard of the copy."""
    target = np.zeros(100, np.uint8)

    def interrupt(*_):
        patch.undo()
        raise KeyboardInterrupt

    with node_board.pin(np.ones(100, np.uint8)) as s, node_board.pin(target) as d:
        with monkeypatch.context() as patch:
            transfers = node_board._backend.transfers
            patch.setattr(transfers.waiter if name == "wait" else transfers, name, interrupt)
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                node_board.copy(s, d)
            assert time.monotonic() - began < 20
        assert not node_board._jobs._pending
        works(node_board)


def test_a_pin_that_is_closed_waits_for_its_jobs(node_driver, node_board):
    source, target = np.ones(100, np.uint8), np.zeros(100, np.uint8)
    node_driver.silent = True
    with node_board.pin(source) as s:
        with node_board.pin(target) as d:
            job = node_board.submit(s, d)
            threading.Timer(0.2, node_driver.end_all).start()
        assert job.done() and d.closed
        with pytest.raises(peerdma.PinError, match="closed"):
            node_board.submit(s, d)


def test_a_pin_whose_close_was_interrupted_is_open(node_driver, node_board, monkeypatch):
    node_driver.silent = True
    with node_board.pin(np.zeros(10, np.uint8)) as s, node_board.pin(np.zeros(10, np.uint8)) as d:
        job = node_board.submit(s, d)

        def interrupt(pin):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(node_board._jobs, "settle", interrupt)
            with pytest.raises(KeyboardInterrupt):
                d.close()
        assert not d.closed
        job.cancel()


def test_a_board_that_dies_ends_all_jobs():
    with peerdma.open("sim") as board:
        held = Held(board, None)
        jobs = [held.job, *board.submit_batch([held.pins] * 2)]
        board._backend._process._process.kill()
        for job in jobs:
            with pytest.raises(peerdma.BoardLost, match="SIGKILL"):
                job.result(PATIENCE)


def test_threads_that_wait_for_one_board(any_board):
    """Jobs and copies of several threads; each finds its own data."""
    errors = []

    def work(seed):
        try:
            source = np.random.default_rng(seed).integers(0, 256, 2000, np.uint8)
            target = np.zeros_like(source)
            with any_board.pin(source) as s, any_board.pin(target) as d:
                for at in range(0, 2000, 500):
                    job = any_board.submit(s[at : at + 250], d[at : at + 250])
                    any_board.copy(s[at + 250 : at + 500], d[at + 250 : at + 500])
                    job.result(PATIENCE)
                    any_board.write(s[:100], 1000 * seed)
            assert (target == source).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not errors
