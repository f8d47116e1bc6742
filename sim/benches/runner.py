# SPDX-License-Identifier: BSD-2-Clause
"""Finds the benches and runs them: each in a simulator of its own, or those of a module in one."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cocotb_tools.runner import get_runner

from hw.endpoint import DEFAULT_ADAPTER, MODULE_NAME
from hw.pcie.adapters import ADAPTERS

from . import layout
from .limits import ENVIRONMENT, bounded
from .model import build
from .tb import BENCHES, LONG, SERIES7_ONLY
from .ultrascale import MODELLED

__all__ = ["core_of", "discover", "folder_of", "groups", "run", "run_group"]

_RUNS = Path(__file__).resolve().parents[2] / "build" / "cocotb"


def discover(everywhere: bool = False) -> dict[str, str]:
    """Every bench as ``module.function``, with the first line of its docstring.

    A module may say in `CHANNELS` for which builds its benches are: ``(1, 2)`` runs them on a core
    with one channel each way, and as ``module.function@2`` on one with two. So does `PCIE` with
    names of `hw.pcie.adapters.ADAPTERS`, as ``module.function@name``. In `USER` it may name another
    user block than the default, in `LAUNCH_QUEUES` say how many of these there are, and with
    `OVERCOMMIT` that the core does so.

    A module with both `CHANNELS` and `PCIE` is for any block. It runs on these, without its long
    benches, or on none, if it takes long; `everywhere` has all of it on each block that there is a
    model of.
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        module = importlib.import_module(f"{__package__}.{path.stem}")
        blocks, of_any = getattr(module, "PCIE", ()), hasattr(module, "PCIE")
        channels = getattr(module, "CHANNELS", () if blocks else (1,))
        left_out = SERIES7_ONLY
        if channels and of_any:
            blocks, left_out = (MODELLED, left_out) if everywhere else (blocks, left_out | LONG)
        for variant in (*channels, *blocks):
            suffix = "" if variant == 1 else f"@{variant}"
            found |= {
                name + suffix: doc
                for name, doc in BENCHES.items()
                if name.startswith(f"{path.stem}.") and not (variant in blocks and name in left_out)
            }
    return found


def groups(everywhere: bool = False) -> dict[str, list[str]]:
    """The benches that share a simulator: those of a module on one core, by ``module@build``."""
    found: dict[str, list[str]] = {}
    for test in discover(everywhere):
        module, name = test.split(".")
        _, at, variant = name.partition("@")
        found.setdefault(module + at + variant, []).append(test)
    return found


def core_of(group: str) -> dict[str, Any]:
    """The core that a group of `groups` is for, as `sim.benches.model.build` takes it."""
    module, _, variant = group.partition("@")
    benches = importlib.import_module(f"{__package__}.{module}")
    return {
        "channels": int(variant) if variant.isdecimal() else 1,
        "pcie": variant if variant in ADAPTERS else DEFAULT_ADAPTER.name,
        "user": getattr(benches, "USER", "pass"),
        "launch_queues": getattr(benches, "LAUNCH_QUEUES", 0),
        "overcommit": getattr(benches, "OVERCOMMIT", False),
        "exercised": getattr(benches, "EXERCISED", False),
    }


def folder_of(test: str, seed: int) -> Path:
    """Where a run of a bench leaves its results, TLP log and waveforms."""
    return _RUNS / f"{test}-{seed}"


def run(test: str, seed: int, waves: bool = False, netlist: bool = False) -> bool:
    """Run one bench of `discover`; returns whether it passed. Its log goes to the terminal.

    With `waves` there is a ``dump.fst`` in `folder_of` the run, and what viewers are to show of it.
    With `netlist` the core is what synthesis made of it.
    """
    return not _run(test, [test], seed, waves, netlist)


def run_group(group: str, seed: int) -> list[str]:
    """Run a group of `groups`, one bench after the other; returns those that did not pass.

    Each begins with a reset of the core. `folder_of` the group has the logs of the last one.
    """
    return _run(group, groups(everywhere=True)[group], seed)


def _run(
    what: str, tests: list[str], seed: int, waves: bool = False, netlist: bool = False
) -> list[str]:
    name, _, variant = what.partition("@")
    module = name.partition(".")[0]
    names = {test.split(".")[1].partition("@")[0]: test for test in tests}
    where = folder_of(what, seed)
    results = where / "results.xml"
    core = core_of(f"{module}@{variant}" if variant else module)
    simulator = build(waves, **core, netlist=netlist)
    if waves:
        layout.copy(simulator, where)
    # Not as extra_env, which has to give way to the environment.
    os.environ |= {**ENVIRONMENT, "SEED": str(seed)}
    os.environ |= {"CHANNELS": str(core["channels"]), "PCIE": core["pcie"]}
    try:
        with bounded(what, len(tests)):
            get_runner("verilator").test(
                test_module=f"{__package__}.{module}",
                test_filter=rf"\.({'|'.join(names)})$",
                hdl_toplevel=MODULE_NAME,
                hdl_toplevel_lang="verilog",
                build_dir=simulator,
                test_dir=where,
                results_xml=str(results),
                waves=waves,
                seed=seed,
            )
            passed = _passed(results)
    except (RuntimeError, SystemExit):  # the simulator died or was stopped
        return tests
    return [test for name, test in names.items() if name not in passed]


def _passed(results: Path) -> set[str]:
    """The names of benches that passed, in the file that cocotb writes."""
    cases = ElementTree.parse(results).getroot().iter("testcase")
    wrong = "failure", "error", "skipped"
    return {
        case.get("name", "") for case in cases if all(case.find(each) is None for each in wrong)
    }
