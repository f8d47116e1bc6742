# SPDX-License-Identifier: BSD-2-Clause
"""QEMU's monitor, as far as guests need it."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from .errors import GuestError

__all__ = ["Monitor"]

#: Seconds for an answer; QEMU gives it between two things it does for the guest.
_ANSWER = 60.0


class Monitor:
    """A connection that QEMU made to its monitor (QMP)."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._connection.settimeout(_ANSWER)
        self._lines = connection.makefile("r")
        self._events: list[dict[str, Any]] = []
        self._next()  # its greeting
        self.command("qmp_capabilities")

    def close(self) -> None:
        """Lets go of it."""
        self._lines.close()
        self._connection.close()

    def command(self, name: str, **arguments: Any) -> Any:
        """Executes a command and returns what it returns; GuestError if it fails."""
        request = {"execute": name, "arguments": arguments}
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            while True:
                message = self._next()
                if "error" in message:
                    raise GuestError(f"QEMU refuses {name}: {message['error']['desc']}")
                if "return" in message:
                    return message["return"]
                self._events.append(message)
        except OSError as error:
            raise GuestError(f"QEMU does not answer {name}: {error}") from None

    def wait_for(self, event: str, timeout: float, **data: Any) -> None:
        """Waits for an event with these data, which may have come since the connection was made."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                for message in self._events:
                    found = message.get("data", {})
                    if message["event"] == event and data.items() <= found.items():
                        self._events.remove(message)
                        return
                self._connection.settimeout(max(0.01, deadline - time.monotonic()))
                self._events.append(self._next())
        except TimeoutError:
            raise GuestError(f"QEMU did not say {event} {data} within {timeout:g} s") from None
        finally:
            self._connection.settimeout(_ANSWER)

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise GuestError("QEMU closed its monitor")
        return json.loads(line)
