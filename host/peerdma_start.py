# SPDX-License-Identifier: BSD-2-Clause
"""Starts the programs of peerdma. Ctrl-C is one line also while they import what they need.

Not part of the package: importing anything of that imports numpy and all of the library first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

__all__ = ["interruptible", "main"]


@contextlib.contextmanager
def interruptible(program: str) -> Iterator[None]:
    """Within it, Ctrl-C ends the program at once, with one line and exit code 130.

    For imports: there is nothing to clean up yet, and a KeyboardInterrupt in them may come out of
    an extension module as any other error.
    """

    def stop(*_: object) -> None:
        os.write(2, f"{program}: interrupted\n".encode())
        os._exit(130)

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        # It is ignored, as behind `nohup ... &`, or whoever runs this as a module handles it.
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def main() -> int:
    """The `peerdma` command; returns its exit code."""
    with interruptible("peerdma"):
        from peerdma.cli.main import main as command
    return command()


if __name__ == "__main__":
    sys.exit(main())
