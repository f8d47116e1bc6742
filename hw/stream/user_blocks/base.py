# SPDX-License-Identifier: BSD-2-Clause
"""What every user block is."""

from typing import ClassVar

from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..ring import StreamBeat

__all__ = ["FrameBlock", "UserBlock"]


class UserBlock(wiring.Component):
    """Base of the blocks between a pair's two rings.

    A block is reset when its pair is flushed: it must then hold nothing of what came before. It
    may make fewer or more bytes than it gets, in beats of any size, and need not be fast: both
    sides wait. Whoever writes to it may pause in the middle of a word.

    With `REGISTERS` it also has, for each RW register of the block, a member ``name`` In(32), and
    for each RO register ``name`` Out(32). They keep their values when the pair is flushed.

    Attributes
    ----------
    NAME : str
        Four ASCII characters, which software reads from the extension block.
    RATIO : tuple of int
        It makes RATIO[1] bytes out of RATIO[0], 0 to 255 each. With RATIO[0] = 0 it is a source:
        it makes bytes of its own and drops those that it gets.
    REGISTERS : regs.Block or None
        At byte 0 of its part of the user BAR.

    Members
    -------
    i, o : In, Out(stream of StreamBeat)
    """

    NAME: ClassVar[str]
    RATIO: ClassVar[tuple[int, int]] = (1, 1)
    REGISTERS: ClassVar[regs.Block | None] = None

    i: In(stream.Signature(StreamBeat))
    o: Out(stream.Signature(StreamBeat))


class FrameBlock(UserBlock):
    """Base of blocks whose bytes are frames: `last` ends one, and a record may follow it.

    See `hw.stream.frames`, and `peerdma.regs.FRAME_RECORD`. Each beat has a byte at least. While
    records are on, one with fewer than `LANES`, at the end of a frame or elsewhere, takes eight
    cycles per byte.

    Attributes
    ----------
    LANES : int
        Bytes of a full beat of `o`, 4 or 8.

    Members
    -------
    dropped : Out(32)
        Frames that the block has dropped since it was reset, for want of room.
    """

    LANES: ClassVar[int] = 8

    dropped: Out(32)
