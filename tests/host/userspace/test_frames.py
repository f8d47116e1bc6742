# SPDX-License-Identifier: BSD-2-Clause
"""How many frames of a run are filled, by the engine's count and status."""

import pytest

import peerdma
from peerdma.memory.scatter import ScatterList
from peerdma.regs import BAR_DMA, C2H_CHANNEL_BASE, CHANNEL, Status
from peerdma.userspace.frames import FrameRun
from tests.host.userspace.test_xdma import GOOD, Registers, driver


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
    return FrameRun(driver(registers), frames, None, 0, lambda: None, cyclic=True, timeout=1)


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


def test_a_run_that_ended_well_is_counted_whole(registers, run):
    reports(registers, 6, GOOD)
    tells(registers, run)
    assert run.ended
    assert run.filled() == 3
