# SPDX-License-Identifier: BSD-2-Clause
"""A user-space driver for the engine: probe, descriptor chains, completion, errors, recovery.

Works on any XDMA-compatible core (PG195); where the extension block is there it also uses that
for sizes, time scale, error capture and reset.
"""

from __future__ import annotations

import enum
import time
from typing import Protocol

import numpy as np

from .backend import Extension
from .chain import write_chain
from .errors import BoardNotFound, Timeout, TransferError, VersionMismatch
from .link import Link
from .regs import (
    BAR_DMA,
    C2H_CHANNEL_BASE,
    C2H_SGDMA_BASE,
    CARD_RAM_SIZE,
    CHANNEL,
    DESC_MAX_LENGTH,
    EXTENSION,
    EXTENSION_MAGIC,
    EXTENSION_VERSION,
    IRQ,
    SGDMA,
    STREAM_WINDOW,
    Block,
    Capability,
    ErrorKind,
    Status,
    identifier,
)
from .scatter import ScatterList

__all__ = ["Direction", "Registers", "Xdma"]

_ALL_BITS = 0xFFFF_FFFF
_MAX_CHANNELS = 4
#: Run with every event logged; errors stop the engine.
_START = sum(
    field.mask
    for field in CHANNEL["control"].fields
    if field.name == "run" or field.name.startswith("ie_")
)
_PERF = CHANNEL["perf_control"]
_PERF_CLEAR = _PERF.field("clear").mask
_PERF_COUNT = _PERF.field("run").mask | _PERF.field("auto").mask
#: A chain is given this much of the board's time, plus the time of its bytes at this rate.
_CHAIN_SECONDS, _CHAIN_RATE = 0.1, 1e6
#: ... and never less than this, since the machine may be busy.
_LEAST_TIMEOUT = 10.0
#: No simulation is so much slower than real time.
_MOST_TIME_SCALE = 1_000_000
#: A stopped channel finishes what is under way within this much of the board's time.
_STOP_SECONDS = 0.1


class Direction(enum.Enum):
    """Which way a channel moves data; the values are its register bases."""

    H2C = (CHANNEL.base, SGDMA.base)
    C2H = (C2H_CHANNEL_BASE, C2H_SGDMA_BASE)


class Registers(Protocol):
    """The platform, as the driver sees it."""

    def read32(self, bar: int, offset: int) -> int:
        """The register at byte `offset` of a BAR."""
        ...

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Writes the register at byte `offset` of a BAR; may be posted."""
        ...

    def wait_interrupt(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds; False if no interrupt came."""
        ...

    def interrupt_done(self) -> None:
        """The cause of the interrupt has been removed."""
        ...

    @property
    def lost(self) -> bool:
        """True once the board is gone."""
        ...


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
        self._registers = registers
        self._ring = ring
        self._ring_address = ring_address
        self._timeout = timeout
        #: Why no more transfers can be made, once a channel could not be stopped.
        self._stuck: str | None = None
        self.channels = (self._count_channels(Direction.H2C), self._count_channels(Direction.C2H))
        if not all(self.channels):
            first = registers.read32(BAR_DMA[0], CHANNEL.address("identifier"))
            raise BoardNotFound(
                f"asked for an XDMA-compatible engine; found {self.channels[0]} H2C and "
                f"{self.channels[1]} C2H memory-mapped channels behind BAR {BAR_DMA[0]}, where "
                f"one each is needed (the first register reads {first:#010x}; all ones is nobody). "
                "Check that this is a peerdma board and that its design is loaded"
            )
        self.extension = self._probe_extension()
        self.card_ram_size = self.extension.card_ram_size if self.extension else CARD_RAM_SIZE
        for direction in Direction:
            self._stop(direction)

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
    def streams(self) -> bool:
        """Whether `copy` works: the board has a user stream from H2C to C2H."""
        return self.extension is not None and Capability.STREAM in self.extension.capabilities

    def copy(self, source: ScatterList, destination: ScatterList) -> int:
        """Moves all of `source` to `destination` in one pass, both directions at once.

        What a user block makes of the bytes decides how long the two may be. Returns the clock
        cycles until the last byte was written, and raises as `transfer` does.
        """
        sides = []
        # The receiving side first: its counter then covers the whole copy.
        for direction, memory in ((Direction.C2H, destination), (Direction.H2C, source)):
            addresses, lengths = memory.pieces_up_to(DESC_MAX_LENGTH)
            cards = np.full(len(lengths), STREAM_WINDOW, np.uint64)
            sides.append(_Transfer(direction, addresses, cards, lengths))
        return self._run(sides)[Direction.C2H]

    # Probe -----------------------------------------------------------------------------------

    def _count_channels(self, direction: Direction) -> int:
        target = direction.value[0] >> 12
        for channel in range(_MAX_CHANNELS):
            offset = CHANNEL.address("identifier", channel, direction.value[0])
            found = self._registers.read32(BAR_DMA[0], offset)
            # The lowest byte is the version of the vendor's core; no driver minds it.
            if found & ~0xFF != identifier(target, channel) & ~0xFF:
                return channel
        return _MAX_CHANNELS

    def _probe_extension(self) -> Extension | None:
        if self._read(EXTENSION, "magic") != EXTENSION_MAGIC:
            return None
        version = self._read(EXTENSION, "version")
        register = EXTENSION["version"]
        found = (register.field("major").get(version), register.field("minor").get(version))
        if found[0] != EXTENSION_VERSION[0]:
            raise VersionMismatch(
                f"the board's register map is version {found[0]}.{found[1]}, this library knows "
                f"{EXTENSION_VERSION[0]}.x (up to {EXTENSION_VERSION[1]}); update the older of "
                "the two"
            )
        self._write(EXTENSION, "error_clear", 1)
        time_scale = self._read(EXTENSION, "time_scale")
        if time_scale > _MOST_TIME_SCALE:
            raise BoardNotFound(
                f"asked the board how much slower than real time it runs; found {time_scale:#x}, "
                f"where up to {_MOST_TIME_SCALE} makes sense. Its registers cannot be relied on: "
                "check the gateware, and the link"
            )
        return Extension(
            version=found,
            capabilities=Capability(self._read(EXTENSION, "capabilities")),
            card_ram_size=self._read(EXTENSION, "card_ram_size"),
            link=self._read_link(),
            clock_khz=self._read(EXTENSION, "clock_khz"),
            time_scale=max(1, time_scale),
        )

    def _read_link(self) -> Link:
        value = self._read(EXTENSION, "link")

        def field(name: str) -> int:
            return EXTENSION["link"].field(name).get(value)

        return Link(
            speed=field("speed"),
            width=field("width"),
            max_payload=128 << field("max_payload"),
            max_read_request=128 << field("max_read_request"),
            rcb=128 if field("rcb") else 64,
        )

    # Chains ----------------------------------------------------------------------------------

    def _run(self, transfers: list[_Transfer]) -> dict[Direction, int]:
        """Runs transfers of different directions side by side; busy cycles of each."""
        if self._stuck:
            raise TransferError(self._stuck)
        # Each has its own part of the ring, on a boundary that blocks respect.
        share = len(self._ring) // len(transfers)
        under_way = {each.direction: each for each in transfers}
        cycles = dict.fromkeys(under_way, 0)
        deadline = _Deadline(self._limit(sum(each.nbytes for each in transfers)))
        try:
            for index, each in enumerate(transfers):
                each.ring = slice(index * share, (index + 1) * share)
                self._start(each)
            while under_way:
                for direction, status in self._wait(under_way, deadline).items():
                    each = under_way[direction]
                    self._finish(each, status)
                    cycles[direction] += self._busy_cycles(direction)
                    self._stop(direction, running=False)
                    if each.left:
                        self._start(each)
                    else:
                        del under_way[direction]
        except BaseException:
            # Memory may be unmapped next: nothing may be moving by then.
            if not self._registers.lost:
                for direction in cycles:
                    self._stop(direction)
            raise
        return cycles

    def _start(self, transfer: _Transfer) -> None:
        """Starts the next chain of a transfer, as long as its part of the ring allows."""
        direction, ring = transfer.direction, self._ring[transfer.ring]
        address = self._ring_address + transfer.ring.start * self._ring.itemsize
        bus, card, lengths = transfer.next(len(ring))
        source, destination = (bus, card) if direction is Direction.H2C else (card, bus)
        adjacent = write_chain(ring, address, source, destination, lengths)
        base = direction.value[1]
        self._write(SGDMA, "descriptor_lo", address & _ALL_BITS, base)
        self._write(SGDMA, "descriptor_hi", address >> 32, base)
        self._write(SGDMA, "descriptor_adjacent", adjacent, base)
        self._read_channel(direction, "status_rc")
        self._write_channel(direction, "interrupt_enable", _ALL_BITS)
        self._write(IRQ, "channel_enable_w1s", self._irq_bit(direction))
        self._write_channel(direction, "perf_control", _PERF_CLEAR)
        self._write_channel(direction, "perf_control", _PERF_COUNT)
        self._write_channel(direction, "control", _START)

    def _limit(self, nbytes: int) -> float:
        if self._timeout is not None:
            return self._timeout
        board_seconds = _CHAIN_SECONDS + nbytes / _CHAIN_RATE
        return max(_LEAST_TIMEOUT, board_seconds * self._time_scale)

    def _wait(
        self, under_way: dict[Direction, _Transfer], deadline: _Deadline
    ) -> dict[Direction, Status]:
        """Waits for an interrupt of a chain; statuses that say something, cleared on the board."""
        while self._registers.wait_interrupt(deadline.left()):
            found = {
                direction: Status(self._read_channel(direction, "status_rc"))
                for direction in under_way
            }
            self._registers.interrupt_done()
            told = {key: status for key, status in found.items() if status & ~Status.BUSY}
            if told:
                return told
        direction = next(iter(under_way))
        status = Status(self._read_channel(direction, "status"))
        done = self._read_channel(direction, "completed_count")
        raise Timeout(
            f"{direction.name} transfer of {under_way[direction].nbytes} bytes: no interrupt "
            f"within {deadline.seconds:g} s; status {status!r}, {done} descriptors finished. The "
            "channel was stopped; try again, with a longer timeout if the machine is slow"
        )

    def _finish(self, transfer: _Transfer, status: Status) -> None:
        done = self._read_channel(transfer.direction, "completed_count")
        expected = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED
        if status & ~Status.BUSY != expected or done != transfer.running:
            raise self._failure(transfer.direction, status, done, transfer.running)

    def _busy_cycles(self, direction: Direction) -> int:
        cycles = self._read_channel(direction, "perf_cycles_lo")
        high = CHANNEL["perf_cycles_hi"].field("high")
        return high.get(self._read_channel(direction, "perf_cycles_hi")) << 32 | cycles

    def _failure(
        self, direction: Direction, status: Status, done: int, descriptors: int
    ) -> TransferError:
        what = f"{direction.name} transfer failed after {done} of {descriptors} descriptors"
        wrong = [bit.name for bit in Status if bit in status & Status.errors() and bit.name]
        names = " | ".join(wrong) or f"unexpected {status!r}"
        kind = address = None
        if self.extension is not None:
            info = self._read(EXTENSION, "error_info")
            register = EXTENSION["error_info"]
            kind = register.field("kind").get(info)
            if kind != ErrorKind.NONE:
                address = self._read(EXTENSION, "error_address_lo")
                address |= self._read(EXTENSION, "error_address_hi") << 32
                names += f"; first error {_kind_name(kind)} at address {address:#x}"
                if register.field("descriptor").get(info):
                    names += ", fetching a descriptor"
            self._write(EXTENSION, "error_clear", 1)
        return TransferError(
            f"{what}: {names}. The channel was stopped; check that both memories were still "
            "pinned, and try again",
            status=int(status),
            kind=kind,
            address=address,
        )

    # Stop ------------------------------------------------------------------------------------

    def _stop(self, direction: Direction, running: bool = True) -> None:
        """Ends a run; if it may still be `running`, makes sure that nothing moves any more."""
        self._write(IRQ, "channel_enable_w1c", self._irq_bit(direction))
        self._write_channel(direction, "interrupt_enable", 0)
        self._write_channel(direction, "control", 0)
        if not running:
            return
        if self._goes_idle(direction):
            self._read_channel(direction, "status_rc")
            return
        if self.extension is not None:
            self._write(EXTENSION, "soft_reset", 1)
            if self._goes_idle(direction):
                return
        self._stuck = (
            f"the {direction.name} channel does not stop, so no transfer can be made. Close the "
            "board and open it again, which resets it"
        )

    def _goes_idle(self, direction: Direction) -> bool:
        deadline = time.monotonic() + max(1.0, _STOP_SECONDS * self._time_scale)
        while self._read_channel(direction, "status") & Status.BUSY:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    # Registers -------------------------------------------------------------------------------

    @property
    def _time_scale(self) -> int:
        return self.extension.time_scale if self.extension else 1

    def _irq_bit(self, direction: Direction) -> int:
        return 1 if direction is Direction.H2C else 1 << self.channels[0]

    def _read(self, block: Block, name: str, base: int | None = None) -> int:
        return self._registers.read32(BAR_DMA[0], block.address(name, base=base))

    def _write(self, block: Block, name: str, value: int, base: int | None = None) -> None:
        self._registers.write32(BAR_DMA[0], block.address(name, base=base), value)

    def _read_channel(self, direction: Direction, name: str) -> int:
        return self._read(CHANNEL, name, direction.value[0])

    def _write_channel(self, direction: Direction, name: str, value: int) -> None:
        self._write(CHANNEL, name, value, direction.value[0])


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
        self._columns = (bus, card, lengths)

    @property
    def left(self) -> int:
        """Descriptors not yet given to the board."""
        return len(self._columns[0])

    def next(self, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bus addresses, card addresses, lengths) of the next chain."""
        bus, card, lengths = self._columns
        self._columns = bus[most:], card[most:], lengths[most:]
        self.running = len(bus[:most])
        return bus[:most], card[:most], lengths[:most]


class _Deadline:
    """So many seconds from now."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; 0 when over."""
        return max(0.0, self._end - time.monotonic())


def _kind_name(kind: int) -> str:
    return ErrorKind(kind).name.lower().replace("_", " ") if kind in set(ErrorKind) else str(kind)
