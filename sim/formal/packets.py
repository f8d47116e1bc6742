# SPDX-License-Identifier: BSD-2-Clause
"""Packets of the UltraScale blocks: what goes into one of their streams comes out of the adapter.

Each path of the adapter is a `Slice` and a block that inserts a descriptor or strips it. What is
inserted for one direction is stripped again here, as if the link were a wire.
"""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hw.parts import slice as parts
from hw.pcie.ultrascale.insert import HeaderInsert
from hw.pcie.ultrascale.straddle import StraddleFlags, StraddleStrip
from hw.pcie.ultrascale.strip import HeaderStrip

from .property import Property

__all__ = ["Headers", "Slices", "Straddled", "Stripped"]

#: Most dwords of payload of a packet, and the bits of such a number.
_MOST, _COUNT = 1024, 11


class _There(wiring.Component):
    """A descriptor is inserted and stripped; `hold` pauses the stream between."""

    def __init__(self, width: int, dwords: int):
        self.insert = HeaderInsert(width, dwords, user=8)
        self.strip = HeaderStrip(width, dwords, user=8)
        beat = data.StructLayout({"data": width, "first": 1, "last": 1})
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "header": In(32 * dwords),
                "user": In(8),
                "payload": In(_COUNT),
                "hold": In(1),
                "o": Out(stream.Signature(beat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.insert = insert = self.insert
        m.submodules.strip = strip = self.strip
        wiring.connect(m, wiring.flipped(self.i), insert.i)
        wiring.connect(m, strip.o, wiring.flipped(self.o))
        m.d.comb += [
            getattr(insert, name).eq(getattr(self, name)) for name in ("header", "user", "payload")
        ]
        m.d.comb += [
            getattr(strip.i.payload, name).eq(getattr(insert.o.payload, name))
            for name in ("data", "keep", "last", "user")
        ]
        m.d.comb += [
            strip.i.valid.eq(insert.o.valid & ~self.hold),
            insert.o.ready.eq(strip.i.ready & ~self.hold),
        ]
        return m


class Headers(Property):
    """A descriptor that is put in front of a payload and taken off again leaves both as they were.

    So do the packet's beginning and end, for any payload and pauses: no beat is lost, doubled or
    changed. Between, a packet is as many dwords as it says, without a gap, and what is offered
    stays. Where nothing pauses, a beat moves in each cycle but the first of a packet, and one
    behind a packet of one beat. Assumed is the seam's stream: what is offered stays, but for the
    data of a first beat in its first cycle, and a packet has as many beats as its payload. Nothing
    is cut off.
    """

    reach = 16

    def __init__(self, width: int, dwords: int):
        self._lanes, self._dwords = width // 32, dwords
        super().__init__(_There(width, dwords))

    def _state(self, m):
        block, inside, past = self.block, self.inside, self.past
        lanes, dwords = self._lanes, self._dwords
        whole, rest = divmod(dwords, lanes)
        width, room, opening = 32 * lanes, lanes - rest, -(-dwords // lanes)
        i, wire, o = block.i, block.insert.o, block.o
        taken, passes, moves = i.valid & i.ready, wire.valid & wire.ready, o.valid & o.ready

        # What comes in: beats that are taken, of the packet under way since it was offered.
        beats, under_way = Signal(_COUNT), Signal()
        about = Cat(block.header, block.user, block.payload)
        rows = exact_log2(lanes)
        final = Mux(block.payload == 0, 0, (block.payload - 1) >> rows)
        ends = taken & i.payload.last
        m.d.sync += under_way.eq((under_way | i.valid) & ~ends)
        m.d.sync += beats.eq(Mux(ends, 0, beats + taken))
        waited = past(m, i.valid & ~i.ready)
        settled = past(m, i.valid & ~i.ready & under_way)
        m.d.comb += [
            Assume(block.payload <= _MOST),
            Assume(i.payload.first == (beats == 0)),
            Assume(i.payload.last == (beats == final)),
            Assume(~under_way | (about == past(m, about))),
            Assume(~waited | i.valid),
            Assume(~settled | (i.payload.data == past(m, i.payload.data))),
        ]

        # Of what was taken, one beat at most has not come out, or two packets without payload. If
        # there is none, what comes out is what is taken in that cycle.
        here = Signal(data.StructLayout({"beat": i.payload.shape(), "about": len(about)}))
        kept, want = Signal.like(here), Signal.like(here)
        behind, newest = Signal.like(here), Signal.like(here)
        pending, two = Signal(), Signal()
        m.d.comb += [here.beat.eq(i.payload), here.about.eq(about)]
        m.d.comb += [want.eq(Mux(pending, kept, here)), newest.eq(Mux(two, behind, kept))]
        m.d.sync += pending.eq(Mux(pending, two | ~moves | taken, taken & ~moves))
        m.d.sync += two.eq(Mux(moves, two & taken, two | (pending & taken)))
        with m.If(taken):
            m.d.sync += behind.eq(here)
        with m.If(two & moves):
            m.d.sync += kept.eq(behind)
        with m.Elif(taken & (~pending | moves)):
            m.d.sync += kept.eq(here)
        begun = past(m, moves & o.payload.first)
        payload = want.about[-_COUNT:]
        count = Mux(want.beat.last, Mux(payload == 0, 0, (payload - 1)[:rows] + 1), lanes)
        m.d.comb += [
            Assert(~moves | pending | taken),
            Assert(~(taken & two) | moves),
            Assert(~o.valid | pending | i.valid),
            Assert(~o.valid | (o.payload.first == want.beat.first)),
            Assert(~o.valid | (o.payload.last == want.beat.last)),
            Assert(~o.valid | (Cat(block.strip.header, block.strip.user) == want.about[:-_COUNT])),
            *(
                Assert(
                    ~o.valid
                    | (lane >= count)
                    | (o.payload.data.word_select(lane, 32) == want.beat.data.word_select(lane, 32))
                )
                for lane in range(lanes)
            ),
            # As the seam asks: only a packet without payload is taken at once.
            Assert(~(begun & o.valid & o.payload.first)),
            Assert(~(taken & i.payload.first) | under_way | (block.payload == 0)),
        ]

        # What is between.
        out, keep = wire.payload, wire.payload.keep
        left = inside("insert.left")
        of_last = Mux(left != 0, newest.about[-_COUNT:], block.payload)
        sent, now = Signal(_COUNT + 1), Signal(range(lanes + 1))
        m.d.comb += now.eq(sum(keep))
        with m.If(passes):
            m.d.sync += sent.eq(Mux(out.last, 0, sent + now))
        held_back = past(m, wire.valid & ~wire.ready)
        whole_words = (Mux(keep[n], out.data.word_select(n, 32), 0) for n in range(lanes))
        offered = Cat(*whole_words, keep, out.last)
        free = i.valid & under_way & past(m, i.valid) & o.ready & ~block.hold
        single, flush = inside("strip.single"), inside("strip.flush")
        m.d.comb += [
            Assert(~held_back | (wire.valid & (offered == past(m, offered)))),
            Assert(~wire.valid | (keep[0] & ((keep & (keep + 1)) == 0))),
            Assert(~wire.valid | out.last | (now == lanes)),
            Assert(~(wire.valid & out.last) | (sent + now == dwords + of_last)),
            Assert(~(free & ~single) | passes),
            Assert(~(flush & o.ready & ~single) | moves),
        ]

        # What is inside.
        gone, come, started = inside("insert.gone"), inside("strip.come"), inside("strip.started")
        mid = beats != 0
        #: what is left is a packet without payload, taken while the end of the one before left
        alone = Signal()
        m.d.comb += alone.eq((left != 0) & (sent == 0))
        m.d.comb += [
            Assert(~inside("strip.cut")),
            Assert(~begun | single | started),
            Assert(~inside("insert.settled") | under_way),
            Assert(~mid | under_way),
            Assert((gone == 0) | under_way),
            Assert(gone <= whole),
            Assert(~mid | (gone == whole)),
            Assert(beats <= final),
            Assert((left == 0) | ((gone == 0) & ~mid)),
            Assert(left <= rest),
            Assert(come == Mux(((left != 0) & ~alone) | mid, opening, gone)),
            Assert(~flush | ((come == 0) & pending & kept.beat.last)),
            Assert(pending == (flush | ((left != 0) | mid if rest else 0))),
            Assert(two == (flush & (left != 0))),
            Assert(~two | (alone & (kept.about[-_COUNT:] == 0))),
            Assert((left == 0) | newest.beat.last),
            Assert((left == 0) | (sent + left == dwords + newest.about[-_COUNT:])),
            Assert((left != 0) | (sent == (gone + beats) * lanes)),
            Assert(
                ~pending
                | (alone & ~two)
                | (Cat(block.strip.header, block.strip.user) == kept.about[:-_COUNT])
            ),
            Assert(~pending | (alone & ~two) | (started == ~kept.beat.first)),
            Assert(~(pending & mid) | (kept.about == about)),
            Assert(~(pending & mid) | ~kept.beat.last),
            Assert(~(pending & mid) | (kept.beat.first == (beats == 1))),
            Assert((come == 0) | mid | (left != 0) | ~started),
            Assert((come == 0) | (left != 0) | (block.strip.user == block.user)),
            *(
                Assert(
                    (come <= number)
                    | (left != 0)
                    | (
                        block.strip.header[number * width :][:width]
                        == block.header[number * width :][:width]
                    )
                )
                for number in range(opening)
            ),
        ]
        if rest:
            low, high = kept.beat.data[: 32 * room], kept.beat.data[32 * room :]
            m.d.comb += [
                Assert(~pending | alone | (count == 0) | (inside("strip.held") == low)),
                Assert(~pending | flush | alone | (inside("insert.held") == high)),
                Assert((left == 0) | alone | (left + room == count)),
                Assert(~flush | (count <= room)),
            ]
        else:
            m.d.comb += [
                Assert(~mid | started),
                Assert((gone != whole) | (block.payload != 0)),
                Assert(~flush | (kept.about[-_COUNT:] == 0)),
            ]
        if whole == 0:
            waits = Cat(inside("insert.held"), inside("insert.held_user"))
            m.d.comb += [
                Assert(~alone | (waits == newest.about[:-_COUNT])),
                Assert(~alone | (newest.beat.first & (newest.about[-_COUNT:] == 0))),
            ]
            self.cover(m, past(m, left != 0) & alone)
        else:
            m.d.comb += Assert(~alone)
        self.cover(
            m,
            ends & (beats == 2) & past(m, wire.valid & block.hold),
            moves & want.beat.last & (count == 0),
            moves & want.beat.last & (count == lanes) & past(m, o.valid & ~o.ready),
        )


class _Received(Property):
    """A block behind a stream from a PCIe block, which sends the payload of packets.

    Data is assumed to be a dword's place in its packet and the packet's number; the descriptor
    begins with the dwords of payload. That stands for any data, as nothing depends on data.
    """

    reach = 16

    def __init__(self, block: wiring.Component, width: int, dwords: int):
        self._lanes, self._dwords = width // 32, dwords
        super().__init__(block)

    @staticmethod
    def _cell(value, lane):
        return value.word_select(lane, 32)

    @staticmethod
    def _is_cell(value, packet, place, length):
        """Whether a dword is the one of this place in a packet."""
        return value == Cat(Mux(place == 0, length, place)[:_COUNT], packet)

    def _sends(self, m, single, started):
        """Assert that packets leave one after the other.

        Returns the number of the one that is next, its payload by its descriptor, how much has
        left, and whether the descriptor is its own.
        """
        block, o = self.block, self.block.o
        moves = o.valid & o.ready
        number, beats = Signal(21), Signal(_COUNT)
        with m.If(moves):
            m.d.sync += [
                beats.eq(Mux(o.payload.last, 0, beats + 1)),
                number.eq(number + o.payload.last),
            ]
        begun = self.past(m, moves & o.payload.first)
        whole, gone = block.header[:_COUNT], beats * self._lanes
        described = Cat(
            self._is_cell(self._cell(block.header, n), number, C(n, _COUNT), whole)
            for n in range(self._dwords)
        ).all()
        m.d.comb += [
            Assert(~o.valid | described),
            Assert(~o.valid | (o.payload.first == (beats == 0))),
            Assert(~o.valid | (o.payload.last == (gone + self._lanes >= whole))),
            Assert(~(begun & o.valid & o.payload.first)),
            # What is inside.
            Assert(~begun | single | started),
        ]
        m.d.comb += [
            Assert(
                ~o.valid
                | (gone + lane >= whole)
                | self._is_cell(
                    self._cell(o.payload.data, lane), number, self._dwords + gone + lane, whole
                )
            )
            for lane in range(self._lanes)
        ]
        return number, whole, gone, described


class Stripped(_Received):
    """A packet leaves once, in order, with its dwords in their lanes, for any payload and pauses.

    Of data, see `_Received`. Assumed of the block: a packet fills its beats, and what is offered
    stays. Nothing is cut off.
    """

    def __init__(self, width: int, dwords: int):
        super().__init__(HeaderStrip(width, dwords, user=8), width, dwords)

    def _state(self, m):
        block, inside, past = self.block, self.inside, self.past
        lanes, dwords = self._lanes, self._dwords
        rest, opening = dwords % lanes, -(-dwords // lanes)
        cell, is_cell = self._cell, self._is_cell
        i, o = block.i, block.o
        taken = i.valid & i.ready

        # What comes in: the packet under way, its dwords that have come, and its payload.
        packet, place, length = Signal(21), Signal(_COUNT), Signal(_COUNT)
        payload = Mux(place == 0, i.payload.data[:_COUNT], length)
        left = dwords + payload - place
        waited = past(m, i.valid & ~i.ready)
        m.d.comb += [
            Assume(~waited | i.valid),
            Assume(~waited | (i.payload.as_value() == past(m, i.payload))),
            Assume(~i.payload.discontinued),
            Assume(payload <= _MOST),
            Assume((place != 0) | (i.payload.user == packet[:8])),
            Assume(i.payload.last == (left <= lanes)),
            *(Assume(i.payload.keep[lane] == (lane < left)) for lane in range(lanes)),
            *(
                Assume(
                    (lane >= left)
                    | is_cell(cell(i.payload.data, lane), packet, place + lane, payload)
                )
                for lane in range(lanes)
            ),
        ]
        with m.If(taken):
            m.d.sync += [
                packet.eq(packet + i.payload.last),
                place.eq(Mux(i.payload.last, 0, place + lanes)),
                length.eq(payload),
            ]

        flush, started, come = inside("flush"), inside("started"), inside("come")
        number, whole, gone, described = self._sends(m, inside("single"), started)
        open_, begun = come == opening, (come != 0) | flush
        kept = lanes - rest if rest else 0
        waits = Mux(flush, whole - gone, kept)
        m.d.comb += [
            Assert(~o.valid | (block.user == number[:8])),
            # What is inside.
            Assert(~inside("cut")),
            Assert(number == (packet - flush)[:21]),
            Assert(~flush | (come == 0)),
            Assert(come <= opening),
            Assert(Mux(open_, place >= opening * lanes, place == come * lanes)),
            Assert((place == 0) | (place < dwords + length)),
            Assert((place == 0) | (length <= _MOST)),
            Assert((place == 0) | (whole == length)),
            Assert(~begun | (block.user == number[:8])),
            Assert(~begun | (started == (gone != 0))),
            Assert(open_ | flush | (gone == 0)),
            Assert(~(open_ | flush) | described),
            Assert(~open_ | (place == dwords + gone + kept)),
            Assert(~flush | (whole <= gone + kept)),
            Assert(~flush | (whole > gone) | (whole == 0)),
            Assert(whole <= _MOST),
            *(
                Assert(
                    (n >= come * lanes) | is_cell(cell(block.header, n), number, C(n, 11), whole)
                )
                for n in range(dwords)
            ),
            *(
                Assert(
                    ~(open_ | flush)
                    | (lane >= waits)
                    | is_cell(cell(inside("held"), lane), number, dwords + gone + lane, whole)
                )
                for lane in range(kept)
            ),
            Assert(~(i.valid & o.ready & ~inside("single")) | i.ready),
        ]
        self.cover(
            m,
            o.valid & o.ready & o.payload.last & (number == 3) & (gone == 2 * lanes),
            flush & past(m, o.valid & ~o.ready),
        )


class Straddled(_Received):
    """A completion at 256 bits leaves once, in order, with its dwords in their lanes, on any pause.

    Whether or not two are in a beat. Of data, see `_Received`. Assumed of the block: a packet
    begins in lane 0, or in lane 4 if another ends in front of it, and fills its beats; what is
    offered stays. Nothing is cut off.
    """

    _HALF = 4

    def __init__(self):
        super().__init__(StraddleStrip(), 256, 3)

    def _state(self, m):
        block, inside, past = self.block, self.inside, self.past
        i, o = block.i, block.o
        flags, cells = StraddleFlags(i.payload.user), i.payload.data
        taken, moves = i.valid & i.ready, o.valid & o.ready

        cell, is_cell = self._cell, self._is_cell
        # What comes in: the packet under way, its dwords that have come, and its payload. In each
        # beat `a` is in front, and `b` may begin behind it.
        packet, place, length, busy = Signal(21), Signal(_COUNT), Signal(_COUNT), Signal()
        a_place = Mux(busy, place, 0)
        a_length = Mux(busy, length, cells[:_COUNT])
        a_left = self._dwords + a_length - a_place
        b = Mux(busy, flags.begins[0], flags.begins[1])
        b_length = cell(cells, self._HALF)[:_COUNT]
        b_left = self._dwords + b_length
        waited = past(m, i.valid & ~i.ready)
        m.d.comb += [
            Assume(~waited | i.valid),
            Assume(~waited | (i.payload.as_value() == past(m, i.payload))),
            Assume(~i.payload.discontinued),
            Assume((a_length <= _MOST) & (b_length <= _MOST)),
            Assume(Mux(busy, ~flags.begins[1], flags.begins[0])),
            Assume(flags.ends0 == (a_left <= self._lanes)),
            Assume(~flags.ends0 | (flags.last0 == (a_left - 1)[:3])),
            Assume(~b | (a_left <= self._HALF)),
            Assume(flags.ends1 == (b & (b_left <= self._HALF))),
            Assume(~flags.ends1 | (flags.last1 == (self._HALF + b_left - 1)[:3])),
        ]
        for lane in range(self._lanes):
            value = cell(cells, lane)
            of_a = is_cell(value, packet, a_place + lane, a_length)
            m.d.comb += Assume((lane >= a_left) | of_a)
            if lane >= self._HALF:
                of_b = is_cell(value, packet + 1, C(lane - self._HALF, _COUNT), b_length)
                m.d.comb += Assume(~b | (lane - self._HALF >= b_left) | of_b)
        with m.If(taken):
            m.d.sync += [
                packet.eq(packet + flags.ends0 + flags.ends1),
                place.eq(Mux(b, self._HALF, a_place + self._lanes)),
                length.eq(Mux(b, b_length, a_length)),
                busy.eq(Mux(b, ~flags.ends1, ~flags.ends0)),
            ]

        number, whole, gone, described = self._sends(m, inside("single"), inside("started"))

        # What is inside: the beat offered is half done in `second`.
        second, flush, odd = inside("second"), inside("flush"), inside("odd")
        held, started = inside("held"), inside("started")
        kept = Mux(odd, 1, self._lanes - self._dwords)
        due = flush | inside("busy")
        waits = Mux(flush, whole - gone, kept)
        m.d.comb += [
            Assert(~inside("cut")),
            Assert(~second | (flush & waited)),
            Assert(~(second & i.valid) | (b & flags.ends0 & (whole == a_length))),
            Assert(inside("busy") == (busy & ~second)),
            Assert(~(inside("busy") & flush)),
            Assert(number == (packet + second - flush)[:21]),
            Assert(~due | described),
            Assert(~due | (started == (gone != 0))),
            Assert(due | (gone == 0)),
            Assert(whole <= _MOST),
            Assert(~busy | (length <= _MOST)),
            Assert(~busy | (place < self._dwords + length)),
            Assert(
                ~inside("busy")
                | ((whole == length) & (place == gone + Mux(odd, self._HALF, self._lanes)))
            ),
            Assert(~flush | (gone + kept >= whole)),
            Assert(~flush | (whole > gone) | (whole == 0)),
            *(
                Assert(
                    ~due
                    | (lane >= waits)
                    | is_cell(cell(held, lane), number, self._dwords + gone + lane, whole)
                )
                for lane in range(self._lanes - self._dwords)
            ),
        ]
        free = i.valid & o.ready & ~inside("single")
        m.d.comb += Assert(~free | inside("steps"))
        self.cover(
            m,
            taken & b & busy & flags.ends1,
            taken & b & past(m, second & ~moves),
            moves & o.payload.last & (number == 3) & (gone == 2 * self._lanes),
            past(m, taken & busy) & busy & ~odd,
        )


class Slices(Property):
    """What goes into a slice comes out once, in order, unchanged; one may pass in each cycle."""

    def __init__(self):
        super().__init__(parts.Slice(8))

    def _state(self, m):
        block, inside = self.block, self.inside
        i, o = block.i, block.o
        taken, moves = i.valid & i.ready, o.valid & o.ready
        count, first, second = Signal(range(3)), Signal(8), Signal(8)
        m.d.sync += count.eq(count + taken - moves)
        with m.If(moves):
            m.d.sync += first.eq(Mux(count == 2, second, i.payload))
        with m.Elif(count == 0):
            m.d.sync += first.eq(i.payload)
        with m.Else():
            m.d.sync += second.eq(Mux(taken, i.payload, second))
        m.d.comb += [
            Assert(o.valid == (count != 0)),
            Assert(~o.valid | (o.payload == first)),
            Assert(i.ready == (count != 2)),
            # What is inside.
            Assert(count <= 2),
            Assert((count != 2) | (inside("waiting") == second)),
        ]
        self.cover(m, moves & self.past(m, count == 2), taken & moves)
