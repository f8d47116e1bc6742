# SPDX-License-Identifier: BSD-2-Clause
"""A core without an adapter, at 256 bits, on the native model: data is right, cycles are exact.

At 64 and 128 bits `make perf PERF_ARGS="--width 128 --link gen2x4"` has the same core checked; a
test would have to compile it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from peerdma.errors import TransferError
from sim.board.session import Conditions, Seam, Session
from sim.compile.model import compiled
from sim.perf import __main__ as command
from sim.perf.ideal import ideal
from sim.perf.rig import KINDS, Rig
from sim.perf.wide import bound, measure, on_link, rows, seams, table, usual
from tests.boards import WIDE
from tests.sim.perf.unkind import there_and_back

LINK = on_link("gen3x8", WIDE["seam"])
SIZE = 20_000


def written(conditions: Conditions, kind: str) -> list[tuple[int, int]]:
    """Where a transfer's writes go, relative to its memory, and their bytes."""
    with Rig(conditions, SIZE) as rig:
        rig.session.events()
        rig.bytes_per_cycle(kind, SIZE, 4096)
        events = rig.session.events()
        events = events[events["address"] >= rig.target]
        return [(int(at) - rig.target, int(n)) for at, n in events[["address", "nbytes"]]]


def test_it_is_the_core_that_tests_share():
    assert (LINK.tags, LINK.clock_khz, LINK.seam) == tuple(
        WIDE[name] for name in ("tags", "clock_khz", "seam")
    )


@pytest.mark.parametrize("kind", ["c2h", "copy"])
def test_the_same_writes_as_behind_an_adapter(kind):
    """Of 64 bits, on a slower link: the same bytes go in the same writes. What a copy brings is
    compared with what it took."""
    writes = written(LINK, kind)
    assert writes == written(Conditions(), kind)
    assert sum(nbytes for _, nbytes in writes) == SIZE


@pytest.mark.parametrize(
    "unkind",
    [{}, {"reorder": 1}, {"beat_idle": 0.2, "transmit_stall": 0.2}, {"tlp_gap": 3}],
    ids=["kind", "other tags", "pauses", "gaps"],
)
def test_what_was_sent_to_the_board_comes_back(unkind):
    with Rig(replace(LINK, **unkind), SIZE) as rig:
        there_and_back(rig, SIZE)


@pytest.mark.parametrize("conditions", [LINK, Conditions()], ids=["seam", "adapter"])
def test_a_write_that_the_block_drops_is_told(conditions):
    """At the seam by its token."""
    failed = pytest.raises(TransferError, match="C2H transfer failed")
    with Rig(replace(conditions, discards=(9,)), SIZE) as rig, failed:
        rig.bytes_per_cycle("c2h", SIZE, 999)


#: Cycles of 4 ns from Run: a descriptor is asked for, it is there, the data is where it belongs,
#: the host is told.
TIMES = {
    ("h2c", 64): (12, 267, 536, 545),
    ("h2c", 4096): (12, 267, 687, 697),
    ("c2h", 64): (12, 267, 286, 290),
    ("c2h", 4096): (12, 267, 445, 447),
    ("copy", 64): (12, 267, 546, 550),
    ("copy", 4096): (12, 267, 713, 715),
}
#: Of 64 KiB in descriptors of 4 KiB, their fetch included.
CYCLES = {"h2c": 2964, "c2h": 2839, "copy": 3362, "dual": 3108}


def test_a_few_transfers_to_the_cycle():
    with Rig(LINK, 4096) as rig:
        assert {(kind, n): tuple(rig.times(kind, n)) for kind, n in TIMES} == TIMES


def test_rates_to_the_cycle():
    size = 1 << 16
    with Rig(LINK, size) as rig:
        rates = {kind: rig.bytes_per_cycle(kind, size, 4096) for kind in CYCLES}
    assert {kind: round(size / rate) for kind, rate in rates.items()} == CYCLES


@pytest.mark.parametrize("kind", ["lat_h2c", "lat_c2h", "lat_copy"])
def test_a_doorbell_in_the_first_cycle_breaks_no_rule(kind):
    assert ideal(kind, 64, LINK).errors == 0


@pytest.mark.parametrize("seam", [None, LINK.seam._replace(width=128)])
def test_a_model_of_another_core_is_refused(seam):
    with pytest.raises(ValueError, match="this core has 256 bits at the seam"):
        Session(compiled(**WIDE), replace(LINK, seam=seam), 4096)


def test_a_core_with_an_adapter_is_none():
    with pytest.raises(ValueError, match="this core is behind the adapter"):
        Session(compiled(), replace(Conditions(), seam=Seam(64)), 4096)


# The table ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changed", "expected"),
    [
        # A write of 128 bytes takes five cycles of 4 ns.
        ("c2h", {}, (6400.0, "port")),
        # 16 reads of 512 bytes in 2.3 µs.
        ("h2c", {"rtt_ns": 2000.0}, (8192 / 2.3, "room")),
        ("copy", {"completion_bytes": 64}, (5812.0, "link")),
    ],
)
def test_what_bounds_a_rate(kind, changed, expected):
    value, name = bound(kind, replace(LINK, **{"rtt_ns": 500.0} | changed))
    assert (value, name) == (pytest.approx(expected[0], rel=1e-4), expected[1])


def test_the_table():
    found = measure(replace(LINK, rtt_ns=500.0, completion_bytes=128))
    assert [row.kind for row in found] == list(KINDS)
    assert all(0.98 < row.value / row.bound < 1.02 for row in found)
    heading, line = table(found).splitlines()
    assert heading.split()[:4] == ["headers", "RTT", "MPS", "size"]
    assert line.split()[:4] == ["128", "0.5", "128", "128"] and line.count("%") == 4


@pytest.mark.parametrize(
    ("link", "width", "clock"),
    [("gen2x1", 64, 62_500), ("gen2x4", 128, 125_000), ("gen3x8", 256, 250_000)],
)
def test_the_clock_is_the_slowest_that_carries_the_link(link, width, clock):
    assert on_link(link, Seam(width)).clock_khz == clock
    # Three round trips, three payloads, completions of 64 bytes and of the max payload.
    work = set(rows(link, seams(width, [36, 128])))
    assert len(work) == 2 * 3 * 3 * 2
    assert len([*filter(usual, work)]) == 2 * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--width", "64"], "--link belongs to one of --width and --block"),
        (["--link", "gen2x1"], "--link belongs to one of --width and --block"),
        (["--block", "series7", "--link", "gen2x1"], "series7 is no block of UltraScale"),
        (["--width", "64", "--link", "gen3x8"], "64 bits do not carry gen3x8 at 250 MHz"),
        (["--width", "64", "--link", "gen4x1"], "a link is gen1x1 to gen3x8, not 'gen4x1'"),
    ],
)
def test_what_cannot_be_measured(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["perf", *arguments])
    with pytest.raises(SystemExit):
        command.main()
    assert said in capsys.readouterr().err
