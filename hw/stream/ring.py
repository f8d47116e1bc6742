# SPDX-License-Identifier: BSD-2-Clause
"""The two rings between a pair of channels and its user block.

    H2C reads ──placed, any order──▶ InboundRing ──bytes, in order──▶ user block ─┐
    C2H writes ◀──whole payloads──── OutboundRing ◀──────────────bytes, in order──┘

Both count in bytes and know nothing of descriptors, so a transfer may begin and end at any byte
on either side. Space is reserved before it is asked for: a read is issued only when its data has
room, a write only when all of its payload is here.
"""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..memory.card_ram import ReadPortSignature
from ..parts.queue import Queue
from ..records import JOB_BYTES, RING_PLACE, Placement

__all__ = ["InboundRing", "OutboundRing", "StreamBeat"]


class StreamBeat(data.Struct):
    """Up to eight bytes of a user stream, in memory order from lane 0."""

    data: 64
    #: valid bytes, 1 to 8; less than 8 only where the source of the stream pauses or ends
    count: 4
    #: the last beat of a packet; means nothing in a stream without packets
    last: 1


def _check_size(size):
    if size & (size - 1) or not 2 * JOB_BYTES <= size <= 1 << 15:
        raise ValueError(f"ring size must be a power of two, 1 KiB to 32 KiB, not {size}")


class InboundRing(wiring.Component):
    """Bytes that reads of a channel have placed, as a stream.

    A beat leaves three cycles after `frontier` has passed it, then one per cycle. All beats are
    of eight bytes, but for the one before a pause and the one after it: what does not fill a word
    waits for more until `drain` says that none is on its way.

    Parameters
    ----------
    size : int
        Bytes, a power of two.
    place : int
        Where the ring begins among the places of its user.

    Members
    -------
    length : In(10), ready : Out(1), place : Out(17), take : In(1)
        The next read: if `ready`, there is room for it; its bytes go to `place`, and `take`
        reserves them. Never ready in the cycle after `take`.
    placement : In(stream of Placement, always ready)
        Words to write; only those of this ring.
    frontier_valid : In(1), frontier : In(17)
        Place up to which all bytes of the channel's oldest read have been written, be it one of
        this ring or not.
    gap : In(1)
        A read has failed. From here on `frontier` is not taken note of: bytes are missing.
    drain : In(1)
        Nothing is reserved that has not arrived.
    flush : In(1)
        Forget all bytes. Nothing may be reserved that could still arrive.
    beats : Out(stream of StreamBeat)
    """

    #: beats between memory and sink, to cover the read latency
    _DEPTH = 4

    def __init__(self, size: int, *, place: int):
        _check_size(size)
        self._size = size
        self._place = place
        super().__init__(
            {
                "length": In(10),
                "ready": Out(1),
                "place": Out(17),
                "take": In(1),
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "frontier_valid": In(1),
                "frontier": In(17),
                "gap": In(1),
                "drain": In(1),
                "flush": In(1),
                "beats": Out(stream.Signature(StreamBeat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = (self._size - 1).bit_length()
        m.submodules.memory = ram = memory.Memory(
            shape=unsigned(64), depth=self._size // 8, init=[]
        )
        write, read = ram.write_port(granularity=8), ram.read_port()
        placed = self.placement.payload
        m.d.comb += [
            write.addr.eq(placed.address),
            write.data.eq(placed.data),
            write.en.eq(placed.enable & self.placement.valid.replicate(8)),
        ]

        # Byte positions; the bit above the ring's tells full from empty.
        reserved, arrived, left = (
            Signal(bits + 1, name=n) for n in ("reserved", "arrived", "left")
        )
        used = Signal(bits + 1)
        # Told a cycle late, which hides only room that has just come; never right after a take.
        room = Signal(bits + 1)
        taken = Signal()
        m.d.sync += [room.eq(self._size - used), taken.eq(self.take)]
        m.d.comb += [
            used.eq(reserved - left),
            self.ready.eq((self.length <= room) & ~taken),
            self.place.eq(self._place | reserved),
        ]
        with m.If(self.take):
            m.d.sync += reserved.eq(reserved + self.length)
        of_ring = self.frontier[exact_log2(RING_PLACE)]
        with m.If(self.frontier_valid & of_ring & ~self.gap):
            m.d.sync += arrived.eq(self.frontier)

        m.submodules.queue = queue = ResetInserter(self.flush)(Queue(StreamBeat, self._DEPTH))
        here = Signal(bits + 1)
        room_in_word = Signal(4)
        count = Signal(4)
        issue = Signal()
        # Of the word that is being read: where its bytes begin, and how many they are.
        reading = Signal()
        skip = Signal(3)
        counted = Signal(4)
        m.d.comb += [
            here.eq(arrived - left),
            room_in_word.eq(8 - left[:3]),
            count.eq(Mux(here < room_in_word, here, room_in_word)),
            issue.eq(
                (count != 0)
                & ((here >= room_in_word) | self.drain)
                & (queue.level + reading < self._DEPTH)
            ),
            read.addr.eq(left[3:bits]),
            read.en.eq(issue),
        ]
        m.d.sync += [reading.eq(issue), skip.eq(left[:3]), counted.eq(count)]
        with m.If(issue):
            m.d.sync += left.eq(left + count)

        wiring.connect(m, queue.o, wiring.flipped(self.beats))
        entry = queue.i.payload
        m.d.comb += [
            entry.data.eq(read.data >> (skip << 3)),
            entry.count.eq(counted),
            queue.i.valid.eq(reading),
        ]
        with m.If(self.flush):
            m.d.sync += [left.eq(reserved), arrived.eq(reserved), reading.eq(0)]
        return m


class OutboundRing(wiring.Component):
    """A stream, collected into payloads that can be written at once.

    One beat is taken per cycle. In the next one it counts for `ready`, but for the bytes that
    belong to a word which the beat does not fill up: they do a cycle later.

    Parameters
    ----------
    size : int
        Bytes, a power of two.
    place : int
        Where the ring begins among the places of its user.

    Members
    -------
    beats : In(stream of StreamBeat)
    length : In(10), ready : Out(1), place : Out(17), take : In(1)
        The next write: if `ready`, all its bytes are here, from `place` on, and `take` claims
        them.
    released : In(1)
        The oldest claimed payload has been sent: its space is free again.
    read : In(ReadPortSignature)
        For the writer, from the cycle after `take`; addresses count words modulo the size.
    flush : In(1)
        Forget all bytes. Nothing may be claimed that could still be released.
    """

    #: Claims that are not released, at most: as many as the writer and the adapter can hold.
    _CLAIMS = 16

    def __init__(self, size: int, *, place: int):
        _check_size(size)
        self._size = size
        self._place = place
        super().__init__(
            {
                "beats": In(stream.Signature(StreamBeat)),
                "length": In(10),
                "ready": Out(1),
                "place": Out(17),
                "take": In(1),
                "released": In(1),
                "read": In(ReadPortSignature()),
                "flush": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = (self._size - 1).bit_length()
        m.submodules.memory = ram = memory.Memory(
            shape=unsigned(64), depth=self._size // 8, init=[]
        )
        write, read = ram.write_port(granularity=8), ram.read_port()
        m.d.comb += [
            read.addr.eq(self.read.address),
            read.en.eq(self.read.enable),
            self.read.data.eq(read.data),
        ]

        # Byte positions: taken from the stream, in the memory after this cycle, claimed, released.
        taken, written, claimed, freed = (
            Signal(bits + 1, name=n) for n in ("taken", "written", "claimed", "freed")
        )
        level = Signal(bits + 1)
        m.submodules.claims = claims = ResetInserter(self.flush)(Queue(10, self._CLAIMS))
        m.d.comb += [
            level.eq(written - claimed),
            self.ready.eq((level >= self.length) & claims.i.ready),
            self.place.eq(self._place | claimed),
            claims.i.payload.eq(self.length),
            claims.i.valid.eq(self.take),
            claims.o.ready.eq(self.released),
        ]
        with m.If(self.take):
            m.d.sync += claimed.eq(claimed + self.length)
        with m.If(self.released):
            m.d.sync += freed.eq(freed + claims.o.payload)

        # The bytes of a beat that belong to the next word are held until that word is written:
        # with the next beat, or alone when there is none.
        beat = self.beats.payload
        held = Signal(56)
        holding = Signal()
        lane = taken[:3]
        accept = Signal()
        total = Signal(4)
        spread = Signal(120)
        lanes = Signal(15)
        used = Signal(bits + 1)
        m.d.comb += [
            used.eq(taken - freed),
            self.beats.ready.eq(used <= self._size - 8),
            accept.eq(self.beats.valid & self.beats.ready & ~self.flush),
            total.eq(lane + beat.count),
            spread.eq(beat.data << (lane << 3)),
            lanes.eq(((1 << beat.count) - 1) << lane),
        ]
        below = (1 << lane) - 1
        m.d.sync += [
            write.addr.eq(taken[3:bits]),
            write.en.eq(Mux(accept, lanes[:8], 0) | Mux(holding, below[:8], 0)),
            holding.eq(accept & (total > 8)),
        ]
        for byte in range(8):
            own = spread[8 * byte : 8 * byte + 8]
            kept = held[8 * byte : 8 * byte + 8] if byte < 7 else Const(0, 8)
            m.d.sync += write.data[8 * byte : 8 * byte + 8].eq(Mux(lane > byte, kept, own))
        with m.If(accept):
            m.d.sync += [taken.eq(taken + beat.count), held.eq(spread[64:])]
        m.d.sync += written.eq(
            Mux(accept & (total > 8), (taken[3:] + 1) << 3, taken + Mux(accept, beat.count, 0))
        )
        with m.If(self.flush):
            m.d.sync += [
                *(position.eq(0) for position in (taken, written, claimed, freed)),
                holding.eq(0),
                write.en.eq(0),
            ]
        return m
