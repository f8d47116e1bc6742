# SPDX-License-Identifier: BSD-2-Clause
"""Records of configurations, to compare an image with one that is known to work on a board.

    .venv/bin/python -m flow.record picoevb IMAGE   prints the record of a .bit, .bin or .mcs

A record has a line for each configuration value of the hard blocks, their clocks and the board's
pins, for each input of the hard blocks (bit by bit, highest first: 0, 1, or n where a net drives
it), and for each configuration register that controls how the image is loaded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import bitstream
from .database import Database
from .frames import disassemble
from .trace import HIGH, LOW, Tracer

__all__ = ["Difference", "Record", "compare", "main", "record"]

#: Configuration registers that control how an image is loaded, by their names in a record.
_REGISTERS = {"BSPI": bitstream.Register.BSPI, "COR0": bitstream.Register.COR0}


@dataclass
class Record:
    """The values of a configuration that are compared.

    Attributes
    ----------
    values : dict of str to str
        By name: "feature PCIE_BOT_X71Y115.PCIE.BAR0", "input PCIE_X0Y0.CFGDEVID", "register BSPI".
    """

    values: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Record:
        """Reads what `dump` wrote."""
        lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
        return cls({" ".join(words[:-1]): words[-1] for words in lines if words})

    def dump(self) -> str:
        """A line for each value."""
        return "".join(f"{key} {value}\n" for key, value in sorted(self.values.items()))


@dataclass(frozen=True)
class Difference:
    """One value that differs; None if a side does not have it."""

    what: str
    ours: str | None
    theirs: str | None

    def __str__(self) -> str:
        return f"{self.what}: {self.ours or '(none)'}, reference {self.theirs or '(none)'}"


def record(
    database: Database,
    features: Iterable[str],
    sites: Iterable[str],
    pins: Iterable[str],
    registers: Mapping[int, int],
) -> Record:
    """The record of a configuration.

    Parameters
    ----------
    database : Database
    features : iterable of str
    sites : iterable of str
        Hard blocks: their tiles' features, and their inputs.
    pins : iterable of str
        Package pins whose I/O buffers are compared.
    registers : mapping of int to int
    """
    features = set(features)
    prefixes = [f"{database.tile_of_site(site)}." for site in sites]
    for pin in pins:
        tile, site = database.pins[pin]
        if site.startswith("IOB"):  # not a transceiver's pad
            prefixes.append(f"{tile}.IOB_Y{int(site.rpartition('Y')[2]) % 2}.")
    found: dict[str, int] = {}
    for feature in features:
        # The place of the clock manager does not matter.
        name = re.sub(r"^CMT_TOP_\w+\.MMCME2_ADV\.", "MMCM.", feature)
        if feature.startswith(tuple(prefixes)) or name.startswith("MMCM."):
            name, bracket, index = name.partition("[")
            found[name] = found.get(name, 0) | 1 << (int(index[:-1]) if bracket else 0)
    result = Record({f"feature {name}": f"{value:#x}" for name, value in found.items()})
    for feature in features:
        if match := re.match(r"(\w+IOB33\w*\.IOB_Y\d)\..*(DRIVE|\.IN$)", feature):
            result.values[f"pad {match[1]}"] = "used"
    for kind, buffers in _clock_buffers(features).items():
        result.values[f"clock-buffer {kind}"] = "/".join(sorted(buffers))
    tracer = Tracer(database, features)
    for label, site in {**{site: site for site in sites}, **_clocking(database, features)}.items():
        for head, bits in _vectors(tracer.inputs(site)).items():
            result.values[f"input {label}.{head}"] = bits
    for name, register in _REGISTERS.items():
        result.values[f"register {name}"] = f"{registers[register]:#x}"
    return result


def _vectors(inputs: Mapping[str, str]) -> dict[str, str]:
    """Inputs by name without index -> what drives each bit, highest first."""
    found: dict[str, dict[int, str]] = {}
    for name, source in inputs.items():
        head, index = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]
        driven = source if source in (LOW, HIGH) else "n"
        found.setdefault(head, {})[int(index or 0)] = driven
    return {
        head: "".join(bits.get(index, "-") for index in reversed(range(max(bits) + 1)))
        for head, bits in found.items()
    }


def _clocking(database: Database, features: set[str]) -> dict[str, str]:
    """Sites of clock manager and clock multiplexer, wherever they are."""
    found = {}
    for feature in features:
        tile = feature.partition(".")[0]
        if feature.endswith(".MMCME2_ADV.IN_USE"):
            found["MMCM"] = next(s for s in database.grid[tile]["sites"] if s.startswith("MMCM"))
        elif match := re.match(r"CLK_BUFG_\w+\.CLK_BUFG_BUFGCTRL(\d+)_I1\.", feature):
            sites = sorted(database.grid[tile]["sites"], key=lambda s: int(s.rpartition("Y")[2]))
            found["multiplexer"] = sites[int(match[1])]
    return found


def _clock_buffers(features: set[str]) -> dict[str, set[str]]:
    """Settings of clock buffers, plain ones and multiplexers."""
    settings: dict[str, set[str]] = {}
    for feature in features:
        if match := re.match(r"(CLK_BUFG_\w+)\.BUFGCTRL\.BUFGCTRL_X0Y(\d+)\.(\w+)$", feature):
            settings.setdefault(f"{match[1]}.CLK_BUFG_BUFGCTRL{match[2]}", set()).add(match[3])
    found: dict[str, set[str]] = {}
    for buffer, words in settings.items():
        kind = "multiplexer" if any(f.startswith(f"{buffer}_I1.") for f in features) else "plain"
        found.setdefault(kind, set()).add("+".join(sorted(words)))
    return found


def compare(
    ours: Record, theirs: Record, allowed: Mapping[str, str]
) -> tuple[list[Difference], list[str]]:
    """Differences that are not allowed, and patterns of `allowed` that match none.

    Parameters
    ----------
    ours, theirs : Record
    allowed : mapping of str to str
        Regular expression for the full name of values that may differ -> why.
    """
    different = [
        Difference(what, ours.values.get(what), theirs.values.get(what))
        for what in sorted(ours.values.keys() | theirs.values.keys())
        if ours.values.get(what) != theirs.values.get(what)
    ]
    used = {p for p in allowed for d in different if re.fullmatch(p, d.what)}
    left = [d for d in different if not any(re.fullmatch(p, d.what) for p in used)]
    return left, sorted(allowed.keys() - used)


def _intel_hex(text: str) -> bytes:
    """The bytes of an .mcs file."""
    memory, base = bytearray(), 0
    for line in text.split():
        raw = bytes.fromhex(line[1:])
        count, offset, kind = raw[0], int.from_bytes(raw[1:3], "big"), raw[3]
        if kind == 4:
            base = int.from_bytes(raw[4:6], "big") << 16
        elif kind == 0:
            end = base + offset + count
            memory.extend(b"\xff" * (end - len(memory)))
            memory[base + offset : end] = raw[4 : 4 + count]
    return bytes(memory)


def main(arguments: list[str]) -> int:
    """Command line; returns the exit status."""
    from hw.boards import BOARDS

    from .toolchain import Toolchain

    if len(arguments) != 2 or arguments[0] not in BOARDS:
        print(__doc__, file=sys.stderr)
        return 2
    board, path = BOARDS[arguments[0]], Path(arguments[1])
    raw = path.read_bytes()
    image = _intel_hex(raw.decode()) if path.suffix == ".mcs" else raw
    database = Database(Toolchain.obtain().database, board.fabric, board.part)
    read = bitstream.read(image, database.columns)
    features, unknown = disassemble(database, read.frames)
    print(f"{len(unknown)} unknown bits", file=sys.stderr)
    result = record(database, features, board.sites.values(), board.pins, read.registers)
    print(result.dump(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
