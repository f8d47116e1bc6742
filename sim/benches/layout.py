# SPDX-License-Identifier: BSD-2-Clause
"""What a viewer shows at first of a core's waveforms: files for GTKWave and for Surfer.

The signals of the PCIe block, all states by name, then the streams between the blocks of the core.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from hw.endpoint import MODULE_NAME
from sim.compile.waves import NAMED, Declared, declared

__all__ = ["FILES", "copy", "write"]

#: For GTKWave, and commands of Surfer.
FILES = ("dump.gtkw", "dump.sucl")

#: Of a module's ports, those that are streams.
_STREAM = re.compile(r".*__(valid|ready|payload)")
#: GTKWave's flags of a trace: hexadecimal and justified to the right, a group's beginning, its end.
_HEXADECIMAL, _BEGIN, _END = "@22", "@c00200", "@1000200"


def write(verilog: str, folder: Path) -> None:
    """Writes `FILES`, of what `sim.compile.waves.readable` returned."""
    gtkwave, surfer = [], []
    for title, signals in _groups(list(declared(verilog))):
        gtkwave += [_BEGIN, f"-{title}", _HEXADECIMAL]
        surfer.append(f"divider_add {title}")
        for each in signals:
            gtkwave.append(f"{each.path}[{each.width - 1}:0]" if each.width > 1 else each.path)
            surfer.append(f"variable_add {each.path}")
        gtkwave += [_END, f"-{title}"]
    for name, lines in zip(FILES, (gtkwave, surfer), strict=True):
        (folder / name).write_text("\n".join([*lines, ""]))


def copy(simulator: Path, folder: Path) -> None:
    """Copies them from a simulator's folder to that of its waveforms."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(simulator / name, folder)


def _groups(signals: list[Declared]) -> Iterator[tuple[str, list[Declared]]]:
    """Titles, and what is under them."""
    ports = [each for each in signals if each.port]
    yield "PCIe block", [each for each in ports if each.module == MODULE_NAME]
    yield "states", [each for each in signals if each.name == f"fsm_state{NAMED}"]
    inside = f"{MODULE_NAME}.core."
    streams: dict[str, list[Declared]] = {}
    for each in ports:
        module = each.module.removeprefix(inside)
        if module != each.module and "." not in module and _STREAM.fullmatch(each.name):
            streams.setdefault(module, []).append(each)
    yield from streams.items()
