# SPDX-License-Identifier: BSD-2-Clause
"""A user-space driver for the engine: descriptor chains, completion, errors, recovery.

Works on any XDMA-compatible core (PG195); where the extension block is there it also uses that
for sizes, time scale, error capture, the user stream and reset.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np

from ..errors import Timeout, TransferError
from ..memory.scatter import ScatterList
from ..regs import (
    CARD_RAM_SIZE,
    DESC_MAX_LENGTH,
    EXTENSION,
    PASS_THROUGH,
    STREAM_WINDOW,
    Capability,
    ErrorKind,
    Status,
)
from .chain import write_chain
from .dma_channel import Direction, DmaChannel
from .prepared import Prepared, Side
from .probe import count_channels, read_extension
from .registers import Bank, Registers

__all__ = ["Deadline", "Direction", "Xdma", "stream_columns"]

#: A chain is given this much of the board's time, plus the time of its bytes at this rate.
_CHAIN_SECONDS, _CHAIN_RATE = 0.1, 1e6
#: ... and never less than this, since the machine may be busy.
_LEAST_TIMEOUT = 10.0
#: A stopped channel finishes what is under way within this much of the board's time.
_STOP_SECONDS = 0.1
_BUSY = int(Status.BUSY)
_ALL_PAIRS = EXTENSION["stream_flush"].writable


class Xdma:
    """The engine behind a register interface.

    Parameters
    ----------
    registers : Registers
    ring : numpy.ndarray of DESCRIPTOR
        Memory for descriptors that the board can read.
    ring_address : int
        Its bus address, a multiple of 4 KiB.
    timeout : float or None
        Seconds to wait for one chain; None: by its size and the board's time scale.

    Attributes
    ----------
    extension : Extension or None
        None on a plain XDMA core.
    channels : tuple of int
        Number of H2C and of C2H channels.

    Raises
    ------
    BoardNotFound
        If what answers is no XDMA-compatible engine with a channel each way.
    VersionMismatch
        If its extension block has another major version.
    """

    def __init__(
        self, registers: Registers, ring: np.ndarray, ring_address: int, timeout: float | None
    ):
        self.registers = registers
        self._ring = ring
        #: the same, in bytes
        self.ring_bytes = ring.view(np.uint8).data
        self._ring_address = ring_address
        self._timeout = timeout
        #: Why no more transfers can be made, once a channel could not be stopped.
        self._stuck: str | None = None
        self.channels = count_channels(registers)
        self.extension = read_extension(registers)
        self._extension_bank = Bank(registers, EXTENSION)
        self._clock = [self._extension_bank.place(f"cycles_{half}") for half in ("lo", "hi")]
        self.card_ram_size = self.extension.card_ram_size if self.extension else CARD_RAM_SIZE
        self._channels = {
            Direction.H2C: DmaChannel(registers, Direction.H2C, 1),
            Direction.C2H: DmaChannel(registers, Direction.C2H, 1 << self.channels[0]),
        }
        self.stop(Direction)
        self.flush()

    def transfer(self, direction: Direction, memory: ScatterList, card_address: int) -> int:
        """Moves all of `memory` to (H2C) or from (C2H) the card; returns busy clock cycles.

        Raises
        ------
        TransferError, Timeout
            The engine has then been stopped: nothing moves any more, and the next transfer
            starts clean. How much was moved is unknown.
        """
        addresses, lengths = memory.pieces_up_to(DESC_MAX_LENGTH)
        cards = np.uint64(card_address) + np.cumsum(lengths, dtype=np.uint64) - lengths
        return self._run([_Transfer(direction, addresses, cards, lengths)])[direction]

    @property
    def user_block(self) -> str | None:
        """Name of the user block between H2C and C2H; None if the board has no stream."""
        if self.extension is None or Capability.STREAM not in self.extension.capabilities:
            return None
        return self.extension.user_block

    @property
    def copies(self) -> bool:
        """Whether what goes through `stream` comes out as it was."""
        return self.user_block == PASS_THROUGH

    def stream(self, source: ScatterList, destination: ScatterList) -> int:
        """Moves all of `source` through the user block to `destination`, both ways at once.

        What the user block makes of the bytes decides how long the two may be. Returns the clock
        cycles until the last byte was written, and raises as `transfer` does.
        """
        # The receiving side first: its counter then covers the whole copy.
        sides = [
            _Transfer(direction, *stream_columns(memory))
            for direction, memory in ((Direction.C2H, destination), (Direction.H2C, source))
        ]
        return self._run(sides)[Direction.C2H]

    def prepare(self, source: ScatterList, destination: ScatterList) -> Prepared | None:
        """What `stream` does with these, to be done more than once.

        None if it takes more than a chain for one of them, or there is nothing to move.
        """
        share = len(self._ring) // 2
        sides = []
        for index, (direction, memory) in enumerate(
            ((Direction.C2H, destination), (Direction.H2C, source))
        ):
            bus, card, lengths = stream_columns(memory)
            if not 0 < len(lengths) <= share:
                return None
            place = index * share * self._ring.itemsize
            columns = (bus, card) if direction is Direction.H2C else (card, bus)
            sides.append(
                Side(
                    direction,
                    self._channels[direction],
                    place,
                    self._ring_address + place,
                    (*columns, lengths),
                )
            )
        return Prepared(self, sides)

    def clock(self) -> int | None:
        """The board's free-running cycle count; None if it has none."""
        if self.extension is None:
            return None
        # Reading the lower half keeps the upper one for the next read.
        read, (low, high) = self.registers.read32, self._clock
        lower = read(*low)
        return read(*high) << 32 | lower

    def flush(self) -> None:
        """Drops what is left in the user stream."""
        if self.user_block is not None:
            self._extension_bank.write("stream_flush", _ALL_PAIRS)

    # Chains ----------------------------------------------------------------------------------

    def _run(self, transfers: list[_Transfer]) -> dict[Direction, int]:
        """Runs transfers of different directions side by side; busy cycles of each."""
        # Each has its own part of the ring, on a boundary that blocks respect.
        share = len(self._ring) // len(transfers)
        under_way = {each.direction: each for each in transfers}
        cycles = dict.fromkeys(under_way, 0)
        deadline = self.deadline(sum(each.nbytes for each in transfers))
        try:
            for index, each in enumerate(transfers):
                each.ring = slice(index * share, (index + 1) * share)
                self._start(each)
            while under_way:
                for direction, status in self._wait(under_way, deadline).items():
                    each, channel = under_way[direction], self._channels[direction]
                    self.check(direction, status, each.running)
                    cycles[direction] += channel.busy_cycles()
                    channel.disarm()
                    if each.left:
                        self._start(each)
                    else:
                        del under_way[direction]
        except BaseException:
            # Memory may be unmapped next: nothing may be moving by then.
            self.stop(cycles)
            raise
        return cycles

    def _start(self, transfer: _Transfer) -> None:
        """Starts the next chain of a transfer, as long as its part of the ring allows."""
        columns = transfer.next(transfer.ring.stop - transfer.ring.start)
        self.start(transfer.direction, transfer.ring.start, *columns)

    @property
    def ring_size(self) -> int:
        """Descriptors that one chain can have."""
        return len(self._ring)

    def start(
        self,
        direction: Direction,
        first: int,
        bus: np.ndarray,
        card: np.ndarray,
        lengths: np.ndarray,
        *,
        completed: np.ndarray | None = None,
        cyclic: bool = False,
    ) -> None:
        """Starts a chain of descriptors, laid out from entry `first` of the ring on.

        `completed` and `cyclic` are as for `write_chain`.
        """
        self.require_sound()
        source, destination = (bus, card) if direction is Direction.H2C else (card, bus)
        address = self._ring_address + first * self._ring.itemsize
        adjacent = write_chain(
            self._ring[first:], address, source, destination, lengths, completed, cyclic
        )
        self._channels[direction].start(address, adjacent)

    def require_sound(self) -> None:
        """TransferError if a channel could not be stopped."""
        if self._stuck:
            raise TransferError(self._stuck)

    def seconds_for(self, nbytes: int) -> float:
        """How long a chain of so many bytes may take."""
        if self._timeout is not None:
            return self._timeout
        board_seconds = _CHAIN_SECONDS + nbytes / _CHAIN_RATE
        return max(_LEAST_TIMEOUT, board_seconds * self._time_scale)

    def deadline(self, nbytes: int) -> Deadline:
        """By when a chain of so many bytes that starts now must have ended."""
        return Deadline(self.seconds_for(nbytes))

    def statuses(self, directions: Iterable[Direction], deadline: Deadline) -> dict[Direction, int]:
        """Waits for an interrupt; what it says of those channels, if anything. Empty if late."""
        channels = {direction: self._channels[direction] for direction in directions}
        while self.registers.wait_interrupt(deadline.left()):
            found = {direction: channel.take_status() for direction, channel in channels.items()}
            self.registers.interrupt_done()
            told = {key: status for key, status in found.items() if status & ~_BUSY}
            if told:
                return told
        return {}

    def _wait(
        self, under_way: dict[Direction, _Transfer], deadline: Deadline
    ) -> dict[Direction, int]:
        told = self.statuses(under_way, deadline)
        if told:
            return told
        direction = next(iter(under_way))
        raise self.late(direction, under_way[direction].nbytes, deadline.seconds)

    def late(self, direction: Direction, nbytes: int, seconds: float) -> Timeout:
        """The error for a run of which nothing was heard for so long."""
        channel = self._channels[direction]
        return Timeout(
            f"{direction.name} transfer of {nbytes} bytes: no interrupt within {seconds:g} s; "
            f"status {Status(channel.status())!r}, {channel.completed()} descriptors finished. The "
            "channel was stopped; try again, with a longer timeout if the machine is slow"
        )

    def busy_cycles(self, direction: Direction) -> int:
        """Clock cycles that the last run of a channel took up to now."""
        return self._channels[direction].busy_cycles()

    def completed(self, direction: Direction) -> int:
        """Descriptors of a channel's run that are finished, modulo 2**32."""
        return self._channels[direction].completed()

    def check(self, direction: Direction, status: int, descriptors: int) -> None:
        """TransferError unless a chain of so many descriptors ended well."""
        done = self.completed(direction)
        expected = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED
        if status & ~_BUSY != expected or done != descriptors:
            raise self.failure(direction, status, f"{done} of {descriptors} descriptors")

    def failure(self, direction: Direction, told: int, after: str) -> TransferError:
        """The error for a run that ended with this status; takes what the board captured."""
        status = Status(told)
        wrong = [bit.name for bit in Status if bit in status & Status.errors() and bit.name]
        names = " | ".join(wrong) or f"unexpected {status!r}"
        kind = address = None
        if self.extension is not None:
            bank = self._extension_bank
            info = bank.fields("error_info")
            kind = info["kind"]
            if kind != ErrorKind.NONE:
                address = bank.read("error_address_lo") | bank.read("error_address_hi") << 32
                names += f"; first error {_kind_name(kind)} at address {address:#x}"
                if info["descriptor"]:
                    names += ", fetching a descriptor"
            bank.write("error_clear", 1)
        return TransferError(
            f"{direction.name} transfer failed after {after}: {names}. The channel was stopped; "
            "check that both memories were still pinned, and try again",
            status=int(status),
            kind=kind,
            address=address,
        )

    # Stop ------------------------------------------------------------------------------------

    def stop(self, directions: Iterable[Direction]) -> None:
        """Ends runs, and makes sure that nothing moves any more; without a board does nothing."""
        if self.registers.lost:
            return
        channels = [self._channels[direction] for direction in directions]
        for channel in channels:
            channel.disarm()
        for channel in channels:
            if not self._comes_to_rest(channel):
                self._stuck = (
                    f"the {channel.direction.name} channel does not stop, so no transfer can be "
                    "made. Close the board and open it again, which resets it"
                )
            channel.take_status()

    def _comes_to_rest(self, channel: DmaChannel) -> bool:
        seconds = max(1.0, _STOP_SECONDS * self._time_scale)
        if channel.goes_idle(seconds):
            return True
        if self.extension is None:
            return False
        self._extension_bank.write("soft_reset", 1)
        return channel.goes_idle(seconds)

    @property
    def _time_scale(self) -> int:
        return self.extension.time_scale if self.extension else 1


def stream_columns(memory: ScatterList) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bus addresses, card addresses, lengths) of descriptors between memory and user stream."""
    addresses, lengths = memory.pieces_up_to(DESC_MAX_LENGTH)
    return addresses, np.full(len(lengths), STREAM_WINDOW, np.uint64), lengths


class _Transfer:
    """One direction of a transfer: what is left of it, in descriptors."""

    def __init__(
        self, direction: Direction, bus: np.ndarray, card: np.ndarray, lengths: np.ndarray
    ):
        self.direction = direction
        self.nbytes = int(lengths.sum())
        self.ring = slice(0, 0)
        #: descriptors of the chain that runs
        self.running = 0
        self._columns: Sequence[np.ndarray] = (bus, card, lengths)

    @property
    def left(self) -> int:
        """Descriptors not yet given to the board."""
        return len(self._columns[0])

    def next(self, most: int) -> list[np.ndarray]:
        """Bus addresses, card addresses and lengths of the next chain."""
        chain = [column[:most] for column in self._columns]
        self._columns = [column[most:] for column in self._columns]
        self.running = len(chain[0])
        return chain


class Deadline:
    """So many seconds from now."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; 0 when over."""
        return max(0.0, self._end - time.monotonic())


def _kind_name(kind: int) -> str:
    return ErrorKind(kind).name.lower().replace("_", " ") if kind in set(ErrorKind) else str(kind)
