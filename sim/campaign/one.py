# SPDX-License-Identifier: BSD-2-Clause
"""``.venv/bin/python -m sim.campaign.one``: one seed in one simulator, in a folder of its own."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sys
from pathlib import Path

import cocotb_tools.config
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from hw.endpoint import MODULE_NAME
from sim.benches.limits import ENVIRONMENT, bounded
from sim.benches.tb import TLP_LOG

from .draw import draw
from .worker import RESULT

__all__ = ["SEEN", "main", "run"]

#: What the session of a seed that passed leaves: simulated time and coverage.
SEEN = "seen.json"


def run(seed: int, episodes: int, models: Path, folder: Path, waves: bool = False) -> dict:
    """Run a seed on the model for it in `models`; returns, and leaves in `RESULT`, its result."""
    libraries = [str(cocotb_tools.config.libs_dir), os.environ.get("LD_LIBRARY_PATH", "")]
    # The simulator may have been linked on another machine.
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    core = draw(seed, episodes).machine.core
    # Not as extra_env, which has to give way to what `make SEED=` sets.
    os.environ |= {**ENVIRONMENT, "SEED": str(seed), "EPISODES": str(episodes)}
    os.environ |= {"CHANNELS": str(core.channels), "PCIE": core.pcie}
    xml = folder / "results.xml"
    result = {"seed": seed, "passed": False, "simulated_ns": 0, "counts": {}}
    try:
        with bounded(f"seed {seed}"):
            get_runner("verilator").test(
                test_module="sim.campaign.session",
                test_filter=r"\.campaign$",
                hdl_toplevel=MODULE_NAME,
                hdl_toplevel_lang="verilog",
                build_dir=models / core.name,
                test_dir=folder,
                results_xml=str(xml),
                waves=waves,
                seed=seed,
            )
            if get_results(xml) == (1, 0):
                result |= json.loads((folder / SEEN).read_text()) | {"passed": True}
    except (RuntimeError, SystemExit):  # `bounded` has said why
        pass
    tlps = folder / TLP_LOG
    result["digest"] = hashlib.sha256(tlps.read_bytes()).hexdigest() if tlps.exists() else ""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result["cpu_seconds"] = round(sum(one.ru_utime + one.ru_stime for one in used), 1)
    (folder / RESULT).write_text(json.dumps(result))
    return result


def main(argv: list[str] | None = None) -> int:
    """Command line; returns 0 if the seed passed, 1 if not."""
    prog = ".venv/bin/python -m sim.campaign.one"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--models", type=Path, required=True, help="with a simulator per core")
    parser.add_argument("--folder", type=Path, required=True, help="where it runs; exists")
    arguments = parser.parse_args(argv)
    return int(not run(**vars(arguments))["passed"])


if __name__ == "__main__":
    sys.exit(main())
