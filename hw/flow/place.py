# SPDX-License-Identifier: BSD-2-Clause
"""Places and routes with nextpnr-himbaechel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .database import Database
from .netlist import BEL_TYPES
from .toolchain import Toolchain

__all__ = ["Result", "place_and_route"]


@dataclass(frozen=True)
class Result:
    """One run of nextpnr.

    Attributes
    ----------
    seed : int
    fasm : pathlib.Path
    frequencies : dict of str to float
        MHz that each clock reaches after routing, by its net.
    utilisation : dict of str to int
        Bels in use by type.
    """

    seed: int
    fasm: Path
    frequencies: dict[str, float]
    utilisation: dict[str, int]


def place_and_route(
    tools: Toolchain,
    database: Database,
    folder: Path,
    design: dict,
    constraints: str,
    sites: Mapping[str, str],
    seed: int,
    frequency: float,
) -> Result:
    """Places and routes a design.

    Parameters
    ----------
    tools, database
    folder : pathlib.Path
        For its files.
    design : dict
        Of `hw.flow.netlist.prepare`.
    constraints : str
        Pins, as XDC.
    sites : mapping of str to str
        Site by primitive.
    seed : int
    frequency : float
        MHz that the router aims at.

    Raises
    ------
    ToolError
        If nextpnr fails.
    """
    bels = {}
    for primitive, site in sites.items():
        tile, entry = database.site(site)
        place = database.grid[tile]
        name = BEL_TYPES[primitive]
        bel = name.removeprefix(f"{primitive}_") if name != primitive else primitive
        bels[name] = f"X{place['grid_x']}Y{place['grid_y']}/{_site(primitive, entry)}.{bel}"
    (folder / "place.json").write_text(json.dumps(design))
    (folder / "place.xdc").write_text(constraints)
    (folder / "place.py").write_text(
        f"bels = {bels!r}\n"
        "for _, cell in ctx.cells:\n"
        "    if cell.type in bels:\n"
        "        cell.setAttr('BEL', bels[cell.type])\n"
    )
    names = {kind: f"seed{seed}.{kind}" for kind in ("fasm", "json", "log")}
    tools.run(
        "nextpnr-himbaechel-xilinx",
        *("--device", database.part, "--chipdb", tools.chips(database.fabric)),
        *("--json", "place.json", "-o", "xdc=place.xdc", "-o", f"fasm={names['fasm']}"),
        # The static placer makes nets a sixth shorter than the default one, so routing is faster.
        *("--pre-place", "place.py", "--placer", "static", "--router", "router2"),
        *("--seed", str(seed)),
        *("--freq", str(frequency), "--timing-allow-fail"),
        *("--report", names["json"], "-q", "-l", names["log"]),
        folder=folder,
    )
    report = json.loads((folder / names["json"]).read_text())
    return Result(
        seed,
        folder / names["fasm"],
        {clock: entry["achieved"] for clock, entry in report["fmax"].items()},
        {bel: entry["used"] for bel, entry in report["utilization"].items() if entry["used"]},
    )


def _site(primitive: str, entry: dict) -> str:
    """A site's name in its tile, as nextpnr has it: "GTPE2_CHANNEL_X0Y0"."""
    prefix = "PCIE" if primitive == "PCIE_2_1" else primitive
    return f"{prefix}_{entry['name']}"
