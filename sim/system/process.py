# SPDX-License-Identifier: BSD-2-Clause
"""Child processes that do not outlive the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["end", "last_output", "start"]

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def start(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], **options: Any
) -> subprocess.Popen[str]:
    """Starts `command`; its output goes to `log`, unless `options` for Popen redirect it."""
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before prctl took effect
            os._exit(1)

    with log.open("w") as file:
        streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        return subprocess.Popen(
            [os.fspath(word) for word in command],
            env={**os.environ, **environment},
            text=True,
            preexec_fn=die_with_parent,
            **{**streams, **options},
        )


def end(process: subprocess.Popen[str], patience: float) -> int:
    """Terminates a process, kills it after `patience` seconds; returns its exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def last_output(log: Path, lines: int = 8) -> str:
    """The end of a log."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:]) or "nothing"
