# SPDX-License-Identifier: BSD-2-Clause
"""``python -m sim.campaign.one``: one seed in one simulator, in a folder of its own."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from hw.endpoint import MODULE_NAME

from .plan import Plan

__all__ = ["WALL_SECONDS", "main"]

#: Real-time bound of one seed: a simulator that hangs. Simulated time is bounded by the session.
WALL_SECONDS = 300


def main(argv: list[str] | None = None) -> int:
    """Command line; returns 0 if the seed passed, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m sim.campaign.one", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--model", type=Path, required=True, help="folder of the simulator")
    parser.add_argument("--folder", type=Path, required=True, help="where it runs")
    parser.add_argument("--waves", action="store_true")
    arguments = parser.parse_args(argv)
    # cocotb's own search finds its library wherever this Python has it.
    import cocotb_tools.config

    paths = [str(cocotb_tools.config.libs_dir), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    # The same seed is the same run: sets, too, have the same order.
    os.environ["PYTHONHASHSEED"] = "0"
    os.environ["SIM_CMD_PREFIX"] = f"timeout --kill-after=5 {WALL_SECONDS}"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    results = arguments.folder / "results.xml"
    channels = Plan.draw(arguments.seed).machine.channels
    try:
        get_runner("verilator").test(
            test_module="sim.campaign.session",
            test_filter=r"\.campaign$",
            hdl_toplevel=MODULE_NAME,
            hdl_toplevel_lang="verilog",
            build_dir=arguments.model,
            test_dir=arguments.folder,
            results_xml=str(results),
            waves=arguments.waves,
            seed=arguments.seed,
            extra_env={"SEED": str(arguments.seed), "CHANNELS": str(channels)},
        )
        count, failed = get_results(results)
    except (RuntimeError, SystemExit):  # the simulator died or was stopped
        return 1
    return int(count != 1 or failed != 0)


if __name__ == "__main__":
    sys.exit(main())
