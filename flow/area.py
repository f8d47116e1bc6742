# SPDX-License-Identifier: BSD-2-Clause
"""The area of each block on a Xilinx FPGA, counted in the netlist of the whole design.

The whole design is synthesized at once, so optimisation across blocks is included. A register or
memory is counted for the block that it is in; a LUT for the blocks of what it drives, divided if
they are several.

Columns: LUT (of any size, except those used as memory), LUTRAM (LUTs used as memory), FF, BRAM36
(a BRAM18 counts half), DSP. Two small LUTs can share a physical one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable

__all__ = ["COLUMNS", "attribute", "table"]

COLUMNS = ("LUT", "LUTRAM", "FF", "BRAM36", "DSP")

#: LUTs that one memory primitive occupies (UG474 and UG574, distributed RAM).
_LUTRAM = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}
_LUTRAM |= {"RAM32M16": 8, "RAM64M8": 8, "RAM32X16DR8": 8, "RAM64X8SW": 8}
_LUTRAM |= {"RAM256X1D": 8, "RAM128X1S": 2, "RAM256X1S": 4, "RAM512X1S": 8}
_LUTRAM |= {"RAM32X1S": 1, "RAM64X1S": 1, "SRL16E": 1, "SRLC32E": 1}


def _kind(cell: str) -> tuple[str, float] | None:
    """(column, amount) that one primitive adds; None for one that is not counted.

    An inverter is not counted: it is merged into the LUT or register that it drives.
    """
    if re.fullmatch(r"LUT\d", cell):
        return "LUT", 1
    if re.match(r"RAM\d|SRL", cell):
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
    """Whether a primitive is combinational, so that it is counted for what it drives."""
    return re.fullmatch(r"LUT\d|INV|MUXF\d|CARRY\d", cell) is not None


def attribute(netlist: dict, blocks: Iterable[str]) -> dict[str, Counter]:
    """Counts by column for each block, by its path; "" is the whole design.

    Counts include the blocks inside. Cells that drive only ports are counted in "" alone.

    Parameters
    ----------
    netlist : dict
        A module of Yosys' write_json.
    blocks : iterable of str
        Paths of the blocks.
    """
    cells, blocks = netlist["cells"], set(blocks)

    def block_of(name: str) -> str:
        while name not in blocks and name:
            name = name.rpartition(".")[0]
        return name

    # A net has a name in each block that it passes; the innermost of these drives it.
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

    loads = defaultdict(list)
    for name, cell in cells.items():
        for bit in bits_of(cell, "input"):
            loads[bit].append(name)

    shares: dict[str, Counter] = {}

    def share(name: str) -> Counter:
        """The share of a cell that is counted for each block; the shares add up to 1."""
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

    counts: dict[str, Counter] = {"": Counter(), **{block: Counter() for block in sorted(blocks)}}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # the depth of recursion is that of logic with carry chains
    try:
        for name, cell in cells.items():
            if not (kind := _kind(cell["type"])):
                continue
            for block, part in share(name).items():
                path = block
                while path:
                    counts[path][kind[0]] += kind[1] * part
                    path = path.rpartition(".")[0]
                counts[""][kind[0]] += kind[1] * part
    finally:
        sys.setrecursionlimit(limit)
    return counts


def table(counts: dict[str, Counter], depth: int) -> list[str]:
    """Lines of a table with a row for each block, down to level `depth`."""
    lines = [f"{'block':32}" + "".join(f"{column:>9}" for column in COLUMNS)]
    for path, total in counts.items():
        level = path.count(".") + bool(path)
        if level <= depth:
            name = path.rpartition(".")[2].partition("$")[0] or "all"
            numbers = "".join(f"{total[column]:>9.0f}" for column in COLUMNS)
            lines.append(f"{'  ' * level + name:32}{numbers}")
    return lines
