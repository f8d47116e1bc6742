# SPDX-License-Identifier: BSD-2-Clause
"""What the card must hold and what it may touch: models of card RAM, of a pair, and of permission.

Where something was interrupted, a byte is known to be one of several: what was there before, or
what was on its way. Anything else is an error, and reading one settles which it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from cocotbext.pcie.core.tlp import Tlp, TlpType

from peerdma import regs
from peerdma.testing import pattern

__all__ = ["CardRam", "FramePair", "Pair", "Scope", "Span", "check_either"]

_WRITES = {TlpType.MEM_WRITE, TlpType.MEM_WRITE_64}
#: No value.
_NONE = -1


class CardRam:
    """What card RAM may hold."""

    def __init__(self) -> None:
        # As configuration leaves block RAM.
        self._value = np.zeros(regs.CARD_RAM_SIZE, np.int16)
        self._others: list[np.ndarray] = []

    def write(self, start: int, data: bytes) -> None:
        """These bytes are there for sure."""
        where = slice(start, start + len(data))
        self._value[where] = np.frombuffer(data, np.uint8)
        for other in self._others:
            other[where] = _NONE
        self._others = [other for other in self._others if (other != _NONE).any()]

    def maybe(self, start: int, data: bytes) -> None:
        """Each of these bytes may have been written."""
        if data:
            other = np.full(regs.CARD_RAM_SIZE, _NONE, np.int16)
            other[start : start + len(data)] = np.frombuffer(data, np.uint8)
            self._others.append(other)

    def expect(self, start: int, found: bytes) -> None:
        """Fail unless card RAM may hold these bytes; from now on it does."""
        data = np.frombuffer(found, np.uint8)
        where = slice(start, start + len(found))
        good = self._value[where] == data
        for other in self._others:
            good |= other[where] == data
        if not good.all():
            at = int(np.argmin(good))
            raise AssertionError(
                f"card RAM at {start + at:#x}, byte {at} of {len(found)}: found {found[at]:#04x},"
                f" expected {self.allowed(start + at)}; found {found[at : at + 8].hex()}"
            )
        self.write(start, found)

    def allowed(self, at: int) -> set[int]:
        """What the byte at `at` may be."""
        values = {int(array[at]) for array in (self._value, *self._others)}
        return values - {_NONE}

    def options(self, start: int, size: int) -> list[np.ndarray]:
        """Arrays of which each byte may be the one there; `_NONE` where it says nothing."""
        return [array[start : start + size] for array in (self._value, *self._others)]


def check_either(name: str, found: bytes, before: bytes, options: list[np.ndarray]) -> None:
    """Fail unless each byte is as it was before, or one that was to come."""
    data = np.frombuffer(found, np.uint8)
    good = np.frombuffer(before, np.uint8) == data
    for option in options:
        good |= option == data
    if not good.all():
        at = int(np.argmin(good))
        raise AssertionError(
            f"{name}: byte {at} is {found[at]:#04x}, neither what was there, {before[at]:#04x},"
            f" nor what was to come, {[int(option[at]) for option in options]}"
        )


class Pair:
    """The user stream of a pair: bytes in order, from H2C runs to C2H runs."""

    def __init__(self) -> None:
        self._sent = bytearray()
        self._taken = 0
        #: something that is not known stays in it
        self.unknown = False

    @property
    def left(self) -> int:
        """Bytes that were sent and that nobody has asked for."""
        return len(self._sent) - self._taken

    def send(self, data: bytes) -> None:
        """An H2C run that sends these bytes has begun."""
        self._sent += data

    def take(self, size: int) -> int:
        """A C2H run that takes so many bytes has begun; returns where they are."""
        self._taken += size
        return self._taken - size

    def bytes_at(self, at: int, size: int, found: bytes) -> bytes:
        """Those that a C2H run took from `at`; fewer if fewer were sent.

        `found` is what it wrote, for those that nobody can know.
        """
        return bytes(self._sent[at : at + size])

    def empty(self) -> None:
        """It was flushed."""
        self._sent.clear()
        self._taken = 0
        self.unknown = False


class FramePair(Pair):
    """The user stream of a pair with the pattern source: frame after frame, some with records.

    Attributes
    ----------
    seed, nbytes : int
        Seed of the first frame, and the length of all.
    records : bool
    drops : bool
        Frames may be dropped that come while there is no room.
    kept : int
        Bytes that were taken if it was not flushed: where it is open whether it was. A `packet`
        that is taken tells.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seed = self.nbytes = 0
        self.records = self.drops = False
        self.kept = self._first = 0
        #: bytes of `_sent` that nobody can know
        self._free = bytearray()
        self._frames = 0

    def bytes_at(self, at: int, size: int, found: bytes) -> bytes:
        """As of `Pair`; there are always enough. `found` tells what is open, too."""
        if self.kept:
            # Each record has another number.
            assert size >= self.packet, f"{size} bytes do not tell whether the pair was flushed"
            if self._bytes_at(self.kept + at, size, found) == found:
                self._first = self.kept
            self.kept = 0
        return self._bytes_at(self._first + at, size, found)

    def _bytes_at(self, at: int, size: int, found: bytes) -> bytes:
        while len(self._sent) < at + size:
            self._next()
        free = self._free[at : at + size]
        sent = self._sent[at : at + size]
        return bytes(
            theirs if open_ else ours for ours, theirs, open_ in zip(sent, found, free, strict=True)
        )

    def frame(self, number: int) -> bytes:
        """The bytes of a frame."""
        return pattern.fill_bytes(self.seed + number, 0, self.nbytes).tobytes()

    def record(self, number: int) -> tuple[bytes, bytes]:
        """The record of a frame, and which of its bits nobody can know."""
        data = self.frame(number)
        record, free = np.zeros((2, 1), regs.FRAME_RECORD)
        record["bytes"], record["crc"] = len(data), zlib.crc32(data)
        record["number"] = regs.FRAME_NUMBER_VALID | number
        free["cycles"] = free["reserved"] = (1 << 64) - 1
        free["dropped"] = ((1 << 32) - 1) * self.drops
        return record.tobytes(), free.tobytes()

    @property
    def packet(self) -> int:
        """Bytes of a frame with its record."""
        return self.nbytes + regs.FRAME_RECORD.itemsize

    def skip(self, frames: int) -> None:
        """It was flushed, and so many frames were taken since, each with its record."""
        self.empty()
        self._first = frames * self.packet

    def skip_or_empty(self, frames: int) -> None:
        """As `skip`, or it was flushed once more behind that."""
        self.empty()
        self.kept = frames * self.packet

    def _next(self) -> None:
        data = self.frame(self._frames)
        self.send(data)
        self._free += bytes(len(data))
        if self.records:
            record, free = self.record(self._frames)
            self.send(record)
            self._free += free
        self._frames += 1

    def empty(self) -> None:
        """It was flushed: the first frame comes next."""
        super().empty()
        self._free.clear()
        self._frames = self._first = self.kept = 0


@dataclass
class Span:
    """Bus addresses that the card may read, or write once; those of tickets it reads once, too.

    `heard` is called with each TLP that touches it.
    """

    name: str
    start: int
    stop: int
    write: bool
    #: bytes that have not been written, or read
    left: int
    heard: Callable[[Tlp], None] | None = None
    touched: bool = False


class Scope:
    """Judge of the addresses that the card uses: what software gave it, while it has it."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def allow(
        self,
        name: str,
        start: int,
        size: int,
        *,
        write: bool,
        heard: Callable[[Tlp], None] | None = None,
    ) -> Span:
        """Let the card use these addresses until `revoke`."""
        span = Span(name, start, start + size, write, size, heard)
        self._spans.append(span)
        return span

    def revoke(self, spans: list[Span]) -> None:
        """The card may use these no longer."""
        gone = set(map(id, spans))
        self._spans = [span for span in self._spans if id(span) not in gone]

    def listen(self, direction: str, tlp: Tlp) -> None:
        """A TLP at the core's ports, as `Series7Device.on_tlp` tells of them."""
        if direction != "up" or tlp.is_completion():
            return
        start = tlp.address + tlp.get_first_be_offset()
        stop = start + tlp.get_be_byte_count()
        write = tlp.fmt_type in _WRITES
        for span in self._spans:
            if span.write == write and span.start <= start and stop <= span.stop:
                break
        else:
            raise AssertionError(
                f"the core {'writes to' if write else 'reads'} {start:#x} to {stop:#x}, which is"
                " not, or no longer, its to use"
            )
        span.touched = True
        span.left -= stop - start
        if span.heard:
            span.heard(tlp)
