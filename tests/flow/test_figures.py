# SPDX-License-Identifier: BSD-2-Clause
"""Area and clock beside goal and limit, and the longest path in a report of nextpnr."""

import pytest

from flow import figures
from hw.core import CoreConfig
from hw.pcie.adapters import ADAPTERS


def test_a_figure_is_judged_by_goal_and_limit():
    values = {
        "small": ("area", 4000),
        "large": ("area", 6000),
        "slow": ("clock", 78),
        "fast": ("clock", 125.1),
    }
    (head, *lines), within = figures.judge(values)
    assert head.split() == ["figure", "value", "goal", "limit"]
    assert [line.split("  ")[-1] for line in lines] == [
        "good",
        "goal missed",
        "goal missed",
        "good",
    ]
    assert lines[2].split()[:4] == ["slow,", "MHz", "78.0", "125"]
    assert within


@pytest.mark.parametrize(("key", "value"), [("area", 6001), ("clock", 77.9)])
def test_beyond_a_limit(key, value):
    lines, within = figures.judge({"one": (key, value)})
    assert not within and "BEYOND THE LIMIT" in lines[1]


def step(kind, delay, net):
    return {"type": kind, "delay": delay, "net": net}


CRITICAL = {
    "critical_paths": [
        {"from": "<async>", "to": "posedge clk", "path": [step("logic", 99, "pin")]},
        {
            "from": "posedge clk",
            "to": "posedge clk",
            "path": [
                step("clk-to-q", 0.5, "register"),
                step("routing", 1.25, "$abc$1"),
                step("routing", 1, "first"),
                step("logic", 0.125, "lut"),
                step("routing", 1, "last"),
            ],
        },
    ]
}


SAID = "3.88 ns, 3.25 of them wires, 3 nets: first -> last"


def test_the_longest_path_is_between_registers():
    assert figures.longest(CRITICAL) == SAID
    assert figures.longest({"critical_paths": CRITICAL["critical_paths"][:1]}) == "not reported"


def test_the_longest_path_of_cells_is_between_registers_and_memories():
    report = """
Warning: Module 'RAM32M' has no timing arcs!
Latest arrival time in 'core' is 5034:
    5034 $slice$9 (FDRE.CE)
           $wire
    4925 $lut$8 (LUT6.I0->O)
           $wire [2]
    4283 $carry$7 (CARRY4.CI->CO)
           $wire [3]
    4156 $lut$6 (LUT5.I4->O)
           \\store.data [7]
    2550 store.ring.0.0 (RAMB18E1.CLKBWRCLK->DOBDO)
           \\clk
      96 $buffer$5 (BUFG.I->O)
       0   \\clk (<primary input>)
"""
    netlist = {
        "cells": {
            "$slice$9": {"connections": {"CE": [3], "Q": [4]}},
            "store.ring.0.0": {"connections": {"DOBDO": [1, 2]}},
        },
        "netnames": {
            "$wire": {"bits": [4]},
            "fetch.control.magic": {"bits": [4]},
            "fetch.magic": {"bits": [4]},
        },
    }
    said = "5.03 ns, 2 LUTs: store.ring.0.0 -> fetch.magic"
    assert figures.longest_of_cells(report, netlist) == said


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], CoreConfig(clock_khz=125_000)),
        (["--channels", "4"], CoreConfig(clock_khz=125_000, h2c=4, c2h=4)),
        (["--launch-queues", "2"], CoreConfig(clock_khz=125_000, launch_queues=2)),
    ],
)
def test_the_core_that_is_measured(monkeypatch, options, wanted):
    measured = []
    monkeypatch.setattr(figures, "_measure", lambda config, *_: measured.append(config) or 0)
    assert figures.main(options) == 0
    assert measured == [wanted]


def test_a_core_for_another_block_is_measured_alone(monkeypatch, tmp_path):
    measured = []
    monkeypatch.setattr(figures, "_measure_alone", lambda *core: measured.append(core) or 0)
    options = ["--area", "--pcie", "ultrascale-256", "-o", str(tmp_path / "new")]
    assert figures.main(options) == 0
    config = CoreConfig(clock_khz=250_000, tags=32)
    assert measured == [(config, ADAPTERS["ultrascale-256"], tmp_path / "new", 4)]
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--launch-queues", "3"], "--launch-queues: invalid choice: 3"),
        (["--pcie", "ultrascale-64"], "no board here has the PCIe block ultrascale-64"),
    ],
)
def test_a_core_that_cannot_be(capsys, options, said):
    with pytest.raises(SystemExit):
        figures.main(options)
    assert said in capsys.readouterr().err
