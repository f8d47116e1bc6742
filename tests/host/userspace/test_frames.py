# SPDX-License-Identifier: BSD-2-Clause
"""How many frames of a run are filled, by the engine's count and status."""

import numpy as np
import pytest

import peerdma
from peerdma.memory.scatter import ScatterList
from peerdma.regs import (
    BAR_DMA,
    C2H_CHANNEL_BASE,
    C2H_SGDMA_BASE,
    CHANNEL,
    DESC_COMPLETED,
    SGDMA,
    SGDMA_COMMON,
    Status,
)
from peerdma.userspace.engine import MOST_CREDITS
from peerdma.userspace.frames import FrameRun
from peerdma.userspace.xdma import Direction, Xdma
from peerdma.vfio.function import LostWrites
from tests.host.userspace.test_xdma import Registers, driver


@pytest.fixture
def registers():
    registers = Registers()
    registers.descriptors_done = 0
    registers.outcome = int(Status.BUSY)
    return registers


@pytest.fixture
def run(registers):
    """Three frames of two pieces each, round and round."""
    frames = [ScatterList([0x1000 * n, 0x8000 + 0x1000 * n], [64, 64]) for n in range(3)]
    return FrameRun(driver(registers), frames, overwrite=False, timeout=1)


def reports(registers, count, status=Status.BUSY):
    registers.set(CHANNEL, "completed_count", count, C2H_CHANNEL_BASE)
    registers.set(CHANNEL, "status", int(status), C2H_CHANNEL_BASE)


def tells(registers, run):
    """The run learns what the channel reports, as after an interrupt."""
    run.report(registers.read32(BAR_DMA[0], CHANNEL.address("status_rc", base=C2H_CHANNEL_BASE)))
    run.check()


def test_a_frame_is_filled_when_its_last_piece_is(registers, run):
    seen = []
    for count in (0, 1, 2, 5, 6, 7, 12):
        reports(registers, count)
        seen.append(run.filled())
    assert seen == [0, 0, 1, 2, 3, 3, 6]


@pytest.mark.parametrize("before", [0, 2])
def test_the_count_of_a_run_that_failed_includes_what_failed(registers, run, before):
    """Whether it is seen in the status register, or was cleared there before."""
    reports(registers, before)
    assert run.filled() == before // 2
    reports(registers, 4, Status.MAGIC_STOPPED | Status.DESCRIPTOR_STOPPED)
    assert run.filled() == 1
    assert run.filled() == 1
    with pytest.raises(peerdma.TransferError, match="after 1 frames: MAGIC_STOPPED"):
        tells(registers, run)
    assert run.ended


def credits(registers, start=0):
    """What the C2H channel was given, write by write."""
    place = SGDMA.address("descriptor_credits", base=C2H_SGDMA_BASE)
    return [value for offset, value in registers.writes[start:] if offset == place]


def test_the_board_gets_credits_for_what_is_released(registers, run):
    """For the whole ring at first, then for each frame once; an older count changes nothing."""
    assert credits(registers) == [6]
    for count in (1, 3, 3, 2, 4):
        run.release(count)
    assert credits(registers) == [6, 2, 4, 2]


def test_the_channel_is_in_credit_mode_while_it_runs(registers, run):
    enabled, disabled = (
        (SGDMA_COMMON.address(f"credit_enable_{bits}"), 1 << 16) for bits in ("w1s", "w1c")
    )
    control = CHANNEL.address("control", base=C2H_CHANNEL_BASE)
    started = registers.writes.index(enabled)
    assert any(place == control for place, _ in registers.writes[started:])
    assert disabled not in registers.writes[started:]
    stopping = len(registers.writes)
    run.stop()
    # Not before the channel has been stopped: it would go on, into frames that are in use.
    assert registers.writes[stopping:][-1] == disabled
    assert (control, 0) in registers.writes[stopping:]
    run.release(100)
    assert not credits(registers, stopping)


def test_a_run_that_overwrites_needs_no_credits(registers):
    frames = [ScatterList([0x1000 * n], [64]) for n in range(3)]
    run = FrameRun(driver(registers), frames, overwrite=True, timeout=1)
    run.release(7)
    assert not credits(registers)


def test_more_descriptors_than_the_board_counts_credits(registers):
    """Two frames of 1,500 pieces: the pool is filled up as often as the board reports."""
    frames = [ScatterList(0x10_0000 * n + 128 * np.arange(1500), [64] * 1500) for n in range(2)]
    xdma = driver(registers, descriptors=4096)
    run = FrameRun(xdma, frames, overwrite=False, timeout=1)
    assert credits(registers) == [MOST_CREDITS]
    done, control = 0, xdma._ring.descriptors["control"]
    while run.filled() < 6:
        run.release(run.filled())
        # The board makes descriptors as it has credits for them, and reports at some.
        assert done < sum(credits(registers)) <= done + MOST_CREDITS
        while done < sum(credits(registers)):
            done += 1
            reports(registers, done)
            if control[(done - 1) % 3000] & DESC_COMPLETED:
                tells(registers, run)
                break
    assert done == 6 * 1500


def test_lost_writes_are_no_error_of_whoever_sees_the_interrupt(registers):
    """It may be another job's thread; who waits for the frame gets the error."""
    frames = [ScatterList([0x1000 * n], [64]) for n in range(3)]
    run = FrameRun(driver(registers), frames, overwrite=False, timeout=1)
    registers.lost_writes = LostWrites(0x1000, 64, 1)
    reports(registers, 1)
    run.report(int(Status.DESCRIPTOR_COMPLETED))
    with pytest.raises(peerdma.TransferError, match="1 writes of 64 bytes"):
        run.filled()
    assert run.ended


def test_a_board_that_was_left_in_credit_mode_is_usable(monkeypatch):
    """By a program that was killed in a loop, where the board cannot be reset."""
    opened = Xdma.__init__

    def left(self, *arguments):
        opened(self, *arguments)
        self.engine.channels[Direction.C2H].use_credits(True)

    monkeypatch.setattr(Xdma, "__init__", left)
    # More descriptors than are pushed: those need no credits.
    source = np.arange(64, dtype=np.uint8)
    targets = [np.zeros(4, np.uint8) for _ in range(16)]
    with peerdma.open("sim", timeout=10) as board:
        board.copy(source, targets)
    assert (np.concatenate(targets) == source).all()
