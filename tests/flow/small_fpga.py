# SPDX-License-Identifier: BSD-2-Clause
"""A database of an FPGA that there is not: a hard block, an interconnect tile, a pad."""

from __future__ import annotations

import json
from pathlib import Path

from flow.database import Database

__all__ = ["COLUMNS", "make"]

#: First address -> frames of each column; two rows, the second of block RAM.
COLUMNS = {0x0000_0000: 4, 0x0000_0080: 6, 0x0002_0000: 4, 0x0002_0080: 6}

_GRID = {
    "BLOCK_X1Y0": ("BLOCK", 1, 0, {"HARD_X0Y0": "HARD"}, 0x80, 6, 0),
    "INT_X0Y0": ("INT", 0, 0, {}, 0, 4, 2),
    "PAD_X2Y0": ("PAD", 2, 0, {"IOB_X0Y1": "IOB33"}, 0x80, 6, 10),
}
#: Wire of the block's pin <- wire of the interconnect.
_PINS = {"A": "IMUX0", "B": "IMUX1", "C": "IMUX2"}
_SEGBITS = {
    "block": ["HARD.SIZE[0] 00_00", "HARD.SIZE[1] 00_01", "HARD.ON 01_00", "HARD.IN_USE 01_05"],
    "int": [
        *(f"IMUX{n}.GND_WIRE {n:02}_00 !{n:02}_01" for n in range(3)),
        *(f"IMUX{n}.LOGIC0 !{n:02}_00 {n:02}_01" for n in range(3)),
        *(f"IMUX{n}.LOGIC1 {n:02}_00 {n:02}_01" for n in range(3)),
    ],
    "pad": ["IOB_Y1.DRIVE 00_00", "IOB_Y1.PULLUP 00_02"],
}


def make(folder: Path) -> Database:
    """The database, in `folder`."""
    fabric, part = folder / "die", folder / "diepkg-1"
    for each in (fabric, part):
        each.mkdir(parents=True)
    grid = {
        tile: {
            "type": kind,
            "grid_x": x,
            "grid_y": y,
            "sites": sites,
            "bits": {
                "CLB_IO_CLK": {"baseaddr": hex(base), "frames": frames, "offset": word, "words": 2}
            },
        }
        for tile, (kind, x, y, sites, base, frames, word) in _GRID.items()
    }
    (fabric / "tilegrid.json").write_text(json.dumps(grid))
    pairs = [[wire, f"BLOCK_{wire}"] for wire in _PINS.values()]
    joints = [{"grid_deltas": [1, 0], "tile_types": ["INT", "BLOCK"], "wire_pairs": pairs}]
    (fabric / "tileconn.json").write_text(json.dumps(joints))
    rows: dict = {}
    for address, count in COLUMNS.items():
        row = rows.setdefault(str(address >> 17 & 31), {"configuration_buses": {"CLB_IO_CLK": {}}})
        columns = row["configuration_buses"]["CLB_IO_CLK"].setdefault("configuration_columns", {})
        columns[str(address >> 7 & 1023)] = {"frame_count": count}
    about = {"idcode": 0x1234, "global_clock_regions": {"top": {"rows": rows}}}
    (part / "part.json").write_text(json.dumps(about))
    (part / "package_pins.csv").write_text(
        "pin,bank,site,tile,pin_function\nA1,1,IOB_X0Y1,PAD_X2Y0,\n"
    )
    for kind, lines in _SEGBITS.items():
        named = "".join(f"{kind.upper()}.{line}\n" for line in lines)
        (folder / f"segbits_{kind}.db").write_text(named)
    always = "".join(f"BLOCK.HARD_{pin}.BLOCK_{wire} always\n" for pin, wire in _PINS.items())
    (folder / "ppips_block.db").write_text(always)
    pads = {pin: {"wire": f"HARD_{pin}", "cap": "0"} for pin in _PINS}
    pads["Q"] = {"wire": "HARD_Q", "res": "0"}
    types = {
        "BLOCK": [{"name": "X0Y0", "type": "HARD", "site_pins": pads}],
        "INT": [
            {
                "name": "X0Y0",
                "type": "LUT",
                "site_pins": {f"O{n}": {"wire": f"LOGIC{n}", "res": "0"} for n in range(2)},
            }
        ],
        "PAD": [{"name": "X0Y1", "type": "IOB33", "site_pins": {}}],
    }
    for kind, sites in types.items():
        (folder / f"tile_type_{kind}.json").write_text(json.dumps({"sites": sites}))
    return Database(folder, "die", "diepkg-1")
