# SPDX-License-Identifier: BSD-2-Clause
"""Imports go down: the order of the house, held against what each file imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Packages whose files are held against the order.
CHECKED = ("tests", "sim", "flow", "hw", "host")
#: Top to bottom. A file imports from its own line and from those below. The longest name that a
#: module begins with says where it stands.
ORDER = (
    "tests",
    "sim.record",
    "sim.campaign sim.formal sim.mutants sim.perf sim.system sim.wheels",
    "sim.copies",
    "sim.benches",
    # The program, which joins the server to the compiler.
    "sim.board.__main__",
    "sim.compile",
    "sim sim.board",
    "flow",
    "tools",
    # Programs in `host/`, which is the root of the library's sources.
    "demo examples peerdma_start",
    "peerdma.__main__",
    "peerdma.cli",
    "peerdma.doctor",
    "peerdma",
    "peerdma.opening peerdma.gpus",
    "peerdma.kernel peerdma.userspace",
    "peerdma.vfio_pci peerdma.vfio_user",
    "peerdma.vfio",
    # GPUs, which have the kernels for tests made by what stands below them.
    "peerdma.cuda.gpu peerdma.emulated",
    "peerdma.testing",
    "peerdma.board",
    # What knows memory and streams of CUDA, for boards.
    "peerdma.cuda",
    "peerdma.memory",
    "peerdma.trace",
    "peerdma.arguments peerdma.deprecated peerdma.errors peerdma.identity peerdma.process "
    "peerdma.uapi peerdma.waiting",
    "hw.top hw.endpoint hw.core hw.host hw.build",
    "hw.boards",
    "hw.pcie",
    "hw.launch",
    "hw.channel",
    "hw.interrupts",
    "hw.stream",
    "hw.read hw.write",
    "hw.memory",
    "hw.registers",
    "hw hw.seam hw.records",
    "hw.parts",
    "peerdma.regs",
)
#: Whose files have places of their own.
HOUSES = (None, "hw", "sim", "peerdma")
LINE = {name: number for number, names in enumerate(ORDER) for name in names.split()}


def stands(module: str) -> str | None:
    """The name in `ORDER` of what a module is part of; None for what is not of this project."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in names if name in LINE), None)


def name_of(path: Path) -> str:
    """The module's name, from its path in the checkout."""
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "host" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(module: str, path: Path, modules: Iterable[str]) -> Iterator[str]:
    """What a file imports, in functions and for types too; `modules` are all that there are."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield name if name in modules or stands(name) == name else base


def graph_of(root: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """What each module of the packages imports."""
    files = [path.relative_to(root) for name in packages for path in (root / name).rglob("*.py")]
    modules = {name_of(path): path for path in files}
    return {
        module: {each for each in imports(module, root / path, modules) if each != module}
        for module, path in modules.items()
    }


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Imports that go up, a line each."""
    return sorted(
        f"{module} imports {each}, which stands above it"
        for module, found in graph.items()
        for each in found
        if (up := stands(each)) and LINE[up] < LINE[stands(module)]
    )


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports the next and the last is the first; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


def rooms(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same graph between the names of `ORDER`."""
    found: dict[str, set[str]] = {}
    for module, names in graph.items():
        room = stands(module)
        found.setdefault(room, set()).update({stands(name) for name in names} - {room, None})
    return found


@pytest.fixture(scope="module")
def house() -> dict[str, set[str]]:
    return graph_of(ROOT, CHECKED)


def test_every_file_has_its_place(house):
    homeless = [name for name in house if "." in name and stands(name) in HOUSES]
    assert not homeless, "ORDER has no place for them"


def test_no_import_goes_up(house):
    assert len(house) > 100
    assert not upward(house)


def test_no_circle_of_files_or_folders(house):
    assert not circle(house)
    assert not circle(rooms(house))


def test_the_board_needs_no_gateware(house):
    """What the wheel peerdma-sim ships: all but the program that joins it to the compiler."""
    board = [name for name in house if stands(name) == "sim.board"]
    assert "sim.board.server" in board
    known = {*sys.stdlib_module_names, "numpy", "peerdma"}
    for module in board:
        others = {name for name in house[module] if name.partition(".")[0] not in known}
        assert all(stands(name) == "sim.board" for name in others), module


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("hw/read/tags.py", "from ..channel.fetch import READS", "hw.channel.fetch"),
        ("hw/read/tags.py", "from ..channel import fetch", "hw.channel.fetch"),
        ("hw/read/tags.py", "def f():\n    from hw import core", "hw.core"),
        (
            "hw/memory/card_ram.py",
            "from typing import *\nif TYPE_CHECKING:\n    import flow",
            "flow",
        ),
        ("hw/seam.py", "from peerdma.errors import Timeout", "peerdma.errors"),
        ("sim/board/server.py", "from ..compile import tools", "sim.compile.tools"),
        ("host/peerdma/board/link.py", "from ..kernel import node", "peerdma.kernel"),
        ("host/peerdma/errors.py", "from .memory.files import kind_of", "peerdma.memory.files"),
        ("host/peerdma/opening.py", "def f():\n    from . import Board", "peerdma"),
        ("hw/channel/control.py", "from . import fetch\nfrom ..seam import SentToken", None),
    ],
)
def test_an_import_that_goes_up_is_found(tmp_path, file, line, found):
    for name in (file, "hw/channel/fetch.py", "hw/core.py", "sim/compile/tools.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / file).write_text(line + "\n")
    said = upward(graph_of(tmp_path, ("hw", "sim", "host")))
    module = name_of(Path(file))
    assert said == ([f"{module} imports {found}, which stands above it"] if found else [])


def test_circles_are_found(tmp_path):
    """Between files of one folder, and between folders of one line."""
    for name, text in {
        "hw/read/a.py": "from .b import B\nfrom ..write.c import C",
        "hw/read/b.py": "from . import a",
        "hw/write/c.py": "from ..read import d",
        "hw/read/d.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = graph_of(tmp_path, ("hw",))
    assert not upward(graph)
    assert set(circle(graph)) == {"hw.read.a", "hw.read.b"}
    assert set(circle(rooms(graph))) == {"hw.read", "hw.write"}
