# SPDX-License-Identifier: BSD-2-Clause
"""Finds what drives an input of a hard block, from the configuration alone.

The search goes upstream from the pin's wire, through the connections of the configuration and
permanent ones. A wire that nothing drives reads 1 (UG474).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .database import Database

__all__ = ["HIGH", "LOW", "Tracer", "drivers"]

#: Results of the search if it does not end at the output of a site: constants.
LOW, HIGH = "0", "1"


def drivers(features: Iterable[str]) -> dict[tuple[str, str], str]:
    """(Tile, wire) -> the wire that a configuration connects it to."""
    found = {}
    for feature in features:
        tile, _, rest = feature.partition(".")
        destination, dot, source = rest.partition(".")
        if dot and "." not in source and "[" not in source:
            found[tile, destination] = source
    return found


class Tracer:
    """Follows wires through a configuration.

    Parameters
    ----------
    database : Database
    features : iterable of str
        The configuration.
    """

    def __init__(self, database: Database, features: Iterable[str]):
        self._database = database
        self._driver = drivers(features)

    def inputs(self, site: str) -> dict[str, str]:
        """Every input of a site -> what drives it: "0", "1", or "TILE/WIRE" of an output."""
        tile, entry = self._database.site(site)
        found = {}
        for pin, pad in entry["site_pins"].items():
            if pad is not None and "res" not in pad:  # an output has a resistance, an input a load
                found[pin] = self.source(tile, pad["wire"])
        return found

    def source(self, tile: str, wire: str) -> str:
        """What drives a wire."""
        database = self._database
        for _ in range(1000):
            if wire == "GND_WIRE":
                return LOW
            if wire == "VCC_WIRE":
                return HIGH
            steps = []
            node = database.node(tile, wire)
            if output := self._buffer_output(node):
                return output
            for there, name in node:
                source = self._driver.get((there, name))
                if source is None:
                    source = database.always(database.grid[there]["type"]).get(name)
                if source is not None:
                    steps.append((there, source))
            if not steps:
                outputs = [
                    f"{there}/{name}"
                    for there, name in sorted(node)
                    if self._is_output(there, name)
                ]
                return outputs[0] if outputs else HIGH
            if len(steps) > 1:
                raise ValueError(f"{tile}/{wire} has {len(steps)} drivers: {steps}")
            tile, wire = steps[0]
        raise ValueError(f"the path to {tile}/{wire} has no end")

    @staticmethod
    def _buffer_output(node: Iterable[tuple[str, str]]) -> str | None:
        """The output of a clock buffer: the database has a connection through it."""
        outputs = (n for n in node if re.fullmatch(r"CLK_BUFG_BUFGCTRL\d+_O", n[1]))
        return next((f"{tile}/{wire}" for tile, wire in outputs), None)

    def _is_output(self, tile: str, wire: str) -> bool:
        sites = self._database.tile_type(self._database.grid[tile]["type"])["sites"]
        return any(
            pad is not None and pad["wire"] == wire and "res" in pad
            for site in sites
            for pad in site["site_pins"].values()
        )
