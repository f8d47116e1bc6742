# SPDX-License-Identifier: BSD-2-Clause
"""Area and clock beside goal and limit, with the tools' answers made up."""

import json

import pytest
from amaranth import Elaboratable, Module
from amaranth.lib import io

from flow import figures
from flow.place import Result
from flow.toolchain import Toolchain, ToolError
from tests.flow.small_fpga import make

TOP = "peerdma_picoevb"


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


class SmallTop(Elaboratable):
    """A board's design that is soon turned into Verilog."""

    def __init__(self, config):
        assert config.clock_khz == 125_000

    def elaborate(self, platform):
        m = Module()
        m.submodules.led = led = io.Buffer("o", platform.request("led", dir="-"))
        m.d.comb += led.o.eq(5)
        return m


class TestCommand:
    """From netlist and reports to table, JSON and exit status."""

    @pytest.fixture(autouse=True)
    def tools(self, monkeypatch, tmp_path):
        self.folder = tmp_path / "out"
        self.mhz = {1: 130.0, 2: 80.0}
        root = tmp_path / "root"
        root.mkdir()
        (root / "cells.v").touch()
        monkeypatch.setattr(Toolchain, "obtain", classmethod(lambda cls: cls(root)))
        monkeypatch.setattr(Toolchain, "library", root / "cells.v")
        database = make(tmp_path / "fpga")
        monkeypatch.setattr(figures, "Database", lambda *where: database)
        monkeypatch.setattr(figures, "Top", SmallTop)
        monkeypatch.setattr(figures, "prepare", lambda netlist, *rest: (netlist, []))
        monkeypatch.setattr(figures, "synthesize", self.synthesize)
        monkeypatch.setattr(figures, "place_and_route", self.place)

    def synthesize(self, tools, verilog, top, folder):
        assert f"module {top}" in verilog
        cells = {
            "endpoint.a": {
                "type": "FDRE",
                "connections": {"D": [2], "Q": [3]},
                "port_directions": {"D": "input", "Q": "output"},
            },
            "$1": {
                "type": "LUT2",
                "connections": {"I0": [3], "O": [2]},
                "port_directions": {"I0": "input", "O": "output"},
            },
        }
        (folder / "blocks.txt").write_text(f"{top}/endpoint\n")
        (folder / "cells.json").write_text(
            json.dumps({"modules": {top: {"estimated_num_lc": self.luts}}})
        )
        netnames = {"endpoint.q": {"bits": [3]}}
        return {"modules": {top: {"cells": cells, "netnames": netnames}}}

    luts = 1

    def place(self, tools, database, folder, design, pins, sites, seed, mhz, stop):
        assert mhz == 125 and "PACKAGE_PIN" in pins
        if seed not in self.mhz:
            stop.wait(60)
            raise ToolError("stopped")
        (folder / f"seed{seed}.json").write_text(json.dumps(CRITICAL))
        return Result(seed, folder / "x.fasm", {"clk": self.mhz[seed]}, {})

    def run(self, *arguments):
        return figures.main([*arguments, "-o", str(self.folder)])

    def test_every_seed_counts(self, capsys):
        assert self.run("--seeds", "2") == 0
        out = capsys.readouterr().out
        assert "endpoint" in out and f"seed 2: {SAID}" in out
        figures = json.loads((self.folder / "figures.json").read_text())
        assert figures["figures"] == {
            "core after synthesis": 1,
            "core after routing, seed 1": 130.0,
            "core after routing, seed 2": 80.0,
        }
        assert figures["blocks"]["endpoint"] == {"LUT": 1, "FF": 1}
        self.mhz[2] = 70.0
        assert self.run("--seeds", "2") == 1
        assert "BEYOND THE LIMIT" in capsys.readouterr().out

    def test_area_alone(self, capsys, monkeypatch):
        monkeypatch.setattr(figures, "place_and_route", lambda *arguments: pytest.fail("routed"))
        assert self.run("--area") == 0
        monkeypatch.setattr(TestCommand, "luts", 7000)
        assert self.run("--area") == 1

    def test_a_tool_that_fails_is_told(self, capsys, monkeypatch):
        def fails(*arguments):
            raise ToolError("yosys failed")

        monkeypatch.setattr(figures, "synthesize", fails)
        assert self.run() == 1
        assert "flow.figures: ToolError: yosys failed" in capsys.readouterr().err
