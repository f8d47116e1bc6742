# SPDX-License-Identifier: BSD-2-Clause
"""``.venv/bin/python -m flow BOARD``: the board's FPGA image, made with open tools and checked.

With ``--toolchain vivado`` it writes a Vivado project instead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hw.boards import BOARDS
from hw.build import add_core_options, chosen_core
from hw.top import Top
from tools.debian_tree import TreeError

from . import vivado
from .image import IMPOSSIBLE, build

__all__ = ["main"]

#: User clock of the boards, which the open tools reach with margin. At Gen2 x1 the link, not the
#: core's 64 bits at this clock, limits throughput (docs/picoevb.md).
BOARD_CLOCK_KHZ = 62_500


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m flow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("board", choices=BOARDS)
    parser.add_argument(
        "--toolchain",
        choices=("open", "vivado"),
        default="open",
        help="open: make and check the image; vivado: write a project for it (open)",
    )
    parser.add_argument("-o", "--output", type=Path, help="folder (build/BOARD, with -vivado)")
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="placements that must meet timing (3)"
    )
    add_core_options(parser, clock_khz=BOARD_CLOCK_KHZ)
    arguments = parser.parse_args(argv)
    try:
        config = chosen_core(arguments)
        design = Top(config)
    except ValueError as error:
        parser.error(str(error))
    board = BOARDS[arguments.board]
    name = f"peerdma_{board.name}"
    suffix = "-vivado" if arguments.toolchain == "vivado" else ""
    folder = arguments.output or Path("build") / f"{board.name}{suffix}"
    plan = board.platform(toolchain="Vivado").prepare(design, name=name, **vivado.overrides(board))
    if arguments.toolchain == "vivado":
        vivado.write(plan, folder)
        print(f"{folder}: run there: vivado -mode batch -source {name}.tcl", file=sys.stderr)
        return 0
    try:
        report = build(board, plan, name, config.clock_khz / 1e3, folder, arguments.seeds)
    except (*IMPOSSIBLE, TreeError) as error:
        print(f"flow: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(report.text())
    print(f"{folder / name}.bit, report.txt, report.json", file=sys.stderr)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
