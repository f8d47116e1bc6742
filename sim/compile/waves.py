# SPDX-License-Identifier: BSD-2-Clause
"""Waveforms that people can read: FST files with states by name and no signals without a name.

Verilator writes names of values only for SystemVerilog's enumerations, of which Amaranth makes
none. So beside each signal whose values have names, `readable` puts another one that shows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tools.debian_tree import Tree, TreeError, architecture, obtain

from .tools import BuildError

__all__ = ["NAMED", "TRACE", "Declared", "declared", "libraries", "readable"]

#: Verilator's option for them.
TRACE = "--trace-fst"
#: How the names of signals end that show names of values.
NAMED = "_name"
#: The compression that FST files are written with: headers, and libraries to be linked statically.
_TREE = Tree("bookworm", alone=("liblz4-dev", "zlib1g-dev"))
_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

_MODULE = re.compile(r"^module \\?(?P<name>\S+) ?\(.*?^endmodule$", re.MULTILINE | re.DOTALL)
_SIGNAL = r"(?:\[(?P<top>\d+):0\] )?(?:\\(?P<escaped>\S+)|(?P<name>\w+))"
_DECLARED = re.compile(
    rf"^  (?P<kind>input|output|wire|reg|waves_\d+::kind) {_SIGNAL}", re.MULTILINE
)
#: A signal for which Amaranth found no name, or a second one of a name.
_NAMELESS = re.compile(r"^  (?:input|output|wire|reg) (?:\[.*?\] )?\\\S*\$.*;$", re.MULTILINE)
_VALUE = r"  \(\* enum_value_([01]+) = \"(\w+)\" \*\)\n"
#: A signal with Amaranth's attributes for an enumeration.
_ENUMERATED = re.compile(
    rf'  \(\* enum_base_type = "\w+" \*\)\n(?P<values>(?:{_VALUE})+)(?:  \(\*.*\*\)\n)*'
    rf"  (?:wire|reg) {_SIGNAL}"
)

#: Width, and values with their names.
_Kind = tuple[int, tuple[tuple[int, str], ...]]


class Declared(NamedTuple):
    """A signal of a module: whether it is a port, and its width in bits."""

    module: str
    name: str
    width: int
    port: bool

    @property
    def path(self) -> str:
        """As in the waveforms: a module is named by its path."""
        return f"{self.module}.{self.name}"


def libraries() -> tuple[list[str], list[str]]:
    """Options of the compiler and of the linker for what writes FST files; raises `BuildError`."""
    try:
        root = obtain(_TREE)
    except TreeError as error:
        raise BuildError(f"waveforms need lz4 and zlib from Debian's packages: {error}") from error
    folder = root / "usr" / "lib" / _TRIPLETS[architecture()]
    return [f"-I{root / 'usr' / 'include'}"], [str(folder / f"lib{n}.a") for n in ("lz4", "z")]


def readable(verilog: str) -> str:
    """The same core as SystemVerilog whose waveforms can be read.

    Parameters
    ----------
    verilog : str
        What `hw.build.generate` writes for simulations.
    """
    from hw.build import STATES

    states = re.findall(rf"^{STATES}(\S+)\.(\S+): (.*)$", verilog, flags=re.MULTILINE)
    kinds: dict[_Kind, str] = {}

    def twin(signal: str, width: int, values: list[tuple[int, str]]) -> str:
        kind = kinds.setdefault((width, tuple(values)), f"waves_{len(kinds)}")
        name = f"\\{signal}{NAMED} "
        return f"  {kind}::kind {name};\n  assign {name}= {kind}::kind'(\\{signal} );\n"

    def with_twins(found: re.Match[str]) -> str:
        text = found[0]
        twins = [
            twin(
                signal["escaped"] or signal["name"],
                int(signal["top"] or 0) + 1,
                [(int(bits, 2), word) for bits, word in re.findall(_VALUE, signal["values"])],
            )
            for signal in _ENUMERATED.finditer(text)
            if "$" not in (signal["escaped"] or "")
        ]
        for module, signal, names in states:
            if module == found["name"]:
                words = names.split()
                twins.append(twin(signal, (len(words) - 1).bit_length(), list(enumerate(words))))
        hidden = _NAMELESS.sub(r"/*verilator tracing_off*/\n\g<0>\n/*verilator tracing_on*/", text)
        return hidden.removesuffix("endmodule") + "".join(twins) + "endmodule"

    text = _MODULE.sub(with_twins, verilog)
    return "".join(map(_package, kinds.values(), kinds)) + text


def _package(name: str, kind: _Kind) -> str:
    """Declares a kind of values: in a package of its own, as others may have the same names."""
    width, values = kind
    members = ",\n".join(f"    {word} = {number}" for number, word in values)
    return (
        f"package {name};\n  typedef enum logic [{width - 1}:0] {{\n{members}\n  }} kind;\n"
        "endpackage\n"
    )


def declared(verilog: str) -> Iterator[Declared]:
    """The signals that waveforms show of what `readable` returned."""
    for module in _MODULE.finditer(verilog):
        ports: dict[str, bool] = {}
        widths: dict[str, int] = {}
        for each in _DECLARED.finditer(module[0]):
            name = each["escaped"] or each["name"]
            ports[name] = ports.get(name, False) or each["kind"] in ("input", "output")
            widths[name] = int(each["top"] or 0) + 1
            if each["kind"].startswith("waves_"):
                widths[name] = widths[name.removesuffix(NAMED)]
        for name, port in ports.items():
            if "$" not in name:
                yield Declared(module["name"], name, widths[name], port)
