# SPDX-License-Identifier: BSD-2-Clause
"""Measured jobs that a GPU launches: exact cycles of the RTL."""

from __future__ import annotations

import pytest

from sim.perf.ideal import USUAL
from sim.perf.launch import LaunchRig
from tests.boards import BOARDS

NBYTES = 4096


@pytest.fixture(scope="module")
def rig():
    with LaunchRig(USUAL, NBYTES, **BOARDS["launching"]) as rig:
        yield rig


@pytest.mark.parametrize("way", ["page", "wide", "shadow"])
def test_a_launched_job_moves_its_bytes_in_order(rig, way):
    """The entry's round trip of 1 µs is 125 cycles; nothing comes before what it waits for."""
    for kind in ("h2c", "c2h"):
        rig.memory(rig.target, NBYTES)[:] = 0
        times = rig.launch(kind, NBYTES, way=way)
        assert list(times) == sorted(times)
        assert way == "wide" or times.entry - times.asked > 125
        assert times.data - times.first > NBYTES / 4
    # What the last job brought back is what the first one took.
    source, target = (rig.memory(at, NBYTES) for at in (rig.source, rig.target))
    assert (source == target).all()


def test_times_repeat_to_the_cycle():
    found = []
    for _ in range(2):
        with LaunchRig(USUAL, NBYTES, **BOARDS["launching"]) as rig:
            found.append([rig.launch("c2h", 64, way=way) for way in ("page", "wide", "shadow")])
    assert found[0] == found[1]


def test_packets_of_a_source_that_has_always_one_more():
    """One behind the other takes 41 cycles, but for those in which entries are read."""
    with LaunchRig(USUAL, NBYTES, **BOARDS["receiver"]) as rig:
        cycles = [1 / rig.packets(64, tickets, count=64) for tickets in (1, 16)]
    assert cycles == pytest.approx([247, 45], abs=0.1)


def test_a_job_that_fails_is_no_time(rig):
    """Its descriptor names card memory that is not there."""
    with pytest.raises(RuntimeError, match="a job of 4096 bytes did not end well"):
        rig.launch("h2c", NBYTES, card=1 << 20)
