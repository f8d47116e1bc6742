# SPDX-License-Identifier: BSD-2-Clause
"""``make system-shell``: a prompt in a guest."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path

from .guest import Guest

__all__ = ["main"]

_WELCOME = """\
A guest with the driver, configuration {configuration}. Boards: {nodes}
All files of the host are here, read-only; /run can be written. In /run/guest: {files}
Try `peerdma info`, or `python3 {demo}`. Leave with: exit
"""


def main(configuration: str, board_options: Sequence[str], paths: Sequence[Path]) -> int:
    """Runs a shell on this terminal, or the script on standard input; returns its exit status."""
    terminal = sys.stdin.isatty()
    files = {path.name: path for path in paths}
    with (
        _restored(terminal),
        Guest(configuration, board_options=board_options, files=files, terminal=terminal) as guest,
    ):
        if not terminal:
            status, text = guest.finish(guest.start(sys.stdin.read()), timeout=None)
            print(text, end="", flush=True)
            return status
        nodes = guest.check_run("ls /dev/picoevb* 2>/dev/null || echo none").split()
        demo = shlex.quote(guest.path(Path(__file__).resolve().parents[2] / "host/demo.py"))
        names = " ".join([*(path.rpartition("/")[2] for path in guest.modules.values()), *files])
        welcome = _WELCOME.format(
            configuration=configuration, nodes=" ".join(nodes), files=names, demo=demo
        )
        print(welcome.replace("\n", "\r\n"), end="", flush=True)
        size = os.get_terminal_size(sys.stdin.fileno())
        # A command is a session leader, so the terminal that it opens becomes its controlling one.
        shell = guest.start(
            f"export TERM=vt100; exec <>/dev/hvc0 >&0 2>&0; "
            f"stty rows {size.lines} cols {size.columns}; exec bash -i"
        )
        return guest.finish(shell, timeout=None)[0]


@contextlib.contextmanager
def _restored(terminal: bool) -> Iterator[None]:
    """Restores the terminal's settings, which QEMU changes and may not be able to restore."""
    if not terminal:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
