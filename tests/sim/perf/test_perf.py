# SPDX-License-Identifier: BSD-2-Clause
"""sim/board/session.py and sim/perf: exact cycles of the RTL, without a socket."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from peerdma import regs
from peerdma.memory.scatter import ScatterList
from peerdma.regs import DESCRIPTOR
from peerdma.userspace.engine import Direction
from peerdma.userspace.registers import Bank
from peerdma.userspace.xdma import Xdma
from sim.board.session import BASE, Conditions, Session
from sim.compile.model import compiled
from sim.perf import speed
from sim.perf.accepted import deviations
from sim.perf.figure import Figure
from sim.perf.figures import jobs
from sim.perf.report import summary, table
from sim.perf.rig import KINDS, Rig

USUAL = Conditions()
H2C, C2H = Direction.H2C, Direction.C2H


def test_a_copy_in_this_process():
    """Every byte arrives, each write is an event, and the interrupt is the last."""
    with Session(compiled(), USUAL, 1 << 20) as session:
        driver = Xdma(session, session.memory[:4096].view(DESCRIPTOR), BASE, None)
        source, target = (session.memory[at : at + 10_000] for at in (0x10000, 0x20000))
        source[:] = np.random.default_rng(1).integers(0, 256, source.size, np.uint8)
        session.events()
        places = [ScatterList([BASE + at], [source.size]) for at in (0x10000, 0x20000)]
        driver.stream(*places)
        assert (target == source).all()
        events = session.events()
        writes = events[events["nbytes"] > 0]
        assert writes["nbytes"].sum() == source.size
        assert writes["address"].min() == BASE + 0x20000
        assert (np.diff(events["cycle"].astype(int)) >= 0).all()
        assert events["nbytes"][-1] == 0
        assert session.errors == 0
        assert not len(session.events())


@pytest.mark.parametrize(
    ("block", "least", "most"), [("series7", 2_500, 10_000), ("ultrascale-plus", 500, 2_000)]
)
def test_the_speed_of_the_board_itself(block, least, most, capsys):
    one, other = speed.measure(10_000, 2, block)
    assert one.nbytes == other.nbytes == 10_000
    # Wall time is not asserted; cycles are the RTL's.
    assert least < one.cycles < most and one.seconds > 0
    assert speed.main(["--mib", "1", "--rounds", "1", "--block", block]) == 0
    core, payload = capsys.readouterr().out.splitlines()
    assert core.startswith("core") and payload.startswith("payload")


def test_nothing_moves_unless_asked():
    with Session(compiled(), USUAL, 4096) as session:
        assert Bank(session, regs.EXTENSION).read("magic") == regs.EXTENSION_MAGIC
        before = session.cycle
        Bank(session, regs.IRQ).write("user_enable", 5)
        assert session.cycle == before
        assert session.run(10_000) < 10_000
        assert not session.wait_interrupt(1)


def test_conditions_that_the_model_refuses():
    with pytest.raises(ValueError, match="rtt_ns"):
        Session(compiled(), replace(USUAL, rtt_ns="soon"), 4096)


@pytest.fixture(scope="module")
def rig():
    with Rig(USUAL, 1 << 20) as rig:
        yield rig


@pytest.mark.parametrize("kind", KINDS)
def test_rates_repeat_to_the_cycle(kind):
    """With another board. With the same one they need not: the engine has learned meanwhile."""
    found = []
    for _ in range(2):
        with Rig(USUAL, 1 << 18) as rig:
            found.append([rig.bytes_per_cycle(kind, 1 << 18) for _ in range(2)])
    assert found[0] == found[1]
    assert min(found[0]) > 3.2


def test_times_are_in_order(rig):
    """A request, its answer, the data, the interrupt; a round trip of 1 µs is 125 cycles."""
    for kind in ("h2c", "c2h", "copy"):
        times = rig.times(kind, 4096)
        assert list(times) == sorted(times)
        assert times.fetched - times.asked > 125
        assert times.data - times.fetched > 4096 / 4
    alone, behind = rig.times("h2c", 64), rig.read_under_writes(64, 1 << 20, 5000)
    assert behind.data - behind.fetched > alone.data - alone.fetched


def test_acknowledgements_change_within_a_run():
    """With four buffers they bound the rate, whatever the core makes of its room."""
    few = replace(USUAL, transmit_buffers=4)
    rates = []
    for before, after in ((400, 2000), (2000, 2000), (2000, 400), (400, 400)):
        with Rig(replace(few, ack_ns=before), 1 << 18) as rig:
            rates.append(rig.rate_from("c2h", 1 << 18, 5000, 64, after))
    late, slow, early, fast = rates
    assert slow < fast / 2
    assert late == pytest.approx(slow, rel=0.02)
    assert early == pytest.approx(fast, rel=0.02)


def test_figures_are_judged():
    """Shares of rates, cycles above times; and what is missed is named."""
    fast = Figure("bulk", "c2h", USUAL, 430.0, "MB/s", 431.0, 431.3, 0.99)
    slow = replace(fast, value=400.0)
    late = Figure("times", "c2h 64 B: data", USUAL, 50.0, "cycles", 33.0, target=12)
    free = replace(late, target=None)
    assert [figure.met for figure in (fast, slow, late, free)] == [True, False, False, None]
    assert late.reached == 17
    assert replace(fast, ideal=None).reference == 431.3
    text = summary([fast, slow, late, free])
    assert text.startswith("1 of 3 targets met")
    assert text.count("missed: ") == 2
    assert "+17, target +12: MISSED" in table([late])
    assert json.loads(json.dumps(slow.as_dict()))["conditions"]["max_payload"] == 128


def test_what_is_missed_is_accepted_to_the_cycle():
    met = Figure("times", "c2h 64 B: data", USUAL, 40.0, "cycles", 33.0, target=12)
    missed = replace(met, what="copy 64 B: data", value=50.0)
    accepted = {"it takes long": {missed.name: 50.0}}
    assert deviations([met, missed], accepted) == []
    assert deviations([met, missed], {}) == [
        "missed, and not accepted: times, copy 64 B: data, 125 MHz, MPS 128, RTT 1 µs: 50.0 cycles"
    ]
    for value in (49.0, 51.0):
        (line,) = deviations([met, replace(missed, value=value)], accepted)
        assert line.startswith(f"accepted as 50.0, but {value} cycles: times")
    (line,) = deviations([met, replace(missed, value=44.0)], accepted)
    assert line.startswith("accepted, but met: times, copy")
    assert deviations([met], accepted) == [f"accepted, but not measured: {missed.name}"]
    with pytest.raises(ValueError, match="figures of one name"):
        deviations([met, met], {})


def test_all_that_is_promised_is_measured():
    """Each target's conditions are among the jobs."""
    found = [job.conditions for job in jobs()]
    for clock in (62_500, 125_000):
        for payload in (128, 256, 512):
            for rtt in (500, 1000, 2000, 4000):
                assert replace(USUAL, clock_khz=clock, max_payload=payload, rtt_ns=rtt) in found
            small = replace(USUAL, clock_khz=clock, max_payload=payload, completion_bytes=64)
            assert small in found
    for ack in (400, 1000, 2000):
        for buffers in (14, 15, 24, 28, 29, 32):
            assert replace(USUAL, ack_ns=ack, transmit_buffers=buffers) in found


def test_a_transfer_that_never_ends_is_given_up():
    """Without an interrupt, as where the core has stopped: no wait without end."""
    with Rig(USUAL, 4096) as rig:
        rig._driver.engine.statuses = lambda directions, deadline: {}
        with pytest.raises(RuntimeError, match="no interrupt came, and H2C did not end"):
            rig.times("h2c", 64)


def test_channels_are_read_in_the_order_that_was_asked():
    """A register's read takes its place on the link, so that any order gives another figure."""
    asked = []
    with Rig(USUAL, 4096) as rig:
        rig._driver.engine.statuses = lambda directions, deadline: asked.append([*directions])
        for sides in ((C2H, H2C), (H2C, C2H)):
            with pytest.raises(RuntimeError, match="no interrupt came"):
                rig._finish(sides, 1)
    assert asked == [[C2H, H2C], [H2C, C2H]]
