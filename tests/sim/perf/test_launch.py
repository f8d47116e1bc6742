# SPDX-License-Identifier: BSD-2-Clause
"""Measured jobs that a GPU launches: exact cycles of the RTL."""

from __future__ import annotations

import pytest

from sim.perf.ideal import USUAL
from sim.perf.launch import LaunchRig

NBYTES = 4096


@pytest.fixture(scope="module")
def rig():
    with LaunchRig(USUAL, NBYTES) as rig:
        yield rig


@pytest.mark.parametrize("polls", [False, True])
def test_a_launched_job_moves_its_bytes_and_repeats_to_the_cycle(rig, polls):
    """The entry's round trip of 1 µs is 125 cycles; nothing comes before what it waits for."""
    for kind in ("h2c", "c2h"):
        rig.memory(rig.target, NBYTES)[:] = 0
        first, again = (rig.launch(kind, NBYTES, polls=polls) for _ in range(2))
        assert list(first) == sorted(first)
        assert first.entry - first.asked > 125
        assert first.data - first.first > NBYTES / 4
        assert polls or first == again
    # What the last job brought back is what the first one took.
    source, target = (rig.memory(at, NBYTES) for at in (rig.source, rig.target))
    assert (source == target).all()


def test_a_job_that_fails_is_no_time(rig):
    """Its descriptor names card memory that is not there."""
    with pytest.raises(RuntimeError, match="a job of 4096 bytes did not end well"):
        rig.launch("h2c", NBYTES, card=1 << 20)
