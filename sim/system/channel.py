# SPDX-License-Identifier: BSD-2-Clause
"""Commands in a guest: the host's end of the agent's port."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .errors import GuestError, Overdue

__all__ = ["Channel", "Running"]


class Channel:
    """The connection to the agent; a thread takes in what it says.

    Attributes
    ----------
    hellos : int
        How often an agent has started: once, and once for each reboot.
    release : str
        The guest's kernel.
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
        """Ends it."""
        self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def wait(self, seconds: float) -> None:
        """Waits until the agent says something."""
        with self._changed:
            self._changed.wait(seconds)

    def environment(self, words: dict[str, str]) -> None:
        """Of all commands from then on."""
        self._write({"environment": words})

    def start(self, kind: str, command: str) -> int:
        """Starts a command to "run" by a shell, or of "python" code; its number."""
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
        """What a command said up to now."""
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

    #: Seconds that a killed command may take to end, before it is taken to hang in the kernel.
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
        """What it said up to now, on either output."""
        return self._channel.text(self._number)

    @property
    def status(self) -> int | None:
        """Its exit status, negative if a signal ended it; None while it runs."""
        return self._channel.status(self._number)

    def kill(self) -> None:
        """Kills it and what it started."""
        self._channel.kill(self._number)

    def wait(self, timeout: float | None = 120.0) -> tuple[int, str]:
        """Waits for its end; (exit status, what it said).

        It is killed after `timeout` seconds, and Overdue is raised; None is for programs that wait
        for a person.
        """
        if not self._ends(timeout):
            self.kill()
            ended = self._ends(self._KILLED)
            how = "was killed" if ended else "hangs in the kernel, as it does not die when killed"
            raise Overdue(
                f"{self._name} did not end within {timeout:g} s and {how}. It said:\n{self.text}"
            )
        assert self.status is not None
        return self.status, self.text

    def wait_for(self, text: str, timeout: float = 120.0) -> str:
        """Waits until it has said `text`; what it said up to then."""
        deadline = time.monotonic() + timeout
        while text not in self.text:
            if self.status is not None or time.monotonic() > deadline:
                raise GuestError(f"{self._name} did not say {text!r}, but:\n{self.text}")
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
