# SPDX-License-Identifier: BSD-2-Clause
"""What every user block is."""

from typing import ClassVar

from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..ring import stream_beat

__all__ = ["FrameBlock", "UserBlock"]


class UserBlock(wiring.Component):
    """Base of the blocks between a pair's two rings.

    A block is reset when its pair is flushed: it must then hold nothing of what came before. It
    may make fewer or more bytes than it gets, in beats of any size, and need not be fast: both
    sides wait. Whoever writes to it may pause in the middle of a word.

    Parameters
    ----------
    width : int
        Bits of a beat, those of the core: 64, 128 or 256.
    members : dict of str to Member, by keyword
        What a class that is derived from it has beside `i`, `o` and registers.

    Attributes
    ----------
    NAME : str
        Four ASCII characters, which software reads from the extension block.
    RATIO : tuple of int
        It makes RATIO[1] bytes out of RATIO[0], 0 to 255 each. With RATIO[0] = 0 it is a source:
        it makes bytes of its own and drops those that it gets.
    REGISTERS : regs.Block or None
        At byte 0 of its part of the user BAR.
    lanes : int
        Bytes that a beat has room for.

    Members
    -------
    i, o : In, Out(stream of stream_beat)
    As of each register of `REGISTERS`: In(32) if it is RW, Out(32) if it is RO
        They keep their values when the pair is flushed.
    """

    NAME: ClassVar[str]
    RATIO: ClassVar[tuple[int, int]] = (1, 1)
    REGISTERS: ClassVar[regs.Block | None] = None

    def __init__(self, width: int, **members: wiring.Member):
        self.lanes = width // 8
        beats = stream.Signature(stream_beat(width))
        for register in self.REGISTERS.registers if self.REGISTERS else ():
            members[register.name] = Out(32) if register.access is regs.Access.RO else In(32)
        super().__init__({"i": In(beats), "o": Out(beats), **members})


class FrameBlock(UserBlock):
    """Base of blocks whose bytes are frames: `last` ends one, and a record may follow it.

    See `hw.stream.frames`, and `peerdma.regs.FRAME_RECORD`. Each beat has a byte at least, and
    `frame_lanes` at most. While records are on, one with fewer, at the end of a frame or elsewhere,
    takes as many cycles as `Crc32` says.

    Members
    -------
    dropped : Out(32)
        Frames that the block has dropped since it was reset, for want of room.
    """

    def __init__(self, width: int):
        super().__init__(width, dropped=Out(32))

    @property
    def frame_lanes(self) -> int:
        """Bytes of a full beat of `o`: a power of two, from 4 to `lanes`."""
        return self.lanes
