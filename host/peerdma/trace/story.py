# SPDX-License-Identifier: BSD-2-Clause
"""What the packets of a capture mean together: who talks to whom, which completion answers which
read, which packets belong to a descriptor.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import merge

import numpy as np

from .. import regs
from ..errors import PeerdmaError
from .capture import Capture, Event, Packet
from .frames import FrameRecords
from .registers import name_of
from .tlp import Kind, Tlp

__all__ = ["Counter", "Row", "Span", "Story", "tell"]

#: Ends of a TLP that are not the board.
HOST, GPU = "host", "GPU"
#: In the names of memory that a GPU has. CUDA's device memory is not among it: a client serves it
#: by messages, and the host copies.
_GPU_MEMORY = "aperture"
#: Addresses of interrupt messages: those of x86, and the simulated board's window for MSI-X.
_INTERRUPTS = (range(0xFEE0_0000, 0xFEF0_0000), range(0xFFFF_FFFF_FEE0_0000, 1 << 64))
_INTX = {0x20: "INTx on", 0x24: "INTx off"}
#: Bytes of each BAR.
_SIZES: dict[int, int] = dict((regs.BAR_USER, regs.BAR_DMA))
_CHANNELS = 4
_RUN = regs.CHANNEL["control"].field("run").mask
_FILL = {
    "transmit": ("transmit buffers used", "transmit"),
    "headers": ("completion headers held", "headers"),
    "data": ("completion data held, in 16 bytes", "data"),
    "ph": ("posted header credits", ""),
    "pd": ("posted data credits", ""),
    "nph": ("non-posted header credits", ""),
}


@dataclass
class Row:
    """A TLP and its meaning.

    Attributes
    ----------
    time : int
        Nanoseconds.
    up : bool
        The board sent it.
    party : str
        The other end: `HOST` or `GPU`.
    tlp : Tlp
    data : bytes
        The whole TLP.
    label : str
        What it does, in a few words.
    notes : tuple of str
        What became of it, if that is not usual.
    mate : int
        Row of the last completion of a read, or of the request of a completion; -1 if none.
    """

    time: int
    up: bool
    party: str
    tlp: Tlp
    data: bytes
    label: str
    notes: tuple[str, ...] = ()
    mate: int = -1


@dataclass(frozen=True)
class Span:
    """Something with a beginning and an end, in a track of its kind; `row` is its TLP, or -1."""

    track: str
    start: int
    end: int
    text: str
    row: int = -1


@dataclass
class Counter:
    """A value over time; `limit` is its largest, or 0 if that is not known."""

    name: str
    limit: int
    times: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)


@dataclass
class Story:
    """All that is shown of a capture."""

    rows: list[Row]
    spans: list[Span]
    counters: list[Counter]

    @property
    def end(self) -> int:
        """Nanoseconds of the last thing that happened."""
        ends = [self.rows[-1].time] if self.rows else []
        return max([*ends, *(span.end for span in self.spans)], default=0)


def tell(capture: Capture) -> Story:
    """Finds what the packets of a capture mean.

    Raises
    ------
    PeerdmaError
        If an event or a note is not as docs/trace.md has them.
    """
    teller = _Teller()
    # At the same time, events come first.
    both = merge(capture.events, capture.packets, key=lambda each: each.time)
    for each in both:
        try:
            teller.packet(each) if isinstance(each, Packet) else teller.event(each)
        except (KeyError, ValueError) as error:
            raise PeerdmaError(
                f"the capture is damaged at {each.time} ns, or from another version: {error!r}"
            ) from None
    return teller.end()


@dataclass
class _Descriptor:
    """A descriptor that was fetched, and from its first data on is at work.

    `first` and `length` are its bytes on the bus, `left` those that are left to move.
    """

    track: str
    start: int
    row: int
    first: int
    length: int
    left: int
    text: str
    at_work: bool = False


@dataclass
class _Fetch:
    """A read of descriptors under way: what has come of the one at `address`, and if it counts."""

    track: str
    address: int
    data: bytes = b""
    more: bool = True


class _Memory:
    """What is mapped for the board."""

    def __init__(self):
        #: (address, size, name)
        self._windows: list[tuple[int, int, str]] = []

    def map(self, address: int, size: int, name: str) -> None:
        insort(self._windows, (address, size, name))

    def unmap(self, address: int, size: int) -> None:
        """Size 0: all."""
        self._windows = [
            each for each in self._windows if size and not address <= each[0] < address + size
        ]

    def find(self, address: int) -> tuple[str, str]:
        """Who has the memory at an address, and a name for the place."""
        at = bisect_right(self._windows, (address, 1 << 64, ""))
        if at:
            start, size, name = self._windows[at - 1]
            if address < start + size:
                party = GPU if _GPU_MEMORY in name else HOST
                return party, f"{name.removeprefix('peerdma-')} + {address - start:#x}"
        return HOST, f"{address:#x}"


class _Teller:
    def __init__(self):
        self.rows: list[Row] = []
        self.spans: list[Span] = []
        self.counters: dict[str, Counter] = {}
        self._limits: dict[str, str] = {}
        self._memory = _Memory()
        #: (sent by the board, tag) of reads without all of their answer, and their rows
        self._reads: dict[tuple[bool, int], int] = {}
        #: bytes of a read of the board that have come, by its row
        self._answered: dict[int, int] = {}
        #: reads of descriptors under way, by their rows
        self._fetches: dict[int, _Fetch] = {}
        #: first descriptor of each channel as written: [low, high]
        self._first: dict[str, list[int]] = {}
        #: descriptors that were pushed for a channel's next run, with the first one's row
        self._pushed: dict[str, tuple[int, bytes]] = {}
        #: track of the channel that fetches a descriptor, by its address
        self._expected: dict[int, str] = {}
        self._at_work: dict[str, deque[_Descriptor]] = {}
        self._frames = FrameRecords()
        #: descriptor that a read of the board is for, by its row
        self._purpose: dict[int, _Descriptor] = {}
        self._waits: dict[str, tuple[int, str]] = {}
        #: the last of each track among `spans`
        self._last_waits: dict[str, int] = {}
        self._time = 0
        #: nanoseconds of a clock cycle
        self._period = 0.0

    # Events ------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        self._time = max(self._time, event.time)
        values = event.values
        if event.kind == "limits":
            self._limits = values
        elif event.kind == "clock":
            self._period = 1e6 / float(values["khz"])
        elif event.kind == "map":
            where = int(values["address"], 0), int(values["size"], 0)
            self._memory.map(*where, values["memory"])
        elif event.kind == "unmap":
            self._memory.unmap(int(values["address"], 0), int(values["size"], 0))
        elif event.kind == "fill":
            for key, value in values.items():
                self._count(event.time, *_FILL[key], int(value))
        elif event.kind == "waits":
            self._wait(event.time, int(values["for"], 0))
        elif event.kind == "reset":
            self._reset()

    def _count(self, time: int, name: str, limit: str, value: int) -> None:
        counter = self.counters.get(name)
        if counter is None:
            counter = self.counters[name] = Counter(name, int(self._limits.get(limit, "0")))
        if not counter.values or counter.values[-1] != value:
            counter.times.append(time)
            counter.values.append(value)

    def _wait(self, time: int, waits_for: int) -> None:
        for number in range(2 * _CHANNELS):
            name = ("H2C", "C2H")[number // _CHANNELS]
            track = f"{name} {number % _CHANNELS} waits"
            value = waits_for >> 4 * number & 15
            text = f"waits for {regs.waits_for_text(value)}" if value else ""
            since, before = self._waits.get(track, (time, ""))
            if text != before:
                if before:
                    self._waited(track, since, time, before)
                self._waits[track] = time, text

    def _waited(self, track: str, start: int, end: int, text: str) -> None:
        """Adds a span, to the one before if that is the same and a cycle apart."""
        last = self._last_waits.get(track)
        if last is not None:
            span = self.spans[last]
            if span.text == text and start - span.end <= self._period:
                self.spans[last] = replace(span, end=end)
                return
        self._last_waits[track] = len(self.spans)
        self.spans.append(Span(track, start, end, text))

    def _reset(self) -> None:
        self._reads.clear()
        self._expected.clear()
        self._pushed.clear()
        self._purpose.clear()
        self._frames.clear()
        for descriptors in self._at_work.values():
            for each in descriptors:
                self._close(each, self._time, "reset before its end")
        self._at_work.clear()

    # Packets -----------------------------------------------------------------------------------

    def packet(self, packet: Packet) -> None:
        self._time = max(self._time, packet.time)
        tlp = Tlp.decode(packet.data)
        if packet.up and "dropped" in "".join(packet.notes) and self._noted(packet):
            return
        row = Row(packet.time, packet.up, HOST, tlp, packet.data, tlp.kind, packet.notes)
        self.rows.append(row)
        if not packet.up and tlp.request:
            self._access(row, packet.notes)
        elif tlp.request:
            self._memory_request(row)
        elif tlp.kind in (Kind.DATA, Kind.COMPLETION):
            self._completion(row)
        elif tlp.kind == Kind.MESSAGE:
            row.label = _INTX.get(tlp.code, f"message {tlp.code:#04x}")

    def _noted(self, packet: Packet) -> bool:
        """Adds the notes to the row of a packet that was recorded when it was sent."""
        for row in reversed(self.rows[-64:]):
            if row.up and row.data == packet.data and not row.notes:
                row.notes = packet.notes
                return True
        return False

    def _access(self, row: Row, notes: tuple[str, ...]) -> None:
        """A register access of the host."""
        bar = next((int(note[3:]) for note in notes if note.startswith("BAR")), regs.BAR_DMA[0])
        row.notes = tuple(note for note in notes if not note.startswith("BAR"))
        tlp = row.tlp
        first = (tlp.first_be & -tlp.first_be).bit_length() - 1 if tlp.first_be else 0
        offset = (tlp.address & (_SIZES[bar] - 1)) + first
        name = name_of(bar, offset)
        if tlp.kind == Kind.READ:
            row.label = name
            self._reads[False, tlp.tag] = len(self.rows) - 1
            return
        count = min(tlp.first_be.bit_count() or 4, len(tlp.payload) - first)
        value = int.from_bytes(tlp.payload[first : first + count], "little")
        row.label = f"{name} = {value:#x}"
        for at in range(0, len(tlp.payload) - 3, 4):
            dword = int.from_bytes(tlp.payload[at : at + 4], "little")
            self._register_write(name_of(bar, offset - first + at), dword, row.time)

    def _register_write(self, name: str, value: int, time: int) -> None:
        channel, _, register = name.partition(".")
        if register in ("descriptor_lo", "descriptor_hi"):
            first = self._first.setdefault(channel, [0, 0])
            first[register == "descriptor_hi"] = value
            self._expected[first[1] << 32 | first[0]] = _track(channel)
            self._pushed.pop(channel, None)
        elif register.startswith("pushed["):
            if register == "pushed[0]":
                self._pushed[channel] = len(self.rows) - 1, b""
            row, data = self._pushed.get(channel, (-1, b""))
            self._pushed[channel] = row, data + value.to_bytes(4, "little")
        elif register in ("control", "control_w1s") and value & _RUN:
            # What a run before this one was stopped in.
            self._leave(_track(channel), time)
            row, data = self._pushed.pop(channel, (-1, b""))
            self._take(_track(channel), data, row, time)

    def _memory_request(self, row: Row) -> None:
        tlp = row.tlp
        if tlp.kind == Kind.WRITE and any(tlp.address in each for each in _INTERRUPTS):
            row.label = f"interrupt, message {int.from_bytes(tlp.payload[:4], 'little'):#x}"
            return
        row.party, place = self._memory.find(tlp.address)
        index = len(self.rows) - 1
        if tlp.kind == Kind.READ:
            self._reads[True, tlp.tag] = index
            purpose = self._descriptor_of("H2C", tlp.address)
            if tlp.address in self._expected and not purpose:
                row.label = f"fetch descriptors at {place}"
                track = self._expected.pop(tlp.address)
                self._fetches[index] = _Fetch(track, tlp.address)
                # What it reads next if this is not all of a block, before any of it has come.
                self._expected[tlp.address + tlp.length] = track
                return
            row.label = f"read {tlp.length} bytes of {place}"
            if purpose:
                self._purpose[index] = purpose
                self._moved(purpose, row.time, 0)
            return
        row.label = f"write {tlp.length} bytes to {place}"
        purpose = self._descriptor_of("C2H", tlp.address)
        if purpose:
            record = self._frames.written(purpose.track, purpose.length, tlp.payload)
            row.label = f"{record}, to {place}" if record else row.label
            self._moved(purpose, row.time, _enabled(tlp))

    def _completion(self, row: Row) -> None:
        tlp = row.tlp
        key = not row.up, tlp.tag
        index = self._reads.get(key)
        if index is None:
            row.label = f"{tlp.kind} that answers nothing"
            return
        request = self.rows[index]
        given = max(len(tlp.payload) - (tlp.lower_address & 3), 0)
        last = given >= tlp.byte_count or tlp.status
        row.mate, row.party = index, request.party
        if last:
            request.mate = len(self.rows) - 1
            del self._reads[key]
        if row.up:
            value = int.from_bytes(tlp.payload[tlp.lower_address & 3 :][: tlp.byte_count], "little")
            row.label = f"{request.label} is {value:#x}"
            self.spans.append(Span("register reads", request.time, row.time, row.label, index))
        else:
            place = self._memory.find(request.tlp.address + self._answered.get(index, 0))[1]
            self._answered[index] = self._answered.get(index, 0) + tlp.length
            row.label = f"{tlp.length} bytes of {place}"
        if tlp.status:
            row.label = f"{request.label}: {tlp.fields()['status']}"
        if index in self._fetches:
            row.label = "descriptors"
            self._descriptors(index, tlp.payload, row.time)
            if last:
                del self._fetches[index]
        purpose = self._purpose.get(index)
        if purpose:
            self._moved(purpose, row.time, min(given, tlp.byte_count))

    # Descriptors -------------------------------------------------------------------------------

    def _descriptors(self, index: int, payload: bytes, time: int) -> None:
        """Takes those that have come whole: they are at work before the others have come."""
        fetch = self._fetches[index]
        fetch.data += payload
        while fetch.more and len(fetch.data) >= 32:
            found, fetch.data = fetch.data[:32], fetch.data[32:]
            # What came with the one before needs no fetch of its own.
            self._expected.pop(fetch.address, None)
            fetch.more = self._take(fetch.track, found, index, time)
            fetch.address += 32
        if not fetch.more:
            request = self.rows[index].tlp
            self._expected.pop(request.address + request.length, None)

    def _take(self, track: str, data: bytes, row: int, time: int) -> bool:
        """Descriptors that a channel has now, by the TLP of `row`; whether more follow."""
        for found in np.frombuffer(data[: len(data) // 32 * 32], regs.DESCRIPTOR):
            control, length = int(found["control"]), int(found["length"])
            source, destination = int(found["source"]), int(found["destination"])
            if control >> 16 != regs.DESC_MAGIC:
                return False
            first = destination if track.startswith("C2H") else source
            text = f"{length} bytes, {source:#x} to {destination:#x}"
            self._at_work.setdefault(track, deque()).append(
                _Descriptor(track, time, row, first, length, length, text)
            )
            following = int(found["next"])
            if control & regs.DESC_STOP:
                return False
            self._expected[following] = track
        return True

    def _descriptor_of(self, direction: str, address: int) -> _Descriptor | None:
        for track, descriptors in self._at_work.items():
            if track.startswith(direction):
                for each in descriptors:
                    if each.first & ~3 <= address < each.first + each.length:
                        return each
        return None

    def _moved(self, descriptor: _Descriptor, time: int, count: int) -> None:
        descriptor.start = descriptor.start if descriptor.at_work else time
        descriptor.at_work = True
        descriptor.left -= count
        if descriptor.left <= 0:
            self._close(descriptor, time)
            work = self._at_work.get(descriptor.track)
            if work and descriptor in work:
                work.remove(descriptor)

    def _leave(self, track: str, time: int) -> None:
        """Closes the descriptors that a channel still has."""
        for each in self._at_work.pop(track, ()):
            self._close(each, time, f"{each.left} bytes not moved")

    def _close(self, descriptor: _Descriptor, time: int, note: str = "") -> None:
        text = f"{descriptor.text}, {note}" if note else descriptor.text
        self.spans.append(Span(descriptor.track, descriptor.start, time, text, descriptor.row))

    # -------------------------------------------------------------------------------------------

    def end(self) -> Story:
        for track, (since, text) in self._waits.items():
            if text:
                self._waited(track, since, self._time, text)
        for track in list(self._at_work):
            self._leave(track, self._time)
        counters = [each for each in self.counters.values() if len(each.values) > 1]
        return Story(self.rows, sorted(self.spans, key=lambda span: span.start), counters)


def _track(channel: str) -> str:
    """ "H2C 0" of "h2c0"."""
    return f"{channel[:3].upper()} {channel[3:]}"


def _enabled(tlp: Tlp) -> int:
    """Bytes that a write writes."""
    if tlp.last_be == 0:
        return tlp.first_be.bit_count()
    return tlp.length - 8 + tlp.first_be.bit_count() + tlp.last_be.bit_count()
