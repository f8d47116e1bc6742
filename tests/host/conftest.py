# SPDX-License-Identifier: BSD-2-Clause
"""Fixtures of the library's tests: the simulated board, GPUs, and a scripted vfio-user device."""

import os
import secrets
import socket
import threading
from collections.abc import Callable

import pytest

import peerdma
from peerdma.vfio_wire import (
    MAX_DATA_BYTES,
    Command,
    Header,
    HeaderFlag,
    Version,
    pack,
    unpack,
)

#: No step of a scripted device takes longer, in seconds.
PATIENCE = 20.0


@pytest.fixture
def seed() -> int:
    """The seed of a randomised test: the environment's SEED, else a new one; shown on failure."""
    value = int(os.environ.get("SEED") or secrets.randbits(32))
    print(f"repeat with SEED={value}")
    return value


@pytest.fixture(scope="module")
def board():
    """The simulated board, shared by the tests of a module."""
    with peerdma.open("sim") as board:
        yield board


@pytest.fixture(params=["device", "host"], ids=["discrete", "integrated"])
def gpu(request):
    """An emulated GPU of each personality."""
    with peerdma.gpu("emulated", memory=request.param) as gpu:
        yield gpu


class Device:
    """The device's end of a vfio-user connection, for scripts."""

    def __init__(self, connection: socket.socket):
        self.connection = connection

    def receive(self) -> tuple[Header, bytes]:
        """The next message, whatever it is."""
        header = unpack(Header, self._exactly(Header.FORMAT.size))
        return header, self._exactly(header.size - Header.FORMAT.size)

    def expect(self, command: Command) -> tuple[Header, bytes]:
        """The next message, which must be this command."""
        header, payload = self.receive()
        assert Command(header.command) is command
        return header, payload

    def reply(self, header: Header, payload: bytes = b"", error: int = 0, error_flag: bool = False):
        """Answers the command that came with `header`."""
        flags = HeaderFlag.REPLY | (HeaderFlag.ERROR if error or error_flag else 0)
        self.send(header._replace(flags=flags, error=error), payload)

    def command(self, command: int, payload: bytes, message_id: int = 0, flags: int = 0):
        """Sends a command of the device's own."""
        self.send(Header(message_id, command, 0, flags), payload)

    def send(self, header: Header, payload: bytes):
        """Sends a message; the size is filled in."""
        size = Header.FORMAT.size + len(payload)
        self.connection.sendall(pack(header._replace(size=size)) + payload)

    def greet(self, major: int = 0):
        """Answers the client's VERSION."""
        header, _ = self.expect(Command.VERSION)
        self.reply(header, pack(Version(major, 0)) + b'{"capabilities":{}}\0')

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.connection.recv(min(count - len(data), MAX_DATA_BYTES))
            if not part:
                raise EOFError
            data += part
        return data


@pytest.fixture
def device(tmp_path):
    """Serves a script at a socket: ``path = device(script)``; the script must end without error.

    The script is called with a `Device` in a thread of its own; when it returns, the connection
    is closed.
    """
    threads: list[threading.Thread] = []
    errors: list[BaseException] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = os.path.join(tmp_path, "device.sock")
    listener.bind(path)
    listener.listen(1)
    listener.settimeout(PATIENCE)

    def serve(script: Callable[[Device], None]) -> str:
        def run():
            try:
                connection, _ = listener.accept()
                connection.settimeout(PATIENCE)
                with connection:
                    script(Device(connection))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)
        return path

    yield serve
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    listener.close()
    assert not errors, errors
