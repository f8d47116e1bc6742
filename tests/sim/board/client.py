# SPDX-License-Identifier: BSD-2-Clause
"""A simulated board as a process, and a vfio-user client that can also misbehave."""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from peerdma import regs
from peerdma.vfio_user.wire import (
    CONFIG_REGION,
    Command,
    DmaAccess,
    DmaMap,
    DmaUnmap,
    Header,
    HeaderFlag,
    Irq,
    IrqSet,
    IrqSetFlag,
    RegionAccess,
    pack,
    unpack,
)

__all__ = [
    "BAR_DMA",
    "BAR_USER",
    "BROKE_A_RULE",
    "IMPATIENT",
    "Board",
    "Client",
    "Memory",
    "Refused",
    "descriptor",
]

ROOT = Path(__file__).resolve().parents[3]
BAR_USER, BAR_DMA = regs.BAR_USER[0], regs.BAR_DMA[0]
#: Seconds that nothing may exceed; a first start compiles the core.
START, ANSWER = 900.0, 60.0
#: Exit status of a board whose core broke a rule of PCIe.
BROKE_A_RULE = 3
#: 128 B completions and reads of 512 B, bus master and memory space on.
COMMAND_ON = 0x0006


class Refused(Exception):
    """The board replied with an error; `errno` is its number."""

    def __init__(self, errno: int):
        super().__init__(os.strerror(errno))
        self.errno = errno


#: A core that gives up on a read after a tenth of the usual time: for tests of what comes then.
IMPATIENT = ("--completion-timeout-us", "1000")


class Board:
    """``python -m sim.board`` with `arguments`, ready; a context manager.

    At its end, a core that broke a rule of PCIe is an AssertionError.
    """

    def __init__(self, folder: Path, *arguments: str):
        self.path = str(folder / "board.sock")
        self._errors = folder / "board.log"
        with self._errors.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sim.board", "--socket", self.path, *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "host")])},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START)
        self.first_line = self.process.stdout.readline() if ready else ""
        if self.first_line != f"ready: {self.path}\n":
            self.end()
            raise AssertionError(f"the board did not start: {self.log()}")

    def __enter__(self) -> Board:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        status = self.end()
        assert kind or status != BROKE_A_RULE, f"the core broke a rule of PCIe:\n{self.log()}"

    def end(self) -> int:
        """Ends the process as an operator would; its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(ANSWER)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()

    def log(self) -> str:
        """What it wrote to standard error up to now."""
        return self._errors.read_text()

    def wait_log(self, text: str, since: str = "") -> str:
        """Waits until `text` is in what was logged after `since` (an earlier `log`)."""
        end = time.monotonic() + ANSWER
        while text not in (new := self.log()[len(since) :]):
            assert time.monotonic() < end, f"{text!r} is not in the log:\n{new}"
            assert self.process.poll() is None, f"the board ended:\n{new}"
            time.sleep(0.01)
        return new

    def cpu_ticks(self) -> int:
        """Processor time that the process has used, in clock ticks."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def fds(self) -> int:
        """Open file descriptors of the process."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Memory:
    """Shared memory of `size` bytes, as a client would give it to the board."""

    def __init__(self, size: int):
        self.size = size
        self.fd = os.memfd_create("test")
        os.ftruncate(self.fd, size)
        self._map = mmap.mmap(self.fd, size)
        self.bytes = np.frombuffer(self._map, dtype="u1")

    def shrink(self, size: int) -> None:
        """Cuts the file; bytes beyond may not be touched any more."""
        os.ftruncate(self.fd, size)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


class Client:
    """A connection that has agreed on the version, unless `greet` is False.

    `refused` are the board's accesses to what this client did not map, in order: it refuses them
    while it waits for answers.
    """

    def __init__(self, board: Board, *, greet: bool = True):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._id = 0
        self._inbox: list[tuple[Header, bytes]] = []
        #: windows whose messages the test serves
        self._served: list[range] = []
        self.refused: list[tuple[Command, DmaAccess]] = []
        try:
            self.socket.connect(board.path)
            self.socket.settimeout(ANSWER)
            if greet:
                self.request(Command.VERSION, b"\0\0\0\0" + b'{"capabilities":{}}\0')
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # Messages

    def send(self, command: int, body: bytes = b"", *, flags: int = 0, fds: tuple[int, ...] = ()):
        """Sends a command; its message id."""
        self._id = (self._id + 1) & 0xFFFF
        message = pack(Header(self._id, command, Header.FORMAT.size + len(body), flags)) + body
        sent = socket.send_fds(self.socket, [message], list(fds))
        # Nothing is left but for the longest: the board may have closed the connection by now.
        if sent < len(message):
            self.socket.sendall(message[sent:])
        return self._id

    def receive(self) -> tuple[Header, bytes]:
        """The next message of the board; EOFError if it closed the connection."""
        header = unpack(Header, self._exactly(Header.FORMAT.size))
        return header, self._exactly(header.size - Header.FORMAT.size)

    def reply_to(self, header: Header, body: bytes = b"", error: int = 0) -> None:
        """Answers a message of the board."""
        flags = HeaderFlag.REPLY | (HeaderFlag.ERROR if error else 0)
        size = Header.FORMAT.size + len(body)
        self.socket.sendall(pack(header._replace(size=size, flags=flags, error=error)) + body)

    def answer(self, message_id: int) -> bytes:
        """The payload of the reply to `message_id`; the board's messages are kept or refused."""
        while True:
            header, body = self.receive()
            if header.flags & HeaderFlag.TYPE != HeaderFlag.REPLY:
                self._keep_or_refuse(header, body)
                continue
            assert header.message_id == message_id
            if header.flags & HeaderFlag.ERROR:
                assert not body
                raise Refused(header.error)
            return body

    def _keep_or_refuse(self, header: Header, body: bytes) -> None:
        access = unpack(DmaAccess, body)
        if any(access.address in window for window in self._served):
            self._inbox.append((header, body))
        else:
            self.refused.append((Command(header.command), access))
            self.reply_to(header, error=errno.EFAULT)

    def request(self, command: int, body: bytes = b"", *, fds: tuple[int, ...] = ()) -> bytes:
        return self.answer(self.send(command, body, fds=fds))

    def message(self) -> tuple[Header, DmaAccess, bytes]:
        """The next DMA message of the board: header, access, data."""
        header, body = self._inbox.pop(0) if self._inbox else self.receive()
        assert header.flags == 0
        assert header.command in (Command.DMA_READ, Command.DMA_WRITE)
        return header, unpack(DmaAccess, body), body[DmaAccess.FORMAT.size :]

    def silent(self, seconds: float = 0.2) -> bool:
        """True if the board sends nothing for a while."""
        return not self._inbox and not select.select([self.socket], [], [], seconds)[0]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    # Device

    def read(self, region: int, offset: int, count: int = 4) -> int:
        body = self.request(Command.REGION_READ, pack(RegionAccess(offset, region, count)))
        assert unpack(RegionAccess, body) == RegionAccess(offset, region, count)
        return int.from_bytes(body[RegionAccess.FORMAT.size :], "little")

    def write(self, region: int, offset: int, value: int, count: int = 4, posted: bool = False):
        body = pack(RegionAccess(offset, region, count)) + value.to_bytes(count, "little")
        if posted:
            self.send(Command.REGION_WRITE, body, flags=HeaderFlag.NO_REPLY)
        else:
            assert self.request(Command.REGION_WRITE, body) == body[: RegionAccess.FORMAT.size]

    def config(self, offset: int, count: int = 4) -> int:
        return self.read(CONFIG_REGION, offset, count)

    def capability(self, number: int) -> int:
        """Where a capability is; LookupError if it is not in the list."""
        at = self.config(0x34, 1)
        while at and self.config(at, 1) != number:
            at = self.config(at + 1, 1)
        if not at:
            raise LookupError(number)
        return at

    def enable(self) -> None:
        """Memory space and bus master on."""
        self.write(CONFIG_REGION, 4, COMMAND_ON, 2)

    def map(self, address: int, memory: Memory | None, size: int = 0, flags: int = 3, offset=0):
        """Maps `memory` (None: by messages), all of it unless `size` says how much."""
        size = size or (memory.size if memory else 0)
        body = pack(DmaMap(DmaMap.FORMAT.size, flags, offset, address, size))
        self.request(Command.DMA_MAP, body, fds=(memory.fd,) if memory else ())
        if not memory:
            self._served.append(range(address, address + size))

    def unmap(self, address: int, size: int, flags: int = 0) -> None:
        body = pack(DmaUnmap(DmaUnmap.FORMAT.size, flags, address, size))
        assert self.request(Command.DMA_UNMAP, body) == body

    def irqs(self, index: Irq, flags: int, start: int = 0, count: int = 1, data=b"", fds=()):
        body = pack(IrqSet(IrqSet.FORMAT.size + len(data), flags, index, start, count)) + data
        self.request(Command.DEVICE_SET_IRQS, body, fds=tuple(fds))

    def connect(self, index: Irq, vector: int = 0) -> int:
        """A new eventfd for a vector of `index`; the caller closes it."""
        eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        flags = IrqSetFlag.DATA_EVENTFD | IrqSetFlag.ACTION_TRIGGER
        self.irqs(index, flags, start=vector, fds=(eventfd,))
        return eventfd

    # DMA engine

    def start(self, c2h: bool, descriptor: int, interrupt: bool = False, number: int = 0) -> None:
        """Has a channel run the descriptors that start at bus address `descriptor`."""
        base = regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base
        for half, value in (("lo", descriptor & 0xFFFFFFFF), ("hi", descriptor >> 32)):
            at = regs.SGDMA.address(f"descriptor_{half}", base=base, channel=number)
            self.write(BAR_DMA, at, value)
        events = regs.CHANNEL["control"].writable & regs.Status.errors() | 0x6
        if interrupt:
            self.write(BAR_DMA, _register("interrupt_enable", c2h, number), events)
            self.write(BAR_DMA, regs.IRQ.address("channel_enable"), 0x3)
        self.write(BAR_DMA, _register("control", c2h, number), events | 1)

    def status(self, c2h: bool, number: int = 0) -> regs.Status:
        return regs.Status(self.read(BAR_DMA, _register("status", c2h, number)))

    def finish(self, c2h: bool, number: int = 0) -> regs.Status:
        """Waits until a channel is not busy; its status, the channel stopped."""
        end = time.monotonic() + ANSWER
        while (status := self.status(c2h, number)) & regs.Status.BUSY:
            assert time.monotonic() < end, status
        self.write(BAR_DMA, _register("control", c2h, number), 0)
        return status

    def run(self, c2h: bool, descriptor: int) -> regs.Status:
        self.start(c2h, descriptor)
        return self.finish(c2h)


def _register(name: str, c2h: bool, number: int) -> int:
    """Where a register of a channel is."""
    base = regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base
    return regs.CHANNEL.address(name, base=base, channel=number)


def descriptor(source: int, destination: int, length: int) -> np.ndarray:
    """The bytes of a descriptor that ends its list."""
    record = np.zeros(1, regs.DESCRIPTOR)
    record["control"] = regs.DESC_MAGIC << 16 | regs.DESC_STOP | regs.DESC_COMPLETED
    record["source"], record["destination"], record["length"] = source, destination, length
    return record.view("u1")
