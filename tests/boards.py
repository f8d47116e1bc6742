# SPDX-License-Identifier: BSD-2-Clause
"""The cores of simulated boards that tests share, by name.

A core takes half a minute of a processor's time to make. So tests take one of these, and what a
simulation can choose by an option takes none. The exceptions are tests of what makes cores: planted
bugs, and files of a user's own.
"""

from __future__ import annotations

from typing import Any

from sim.board.session import Seam

__all__ = ["BOARDS", "WIDE", "options"]

#: What is not as in the default core, as `sim.compile.generated.obtain` takes it.
BOARDS: dict[str, dict[str, Any]] = {
    "default": {},
    # Jobs that a GPU starts.
    "launching": {"launch_queues": 2},
    # Frames with records, and a stream that nothing of H2C goes into.
    "sensor": {"user": "pattern"},
    # The same, and jobs of a GPU take the frames.
    "receiver": {"user": "pattern", "launch_queues": 2},
    # Fewer bytes come out of the stream than went in; GPUs may start both.
    "converter": {"user": "bfloat16", "launch_queues": 2},
    # Card RAM only, with the extension block, which says so.
    "without": {"user": "none"},
    # What drivers of a plain XDMA core know, with all the channels that there can be.
    "plain": {"plain": True, "h2c": 4, "c2h": 4},
    # Several channels with an extension block, little card RAM, and a user block that stalls.
    "small": {"user": "tests.sim.board.valve:Valve", "h2c": 2, "c2h": 2, "ram_size": 16384},
    # Behind the second adapter.
    "ultrascale": {"block": "ultrascale"},
    "ultrascale-plus": {"block": "ultrascale-plus"},
    "wide sensor": {"user": "pattern", "block": "ultrascale-plus"},
}

#: One that no program offers: without an adapter.
WIDE: dict[str, Any] = {"seam": Seam(256, 128, 2048), "tags": 32, "clock_khz": 250_000}


def options(name: str) -> tuple[str, ...]:
    """The options by which `python -m sim.board` and ``peerdma.open`` take a core of `BOARDS`."""
    found: list[str] = []
    for key, value in BOARDS[name].items():
        found.append(f"--{key.replace('_', '-')}")
        if value is not True:
            found.append(str(value))
    return tuple(found)
