# SPDX-License-Identifier: BSD-2-Clause
"""What the board captured of an error: its kind and its address, of the run that failed."""

from __future__ import annotations

from typing import NamedTuple

from ..regs import C2H_CAPTURE_BASE, CAPTURE, EXTENSION, Capability, ErrorKind
from .registers import Bank, Direction, Registers

__all__ = ["Captured", "ErrorCapture"]

_BASES = {Direction.H2C: CAPTURE.base, Direction.C2H: C2H_CAPTURE_BASE}


class Captured(NamedTuple):
    """The error that ended a run; `str` says it in words."""

    #: an `ErrorKind`, or what a newer board calls it
    kind: int
    address: int
    #: it was met while fetching a descriptor
    descriptor: bool

    def __str__(self) -> str:
        known = self.kind in set(ErrorKind)
        what = ErrorKind(self.kind).name.lower().replace("_", " ") if known else str(self.kind)
        # Only that of a pushed descriptor, which lies in the board, is odd.
        if self.descriptor and self.address & 1:
            return f"{what} in pushed descriptor {self.address >> 5}"
        where = f"{what} at address {self.address:#x}"
        return f"{where}, fetching a descriptor" if self.descriptor else where


class ErrorCapture:
    """The error captures of the first channel of each direction.

    An older core has one capture for all channels, which holds the first error that any of them met
    since it was cleared. That one is looked at, and cleared, only if it is of the channel in
    question: what is another's may be all that is known of an error that is still to be reported.

    Parameters
    ----------
    registers : Registers
        Those of a board with the extension block.
    capabilities : Capability
    """

    def __init__(self, registers: Registers, capabilities: Capability):
        self._own: bool = Capability.CAPTURE in capabilities
        self._banks = {
            direction: Bank(registers, CAPTURE, base) if self._own else Bank(registers, EXTENSION)
            for direction, base in _BASES.items()
        }

    def take(self, direction: Direction) -> Captured | None:
        """What is captured of the last run of this direction's channel; None if nothing is."""
        bank = self._banks[direction]
        info = bank.fields("error_info")
        whose = (info["channel"], info["c2h"])
        if info["kind"] == ErrorKind.NONE or whose != (0, direction is Direction.C2H):
            return None
        address = bank.read("error_address_lo") | bank.read("error_address_hi") << 32
        if not self._own:
            bank.write("error_clear", 1)
        return Captured(info["kind"], address, bool(info["descriptor"]))

    def drop(self, direction: Direction) -> None:
        """Forgets what a run of this direction's channel met that has been stopped.

        The channel is idle. A run that fails may meet more errors behind the one that ends it.
        """
        if not self._own:
            self.take(direction)
