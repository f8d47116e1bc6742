# SPDX-License-Identifier: BSD-2-Clause
"""Ties inputs of hard blocks to 0 after routing.

A hard block has hundreds of inputs that are constant 0. A general router takes minutes to route one
net to all of them, while each needs only a few connections in the interconnect tile beside it,
which has its own constant 0 (GND_WIRE). `flow.trace` verifies the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from .database import Database
from .frames import FrameError
from .netlist import DEDICATED, HardBlock
from .trace import drivers

__all__ = ["tie"]

_GROUND = "GND_WIRE"


def tie(
    database: Database, features: set[str], blocks: Iterable[HardBlock], sites: Mapping[str, str]
) -> set[str]:
    """The connections that tie to 0 every input that is 0 in the netlist.

    Parameters
    ----------
    features : set of str
        The routed design, whose wires are not changed.

    Raises
    ------
    FrameError
        If an input cannot be reached because all routes to it are in use.
    """
    driver = drivers(features)
    added: set[str] = set()
    for block in blocks:
        tile, entry = database.site(sites[block.type])
        for name, wanted in block.inputs.items():
            dedicated = DEDICATED[block.type]
            if (
                wanted != "0"
                or name in block.inverted
                or {name, name.rstrip("0123456789")} & dedicated
            ):
                continue
            way = _way(database, driver, tile, entry["site_pins"][name]["wire"])
            if way is None:
                raise FrameError(f"{block.type} {name} cannot be tied to 0: its wires are in use")
            for where, destination, source in way:
                driver[where, destination] = source
                added.add(f"{where}.{destination}.{source}")
    return added


def _way(
    database: Database, driver: Mapping[tuple[str, str], str], tile: str, wire: str
) -> list[tuple[str, str, str]] | None:
    """Connections (tile, destination, source) of the shortest route from a 0 to a wire."""
    left = deque([(tile, wire, ())])
    seen = set()
    while left:
        tile, wire, way = left.popleft()
        if wire == _GROUND:
            return list(way)
        for there, name in database.node(tile, wire):
            if (there, name) in seen:
                continue
            seen.add((there, name))
            kind = database.grid[there]["type"]
            fixed = driver.get((there, name)) or database.always(kind).get(name)
            if fixed:
                left.append((there, fixed, way))
            else:
                left.extend(
                    (there, source, ((there, name, source), *way))
                    for source in database.sources(kind).get(name, ())
                )
    return None
