# SPDX-License-Identifier: BSD-2-Clause
"""Messages over a vfio-user socket: sends requests, and serves those of the device.

The device's requests are served in their order, also while this side waits for a reply, but only
inside calls of `Channel`: between calls the device waits. No request that was received is left when
a call returns, so that the socket tells whether there is more to serve.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Sequence
from itertools import starmap
from typing import NoReturn, Protocol, TypeAlias

from ..errors import BoardLost, BoardNotFound, PeerdmaError, ProtocolError, Timeout
from ..process import forked, watched
from .simboard import SimulatedBoard, how_to_start
from .wire import MAX_DATA_BYTES, MAX_FDS, Command, DmaAccess, Header, HeaderFlag

__all__ = ["Channel", "Nonsense", "Server"]

#: What `recvmsg` returns; its first is the bytes.
_Piece: TypeAlias = "tuple[bytes, list[tuple[int, int, bytes]], int, object]"
#: A reply: the fields of its `Header`, and its payload.
_Reply: TypeAlias = "tuple[tuple[int, ...], bytes]"
#: A message to send, with file descriptors, and how many bytes went with each call so far.
_Outgoing: TypeAlias = "tuple[bytes, Sequence[int], list[int]]"
#: See `Channel._state`.
_State: TypeAlias = "tuple[list[_Piece], int, _Outgoing | None]"
_ROOM_FOR_FDS = socket.CMSG_SPACE(MAX_FDS * 4)
_CLOSE_ON_EXEC = socket.MSG_CMSG_CLOEXEC
_HEADER_BYTES = Header.FORMAT.size
# A register access is one message and more: numbers, which cost less than the members of an enum.
_REPLY, _TYPE, _NO_REPLY, _ERROR = (
    int(each) for each in (HeaderFlag.REPLY, HeaderFlag.TYPE, HeaderFlag.NO_REPLY, HeaderFlag.ERROR)
)
_pack_header, _unpack_header = Header.FORMAT.pack, Header.FORMAT.unpack_from
_LARGEST_MESSAGE = _HEADER_BYTES + DmaAccess.FORMAT.size + MAX_DATA_BYTES
_RECEIVE = _LARGEST_MESSAGE, _ROOM_FOR_FDS, _CLOSE_ON_EXEC


class Nonsense(Exception):
    """What the device did that the protocol does not allow, as `Channel.broken` takes it."""


class Server(Protocol):
    """What executes commands of a device."""

    def execute(self, command: int, payload: bytes) -> bytes:
        """Executes a command; returns the payload of the reply.

        Raises
        ------
        OSError
            The reply is an error with this errno.
        Nonsense
            If the command breaks the protocol.
        """
        ...


class Channel:
    """One connection to a device.

    Parameters
    ----------
    path : str
        The socket.
    timeout : float
        Seconds to wait for any one answer.
    server : Server
        Executes commands of the device.
    process : SimulatedBoard or None
        The device's, if this process has started it.

    Raises
    ------
    BoardNotFound
        If no process listens at the socket.
    """

    def __init__(
        self, path: str, *, timeout: float, server: Server, process: SimulatedBoard | None
    ):
        self._path = path
        self._timeout = timeout
        self._server = server
        self._process = process
        self._lost: str | None = None
        self._next_id = 0
        #: What arrived, how many bytes of the first piece have been seen to, and the message that
        #: is being sent. One attribute, so that no interrupt comes between them.
        self._state: _State = ([], 0, None)
        self._fds: list[int] = []
        #: Requests whose replies still come; nobody waits for those that were interrupted.
        self._expected: set[int] = set()
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
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        watched(self)

    @property
    def lost(self) -> bool:
        """True once the device is gone, or has broken the protocol."""
        return self._lost is not None

    def close(self) -> None:
        """Ends the connection. Closing again does nothing."""
        self._lost = self._lost or "it was closed"
        with contextlib.suppress(OSError):
            # The device sees the end, also if another process has a copy of the socket.
            self._socket.shutdown(socket.SHUT_RDWR)
        self.disown()

    def disown(self) -> None:
        """Closes this process's copies; in a child, the connection goes on."""
        self._lost = self._lost or forked()
        self._socket.close()
        for fd in self.take_fds():
            os.close(fd)

    def request(self, command: Command, body: bytes = b"", fds: Sequence[int] = ()) -> bytes:
        """Sends a command and returns the payload of its reply; serves commands meanwhile.

        If it is interrupted, the device has got the command whole, or nothing of it.

        Raises
        ------
        ProtocolError
            If the device answers with an error (then with its errno), or violates the protocol.
        BoardLost, Timeout
            If it is gone or does not answer.
        """
        message_id = self.send(command, body, 0, fds)
        deadline = time.monotonic() + self._timeout
        # What came while it was being sent is first: the device may wait for an answer to that.
        reply = self.serve(message_id, receive=False) if self._state[0] else None
        while reply is None:
            # Looked at each time, so that a device which never stops sending cannot block us.
            left = deadline - time.monotonic()
            if left < 0.0 or not self._readable.poll(left * 1000):
                self._lost = "it stopped answering"
                raise Timeout(
                    f"the board did not answer {command.name} within {self._timeout:g} s: it "
                    "hangs, or the machine is overloaded. Close it and open it again"
                )
            reply = self.serve(message_id)
        header, payload = reply
        if header[1] != command:
            self.broken(f"answered {Header(*header)} to message {message_id}, {command.name}")
        if header[3] & _ERROR:
            error = header[4]
            reason = os.strerror(error) if error else "no reason given"
            raise ProtocolError(f"the board refused {command.name}: {reason}", errno=error)
        return payload

    def take_fds(self) -> list[int]:
        """File descriptors received since the last call; the caller closes them."""
        fds, self._fds = self._fds, []
        return fds

    def send(
        self, command: int, body: bytes, flags: int = _NO_REPLY, fds: Sequence[int] = ()
    ) -> int:
        """Sends a command and does not wait for its reply; returns its number.

        By default there is no reply. Commands that have been received are served then.
        """
        if self._lost is not None or self._state[2] is not None:
            self._send_rest()
        self._next_id = message_id = (self._next_id + 1) & 0xFFFF
        if not flags & _NO_REPLY:
            self._expected.add(message_id)
        data = _pack_header(message_id, command, _HEADER_BYTES + len(body), flags, 0) + body
        sent: list[int] = []
        message = data, fds, sent
        try:
            self._state = (self._state[0], self._state[1], message)
            try:
                # As `process.keep` does it. `_send_rest` sees to the rest, and to what went wrong.
                if not fds:
                    sent.extend(starmap(self._socket.sendmsg, (((data,),),)))
            except OSError:
                pass
            if sent and sent[0] == len(data):
                self._state = (self._state[0], self._state[1], None)
            else:
                self._send_rest()
        except PeerdmaError:
            raise
        except BaseException:
            # What was begun is sent to its end, as its descriptors may be closed after this.
            if sent:
                self._send_rest()
            elif self._state[2] is message:
                self._state = (self._state[0], self._state[1], None)
            raise
        if flags and self._state[0]:
            self.serve(receive=False)
        return message_id

    def fileno(self) -> int:
        """The socket: readable when there is something to `serve`."""
        return self._socket.fileno()

    def serve(self, wanted: int | None = None, *, receive: bool = True) -> _Reply | None:
        """Serves the commands that have arrived; does not wait for more.

        Returns the reply to message number `wanted`, if it is among what has arrived; other replies
        are to requests that were interrupted. With `receive` false, it sees only to what was
        received before.
        """
        if receive:
            self._receive()
        reply = None
        while True:
            pieces, at, outgoing = self._state
            if not pieces and outgoing is None:
                return reply
            if outgoing is not None or self._lost is not None:
                self._send_rest()
                continue
            inbox = pieces[0][0]
            if len(inbox) - at < _HEADER_BYTES:
                if not self._join():
                    return reply
                continue
            header = _unpack_header(inbox, at)
            message_id, command, size, flags, _ = header
            if not _HEADER_BYTES <= size <= _LARGEST_MESSAGE:
                self.broken(f"sent a message of {size} bytes")
            end = at + size
            if len(inbox) < end:
                if sum([len(data) for data, *_ in pieces]) < end or not self._join():
                    return reply
                continue
            payload = inbox[at + _HEADER_BYTES : end]
            if end == len(inbox):
                pieces, end = pieces[1:], 0
            if flags & _TYPE == _REPLY:
                if message_id not in self._expected:
                    self.broken(
                        f"answered {Header(*header)} to message {message_id}, not sent to it"
                    )
                self._state = (pieces, end, None)
                self._expected.discard(message_id)
                if message_id == wanted:
                    reply = header, payload
                continue
            answered, number, answer = _REPLY, 0, b""
            try:
                answer = self._server.execute(command, payload)
            except PeerdmaError:
                raise
            except OSError as error:
                answered, number = _REPLY | _ERROR, error.errno or errno.EIO
            except Nonsense as error:
                self.broken(str(error))
            # If it is interrupted before this, the command is served again: nobody sees that.
            if flags & _NO_REPLY:
                self._state = (pieces, end, None)
                continue
            size = _HEADER_BYTES + len(answer)
            whole = _pack_header(message_id, command, size, answered, number) + answer
            sent: list[int] = []
            self._state = (pieces, end, (whole, (), sent))
            try:
                sent.extend(starmap(self._socket.sendmsg, (((whole,),),)))
            except OSError:
                continue  # `_send_rest` sees to it
            if sent[0] == size:
                self._state = (pieces, end, None)

    def wait_event(self, eventfd: int, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the eventfd, serving commands; False if none came."""
        deadline = time.monotonic() + timeout
        while True:
            overdue = time.monotonic() > deadline
            self.serve(receive=False)
            ready = self._poll(select.POLLIN, deadline, eventfd)
            if eventfd in ready:
                os.eventfd_read(eventfd)
                return True
            if overdue or not ready:
                return False
            self._receive()

    def broken(self, what: str) -> NoReturn:
        """Marks the connection as broken; raises a ProtocolError that the device did `what`."""
        self._lost = f"it {what}"
        raise ProtocolError(
            f"the board at {self._path} {what}, which vfio-user does not allow; "
            "use the simulated board of this checkout"
        )

    def _send_rest(self) -> None:
        """Sends what there is to send; buffers what the device sends meanwhile.

        What an interrupt leaves is sent at the next call.
        """
        if self._lost is not None:
            raise BoardLost(f"the board at {self._path} is gone: {self._lost}. Open it again")
        deadline = time.monotonic() + self._timeout
        while (message := self._state[2]) is not None:
            data, fds, sent = message
            rest = memoryview(data)[sum(sent) :]
            if not rest:
                self._state = (self._state[0], self._state[1], None)
                return
            try:
                # With their first byte, the descriptors are sent.
                rights = [] if sent or not fds else [_rights(fds)]
                sent.extend(starmap(self._socket.sendmsg, (((rest,), rights),)))
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
        pieces = self._state[0]
        try:
            pieces.extend(starmap(self._socket.recvmsg, (_RECEIVE,)))
        except BlockingIOError:
            return
        except OSError as error:
            self._gone(error)
        data, ancillary, *_ = pieces[-1]
        for _, _, fds in ancillary:
            self._fds += array.array("i", fds[: len(fds) // 4 * 4])
        if not data:
            self._gone(None)

    def _gone(self, error: OSError | None) -> NoReturn:
        how = error.strerror if error else "it closed the connection"
        self._lost = f"{how}; {self._process.why_lost()}" if self._process else how
        raise BoardLost(
            f"the board at {self._path} went away: {self._lost}. Open it again",
            errno=error.errno if error else errno.EPIPE,
        ) from None

    def _join(self) -> bool:
        """Makes one piece of those that arrived; False if it is one. What was seen to is left out.

        Called when the first one ends within a message, so that no byte is copied more than twice.
        """
        pieces, at, outgoing = self._state
        if len(pieces) == 1:
            return False
        first, *others = [data for data, *_ in pieces]
        self._state = ([(b"".join([first[at:], *others]), [], 0, None)], 0, outgoing)
        return True


def _rights(fds: Sequence[int]) -> tuple[int, int, array.array[int]]:
    """File descriptors as `sendmsg` takes them."""
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds)
