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
    BAR_DMA,
    CARD_RAM_SIZE,
    DESCRIPTOR,
    EXTENSION,
    PASS_THROUGH,
    STREAM_WINDOW,
    Capability,
    waits_for_text,
)
from .chain import write_chain
from .dma_channel import Direction
from .engine import Engine
from .prepared import Ring, Run, Side
from .registers import Bank, Function

__all__ = ["Direction", "Xdma"]

_BAR = BAR_DMA[0]
_ALL_PAIRS = EXTENSION["stream_flush"].writable


class Xdma:
    """An engine with a ring of descriptors.

    Parameters
    ----------
    function : Function
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
    user_block : str or None
        Name of the user block between H2C and C2H; None if the board has no stream.
    copies : bool
        Whether it passes bytes through unchanged, so that `stream` copies.

    Raises
    ------
    BoardNotFound, VersionMismatch
        As `Engine`.
    """

    def __init__(
        self, function: Function, ring: np.ndarray, ring_address: int, timeout: float | None
    ):
        self._ring = Ring(ring, ring_address)
        self._rings = {
            direction: self._ring.part(index, 2)
            for index, direction in enumerate((Direction.C2H, Direction.H2C))
        }
        self.engine: Engine = Engine(function, timeout)
        self._registers = self.engine.registers
        self.extension: Extension | None = self.engine.extension
        self._extension_bank = Bank(self._registers, EXTENSION)
        self._clock = [EXTENSION.address(f"cycles_{half}") for half in ("lo", "hi")]
        self.card_ram_size: int = self.extension.card_ram_size if self.extension else CARD_RAM_SIZE
        streams = self.extension and Capability.STREAM in self.extension.capabilities
        self.user_block: str | None = (
            self.extension.user_block if self.extension and streams else None
        )
        self.copies: bool = self.user_block == PASS_THROUGH
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

        Returns the clock cycles that the channel was busy; raises as `Run.run` does.
        """
        return self.prepare_card(direction, memory, card_address).run()

    def prepare_card(self, direction: Direction, memory: ScatterList, card_address: int) -> Run:
        """Prepares the transfer that `transfer` makes; it needs the channel of one direction."""
        side = self._side(direction, memory, card_address)
        return Run(self.engine, [side], repeats=card_address < STREAM_WINDOW)

    def _side(self, direction: Direction, memory: ScatterList, card: int) -> Side:
        """A side of a transfer, with the direction's half of the ring."""
        return Side(self.engine, direction, self._rings[direction], memory, card)

    def stream(self, source: ScatterList, destination: ScatterList) -> int:
        """Transfers all of `source` through the user block to `destination`, H2C and C2H at once.

        Their lengths have to match what the user block makes of the bytes; neither is empty.
        Returns the clock cycles until the last byte was written; raises as `Run.run` does.
        """
        return self.prepare(source, destination).run()

    def prepare(
        self, source: ScatterList, destination: ScatterList, *, repeats: bool = False
    ) -> Run:
        """Prepares the transfer that `stream` makes, so that it can run more than once.

        `repeats` as for `Run`: there is no user block.
        """
        # C2H is started first, so that its cycle counter covers the whole copy.
        to_memory = self._side(Direction.C2H, destination, STREAM_WINDOW)
        to_board = self._side(Direction.H2C, source, STREAM_WINDOW)
        return Run(self.engine, [to_memory, to_board], repeats=repeats)

    def clock(self) -> int | None:
        """The board's free-running cycle count; None if it has none."""
        if self.extension is None:
            return None
        # Reading the lower half latches the upper one for the next read.
        read, (low, high) = self._registers.read32, self._clock
        lower = read(_BAR, low)
        return read(_BAR, high) << 32 | lower

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
        """Writes a chain to the ring from entry `first` on, starts it and returns at once.

        `completed` and `cyclic` are as for `write_chain`. The caller waits for the chain and stops
        it, with the methods of `engine`.
        """
        self.engine.require_usable()
        source, destination = (bus, card) if direction is Direction.H2C else (card, bus)
        address = self._ring.address + first * DESCRIPTOR.itemsize
        adjacent = write_chain(
            self._ring.descriptors[first:], address, source, destination, lengths, completed, cyclic
        )
        channel = self.engine.channels[direction]
        channel.start(channel.load(address, adjacent))
