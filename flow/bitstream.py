# SPDX-License-Identifier: BSD-2-Clause
"""Writes and reads 7-series bitstreams (UG470).

Every configuration bit is 0 after power-up and before a load by JTAG, so only frames that are not
empty are written: runs of frames, each with its address. A frame of zeros follows each run, because
a written frame only leaves the frame buffer when the next one arrives. The image is about as small
as with Vivado's compression, but needs only ordinary writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from hw.boards import Boot

from .database import FRAME_WORDS
from .frames import Frames

__all__ = ["Image", "Register", "bspi", "cor0", "read", "write"]


class Register:
    """Configuration registers by address (UG470, type 1 packet registers)."""

    CRC, FAR, FDRI, FDRO, CMD, CTL0, MASK, STAT, LOUT, COR0, MFWR = range(11)
    IDCODE, AXSS, COR1 = 12, 13, 14
    WBSTAR, TIMER, BOOTSTS, CTL1, BSPI = 16, 17, 22, 24, 31
    #: Not in UG470; Vivado writes 0 to it.
    UNNAMED = 19


class _Command:
    """Codes of the command register."""

    NULL, WCFG, MFW, LFRM, RCFG, START = range(6)
    RCRC, SWITCH, GRESTORE, SHUTDOWN, DGHIGH, DESYNC, IPROG = 7, 9, 10, 11, 3, 13, 15
    BSPI_READ, FALL_EDGE = 0x12, 0x13


_SYNC = 0xAA995566
_NOP = 0x2000_0000
#: Bus width detection pattern for parallel flash; without effect for serial flash.
_BUS_WIDTH = (0x0000_00BB, 0x1122_0044)
#: Most empty frames in a run: writing these takes fewer words than starting a new run.
_GAP = 1


#: Oscillator select of COR0 by MHz (UG470; 66 as in Vivado's images).
_OSCFSEL = {3: 0, 6: 1, 9: 2, 12: 3, 16: 4, 22: 6, 26: 7, 33: 10, 40: 13, 50: 17, 66: 24}
#: Width and opcode of the flash's fast read, by data lines.
_BSPI = {1: 0x0B, 2: 0x13B, 4: 0x26B}


def cor0(boot: Boot) -> int:
    """COR0: the board's clock rate, the rest as Vivado sets it; ValueError for an unknown rate."""
    if boot.rate not in _OSCFSEL:
        raise ValueError(f"no configuration rate of {boot.rate} MHz")
    return 0x0200_3FE5 | _OSCFSEL[boot.rate] << 17


def bspi(boot: Boot) -> int:
    """BSPI: width and opcode of the flash's read command; ValueError for other widths."""
    if boot.lanes not in _BSPI:
        raise ValueError(f"SPI flash has 1, 2 or 4 data lines, not {boot.lanes}")
    return _BSPI[boot.lanes]


@dataclass
class Image:
    """The content of a bitstream.

    Attributes
    ----------
    registers : dict of int to int
        Last value written to each register.
    frames : dict of int to list of int
        Every frame written, empty ones included.
    commands : list of int
    checked : int
        Number of CRC words, all correct: a wrong one is an error.
    size : int
        Bytes from the first to the last packet, leading pad words included.
    """

    registers: dict[int, int] = field(default_factory=dict)
    frames: Frames = field(default_factory=dict)
    commands: list[int] = field(default_factory=list)
    checked: int = 0
    size: int = 0


class _Crc:
    """CRC-32C over data and register address of each write, bit by bit from the low end."""

    _TABLE: tuple[int, ...] = ()

    def __init__(self):
        self.value = 0
        if not _Crc._TABLE:
            table = []
            for byte in range(256):
                for _ in range(8):
                    byte = byte >> 1 ^ (0x82F6_3B78 if byte & 1 else 0)
                table.append(byte)
            _Crc._TABLE = tuple(table)

    def add(self, register: int, word: int) -> None:
        """Adds one word that is written to a register."""
        crc, table = self.value, _Crc._TABLE
        for byte in word.to_bytes(4, "little"):
            crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
        for bit in range(5):
            crc = crc >> 1 ^ (0x82F6_3B78 if (crc ^ register >> bit) & 1 else 0)
        self.value = crc


def write(
    frames: Frames, columns: dict[int, int], idcode: int, boot: Boot, name: str, part: str
) -> bytes:
    """A `.bit` file.

    Parameters
    ----------
    frames : dict of int to list of int
    columns : dict of int to int
        First frame address of each column -> its number of frames.
    idcode : int
    boot : Boot
    name, part : str
        For the header, which programming tools show: design, and part without package options.
    """
    words = [0xFFFF_FFFF] * 8 + [*_BUS_WIDTH] + [0xFFFF_FFFF] * 2 + [_SYNC]
    crc = _Crc()

    def put(register: int, *values: int) -> None:
        words.append(
            1 << 29 | 2 << 27 | register << 13 | (len(values) if len(values) < 2048 else 0)
        )
        if len(values) >= 2048:
            words.append(2 << 29 | 2 << 27 | len(values))
        words.extend(values)
        for value in values:
            crc.add(register, value)

    def command(code: int, wait: int = 1) -> None:
        put(Register.CMD, code)
        words.extend([_NOP] * wait)

    words.append(_NOP)
    put(Register.BSPI, bspi(boot))
    command(_Command.BSPI_READ)
    put(Register.TIMER, 0)
    put(Register.WBSTAR, 0)
    command(_Command.NULL)
    put(Register.CMD, _Command.RCRC)
    crc.value = 0
    words.extend([_NOP] * 2)
    put(Register.UNNAMED, 0)
    put(Register.COR0, cor0(boot))
    put(Register.COR1, 0)
    put(Register.IDCODE, idcode)
    command(_Command.FALL_EDGE, 0)
    command(_Command.SWITCH)
    put(Register.MASK, 0x401)
    put(Register.CTL0, 0x501)
    put(Register.MASK, 0)
    put(Register.CTL1, 0)
    words.extend([_NOP] * 8)
    for address, run in _runs(frames, columns):
        put(Register.FAR, address)
        command(_Command.WCFG)
        put(Register.FDRI, *run, *[0] * FRAME_WORDS)
    put(Register.CRC, crc.value)
    words.extend([_NOP] * 2)
    crc.value = 0
    command(_Command.GRESTORE, 2)
    command(_Command.DGHIGH, 100)
    command(_Command.START)
    put(Register.FAR, 0x03BE_0000)
    put(Register.MASK, 0x501)
    put(Register.CTL0, 0x501)
    put(Register.CRC, crc.value)
    words.extend([_NOP] * 2)
    command(_Command.DESYNC, 400)
    body = struct.pack(f">{len(words)}I", *words)
    return _header(name, part, len(body)) + body


def _header(name: str, part: str, length: int) -> bytes:
    # A fixed time, so that the same sources make the same file.
    fields = (("a", name), ("b", part), ("c", "2026/01/01"), ("d", "00:00:00"))
    head = bytes.fromhex("00090ff00ff00ff00ff0000001")
    for key, text in fields:
        value = text.encode() + b"\0"
        head += key.encode() + struct.pack(">H", len(value)) + value
    return head + b"e" + struct.pack(">I", length)


def _runs(frames: Frames, columns: dict[int, int]) -> Iterator[tuple[int, list[int]]]:
    """Address and words of each run of frames that are not empty."""
    empty = [0] * FRAME_WORDS
    start, run, gap = None, [], 0
    row = None
    for column in sorted(columns):
        if column >> 17 != row:
            if start is not None:
                yield start, run
            start, run, gap, row = None, [], 0, column >> 17
        for address in range(column, column + columns[column]):
            words = frames.get(address)
            if words is not None and any(words):
                if start is None:
                    start = address
                run = run + empty * gap + words if gap else run + words
                gap = 0
            elif start is not None:
                gap += 1
                if gap > _GAP:
                    yield start, run
                    start, run, gap = None, [], 0
    if start is not None:
        yield start, run


def read(data: bytes, columns: dict[int, int]) -> Image:
    """Parses a bitstream, with or without the header of a `.bit` file.

    Raises
    ------
    ValueError
        If there is no bitstream in `data`, or a CRC in it is wrong.
    """
    at = data.find(_SYNC.to_bytes(4, "big"))
    if at < 0:
        raise ValueError("no synchronisation word: this is not a bitstream")
    count = (len(data) - at) // 4
    words = struct.unpack_from(f">{count}I", data, at)
    order = [a for column in sorted(columns) for a in range(column, column + columns[column])]
    place = {address: index for index, address in enumerate(order)}
    image, crc = Image(), _Crc()
    register, index, address, buffer = 0, 1, 0, [0] * FRAME_WORDS
    while index < count:
        header = words[index]
        index += 1
        kind, operation = header >> 29, header >> 27 & 3
        length = header & (0x7FF if kind == 1 else 0x7FF_FFFF)
        if kind == 1:
            register = header >> 13 & 31
        if operation != 2 or not length:
            continue
        values = words[index : index + length]
        index += length
        image.size = at % 4 + (index * 4)
        if register == Register.CRC:
            if values[0] != crc.value:
                raise ValueError(
                    f"CRC {values[0]:#010x} in the bitstream, should be {crc.value:#010x}"
                )
            image.checked += 1
            crc.value = 0
            continue
        for value in values:
            crc.add(register, value)
        if register == Register.FDRI:
            whole = [list(values[n : n + FRAME_WORDS]) for n in range(0, length, FRAME_WORDS)]
            # The last frame stays in the buffer: it is padding, or MFWR writes it several times.
            targets = list(_increments(order, place[address], len(whole)))
            image.frames.update(zip(targets[:-1], whole, strict=False))
            image.frames.pop(-1, None)
            address, buffer = targets[-1], whole[-1]
        elif register == Register.MFWR:
            image.frames[address] = buffer
        elif register == Register.FAR:
            address = values[-1]
        elif register == Register.CMD:
            image.commands.append(values[-1])
            if values[-1] == _Command.RCRC:
                crc.value = 0
            if values[-1] == _Command.DESYNC:
                break
        image.registers[register] = values[-1]
    return image


def _increments(order: list[int], first: int, count: int) -> Iterator[int]:
    """Addresses of `count` frames that are written from index `first` on; -1 for padding."""
    index = first
    while count > 0:
        yield order[index]
        count -= 1
        index += 1
        if index == len(order):
            yield from [-1] * count
            return
        if order[index] >> 17 != order[index - 1] >> 17:
            for _ in range(min(2, count)):
                yield -1
                count -= 1
