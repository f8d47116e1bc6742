# SPDX-License-Identifier: BSD-2-Clause
"""``make system-demo``: host/demo.py in guests, on every kind of memory and of board."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from ..compile.model import compiled
from .board import ROOT
from .guest import Guest
from .lanes import LANES

__all__ = ["main"]

#: The board as it is, and as a plain XDMA core with the identity of NVIDIA's design.
_PLAIN = ("--plain", "--ids", "10de:0001", "--subsystem", "10de:0001", "--no-msix")
_NODES = {"with its extension": "/dev/picoevb", "as a plain XDMA core": "/dev/picoevb1"}
_CODE = """
import runpy, sys
sys.argv = ["demo.py", "--board", {node!r}, "--size", "512x256", *{arguments!r}]
runpy.run_path({path!r}, run_name="__main__")
"""
_PATIENCE = 300.0


@dataclass(frozen=True)
class _Way:
    """A kind of memory for surfaces, and how the driver pins it."""

    name: str
    arguments: tuple[str, ...] = ()
    #: a shell command to run first
    prepare: str = ""


_PAGES = _Way("pages of the host", ("--memory", "host"))
_WAYS = {
    "strict": (_PAGES, _Way("the GPU's memory as a dma-buf")),
    "identity": (
        _Way(
            "the GPU's memory by nv-p2p",
            prepare="echo 1 >/sys/module/simgpu/parameters/no_dmabuf",
        ),
    ),
    "bounce": (_PAGES,),
    "arm64": (_PAGES,),
    "not-coherent": (_PAGES,),
}


def main(lanes: Sequence[str]) -> int:
    """Runs the demo in lanes, in parallel if several; returns the first failure's status."""
    if len(lanes) == 1:
        return _run(lanes[0])
    # Compiled once here, and not by each lane.
    for plain in (False, True):
        compiled(plain=plain)
    failed = 0
    with contextlib.ExitStack() as stack:
        running = []
        for lane in lanes:
            output = stack.enter_context(tempfile.TemporaryFile("w+"))
            command = [sys.executable, "-m", "sim.system", "demo", "--lane", lane]
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.terminate)
            running.append((process, output))
        for process, output in running:
            status = process.wait()
            failed = failed or status
            output.seek(0)
            print(output.read(), end="", flush=True)
    return failed


def _run(lane: str) -> int:
    # One processor is enough: the guest runs one program at a time, and lanes run in parallel.
    with Guest(lane, further_boards=[_PLAIN], processors=1) as guest:
        for way in _WAYS[lane]:
            if way.prepare:
                guest.check_run(way.prepare)
            for personality, node in _NODES.items():
                print(f"\n{lane} ({LANES[lane].about}): {way.name}, the board {personality}")
                code = _CODE.format(
                    node=node, arguments=way.arguments, path=guest.path(ROOT / "host/demo.py")
                )
                running = guest.start_python(code)
                status, text = guest.finish(running, _PATIENCE)
                print(text, end="", flush=True)
                if status:
                    return status
    return 0
