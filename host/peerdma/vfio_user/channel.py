# SPDX-License-Identifier: BSD-2-Clause
"""Messages over a vfio-user socket: sends requests, and serves those of the device.

The device's requests are served in their order, also while this side waits for a reply, but only
inside calls of `Channel`: between calls the device waits. No request that was received is left when
a call returns, so that the socket tells whether there is more to serve.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..errors import BoardLost, BoardNotFound, PeerdmaError, ProtocolError, Timeout
from .simboard import how_to_start
from .wire import MAX_DATA_BYTES, MAX_FDS, Command, DmaAccess, Header, HeaderFlag, pack, unpack

__all__ = ["Channel"]

_HEADER_BYTES = Header.FORMAT.size
_LARGEST_MESSAGE = _HEADER_BYTES + DmaAccess.FORMAT.size + MAX_DATA_BYTES


class Channel:
    """One connection to a device.

    Parameters
    ----------
    path : str
        The socket.
    timeout : float
        Seconds to wait for any one answer.
    serve : callable
        Executes a command of the device: takes command number and payload, returns the payload of
        the reply. If it raises OSError, other than a PeerdmaError, the reply is an error with that
        errno.
    why_lost : callable
        Returns what is known about the end of the device's process, for the text of `BoardLost`.

    Raises
    ------
    BoardNotFound
        If no process listens at the socket.
    """

    def __init__(
        self,
        path: str,
        *,
        timeout: float,
        serve: Callable[[int, bytes], bytes],
        why_lost: Callable[[], str],
    ):
        self._path = path
        self._timeout = timeout
        self._serve = serve
        self._why_lost = why_lost
        self._lost: str | None = None
        self._next_id = 0
        self._inbox = bytearray()
        self._fds: list[int] = []
        #: Requests that were interrupted: their replies still come.
        self._abandoned: set[int] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.connect(path)
            self._socket.setblocking(False)
        except OSError as error:
            self._socket.close()
            raise BoardNotFound(
                f"cannot open the board at socket {path}: {error.strerror or error}. Start one "
                f"{how_to_start(path)}",
                errno=error.errno,
            ) from None

    @property
    def lost(self) -> bool:
        """True once the device is gone, or has broken the protocol."""
        return self._lost is not None

    def close(self) -> None:
        """Ends the connection. Closing again does nothing."""
        self._lost = self._lost or "it was closed"
        self._socket.close()
        for fd in self.take_fds():
            os.close(fd)

    def request(self, command: Command, body: bytes = b"", fds: Sequence[int] = ()) -> bytes:
        """Sends a command and returns the payload of its reply.

        Raises
        ------
        ProtocolError
            If the device answers with an error (then with its errno), or violates the protocol.
        BoardLost, Timeout
            If it is gone or does not answer.
        """
        message_id = self._command(command, body, fds=fds)
        try:
            header, payload = self._reply(command)
        except KeyboardInterrupt:
            self._abandoned.add(message_id)
            raise
        if (header.message_id, header.command) != (message_id, command):
            self.broken(f"answered {header} to message {message_id}, {command.name}")
        self._serve_rest()
        if header.flags & HeaderFlag.ERROR:
            reason = os.strerror(header.error) if header.error else "no reason given"
            raise ProtocolError(f"the board refused {command.name}: {reason}", errno=header.error)
        return payload

    def take_fds(self) -> list[int]:
        """File descriptors received since the last call; the caller closes them."""
        fds, self._fds = self._fds, []
        return fds

    def post(self, command: Command, body: bytes) -> None:
        """Sends a command that gets no reply."""
        self._command(command, body, HeaderFlag.NO_REPLY)
        if self._inbox:
            self._serve_rest()

    def fileno(self) -> int:
        """The socket: readable when there is something to `serve`."""
        return self._socket.fileno()

    def serve(self) -> None:
        """Serves the commands that have arrived; does not wait for more."""
        self._receive()
        self._serve_rest()

    def wait_event(self, eventfd: int, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the eventfd, serving commands; False if none came."""
        deadline = time.monotonic() + timeout
        while True:
            overdue = time.monotonic() > deadline
            self._serve_rest()
            ready = self._poll(select.POLLIN, deadline, eventfd)
            if eventfd in ready:
                os.eventfd_read(eventfd)
                return True
            if overdue or not ready:
                return False
            self._receive()

    def _serve_rest(self) -> None:
        """Serves the commands that have been received; no request is waiting for its reply."""
        while (reply := self._serve_waiting()) is not None:
            if reply[0].message_id not in self._abandoned:
                self.broken("replied to a command that it was not sent")
            self._abandoned.remove(reply[0].message_id)

    def broken(self, what: str) -> NoReturn:
        """Marks the connection as broken; raises a ProtocolError that the device did `what`."""
        self._lost = f"it {what}"
        raise ProtocolError(
            f"the board at {self._path} {what}, which vfio-user does not allow; "
            "use the simulated board of this checkout"
        )

    def _reply(self, command: Command) -> tuple[Header, bytes]:
        """Waits for the next reply and returns it; serves commands meanwhile."""
        deadline = time.monotonic() + self._timeout
        while True:
            # Read before serving, so that a device which never stops sending cannot block us.
            overdue = time.monotonic() > deadline
            reply = self._serve_waiting()
            if reply and reply[0].message_id in self._abandoned:
                self._abandoned.remove(reply[0].message_id)
            elif reply:
                return reply
            elif not overdue and self._poll(select.POLLIN, deadline):
                self._receive()
            else:
                self._lost = "it stopped answering"
                raise Timeout(
                    f"the board did not answer {command.name} within {self._timeout:g} s: it "
                    "hangs, or the machine is overloaded. Close it and open it again"
                )

    def _command(
        self, command: Command, body: bytes, flags: int = 0, fds: Sequence[int] = ()
    ) -> int:
        self._next_id = (self._next_id + 1) & 0xFFFF
        self._send(self._next_id, command, body, flags, fds=fds)
        return self._next_id

    def _send(
        self,
        message_id: int,
        command: int,
        body: bytes,
        flags: int,
        error: int = 0,
        fds: Sequence[int] = (),
    ) -> None:
        """Sends a message; buffers what the device sends meanwhile, without serving it."""
        if self._lost is not None:
            raise BoardLost(f"the board at {self._path} is gone: {self._lost}. Open it again")
        header = Header(message_id, command, _HEADER_BYTES + len(body), flags, error)
        rest = memoryview(pack(header) + body)
        deadline = time.monotonic() + self._timeout
        while rest:
            try:
                rest = rest[socket.send_fds(self._socket, [rest], list(fds)) :]
                fds = ()
            except BlockingIOError:
                if not self._poll(select.POLLIN | select.POLLOUT, deadline):
                    self._lost = "it stopped reading"
                    raise Timeout(
                        f"the board read no message for {self._timeout:g} s: it hangs, or the "
                        "machine is overloaded. Close it and open it again"
                    ) from None
                self._receive()
            except OSError as failure:
                self._gone(failure)
            except KeyboardInterrupt:
                # Part of a message may have been sent: nothing can follow it.
                self._lost = "sending to it was interrupted"
                raise

    def _poll(self, events: int, deadline: float, eventfd: int | None = None) -> list[int]:
        """Which of the socket and the eventfd are ready; empty after the deadline."""
        poll = select.poll()
        poll.register(self._socket, events)
        if eventfd is not None:
            poll.register(eventfd, select.POLLIN)
        left = max(0.0, deadline - time.monotonic())
        return [fd for fd, _ in poll.poll(left * 1000)]

    def _receive(self) -> None:
        """Buffers what has arrived, if anything."""
        with contextlib.suppress(BlockingIOError):
            try:
                data, fds, _, _ = socket.recv_fds(
                    self._socket, _LARGEST_MESSAGE, MAX_FDS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                raise
            except OSError as error:
                self._gone(error)
            if not data:
                self._gone(None)
            self._inbox += data
            self._fds += fds

    def _gone(self, error: OSError | None) -> NoReturn:
        how = error.strerror if error else "it closed the connection"
        self._lost = "; ".join(filter(None, (how, self._why_lost())))
        raise BoardLost(
            f"the board at {self._path} went away: {self._lost}. Open it again",
            errno=error.errno if error else errno.EPIPE,
        ) from None

    def _serve_waiting(self) -> tuple[Header, bytes] | None:
        """Serves the messages that have arrived, up to a reply, which it returns."""
        while len(self._inbox) >= _HEADER_BYTES:
            header = unpack(Header, self._inbox)
            if not _HEADER_BYTES <= header.size <= _LARGEST_MESSAGE:
                self.broken(f"sent a message of {header.size} bytes")
            if len(self._inbox) < header.size:
                return None
            payload = bytes(self._inbox[_HEADER_BYTES : header.size])
            del self._inbox[: header.size]
            if header.flags & HeaderFlag.TYPE == HeaderFlag.REPLY:
                return header, payload
            flags, number, answer = int(HeaderFlag.REPLY), 0, b""
            try:
                answer = self._serve(header.command, payload)
            except PeerdmaError:
                raise
            except OSError as error:
                flags, number = flags | HeaderFlag.ERROR, error.errno or errno.EIO
            if not header.flags & HeaderFlag.NO_REPLY:
                self._send(header.message_id, header.command, answer, flags, number)
        return None
