# SPDX-License-Identifier: BSD-2-Clause
"""The rings of a user stream: space, and the way of any one byte."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.utils import exact_log2

from hw.records import JOB_BYTES, CardMemory
from hw.stream.ring import CopyRing, InboundRing, OutboundRing

from .property import Property

__all__ = ["Copy", "Inbound", "Outbound", "WideInbound", "WideOutbound"]

SIZE = 2 * JOB_BYTES
#: of a byte's position, whose topmost bit tells one round of the ring from the next
BITS = SIZE.bit_length()


class _Place:
    """Where the byte with this position is in words of so many lanes: row, bank and lane."""

    def __init__(self, byte: Value, lanes: int):
        lane_bits = exact_log2(lanes)
        self._bank, self._row = byte[lane_bits], byte[lane_bits + 1 : -1]
        self._lane = byte[:lane_bits]

    def stored(self, inside) -> Value:
        """The byte in the memory."""
        words = [inside.word(f"memory.{bank}", self._row) for bank in ("even", "odd")]
        return Mux(self._bank, words[1], words[0]).word_select(self._lane, 8)

    def written(self, placed) -> tuple[Value, Value]:
        """Whether a placement writes it, and with what."""
        payload, row = placed.payload, placed.payload.rows[self._bank]
        enable = payload.enable[self._bank].bit_select(self._lane, 1)
        here = placed.valid & (row[: len(self._row)] == self._row) & enable
        return here, payload.data.word_select(self._lane, 8)


class Inbound(Property):
    """A read has its room before it is issued; each byte leaves once, in its place, as it came.

    Room is free again once, when the byte is on its way out. Up to the queue in front of the sink,
    which has room for all that is read; see `Queue`. Assumed: a read is issued if the ring is
    ready; its bytes are written no later than the mark passes them and not afterwards; the ring is
    flushed when none can still come.
    """

    WIDTH = 64

    def __init__(self):
        super().__init__(InboundRing(SIZE, width=self.WIDTH))

    def _state(self, m):
        block, inside, lanes = self.block, self.inside, self.WIDTH // 8
        ring = block.reservation
        byte = self.any(m, BITS, "byte")
        value = Signal(8)
        reserved, arrived, taken, room = (
            inside(f"space.{name}") for name in ("reserved", "arrived", "taken", "room")
        )
        left = inside("left")

        def behind(position):
            """How far the byte is behind a position."""
            return (byte - position)[:BITS]

        place = _Place(byte, lanes)
        written, brought = place.written(block.placement)
        come = Signal()  # of the bytes that are reserved, the one in question has been written
        coming = behind(arrived) < (reserved - arrived)[:BITS]
        mark = block.mark.payload.place
        passes = block.mark.valid & (mark.memory == CardMemory.RING) & ~block.gap
        to = mark.as_value()[:BITS]
        m.d.comb += [
            Assume((ring.length != 0) & (ring.length <= JOB_BYTES)),
            Assume(~ring.take | ring.ready),
            Assume(~written | coming),
            Assume(~passes | ((to - arrived)[:BITS] <= (reserved - arrived)[:BITS])),
            Assume(~(passes & (behind(arrived) < (to - arrived)[:BITS])) | come | written),
            # The next read waits for a cycle, as do writes of what was there before.
            Assume(~block.flush | ~(ring.take | passes | block.placement.valid)),
        ]
        with m.If(written):
            m.d.sync += [come.eq(1), value.eq(brought)]
        with m.If(ring.take & (behind(reserved) < ring.length)):
            m.d.sync += come.eq(0)

        stored = place.stored(inside)
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
            Assert(taken == self.past(m, ring.take)),
            Assert(taken | (room <= SIZE - used)),
            Assert(~self.started(m) | (room == SIZE - before)),
            Assert(ring.place.memory == CardMemory.RING),
            Assert(ring.place.as_value()[:-1] == reserved),
        ]
        # The beats on their way from the memory have the bytes before `left`, the youngest the
        # last ones. The oldest goes into the queue.
        latency, coming_beats = inside.part("get").latency, inside("coming")
        counts = [inside(f"count{n}") for n in range(latency)]
        on_way = [Mux(coming_beats[n], counts[n], 0) for n in range(latency)]
        queued, reading, counted = (left - sum(on_way))[:BITS], coming_beats[-1], counts[-1]
        as_read = value
        for _ in range(latency):
            as_read = self.past(m, as_read)
        entry = inside.part("queue").i.payload
        leaves = reading & (behind(queued) < counted)
        lane = entry.data.word_select(behind(queued)[: exact_log2(lanes)], 8)
        m.d.comb += [
            *(
                Assert(~coming_beats[n] | ((counts[n] != 0) & (counts[n] <= lanes)))
                for n in range(latency)
            ),
            Assert(~reading | (entry.count == counted)),
            Assert(inside.part("queue").i.valid == reading),
            Assert(~leaves | (lane == as_read)),
            Assert(inside("queue.level") + sum(coming_beats) <= 4),
        ]
        self.cover(
            m,
            # Reads are in their second round; beats of that come many cycles after reset.
            leaves & (counted == lanes) & reserved[-1],
            leaves & (counted < lanes) & (behind(left) > 1),
            (used == SIZE) & (reserved[:3] != 0),
            ring.take & self.past(m, block.flush & (left != 0)),
        )


class WideInbound(Inbound):
    """The same at 256 bits, where two beats are on their way from the memory."""

    WIDTH, depth = 256, 3


class Outbound(Property):
    """A payload is claimed when all its bytes are there, and each is where it is read from.

    No beat is taken without room. Followed is any one byte, from its beat until it is released.
    Lengths of claims go into a queue, and out of it as room that is free again: that the two add
    up follows from `Queue`, and is assumed here. Assumed as well: a write is claimed if the ring is
    ready, as many are released as were claimed; the ring is flushed when nothing is claimed.
    """

    WIDTH = 64
    depth = 1

    def __init__(self):
        super().__init__(OutboundRing(SIZE, width=self.WIDTH))

    def _state(self, m):
        block, inside, lanes = self.block, self.inside, self.WIDTH // 8
        ring = block.reservation
        byte = self.any(m, BITS, "byte")
        value, come = Signal(8), Signal()
        taken, claimed, freed = (inside(name) for name in ("taken", "space.claimed", "space.freed"))

        def behind(position):
            """How far the byte is behind a position."""
            return (byte - position)[:BITS]

        beat, accept = block.beats.payload, inside("accept")
        used = (taken - freed)[:BITS]
        claims = inside.part("space.claims")
        m.d.comb += [
            Assume((beat.count != 0) & (beat.count <= lanes)),
            Assume((ring.length != 0) & (ring.length <= JOB_BYTES)),
            Assume(~ring.take | (ring.ready & ~block.flush)),
            Assume(~block.released | (claims.o.payload <= (claimed - freed)[:BITS])),
            Assume(~block.flush | (claimed == freed)),
        ]
        with m.If(accept & (behind(taken) < beat.count)):
            lane = behind(taken)[: exact_log2(lanes)]
            m.d.sync += [come.eq(1), value.eq(beat.data.word_select(lane, 8))]
        with m.If(block.flush | (block.released & (behind(freed) < claims.o.payload))):
            m.d.sync += come.eq(0)

        # Where the byte is: in the memory, on its way there, or in `Put`.
        written = inside.part("space").written
        place = _Place(byte, lanes)
        stored = place.stored(inside)
        goes, going = place.written(inside.part("put").o)
        out = Mux(block.released, claims.o.payload, 0)
        into = Mux(ring.take, ring.length, 0)
        here = (behind(freed) < used) & come
        arrived = Mux(goes, going, stored) == value
        # What is claimed can be read from the next cycle on: it is in the memory by then.
        ours = here & (behind(freed) < (claimed - freed)[:BITS])
        m.d.comb += [
            Assert(~ours | (stored == value)),
            Assert(used <= SIZE),
            Assert((claimed - freed)[:BITS] <= (written - freed)[:BITS]),
            Assert((written - freed)[:BITS] <= used),
            Assert(come == (behind(freed) < used)),
            Assert(~here | (behind(freed) >= (written - freed)[:BITS]) | arrived),
            Assert(~ring.take | claims.i.ready),
            Assert((claims.i.valid == ring.take) & (claims.o.ready == block.released)),
            Assert(~ring.take | (claims.i.payload == ring.length)),
            Assert(freed == self.past(m, Mux(block.flush, 0, freed + out)[:BITS])),
            Assert(claimed == self.past(m, Mux(block.flush, 0, claimed + into)[:BITS])),
        ]
        self._follow(m, byte, value, come)
        self.cover(m, ours & (freed[:3] == 5), here & goes & (byte[:4] == 0) & (taken[:3] == 2))

    def _follow(self, m, byte, value, come):
        """Bytes on their way to the memory are at its port."""


class WideOutbound(Outbound):
    """The same at 256 bits, where the bytes of a beat are in the memory a cycle later."""

    WIDTH = 256

    def _follow(self, m, byte, value, come):
        """What is inside: the first step of `Put` has the bytes that were taken and not written."""
        inside, put = self.inside, self.inside.part("put")
        written = inside.part("space").written
        count = (inside("taken") - written)[:BITS]
        lanes = [inside(f"put.lane1_{n}") for n in range(self.WIDTH // 8)]
        bits = exact_log2(len(lanes))
        # Of its head, the last fields: rows of both banks, bank, and lane of the first byte.
        head, rows = inside("put.head1"), len(Value.cast(put.o.payload.rows))
        rows, bank, shift = head[-bits - 1 - rows : -bits - 1], head[-bits - 1], head[-bits:]
        row = written[bits + 1 : -1]
        even, odd = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        # Its lanes are turned by the lowest two bits of that.
        turned = shift[:2]
        at = (byte - written)[:BITS]
        lane = Array(lanes)[(at + turned)[:bits]]
        m.d.comb += [
            Assert(count <= len(lanes)),
            Assert(inside("put.valid1") == (count != 0)),
            Assert((count == 0) | (Cat(shift, bank) == written[: bits + 1])),
            Assert((count == 0) | ((odd == row) & (even == (row + bank)[: len(row)]))),
            Assert(~come | (at >= count) | (lane[:8] == value)),
            *(
                Assert((count == 0) | (each[8] == ((n - turned)[:bits] < count)))
                for n, each in enumerate(lanes, len(lanes))
            ),
        ]


class Copy(Property):
    """A read is issued only with room for it; a write only when all its bytes are in the ring.

    Each byte is where the write reads it, from when it is claimed until it is released. Followed is
    any one. Lengths of claims are those that are freed, as of the outbound ring. Assumed are the
    read engine of the inbound ring and the writer of the outbound one; `discard` is left out: it
    gives reads room at the cost of bytes that nobody wants.
    """

    WIDTH = 64

    def __init__(self):
        super().__init__(CopyRing(SIZE, width=self.WIDTH))

    def _state(self, m):
        block, inside = self.block, self.inside
        reads, writes = block.reads, block.writes
        byte = self.any(m, BITS, "byte")
        value, come = Signal(8), Signal()
        reserved, arrived, taken, room = (
            inside(f"filling.{name}") for name in ("reserved", "arrived", "taken", "room")
        )
        claimed, freed = (inside(f"emptying.{name}") for name in ("claimed", "freed"))
        claims = inside.part("emptying.claims")

        def behind(position):
            """How far the byte is behind a position."""
            return (byte - position)[:BITS]

        place = _Place(byte, self.WIDTH // 8)
        written, brought = place.written(block.placement)
        coming = behind(arrived) < (reserved - arrived)[:BITS]
        mark = block.mark.payload.place
        passes = block.mark.valid & (mark.memory == CardMemory.RING) & ~block.gap
        to = mark.as_value()[:BITS]
        m.d.comb += [
            Assume((reads.length != 0) & (reads.length <= JOB_BYTES)),
            Assume((writes.length != 0) & (writes.length <= JOB_BYTES)),
            Assume(~reads.take | reads.ready),
            Assume(~writes.take | writes.ready),
            Assume(~written | coming),
            Assume(~passes | ((to - arrived)[:BITS] <= (reserved - arrived)[:BITS])),
            Assume(~(passes & (behind(arrived) < (to - arrived)[:BITS])) | come | written),
            Assume(~block.released | (claims.o.payload <= (claimed - freed)[:BITS])),
            Assume(~block.discard),
            # At a flush nothing is under way.
            Assume(
                ~block.flush
                | ~(reads.take | writes.take | passes | block.placement.valid | block.released)
            ),
            Assume(~block.flush | (claimed == freed)),
        ]
        with m.If(written):
            m.d.sync += [come.eq(1), value.eq(brought)]
        with m.If(reads.take & (behind(reserved) < reads.length)):
            m.d.sync += come.eq(0)

        stored = place.stored(inside)
        used, filled = (reserved - freed)[:BITS], (arrived - freed)[:BITS]
        out = Mux(block.released, claims.o.payload, 0)
        into = Mux(writes.take, writes.length, 0)
        before = Signal(BITS, init=SIZE)
        m.d.sync += before.eq(used)
        m.d.comb += [
            Assert(used <= SIZE),
            Assert(filled <= used),
            Assert((claimed - freed)[:BITS] <= filled),
            Assert(~(behind(freed) < filled) | come),
            Assert(~((behind(freed) < filled) | (coming & come)) | (stored == value)),
            Assert(~reads.ready | (used + reads.length <= SIZE)),
            Assert(taken == self.past(m, reads.take)),
            Assert(taken | (room <= SIZE - used)),
            Assert(~self.started(m) | (room == SIZE - before)),
            Assert(~writes.ready | (writes.length <= (Mux(passes, to, arrived) - claimed)[:BITS])),
            Assert(writes.place.offset[:BITS] == claimed),
            Assert((claims.i.valid == writes.take) & (claims.o.ready == block.released)),
            Assert(~writes.take | (claims.i.ready & (claims.i.payload == writes.length))),
            Assert(freed == self.past(m, Mux(block.flush, 0, freed + out)[:BITS])),
            Assert(claimed == self.past(m, Mux(block.flush, 0, claimed + into)[:BITS])),
        ]
        self.cover(
            m,
            block.released & (used == SIZE) & (freed[:3] == 5),
            writes.take & (behind(claimed) < writes.length) & byte[-1],
            reads.take & self.past(m, block.flush & (freed != 0)),
        )
