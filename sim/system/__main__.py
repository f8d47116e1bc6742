# SPDX-License-Identifier: BSD-2-Clause
"""``make system-demo``, ``make system-shell``: the full system in QEMU, see docs/system.md."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from tools.debian_tree import TreeError

from ..compile.tools import BuildError
from . import demo, shell
from .configurations import CONFIGURATIONS
from .errors import GuestError


def _file(text: str) -> Path:
    path = Path(text).resolve()
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file")
    return path


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m sim.system", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    configuration_help = "; ".join(
        f"{name}: {configuration.about}" for name, configuration in CONFIGURATIONS.items()
    )
    one = commands.add_parser("demo", help="host/demo.py in guests")
    one.add_argument(
        "--configuration",
        choices=CONFIGURATIONS,
        action="append",
        help=f"{configuration_help} (all)",
    )
    two = commands.add_parser("shell", help="a prompt in a guest, or a script on standard input")
    two.add_argument(
        "--configuration",
        choices=CONFIGURATIONS,
        default="identity",
        help=f"{configuration_help} (identity)",
    )
    two.add_argument(
        "--board", metavar="OPTIONS", default="", help="for sim.board, as one argument"
    )
    two.add_argument(
        "file", nargs="*", type=_file, help="module or program to copy to the guest's /run/guest"
    )
    arguments = parser.parse_args()
    try:
        if arguments.command == "demo":
            return demo.main(arguments.configuration or list(CONFIGURATIONS))
        return shell.main(arguments.configuration, shlex.split(arguments.board), arguments.file)
    except (BuildError, GuestError, TreeError) as error:
        print(f"peerdma: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
