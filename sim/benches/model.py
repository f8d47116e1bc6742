# SPDX-License-Identifier: BSD-2-Clause
"""Compiles the core for cocotb: a simulator whose top-level ports cocotb can reach.

The core's ports towards the hard block are hashed in every cycle by `recorder.sv`, which leaves
`PORT_LOG` in the simulator's working directory. As all that `sim.compile` compiles, the simulator
is kept under ``build/sim/`` by a hash of what it is made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cocotb_tools.config

from hw.core import CoreConfig
from hw.endpoint import (
    DEFAULT_ADAPTER,
    EXTRA_PORTS,
    MODULE_NAME,
    SIMULATION_PORTS,
    ports_of,
)
from hw.pcie.adapters import ADAPTERS
from hw.pcie.ports import Port
from hw.seam import WIDTHS
from hw.stream.user_blocks import find
from sim.board.session import Seam
from sim.compile.attached import ports_of_seam
from sim.compile.exerciser import Exercised
from sim.compile.generated import verilog_of
from sim.compile.tools import (
    cached,
    digest_of,
    find_compiler,
    find_verilator,
    run_tool,
    say,
)
from sim.compile.waves import TRACE, libraries, readable

from . import layout

__all__ = ["CONFIG", "PORT_LOG", "SEAMS", "ULTRASCALE_KHZ", "build"]

#: The default core.
CONFIG = CoreConfig()
#: Clock of a core for the UltraScale blocks.
ULTRASCALE_KHZ = 250_000
#: Cores without an adapter, at the clock of the default one, by name.
SEAMS = {f"seam-{width}": Seam(width) for width in WIDTHS}
#: File in the working directory with hashes of the core's ports: lines CYCLE:HASH.
PORT_LOG = "ports.txt"

_VERILATE = ("--cc", "--exe", "--vpi", "--prefix", "Vtop", "--timescale", "1ns/1ps", "-O3")
_MAIN = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
_LIBRARIES = cocotb_tools.config.libs_dir
_RUNTIME = ("verilated", "verilated_vpi", "verilated_dpi", "verilated_threads")


def build(
    waves: bool = False,
    *,
    channels: int = 1,
    user: str = "pass",
    launch_queues: int = 0,
    overcommit: bool = False,
    pcie: str = DEFAULT_ADAPTER.name,
    exercised: bool = False,
    netlist: bool = False,
) -> Path:
    """Folder of the simulator, a program named as the core's module. Raises `BuildError`.

    The core is `CONFIG` with so many channels each way, the user block of this name, so many launch
    queues and `overcommit` or not, for the PCIe block `pcie` of `hw.pcie.adapters.ADAPTERS` and its
    clock, or of `SEAMS`; with `netlist`, what synthesis makes of it. If `exercised`, there is an
    exerciser behind the adapter in its place (`sim.compile.exerciser`). `waves` lets it write
    waveforms, at the cost of speed; see `sim.compile.waves`.
    """
    home, verilator_version = find_verilator()
    found = find_compiler()
    compiler = [*found.command, "-std=c++17", "-w"]
    include, compression = libraries() if waves else ([], [])
    compiler += [f"-DVM_TRACE={waves:d}", f"-DVM_TRACE_FST={waves:d}", *include]
    compiler += ["-DVM_COVERAGE=0", f"-I{home / 'include'}", f"-I{home / 'include' / 'vltstd'}"]
    trace, source = ([TRACE], "core.sv") if waves else ([], "core.v")

    def runtime(at: Path) -> None:
        def compile_one(name: str) -> None:
            run_tool([*compiler, "-O1", "-c", str(home / "include" / f"{name}.cpp")], at)

        with ThreadPoolExecutor() as pool:
            list(pool.map(compile_one, (*_RUNTIME, *["verilated_fst_c"] * waves)))

    def simulator(at: Path) -> None:
        (at / source).write_text(verilog)
        if waves:
            layout.write(verilog, at)
        (at / "ports.vlt").write_text(ports)
        (at / "recorder.sv").write_text(recorder)
        verilate = [str(home / "bin" / "verilator"), *_VERILATE, *trace, "-Wno-fatal"]
        sources = ("ports.vlt", source, "recorder.sv")
        run_tool([*verilate, "--top-module", MODULE_NAME, "--Mdir", ".", *sources], at)
        # Constructors and reset code run once: not worth the optimiser's time. Of a bench's time
        # a twentieth is the core's, and -O2 takes twice as long to compile as -O1.
        units: dict[str, list[Path]] = {"-O0": [], "-O1": [_MAIN]}
        for path in sorted(at.glob("*.cpp")):
            units["-O0" if "__Slow" in path.name or "__Syms" in path.name else "-O1"].append(path)

        def compile_unit(level: str) -> None:
            unit = at / f"unit{level}.cpp"
            unit.write_text("".join(f'#include "{path}"\n' for path in units[level]))
            run_tool([*compiler, level, "-I.", "-c", unit.name], at)

        with ThreadPoolExecutor() as pool:
            list(pool.map(compile_unit, units))
        objects = [str(path) for folder in (at, common) for path in folder.glob("*.o")]
        link = [f"-L{_LIBRARIES}", f"-Wl,-rpath,{_LIBRARIES}", "-lcocotbvpi_verilator"]
        link += [*map(str, compression), "-pthread"]
        run_tool([*found.command, *objects, *link, "-o", MODULE_NAME], at)

    config = dataclasses.replace(
        CONFIG,
        h2c=channels,
        c2h=channels,
        user=find(user),
        launch_queues=launch_queues,
        overcommit=overcommit,
    )
    if pcie in SEAMS:
        verilog, to_block = verilog_of(config, SEAMS[pcie]), ports_of_seam(SEAMS[pcie])
        ports = _public((*EXTRA_PORTS, *SIMULATION_PORTS, *to_block))
    else:
        adapter = ADAPTERS[pcie]
        if adapter is not DEFAULT_ADAPTER:
            config = dataclasses.replace(config, clock_khz=ULTRASCALE_KHZ)
        verilog = verilog_of(config, Exercised(pcie) if exercised else pcie)
        to_block = adapter.ports
        ports = _public(ports_of(config, adapter, simulation=True))
    if netlist:
        verilog = _netlist(verilog)
    if waves:
        verilog = readable(verilog)
    tools = digest_of(verilator_version, found.version, *compiler)
    common = cached(f"cocotb-runtime-{tools}", runtime)
    recorder = _recorder(to_block)
    key = digest_of(tools, verilog, ports, recorder, *_VERILATE, _MAIN.read_text())
    return cached(f"cocotb-{key}", simulator)


def _public(ports: Iterable[Port]) -> str:
    """Lets cocotb see the ports; all else can be optimised as if it were not there."""
    return "`verilator_config\n" + "".join(
        f'public_flat_rw -module "{MODULE_NAME}" -var "{port.name}"\n' for port in ports
    )


def _recorder(ports: Sequence[Port]) -> str:
    """Verilog that binds `recorder.sv` to the core's ports to its block."""
    # In the order of their names, so that the hash does not depend on that of the tables.
    names = sorted(port.name for port in ports)
    return Path(__file__).with_name("recorder.sv").read_text() + (
        f"bind {MODULE_NAME} port_recorder #(\n"
        f'    .WIDTH({sum(port.width for port in ports)}), .FILE("{PORT_LOG}")\n'
        f") recorder (.clk(clk), .rst(rst), .ports({{{', '.join(names)}}}));\n"
    )


def _netlist(verilog: str) -> str:
    """The core after synthesis."""
    from flow.simulation import models, netlist
    from flow.toolchain import synthesis

    def make(at: Path) -> None:
        say("synthesizing the core")
        (at / "netlist.v").write_text(netlist(verilog, MODULE_NAME))

    key = digest_of(verilog, models(), synthesis(MODULE_NAME))
    return (cached(f"netlist-{key}", make) / "netlist.v").read_text()
