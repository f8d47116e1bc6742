# SPDX-License-Identifier: BSD-2-Clause
"""Chains that are laid out once and run again and again: what small transfers take the time of."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..regs import DESCRIPTOR, Status
from .chain import write_chain
from .dma_channel import Direction, DmaChannel

if TYPE_CHECKING:
    from .xdma import Xdma

__all__ = ["Prepared", "Side"]

_BUSY = int(Status.BUSY)
_GOOD = int(Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED)


class Side:
    """One direction of a transfer that fits one chain.

    Parameters
    ----------
    direction : Direction
    channel : DmaChannel
    place : int
        First byte of the ring that is its.
    address : int
        Bus address of that byte.
    source, destination, lengths : numpy.ndarray of uint64
        One entry per descriptor.
    """

    def __init__(
        self,
        direction: Direction,
        channel: DmaChannel,
        place: int,
        address: int,
        columns: tuple[np.ndarray, np.ndarray, np.ndarray],
    ):
        self.direction = direction
        self.channel = channel
        self.descriptors = len(columns[2])
        self.nbytes = int(columns[2].sum())
        chain = np.zeros(self.descriptors, DESCRIPTOR)
        adjacent = write_chain(chain, address, *columns)
        #: writes before the status is cleared, and behind it
        self.load, self.arm = channel.load(address, adjacent), channel.arm
        self.image = chain.tobytes()
        self.place = slice(place, place + len(self.image))


class Prepared:
    """Chains of different directions, to be run side by side.

    Parameters
    ----------
    xdma : Xdma
    sides : sequence of Side
        In the order in which they are started; each has bytes to move.
    """

    def __init__(self, xdma: Xdma, sides: Sequence[Side]):
        self._xdma = xdma
        self._sides = list(sides)
        self._directions = [side.direction for side in sides]
        self._seconds = xdma.seconds_for(sum(side.nbytes for side in sides))

    def run(self) -> int:
        """Runs them; returns the busy clock cycles of the side that was started first.

        Raises
        ------
        TransferError, Timeout
            As `Xdma.transfer`.
        """
        xdma, sides = self._xdma, self._sides
        first = sides[0]
        xdma.require_sound()
        registers, ring = xdma.registers, xdma.ring_bytes
        read, write = registers.read32, registers.write32
        left = self._seconds
        end = time.monotonic() + left
        cycles = 0
        try:
            for side in sides:
                ring[side.place] = side.image
                for bar, offset, value in side.load:
                    write(bar, offset, value)
                read(*side.channel.status_rc)
                for bar, offset, value in side.arm:
                    write(bar, offset, value)
            while True:
                if not registers.wait_interrupt(left):
                    late = sides[0]
                    raise xdma.late(late.direction, late.nbytes, self._seconds)
                told = [read(*side.channel.status_rc) & ~_BUSY for side in sides]
                registers.interrupt_done()
                for side, status in zip(sides, told, strict=True):
                    if status:
                        channel = side.channel
                        done = read(*channel.completed_count)
                        if status != _GOOD or done != side.descriptors:
                            after = f"{done} of {side.descriptors} descriptors"
                            raise xdma.failure(side.direction, status, after)
                        busy = channel.busy_cycles()
                        if side is first:
                            cycles = busy
                        for bar, offset, value in channel.end:
                            write(bar, offset, value)
                if all(told):
                    break
                sides = [side for side, status in zip(sides, told, strict=True) if not status]
                left = max(0.0, end - time.monotonic())
        except BaseException:
            # Memory may be unmapped next: nothing may be moving by then.
            xdma.stop(self._directions)
            raise
        return cycles
