# SPDX-License-Identifier: BSD-2-Clause
"""``make perf-fpga``: area and clock of the gateware in its FPGA, beside goal and limit.

The board's whole design is synthesized, placed and routed with the tools of `make bitstream`, for
several seeds of the placer: the clock is that of the core's net after routing, in the slowest
corner that the tools know. Area is counted in the synthesized netlist, by block (`flow.area`).
A core for another PCIe block than the board's is synthesized alone, for the same FPGA and for the
family that has the block; no tool here places it, so its longest path is that of the cells alone.

Writes FOLDER/figures.json; exits with status 1 if a figure is beyond its limit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from hw.boards import BOARDS
from hw.build import generate
from hw.core import CoreConfig
from hw.endpoint import DEFAULT_ADAPTER, MODULE_NAME
from hw.pcie.adapters import ADAPTERS, AdapterKind
from hw.top import Top
from peerdma.regs import LAUNCH_QUEUES
from tools.debian_tree import TreeError

from . import primitives, vivado
from .area import attribute, table
from .database import Database
from .image import IMPOSSIBLE, constraints, say, synthesize
from .netlist import prepare
from .place import Result, place_and_route, several
from .toolchain import Toolchain

__all__ = ["FIGURES", "Figure", "judge", "longest", "longest_of_cells", "main"]

#: The block that the figures are of, and the net of its clock.
_CORE, _CLOCK = "endpoint", "clk"
_TOP = "peerdma_picoevb"
#: kHz of the fastest user clock that other PCIe blocks than the board's have at these widths.
_FASTEST = 250_000
#: Where Yosys lists its longest path, without wires, and the commands for that.
_PATHS = "paths.txt"
_TIMING = (
    "read_json netlist.json; read_verilog -lib -specify +/xilinx/cells_sim.v; "
    f"tee -q -o {_PATHS} sta"
)


@dataclass(frozen=True)
class Figure:
    """A figure with its goal, and the limit that must hold."""

    name: str
    unit: str
    goal: float
    limit: float
    #: whether a larger value is better
    more: bool

    def met(self, value: float, bound: float) -> bool:
        """Whether a value is within a bound."""
        return value >= bound if self.more else value <= bound


#: The clock has to hold for every seed. 78 MHz is a quarter above the board's user clock.
FIGURES = {
    "area": Figure("area", "LUT", 4000, 6000, more=False),
    "clock": Figure("clock", "MHz", 125, 78, more=True),
}


def judge(values: dict[str, tuple[str, float]]) -> tuple[list[str], bool]:
    """Lines of a table of figures, and whether all are within their limits.

    Parameters
    ----------
    values : dict of str to (str, float)
        (key of `FIGURES`, value), by name of the measurement.
    """
    lines = [f"{'figure':32}{'value':>9}{'goal':>8}{'limit':>8}"]
    within = True
    for name, (key, value) in values.items():
        figure = FIGURES[key]
        verdict = "goal missed"
        if figure.met(value, figure.goal):
            verdict = "good"
        if not figure.met(value, figure.limit):
            verdict, within = "BEYOND THE LIMIT", False
        what = f"{name}, {figure.unit}"
        numbers = f"{value:>9.{1 if figure.more else 0}f}{figure.goal:>8g}{figure.limit:>8g}"
        lines.append(f"{what:32}{numbers}  {verdict}")
    return lines, within


def longest(report: dict) -> str:
    """The slowest path between registers of the core's clock, in a report of nextpnr."""
    for path in report["critical_paths"]:
        if path["from"] == path["to"] == f"posedge {_CLOCK}":
            total = sum(step["delay"] for step in path["path"])
            wires = [step for step in path["path"] if step["type"] == "routing"]
            wiring = sum(step["delay"] for step in wires)
            # Names that the tools made up say nothing.
            nets = [step["net"] for step in wires if not step["net"].startswith("$")]
            way = " -> ".join(dict.fromkeys(nets[:1] + nets[-1:]))
            return f"{total:.2f} ns, {wiring:.2f} of them wires, {len(wires)} nets: {way}"
    return "not reported"


def longest_of_cells(report: str, netlist: dict) -> str:
    """The slowest path in a report of Yosys' `sta`, without wires.

    Parameters
    ----------
    report : str
    netlist : dict
        The module of Yosys' write_json that it is of.
    """
    (total,) = re.findall(r"^Latest arrival time .* is (\d+):", report, re.M)
    end, *before = re.findall(r"^ +\d+ (\S+) \((\w+)\.", report, re.M)
    logic = list(itertools.takewhile(lambda step: re.match("LUT|CARRY|MUXF", step[1]), before))
    start = before[len(logic)]

    def said(cell: str) -> str:
        """The net of a register; a memory has the name of its block."""
        bits = set(netlist["cells"][cell]["connections"].get("Q", ()))
        nets = (name for name, net in netlist["netnames"].items() if bits & {*net["bits"]})
        return min((name for name in nets if not name.startswith("$")), key=len, default=cell)

    luts = sum(kind.startswith("LUT") for _, kind in logic)
    return f"{int(total) / 1000:.2f} ns, {luts} LUTs: {said(start[0])} -> {said(end[0])}"


def _blocks(netlist: dict, folder: Path, core: str) -> tuple[dict[str, Counter], float]:
    """Counts by block; and the number of physical LUTs that the block `core` needs.

    Yosys estimates that number for the whole design, where small LUTs share one; the same share is
    assumed for the core. LUTs used as memory are included.
    """
    paths = (folder / "blocks.txt").read_text().split()
    counts = attribute(netlist, (path.partition("/")[2] for path in paths))
    stat = json.loads((folder / "cells.json").read_text())
    (module,) = stat["modules"].values()
    share = module["estimated_num_lc"] / counts[""]["LUT"]
    return counts, counts[core]["LUT"] * share + counts[core]["LUTRAM"]


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m flow.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--area", action="store_true", help="synthesis only")
    parser.add_argument("--channels", type=int, default=1, choices=range(1, 5),
                        help="in each direction (1)")  # fmt: skip
    parser.add_argument("--launch-queues", type=int, default=0, metavar="N",
                        choices=range(LAUNCH_QUEUES + 1), help="of the core (0)")  # fmt: skip
    parser.add_argument("--pcie", choices=ADAPTERS, default=DEFAULT_ADAPTER.name,
                        help=f"the PCIe block ({DEFAULT_ADAPTER.name}, the board's); "
                        "others with --area only")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="placements (3)")
    parser.add_argument("--depth", type=int, default=4, metavar="N", help="levels of blocks (4)")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/fpga"), metavar="FOLDER")
    arguments = parser.parse_args(argv)
    adapter = ADAPTERS[arguments.pcie]
    on_board = adapter is DEFAULT_ADAPTER
    if not on_board and not arguments.area:
        parser.error(f"no board here has the PCIe block {adapter.name}: give --area, too")
    try:
        # The goal as clock, so that placer and router do not stop before reaching it.
        config = CoreConfig(
            h2c=arguments.channels,
            c2h=arguments.channels,
            clock_khz=int(FIGURES["clock"].goal * 1000) if on_board else _FASTEST,
            launch_queues=arguments.launch_queues,
            **adapter.core,
        )
        arguments.output.mkdir(parents=True, exist_ok=True)
        if not on_board:
            return _measure_alone(config, adapter, arguments.output, arguments.depth)
        seeds = 0 if arguments.area else arguments.seeds
        return _measure(config, arguments.output, arguments.depth, seeds)
    except (*IMPOSSIBLE, TreeError) as error:
        print(f"flow.figures: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _measure_alone(config: CoreConfig, adapter: AdapterKind, folder: Path, depth: int) -> int:
    tools, verilog = Toolchain.obtain(), generate(config, adapter)
    for family in ("xc7", adapter.fpga):
        here = folder / family
        here.mkdir(exist_ok=True)
        say(f"synthesis for {family}")
        netlist = synthesize(tools, verilog, MODULE_NAME, here, family)["modules"][MODULE_NAME]
        counts, area = _blocks(netlist, here, "")
        print("\n".join(table(counts, depth)))
        print(f"\n{adapter.name}, LUTs after synthesis for {family}: {area:.0f}")
        if family == "xc7":  # Yosys knows the delays of no later family.
            tools.run("yosys", "-q", "-p", _TIMING, folder=here)
            print(
                f"longest path of cells: {longest_of_cells((here / _PATHS).read_text(), netlist)}"
            )
        print()
    return 0


def _measure(config: CoreConfig, folder: Path, depth: int, seeds: int) -> int:
    board, tools, goal = BOARDS["picoevb"], Toolchain.obtain(), config.clock_khz / 1000
    vendor = board.platform(toolchain="Vivado")
    plan = vendor.prepare(Top(config), name=_TOP, **vivado.overrides(board))
    say("synthesis")
    netlist = synthesize(tools, str(plan.files[f"{_TOP}.v"]), _TOP, folder)
    counts, area = _blocks(netlist["modules"][_TOP], folder, _CORE)
    print("\n".join(table(counts, depth)), flush=True)
    values = {"core after synthesis": ("area", area)}

    prepared, _ = prepare(netlist, _TOP, primitives.load(tools.library))
    database = Database(tools.database, board.fabric, board.part)
    pins = constraints(str(plan.files[f"{_TOP}.xdc"]))

    def route(seed: int, stop: threading.Event) -> tuple[Result, str]:
        say(f"placing and routing, seed {seed}")
        result = place_and_route(
            tools, database, folder, prepared, pins, board.sites, seed, goal, stop
        )
        return result, longest(json.loads((folder / f"seed{seed}.json").read_text()))

    paths = []
    for result, path in several(route, seeds):
        name = f"core after routing, seed {result.seed}"
        values[name] = ("clock", result.frequencies.get(_CLOCK, 0.0))
        paths.append(f"seed {result.seed}: {path}")
    lines, within = judge(values)
    print("\n" + "\n".join(lines + paths))
    figures = {
        "part": board.part,
        "tools": tools.versions(),
        "blocks": {path or "all": dict(total) for path, total in counts.items()},
        "figures": {name: value for name, (_, value) in values.items()},
        "bounds": {name: asdict(figure) for name, figure in FIGURES.items()},
        "longest paths": paths,
        "within limits": within,
    }
    (folder / "figures.json").write_text(json.dumps(figures, indent=1))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
