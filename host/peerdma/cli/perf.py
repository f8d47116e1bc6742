# SPDX-License-Identifier: BSD-2-Clause
"""Measures how fast a board transfers, by size: to the board, from the board, and copies.

Then how long small transfers take, the slowest of many too: on an idle board, and beside others.
Each size is verified before it is measured. Transfers to and from the board use card RAM, from
address 0 on, and overwrite what is there. A copy goes from memory to memory through the board.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ..board.backend import BoardInfo
from ..board.board import Board
from ..board.transfer import Transfer
from ..errors import UnsupportedError
from ..gpus import gpu as open_gpu
from ..memory.files import Output
from ..memory.surface import Gpu, Surface
from ..opening import add_board_option, open_board
from .options import about, add_gpu_options, heading, way
from .plot import SUFFIXES, figure_class, over_limit, plot
from .tails import TAILS, keep_busy, tails

__all__ = ["add_perf"]

_MOST = 1 << 30
#: Sizes to measure, unless they are given.
_BY_FOURS = [1 << n for n in range(6, 31, 2)]
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: Runs of each transfer: on a simulated board they differ little, and take long.
_REPEAT, _REPEAT_SIMULATED = 100, 3
#: Small transfers, to see the slowest ones, and how many of each: a simulated board takes
#: milliseconds for one.
_SMALL, _TAILS, _TAILS_SIMULATED = 64, 100_000, 100
#: Bytes of the transfers beside which small ones are made; fewer if card RAM is smaller.
_LOAD = 32 << 10
#: Each direction, and what keeps the board busy beside small transfers: the other direction of the
#: link, or copies, with which they take turns.
_DIRECTIONS = {"to board": "from board", "from board": "to board", "copy": "copy"}
_ROW = "{:>10} {:>10} {:>8} {:>8} {:>6} {:>14} {:>10}".format
_TAIL_ROW = ("{:<28}" + " {:>8}" * len(TAILS) + "  " + " {:>9}" * len(TAILS)).format


def add_perf(command: argparse.ArgumentParser) -> None:
    """Adds what the command does and its arguments."""
    command.description = __doc__
    add_board_option(command)
    add_gpu_options(command, "memory", numpy="arrays of numpy, without a GPU")
    sizes = command.add_mutually_exclusive_group()
    sizes.add_argument(
        "--sizes",
        type=_sizes,
        metavar="N,N,...",
        help="bytes of the transfers, as in 100,4K,1M: K, M and G are powers of 1024",
    )
    sizes.add_argument(
        "--max",
        type=_size,
        default=4 << 20,
        metavar="N",
        help=f"measure {_BY_FOURS[0]} bytes, four times that, and so on, up to this size "
        "(default: 4M)",
    )
    command.add_argument(
        "--repeat",
        type=_repeat,
        metavar="N",
        help="how often each transfer is made; the median is shown (default: "
        f"{_REPEAT}, with a simulated board {_REPEAT_SIMULATED})",
    )
    command.add_argument(
        "--tails",
        type=_tails,
        metavar="N",
        help=f"how often transfers of {_SMALL} bytes are made, idle and beside others, to see the "
        f"slowest (default: {_TAILS}, with a simulated board {_TAILS_SIMULATED}; 0: not at all)",
    )
    command.add_argument(
        "--json",
        metavar="FILE",
        help="write the results as JSON, too; - is stdout, and the table then goes to stderr",
    )
    command.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help=f"draw throughput by size, as {', '.join(SUFFIXES)}; needs matplotlib",
    )
    command.set_defaults(action=functools.partial(_perf, command))


def _size(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,10})([KMG]?)(?:i?B)?", text)
    nbytes = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < nbytes <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size from 1 to 1G, such as 64 or 4K")
    return nbytes


def _sizes(text: str) -> list[int]:
    return sorted({_size(each) for each in text.split(",")})


def _repeat(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 999999")
    return int(text)


def _tails(text: str) -> int:
    return 0 if text == "0" else _repeat(text)


def _perf(command: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if arguments.plot and arguments.plot.suffix not in SUFFIXES:
        command.error(f"--plot writes {', '.join(SUFFIXES)}, not {arguments.plot}")
    if arguments.memory == "numpy" and arguments.gpu != "auto":
        command.error("--memory numpy uses no GPU; leave --gpu out")
    if arguments.max < _BY_FOURS[0]:
        command.error(f"--max is at least {_BY_FOURS[0]}; --sizes takes smaller ones")
    to_stdout = arguments.json == "-"
    say = functools.partial(print, file=sys.stderr if to_stdout else sys.stdout, flush=True)
    with contextlib.ExitStack() as stack:
        # What is missing, and files that cannot be written, are found before anything is measured.
        figure = figure_class() if arguments.plot else None
        files = (1 if to_stdout else arguments.json, arguments.plot)
        table, picture = (stack.enter_context(Output(file)) if file else None for file in files)
        gpu, new, memory = _memory(arguments, stack)
        board = stack.enter_context(open_board(arguments.board))
        info = board.info()
        if figure and info.simulated and not _clock_khz(info):
            raise UnsupportedError(
                "there is nothing to plot: this simulated board is a plain XDMA core, which has no "
                "clock to read, and wall time says nothing about hardware. Leave --plot out"
            )
        repeat = arguments.repeat or (_REPEAT_SIMULATED if info.simulated else _REPEAT)
        small = arguments.tails
        if small is None:
            small = _TAILS_SIMULATED if info.simulated else _TAILS
        report = {
            **about(info, None if arguments.memory == "numpy" else gpu, memory),
            "clock_khz": _clock_khz(info) or None,
            "card_ram_bytes": info.card_ram_size,
            "repeat": repeat,
            "results": [],
            "left_out": [],
            "tails": [],
            "verified": False,
        }
        for name, value in [*heading(report), *_legend(report)]:
            say(f"{name:<12}{value}")
        sizes = arguments.sizes or [n for n in _BY_FOURS if n <= arguments.max]
        make = functools.partial(_transfer, board, gpu, new, itertools.count(step=2))
        for direction in _DIRECTIONS:
            fit = [n for n in sizes if direction == "copy" or n <= info.card_ram_size]
            for nbytes in fit:
                transfers = _measure(make, nbytes, direction, repeat)
                row = _result(direction, transfers, _clock_khz(info))
                if nbytes == fit[0]:
                    say(_title(row, info.simulated))
                say(_line(row))
                report["results"].append(row)
            report["left_out"] += [{"direction": direction, "bytes": n} for n in sizes[len(fit) :]]
        if small:
            say(_tails_title(small, info.simulated))
            for direction, load in itertools.product(_DIRECTIONS, (False, True)):
                other = (min(_LOAD, info.card_ram_size), _DIRECTIONS[direction]) if load else None
                transfers = _measure(make, _SMALL, direction, small, other)
                row = _tails_result(direction, other, transfers, _clock_khz(info))
                say(_tails_line(row))
                report["tails"].append(row)
        report["verified"] = True
        say()
        for name, value in _notes(report):
            say(f"{name:<12}{value}")
        if table:
            table.write((json.dumps(report) + "\n").encode())
        if picture:
            picture.write(plot(figure, report, arguments.plot.suffix))
    return 0


def _clock_khz(info: BoardInfo) -> int:
    """The clock of the board's cycle counts; 0 if it is not known, as of a plain XDMA core."""
    return info.extension.clock_khz if info.extension else 0


def _memory(
    arguments: argparse.Namespace, stack: contextlib.ExitStack
) -> tuple[Gpu, Callable[[int], Surface], str]:
    """The GPU that fills and verifies, what makes memory of so many bytes, and what that is."""
    if arguments.memory != "numpy":
        gpu = stack.enter_context(open_gpu(arguments.gpu, memory=arguments.memory))
        return gpu, gpu.surface, gpu.memory
    from ..emulated.gpu import INTEGRATED, EmulatedGpu

    cpu = stack.enter_context(EmulatedGpu(INTEGRATED))
    return cpu, lambda nbytes: cpu.register(np.empty(nbytes, np.uint8)), "arrays of numpy"


def _legend(report: dict) -> list[tuple[str, str]]:
    """What is to be known of the times in the table."""
    board = "unknown: a plain XDMA core has no clock to read"
    if report["clock_khz"]:
        board = f"the DMA engine's busy cycles, at {report['clock_khz'] / 1e3:g} MHz"
    wall = "real time of a call of the library"
    if report["simulated"]:
        wall = "real time that the simulation took: says nothing about hardware"
    return [("board µs", board), ("wall µs", wall), ("medians of", str(report["repeat"]))]


def _notes(report: dict) -> list[tuple[str, str]]:
    """What is to be known of the rows that are there, and of those that are not."""
    notes = [("verified", "every size, before it was measured")]
    if report["left_out"]:
        most = report["card_ram_bytes"]
        notes.append(("left out", f"to and from the board, more than the {most} bytes of card RAM"))
    if report["tails"]:
        loads = {row["beside"]["bytes"] for row in report["tails"] if row["beside"]}
        notes.append(("percentiles", "by nearest rank; - is one of too few transfers"))
        notes.append(("beside", f"transfers of {max(loads)} bytes by two other threads, all along"))
    if over := over_limit(report):
        notes.append(("over 100%", f"small transfers from the board: {over}"))
    return notes


#: Of so many bytes and a direction: what makes such transfers.
_Make = Callable[[int, str], contextlib.AbstractContextManager[Callable[[], Transfer]]]


def _measure(
    make: _Make,
    nbytes: int,
    direction: str,
    repeat: int,
    beside: tuple[int, str] | None = None,
) -> list[Transfer]:
    """Makes a transfer so many times, `beside` those of so many bytes and a direction."""
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(make(nbytes, direction))
        if beside:
            stack.enter_context(keep_busy(stack.enter_context(make(*beside))))
        return [run() for _ in range(repeat)]


@contextlib.contextmanager
def _transfer(
    board: Board,
    gpu: Gpu,
    new: Callable[[int], Surface],
    seeds: Iterator[int],
    nbytes: int,
    direction: str,
) -> Iterator[Callable[[], Transfer]]:
    """What makes a transfer, which was made once, and verified what arrived.

    Each has an even seed of its own: data left by another one, on the card too, is wrong.
    """
    seed = next(seeds)
    with contextlib.ExitStack() as stack:
        source, destination = (stack.enter_context(new(nbytes)) for _ in range(2))
        source.fill(seed)
        destination.fill(seed + 1)
        s, d = (stack.enter_context(board.pin(each)) for each in (source, destination))
        runs = {
            "to board": functools.partial(board.write, s),
            "from board": functools.partial(board.read, d),
            "copy": board.prepare(s, d).run,
        }
        for each in ["copy"] if direction == "copy" else ["to board", "from board"]:
            runs[each]()
        gpu.verify(destination, seed=seed)
        yield runs[direction]


def _result(direction: str, transfers: list[Transfer], clock_khz: int) -> dict:
    """A row of the report: medians; None for what the board cannot tell."""
    nbytes, limit = transfers[0].bytes, transfers[0].limit
    cycles = [each.cycles for each in transfers]
    walls = [each.wall_seconds for each in transfers]
    board = statistics.median(cycles) / clock_khz / 1e3 if clock_khz else None
    wall = statistics.median(walls)
    return {
        "direction": direction,
        "bytes": nbytes,
        "path": transfers[0].path._asdict(),
        "through": transfers[0].through,
        "board_seconds": board,
        "wall_seconds": wall,
        "bytes_per_second": nbytes / board if board else None,
        "wall_bytes_per_second": None if transfers[0].simulated else nbytes / wall,
        "link_limit": limit,
        "share_of_limit": nbytes / board / limit if board and limit else None,
        "cycles": cycles,
        "wall_samples": walls,
    }


def _tails_result(
    direction: str, beside: tuple[int, str] | None, transfers: list[Transfer], clock_khz: int
) -> dict:
    """Percentiles of small transfers, those of time in seconds; None for what is not known."""
    cycles = tails(each.cycles for each in transfers)
    return {
        "direction": direction,
        "beside": beside and {"direction": beside[1], "bytes": beside[0]},
        "bytes": _SMALL,
        "count": len(transfers),
        "cycles": cycles if clock_khz else dict.fromkeys(cycles),
        "wall_seconds": tails(each.wall_seconds for each in transfers),
    }


def _tails_title(count: int, simulated: bool) -> str:
    """What is above the rows of small transfers."""
    wall = "wall µs (sim)" if simulated else "wall µs"
    columns = _TAIL_ROW(f"{_SMALL} bytes, {count} of each", *TAILS, *TAILS)
    above = _TAIL_ROW("", *[""] * (len(TAILS) - 1), "cycles", *[""] * (len(TAILS) - 1), wall)
    return f"\n{above}\n{columns}"


def _tails_line(row: dict) -> str:
    """A row of small transfers."""
    cells = [
        "-" if value is None else f"{value * scale:.{digits}f}"
        for name, scale, digits in (("cycles", 1, 0), ("wall_seconds", 1e6, 1))
        for value in row[name].values()
    ]
    beside = f"beside {row['beside']['direction']}" if row["beside"] else "idle"
    return _TAIL_ROW(f"{row['direction']}, {beside}", *cells)


def _title(row: dict, simulated: bool) -> str:
    """What is above the rows of a direction."""
    paths = row["path"].items()
    ways = [f"{name.replace('_', ' the ')} {way(path)}" for name, path in paths if path]
    if row["direction"] == "copy":
        ways = ["copy", *ways, *([f"through its {row['through']}"] if row["through"] else [])]
    wall = ("wall µs (sim)", "") if simulated else ("wall µs", "wall MB/s")
    columns = _ROW("bytes", "board µs", "MB/s", "limit", "share", *wall).rstrip()
    return f"\n{', '.join(ways)}\n{columns}"


def _line(row: dict) -> str:
    """A row of the table."""

    def number(name: str, scale: float, missing: str = "-") -> str:
        return missing if row[name] is None else f"{row[name] * scale:.1f}"

    share = row["share_of_limit"]
    return _ROW(
        row["bytes"],
        number("board_seconds", 1e6),
        number("bytes_per_second", 1e-6),
        number("link_limit", 1e-6),
        "-" if share is None else f"{share:.1%}",
        number("wall_seconds", 1e6),
        number("wall_bytes_per_second", 1e-6, ""),
    ).rstrip()
