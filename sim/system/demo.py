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
from .configurations import CONFIGURATIONS
from .guest import Guest

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


def main(configurations: Sequence[str]) -> int:
    """Runs the demo, in parallel if in several; returns the first failure's status."""
    if len(configurations) == 1:
        return _run(configurations[0])
    # Compiled once here, and not by each.
    for plain in (False, True):
        compiled(plain=plain)
    failed = 0
    with contextlib.ExitStack() as stack:
        running = []
        for configuration in configurations:
            output = stack.enter_context(tempfile.TemporaryFile("w+"))
            command = [sys.executable, "-m", "sim.system", "demo", "--configuration", configuration]
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.terminate)
            running.append((process, output))
        for process, output in running:
            status = process.wait()
            failed = failed or status
            output.seek(0)
            print(output.read(), end="", flush=True)
    return failed


def _run(configuration: str) -> int:
    # One processor is enough: each guest runs one program at a time, and the guests in parallel.
    about = CONFIGURATIONS[configuration].about
    with Guest(configuration, further_boards=[_PLAIN], processors=1) as guest:
        for way in _WAYS[configuration]:
            if way.prepare:
                guest.check_run(way.prepare)
            for personality, node in _NODES.items():
                print(f"\n{configuration} ({about}): {way.name}, the board {personality}")
                code = _CODE.format(
                    node=node, arguments=way.arguments, path=guest.path(ROOT / "host/demo.py")
                )
                running = guest.start_python(code)
                status, text = guest.finish(running, _PATIENCE)
                print(text, end="", flush=True)
                if status:
                    return status
    return 0
