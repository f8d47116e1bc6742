# SPDX-License-Identifier: BSD-2-Clause
"""Interrupts: wherever one comes in a call, it comes out, and the board goes on.

A signal handler runs where the interpreter looks for signals: as a function begins, and after each
call. A profiler is called at these places, too, and what it raises comes out like what a handler
raises. So each of them can be tried: a sample by default, all with ``INTERRUPTS=all``.
"""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import peerdma
from peerdma.process import keep
from tests.host.board.launch_helpers import LAUNCHING

LIBRARY = str(Path(peerdma.__file__).parent)
#: Places that are tried in each call.
SAMPLE = 60
#: Seconds within which anything is over after an interrupt.
PATIENCE = 8.0


class Profiler:
    """Raises at place number `at` in the library's functions, once; counts them."""

    def __init__(self, at: int, error: type[BaseException]):
        self.at, self.error = at, error
        self.count = 0
        self.where = ""
        #: the interpreter reports what is raised in a finalizer, and goes on
        self.ignored = False

    def _note_ignored(self, report) -> None:
        self.ignored = report.exc_type is self.error

    def __call__(self, frame, event, _):
        # What `keep` calls returns to the interpreter's own code, which looks for no signals.
        kept = event == "return" and frame.f_back and frame.f_back.f_code is keep.__code__
        ours = frame.f_code.co_filename.startswith(LIBRARY)
        if ours and not kept and event in ("call", "return", "c_return"):
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                name = frame.f_code.co_filename.removeprefix(LIBRARY)
                self.where = f"{name}:{frame.f_lineno}, {event} in {frame.f_code.co_name}"
                raise self.error

    def run(self, call: Callable[[], object]) -> BaseException | None:
        """Makes a call; returns the error that came out."""
        hook, sys.unraisablehook = sys.unraisablehook, self._note_ignored
        sys.setprofile(self)
        try:
            call()
        except self.error as error:
            return error
        finally:
            sys.setprofile(None)
            sys.unraisablehook = hook
        return None


class Handler(Exception):
    """What a signal handler raises."""


class Setup:
    """A board with memory for each of the calls that are interrupted."""

    def __init__(self, board: peerdma.Board, gpu: peerdma.Gpu):
        self.board, self.gpu = board, gpu
        self.surface = gpu.surface(300_000)
        self.source = np.random.default_rng(1).integers(0, 256, 5000, np.uint8)
        self.target = np.zeros_like(self.source)
        self.pins = board.pin(self.source), board.pin(self.target)

    def copy(self):
        self.board.copy(*self.pins)

    def copy_of_arrays(self):
        self.board.copy(self.source, self.target)

    def copy_to_a_gpu(self):
        self.board.copy(self.source, self.surface.bytes[:5000])

    def write(self):
        self.board.write(self.pins[0], 64)

    def plan(self):
        self.board.prepare(self.source, self.target).run()

    def submit(self):
        self.board.submit(*self.pins).result()

    def pin(self):
        with self.board.pin(self.surface), self.board.pin(np.zeros(5000, np.uint8)):
            pass

    def works(self):
        """Another copy arrives, in time."""
        began = time.monotonic()
        source = np.random.default_rng().integers(0, 256, 3000, np.uint8)
        target = np.zeros_like(source)
        self.board.copy(source, target)
        assert (source == target).all()
        # With a surface, whose place on the bus is always the same.
        with self.board.pin(self.surface) as pin:
            self.board.copy(source, pin[:3000])
        assert (self.surface.bytes[:3000] == source).all()
        assert time.monotonic() - began < PATIENCE


@pytest.fixture
def setup():
    with peerdma.gpu("emulated") as gpu, peerdma.open("sim") as board:
        yield Setup(board, gpu)
        began = time.monotonic()
        board.close()
        assert time.monotonic() - began < PATIENCE


CALLS = ("copy", "copy_of_arrays", "copy_to_a_gpu", "write", "plan", "submit", "pin")


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_place(setup, seed, call):
    draw, everywhere = random.Random(seed), os.environ.get("INTERRUPTS") == "all"

    def places():
        dry = Profiler(0, KeyboardInterrupt)
        dry.run(getattr(setup, call))
        setup.works()
        return dry.count

    # The first call of all does more. And one that is interrupted may leave memory pinned, so that
    # the next ones do less.
    places()
    assert places() > 100
    rounds, came = 0, 0
    for number in range(places() if everywhere else SAMPLE):
        place = number + 1 if everywhere else draw.randint(1, places())
        if everywhere and place > places():
            continue
        rounds += 1
        profiler = Profiler(place, KeyboardInterrupt if place % 2 else Handler)
        began = time.monotonic()
        try:
            error = profiler.run(getattr(setup, call))
            came += error is not None or profiler.ignored
            setup.works()
        except BaseException as error:
            raise AssertionError(f"place {place}: {profiler.where}") from error
        assert time.monotonic() - began < PATIENCE, profiler.where
        # What a call does may depend on what has come from the board by then.
        lost = error is None and not profiler.ignored and profiler.where
        # An Exception while an object is asked whether it is memory is taken for the object's own.
        assert not lost or (profiler.error is Handler and lost.endswith(" in is_memory")), lost
    assert came > rounds // 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, Handler])
def test_signals_at_any_time(setup, seed, error):
    """Handlers that raise, as a timer of the system calls them: each comes out, and no other."""
    random_times, came = random.Random(seed), 0

    def handler(number, frame):
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    try:
        until = time.monotonic() + 8
        while time.monotonic() < until:
            target = np.zeros(100_000, np.uint8)
            source = np.full_like(target, 1 + came % 255)
            try:
                signal.setitimer(signal.ITIMER_REAL, random_times.uniform(1e-4, 3e-2))
                setup.board.copy(source, target)
                setup.board.submit(source, target).result()
                with setup.board.pin(setup.surface):
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except error:
                came += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            setup.board.copy(source, target)
            assert (target == source).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert came > 5


def test_a_wait_that_is_interrupted_while_another_thread_has_the_lock(setup):
    """The lock is taken back before the interrupt comes out, and the job goes on."""
    board, held, go = setup.board, threading.Event(), threading.Event()
    source = np.ones(2 << 20, np.uint8)
    target = np.zeros_like(source)

    def hold():
        with board._lock:
            held.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            go.wait(0.3)

    def handler(number, frame):
        raise Handler

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=hold)
    try:
        job = board.submit(source, target)
        threading.Timer(0.05, thread.start).start()
        with pytest.raises(Handler):
            job.result()
        assert held.is_set() and not board._lock._is_owned()
    finally:
        signal.signal(signal.SIGUSR1, before)
    job.result(60)
    assert target.all()
    thread.join()
    setup.works()


def test_an_entry_is_seen_to_once(setup):
    """The interrupt comes when a job has ended, before its entry is taken off."""
    jobs = setup.board._jobs
    end = jobs._end

    def interrupt(*arguments):
        jobs._end = end
        end(*arguments)
        raise KeyboardInterrupt

    jobs._end = interrupt
    with pytest.raises(KeyboardInterrupt):
        setup.copy()
    setup.works()


def test_a_pin_that_nobody_got_is_given_back(setup, seed):
    """Wherever the interrupt comes, the memory is not pinned after the next call."""
    draw, board = random.Random(seed), setup.board
    dry = Profiler(0, KeyboardInterrupt)
    dry.run(lambda: board.pin(setup.surface).close())
    places = range(dry.count, 0, -1) if os.environ.get("INTERRUPTS") == "all" else [0] * SAMPLE
    for number in places:
        place = number or draw.randint(dry.count // 2, dry.count)
        profiler = Profiler(place, KeyboardInterrupt)
        profiler.run(lambda: board.pin(setup.surface).close())
        setup.copy()
        pinned = [entry.memory for entry in board._pins._entries.values()]
        assert not any(each is setup.surface for each in pinned), f"place {place}: {profiler.where}"


def test_a_pin_that_nobody_has_any_more_closes(setup):
    """It is kept by a span or a plan of it, and not given back before these are gone."""
    board, array = setup.board, np.zeros(100, np.uint8)
    before = len(board._pins)
    plan = board.prepare(board.pin(array)[:50], setup.pins[1][:50])
    setup.copy()
    assert len(board._pins) == before + 1
    plan.run()
    del plan
    setup.copy()
    assert len(board._pins) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, Handler])
def test_closing_that_is_interrupted_goes_on_at_the_next_close(seed, error):
    draw, everywhere = random.Random(seed), os.environ.get("INTERRUPTS") == "all"

    def closed(place):
        board = peerdma.open("sim", arguments=LAUNCHING)
        source, destination = np.ones(5000, np.uint8), np.zeros(5000, np.uint8)
        board.submit(source, destination).result()
        queue = board.queue([board.prepare(source, destination)])
        profiler = Profiler(place, error)
        profiler.run(board.close)
        began = time.monotonic()
        board.close()
        board.close()
        assert time.monotonic() - began < PATIENCE, profiler.where
        assert queue.closed and not queue._thread.is_alive(), profiler.where
        assert not board._jobs._thread.is_alive(), profiler.where
        assert not board._backend._process._keeper.is_alive(), profiler.where
        assert not len(board._pins) and not board._lock._is_owned(), profiler.where
        return profiler.count

    count = closed(0)
    places = range(1, count + 1)
    # The last ones come when the board is closed, and its threads are waited for.
    for place in places if everywhere else [*draw.sample(places, SAMPLE // 10), *places[-8:]]:
        closed(place)
