# SPDX-License-Identifier: BSD-2-Clause
"""Transfers on the engine: makes descriptors of memory and card addresses, and runs them.

Works on any XDMA-compatible core (PG195); with the extension block it also uses that, for sizes,
time scale, error capture, the user stream and reset.
"""

from __future__ import annotations

import numpy as np

from ..board.backend import Extension
from ..memory.scatter import ScatterList
from ..regs import (
    CARD_RAM_SIZE,
    DESC_MAX_LENGTH,
    EXTENSION,
    PASS_THROUGH,
    STREAM_WINDOW,
    Capability,
    waits_for_text,
)
from .chain import write_chain
from .dma_channel import Direction
from .engine import Engine
from .prepared import Prepared, Ring, Side
from .registers import Bank, Registers

__all__ = ["Direction", "Xdma", "stream_columns"]

_ALL_PAIRS = EXTENSION["stream_flush"].writable


class Xdma:
    """An engine with a ring of descriptors.

    Parameters
    ----------
    registers : Registers
    ring : numpy.ndarray of DESCRIPTOR
        Memory for descriptors that the board can read.
    ring_address : int
        Its bus address, a multiple of 4 KiB.
    timeout : float or None
        Seconds to wait for one transfer; None: by its size and the board's time scale.

    Attributes
    ----------
    engine : Engine
    extension : Extension or None
        None on a plain XDMA core.

    Raises
    ------
    BoardNotFound, VersionMismatch
        As `Engine`.
    """

    def __init__(
        self, registers: Registers, ring: np.ndarray, ring_address: int, timeout: float | None
    ):
        self._registers = registers
        self._ring = Ring(ring, ring_address)
        self._rings = {
            direction: self._ring.part(index, 2)
            for index, direction in enumerate((Direction.C2H, Direction.H2C))
        }
        self.engine: Engine = Engine(registers, timeout)
        self.extension: Extension | None = self.engine.extension
        self._extension_bank = Bank(registers, EXTENSION)
        self._clock = [self._extension_bank.place(f"cycles_{half}") for half in ("lo", "hi")]
        self.card_ram_size: int = self.extension.card_ram_size if self.extension else CARD_RAM_SIZE
        self.flush()

    @property
    def ring_bytes(self) -> memoryview:
        """The memory for descriptors."""
        return self._ring.bytes

    @property
    def ring_size(self) -> int:
        """Descriptors that one chain can have."""
        return len(self._ring.descriptors)

    def transfer(self, direction: Direction, memory: ScatterList, card_address: int) -> int:
        """Transfers all of `memory`, which is not empty, to (H2C) or from (C2H) the card.

        Returns the clock cycles that the channel was busy; raises as `Prepared.run` does.
        """
        return self.prepare_card(direction, memory, card_address).run()

    def prepare_card(
        self, direction: Direction, memory: ScatterList, card_address: int
    ) -> Prepared:
        """Prepares the transfer that `transfer` makes; it needs the channel of one direction."""
        addresses, lengths = memory.pieces_up_to(DESC_MAX_LENGTH)
        cards = np.uint64(card_address) + np.cumsum(lengths, dtype=np.uint64) - lengths
        return Prepared(self.engine, [self._side(direction, addresses, cards, lengths)])

    def _side(self, direction: Direction, *columns: np.ndarray) -> Side:
        """A side of a transfer, with the direction's half of the ring."""
        return Side(self.engine, direction, self._rings[direction], *columns)

    @property
    def user_block(self) -> str | None:
        """Name of the user block between H2C and C2H; None if the board has no stream."""
        if self.extension is None or Capability.STREAM not in self.extension.capabilities:
            return None
        return self.extension.user_block

    @property
    def copies(self) -> bool:
        """Whether the user block passes bytes through unchanged, so that `stream` copies."""
        return self.user_block == PASS_THROUGH

    def stream(self, source: ScatterList, destination: ScatterList) -> int:
        """Transfers all of `source` through the user block to `destination`, H2C and C2H at once.

        Their lengths have to match what the user block makes of the bytes; neither is empty.
        Returns the clock cycles until the last byte was written; raises as `Prepared.run` does.
        """
        return self.prepare(source, destination).run()

    def prepare(self, source: ScatterList, destination: ScatterList) -> Prepared:
        """Prepares the transfer that `stream` makes, so that it can run more than once."""
        # C2H is started first, so that its cycle counter covers the whole copy.
        memories = (Direction.C2H, destination), (Direction.H2C, source)
        sides = [self._side(direction, *stream_columns(memory)) for direction, memory in memories]
        return Prepared(self.engine, sides)

    def clock(self) -> int | None:
        """The board's free-running cycle count; None if it has none."""
        if self.extension is None:
            return None
        # Reading the lower half latches the upper one for the next read.
        read, (low, high) = self._registers.read32, self._clock
        lower = read(*low)
        return read(*high) << 32 | lower

    def waits_for(self, direction: Direction) -> str:
        """What the channel waits for now, as text; the board has the extension block."""
        fields = self._extension_bank.fields("waits_for")
        return waits_for_text(fields[f"{direction.name.lower()}0"])

    def flush(self) -> None:
        """Discards the bytes in the user stream."""
        if self.user_block is not None:
            self._extension_bank.write("stream_flush", _ALL_PAIRS)

    @property
    def makes_records(self) -> bool:
        """Whether the frames of the user block have records."""
        return self.extension is not None and (
            Capability.FRAME_RECORDS in self.extension.capabilities
        )

    def begin_frames(self) -> None:
        """Discards the bytes in the user stream: a new frame comes first, and has a record."""
        if self.makes_records:
            self._extension_bank.write("frame_records", _ALL_PAIRS)
        self.flush()

    def start_ring(
        self,
        bus: np.ndarray,
        card: np.ndarray,
        lengths: np.ndarray,
        *,
        completed: np.ndarray,
        credits: bool,
    ) -> None:
        """Starts a chain to memory whose end leads to its beginning, and returns at once.

        `completed` is as for `write_chain`. With `credits`, the channel fetches no descriptor
        before it is given credits. The caller stops it, with the methods of `engine`.
        """
        self.engine.require_usable()
        ring = self._ring
        adjacent = write_chain(
            ring.descriptors, ring.address, card, bus, lengths, completed, cyclic=True
        )
        channel = self.engine.channels[Direction.C2H]
        channel.use_credits(credits)
        channel.start(channel.load(ring.address, adjacent))


def stream_columns(memory: ScatterList) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bus addresses, card addresses, lengths) of descriptors between memory and user stream."""
    addresses, lengths = memory.pieces_up_to(DESC_MAX_LENGTH)
    return addresses, np.full(len(lengths), STREAM_WINDOW, np.uint64), lengths
