# SPDX-License-Identifier: BSD-2-Clause
"""Transfers on the engine: makes descriptors of memory and card addresses, and runs them.

Works on any XDMA-compatible core (PG195); with the extension block it also uses that, for sizes,
time scale, error capture, the user stream and reset.
"""

from __future__ import annotations

import time

import numpy as np

from ..board.backend import Extension, Pinned
from ..board.transfer import Through
from ..errors import PeerdmaError
from ..memory.memory import Memory
from ..memory.scatter import ScatterList
from ..process import keep
from ..regs import (
    BAR_DMA,
    CARD_RAM_SIZE,
    DESCRIPTOR,
    EXTENSION,
    PASS_THROUGH,
    Capability,
)
from ..vfio.platform import Mapping, Platform, Window
from .chain import write_chain
from .engine import Direction, Engine
from .prepared import Prepared, Ring, Rings, Run, Step
from .registers import Bank, Function

__all__ = ["Direction", "Mapped", "Mappings", "Xdma"]

_BAR = BAR_DMA[0]
_ALL_PAIRS = EXTENSION["stream_flush"].writable


class Mapped(Pinned):
    """Memory that is mapped for the board, and how many pins share the mapping.

    Its path is `STAGED` if this process has to copy the bytes for the board.
    """

    def __init__(self, memory: Memory, mapping: Mapping):
        windows, path, provider = mapping
        super().__init__(path, provider)
        self.memory = memory
        self.windows: list[Window] = windows
        self.pins: int = 0
        self.scatter: ScatterList = ScatterList(
            [window.address for window in windows], [window.nbytes for window in windows]
        )


class Mappings:
    """What is mapped for a board: once for each memory, whose pins share it."""

    def __init__(self, platform: Platform):
        self._platform = platform
        self._mapped: dict[int, Mapped] = {}

    def pin(self, memory: Memory) -> Mapped:
        """Maps memory, or counts another pin of it."""
        mapped = self._mapped.get(id(memory))
        if mapped is None:
            made: list[Mapping] = []
            try:
                keep(made, self._platform.map, memory)
                mapped = Mapped(memory, made[0])
                self._mapped[id(memory)] = mapped
            except BaseException:
                for mapping in made:
                    self._platform.unmap(mapping.windows)
                raise
        mapped.pins += 1
        return mapped

    def unpin(self, mapped: Mapped) -> None:
        """Unmaps the memory with its last pin."""
        if mapped.pins > 1:
            mapped.pins -= 1
            return
        # Not counted down before: after an interrupt, this is called again.
        try:
            self._platform.unmap(mapped.windows)
        except PeerdmaError:
            self._mapped.pop(id(mapped.memory), None)
            raise
        self._mapped.pop(id(mapped.memory), None)

    def clear(self) -> None:
        """Forgets all, before the connection to the board ends, and all mappings with it."""
        self._mapped.clear()


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
    rings : Rings
        Makes steps of memory and card addresses.
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
        self.engine: Engine = Engine(function, timeout)
        self.rings: Rings = Rings(self.engine, self._ring)
        self.extension: Extension | None = self.engine.extension
        self._extension_bank = Bank(self.engine.registers, EXTENSION)
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

        Returns the clock cycles that the channel was busy; raises as `run` does.
        """
        return self.run(self.rings.card(direction, memory, card_address))

    def stream(self, source: ScatterList, destination: ScatterList) -> int:
        """Transfers all of `source` through the user block to `destination`, H2C and C2H at once.

        Their lengths have to match what the user block makes of the bytes; neither is empty.
        Returns the clock cycles until the last byte was written; raises as `run` does.
        """
        return self.run(self.rings.stream(source, destination))

    def run(self, step: Step) -> int:
        """Makes a step and waits; returns the busy cycles of the channel that is started first.

        Raises
        ------
        TransferError, Timeout
            The engine has then been stopped: it accesses no memory any more, and the next transfer
            is not affected. How much was transferred is unknown.
        """
        prepared = Prepared((step,), step.reached, frozenset(), None, Through.STREAM)
        run, function = Run(self.engine, prepared, None, None), self.engine.function
        run.next()
        run.start(step)
        try:
            while not run.advance():
                if not function.wait_interrupt(max(0.0, run.until - time.monotonic())):
                    raise run.late()
                run.look()
                function.interrupt_done()
        except BaseException:
            run.stop()
            raise
        return run.cycles

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

    @property
    def receives(self) -> bool:
        """Whether launch queues take frames."""
        return self.extension is not None and Capability.RECEIVE in self.extension.capabilities

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
