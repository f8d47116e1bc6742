# SPDX-License-Identifier: BSD-2-Clause
"""Where packets end, of those whose bytes are in a ring."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..parts.queue import Queue
from ..records import JOB_BYTES
from .space import position

__all__ = ["PLACES", "PacketEnds"]

#: Ends that are kept: of so many packets, with their records, the bytes are enough for any payload.
#: So one that waits for bytes gets them, be there a packet in each byte.
PLACES = JOB_BYTES // regs.FRAME_RECORD.itemsize


class PacketEnds(wiring.Component):
    """Keeps where packets end that have a record behind them, until bytes behind that are claimed.

    Packets without one are as the beginning of the next packet.

    Parameters
    ----------
    size : int
        Bytes of the ring, of which positions count.

    Members
    -------
    last : In(1), end : In(position)
        The last beat of a packet, or of a record, is taken; and the position behind it.
    records : In(1)
        A record follows the packet of which that is the last beat.
    ready : Out(1)
        There is room for one more end, or none can come.
    claimed : In(position)
        Bytes before this are claimed; not more than a payload in two cycles.
    known : Out(1), rest : Out(position)
        The packet that the next byte is of ends so many bytes further, from the cycle on in which
        its last beat counts.
    passed : Out(1)
        An end that was passed is forgotten in this cycle: nothing is known of the next one.
    flush : In(1)
        Forget all.
    """

    def __init__(self, size: int):
        self._size = size
        shape = position(size)
        super().__init__(
            {
                "last": In(1),
                "end": In(shape),
                "records": In(1),
                "ready": Out(1),
                "claimed": In(shape),
                "known": Out(1),
                "rest": Out(shape),
                "passed": Out(1),
                "flush": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ends = ends = ResetInserter(self.flush)(Queue(self.end.shape(), PLACES))
        #: what comes is a record
        of_record = Signal()
        ends_one = self.records & ~of_record
        with m.If(self.last):
            m.d.sync += of_record.eq(ends_one)
        with m.If(self.flush):
            m.d.sync += of_record.eq(0)
        m.d.comb += [
            ends.i.payload.eq(self.end),
            ends.i.valid.eq(self.last & ends_one),
            self.ready.eq(ends.i.ready | ~ends_one),
            # At most all of the ring is ahead; and less than that is behind.
            self.rest.eq(ends.o.payload - self.claimed),
            self.passed.eq(ends.o.valid & (self.rest > self._size)),
            self.known.eq(ends.o.valid & ~self.passed),
            ends.o.ready.eq(self.passed),
        ]
        return m
