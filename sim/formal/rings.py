# SPDX-License-Identifier: BSD-2-Clause
"""The rings of a user stream: space, and the way of any one byte."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.records import JOB_BYTES, CardMemory
from hw.stream.ring import InboundRing, OutboundRing

from .property import Property

__all__ = ["Inbound", "Outbound"]

SIZE = 2 * JOB_BYTES
#: of a byte's position, whose topmost bit tells one round of the ring from the next
BITS = SIZE.bit_length()


class Inbound(Property):
    """A read has its room before it is issued; each byte leaves once, in its place, as it came.

    Room is free again once, when the byte is on its way out. Up to the queue in front of the sink,
    which has room for all that is read; see `Queue`. Assumed: a read is issued if the ring is
    ready; its bytes are written before the mark passes them and not afterwards; the ring is
    flushed when none can still come.
    """

    def __init__(self):
        super().__init__(InboundRing(SIZE))

    def _state(self, m):
        block, inside = self.block, self.inside
        ring = block.reservation
        byte = self.any(m, BITS, "byte")
        value = Signal(8)
        reserved, arrived, left = (inside(name) for name in ("reserved", "arrived", "left"))

        def behind(position):
            """How far the byte is behind a position."""
            return (byte - position)[:BITS]

        placed = block.placement
        here = (placed.payload.address[: BITS - 4] == byte[3:-1]) & placed.valid
        written = here & placed.payload.enable.bit_select(byte[:3], 1)
        come = Signal()  # of the bytes that are reserved, the one in question has been written
        coming = behind(arrived) < (reserved - arrived)[:BITS]
        place = block.mark.payload.place
        passes = block.mark.valid & (place.memory == CardMemory.RING) & ~block.gap
        to = place.as_value()[:BITS]
        m.d.comb += [
            Assume((ring.length != 0) & (ring.length <= JOB_BYTES)),
            Assume(~ring.take | ring.ready),
            Assume(~written | coming),
            Assume(~passes | ((to - arrived)[:BITS] <= (reserved - arrived)[:BITS])),
            Assume(~(passes & (behind(arrived) < (to - arrived)[:BITS])) | come),
            # The next read waits for a cycle, as do writes of what was there before.
            Assume(~block.flush | ~(ring.take | passes | placed.valid)),
        ]
        with m.If(written):
            m.d.sync += [come.eq(1), value.eq(placed.payload.data.word_select(byte[:3], 8))]
        with m.If(ring.take & (behind(reserved) < ring.length)):
            m.d.sync += come.eq(0)

        word = inside.word("memory", byte[3:-1])
        stored = word.word_select(byte[:3], 8)
        used, unread = (reserved - left)[:BITS], (arrived - left)[:BITS]
        before = Signal(BITS, init=SIZE)
        m.d.sync += before.eq(used)
        m.d.comb += [
            Assert(used <= SIZE),
            Assert(unread <= used),
            Assert(~((behind(left) < unread) | (coming & come)) | (stored == value)),
            Assert(~(behind(left) < unread) | come),
            Assert(~ring.ready | (used + ring.length <= SIZE)),
            # Room is told a cycle after it has come, and not right after a read took some.
            Assert(ring.ready | (before + ring.length > SIZE) | self.past(m, ring.take)),
            Assert(inside("taken") == self.past(m, ring.take)),
            Assert(inside("taken") | (inside("room") <= SIZE - used)),
            Assert(~self.started(m) | (inside("room") == SIZE - before)),
            Assert(ring.place.memory == CardMemory.RING),
            Assert(ring.place.as_value()[:-1] == reserved),
        ]
        # What was read a cycle ago goes into the queue: it has the bytes before `left`.
        reading, counted, skip = (inside(name) for name in ("reading", "counted", "skip"))
        queued = (left - counted)[:BITS]
        entry = inside.part("queue").i.payload
        leaves = reading & (behind(queued) < counted)
        lane = entry.data.word_select(behind(queued)[:3], 8)
        m.d.comb += [
            Assert(~reading | ((counted != 0) & (counted <= 8) & (skip == queued[:3]))),
            Assert(~reading | ((counted + skip <= 8) & (entry.count == counted))),
            Assert(~leaves | (lane == self.past(m, value))),
            Assert(inside("queue.level") + reading <= 4),
        ]
        self.cover(
            m,
            leaves & (counted == 8) & byte[-1],
            leaves & (counted < 8) & (behind(left) > 1),
            (used == SIZE) & (reserved[:3] != 0),
            ring.take & self.past(m, block.flush) & (left != 0),
        )


class Outbound(Property):
    """A payload is claimed when all its bytes are there, and each is where it is read from.

    No beat is taken without room. Followed is any one byte, from its beat until it is released.
    Lengths of claims go into a queue, and out of it as room that is free again: that the two add
    up follows from `Queue`, and is assumed here. Assumed as well: a write is claimed if the ring is
    ready, as many are released as were claimed; the ring is flushed when nothing is claimed.
    """

    depth = 1

    def __init__(self):
        super().__init__(OutboundRing(SIZE))

    def _state(self, m):
        block, inside = self.block, self.inside
        ring = block.reservation
        byte = self.any(m, BITS, "byte")
        value, come = Signal(8), Signal()
        taken, written, claimed, freed = (
            inside(name) for name in ("taken", "written", "claimed", "freed")
        )

        def behind(position):
            """How far the byte is behind a position."""
            return (byte - position)[:BITS]

        beat, accept = block.beats.payload, inside("accept")
        used = (taken - freed)[:BITS]
        claims = inside.part("claims")
        m.d.comb += [
            Assume((beat.count != 0) & (beat.count <= 8)),
            Assume((ring.length != 0) & (ring.length <= JOB_BYTES)),
            Assume(~ring.take | (ring.ready & ~block.flush)),
            Assume(~block.released | (claims.o.payload <= (claimed - freed)[:BITS])),
            Assume(~block.flush | (claimed == freed)),
        ]
        with m.If(accept & (behind(taken) < beat.count)):
            m.d.sync += [come.eq(1), value.eq(beat.data.word_select(behind(taken)[:3], 8))]
        with m.If(block.flush | (block.released & (behind(freed) < claims.o.payload))):
            m.d.sync += come.eq(0)

        # Where the byte is: in the memory, on its way there, or held for want of a whole word.
        stored = inside.word("memory", byte[3:-1]).word_select(byte[:3], 8)
        (write,) = inside.part("memory").write_ports
        goes = (write.addr == byte[3:-1]) & write.en.bit_select(byte[:3], 1)
        going = write.data.word_select(byte[:3], 8)
        holding, held = inside("holding"), inside("held")
        out = Mux(block.released, claims.o.payload, 0)
        into = Mux(ring.take, ring.length, 0)
        here = (behind(freed) < used) & come
        waits = behind(written) < (taken - written)[:BITS]
        # What is claimed can be read from the next cycle on: it is in the memory by then.
        ours = here & (behind(freed) < (claimed - freed)[:BITS])
        m.d.comb += [
            Assert(~ours | (stored == value)),
            Assert(used <= SIZE),
            Assert((written - freed)[:BITS] <= used),
            Assert((claimed - freed)[:BITS] <= (written - freed)[:BITS]),
            Assert(come == (behind(freed) < used)),
            Assert(~(here & ~waits) | (Mux(goes, going, stored) == value)),
            Assert(~(here & waits) | (held.word_select(byte[:3], 8) == value)),
            Assert(~ring.take | claims.i.ready),
            Assert((claims.i.valid == ring.take) & (claims.o.ready == block.released)),
            Assert(~ring.take | (claims.i.payload == ring.length)),
            Assert(freed == self.past(m, Mux(block.flush, 0, freed + out)[:BITS])),
            Assert(claimed == self.past(m, Mux(block.flush, 0, claimed + into)[:BITS])),
            # What is inside.
            Assert(written == Mux(holding, taken & ~7, taken)),
            Assert(~holding | (taken[:3] != 0)),
        ]
        self.cover(m, ours & (freed[:3] == 5), here & waits)
