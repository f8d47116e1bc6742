# SPDX-License-Identifier: BSD-2-Clause
"""The channels of an XDMA-compatible engine (PG195), register by register, and what they share:

deadlines, status on interrupts, errors, stopping.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from itertools import repeat

from ..board.backend import Extension
from ..errors import Timeout, TransferError
from ..regs import (
    BAR_DMA,
    C2H_PUSH_BASE,
    CHANNEL,
    EXTENSION,
    H2C_PUSH_BASE,
    IRQ,
    QUARANTINE_MS,
    SGDMA,
    SGDMA_COMMON,
    Capability,
    ErrorKind,
    Status,
    waits_for_text,
)
from .capture import ErrorCapture
from .probe import count_channels, read_extension
from .registers import Bank, Direction, Function, Registers

__all__ = ["GOOD", "MOST_CREDITS", "Access", "Deadline", "Direction", "DmaChannel", "Engine"]

#: Descriptors that a channel can be allowed to fetch and has not fetched.
MOST_CREDITS = SGDMA["descriptor_credits"].writable

_BAR = BAR_DMA[0]
_ALL_BITS = 0xFFFF_FFFF
#: Run with every event logged; errors stop the engine.
_START = sum(
    field.mask
    for field in CHANNEL["control"].fields
    if field.name == "run" or field.name.startswith("ie_")
)
#: A write: BAR, byte offset and value.
Access = tuple[int, int, int]
_HIGH_CYCLES = CHANNEL["perf_cycles_hi"].field("high").mask
_PERF = CHANNEL["perf_control"]
_PERF_CLEAR = _PERF.field("clear").mask
_PERF_COUNT = _PERF.field("run").mask | _PERF.field("auto").mask
#: Time limit of a chain in the board's time: so many seconds, plus its bytes at this rate.
_CHAIN_SECONDS, _CHAIN_RATE = 0.1, 1e6
#: Least time limit in real time, since the machine may be busy.
_LEAST_TIMEOUT = 10.0
#: Seconds, in the board's time, within which a stopped channel finishes what is in progress.
_STOP_SECONDS = 0.1
_BUSY = int(Status.BUSY)
#: What may leave reads in quarantine.
_LOSING = (
    ErrorKind.COMPLETION_TIMEOUT,
    ErrorKind.UNEXPECTED_COMPLETION,
    ErrorKind.NO_COMPLETION_SPACE,
)
#: The status of a chain that ended without an error.
GOOD = int(Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED)


#: The channels' bits in `SGDMA_COMMON`.
_COMMON_BITS = {Direction.H2C: 1, Direction.C2H: 1 << 16}
_PUSH_BASES = {Direction.H2C: H2C_PUSH_BASE, Direction.C2H: C2H_PUSH_BASE}


class DmaChannel:
    """The first channel of a direction.

    Parameters
    ----------
    registers : Registers
    direction : Direction
    irq_bit : int
        The channel's bit in the interrupt block.

    Attributes
    ----------
    direction : Direction
    status_rc : int
        Byte offset of the status register whose reading clears it.
    """

    def __init__(self, registers: Registers, direction: Direction, irq_bit: int):
        base, sgdma = direction.value
        channel = Bank(registers, CHANNEL, base).place
        address = Bank(registers, SGDMA, sgdma).place
        irq = Bank(registers, IRQ).place
        common = Bank(registers, SGDMA_COMMON).place
        self.direction = direction
        self._registers = registers
        # Looked up once: a transfer of a few bytes is little more than these accesses.
        self._address = [address(f"descriptor_{part}") for part in ("lo", "hi", "adjacent")]
        #: what `load` returned: a ring starts at few addresses
        self._loads: dict[tuple[int, int], list[Access]] = {}
        self._push = _PUSH_BASES[direction]
        self._credits = address("descriptor_credits")
        self._credit_mode = [common(f"credit_enable_{bits}") for bits in ("w1c", "w1s")]
        self._status, self._completed = channel("status")[1], channel("completed_count")[1]
        self.status_rc: int = channel("status_rc")[1]
        self._cycles = [channel(f"perf_cycles_{half}")[1] for half in ("lo", "hi")]
        #: writes that start the loaded chain; its status has been cleared before
        self._arm: list[Access] = [
            (*channel("interrupt_enable"), _ALL_BITS),
            (*irq("channel_enable_w1s"), irq_bit),
            (*channel("perf_control"), _PERF_CLEAR),
            (*channel("perf_control"), _PERF_COUNT),
            (*channel("control"), _START),
        ]
        #: writes that clear Run, which aborts the chain that runs, and disable interrupts
        self._end: list[Access] = [
            (*irq("channel_enable_w1c"), irq_bit),
            (*channel("interrupt_enable"), 0),
            (*channel("control"), 0),
        ]

    def load(self, address: int, adjacent: int) -> list[Access]:
        """Writes that load the first descriptor's bus address and how many are adjacent to it."""
        known = self._loads.get((address, adjacent))
        if known is None:
            values = (address & _ALL_BITS, address >> 32, adjacent)
            places = zip(self._address, values, strict=True)
            known = self._loads[address, adjacent] = [(*place, value) for place, value in places]
        return known

    def push(self, descriptors: bytes) -> list[Access]:
        """Writes that put a chain's first descriptors into the board, so that it fetches none.

        They are `peerdma.regs.PUSH_DESCRIPTORS` at most, and the board has `Capability.PUSH`.
        """
        offsets = range(self._push, self._push + len(descriptors), 4)
        dwords = struct.unpack(f"<{len(offsets)}I", descriptors)
        return list(zip(repeat(_BAR), offsets, dwords, strict=False))

    def start(self, load: Iterable[Access]) -> None:
        """Starts a chain. `load`: the writes, as of `load` or `push`, that say where it begins."""
        registers = self._registers
        write = registers.write32
        for bar, offset, value in load:
            write(bar, offset, value)
        registers.read32(_BAR, self.status_rc)
        for bar, offset, value in self._arm:
            write(bar, offset, value)

    def use_credits(self, on: bool) -> None:
        """Has the channel fetch descriptors only against credits, see `give`, or freely."""
        self._registers.write32(*self._credit_mode[on], _COMMON_BITS[self.direction])

    def give(self, credits: int) -> None:
        """Lets the channel fetch so many more descriptors; it counts `MOST_CREDITS` at most."""
        self._registers.write32(*self._credits, credits)

    def status(self) -> int:
        """The status register: bits of `peerdma.regs.Status`."""
        return self._registers.read32(_BAR, self._status)

    def take_status(self) -> int:
        """Reads the status and clears it."""
        return self._registers.read32(_BAR, self.status_rc)

    def completed(self) -> int:
        """Descriptors finished since the start, modulo 2**32."""
        return self._registers.read32(_BAR, self._completed)

    def busy_cycles(self) -> int:
        """Clock cycles of the current or last run so far."""
        read, (low, high) = self._registers.read32, self._cycles
        lower = read(_BAR, low)
        return (read(_BAR, high) & _HIGH_CYCLES) << 32 | lower

    def disarm(self) -> None:
        """Aborts the chain that runs, and disables interrupts."""
        write = self._registers.write32
        for bar, offset, value in self._end:
            write(bar, offset, value)

    def goes_idle(self, seconds: float) -> bool:
        """Waits until the channel is idle; False if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while self.status() & _BUSY:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True


class Deadline:
    """The point in time `seconds` from now."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; 0 when over."""
        return max(0.0, self._end - time.monotonic())


class Engine:
    """The first channel of each direction, and what they share. Creating it stops both.

    Parameters
    ----------
    function : Function
    timeout : float or None
        Seconds to wait for one transfer; None: by its size and the board's time scale.

    Attributes
    ----------
    function : Function
    registers : Registers
        The function's.
    extension : Extension or None
        None on a plain XDMA core.
    pushes : bool
        Whether the first descriptors of a chain can be pushed into the board.
    channel_counts : tuple of int
        Number of H2C and of C2H channels.
    channels : dict of Direction to DmaChannel
    stuck : str or None
        Why no more transfers can be made, once a channel could not be stopped.
    launching : int
        Launch queues that are open.
    resets : int
        How often `stop` had to reset the engine, which ends the transfers of both directions.
    crowded : bool
        A transfer has failed that may have left reads which keep room for completions, and
        `has_lost_reads` has not said since that there are none.
    quarantine : float
        Seconds for which they may, at most.

    Raises
    ------
    BoardNotFound
        If the device is no XDMA-compatible engine with a channel in each direction.
    VersionMismatch
        If its extension block has another major version.
    """

    def __init__(self, function: Function, timeout: float | None):
        self.function = function
        self.registers: Registers = function.device
        registers = self.registers
        self._timeout = timeout
        self.stuck: str | None = None
        self.launching: int = 0
        self.resets: int = 0
        self.crowded: bool = False
        self.channel_counts: tuple[int, int] = count_channels(registers)
        self.extension: Extension | None = read_extension(registers)
        self._time_scale = self.extension.time_scale if self.extension else 1
        self.pushes: bool = (
            self.extension is not None and Capability.PUSH in self.extension.capabilities
        )
        self._extension_bank = Bank(registers, EXTENSION)
        self._clock = [EXTENSION.address(f"cycles_{half}") for half in ("lo", "hi")]
        self._capture = (
            ErrorCapture(registers, self.extension.capabilities) if self.extension else None
        )
        self.quarantine: float = QUARANTINE_MS / 1000 * self._time_scale
        self.channels: dict[Direction, DmaChannel] = {
            Direction.H2C: DmaChannel(registers, Direction.H2C, 1),
            Direction.C2H: DmaChannel(registers, Direction.C2H, 1 << self.channel_counts[0]),
        }
        self.stop(Direction)

    def require_usable(self) -> None:
        """TransferError if a channel could not be stopped."""
        if self.stuck:
            raise TransferError(self.stuck)

    def clock(self) -> int | None:
        """The board's free-running cycle count; None if it has none."""
        if self.extension is None:
            return None
        # Reading the lower half latches the upper one for the next read.
        read, (low, high) = self.registers.read32, self._clock
        lower = read(_BAR, low)
        return read(_BAR, high) << 32 | lower

    def seconds_for(self, nbytes: int) -> float:
        """How long a transfer of so many bytes may take."""
        if self._timeout is not None:
            return self._timeout
        seconds = (_CHAIN_SECONDS + nbytes / _CHAIN_RATE) * self._time_scale
        return seconds if seconds > _LEAST_TIMEOUT else _LEAST_TIMEOUT

    def deadline(self, nbytes: int) -> Deadline:
        """By when a transfer of so many bytes that starts now must have ended."""
        return Deadline(self.seconds_for(nbytes))

    def statuses(self, directions: Iterable[Direction], deadline: Deadline) -> dict[Direction, int]:
        """Waits for an interrupt of these channels.

        Returns the status of each channel that has a bit set besides Busy; empty if no interrupt
        came before the deadline.
        """
        channels = {direction: self.channels[direction] for direction in directions}
        while self.function.wait_interrupt(deadline.left()):
            found = {direction: channel.take_status() for direction, channel in channels.items()}
            self.function.interrupt_done()
            reported = {key: status for key, status in found.items() if status & ~_BUSY}
            if reported:
                return reported
        return {}

    def check(self, channel: DmaChannel, status: int, descriptors: int) -> None:
        """TransferError unless a chain of so many descriptors ended without an error."""
        done = channel.completed()
        if status & ~_BUSY != GOOD or done != descriptors:
            # Our engine counts the one that failed; PG195 does not say what others do.
            good = done - 1 if done and status & Status.errors() else done
            raise self.failure(channel.direction, status, f"{good} of {descriptors} descriptors")

    def timed_out(self, direction: Direction, nbytes: int, seconds: float) -> Timeout:
        """The error for a transfer without an interrupt within so many seconds."""
        channel = self.channels[direction]
        why = f", waits for {self.waits_for(direction)}" if self.extension else ""
        return Timeout(
            f"{direction.name} transfer of {nbytes} bytes: no interrupt within {seconds:g} s; "
            f"status {Status(channel.status())!r}, {channel.completed()} descriptors finished{why}."
            " The channel was stopped; try again, with a longer timeout if the machine is slow"
        )

    def waits_for(self, direction: Direction) -> str:
        """What the channel waits for now, as text; needs the extension."""
        fields = self._extension_bank.fields("waits_for")
        return waits_for_text(fields[f"{direction.name.lower()}0"])

    def failure(self, direction: Direction, value: int, after: str) -> TransferError:
        """The error for a run that ended with this status, with the board's error capture.

        `after` says how far the run got.
        """
        status = Status(value)
        wrong = [bit.name for bit in Status if bit in status & Status.errors() and bit.name]
        names = " | ".join(wrong) or f"unexpected {status!r}"
        captured = self._capture and self._capture.take(direction)
        if captured:
            names += f"; first error {captured}"
            self.crowded |= captured.kind in _LOSING
        advice = (
            "check that both memories were still pinned, and that no file mapped there has become "
            "shorter, and try again"
        )
        if captured and captured.kind == ErrorKind.NO_COMPLETION_SPACE:
            advice = (
                "reads that were not answered keep the room for completions, for "
                f"{self.quarantine:g} s at most. Try again: transfers wait for that before they "
                "move anything"
            )
        return TransferError(
            f"{direction.name} transfer failed after {after}: {names}. The channel was stopped; "
            f"{advice}",
            status=int(status),
            kind=captured and captured.kind,
            address=captured and captured.address,
        )

    def has_lost_reads(self) -> bool:
        """Whether reads that were not answered keep room for completions; needs the extension."""
        self.crowded = self._extension_bank.read("quarantined") != 0
        return self.crowded

    def lost_writes(self) -> TransferError | None:
        """The error for writes, since the last call, to addresses without memory; None if none."""
        lost = self.function.device.take_lost_writes()
        return lost and TransferError(
            f"the board made {lost.writes} writes of {lost.nbytes} bytes in all to bus addresses "
            f"that are not mapped writable, the first at {lost.address:#x}. They are lost, and the "
            "content of the destination is undefined. Keep memory pinned until the transfer ends, "
            "and try again",
            address=lost.address,
        )

    def flush_stream(self) -> None:
        """Drops what is in the user stream, once both channels are idle; needs the extension."""
        self._extension_bank.write("stream_flush", 1)

    # Stop ------------------------------------------------------------------------------------

    def stop(self, directions: Iterable[Direction]) -> None:
        """Aborts what runs and waits until the channels are idle; nothing if the board is gone."""
        if self.function.lost:
            return
        channels = [self.channels[direction] for direction in directions]
        for channel in channels:
            channel.disarm()
        for channel in channels:
            if not self._goes_idle(channel):
                self.stuck = (
                    f"the {channel.direction.name} channel does not stop, so no transfer can be "
                    "made. Close the board and open it again, which resets it"
                )
            channel.take_status()
            if self._capture:
                self._capture.drop(channel.direction)

    def _goes_idle(self, channel: DmaChannel) -> bool:
        """Waits until a channel that was disarmed is idle; resets the engine if it does not."""
        seconds = max(1.0, _STOP_SECONDS * self._time_scale)
        if channel.goes_idle(seconds):
            return True
        if self.extension is None:
            return False
        self._extension_bank.write("soft_reset", 1)
        self.resets += 1
        return channel.goes_idle(seconds)
