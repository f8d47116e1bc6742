# SPDX-License-Identifier: BSD-2-Clause
"""Project X-Ray's database of a 7-series FPGA: the meaning of bits, and how wires connect.

Features are named as in FASM, `TILE.SITE.WHAT`; the database has the tile's type in place of its
name. A segment bit `26_33` is bit 33 of the tile's words in its 27th frame.
"""

from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FRAME_WORDS", "Bit", "Database", "Feature", "Place", "widths"]

#: 32-bit words of a configuration frame (UG470).
FRAME_WORDS = 101

#: Frame address, word in it, bit in that.
Bit = tuple[int, int, int]


@dataclass(frozen=True)
class Feature:
    """The bits that a feature sets and clears: pairs (frame, bit) relative to its tile."""

    ones: tuple[tuple[int, int], ...]
    zeros: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Place:
    """Where a tile's bits of one kind are."""

    kind: str
    base: int
    frames: int
    offset: int
    words: int
    type: str
    start: int
    sites: dict[str, str]

    def bit(self, frame: int, bit: int) -> Bit:
        """Where the database's bit `frame`_`bit` of this tile is."""
        word = bit // 32 - self.start
        return self.base + frame, self.offset + word, bit % 32


class Database:
    """The database of one part; files are read on first use.

    Parameters
    ----------
    root : pathlib.Path
        Folder of the family, with `segbits_*.db` in it.
    fabric, part : str
        For example "xc7a50t" and "xc7a50tcsg325-2".
    """

    def __init__(self, root: Path, fabric: str, part: str):
        self.root, self.fabric, self.part = root, fabric, part
        self.grid: dict[str, dict] = self._json(f"{fabric}/tilegrid.json")

    def _json(self, name: str):
        return json.loads((self.root / name).read_text())

    @functools.cached_property
    def idcode(self) -> int:
        """The part's JTAG IDCODE, revision included."""
        return self._json(f"{self.part}/part.json")["idcode"]

    @functools.cached_property
    def columns(self) -> dict[int, int]:
        """First frame address of each column -> its number of frames."""
        found = {}
        regions = self._json(f"{self.part}/part.json")["global_clock_regions"]
        for half, region in regions.items():
            for row, buses in region["rows"].items():
                for bus, columns in buses["configuration_buses"].items():
                    for column, entry in columns["configuration_columns"].items():
                        address = {"CLB_IO_CLK": 0, "BLOCK_RAM": 1}[bus] << 23
                        address |= (half == "bottom") << 22 | int(row) << 17 | int(column) << 7
                        found[address] = entry["frame_count"]
        return found

    @functools.cached_property
    def pins(self) -> dict[str, tuple[str, str]]:
        """Package pin -> (tile, site)."""
        with (self.root / self.part / "package_pins.csv").open() as file:
            return {row["pin"]: (row["tile"], row["site"]) for row in csv.DictReader(file)}

    def tile_of_site(self, site: str) -> str:
        """The tile that a site, "PCIE_X0Y0", is in."""
        return self._tiles_of_sites[site]

    def site(self, site: str) -> tuple[str, dict]:
        """A site's tile, and the site's entry in the tile type: name, type, pins."""
        tile = self.tile_of_site(site)
        sites = self.grid[tile]["sites"]
        alike = sorted((name for name in sites if sites[name] == sites[site]), key=_position)
        entries = self.tile_type(self.grid[tile]["type"])["sites"]
        entries = [entry for entry in entries if entry["type"] == sites[site]]
        entries.sort(key=lambda entry: _position(entry["name"]))
        return tile, entries[alike.index(site)]

    @functools.cached_property
    def _tiles_of_sites(self) -> dict[str, str]:
        return {site: tile for tile, entry in self.grid.items() for site in entry["sites"]}

    @functools.cache  # noqa: B019, a database lives as long as the program
    def places(self, tile: str) -> tuple[Place, ...]:
        """Where the tile's bits are; empty for a tile without bits."""
        found = []
        entry = self.grid[tile]
        for kind, bits in entry["bits"].items():
            alias = bits.get("alias", {})
            found.append(
                Place(
                    kind,
                    int(bits["baseaddr"], 16),
                    bits["frames"],
                    bits["offset"],
                    bits["words"],
                    alias.get("type", entry["type"]),
                    alias.get("start_offset", 0),
                    {there: here for here, there in alias.get("sites", {}).items()},
                )
            )
        return tuple(found)

    @functools.cache  # noqa: B019
    def features(self, tile_type: str, kind: str) -> dict[str, Feature]:
        """Features of a tile type, by what follows the type in their names."""
        suffix = ".block_ram" if kind == "BLOCK_RAM" else ""
        path = self.root / f"segbits_{tile_type.lower()}{suffix}.db"
        found = {}
        if path.exists():
            for line in path.read_text().splitlines():
                name, *bits = line.split()
                name = _plain(name.partition(".")[2])
                pairs = [tuple(map(int, bit.lstrip("!").split("_"))) for bit in bits]
                found[name] = Feature(
                    tuple(p for p, bit in zip(pairs, bits, strict=True) if bit[0] != "!"),
                    tuple(p for p, bit in zip(pairs, bits, strict=True) if bit[0] == "!"),
                )
        return found

    @functools.cache  # noqa: B019
    def pseudo(self, tile_type: str) -> frozenset[str]:
        """Connections of a tile type that have no bit (pseudo PIPs): `DESTINATION.SOURCE`."""
        path = self.root / f"ppips_{tile_type.lower()}.db"
        lines = path.read_text().splitlines() if path.exists() else []
        return frozenset(line.split()[0].partition(".")[2] for line in lines)

    @functools.cache  # noqa: B019
    def always(self, tile_type: str) -> dict[str, str]:
        """Destination -> source of the permanent connections of a tile type."""
        path = self.root / f"ppips_{tile_type.lower()}.db"
        lines = path.read_text().splitlines() if path.exists() else []
        names = (name.split(".") for name, how in map(str.split, lines) if how == "always")
        return {destination: source for _, destination, source in names}

    @functools.cache  # noqa: B019
    def sources(self, tile_type: str) -> dict[str, list[str]]:
        """Destination -> sources of the programmable connections of a tile type."""
        found: dict[str, list[str]] = {}
        for name in self.features(tile_type, "CLB_IO_CLK"):
            destination, dot, source = name.partition(".")
            if dot and "." not in source and "[" not in source:
                found.setdefault(destination, []).append(source)
        return found

    @functools.cache  # noqa: B019
    def tile_type(self, tile_type: str) -> dict:
        """Sites, wires and connections of a tile type."""
        return self._json(f"tile_type_{tile_type}.json")

    @functools.cached_property
    def joints(self) -> dict[tuple[str, str], list[tuple[int, int, str, str]]]:
        """(tile type, wire) -> its neighbours: (columns, rows, tile type, wire)."""
        found: dict = {}
        for entry in self._json(f"{self.fabric}/tileconn.json"):
            (one, other), (x, y) = entry["tile_types"], entry["grid_deltas"]
            for here, there in entry["wire_pairs"]:
                found.setdefault((one, here), []).append((x, y, other, there))
                found.setdefault((other, there), []).append((-x, -y, one, here))
        return found

    @functools.cached_property
    def tile_at(self) -> dict[tuple[int, int], str]:
        """Grid position -> tile."""
        return {(entry["grid_x"], entry["grid_y"]): tile for tile, entry in self.grid.items()}

    @functools.cache  # noqa: B019
    def node(self, tile: str, wire: str) -> frozenset[tuple[str, str]]:
        """All (tile, wire) of the same electrical node as this one."""
        seen = {(tile, wire)}
        left = [(tile, wire)]
        while left:
            tile, wire = left.pop()
            entry = self.grid[tile]
            for x, y, other_type, other in self.joints.get((entry["type"], wire), ()):
                there = self.tile_at.get((entry["grid_x"] + x, entry["grid_y"] + y))
                if there and self.grid[there]["type"] == other_type and (there, other) not in seen:
                    seen.add((there, other))
                    left.append((there, other))
        return frozenset(seen)


def _plain(name: str) -> str:
    """The name without leading zeros in an index: INIT_00[007] is INIT_00[7]."""
    return re.sub(r"\[0+(\d)", r"[\1", name)


def _position(site: str) -> tuple[int, int]:
    """Place of a site by its name, "GTPE2_CHANNEL_X0Y3"."""
    x, y = site.rpartition("X")[2].split("Y")
    return int(x), int(y)


def widths(names: Iterable[str]) -> dict[str, int]:
    """Feature without index -> how many bits it has; 0 for one without index."""
    found: dict[str, int] = {}
    for name in names:
        head, bracket, index = name.partition("[")
        found[head] = max(found.get(head, 0), int(index[:-1]) + 1 if bracket else 0)
    return found
