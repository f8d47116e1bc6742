# SPDX-License-Identifier: BSD-2-Clause
"""Compiles C++ of the core and the native model of its surroundings into one shared library.

The core's C++ comes from `sim.compile.generated`; g++ compiles it together with the sources in
`sim/board/native/`.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from hw.pcie.series7.parameters import PARAMETERS, TRANSMIT_BUFFERS
from hw.pcie.series7.ports import TRN_PORTS
from peerdma.regs import COMPLETION_TIMEOUT_US, WaitsFor

from . import waves
from .generated import GeneratedCore
from .tools import ROOT, Compiler, cached, digest_of, find_compiler, run_tool, say

__all__ = ["compile_board", "compile_ideal", "pins_header"]

_NATIVE = ROOT / "sim" / "board" / "native"

#: Sources in `sim/board/native/` of the link with its two ends, and of the board around it.
_LINK_SOURCES = (
    "block",
    "config_space",
    "link",
    "options",
    "root",
    "seam",
    "tlp",
    "trace",
    "trn",
    "ultrascale",
)
_BOARD_SOURCES = (
    "capi",
    "commands",
    "connection",
    "gpu_bar",
    "interrupts",
    "memory",
    "model",
    "register_pages",
    "server",
    "session",
    "stall",
    "vulkan",
)

_CXX = ("-std=c++17", "-fPIC", "-Wall", "-Wextra", "-O2")
#: Calls within the library go straight there, some of them for every cycle.
_LINK = ("-shared", "-Wl,-Bsymbolic")
#: Of dlopen, where the C library has it apart.
_SYSTEM = ("-ldl",)
#: Verilator's own code is not ours to warn about.
_CXX_VERILATED = ("-std=c++17", "-fPIC", "-w", "-DVL_TIME_CONTEXT")
#: Of Verilator's runtime, without what writes waveforms.
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
#: With -O2 a core takes twice as long to compile, and runs 5 % faster.
_LEVEL = "-O1"


def compile_board(core: GeneratedCore, compiler: Compiler | None = None) -> Path:
    """The shared library of the simulated board with a core; raises BuildError.

    It is for this machine, unless `compiler` is one for others.
    """
    compiler = compiler or find_compiler()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = pool.submit(_core_objects, core, compiler)
        native = pool.map(partial(_native_object, compiler), _LINK_SOURCES + _BOARD_SOURCES)
        compression = waves.libraries()[1] if core.waves else []
        return _link("board", [*objects.result(), *native, *compression], compiler)


def compile_ideal() -> Path:
    """The shared library of the link model with the ideal engine, without any core."""
    compiler = find_compiler()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sources = (*_LINK_SOURCES, "ideal", "rules")
        objects = list(pool.map(partial(_native_object, compiler), sources))
        return _link("ideal", objects, compiler)


def pins_header() -> str:
    """C++ of what simulation has to know of the core and the hard block: ports, buffers, texts."""

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
    texts = "".join(f'    "{each.text}",\n' for each in WaitsFor)
    headers, credits = (PARAMETERS[f"VC0_TOTAL_CREDITS_{kind}"] for kind in ("CH", "CD"))
    return (
        "// Generated from hw/pcie/series7 and peerdma/regs.py\n"
        "#pragma once\n#include <cstdint>\nnamespace peerdma {\n"
        f"constexpr unsigned kTransmitBuffers = {TRANSMIT_BUFFERS};  // in TLPs\n"
        f"constexpr unsigned kCompletionHeaders = {headers};\n"
        f"constexpr unsigned kCompletionCredits = {credits};  // of 16 bytes\n"
        f"constexpr unsigned kCompletionTimeoutUs = {COMPLETION_TIMEOUT_US};\n"
        f"{struct('TrnInputs', 'i')}{struct('TrnOutputs', 'o')}"
        f"constexpr const char *kWaitsFor[] = {{\n{texts}}};\n"
        f"template <class Core> void drive(Core &core, const TrnInputs &to) {{\n{drive}}}\n"
        f"template <class Core> void sample(const Core &core, TrnOutputs &from) {{\n{sample}}}\n"
        "}\n"
    )


@cache
def _headers() -> str:
    return "\0".join(path.read_text() for path in sorted(_NATIVE.glob("*.h"))) + pins_header()


def _pins_folder() -> Path:
    text = pins_header()
    return cached(f"pins-{digest_of(text)}", lambda at: (at / "pins.h").write_text(text))


def _native_object(compiler: Compiler, name: str) -> Path:
    source = _NATIVE / f"{name}.cpp"
    key = digest_of(source.read_text(), _headers(), *_CXX, compiler.version)
    pins = _pins_folder()

    def make(at: Path) -> None:
        say(f"compiling {source.name}")
        flags = [*_CXX, f"-I{_NATIVE}", f"-I{pins}"]
        run_tool([*compiler.command, *flags, "-c", str(source), "-o", "o.o"], at)

    return cached(f"{name}-{key}", make) / "o.o"


def _runtime_object(core: GeneratedCore, compiler: Compiler) -> Path:
    """Verilator's runtime, which is the same for all cores."""
    texts = [(core.runtime / name).read_text() for name in _RUNTIME]
    texts += [path.read_text() for path in sorted(core.runtime.glob("*.h"))]

    def make(at: Path) -> None:
        (at / "o.cpp").write_text("".join(f'#include "{name}"\n' for name in _RUNTIME))
        include = [f"-I{core.runtime}", f"-I{core.runtime / 'vltstd'}"]
        # Its messages name files: without their folders on this machine.
        include.append(f"-ffile-prefix-map={core.runtime}/=")
        command = [*compiler.command, *_CXX_VERILATED, _LEVEL, *include]
        run_tool([*command, "-c", "o.cpp", "-o", "o.o"], at)

    key = digest_of(compiler.version, *_CXX_VERILATED, _LEVEL, *texts)
    return cached(f"runtime-{key}", make) / "o.o"


def _core_objects(core: GeneratedCore, compiler: Compiler) -> list[Path]:
    source = _NATIVE / "rtl.cpp"
    flags = (*_CXX_VERILATED, _LEVEL)
    key = digest_of(core.digest, compiler.version, *flags, source.read_text(), _headers())
    pins = _pins_folder()

    def make(at: Path) -> None:
        generated = sorted(str(path) for path in core.classes.glob("*.cpp"))
        slow = [name for name in generated if "__Slow" in name or "__Syms" in name]
        fast = [name for name in generated if name not in slow]
        # The trace runtime specialises templates that the generated code instantiates: it is first.
        trace = [str(core.runtime / "verilated_fst_c.cpp")] * core.waves
        units = {
            # Constructors and reset code run once: not worth the optimiser's time.
            "slow": (_LEVEL if core.waves else "-O0", [*trace, *slow]),
            "fast": (_LEVEL, [*fast, str(source)]),
        }
        define = ["-DPEERDMA_WAVES", *waves.libraries()[0]] if core.waves else []
        folders = (core.classes, core.runtime, core.runtime / "vltstd", _NATIVE, pins)
        include = [f"-I{folder}" for folder in folders]
        # Messages of Verilator's runtime name files: without their folders on this machine.
        include += [f"-ffile-prefix-map={folder}/=" for folder in (core.classes, core.runtime)]

        def build(unit: str) -> None:
            level, names = units[unit]
            (at / f"{unit}.cpp").write_text("".join(f'#include "{name}"\n' for name in names))
            command = [*compiler.command, *_CXX_VERILATED, level, *define, *include]
            run_tool([*command, "-c", f"{unit}.cpp", "-o", f"{unit}.o"], at)

        say("compiling the core")
        with ThreadPoolExecutor(len(units)) as pool:
            list(pool.map(build, units))

    place = cached(f"core-{key}", make)
    return [place / "fast.o", place / "slow.o", _runtime_object(core, compiler)]


def _link(name: str, objects: list[Path], compiler: Compiler) -> Path:
    library = f"lib{name}.so"

    def make(at: Path) -> None:
        command = [*compiler.command, *_LINK, *compiler.link, "-o", library]
        run_tool([*command, *map(str, objects), "-pthread", *_SYSTEM], at)
        say(f"built {library}")

    key = digest_of(
        compiler.version, *_LINK, *_SYSTEM, *compiler.link, *(str(path) for path in objects)
    )
    return cached(f"{name}-{key}", make) / library
