# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board of a guest."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import process
from .errors import GuestError

__all__ = ["ROOT", "Board"]

ROOT = Path(__file__).resolve().parents[2]
#: Seconds; a first start compiles the core.
_START, _END = 1800.0, 10.0


class Board:
    """`sim.board` with `options`, ready for one client.

    Parameters
    ----------
    name : str
        Name of its socket and its log.
    sockets, logs : Path
        Folders; the path of the former has to be short.
    options : sequence of str
        See its ``--help``.
    checkout : Path
        The checkout with its gateware.

    Raises
    ------
    GuestError
        If it does not start.
    """

    def __init__(
        self,
        name: str,
        sockets: Path,
        logs: Path,
        options: Sequence[str] = (),
        checkout: Path = ROOT,
    ):
        self.name = name
        self.socket = sockets / f"{name}.sock"
        self.log = logs / f"{name}.log"
        self._killed = False
        always = ["--socket", self.socket, "--once"]
        self._process = process.start(
            [sys.executable, "-m", "sim.board", *always, *options],
            self.log,
            {"PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "host")])},
            cwd=checkout,
            stdout=subprocess.PIPE,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.end()
            raise

    def _wait_until_ready(self) -> None:
        output = self._process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], _START)
        if not ready or not output.readline().startswith("ready: "):
            self.end()
            raise GuestError(
                f"the simulated board did not start: {process.last_output(self.log)}\n"
                f"Its log is {self.log}"
            )

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Id of its process."""
        return self._process.pid

    def kill(self) -> None:
        """Kills it, which to the guest is a board that loses power: reads return all ones."""
        self._killed = True
        self._process.kill()
        self._process.wait()

    def why_ended(self) -> str:
        """The exit status and last output of a process that is not `alive`."""
        status = self._process.returncode
        return f"ended with exit status {status}, last output: {process.last_output(self.log)}"

    def check_end(self) -> None:
        """Waits for the end of a board whose client has disconnected; GuestError if it failed."""
        if self._killed:
            return
        try:
            status = self._process.wait(_END)
        except subprocess.TimeoutExpired:
            raise GuestError(f"{self.name} did not end when its client disconnected") from None
        if status:
            raise GuestError(f"{self.name} {self.why_ended()}\nIts log is {self.log}")

    def freeze(self) -> None:
        """Stops it until `thaw`: it answers nothing, not even register reads."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resumes it after `freeze`."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """Ends it with SIGTERM; returns its exit status, 3 if the core broke a PCIe rule."""
        status = process.end(self._process, _END)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status
