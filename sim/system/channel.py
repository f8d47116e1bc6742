# SPDX-License-Identifier: BSD-2-Clause
"""Commands in a guest: the host's side of the connection to the agent."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .errors import GuestError, Overdue

__all__ = ["Channel", "Running"]


class Channel:
    """The connection to the agent; a thread receives its messages.

    Attributes
    ----------
    hellos : int
        How often an agent has started: once per boot.
    release : str
        Release of the guest's kernel.
    """

    def __init__(self, connection: socket.socket):
        self.hellos = 0
        self.release = ""
        self._connection = connection
        connection.settimeout(None)
        self._changed = threading.Condition()
        self._commands: dict[int, dict[str, Any]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def wait(self, seconds: float) -> None:
        """Waits for the agent's next message, up to `seconds`."""
        with self._changed:
            self._changed.wait(seconds)

    def environment(self, words: dict[str, str]) -> None:
        """Sets environment variables for all later commands."""
        self._write({"environment": words})

    def prepare(self, modules: Sequence[str]) -> None:
        """Imports modules for all later Python code."""
        self._write({"prepare": list(modules)})

    def start(self, kind: str, command: str) -> int:
        """Starts a shell command ("run") or Python code ("python"); returns its number."""
        with self._changed:
            number = len(self._commands)
            self._commands[number] = {"text": [], "status": None}
        self._write({"id": number, kind: command})
        return number

    def log(self, text: str) -> None:
        """Writes to the guest's kernel log."""
        self._write({"log": text})

    def kill(self, number: int) -> None:
        """Kills a command and all of its process group."""
        self._write({"id": number, "kill": True})

    def text(self, number: int) -> str:
        """A command's output so far."""
        return "".join(self._commands[number]["text"])

    def status(self, number: int) -> int | None:
        """A command's exit status, None while it runs."""
        return self._commands[number]["status"]

    def _write(self, message: dict[str, Any]) -> None:
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise GuestError(f"QEMU does not take commands any more: {error}") from None

    def _read(self) -> None:
        with self._connection.makefile("rb") as lines:
            while True:
                try:
                    line = lines.readline()
                except OSError:
                    return
                if not line:
                    return
                with self._changed:
                    self._take(json.loads(line))
                    self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "hello" in message:
            self.hellos += 1
            self.release = message["hello"]
            return
        command = self._commands[message["id"]]
        if "text" in message:
            command["text"].append(message["text"])
        else:
            command["status"] = message["status"]


class Running:
    """A command, or Python code, that was started in a guest."""

    #: Seconds after which a killed command that has not ended counts as hanging in the kernel.
    _KILLED = 30.0

    def __init__(
        self, channel: Channel, kind: str, command: str, require_alive: Callable[[], None]
    ):
        self._name = command if kind == "run" else "Python code"
        self._channel = channel
        self._require_alive = require_alive
        self._number = channel.start(kind, command)

    @property
    def text(self) -> str:
        """Its standard output and error so far."""
        return self._channel.text(self._number)

    @property
    def status(self) -> int | None:
        """Its exit status, negative if a signal ended it; None while it runs."""
        return self._channel.status(self._number)

    def kill(self) -> None:
        """Kills it and what it started."""
        self._channel.kill(self._number)

    def wait(self, timeout: float | None = 120.0) -> tuple[int, str]:
        """Waits for its end; returns (exit status, output).

        After `timeout` seconds it is killed and Overdue is raised; None, no limit, is for
        interactive programs.
        """
        if not self._ends(timeout):
            self.kill()
            ended = self._ends(self._KILLED)
            how = "was killed" if ended else "hangs in the kernel, as killing it did not end it"
            raise Overdue(
                f"{self._name} did not end within {timeout:g} s and {how}. Its output:\n{self.text}"
            )
        assert self.status is not None
        return self.status, self.text

    def wait_for(self, text: str, timeout: float = 120.0) -> str:
        """Waits until its output contains `text`; returns the output so far."""
        deadline = time.monotonic() + timeout
        while text not in self.text:
            if self.status is not None or time.monotonic() > deadline:
                raise GuestError(f"{self._name} did not print {text!r}, but:\n{self.text}")
            self._require_alive()
            self._channel.wait(0.1)
        return self.text

    def _ends(self, timeout: float | None) -> bool:
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while self.status is None:
            if time.monotonic() > deadline:
                return False
            self._require_alive()
            self._channel.wait(0.1)
        return True
