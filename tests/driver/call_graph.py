# SPDX-License-Identifier: BSD-2-Clause
"""The driver's call graph, from its sources: which function uses which, across files.

A simple reading of C in the kernel's style: comments, strings and preprocessor lines are dropped; a
function's head begins in the first column and its braces stand there; an identifier that is not a
member is a use of the function or variable of that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

#: Modules of their own, above the core: nothing of it calls them by name.
PROVIDERS = ("nvp2p", "nvp2p_tegra")

_DROPPED = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^#(?:\\\n|[^\n])*', re.S | re.M
)
_FUNCTION = re.compile(
    r"^(?P<head>\w[\w \t*]*?)[ \t*](?P<name>\w+)\((?P<parameters>[^{};]*)\)\n\{\n(?P<body>.*?)^\}",
    re.S | re.M,
)
_VARIABLE = re.compile(
    r"^(?!static |extern |return )[\w *]*?\b(peerdma_\w+)(?:\[\])?(?: = \{|;)", re.M
)
_USE = re.compile(r"(?<![\w.>])(?<!struct )(?<!enum )(?<!union )([A-Za-z_]\w*)\b")
_CALL = re.compile(r"(?<![\w.>])([A-Za-z_]\w*)\(|\b(?:provider|ops)->(\w+)\(")
_OPERATION = re.compile(r"struct peerdma_(?:provider|ops) \w+ = \{(.*?)^\};", re.S | re.M)
#: Of a board's lock, which no function returns with.
_LOCK = re.compile(r"\bspin_(un)?lock_irq(?:save|restore)?\(&(?:\w+->)*board->lock\b")
_HANDLER = re.compile(r"\brequest_irq\(pci_irq_vector\([^)]*\), (\w+),")


@dataclass
class File:
    """A source file.

    Attributes
    ----------
    static, exported : dict of str to str
        Its functions and their bodies.
    variables : set of str
        Those that other files can see.
    uses : set of str
        All identifiers in it that are not members.
    operations : list of tuple of str
        What structures of a provider, or of calls to upper layers, have: member and function.
    includes : set of str
        Headers of the driver.
    """

    name: str
    static: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    operations: list[tuple[str, str]] = field(default_factory=list)
    includes: set[str] = field(default_factory=set)

    @property
    def functions(self) -> dict[str, str]:
        """All functions and their bodies."""
        return self.static | self.exported


def read(path: Path) -> File:
    """What is in a source file or header."""
    text = path.read_text()
    file = File(path.stem, includes=set(re.findall(r'^#include "(\w+\.h)"', text, re.M)))
    text = _DROPPED.sub(lambda dropped: "\n" * dropped[0].count("\n"), text)
    for found in _FUNCTION.finditer(text):
        kind = file.static if re.search(r"\bstatic\b", found["head"]) else file.exported
        kind[found["name"]] = found["body"]
    file.variables = set(_VARIABLE.findall(_FUNCTION.sub("", text)))
    file.uses = set(_USE.findall(text))
    for table in _OPERATION.findall(text):
        file.operations += re.findall(r"\.(\w+) = (\w+)", table)
    return file


def layers(driver: Path) -> dict[str, list[str]]:
    """The files of each layer, lowest first, as the Makefile has them."""
    makefile = (driver / "Makefile").read_text()
    (listed,) = re.findall(r"^layers := (.*)$", makefile, re.M)
    found = {}
    for layer in listed.split():
        (objects,) = re.findall(rf"^{layer} := (.*)$", makefile, re.M)
        found[layer] = [name.removesuffix(".o") for name in objects.split()]
    return found


def sources(driver: Path) -> list[Path]:
    """The driver's sources, wherever they are in its folder, without its tests' and those made."""
    folders = [driver / folder for folder in (*layers(driver), "providers")]
    return sorted(path for folder in folders for path in folder.glob("*.c"))


def headers(driver: Path) -> list[Path]:
    """The driver's headers, likewise."""
    folders = [driver, *(driver / folder for folder in layers(driver))]
    return sorted(path for folder in folders for path in folder.glob("*.h"))


class Graph:
    """The files of a driver's folder, in the order of their layers, and their calls."""

    def __init__(self, driver: Path):
        parts = {**layers(driver), "providers": list(PROVIDERS)}
        places = {name: folder for folder, names in parts.items() for name in names}
        self.files = {name: read(driver / at / f"{name}.c") for name, at in places.items()}
        self.headers = [read(path) for path in headers(driver)]
        self.home = {
            symbol: file.name
            for file in self.files.values()
            for symbol in (*file.exported, *file.variables)
        }

    def used(self, file: File) -> set[str]:
        """The other files whose functions or variables a file uses."""
        return {self.home[use] for use in file.uses if use in self.home} - {file.name}

    def upward(self) -> list[str]:
        """Uses that go up: from a file to one that does not stand before it."""
        order = list(self.files)
        return [
            f"{file.name}.c uses {use}, which is in {self.home[use]}.c"
            for file in self.files.values()
            for use in sorted(file.uses & self.home.keys())
            if order.index(self.home[use]) > order.index(file.name)
        ]

    def components(self) -> list[set[str]]:
        """Groups of files each of which uses, directly or not, all others of the group."""
        edges = {file.name: self.used(file) for file in self.files.values()}
        reach = {name: _closure(edges, {name}) for name in edges}
        groups = [{b for b in reach[a] if a in reach[b]} for a in edges]
        return [group for number, group in enumerate(groups) if group not in groups[:number]]

    def bodies(self) -> dict[str, str]:
        """All functions and their bodies, those of headers too."""
        files = [*self.headers, *self.files.values()]
        return {name: body for file in files for name, body in file.functions.items()}

    def calls(self, bodies: dict[str, str] | None = None) -> dict[str, set[str]]:
        """What each function, or part of one, calls: through structures of functions too."""
        through: dict[str, set[str]] = {}
        for file in self.files.values():
            for member, function in file.operations:
                through.setdefault(member, set()).add(function)
        known = self.bodies()
        found: dict[str, set[str]] = {}
        for name, body in (bodies or known).items():
            called = [match.groups() for match in _CALL.finditer(body)]
            direct = {direct for direct, _ in called if direct in known}
            found[name] = direct.union(*(through.get(member, ()) for _, member in called))
        return found

    def locked(self) -> dict[str, str]:
        """What runs with a board's lock held, or in a hard interrupt: functions, or parts of them.

        A part goes on to the last place that releases the lock, whichever path leads there.
        """
        bodies = self.bodies()
        parts = {name: _locked(body) for name, body in bodies.items()}
        parts |= {name: bodies[name] for name in self._handlers()}
        reached = _closure(self.calls(), set().union(*self.calls(parts).values()))
        return {name: part for name, part in parts.items() if part} | {
            name: bodies[name] for name in reached
        }

    def _handlers(self) -> list[str]:
        return [name for body in self.bodies().values() for name in _HANDLER.findall(body)]

    def route(self, start: str, *ends: str) -> set[str]:
        """The files that the calls from a function to others lead through."""
        calls = self.calls()
        assert {start, *ends} <= calls.keys()
        reached = _closure(calls, {start})
        assert set(ends) <= reached, f"{start} does not lead to all of {ends}"
        leads = {name for name in reached if _closure(calls, {name}) & set(ends)}
        return {file.name for file in self.files.values() if leads & file.functions.keys()}


def _locked(body: str) -> str:
    """The parts of a function that have a board's lock."""
    parts, start, end = [], None, None
    for found in _LOCK.finditer(body):
        if found[1]:
            end = found.start()
            continue
        if start is not None:
            parts.append(body[start:end])
        start, end = found.end(), None
    if start is not None:
        parts.append(body[start:end])
    return "\n".join(parts)


def _closure(edges: dict[str, set[str]], found: set[str]) -> set[str]:
    """What can be reached, beginning with `found`."""
    found, new = set(found), set(found)
    while new:
        new = set().union(*(edges[name] for name in new)) - found
        found |= new
    return found
