# SPDX-License-Identifier: BSD-2-Clause
"""Places and routes with nextpnr-himbaechel."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .database import Database
from .netlist import BEL_TYPES
from .toolchain import Toolchain, ToolError

__all__ = ["Result", "place_and_route", "several"]

T = TypeVar("T")
#: Concurrent runs, and number of seeds that may fail or hang.
_WORKERS, _SPARE = 2, 4


@dataclass(frozen=True)
class Result:
    """One run of nextpnr.

    Attributes
    ----------
    seed : int
    fasm : pathlib.Path
    frequencies : dict of str to float
        MHz that each clock reaches after routing, by net.
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
    stop: threading.Event | None = None,
) -> Result:
    """Places and routes a design.

    Parameters
    ----------
    tools, database
    folder : pathlib.Path
        For nextpnr's files, whose names begin with the seed, so runs of other seeds may share it.
    design : dict
        As returned by `flow.netlist.prepare`.
    constraints : str
        Pins, as XDC.
    sites : mapping of str to str
        Site by primitive.
    seed : int
    frequency : float
        Target of the router in MHz.
    stop : threading.Event
        Ends the run when set.

    Raises
    ------
    ToolError
        If nextpnr fails, or is stopped.
    """
    bels = {}
    for primitive, site in sites.items():
        tile, entry = database.site(site)
        place = database.grid[tile]
        name = BEL_TYPES[primitive]
        bel = name.removeprefix(f"{primitive}_") if name != primitive else primitive
        bels[name] = f"X{place['grid_x']}Y{place['grid_y']}/{_site(primitive, entry)}.{bel}"
    kinds = ("design.json", "xdc", "py", "fasm", "json", "log")
    names = {kind: f"seed{seed}.{kind}" for kind in kinds}
    (folder / names["design.json"]).write_text(json.dumps(design))
    (folder / names["xdc"]).write_text(constraints)
    (folder / names["py"]).write_text(
        f"bels = {bels!r}\n"
        "for _, cell in ctx.cells:\n"
        "    if cell.type in bels:\n"
        "        cell.setAttr('BEL', bels[cell.type])\n"
    )
    tools.run(
        "nextpnr-himbaechel-xilinx",
        *("--device", database.part, "--chipdb", tools.chips(database.fabric)),
        *("--json", names["design.json"]),
        *("-o", f"xdc={names['xdc']}", "-o", f"fasm={names['fasm']}"),
        # The static placer's nets are a sixth shorter than the default placer's: faster routing.
        *("--pre-place", names["py"], "--placer", "static", "--router", "router2"),
        *("--seed", str(seed)),
        *("--freq", str(frequency), "--timing-allow-fail"),
        *("--report", names["json"], "-q", "-l", names["log"]),
        folder=folder,
        stop=stop,
    )
    report = json.loads((folder / names["json"]).read_text())
    return Result(
        seed,
        folder / names["fasm"],
        {clock: entry["achieved"] for clock, entry in report["fmax"].items()},
        {bel: entry["used"] for bel, entry in report["utilization"].items() if entry["used"]},
    )


def several(run: Callable[[int, threading.Event], T], wanted: int) -> list[T]:
    """Results of `run` for the seeds that finish first, two at a time.

    The router never finishes some placements. So a further seed is started whenever one has ended,
    and runs that are left when there are enough results are stopped.

    Parameters
    ----------
    run : callable
        Called with a seed, from 1 on, and an event that stops it.
    wanted : int
        Number of results.

    Raises
    ------
    ToolError
        If too many seeds fail; has the message of the last failure.
    """
    stop = threading.Event()
    found: dict[int, T] = {}
    left = iter(range(1, wanted + _SPARE + 1))
    failure = None
    with ThreadPoolExecutor(_WORKERS) as pool:
        running: dict[Future[T], int] = {}
        try:
            while len(found) < wanted:
                for seed in itertools.islice(left, _WORKERS - len(running)):
                    running[pool.submit(run, seed, stop)] = seed
                if not running:
                    raise ToolError(f"{len(found)} of {wanted} placements were routed: {failure}")
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    seed = running.pop(done)
                    try:
                        found[seed] = done.result()
                    except ToolError as error:
                        failure = error
        finally:
            stop.set()
    return [found[seed] for seed in sorted(found)[:wanted]]


def _site(primitive: str, entry: dict) -> str:
    """nextpnr's name of a site in its tile: "GTPE2_CHANNEL_X0Y0"."""
    prefix = "PCIE" if primitive == "PCIE_2_1" else primitive
    return f"{prefix}_{entry['name']}"
