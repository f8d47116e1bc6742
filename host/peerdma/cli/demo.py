# SPDX-License-Identifier: BSD-2-Clause
"""Copies a GPU surface to another one through the FPGA, and checks the result on the GPU.

Without a board it starts the simulated one, without a GPU it takes the emulated one, and it says
so. With --input and --output it is the content of a file, of any size, that goes through the FPGA;
- is standard input or output.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

from ..board.board import Board
from ..errors import PeerdmaError
from ..gpus import gpu as open_gpu
from ..memory.files import Input, Output
from ..opening import add_board_option, open_board
from ..testing import compare
from .options import about, add_gpu_options, heading, way
from .trace import SUFFIXES, save_trace

__all__ = ["add_demo"]

#: Seconds without a word before progress is shown, and between lines of a log.
_PATIENCE = 1.5
_LOG_INTERVAL = 10.0


def add_demo(command: argparse.ArgumentParser) -> None:
    """Adds what the command does and its arguments."""
    command.description = __doc__
    command.add_argument(
        "--size",
        type=_size,
        metavar="WxH",
        help="size of the surfaces in 32-bit words (default: 1024x1024)",
    )
    add_gpu_options(command, "surfaces")
    add_board_option(command)
    command.add_argument(
        "--block",
        metavar="NAME",
        help="PCIe block of the simulated board, such as ultrascale-plus, which has Gen3 x8",
    )
    command.add_argument(
        "--input", metavar="FILE", help="copy what is in this file, pipe or device; - is stdin"
    )
    command.add_argument(
        "--output",
        metavar="FILE",
        help="where the copy goes; - is stdout, and what there is to say then goes to stderr",
    )
    command.add_argument(
        "--seed", type=_seed, default=1, metavar="N", help="of the test pattern (default: 1)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object instead")
    command.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write what host, simulated board and GPU say to each other, as a page to look at "
        "(FILE.html) or for https://ui.perfetto.dev (FILE.json)",
    )
    command.set_defaults(action=functools.partial(_demo, command))


def _demo(command: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if bool(arguments.input) != bool(arguments.output):
        command.error("--input and --output go together")
    if arguments.input and arguments.size:
        command.error("with --input the file's size is the size; leave --size out")
    if arguments.output == "-" and arguments.json:
        command.error("--output - and --json both write to stdout; give the output a file")
    if arguments.trace and arguments.trace.suffix not in SUFFIXES:
        command.error(f"--trace writes FILE.html or FILE.json, not {arguments.trace}")
    for option in ("trace", "block"):
        if getattr(arguments, option) and arguments.board not in ("auto", "sim"):
            command.error(f"--{option} needs the simulated board: give --board sim")
    try:
        report = _run(arguments, command.prog)
    except (PeerdmaError, OSError, KeyboardInterrupt) as error:
        if arguments.json:
            cause = {"kind": type(error).__name__, "message": str(error) or "interrupted"}
            print(json.dumps({"verified": False, "error": cause}))
        raise
    text = json.dumps(report) if arguments.json else _readable(report)
    print(text, file=sys.stderr if arguments.output == "-" else sys.stdout)
    return 0


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not WxH, as in 1024x1024")
    return int(width), int(height)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {(1 << 32) - 1}")
    return int(text)


def _input(name: str, program: str) -> Input:
    """The file to copy; says so where there may be a wait for it."""
    if name == "-":
        print(f"{program}: reading standard input to its end", file=sys.stderr)
        return Input(0)
    if os.path.exists(name) and not os.path.isfile(name):
        print(f"{program}: reading {name} to its end", file=sys.stderr)
    return Input(name)


def _run(arguments: argparse.Namespace, program: str) -> dict:
    """Makes the copy and returns what there is to say about it, once it is verified."""
    content = _input(arguments.input, program) if arguments.input else None
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        output = None
        if arguments.output:
            output = stack.enter_context(Output(1 if arguments.output == "-" else arguments.output))
        gpu = stack.enter_context(open_gpu(arguments.gpu, memory=arguments.memory))
        board = stack.enter_context(_open(arguments, stack))
        if content is None:
            width, height = arguments.size or (1024, 1024)
            shape, dtype = (height, width), "u4"
        else:
            shape, dtype = (content.nbytes,), "u1"
        with gpu.surface(shape, dtype) as source, gpu.surface(shape, dtype) as destination:
            source.fill(arguments.seed)
            destination.fill((arguments.seed + 1) % (1 << 32))
            if content is not None:
                content.load(source)
            with (
                board.pin(source) as pinned_source,
                board.pin(destination) as pinned_destination,
                _Progress() as progress,
            ):
                transfer = board.copy(pinned_source, pinned_destination, progress=progress)
            written = None
            if output is None:
                gpu.verify(destination, seed=arguments.seed)
            else:
                compare(destination, source)
                written = output.save(destination)
        info = board.info()
    return {
        **about(info, gpu, gpu.memory),
        "verified": transfer.bytes > 0,
        "bytes": transfer.bytes,
        "path": {"to_board": transfer.path.to_board, "from_board": transfer.path.from_board},
        "provider": {
            "to_board": pinned_source.provider,
            "from_board": pinned_destination.provider,
        },
        "through": transfer.through,
        "cycles": transfer.cycles,
        "seconds": transfer.seconds,
        "bytes_per_second": transfer.rate,
        "link_limit": transfer.limit,
        "copy_wall_seconds": transfer.wall_seconds,
        "wall_seconds": time.perf_counter() - began,
        "output": output.name if output else None,
        "output_way": written.way if written else None,
        "trace": str(arguments.trace) if arguments.trace else None,
    }


def _open(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Board:
    """Opens the board; with --trace, what `stack` does at its end writes the trace."""
    block = ["--block", arguments.block] if arguments.block else []
    if not arguments.trace:
        return open_board("sim", arguments=block) if block else open_board(arguments.board)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peerdma-")))
    capture = folder / "capture.pcapng"
    board = open_board("sim", arguments=["--trace", str(capture), *block])

    def save() -> None:
        # It takes longer than the copy.
        print(f"writing {arguments.trace} ...", file=sys.stderr, flush=True)
        save_trace(capture, arguments.trace, "peerdma: a copy through the board")

    # When the board has ended, which closes its file.
    stack.callback(save)
    return board


def _readable(report: dict) -> str:
    path, provider = report["path"], report["provider"]
    through = f"the FPGA's {report['through']}" if report["through"] else "the FPGA"
    # A plain XDMA core tells neither its link nor its clock.
    clock = "wall time"
    rate = f"{report['bytes_per_second'] / 1e6:.1f} MB/s"
    if report["link_limit"]:
        clock = "simulated link time" if report["simulated"] else "link time"
        share = report["bytes_per_second"] / report["link_limit"]
        rate += f", {share:.0%} of the {report['link_limit'] / 1e6:.1f} MB/s this link can copy"
    lines = [
        *heading(report),
        *(
            (name.replace("_", " "), way(path[name], provider[name]))
            for name in ("to_board", "from_board")
        ),
        ("copied", f"{report['bytes']} bytes through {through}"),
        ("took", f"{report['seconds'] * 1e3:.3f} ms {clock}: {rate}"),
        (
            "wall time",
            f"{report['copy_wall_seconds']:.2f} s to copy, {report['wall_seconds']:.2f} s in all",
        ),
    ]
    if report["trace"]:
        page = report["trace"].endswith(".html")
        use = "a page for a browser" if page else "for https://ui.perfetto.dev"
        lines.append(("trace", f"{report['trace']}, {use}"))
    if report["output"]:
        lines.append(("written", f"{report['output']}, {report['output_way']}"))
    every = "every word, on the GPU" if report["verified"] else "nothing, as no bytes were copied"
    lines.append(("verified", every))
    return "\n".join(f"{name:<12}{value}" for name, value in lines)


class _Progress:
    """Says on stderr how far a long copy is: in place on a terminal, else a line now and then."""

    def __init__(self):
        self._began = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._next = self._began + _PATIENCE
        self._shown = False

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_):
        if self._shown and self._terminal:
            sys.stderr.write("\r\x1b[K")

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next or done == total:
            return
        left = math.ceil((now - self._began) * (total - done) / done)
        text = f"copied {done / total:4.0%} of {total} bytes, about {left} s left"
        sys.stderr.write(f"\r{text}\x1b[K" if self._terminal else text + "\n")
        sys.stderr.flush()
        self._shown = True
        self._next = now + (0.2 if self._terminal else _LOG_INTERVAL)
