# SPDX-License-Identifier: BSD-2-Clause
"""What each of several channels has of the link, in exact cycles of the RTL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peerdma.userspace.engine import Direction
from sim.perf.channels import CHANNELS, ChannelsRig
from sim.perf.ideal import USUAL
from tests.boards import BOARDS

SMALL, LARGE = 64, 4096
CYCLES = 25_000
#: The least bytes per cycle of each, of four alike: what a fourth of the link carries.
ALIKE = {Direction.H2C: (0.5, 0.83), Direction.C2H: (0.74, 0.85)}


def test_it_is_the_core_that_tests_share():
    assert BOARDS["plain"] == {"plain": True, "h2c": CHANNELS, "c2h": CHANNELS}


def shares(side, *pieces):
    with ChannelsRig(USUAL, plain=True) as rig:
        return rig.shares(side, pieces, CYCLES)


@pytest.mark.parametrize("side", Direction)
def test_small_descriptors_cost_a_channel_no_turns(side):
    """Beside three of large ones it has what it has among its own kind, and so have they."""
    for piece, least in zip((SMALL, LARGE), ALIKE[side], strict=True):
        alike = shares(side, *[piece] * CHANNELS)
        assert min(alike) >= least and max(alike) <= 1.03 * min(alike)
    small, *large = shares(side, SMALL, *[LARGE] * (CHANNELS - 1))
    assert small >= 0.95 * ALIKE[side][0]
    assert min(large) >= 0.97 * ALIKE[side][1]


def test_only_channels_that_run_have_bytes():
    found = shares(Direction.C2H, 0, LARGE, 0, 0)
    assert found[1] > 3.4
    assert [found[n] for n in (0, 2, 3)] == [0, 0, 0]


def test_a_channel_that_does_not_stop_is_an_error(monkeypatch):
    """Its reads are still under way."""
    monkeypatch.setattr("sim.perf.channels._AFTER", 0)
    late = pytest.raises(RuntimeError, match="H2C channel 0 does not stop")
    with ChannelsRig(replace(USUAL, rtt_ns=50_000.0), plain=True) as rig, late:
        rig.shares(Direction.H2C, (LARGE, 0, 0, 0), CYCLES)
