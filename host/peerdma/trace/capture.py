# SPDX-License-Identifier: BSD-2-Clause
"""The file in which a simulation keeps all TLPs and events: pcapng (docs/trace.md).

Of pcapng (draft-ietf-opsawg-pcapng), what captures of peerdma have: one section of little-endian
blocks, an interface of TLPs and one of events, and enhanced packet blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ..errors import PeerdmaError

__all__ = ["Capture", "Event", "Packet", "Writer", "read"]

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER = 0x1A2B3C4D
_END, _COMMENT, _NAME, _FLAGS, _RESOLUTION = 0, 1, 2, 2, 9
_INBOUND, _OUTBOUND = 1, 2
#: Link types that users may define: TLPs, and lines of text.
_TLPS, _EVENTS = 147, 148
_NANOSECONDS = 9


@dataclass(frozen=True)
class Packet:
    """A TLP at the PCIe block.

    Attributes
    ----------
    time : int
        Simulated nanoseconds.
    up : bool
        The board sent it.
    data : bytes
        The TLP from its first header byte on, as on the link.
    notes : tuple of str
        "BAR0" or "BAR1" for a request of the host; what became of it if that is not usual.
    """

    time: int
    up: bool
    data: bytes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Event:
    """What is not a TLP: `kind` and its values, at simulated nanoseconds `time`."""

    time: int
    kind: str
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Capture:
    """All of a file, in the order of time."""

    packets: list[Packet]
    events: list[Event]


def read(path: Path) -> Capture:
    """Reads a capture; what its writer has not finished at the end is left out.

    Raises
    ------
    PeerdmaError
        If the file is not a capture of peerdma.
    OSError
        If it cannot be read.
    """
    data = path.read_bytes()
    try:
        return _capture(_blocks(data))
    except (struct.error, ValueError, KeyError) as error:
        raise PeerdmaError(
            f"{path} is not a capture of a simulated board ({error}). Make one with `host/demo.py "
            "--trace`, or `.venv/bin/python -m sim.board --socket PATH --trace FILE`"
        ) from None


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if at == 0 and (kind, data[8:12]) != (_SECTION, struct.pack("<I", _BYTE_ORDER)):
            raise ValueError("it does not begin as pcapng does")
        if length < 12 or length % 4:
            raise ValueError(f"a block of {length} bytes at {at}")
        if at + length > len(data):
            return
        yield kind, data[at + 8 : at + length - 4]
        at += length
    if at == 0:
        raise ValueError("it is empty")


def _capture(blocks: Iterator[tuple[int, bytes]]) -> Capture:
    links: list[int] = []
    found = Capture([], [])
    for kind, body in blocks:
        if kind == _INTERFACE:
            links.append(struct.unpack_from("<H", body)[0])
        elif kind == _PACKET:
            interface, high, low, captured, _ = struct.unpack_from("<5I", body)
            if interface >= len(links):
                raise ValueError(f"a packet of interface {interface}, of which there is none")
            time, data = high << 32 | low, body[20 : 20 + captured]
            if links[interface] == _EVENTS:
                name, *words = data.decode("utf-8", "replace").split(" ")
                pairs = (word.partition("=") for word in words)
                values = {key: value for key, _, value in pairs}
                found.events.append(Event(time, name, values))
            elif links[interface] == _TLPS:
                options = list(_options(body[20 + captured + -captured % 4 :]))
                up = any(
                    code == _FLAGS and struct.unpack("<I", value)[0] & 3 == _OUTBOUND
                    for code, value in options
                )
                notes = tuple(v.decode("utf-8", "replace") for c, v in options if c == _COMMENT)
                found.packets.append(Packet(time, up, data, notes))
    return found


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from("<HH", data, at)
        if code == _END:
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4


class Writer:
    """Writes a capture, for simulations in Python.

    Parameters
    ----------
    file : binary file
        Takes the capture; stays the caller's to close.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1))
        for link, name in ((_TLPS, b"tlps"), (_EVENTS, b"events")):
            options = _option(_NAME, name) + _option(_RESOLUTION, bytes([_NANOSECONDS]))
            self._block(_INTERFACE, struct.pack("<HHI", link, 0, 0) + options + bytes(4))

    def packet(self, packet: Packet) -> None:
        """Adds a TLP."""
        flags = struct.pack("<I", _OUTBOUND if packet.up else _INBOUND)
        options = _option(_FLAGS, flags)
        options += b"".join(_option(_COMMENT, note.encode()) for note in packet.notes)
        self._packet(0, packet.time, packet.data, options + bytes(4))

    def event(self, event: Event) -> None:
        """Adds an event."""
        words = [event.kind, *(f"{key}={value}" for key, value in event.values.items())]
        self._packet(1, event.time, " ".join(words).encode(), b"")

    def _packet(self, interface: int, time: int, data: bytes, options: bytes) -> None:
        head = struct.pack("<5I", interface, time >> 32, time & 0xFFFF_FFFF, len(data), len(data))
        self._block(_PACKET, head + data + bytes(-len(data) % 4) + options)

    def _block(self, kind: int, body: bytes) -> None:
        length = struct.pack("<I", 12 + len(body))
        self._file.write(struct.pack("<I", kind) + length + body + length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
