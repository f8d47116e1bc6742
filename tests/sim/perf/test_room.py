# SPDX-License-Identifier: BSD-2-Clause
"""What the room for completions costs, and what it keeps: in exact cycles of the RTL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peerdma import regs
from peerdma.userspace.registers import Bank
from sim.perf.ideal import USUAL, ideal
from sim.perf.rig import Rig

#: The link carries what the core's port does: as one lane at 62.5 MHz, in the same cycles, but of
#: the core that other tests have, too.
FAST = replace(USUAL, link_mbps=1000.0, lanes=2, rtt_ns=500.0, ack_ns=200.0, completion_bytes=64)
SIZE = 1 << 18
#: Cycles of 125 MHz in 10 µs
SOON = 1250


@pytest.mark.parametrize("kind", ["h2c", "copy"])
@pytest.mark.parametrize(
    ("idle", "beats"), [({"tlp_gap": 1}, 11), ({"tlp_gap": 2}, 12), ({"beat_idle": 0.2}, 12.5)]
)
def test_a_block_that_pauses_loses_nothing(kind, idle, beats):
    """The port carries less than the link: completions wait in the block's buffer."""
    with Rig(replace(FAST, **idle), SIZE) as rig:
        assert rig.bytes_per_cycle(kind, SIZE) > 0.97 * 64 / beats


@pytest.mark.parametrize("kind", ["h2c", "copy"])
@pytest.mark.parametrize(("rtt_ns", "payload"), [(2000.0, 128), (2000.0, 512), (4000.0, 512)])
def test_rates_of_an_engine_without_bubbles(kind, rtt_ns, payload):
    """4 µs are more than 36 completions of 64 bytes carry: that engine is slower, too."""
    conditions = replace(USUAL, rtt_ns=rtt_ns, max_payload=payload)
    best = ideal(kind, SIZE, conditions)
    free = ideal(kind, SIZE, conditions, accounts=False)
    with Rig(conditions, SIZE) as rig:
        rate = rig.bytes_per_cycle(kind, SIZE)
    assert rate > 0.97 * (best.read_rate if kind == "h2c" else best.write_rate)
    if rtt_ns == 2000:
        assert rate > 0.97 * (free.read_rate if kind == "h2c" else free.write_rate)


@pytest.mark.parametrize(
    ("conditions", "on"),
    [
        ({"max_payload": 128}, True),
        ({"max_payload": 256}, True),
        ({"max_payload": 512}, True),
        # Between beats, between TLPs, and once for long
        ({"completion_bytes": 64, "beat_idle": 0.2}, True),
        ({"completion_bytes": 64, "tlp_gap": 3}, True),
        ({"completion_bytes": 64, "receive_pause": (2000, 80)}, True),
        ({"max_payload": 512, "receive_pause": (2000, 160)}, False),
    ],
    ids=str,
)
def test_overcommit(conditions, on):
    """As an engine that has room for all, until the port was seen to be far behind the link."""
    now = replace(USUAL, rtt_ns=4000.0, **conditions)
    free = ideal("h2c", SIZE, now, accounts=False)
    with Rig(now, SIZE, overcommit=True) as rig:
        rates = [rig.bytes_per_cycle("h2c", SIZE) for _ in range(2)]
        bits = Bank(rig.session, regs.EXTENSION).read("capabilities")
    assert (regs.Capability.OVERCOMMIT_OFF not in regs.Capability(bits)) is on
    assert regs.Capability.OVERCOMMIT in regs.Capability(bits)
    assert (rates[1] > 0.97 * free.read_rate) is on
    assert rates[1] > 0.75 * free.read_rate


@pytest.mark.parametrize("boundary", [64, 128])
def test_descriptors_do_not_wait_long_behind_data(boundary):
    with Rig(replace(USUAL, boundary=boundary), 1 << 20) as rig:
        assert rig.write_under_reads(4096, 1 << 20, 5000).fetched <= SOON
        alone = rig.bytes_per_cycle("c2h", 500 * 256, 256)
        assert rig.writes_under_reads(500 * 256, 256, 1 << 20, 5000) >= 0.9 * alone


def test_software_says_how_much_data_is_asked_for():
    """Of 9.6 µs for 4 KiB in front of a descriptor 2.4 µs are left with 1 KiB."""
    fetched = {}
    with Rig(replace(USUAL, boundary=128), 1 << 20) as rig:
        for units in (2, 8):
            Bank(rig.session, regs.EXTENSION).write("reads", units)
            fetched[units] = rig.write_under_reads(4096, 1 << 20, 5000).fetched
    less = (fetched[8] - fetched[2]) / 125
    assert less == pytest.approx(6 * 512 / 428, rel=0.1)
