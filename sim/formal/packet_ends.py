# SPDX-License-Identifier: BSD-2-Clause
"""Where packets end, of those in an outbound ring."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.records import JOB_BYTES
from hw.stream.ring import OutboundRing

from .property import Property
from .rings import BITS, SIZE

__all__ = ["PacketEnds"]


class PacketEnds(Property):
    """A payload that is asked for reaches no farther than the packet's end, or that is told.

    What is told is an end: behind it is the record of that packet, of which nothing is dropped, nor
    more than is there. Each is the end of a packet with a record, as `records` was with its last
    beat, and not of a record. Assumed: bytes are reserved if the ring is ready, as many released as
    were reserved, and bytes dropped while nothing is reserved; the ring is flushed then, too.
    """

    forever = False
    depth = 11

    def __init__(self):
        super().__init__(OutboundRing(SIZE, width=64, packets=True))

    def _state(self, m):
        block, inside = self.block, self.inside
        ring, packet, beat = block.reservation, block.packet, block.beats.payload
        byte = self.any(m, BITS, "byte")
        taken, claimed, freed = (inside(name) for name in ("taken", "space.claimed", "space.freed"))
        claims, space = inside.part("space.claims"), inside.part("space")
        accept = inside("accept")
        #: what comes is a record; a packet that is not passed ends in front of that byte
        of_record, waits = Signal(), Signal()
        ends = accept & beat.last & block.records & ~of_record
        with m.If(accept & beat.last):
            m.d.sync += of_record.eq(block.records & ~of_record)
        distance = (byte - claimed)[:BITS]
        passes = ring.take & (distance < ring.length)
        with m.If(passes):
            m.d.sync += waits.eq(0)
        with m.If(ends & ((taken + beat.count)[:BITS] == byte)):
            m.d.sync += waits.eq(1)
        with m.If(block.flush):
            m.d.sync += [waits.eq(0), of_record.eq(0)]
        idle = (claimed == freed) & ~ring.take
        m.d.comb += [
            Assume(beat.count <= self.block.beats.payload.data.shape().width // 8),
            Assume((ring.length != 0) & (ring.length <= JOB_BYTES)),
            Assume(~ring.take | ring.ready),
            Assume(~block.released | (claims.o.payload <= (claimed - freed)[:BITS])),
            Assume(~(block.flush | packet.drop) | idle),
            Assert(~(waits & ring.ready & (distance < ring.length)) | packet.ends),
            Assert(~(waits & packet.ends) | (packet.rest <= distance)),
            Assert(~(packet.ends & (distance == packet.rest)) | waits),
            Assert(~packet.ends | (packet.rest <= ring.length)),
            Assert(~waits | (space.skip <= distance)),
            Assert(space.skip <= space.level),
            Assert(packet.dropped == (space.skip != 0)),
            Assert((space.skip == 0) | packet.drop),
        ]
        self.cover(
            m,
            waits & packet.ends & (packet.rest == 9),
            waits & (distance == 0) & ring.ready & (ring.length == 32),
            waits & packet.dropped & (space.skip == distance),
            passes & (distance != 0) & ~packet.ends,
        )
