# SPDX-License-Identifier: BSD-2-Clause
"""Which transfers the user-space driver runs at once, against registers that answer as scripted."""

from types import SimpleNamespace

import pytest

import peerdma
from peerdma.board.transfer import Through
from peerdma.memory.scatter import ScatterList
from peerdma.regs import C2H_CHANNEL_BASE, CHANNEL, EXTENSION, ErrorKind, Status
from peerdma.userspace.engine import Direction
from peerdma.userspace.frames import FrameRun
from peerdma.userspace.prepared import Lazy, Prepared, Run
from peerdma.userspace.scheduler import Scheduler
from tests.host.userspace.test_xdma import GOOD, ONE, Registers, driver

H2C, C2H = Direction.H2C, Direction.C2H
BASE = {H2C: 0, C2H: C2H_CHANNEL_BASE}


@pytest.fixture
def registers():
    registers = Registers()
    registers.outcome = int(Status.BUSY)
    return registers


@pytest.fixture
def xdma(registers):
    return driver(registers, timeout=100)


@pytest.fixture
def interrupts():
    """What `take_interrupt` finds, in turn; False when there is nothing more."""
    return []


@pytest.fixture
def scheduler(xdma, interrupts):
    def take_interrupt():
        found = interrupts.pop(0) if interrupts else False
        if isinstance(found, Exception):
            raise found
        return found

    function = SimpleNamespace(take_interrupt=take_interrupt)
    return Scheduler(xdma.engine, SimpleNamespace(notes=lambda since: "", function=function))


@pytest.fixture
def start(scheduler, xdma):
    """Starts a transfer one way, or both ways at once; its tag is its name."""

    def start(name, *directions):
        if len(directions) == 1:
            step = xdma.rings.card(*directions, ONE, 0)
        else:
            step = xdma.rings.stream(ONE, ONE)
        prepared = Prepared((step,), 64, frozenset(directions), None, Through.STREAM)
        scheduler.start(prepared, name, None)

    return start


@pytest.fixture
def report(registers, scheduler, interrupts):
    """The channels end, and interrupt."""

    def report(*directions, status=GOOD):
        for direction in directions:
            registers.set(CHANNEL, "status", int(status), BASE[direction])
        interrupts.append(True)
        scheduler.collect()

    return report


def taken(scheduler):
    """What has ended since the last call, with how."""
    found = scheduler.collect()
    return [found.popleft() for _ in range(len(found))]


def names(scheduler):
    """As `taken`, the tags only."""
    return [name for name, _ in taken(scheduler)]


def running(scheduler):
    return [run.tag for run in scheduler._running]


def test_one_way_and_the_other_go_on_at_once(scheduler, start, report):
    start("write", H2C)
    start("read", C2H)
    assert running(scheduler) == ["write", "read"]
    report(C2H)
    assert names(scheduler) == ["read"]
    report(H2C)
    assert names(scheduler) == ["write"]
    assert scheduler.deadline(None) is None


def test_both_may_end_with_one_interrupt(scheduler, start, report):
    start("write", H2C)
    start("read", C2H)
    report(H2C, C2H)
    assert names(scheduler) == ["write", "read"]


def test_nobody_overtakes_who_wants_the_same_channel(scheduler, start, report):
    """Else copies, which need both, would wait for ever for a stream of the others."""
    start("write", H2C)
    start("copy", H2C, C2H)
    start("read", C2H)
    start("write again", H2C)
    assert running(scheduler) == ["write"]
    report(H2C)
    assert running(scheduler) == ["copy"]
    report(H2C, C2H)
    assert running(scheduler) == ["read", "write again"]
    assert names(scheduler) == ["write", "copy"]


def test_what_waits_is_cancelled_without_the_board(registers, scheduler, start):
    start("write", H2C)
    start("copy", H2C, C2H)
    start("read", C2H)
    registers.writes.clear()
    assert scheduler.cancel("copy")
    assert names(scheduler) == ["copy"]
    assert running(scheduler) == ["write", "read"]
    assert not scheduler.cancel("copy")
    assert not taken(scheduler)


def test_a_failure_of_one_way_leaves_the_other_alone(registers, scheduler, start, report):
    start("write", H2C)
    start("read", C2H)
    report(H2C, status=Status.READ_ABORT)
    ((name, error),) = taken(scheduler)
    assert name == "write" and isinstance(error, peerdma.TransferError)
    control = CHANNEL.address("control", base=C2H_CHANNEL_BASE)
    assert (control, 0) not in registers.writes[-6:]
    assert running(scheduler) == ["read"]


@pytest.fixture
def resets(registers):
    """A soft reset makes the channels idle, which nothing else does."""
    write32 = registers.write32

    def reset(bar, offset, value):
        write32(bar, offset, value)
        if offset == EXTENSION.address("soft_reset"):
            for base in BASE.values():
                registers.set(CHANNEL, "status", 0, base)
                registers.set(CHANNEL, "completed_count", 0, base)

    registers.write32 = reset


@pytest.fixture
def frames(scheduler, xdma):
    """Three frames that are filled round and round."""
    places = [ScatterList([0x1000 * n], [64]) for n in range(1, 4)]
    scheduler.frames = FrameRun(xdma, places, overwrite=False, timeout=100)
    return scheduler.frames


def test_a_reset_ends_frames_too(registers, resets, scheduler, start, frames):
    """With their number as it was before, and at once: none of them comes any more."""
    start("write", H2C)
    registers.set(CHANNEL, "completed_count", 2, C2H_CHANNEL_BASE)
    assert frames.filled() == 2
    reports = frames.reports
    scheduler.cancel("write")
    assert frames.reports > reports, "nobody is woken"
    assert frames.filled() == 2
    with pytest.raises(peerdma.TransferError, match="the engine was reset"):
        frames.check()
    assert scheduler.frames is None


def test_frames_that_do_not_stop_end_the_other_way_with_a_reset(resets, scheduler, start, frames):
    start("write", H2C)
    frames.stop()
    ((name, error),) = taken(scheduler)
    assert name == "write" and "the engine was reset" in str(error)


def test_a_reset_ends_both_ways(resets, scheduler, start, xdma):
    """The engine is reset if a channel does not stop: what the other one did is lost, too."""
    start("write", H2C)
    start("read", C2H)
    scheduler.cancel("write")
    (cancelled, other) = taken(scheduler)
    assert cancelled[0] == "write" and isinstance(cancelled[1], peerdma.Cancelled)
    assert other[0] == "read" and "the engine was reset" in str(other[1])
    assert xdma.engine.resets == 1


def test_what_is_late_makes_room(registers, scheduler, start):
    start("write", H2C)
    start("next", H2C)
    scheduler._running[0].until = 0
    registers.set(CHANNEL, "status", 0)
    ((name, error),) = taken(scheduler)
    assert name == "write" and isinstance(error, peerdma.Timeout)
    assert running(scheduler) == ["next"]


def test_a_lost_board_ends_all(registers, scheduler, start, interrupts):
    for name in ("first", "second"):
        start(name, H2C, C2H)
    registers.lost = True
    interrupts.append(peerdma.BoardLost("gone"))
    assert names(scheduler) == ["first", "second"]


def test_an_interrupt_by_hand_ends_what_it_meets(
    registers, scheduler, start, monkeypatch, interrupts
):
    """Ctrl-C between two registers: that transfer is stopped, and said to have been interrupted."""
    start("write", H2C)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "advance", interrupt)
    registers.set(CHANNEL, "status", 0)
    interrupts.append(True)
    with pytest.raises(KeyboardInterrupt):
        scheduler.collect()
    assert scheduler.deadline(None) == 0
    ((_, error),) = taken(scheduler)
    assert isinstance(error, peerdma.Cancelled)


def test_progress_is_told_when_bytes_have_arrived(scheduler, xdma, report):
    """Not after the half of a copy through card RAM that only brings them to the card."""

    def steps():
        for end in (32, 64):
            yield xdma.rings.card(H2C, ONE, 0, end - 32)
            yield xdma.rings.card(C2H, ONE, 0, end)

    told = []
    prepared = Prepared(Lazy(steps), 64, frozenset(Direction), None, Through.CARD_RAM)
    scheduler.start(prepared, "copy", lambda *step: told.append(step))
    for direction in (H2C, C2H, H2C, C2H):
        assert not taken(scheduler)
        report(direction)
    assert names(scheduler) == ["copy"]
    assert told == [(32, 64), (64, 64)]


def test_a_step_without_room_for_completions_waits_and_is_made_again(
    scheduler, start, xdma, monkeypatch, report
):
    """Stopped first; when there is room, it starts from its beginning, and its end is an end."""
    engine, room = xdma.engine, []

    def check(*_):
        if not room:
            raise peerdma.TransferError("no room", kind=ErrorKind.NO_COMPLETION_SPACE)

    monkeypatch.setattr(engine, "check", check)
    monkeypatch.setattr(engine, "has_lost_reads", lambda: not room)
    start("write", H2C)
    report(H2C)
    (run,) = scheduler._running
    assert not taken(scheduler) and run.waits and not run.started
    for _ in range(2):
        run.until = 0
        assert not taken(scheduler) and run.waits
    room.append(True)
    run.until = 0
    scheduler.collect()
    assert not run.waits and run.started
    report(H2C)
    assert names(scheduler) == ["write"]
