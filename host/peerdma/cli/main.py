# SPDX-License-Identifier: BSD-2-Clause
"""The `peerdma` command: lists, shows, tests, measures and programs boards, shows traces."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..board.backend import BoardInfo
from ..doctor.examine import add_doctor
from ..errors import PeerdmaError, exit_codes
from ..opening import add_board_option, open_board
from ..regs import Capability
from .boards import add_list
from .demo import add_demo
from .flash import Programmer
from .perf import add_perf
from .trace import add_trace

__all__ = ["demo", "guarded", "main"]

#: For the end of a command's --help.
_EXIT_CODES = "exit codes:\n" + "\n".join(
    f"  {code:>3}  {cause}" for code, cause in exit_codes().items()
)


def guarded(program: str, action: Callable[[], int]) -> int:
    """Runs `action`; prints an error as one line on stderr and returns its exit code.

    That nobody reads the output to its end, as a pipe into a program that takes one line, is none.
    """
    try:
        return _written(program, action())
    except PeerdmaError as error:
        print(f"{program}: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return _drop_output(128 + signal.SIGPIPE)
    except OSError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return PeerdmaError.exit_code if _flushed() else _drop_output(PeerdmaError.exit_code)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130


def _written(program: str, code: int) -> int:
    """The exit code, or another one if what was printed cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _drop_output(128 + signal.SIGPIPE)
    except OSError as error:
        print(f"{program}: cannot write the output: {error.strerror}", file=sys.stderr)
        return _drop_output(PeerdmaError.exit_code)
    return code


def _flushed() -> bool:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        return True
    return False


def _drop_output(code: int) -> int:
    """Returns the exit code; the interpreter, at its end, does not try to write the output."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return code


def _run(program: str, arguments: argparse.Namespace) -> int:
    with _shown_log(arguments.verbose):
        return guarded(program, lambda: arguments.action(arguments))


@contextlib.contextmanager
def _shown_log(verbose: int) -> Iterator[None]:
    """Shows the library's log on stderr meanwhile: warnings, what is done (1), details (2)."""
    log, handler = logging.getLogger("peerdma"), logging.StreamHandler()
    level = log.level
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _add_verbose_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="show what the library does, on stderr; -vv also how it pins memory",
    )


def _add_version_option(parser: argparse.ArgumentParser) -> None:
    """Adds --version."""
    parser.add_argument("--version", action="version", version=f"peerdma {__version__}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="peerdma",
        description="Shows, checks and programs peerdma boards.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_version_option(parser)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, add, text in (
        ("list", add_list, "list the boards of this machine, with a driver or without"),
        ("info", _add_info, "show what is known about a board"),
        ("demo", add_demo, "copy an array through a board, and check the copy on the GPU"),
        ("perf", add_perf, "measure how fast a board transfers, by size: a table, JSON, a plot"),
        ("doctor", add_doctor, "find what keeps a board and a GPU from working together"),
        ("leds", _add_leds, "show or set a board's LEDs"),
        ("trace", add_trace, "show what a simulated board, its host and a GPU said to each other"),
    ):
        command = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=_EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add(command)
    _add_flash(commands)
    for command in commands.choices.values():
        _add_verbose_option(command)
    return _run("peerdma", _parsed(parser, argv))


def _parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> Any:
    """The arguments; if they are --help or wrong, the program ends."""
    try:
        return parser.parse_args(argv)
    except SystemExit as end:
        raise SystemExit(_written(parser.prog, int(end.code or 0))) from None


def demo() -> int:
    """Runs `peerdma demo` as a program of its own, host/demo.py; returns its exit code."""
    parser = argparse.ArgumentParser(
        epilog=_EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_demo(parser)
    _add_verbose_option(parser)
    _add_version_option(parser)
    return _run(parser.prog, _parsed(parser))


def _add_info(command: argparse.ArgumentParser) -> None:
    add_board_option(command)
    command.add_argument("--json", action="store_true", help="print one JSON object instead")
    command.set_defaults(action=_info)


def _add_leds(command: argparse.ArgumentParser) -> None:
    _add_info(command)
    command.add_argument(
        "value",
        nargs="?",
        type=_led_number,
        help="number whose bits are the LEDs, bit 0 the first; without it, only show them",
    )
    command.set_defaults(action=_leds)


def _add_flash(commands) -> None:
    command = commands.add_parser(
        "flash",
        help="load an FPGA image into a PicoEVB over USB",
        description="Loads an FPGA image into a PicoEVB, over its USB port: into the FPGA, where "
        "it lasts until power is lost, and with --permanent into the flash that it boots from.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("image", type=Path, help="a .bit file, or a backup (.bin) to restore")
    command.add_argument(
        "--permanent", action="store_true", help="save the flash to a file, then write the image"
    )
    command.add_argument(
        "--backup",
        type=Path,
        metavar="FILE",
        help="where to save the flash (default: picoevb-flash-DATE-TIME.bin, here)",
    )
    command.set_defaults(action=_flash)


def _flash(arguments: argparse.Namespace) -> int:
    programmer = Programmer(lambda line: print(f"{line} ...", flush=True))
    programmer.program(arguments.image, permanent=arguments.permanent, backup=arguments.backup)
    if arguments.permanent:
        print("done; the card loads it at its next power-on: shut down and switch on again")
    else:
        print("done, until power is lost; reboot without switching off, and the host sees it")
    return 0


def _led_number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _info(arguments: argparse.Namespace) -> int:
    with open_board(arguments.board) as board:
        info = board.info()
    if arguments.json:
        print(json.dumps(dataclasses.asdict(info)))
    else:
        for name, value in _lines(info):
            print(f"{name:<13}{value}")
    return 0


def _lines(info: BoardInfo) -> list[tuple[str, str]]:
    vendor, device, *subsystem = info.identity
    lines = [
        (
            "board",
            info.name + (", simulated" if info.simulated and "simul" not in info.name else ""),
        ),
        (
            "PCI identity",
            f"{vendor:04x}:{device:04x}, subsystem {subsystem[0]:04x}:{subsystem[1]:04x}",
        ),
        ("interrupts", info.interrupts),
        ("channels", f"{info.channels[0]} host to card, {info.channels[1]} card to host"),
        ("card RAM", f"{info.card_ram_size} bytes"),
    ]
    extension = info.extension
    if extension is None:
        return [*lines, ("extensions", "none: a plain XDMA core, which reports no more")]
    names = [str(bit.name).lower() for bit in Capability if bit in extension.capabilities]
    return [
        *lines,
        ("register map", f"version {extension.version[0]}.{extension.version[1]}"),
        ("capabilities", ", ".join(names) or "none"),
        ("link", str(extension.link)),
        ("clock", f"{extension.clock_khz / 1e3:g} MHz"),
        ("time scale", f"{extension.time_scale} times slower than real time"),
        ("waits for", "H2C: {}; C2H: {}".format(*extension.waits_for)),
    ]


def _leds(arguments: argparse.Namespace) -> int:
    with open_board(arguments.board) as board:
        try:
            lit = board.leds(arguments.value)
        except ValueError as error:
            print(f"peerdma: {error}", file=sys.stderr)
            return 2
        simulated = board.info().simulated
    if arguments.json:
        print(json.dumps({"leds": lit, "simulated": simulated}))
    else:
        print(f"LEDs {lit:#05b}" + (" on a simulated board" if simulated else ""))
    return 0
