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

from ..memory.card_ram import ReadPortSignature
from ..parts.queue import Queue
from ..records import JOB_BYTES, CardMemory, InOrderMark, Placement
from .link import ReservationSignature

__all__ = ["InboundRing", "OutboundRing", "StreamBeat"]


class StreamBeat(data.Struct):
    """Up to eight bytes of a user stream, in memory order from lane 0."""

    data: 64
    #: valid bytes, 1 to 8; less than 8 only where the source of the stream pauses or ends
    count: 4
    #: the last beat of a packet; means nothing in a stream without packets
    last: 1


def _check_size(size, largest):
    if size & (size - 1) or not 2 * JOB_BYTES <= size <= largest:
        raise ValueError(
            f"ring size must be a power of two, 1 KiB to {largest >> 10} KiB, not {size}"
        )


class InboundRing(wiring.Component):
    """Bytes that reads of a channel have placed, as a stream.

    A beat leaves three cycles after the mark has passed it, then one per cycle. All beats have
    eight bytes, except the ones before and after a pause: a part of a word waits for the rest of it
    until `drain` says that no more bytes are on their way.

    Parameters
    ----------
    size : int
        Bytes, a power of two.

    Members
    -------
    reservation : In(ReservationSignature)
        Space for the next read, and where its bytes go. Never ready in the cycle after `take`.
    placement : In(stream of Placement, always ready)
        Words to write; only those of this ring.
    mark : In(stream of InOrderMark, always ready)
        Of the channel's oldest read, be it one of this ring or not.
    gap : In(1)
        A read has failed. From here on marks are ignored: bytes are missing.
    drain : In(1)
        Nothing is reserved that has not arrived.
    flush : In(1)
        Forget all bytes. Nothing may be reserved that could still arrive.
    beats : Out(stream of StreamBeat)
    """

    #: beats between memory and sink, to cover the read latency
    _DEPTH = 4

    def __init__(self, size: int):
        _check_size(size, 1 << 15)
        self._size = size
        super().__init__(
            {
                "reservation": In(ReservationSignature()),
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "mark": In(stream.Signature(InOrderMark, always_ready=True)),
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

        # Byte positions, one bit wider than an offset, to tell full from empty.
        reserved, arrived, left = (
            Signal(bits + 1, name=n) for n in ("reserved", "arrived", "left")
        )
        used = Signal(bits + 1)
        # Registered for timing, so at most one cycle stale. Stale is safe after a beat has left, as
        # free space only grows, but not after a take, which is why `ready` is low in the cycle
        # after it.
        room = Signal(bits + 1)
        taken = Signal()
        reservation = self.reservation
        m.d.sync += [room.eq(self._size - used), taken.eq(reservation.take)]
        m.d.comb += [
            used.eq(reserved - left),
            reservation.ready.eq((reservation.length <= room) & ~taken),
            Cat(reservation.place.offset, reservation.place.pair).eq(reserved),
            reservation.place.memory.eq(CardMemory.RING),
        ]
        with m.If(reservation.take):
            m.d.sync += reserved.eq(reserved + reservation.length)
        place = self.mark.payload.place
        with m.If(self.mark.valid & (place.memory == CardMemory.RING) & ~self.gap):
            m.d.sync += arrived.eq(Cat(place.offset, place.pair))

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

    One beat is taken per cycle. Its bytes count for `ready` in the next cycle; those of a word that
    the beat does not fill count one cycle later.

    Parameters
    ----------
    size : int
        Bytes, a power of two from 1 KiB to 4 KiB: the position counts to twice the size and runs
        on to the end of a write, all within the offset of a placement address.
    pair : int
        Number of the pair, for its placement addresses.

    Members
    -------
    beats : In(stream of StreamBeat)
    reservation : In(ReservationSignature)
        The bytes of the next write, and where they are.
    released : In(1)
        The oldest reserved payload has been sent: its space is free again.
    read : In(ReadPortSignature)
        For the writer, from the cycle after `take`; addresses count words modulo the size.
    flush : In(1)
        Forget all bytes. Nothing may be claimed that could still be released.
    """

    #: Payloads that are claimed and not released, at most: as many as writer and adapter can hold.
    _CLAIMS = 16

    def __init__(self, size: int, *, pair: int = 0):
        _check_size(size, 1 << 12)
        self._size = size
        self._pair = pair
        super().__init__(
            {
                "beats": In(stream.Signature(StreamBeat)),
                "reservation": In(ReservationSignature()),
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
        reservation = self.reservation
        m.submodules.claims = claims = ResetInserter(self.flush)(Queue(10, self._CLAIMS))
        m.d.comb += [
            level.eq(written - claimed),
            reservation.ready.eq((level >= reservation.length) & claims.i.ready),
            reservation.place.offset.eq(claimed),
            reservation.place.pair.eq(self._pair),
            reservation.place.memory.eq(CardMemory.RING),
            claims.i.payload.eq(reservation.length),
            claims.i.valid.eq(reservation.take),
            claims.o.ready.eq(self.released),
        ]
        with m.If(reservation.take):
            m.d.sync += claimed.eq(claimed + reservation.length)
        with m.If(self.released):
            m.d.sync += freed.eq(freed + claims.o.payload)

        # The bytes of a beat that belong to the next word are held until that word is written, with
        # the next beat or, if none follows, alone.
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
