# SPDX-License-Identifier: BSD-2-Clause
"""A client for QEMU's monitor (QMP), as far as guests need it."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from .errors import GuestError

__all__ = ["Monitor"]

#: Seconds to wait for an answer; QEMU's main loop may be busy with the guest.
_ANSWER = 60.0


class Monitor:
    """A connection that QEMU made to its monitor (QMP)."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._connection.settimeout(_ANSWER)
        self._lines = connection.makefile("r")
        self._events: list[dict[str, Any]] = []
        self._next()  # the greeting
        self.command("qmp_capabilities")

    def close(self) -> None:
        """Closes the connection."""
        self._lines.close()
        self._connection.close()

    def command(self, name: str, **arguments: Any) -> Any:
        """Executes a command and returns its result; GuestError if it fails."""
        request = {"execute": name, "arguments": arguments}
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            while True:
                message = self._next()
                if "error" in message:
                    raise GuestError(f"QEMU refused {name}: {message['error']['desc']}")
                if "return" in message:
                    return message["return"]
                self._events.append(message)
        except OSError as error:
            raise GuestError(f"QEMU does not answer {name}: {error}") from None

    def wait_for(self, event: str, timeout: float, **data: Any) -> None:
        """Waits for an event with these data; an event that came earlier counts, once."""
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
            raise GuestError(f"QEMU sent no {event} {data} within {timeout:g} s") from None
        finally:
            self._connection.settimeout(_ANSWER)

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise GuestError("QEMU closed its monitor")
        return json.loads(line)
