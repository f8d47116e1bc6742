# SPDX-License-Identifier: BSD-2-Clause
"""Builds a board's bitstream from source, and runs all checks on it."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amaranth.build.run import BuildPlan

from hw.boards import Board, Boot

from . import bitstream, checks, fasm, primitives
from .corrections import correct
from .database import Database
from .faults import Design, plant
from .frames import FrameError, assemble
from .ground import tie
from .hard_blocks import ConfigurationError, configure
from .netlist import HardBlock, NetlistError, prepare
from .place import Result, place_and_route, several
from .record import Record, record
from .references import REFERENCES
from .toolchain import Toolchain, ToolError, synthesis

__all__ = [
    "IMPOSSIBLE",
    "Report",
    "build",
    "choose",
    "constraints",
    "say",
    "synthesize",
    "verilog_of",
]

#: Errors after which there is no image to check.
IMPOSSIBLE = (ToolError, NetlistError, FrameError, ConfigurationError)

#: nextpnr's names of the nets of the PIPE clock and the user clock.
_PIPE_NET, _USER_NET = "phy.pipe_clk", "clk"
#: MHz of the PIPE clock at Gen2.
_PIPE_MHZ = 250.0


@dataclass
class Report:
    """The results of a build.

    Attributes
    ----------
    facts : dict of str to str
        In the order of the build.
    checks : dict of str to list of str
        Faults found, by check; a check with an empty list has passed.
    """

    facts: dict[str, str] = field(default_factory=dict)
    checks: dict[str, list[str]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return not any(self.checks.values())

    def text(self) -> str:
        """The report as text for people."""
        lines = [f"{name + ':':<28}{value}" for name, value in self.facts.items()]
        lines.append("")
        for name, wrong in self.checks.items():
            lines.append(f"{'FAILED' if wrong else 'passed'}  {name}")
            lines += [f"          {each}" for each in wrong[:20]]
            if len(wrong) > 20:
                lines.append(f"          ... and {len(wrong) - 20} more")
        lines.append("")
        lines.append(
            "This image has not run on hardware." if self.passed else "DO NOT LOAD THIS IMAGE."
        )
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """The report as JSON for programs."""
        return json.dumps(
            {"facts": self.facts, "checks": self.checks, "passed": self.passed}, indent=1
        )


def constraints(xdc: str) -> str:
    """Pins and I/O standards of Amaranth's constraints, in nextpnr's syntax."""
    lines = []
    for line in xdc.splitlines():
        match = re.match(r'set_property (\w+) "?([\w.]+)"? \[get_ports "(.+)"\]$', line)
        if match and not re.search(r"__(refclk|rx|tx)__", match[3]):
            name, value, port = match.groups()
            name = "PACKAGE_PIN" if name == "LOC" else name
            lines.append(f"set_property {name} {value} [get_ports {{{port.replace(chr(92), '')}}}]")
    return "\n".join(lines) + "\n"


def verilog_of(plan: BuildPlan, top: str) -> str:
    """The design, and the files with modules of others that it needs."""
    others = (name for name in plan.files if name.endswith(".v") and not name.startswith(f"{top}."))
    return "".join(str(plan.files[name]) for name in (f"{top}.v", *others))


def synthesize(tools: Toolchain, verilog: str, top: str, folder: Path, family: str = "xc7") -> dict:
    """Yosys' netlist of a design, for 7-series FPGAs or a family as `synth_xilinx` calls it.

    Also writes to `folder` the counts of its cells (`cells.json`) and the paths of the design's
    blocks (`blocks.txt`), with which names of nets and cells begin.

    Raises
    ------
    ToolError
        If Yosys fails.
    """
    (folder / "design.v").write_text(verilog)
    script = (
        f"read_verilog design.v; {synthesis(top, family=family)}"
        "tee -q -o blocks.txt select -list t:$scopeinfo; delete t:$scopeinfo; "
        "tee -q -o cells.json stat -tech xilinx -json; "
        "write_verilog -noattr netlist.v; write_json netlist.json"
    )
    tools.run("yosys", "-q", "-l", "yosys.log", "-p", script, folder=folder)
    return json.loads((folder / "netlist.json").read_text())


def build(
    board: Board,
    plan: BuildPlan,
    top: str,
    clock_mhz: float,
    folder: Path,
    seeds: int,
) -> Report:
    """Builds and checks; the image is `TOP.bit` in `folder`, the report beside it.

    Parameters
    ----------
    board : Board
    plan : BuildPlan
        Of the board's platform.
    top : str
        Name of its top module.
    clock_mhz : float
        User clock.
    folder : pathlib.Path
    seeds : int
        Number of placements, each of which must meet timing; one becomes the image, see `choose`.

    Raises
    ------
    One of IMPOSSIBLE
        If there is no image to check.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    report = Report()
    tools = Toolchain.obtain()
    report.facts["part"] = board.part
    report.facts.update(tools.versions())
    database = Database(tools.database, board.fabric, board.part)

    say("synthesis")
    netlist = synthesize(tools, verilog_of(plan, top), top, folder)
    report.facts["cells"] = _cells(folder)
    design, blocks = prepare(netlist, top, primitives.load(tools.library))
    xdc = constraints(str(plan.files[f"{top}.xdc"]))
    (folder / f"{top}.xdc").write_text(str(plan.files[f"{top}.xdc"]))

    def run(seed: int, stop: threading.Event) -> Result:
        say(f"placing and routing, seed {seed}")
        return place_and_route(
            tools, database, folder, design, xdc, board.sites, seed, clock_mhz, stop
        )

    results = several(run, seeds)
    wanted = {_PIPE_NET: _PIPE_MHZ, _USER_NET: clock_mhz}
    for result in results:
        report.facts[f"seed {result.seed}"] = ", ".join(
            f"{net} {mhz:.1f} MHz" + (f" (needs {wanted[net]:g})" if net in wanted else "")
            for net, mhz in result.frequencies.items()
        )
    allowed = REFERENCES[board.name].allowed(round(clock_mhz * 1e3))
    manager = _clock_manager(design, top)
    part, columns = board.part.rpartition("-")[0], database.columns

    def image(result: Result) -> tuple[set[str], bytes]:
        """The features of a placement, and its file."""
        say(f"image of seed {result.seed}")
        features = fasm.parse(result.fasm.read_text().splitlines())
        features = correct(database, features, manager, board.pads)
        features |= tie(database, features, blocks, board.sites)
        for block in blocks:
            features |= configure(database, block, board.sites[block.type])
        frames = assemble(database, features)
        data = bitstream.write(frames, columns, database.idcode, board.boot, top, part)
        return features, data

    images = {result.seed: image(result) for result in results}
    sizes = {seed: bitstream.read(data, columns).size for seed, (_, data) in images.items()}
    best = choose(results, wanted, sizes, board.boot)
    report.facts["image of seed"] = str(best.seed)
    report.facts["bels"] = ", ".join(
        f"{best.utilisation.get(bel, 0)} {name}"
        for bel, name in (
            ("SLICE_LUTX", "half LUTs"),
            ("SLICE_FFX", "flip-flops"),
            ("RAMB36E1_RAMB36E1", "block RAMs"),
        )
    )

    say("checks")
    features, data = images[best.seed]
    found = _check(board, tools, database, features, data, blocks, top, folder, report, allowed)
    report.checks["every seed is fast enough"] = checks.timing(results, wanted)
    say("planting faults")
    count, missed = plant(
        Design(board, database, found, blocks, manager, data, results, wanted, allowed)
    )
    report.facts["faults planted"] = str(count)
    report.checks["every planted fault is found"] = missed
    report.facts["seconds"] = f"{time.monotonic() - started:.0f}"
    (folder / "report.txt").write_text(report.text())
    (folder / "report.json").write_text(report.json())
    return report


def choose(
    results: Iterable[Result], wanted: Mapping[str, float], sizes: Mapping[int, int], boot: Boot
) -> Result:
    """Of the placements that are loaded in time for enumeration, or else of all, the fastest.

    Parameters
    ----------
    results : iterable of flow.place.Result
    wanted : mapping of str to float
        Required MHz by net.
    sizes : mapping of int to int
        Bytes of the image from the first to the last packet, by seed: a design that is spread
        further takes more.
    boot : hw.boards.Boot
    """

    def rank(result: Result) -> tuple[bool, float]:
        in_time = not checks.enumeration(sizes[result.seed], boot)
        return in_time, min(result.frequencies.get(net, 0) / mhz for net, mhz in wanted.items())

    return max(results, key=rank)


def _check(
    board: Board,
    tools: Toolchain,
    database: Database,
    features: set[str],
    data: bytes,
    blocks: list[HardBlock],
    top: str,
    folder: Path,
    report: Report,
    allowed: dict[str, str],
) -> set[str]:
    """Writes the image to its file and checks it; returns the features read back from it."""
    (folder / f"{top}.bit").write_bytes(data)
    image = bitstream.read(data, database.columns)
    usual, slowest = (checks.loading_ms(image.size, board.boot, slow) for slow in (False, True))
    report.facts["image"] = f"{len(data)} bytes"
    report.facts["from flash"] = (
        f"{image.size * 8} bits / {board.boot.lanes} / {board.boot.rate} MHz = {usual:.0f} ms; "
        f"at worst {checks.POWER_ON_MS:g} + {slowest:.0f} ms after power, "
        f"the limit is {checks.READY_MS:g} ms"
    )
    found, wrong = checks.bits(database, features, image.frames)
    report.checks["the image says what was built, no bit unknown"] = wrong
    part_file = database.root / database.part / "part.yaml"
    tools.run(
        *("bitread", "--part_file", part_file, "-z", "-y", "-o", "bits.txt", f"{top}.bit"),
        folder=folder,
    )
    with (folder / "bits.txt").open() as lines:
        report.checks["Project X-Ray's reader sees the same"] = checks.other_reader(
            lines, image.frames
        )
    report.checks["it boots as the board wants"] = checks.boot(image, board.boot, database.idcode)
    report.checks["it is loaded in time for enumeration"] = checks.enumeration(
        image.size, board.boot
    )
    count, wrong = checks.inputs(database, found, blocks, board.sites)
    report.facts["inputs traced"] = str(count)
    report.checks["inputs of hard blocks are driven as in the netlist"] = wrong
    ours = record(database, found, board.sites.values(), board.pins, image.registers)
    (folder / "record.txt").write_text(ours.dump())
    report.facts["compared"] = f"{len(ours.values)} values, {len(allowed)} may differ"
    report.checks["configuration as the reference, but where allowed"] = checks.reference(
        ours, Record.load(REFERENCES[board.name].record), allowed
    )
    return found


def _clock_manager(design: dict, top: str) -> dict[str, primitives.Value]:
    """Parameters of the design's MMCM."""
    (cell,) = (c for c in design["modules"][top]["cells"].values() if c["type"] == "MMCME2_ADV")
    return {name: primitives.value(given) for name, given in cell["parameters"].items()}


def _cells(folder: Path) -> str:
    """LUTs, flip-flops and block RAMs after synthesis."""
    counts: dict[str, int] = {}
    stat = json.loads((folder / "cells.json").read_text())
    for cell, number in stat["design"]["num_cells_by_type"].items():
        kind = "LUT" if re.fullmatch(r"LUT\d|INV", cell) else cell
        kind = "flip-flops" if cell.startswith("FD") else kind
        kind = "block RAMs" if cell.startswith("RAMB36") else kind
        counts[kind] = counts.get(kind, 0) + number
    return ", ".join(
        f"{counts.get(kind, 0)} {kind}" for kind in ("LUT", "flip-flops", "block RAMs")
    )


def say(what: str) -> None:
    """Print the current step to stderr, as one write, so that lines of threads do not mix."""
    sys.stderr.write(f"{what} ...\n")
    sys.stderr.flush()
