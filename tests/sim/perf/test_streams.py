# SPDX-License-Identifier: BSD-2-Clause
"""A core behind the adapter of UltraScale+, at 256 bits, on the native model.

Its other widths, and UltraScale, run in `make perf PERF_ARGS="--block ultrascale-128 --link
gen3x4"`; a test would have to compile them.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from peerdma.regs import BAR_DMA, CHANNEL, Status
from sim.board.config_space import MSI
from sim.board.session import Conditions, Session
from sim.compile.model import compiled
from sim.perf.figures import times
from sim.perf.rig import KINDS, Rig
from sim.perf.wide import bound, measure, on_link, rows, streams, table
from tests.boards import BOARDS
from tests.sim.perf.unkind import UNKIND, check_pauses, there_and_back

STREAMS = BOARDS["ultrascale-plus"]
STRADDLES, PLAIN = (on_link("gen3x8", block) for block in streams("ultrascale_plus-256"))
SIZE = 20_000
H2C, C2H = KINDS["h2c"][0], KINDS["c2h"][0]


def test_it_is_the_core_that_tests_share():
    numbers = {"tags": STRADDLES.tags, "clock_khz": STRADDLES.clock_khz}
    assert compiled(block=STRADDLES.streams.name, **numbers) == compiled(**STREAMS)


#: And what is hard on this core alone.
MORE = {
    **UNKIND,
    "gaps": ({"reorder": 1, "tlp_gap": 3}, {"interleaved": 10}),
    "credits": ({"nonposted": 2, "posted": (4, 32), "credit_ns": 400.0}, {}),
}


@pytest.mark.parametrize(("unkind", "expected"), MORE.values(), ids=MORE)
@pytest.mark.parametrize("conditions", [STRADDLES, PLAIN], ids=["straddling", "plain"])
def test_what_was_sent_to_the_board_comes_back(conditions, unkind, expected):
    with Rig(replace(conditions, **unkind), SIZE) as rig:
        there_and_back(rig, SIZE)
        check_pauses(rig, expected)


def idle(rig: Rig) -> Status:
    """The status of C2H channel 0, read until it is not busy."""
    at = CHANNEL.address("status", base=C2H.value[0])
    while (status := rig.session.read32(BAR_DMA[0], at)) & Status.BUSY:
        pass
    return Status(status)


def test_status_follows_data():
    """The block keeps writes while the answer to a read of the status passes them."""
    slow = replace(STRADDLES, link_mbps=500.0)
    with Rig(slow, SIZE) as rig:
        for _ in range(4):
            rig.session.events()
            rig._start("c2h", C2H, SIZE, SIZE)
            idle(rig)
            events = rig.session.events()
            assert events["nbytes"][events["address"] >= rig.target].sum() == SIZE
            rig._finish((C2H,), 1)
            rig._driver.engine.stop((C2H,))


def test_a_run_ends_without_bus_master():
    """The block drops what it has, and gives no sequence number back; then all is as before."""
    with Rig(replace(STRADDLES, link_mbps=500.0), SIZE) as rig:
        rig._start("c2h", C2H, SIZE, SIZE)
        rig.session.run(3000)
        rig.session._config(0x04, 0x402, 2)
        assert idle(rig) & Status.errors()
        rig.session._config(0x04, 0x406, 2)
        rig._driver.engine.stop((C2H,))
        rig.bytes_per_cycle("copy", SIZE, 999)


def test_interrupts_by_the_level_of_inta():
    """All other tests have messages. A copy has one for each side, one after the other."""
    model = compiled(**STREAMS)
    with Rig(STRADDLES, SIZE) as rig:
        rig.session._config(model.space.capabilities[MSI] + 2, 0, 2)
        rig.session._config(0x04, 0x006, 2)
        for kind, sides in KINDS.items():
            rig.session.events()
            rig.bytes_per_cycle(kind, SIZE, 999)
            assert (rig.session.events()["nbytes"] == 0).sum() == len(sides)


#: Cycles of 4 ns from Run: a descriptor is asked for, it is there, the data is where it belongs,
#: the host is told.
TIMES = {
    ("h2c", 64): (14, 270, 539, 550),
    ("h2c", 4096): (14, 270, 690, 702),
    ("c2h", 64): (14, 270, 292, 298),
    ("c2h", 4096): (14, 270, 449, 453),
    ("copy", 64): (14, 270, 556, 562),
    ("copy", 4096): (14, 270, 720, 724),
}
#: Of 64 KiB in descriptors of 4 KiB, their fetch included, with completions of 64 bytes: if they
#: straddle, and if not.
CYCLES = {"h2c": (3291, 3610), "c2h": (2841, 2840), "copy": (3396, 3652), "dual": (3360, 3619)}


def test_a_few_transfers_to_the_cycle():
    with Rig(STRADDLES, 4096) as rig:
        assert {(kind, n): tuple(rig.times(kind, n)) for kind, n in TIMES} == TIMES


def test_figures_of_times_need_no_ideal_engine():
    found = {figure.what: figure for figure in times(STRADDLES)}
    assert {figure.ideal for figure in found.values()} == {None}
    for (kind, nbytes), (_, fetched, data, _) in TIMES.items():
        # What ran before on the same board may cost a cycle or two.
        assert abs(found[f"{kind} {nbytes} B: data"].value - (data - fetched)) < 4


@pytest.mark.parametrize("number", [0, 1], ids=["straddling", "plain"])
def test_rates_to_the_cycle(number):
    size = 1 << 16
    with Rig(replace((STRADDLES, PLAIN)[number], completion_bytes=64), size) as rig:
        cycles = {kind: round(size / rig.bytes_per_cycle(kind, size, 4096)) for kind in KINDS}
    assert cycles == {kind: both[number] for kind, both in CYCLES.items()}


def test_reads_do_not_wait_for_many_writes():
    """On a link slower than the streams, writes wait in the block, and what is read comes late."""
    slow = replace(on_link("gen3x4", STRADDLES.streams), clock_khz=STRADDLES.clock_khz)
    slow = replace(slow, max_payload=512)
    short, long = 1 << 16, 1 << 18
    with Rig(slow, long) as rig:
        first, last = (size / rig.bytes_per_cycle("dual", size) for size in (short, long))
    rate = (long - short) / (last - first) * slow.clock_khz / 1000
    assert rate > 0.98 * bound("dual", slow)[0]


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        (Conditions(), "this core is for the block ultrascale_plus-256"),
        (
            replace(STRADDLES, streams=STRADDLES.streams._replace(name="ultrascale-256")),
            "this core is for the block ultrascale_plus-256",
        ),
        (replace(STRADDLES, discards=(9,)), "ultrascale_plus-256 discards no TLP"),
    ],
)
def test_what_the_model_refuses(conditions, said):
    with pytest.raises(ValueError, match=said):
        Session(compiled(**STREAMS), conditions, 4096)


def test_a_core_behind_another_adapter_is_none():
    with pytest.raises(ValueError, match="this core is behind the adapter of the 7 series"):
        Session(compiled(), replace(Conditions(), streams=STRADDLES.streams), 4096)


def test_models_of_two_blocks_share_nothing():
    """As a process may load both: no symbol of ours is one that dlopen makes the same in all."""
    library = compiled(**STREAMS).library
    symbols = subprocess.run(["nm", library], check=True, capture_output=True, text=True).stdout
    assert "FrontEnd" in symbols
    assert not [line for line in symbols.splitlines() if " u " in line and "FrontEnd" in line]


# The table ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "conditions", "changed", "expected"),
    [
        # A write of 128 bytes takes five beats of 4 ns, and four of them with their read 21.
        ("c2h", STRADDLES, {}, (6400.0, "port")),
        ("copy", STRADDLES, {}, (512 / 21 * 250, "port")),
        # A completion of 64 bytes takes two and a half, or three.
        ("h2c", STRADDLES, {"link_mbps": 0.0, "completion_bytes": 64}, (5949.4, "link")),
        ("h2c", PLAIN, {"completion_bytes": 64}, (64 / 3 * 250, "port")),
        # 128 completions of 64 bytes in 2.3 µs.
        ("h2c", STRADDLES, {"rtt_ns": 2000.0}, (8192 / 2.3, "room")),
    ],
)
def test_what_bounds_a_rate(kind, conditions, changed, expected):
    value, name = bound(kind, replace(conditions, **{"rtt_ns": 500.0} | changed))
    assert (value, name) == (pytest.approx(expected[0], rel=1e-4), expected[1])


@pytest.mark.parametrize("conditions", [STRADDLES, PLAIN], ids=["straddling", "plain"])
def test_the_table(conditions):
    found = measure(replace(conditions, rtt_ns=500.0, completion_bytes=128))
    assert [row.kind for row in found] == list(KINDS)
    assert all(0.98 < row.value / row.bound < 1.02 for row in found)
    _, line = table(found).splitlines()
    headers = "128s" if conditions is STRADDLES else "128"
    assert line.split()[:4] == [headers, "0.5", "128", "128"] and line.count("%") == 4


@pytest.mark.parametrize(
    ("name", "link", "ways"), [("ultrascale_plus-256", "gen3x8", 2), ("ultrascale-64", "gen2x2", 1)]
)
def test_all_ways_to_configure_a_block_are_measured(name, link, ways):
    assert len(set(rows(link, streams(name)))) == ways * 3 * 3 * 2
