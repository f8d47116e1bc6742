# SPDX-License-Identifier: BSD-2-Clause
"""Processes that fork: the board stays the parent's, and the child is told so in one line."""

import copy
import os
import pickle
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import peerdma
from tests.host.programs import HOST, ROOT, run

#: In each program: the parent's board, and what runs in a child. Python 3.12 warns of forks of a
#: process with threads, which is what is tried here.
_COMMON = """
import atexit, contextlib, gc, os, sys, threading, time, warnings
import numpy as np, peerdma, peerdma.testing
warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)

def child(work):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        work()
        sys.exit(0)
    return pid

def end(pid, seconds=5):
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            assert status == 0, status
            return
        if time.monotonic() > until:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            sys.exit("the child does not end")
        time.sleep(0.01)

def refused(call):
    try:
        call()
    except peerdma.PeerdmaError as error:
        assert "opened before fork(): open it in the child" in str(error), error
        assert "\\n" not in str(error)
    else:
        sys.exit("the child could do it")

def works():
    source = np.random.default_rng().integers(0, 256, 3000, np.uint8)
    target = np.zeros_like(source)
    board.copy(source, target)
    assert (source == target).all()
"""
_STARTS = {
    "simulated": """
size = 6 << 20
board = peerdma.open("sim")
def requests(): return 0
def release(): pass
""",
    "kernel": """
import pathlib, tempfile
from peerdma.kernel import node
from peerdma.kernel.backend import open_node
from peerdma.board.board import Board
from tests.host.kernel.fake_kernel import FakeKernel
size = 4096
driver = FakeKernel(pathlib.Path(tempfile.mkdtemp()))
node.fcntl.ioctl = driver.ioctl
read, node.os = os.read, type("Os", (), {**vars(os), "read": None})
node.os.read = staticmethod(lambda fd, length: driver.read(read(fd, length)))
board = Board(open_node(driver.path, None))
def requests(): return len(driver.calls)
def release():
    driver.silent = False
    driver.end_all()
""",
}


def program(start: str, text: str):
    """Runs a program that forks; it prints "ok" in the end, and nothing else."""
    whole = _COMMON + _STARTS[start] + textwrap.dedent(text) + "\nprint('ok')\n"
    result = run(program=("-c", whole), PYTHONPATH=f"{ROOT}:{HOST}", cwd=ROOT)
    # A board that is opened for the first time is built, which it says.
    said = [line for line in result.stderr.splitlines() if not line.startswith("sim: ")]
    assert (result.returncode, result.stdout, said) == (0, "ok\n", [])


@pytest.fixture(params=_STARTS)
def start(request):
    return request.param


def test_a_child_ends_at_once_with_jobs_in_progress(start):
    program(
        start,
        """
        if size == 4096:
            driver.silent = True
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        job = board.submit(source, target)
        for work in (lambda: None, lambda: refused(lambda: job.result()), lambda: os._exit(0)):
            end(child(work))
        assert not job.done()
        release()
        job.result()
        assert target.all()
        works()
        board.close()
        """,
    )


def test_a_child_cannot_use_the_board_of_its_parent(start):
    """Whatever it tries, also where another thread holds the lock at that moment."""
    program(
        start,
        """
        array = np.ones(100, np.uint8)
        pin, plan = board.pin(array), board.prepare(array, np.zeros(100, np.uint8))
        info = board.info()
        other = np.zeros(100, np.uint8)

        def tries():
            before = requests()
            for call in (
                lambda: board.copy(array, other), lambda: board.submit(array, other),
                lambda: board.prepare(array, other), lambda: board.submit_batch([(array, other)]),
                lambda: board.pin(other), lambda: board.write(array), lambda: board.read(other),
                lambda: board.process(array, other), lambda: board.frames([other]),
                lambda: board.queue([plan]), lambda: board.mailbox(), lambda: board.leds(1),
                lambda: board.measure_clock(), lambda: board.user_register(0),
                lambda: board.info(),
                lambda: plan.run(), lambda: plan.submit(),
            ):
                refused(call)
            pin.close()
            board.close()
            with board, pin:
                pass
            assert requests() == before

        end(child(tries))
        held, go = threading.Event(), threading.Event()

        def hold():
            with board._lock:
                held.set()
                go.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(20)
        pid = child(tries)
        end(pid)
        go.set()
        thread.join()
        assert board.info() == info
        works()
        pin.close()
        board.close()
        """,
    )


def test_what_a_child_drops_stays_the_parents(start):
    """Objects that it closes, frees and collects, its exit handlers, and its descriptors."""
    program(
        start,
        """
        gpu = peerdma.gpu("emulated")
        surface = gpu.surface(200_000)
        surface.bytes[:] = 7
        array = np.full(200_000, 9, np.uint8)
        names = {os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).partition(":")[0]
                 for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}

        def drops():
            global board, surface, gpu
            left = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                    if os.path.lexists(f"/proc/self/fd/{fd}")]
            assert not any("socket:" in name for name in left), left
            if size == 4096:
                assert sum(name == driver.path for name in left) == 1, left  # the stand-in's own
            refused(lambda: gpu.surface(10))
            surface.close()
            before = requests()
            with board:
                pass
            del board, surface, gpu
            gc.collect()
            assert requests() == before
            # A board of the child's own.
            if size != 4096:
                with peerdma.open("sim") as own:
                    there = np.zeros(10, np.uint8)
                    own.copy(np.ones(10, np.uint8), there)
                    assert there.all()

        with board.pin(surface) if size != 4096 else contextlib.nullcontext() as pin:
            end(child(drops), 20)
            assert (surface.bytes == 7).all()
            if pin:
                board.copy(array, pin)
                assert (surface.bytes == 9).all()
        works()
        surface.close()
        board.close()
        """,
    )


@pytest.mark.parametrize("way", ["close", "end"])
def test_a_worker_does_not_keep_a_simulated_board(way):
    """It is over with its parent, also if a child goes on with copies of its descriptors."""
    end = {"close": "board.close()", "end": "os._exit(0)"}[way]
    text = f"""
    process = board._backend._process._process.pid
    worker = os.fork()
    if not worker:
        os.close(1), os.close(2)
        time.sleep(60)
        os._exit(0)
    print(worker, process, flush=True)
    {end}
    """
    whole = _COMMON + _STARTS["simulated"] + textwrap.dedent(text)
    result = run(program=("-c", whole), PYTHONPATH=f"{ROOT}:{HOST}", cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    worker, board = map(int, result.stdout.split())
    try:
        until = time.monotonic() + 5
        while os.path.exists(f"/proc/{board}"):
            state = Path(f"/proc/{board}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z":
                break
            assert time.monotonic() < until, "the board's process goes on"
            time.sleep(0.05)
        assert os.path.exists(f"/proc/{worker}")
    finally:
        os.kill(worker, 9)


def test_a_child_of_a_program_with_streams_of_frames():
    program(
        "simulated",
        """
        board.close()
        board = peerdma.open("sim", arguments=["--user", "pattern"])
        arrays = [np.zeros(4096, np.uint8) for _ in range(3)]
        source = peerdma.testing.PatternSource(board)
        with board.frames(arrays) as frames:
            source.start(4096)
            first = next(frames)

            def tries():
                refused(lambda: next(frames))
                refused(first.intact)
                refused(first.release)
                frames.close()
                with frames:
                    pass

            end(child(tries))
            second = next(frames)
            assert second.number == 1 and second.intact()
        board.close()
        """,
    )


def test_a_child_of_a_program_with_a_launch_queue():
    program(
        "simulated",
        """
        from tests.host.board.launch_helpers import LAUNCHING
        board.close()
        board = peerdma.open("sim", arguments=[*LAUNCHING, "--mailbox-page"])
        source, target = np.ones(64, np.uint8), np.zeros(64, np.uint8)
        mailbox = board.mailbox()
        queue = board.queue([board.prepare(source, target)])
        ticket = queue.submit(0)

        def tries():
            for call in (
                lambda: queue.submit(0), lambda: queue.wait(ticket), queue.check, queue.stats,
                queue.resume, lambda: queue.device, mailbox.read, lambda: mailbox.write("first", 1),
            ):
                refused(call)
            queue.close()
            mailbox.close()
            with queue, mailbox:
                pass

        end(child(tries))
        queue.wait(ticket)
        assert target.all()
        target[:] = 0
        queue.wait(queue.submit(0))
        assert target.all()
        mailbox.write("first", 5)
        queue.close()
        mailbox.close()
        board.close()
        """,
    )


def test_what_belongs_to_a_process_cannot_be_handed_on(board):
    array = np.zeros(10, np.uint8)
    with peerdma.gpu("emulated") as gpu, gpu.surface(10) as surface, board.pin(array) as pin:
        plan = board.prepare(array, surface)
        job = board.submit(array, surface)
        job.result()
        for thing in (board, gpu, surface, pin, pin[:], plan, job, {"board": board}):
            for way in (pickle.dumps, copy.copy if thing is not pin[:] else pickle.dumps):
                if isinstance(thing, (dict, peerdma.Span)) and way is copy.copy:
                    continue
                with pytest.raises(TypeError, match="belongs to the process that made it"):
                    way(thing)
        del plan, job


def test_a_cuda_gpu_in_a_child(device_gpu, cuda_api):
    """CUDA is not called at all there: not to use the memory, nor to free it."""
    surface = device_gpu.surface(100)
    calls = len(cuda_api.calls)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        pid = os.fork()
    if not pid:
        status = 1
        try:
            for call in (lambda: device_gpu.surface(10), device_gpu.synchronize, surface.get):
                with pytest.raises(peerdma.PeerdmaError, match=r"opened before fork\(\)"):
                    call()
            surface.close()
            device_gpu.close()
            del surface
            status = 0 if len(cuda_api.calls) == calls else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert not surface.get().any()
    surface.close()
