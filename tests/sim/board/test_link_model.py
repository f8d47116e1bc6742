# SPDX-License-Identifier: BSD-2-Clause
"""The native model of hard block, link and root complex against an independent one.

The numbers below come from a cycle-level model written separately in Python, driven by the same
engine without bubbles: 8 bytes of framing per TLP, one ACK per 4 TLPs and one UpdateFC per 4
posted or non-posted TLPs of 8 bytes each, SKP overhead 4/1538, 30 transmit buffers freed 400 ns
after the last byte, reads of 512 bytes with 32 tags, at most 16 writes queued beside reads.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from peerdma.board.link import Link
from sim.board.session import Conditions, Seam
from sim.perf.ideal import ideal

# what, clock MHz, link MB/s, RTT ns, MPS, completion size, bytes,
# write and read bytes per cycle, cycle of doorbell, last data and interrupt
GOLDEN = [
    ("c2h", 62.5, 500, 1000, 128, 128, 65536, 6.9009, 0.0000, None, None, None),
    ("c2h", 125.0, 500, 1000, 128, 128, 65536, 3.4505, 0.0000, None, None, None),
    ("c2h", 125.0, 500, 1000, 256, 256, 65536, 3.7005, 0.0000, None, None, None),
    ("h2c", 62.5, 500, 1000, 128, 128, 65536, 0.0000, 6.8671, None, None, None),
    ("h2c", 125.0, 500, 1000, 128, 128, 65536, 0.0000, 3.4338, None, None, None),
    ("h2c", 125.0, 500, 1000, 256, 256, 65536, 0.0000, 3.6814, None, None, None),
    ("copy", 62.5, 500, 1000, 128, 128, 65536, 6.6546, 6.6882, None, None, None),
    ("copy", 125.0, 500, 1000, 128, 128, 65536, 3.3268, 3.3441, None, None, None),
    ("copy", 125.0, 500, 1000, 256, 256, 65536, 3.5842, 3.6301, None, None, None),
    ("dual", 62.5, 500, 1000, 128, 128, 65536, 6.6505, 6.6861, None, None, None),
    ("dual", 125.0, 500, 1000, 128, 128, 65536, 3.3234, 3.3441, None, None, None),
    ("dual", 125.0, 500, 1000, 256, 256, 65536, 3.5772, 3.6289, None, None, None),
    ("h2c", 62.5, 500, 500, 128, 128, 65536, 0.0000, 6.8682, None, None, None),
    ("h2c", 62.5, 500, 4000, 128, 128, 65536, 0.0000, 6.8682, None, None, None),
    ("copy", 62.5, 500, 500, 128, 128, 65536, 6.6546, 6.6882, None, None, None),
    ("copy", 62.5, 500, 4000, 128, 128, 65536, 6.6546, 6.6882, None, None, None),
    ("dual", 62.5, 500, 500, 128, 128, 65536, 6.6505, 6.6861, None, None, None),
    ("dual", 62.5, 500, 4000, 128, 128, 65536, 6.6427, 6.6861, None, None, None),
    ("h2c", 62.5, 500, 1000, 128, 64, 65536, 0.0000, 6.0532, None, None, None),
    ("copy", 125.0, 500, 1000, 128, 64, 65536, 2.9567, 2.9568, None, None, None),
    ("c2h", 125.0, 4000, 1000, 128, 128, 65536, 7.1111, 0.0000, None, None, None),
    ("copy", 125.0, 250, 1000, 128, 128, 65536, 1.6634, 1.6720, None, None, None),
    ("lat_c2h", 125.0, 500, 1000, 128, 128, 64, 0.0000, 0.0000, 8.00, 40.05, 46.07),
    ("lat_c2h", 125.0, 500, 1000, 128, 128, 4096, 3.4505, 0.0000, 8.00, 1214.09, 1220.10),
    ("lat_c2h", 125.0, 500, 1000, 128, 128, 65536, 3.4505, 0.0000, 8.00, 19020.40, 19026.41),
    ("lat_h2c", 125.0, 500, 1000, 128, 128, 64, 0.0000, 0.0000, 8.00, 173.00, 180.02),
    ("lat_h2c", 125.0, 500, 1000, 128, 128, 4096, 0.0000, 3.4462, 8.00, 1355.00, 1377.06),
    ("lat_h2c", 125.0, 500, 1000, 128, 128, 65536, 0.0000, 3.4338, 8.00, 19281.00, 19351.18),
    ("lat_copy", 125.0, 500, 1000, 128, 128, 64, 0.0000, 0.0000, 8.00, 204.05, 210.07),
    ("lat_copy", 125.0, 500, 1000, 128, 128, 4096, 3.3638, 3.3642, 8.00, 1439.29, 1445.31),
    ("lat_copy", 125.0, 500, 1000, 128, 128, 65536, 3.3273, 3.3441, 8.00, 19978.32, 19984.33),
    ("lat_copy", 62.5, 500, 2000, 128, 128, 4096, 6.7141, 6.7032, 5.00, 802.55, 805.56),
]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: "-".join(map(str, row[:7])))
def test_agrees_with_the_reference(row):
    what, clock, link, rtt, mps, completion, total, *expected = row
    write_rate, read_rate, doorbell, data, interrupt = expected
    conditions = Conditions(
        clock_khz=int(clock * 1000),
        link_mbps=link,
        rtt_ns=rtt,
        max_payload=mps,
        completion_bytes=completion,
    )
    result = ideal(what, total, conditions, accounts=False)
    assert result.errors == 0
    assert result.write_rate == pytest.approx(write_rate, rel=0.01)
    assert result.read_rate == pytest.approx(read_rate, rel=0.01)
    if doorbell is not None:
        assert result.doorbell == pytest.approx(doorbell, abs=2)
        assert result.data == pytest.approx(data, abs=2)
        assert result.interrupt == pytest.approx(interrupt, abs=2)


def test_completions_beyond_the_buffer_are_lost():
    """32 reads of 512 bytes are more than the receive buffer holds, if the link is fast enough."""
    fast = Conditions(link_mbps=4000)
    assert ideal("h2c", 65536, fast, accounts=False).errors > 0
    assert ideal("h2c", 65536, fast).errors == 0


def test_idle_cycles_of_the_block_let_completions_pile_up():
    """At 62.5 MHz a completion of 64 bytes takes 10 of the 10.5 cycles that it has on the link."""
    small = Conditions(clock_khz=62_500, completion_bytes=64)
    assert ideal("h2c", 1 << 20, small, accounts=False).errors == 0
    for idle in (replace(small, tlp_gap=1), replace(small, beat_idle=0.1)):
        assert ideal("h2c", 1 << 20, idle, accounts=False).errors > 0
        assert ideal("h2c", 1 << 20, idle).errors == 0


@pytest.mark.parametrize(("boundary", "reads"), [(64, 4), (128, 9)])
def test_reads_in_flight_are_limited_by_the_room_for_completions(boundary, reads):
    """A round trip that nothing else can be long beside."""
    rtt_ns = 100_000
    conditions = Conditions(rtt_ns=rtt_ns, boundary=boundary, max_payload=512)
    rate = ideal("h2c", 1 << 18, conditions).read_rate * 125
    assert rate == pytest.approx(reads * 512 / (rtt_ns / 1000), rel=0.1)


def test_idle_cycles_slow_the_port():
    """128 bytes are 18 beats."""
    rate = ideal("h2c", 65536, Conditions(link_mbps=0, tlp_gap=2)).read_rate
    assert rate == pytest.approx(128 / 20, rel=0.01)
    rate = ideal("h2c", 65536, Conditions(link_mbps=0, beat_idle=0.25)).read_rate
    assert rate == pytest.approx(128 / 24, rel=0.03)


def test_a_link_without_limit_fills_the_transaction_port():
    unlimited = Conditions(link_mbps=0)
    assert ideal("c2h", 65536, unlimited).write_rate == pytest.approx(128 / 18, rel=0.001)
    result = ideal("h2c", 65536, unlimited)
    assert result.read_rate == pytest.approx(128 / 18, rel=0.01)
    assert result.errors == 0


@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("payload", [128, 512])
def test_a_link_without_limit_fills_the_seam(width, payload):
    """Out, a packet takes a cycle before its first beat; in, none."""
    lanes = width // 8
    wide = Conditions(link_mbps=0, max_payload=payload, seam=Seam(width, 256, 2100), ack_ns=0)
    result = ideal("c2h", 1 << 18, wide)
    assert result.write_rate == payload / (payload // lanes + 1) and result.errors == 0
    for size in (64, payload):
        near = replace(wide, rtt_ns=100.0, completion_bytes=size)
        result = ideal("h2c", 1 << 18, near)
        assert result.read_rate == pytest.approx(lanes, rel=0.02) and result.errors == 0


@pytest.mark.parametrize(("speed", "lanes", "raw"), [(1, 1, 250), (2, 4, 2000), (3, 8, 7876.9)])
def test_faster_links_carry_what_they_should(speed, lanes, raw):
    """As the bound says, which counts the same packets on another way."""
    conditions = Conditions(
        clock_khz=250_000, link_mbps=raw, speed=speed, max_payload=512, seam=Seam(256, 128, 2048)
    )
    limit = Link(speed, lanes, 512, 512, 64)
    result = ideal("c2h", 1 << 18, conditions)
    port = 512 / 17 * 250
    assert result.write_rate * 250 == pytest.approx(min(limit.write_limit(False) / 1e6, port), 1e-3)
    result = ideal("h2c", 1 << 18, replace(conditions, rtt_ns=200.0))
    assert result.read_rate * 250 == pytest.approx(limit.read_limit(False) / 1e6, rel=2e-3)


def test_unknown_direction():
    with pytest.raises(ValueError, match="not 'sideways'"):
        ideal("sideways", 64)


# Transmit side ---------------------------------------------------------------------------------

#: A write of 128 bytes takes so many cycles of the link, at 125 MHz; and bytes per cycle with that.
_WRITE = (12 + 128 + 8) / 4
_FULL = 128 / _WRITE * (1 - 4 / 1538)


@pytest.mark.parametrize("buffers", [1, 4, 8])
@pytest.mark.parametrize("ack_ns", [400, 2000])
def test_a_write_keeps_its_buffer_until_it_is_acknowledged(buffers, ack_ns):
    conditions = Conditions(transmit_buffers=buffers, ack_ns=ack_ns)
    rate = ideal("c2h", 65536, conditions).write_rate
    # One buffer: filled in 18 cycles, sent, acknowledged. More: that many in each such time.
    turn = 18 + _WRITE + ack_ns / 8
    assert rate == pytest.approx(min(_FULL, buffers * 128 / turn), rel=0.03)


@pytest.mark.parametrize(("headers", "data"), [(4, 0), (0, 32), (64, 1024)])
@pytest.mark.parametrize("credit_ns", [0, 1000])
def test_writes_wait_for_posted_credits(headers, data, credit_ns):
    conditions = Conditions(posted=(headers, data), credit_ns=credit_ns)
    rate = ideal("c2h", 65536, conditions).write_rate
    writes = min(headers or 64, (data or 1024) // 8)
    assert rate == pytest.approx(min(_FULL, writes * 128 / (_WRITE + credit_ns / 8)), rel=0.03)


def test_reads_wait_for_non_posted_credits():
    """A read of 512 bytes is 24 bytes on the link, and its credit comes back 1 µs later."""
    conditions = Conditions(nonposted=1, credit_ns=2000)
    rate = ideal("h2c", 65536, conditions).read_rate
    assert rate == pytest.approx(512 / (5 + 250), rel=0.03)


def test_a_block_that_pauses_takes_as_much():
    """A transmit beat in two cycles is still as fast as the link; one in four is not."""
    conditions = Conditions(transmit_stall=0.4)
    assert ideal("c2h", 65536, conditions).write_rate == pytest.approx(_FULL, rel=0.01)
    conditions = Conditions(transmit_stall=0.75)
    result = ideal("c2h", 65536, conditions)
    assert result.write_rate == pytest.approx(128 / 18 / 4, rel=0.05)
    assert result == ideal("c2h", 65536, conditions)
    assert result != ideal("c2h", 65536, replace(conditions, block_seed=1))
    assert result.errors == 0
