# SPDX-License-Identifier: BSD-2-Clause
"""A board with several channels each way under measurement: what each has of the link."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from peerdma import regs
from peerdma.regs import DESCRIPTOR
from peerdma.userspace.chain import write_chain
from peerdma.userspace.engine import Direction
from peerdma.userspace.registers import Bank
from sim.board.session import BASE, Conditions

from .rig import RING_BYTES, Rig

__all__ = ["CHANNELS", "ChannelsRig"]

#: Each way.
CHANNELS = 4
#: Of each channel's memory at the host, and of its descriptors.
_AREA, _PART = 1 << 18, RING_BYTES // CHANNELS
_MOST_DESCRIPTORS = _PART // DESCRIPTOR.itemsize
#: Cycles until each channel has its share; and until what is under way has ended.
_BEFORE, _AFTER = 20_000, 20_000


class ChannelsRig(Rig):
    """A rig whose core has `CHANNELS` channels each way."""

    def __init__(self, conditions: Conditions):
        super().__init__(conditions, CHANNELS * _AREA, channels=CHANNELS)

    def shares(self, side: Direction, pieces: Sequence[int], cycles: int) -> list[float]:
        """Bytes per cycle of each channel of a side, side by side.

        Parameters
        ----------
        pieces : sequence of int
            For each channel: bytes of each of its descriptors, which follow each other without end;
            0 for one that does not run.
        cycles : int
            For how long it is measured.

        Raises
        ------
        RuntimeError
            If a channel does not stop, or the core broke a rule.
        """
        running = [number for number, piece in enumerate(pieces) if piece]
        for number in running:
            self._begin(side, number, pieces[number])
        self.session.run(_BEFORE)
        begin = self.session.cycle
        self.session.run(cycles)
        end = self.session.cycle
        for number in running:
            self._bank(side, number).write("control", 0)
        self.session.run(_AFTER)
        for number in running:
            if self._bank(side, number).read("status") & regs.Status.BUSY:
                raise RuntimeError(f"{side.name} channel {number} does not stop")
        kind = "up MRd" if side is Direction.H2C else "up MWr"
        found = [0] * CHANNELS
        for tlp in self.tlps(begin):
            area = (tlp.address - self._memory(side)) // _AREA
            if tlp.kind == kind and tlp.end < end and 0 <= area < CHANNELS:
                found[area] += tlp.nbytes
        return [nbytes / cycles for nbytes in found]

    # Parts -----------------------------------------------------------------------------------

    def _memory(self, side: Direction) -> int:
        return self.source if side is Direction.H2C else self.target

    def _bank(self, side: Direction, number: int, block: regs.Block = regs.CHANNEL) -> Bank:
        base = side.value[block is regs.SGDMA]
        return Bank(self.session, block, base + number * block.stride)

    def _begin(self, side: Direction, number: int, piece: int) -> None:
        """Start a channel with a cyclic list of descriptors of `piece` bytes."""
        count = min(_AREA // piece, _MOST_DESCRIPTORS)
        at = np.arange(count, dtype=np.uint64) * np.uint64(piece)
        bus = at + np.uint64(self._memory(side) + number * _AREA)
        card = at % np.uint64(regs.CARD_RAM_SIZE)
        ring = self.session.memory[number * _PART : (number + 1) * _PART].view(DESCRIPTOR)
        ends = (bus, card) if side is Direction.H2C else (card, bus)
        none, lengths = np.zeros(count, bool), np.full(count, piece, np.uint64)
        address = BASE + number * _PART
        adjacent = write_chain(ring, address, *ends, lengths, none, cyclic=True)
        first = self._bank(side, number, regs.SGDMA)
        first.write("descriptor_lo", address)
        first.write("descriptor_hi", 0)
        first.write("descriptor_adjacent", adjacent)
        self._bank(side, number).write("control", regs.CHANNEL["control"].field("run").mask)
