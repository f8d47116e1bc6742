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

from .rig import BAR_STEP, RING_BYTES, Rig, answered

__all__ = ["CHANNELS", "ChannelsRig"]

#: Each way.
CHANNELS = 4
#: Of each channel's memory at the host, and of its descriptors.
_AREA, _PART = 1 << 18, RING_BYTES // CHANNELS
_MOST_DESCRIPTORS = _PART // DESCRIPTOR.itemsize
#: Cycles until each channel has its share; and until what is under way has ended.
_BEFORE, _AFTER = 20_000, 20_000
#: Cycles until the read engine knows how much it has to ask for; from one short transfer beside
#: others to the next, by so many more each time.
_LEARNT, _AGAIN, _PHASE = 300_000, 20_000, 97


class ChannelsRig(Rig):
    """A rig whose core has `CHANNELS` channels each way, and may be `plain`."""

    def __init__(self, conditions: Conditions, *, plain: bool = False):
        super().__init__(conditions, CHANNELS * _AREA, channels=CHANNELS, plain=plain)

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

    def beside(self, nbytes: int, busy: int, turns: int) -> list[int]:
        """Cycles of H2C transfers of the last channel while the others read all that they can.

        From Run to the last byte; the descriptor is fetched. Another one is started every
        `_AGAIN` cycles.

        Parameters
        ----------
        nbytes, busy : int
            Of the descriptor, and of each of the others' descriptors.
        turns : int

        Raises
        ------
        RuntimeError
            If a transfer does not end, or the core broke a rule.
        """
        side, last = Direction.H2C, CHANNELS - 1
        for number in range(last):
            self._begin(side, number, busy)
        self.session.run(_LEARNT)
        found = []
        for turn in range(turns):
            begin = self.session.cycle
            self._begin(side, last, nbytes, cyclic=False)
            self.session.run(_AGAIN + turn * _PHASE)
            if self._bank(side, last).read("status") & regs.Status.BUSY:
                raise RuntimeError(f"{side.name} channel {last} has not ended")
            self._bank(side, last).write("control", 0)
            tlps = self.tlps(begin)
            control = self._bank(side, last).place("control")[1]
            run = next(
                tlp.end
                for tlp in tlps
                if tlp.kind == "down MWr" and tlp.address % BAR_STEP == control
            )
            area = self._memory(side) + last * _AREA
            read = next(tlp for tlp in tlps if tlp.kind == "up MRd" and tlp.address == area)
            found.append(answered(tlps, read) - run)
        return found

    # Parts -----------------------------------------------------------------------------------

    def _memory(self, side: Direction) -> int:
        return self.source if side is Direction.H2C else self.target

    def _bank(self, side: Direction, number: int, block: regs.Block = regs.CHANNEL) -> Bank:
        base = side.value[block is regs.SGDMA]
        return Bank(self.session, block, base + number * block.stride)

    def _begin(self, side: Direction, number: int, piece: int, *, cyclic: bool = True) -> None:
        """Start a channel with descriptors of `piece` bytes, in a cyclic list, or with only one."""
        count = min(_AREA // piece, _MOST_DESCRIPTORS) if cyclic else 1
        at = np.arange(count, dtype=np.uint64) * np.uint64(piece)
        bus = at + np.uint64(self._memory(side) + number * _AREA)
        card = at % np.uint64(regs.CARD_RAM_SIZE)
        ring = self.session.memory[number * _PART : (number + 1) * _PART].view(DESCRIPTOR)
        ends = (bus, card) if side is Direction.H2C else (card, bus)
        none, lengths = np.zeros(count, bool), np.full(count, piece, np.uint64)
        address = BASE + number * _PART
        adjacent = write_chain(ring, address, *ends, lengths, none, cyclic=cyclic)
        first = self._bank(side, number, regs.SGDMA)
        first.write("descriptor_lo", address)
        first.write("descriptor_hi", 0)
        first.write("descriptor_adjacent", adjacent)
        self._bank(side, number).write("control", regs.CHANNEL["control"].field("run").mask)
