# SPDX-License-Identifier: BSD-2-Clause
"""FST files, as GTKWave's program reads them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tools.debian_tree import Tree, obtain

_TREE = Tree("bookworm", ("zlib1g", "libbz2-1.0", "libjudydebian1"), alone=("gtkwave",))


class Waveforms:
    """What is in an FST file.

    Attributes
    ----------
    names : set of str
        Of all signals, without the modules that they are in.
    widths : dict of str to int
        Bits of each signal of the core, by its path.
    values : dict of str to dict of str to int
        Of each signal that has them, the names of its values.
    steps : int
        How many times something changes.
    """

    def __init__(self, file: Path):
        program = obtain(_TREE) / "usr" / "bin" / "fst2vcd"
        text = subprocess.run(
            [program, "-e", "-f", file], capture_output=True, text=True, check=True, timeout=120
        ).stdout
        header, changes = text.split("$enddefinitions $end")
        self.steps = len(re.findall(r"^#\d+$", changes, flags=re.MULTILINE))
        self.names: set[str] = set()
        self.widths: dict[str, int] = {}
        self.values: dict[str, dict[str, int]] = {}
        tables: dict[str, dict[str, int]] = {}
        scopes: list[str] = []
        table = None
        for line in header.splitlines():
            words = line.split()
            if words[:3] == ["$attrbegin", "misc", "07"] and words[3] == '""':
                table = tables[words[4]]
            elif words[:3] == ["$attrbegin", "misc", "07"]:
                count = int(words[4])
                names, numbers = words[5 : 5 + count], words[5 + count : 5 + 2 * count]
                tables[words[5 + 2 * count]] = {
                    name: int(bits, 2) for name, bits in zip(names, numbers, strict=True)
                }
            elif words[:1] == ["$scope"]:
                scopes.append(words[2])
            elif words[:1] == ["$upscope"]:
                scopes.pop()
            elif words[:1] == ["$var"] and scopes[0] != "$rootio":
                path = ".".join([*scopes, words[4]])
                self.names.add(words[4])
                self.widths[path] = int(words[2])
                if table is not None:
                    self.values[path] = table
                table = None
