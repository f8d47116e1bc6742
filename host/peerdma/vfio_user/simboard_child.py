# SPDX-License-Identifier: BSD-2-Clause
"""Runs the simulated board so that it never outlives the process that started it.

Arguments: ``PARENT_PID DIRECTORY MODULE [argument of that module ...]``
"""

from __future__ import annotations

import ctypes
import os
import runpy
import shutil
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Runs the board and, however it ends, removes its directory."""
    parent, directory, module = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    sys.argv[1:] = sys.argv[4:]
    try:
        # The parent may have died before prctl took effect.
        if os.getppid() == parent:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
