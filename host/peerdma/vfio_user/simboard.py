# SPDX-License-Identifier: BSD-2-Clause
"""Starts the simulated board, of the checkout or installed, as a child process, and ends it."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import BoardNotFound
from ..process import here, watched

__all__ = ["SimulatedBoard", "board_module", "checkout_root", "how_to_start"]

_log = logging.getLogger(__name__)
#: In a checkout, the first run builds the RTL model, which takes minutes on a small machine.
_START_TIMEOUT = 1800.0
_END_TIMEOUT = 5.0
#: Seconds within which a board whose client has disconnected ends by itself.
_LINGER = 2.0
#: Bytes of a socket's path, `sun_path` less its terminator.
_LONGEST_PATH = 107
_READY = "ready: "
#: Prefix of the lines that a user who waits for the board should see, and of those that tell of a
#: bug in the gateware.
_NOTE, _ERROR = "board: note: ", "board: error: "
#: Exit status of a board whose core broke a rule of PCIe.
_BROKE_A_RULE = 3
_HOST = Path(__file__).resolve().parents[2]
#: What the wheel peerdma-sim installs.
_INSTALLED = "peerdma_sim"


def checkout_root() -> Path | None:
    """The checkout that this package runs from; None if it was installed from a wheel."""
    root = _HOST.parent
    return root if (root / "sim" / "board" / "__main__.py").is_file() else None


def board_module() -> str | None:
    """The simulated board as a module to run: the checkout's, else that of the wheel peerdma-sim.

    None if neither is there.
    """
    if checkout_root():
        return "sim.board"
    return _INSTALLED if importlib.util.find_spec(_INSTALLED) else None


def how_to_start(path: str) -> str:
    """Where to start a board at this socket, and what to type there."""
    socket = shlex.quote(os.path.abspath(path))
    if board_module() == _INSTALLED:
        return f"by `{shlex.quote(sys.executable)} -m peerdma_sim --socket {socket}`"
    return f"in a checkout: `make setup && .venv/bin/python -m sim.board --socket {socket}`"


class SimulatedBoard:
    """A simulated board that serves one client and then ends.

    Its notes, for example that a channel makes no progress, and errors of the gateware go to
    standard error. It ends with
    `close`, or when this process dies, which the child asks the kernel to ensure.

    Parameters
    ----------
    arguments : sequence of str
        Further arguments for the board's program.

    Raises
    ------
    BoardNotFound
        If it does not start; has the last line of its output.
    """

    def __init__(self, arguments: Sequence[str] = ()):
        module = board_module()
        if module is None:
            raise BoardNotFound(
                "cannot start the simulated board, which is not installed: install the wheel "
                "peerdma-sim of the same version, which `make wheels` builds in a checkout. Or "
                f"start a board {how_to_start('board.sock')}, and open that socket"
            )
        self._directory = tempfile.mkdtemp(prefix="peerdma-")
        self.path: str = os.path.join(self._directory, "board.sock")
        if len(os.fsencode(self.path)) > _LONGEST_PATH:
            os.rmdir(self._directory)
            raise BoardNotFound(
                f"cannot start the simulated board: its socket {self.path} has a path of "
                f"{len(os.fsencode(self.path))} bytes, and the system takes {_LONGEST_PATH}. Set "
                "TMPDIR to a folder with a shorter name, such as /tmp"
            )
        self._last_lines: deque[str] = deque(maxlen=5)
        #: (time of arrival, text)
        self._notes: deque[tuple[float, str]] = deque(maxlen=5)
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        #: its output, None once nobody reads it; a descriptor, as a file has a lock, which a child
        #: that is forked would find taken
        self._output: int | None = None
        self._home = here()
        self._ready = False
        watched(self)
        command = [sys.executable, "-m", "peerdma.vfio_user.simboard_child", str(os.getpid())]
        command += [self._directory, module, "--socket", self.path, "--once", *arguments]
        # The kernel ends the child with the *thread* that started it, so this one lives as long.
        self._keeper = threading.Thread(target=self._keep, args=(command,), daemon=True)
        self._keeper.start()
        _log.info("starting the simulated board: %s", shlex.join(command))
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def _keep(self, command: list[str]) -> None:
        environment, root = dict(os.environ), checkout_root()
        if root:
            paths = [str(root), str(_HOST), os.environ.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self._output, its_end = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                command,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=its_end,
                stderr=subprocess.STDOUT,
                # A process group of its own: Ctrl-C does not reach it, and ending the group also
                # ends the processes that a build starts.
                start_new_session=True,
            )
        except OSError as error:
            self._last_lines.append(str(error))
        finally:
            os.close(its_end)
        for line in _lines(self._output):
            if line.startswith(_READY) and not self._ready:
                self._ready = True
                self._events.put("ready")
                continue
            self._last_lines.append(line.strip())
            noted = line.startswith(_NOTE)
            if noted:
                self._notes.append((time.monotonic(), line.removeprefix(_NOTE).strip()))
            if noted or line.startswith(_ERROR) or not self._ready:
                sys.stderr.write(line)
                sys.stderr.flush()
        self._close_output()
        if self._process is not None:
            self._process.wait()
        self._events.put("ended")

    def _close_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            os.close(output)

    def disown(self) -> None:
        """Closes a child's copy of the pipe; the board's process is the parent's."""
        self._close_output()
        if self._process is not None:
            # It is no child of this process, whose exit would warn of one that runs.
            self._process.returncode = 0

    def _wait_until_ready(self) -> None:
        try:
            event = self._events.get(timeout=_START_TIMEOUT)
        except queue.Empty:
            event = "late"
        if event == "late":
            raise BoardNotFound(
                f"the simulated board was not ready after {_START_TIMEOUT:g} s; its last output: "
                f"{self._last_output()}. Start it by itself, without a time limit, "
                f"{how_to_start('board.sock')}"
            )
        if event == "ended":
            raise BoardNotFound(
                f"the simulated board did not start: {self.why_lost()}. See its messages above; "
                "the README lists what it needs"
            )

    def connected(self) -> None:
        """Call once the client is connected: removes the socket's name, no longer needed."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def notes(self, since: float) -> str:
        """What the board noted since a time of `time.monotonic`; empty if nothing."""
        return "; ".join(text for when, text in list(self._notes) if when >= since)

    def why_lost(self) -> str:
        """How the process ended, and its last output."""
        self._keeper.join(_LINGER)
        status = self._process.returncode if self._process else None
        if status is None:
            ended = "its process still runs" if self._process else "it could not be started"
        elif status < 0:
            ended = f"its process was ended by {signal.Signals(-status).name}"
        else:
            ended = f"its process ended with exit status {status}"
        return f"{ended}, last output: {self._last_output()}"

    @property
    def broke_a_rule(self) -> bool:
        """Whether the process has ended, and its core broke a rule of PCIe."""
        return self._process is not None and self._process.returncode == _BROKE_A_RULE

    def close(self) -> None:
        """Ends the process, at once if no client is connected. Closing again does nothing."""
        if self._home != here():
            return
        if os.path.isdir(self._directory):
            self._signal(signal.SIGTERM)
        self._keeper.join(_LINGER)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._keeper.is_alive():
                self._signal(number)
                self._keeper.join(_END_TIMEOUT)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _last_output(self) -> str:
        return next((line for line in reversed(self._last_lines) if line), "none")


def _lines(fd: int) -> Iterator[str]:
    """The lines that arrive at a descriptor, to its end."""
    rest = b""
    while data := os.read(fd, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace") + "\n"
    if rest:
        yield rest.decode(errors="replace")
