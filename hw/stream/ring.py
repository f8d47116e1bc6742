# SPDX-License-Identifier: BSD-2-Clause
"""The two rings between a pair of channels and its user block.

    H2C reads ──placed, any order──▶ InboundRing ──bytes, in order──▶ user block ─┐
    C2H writes ◀──whole payloads──── OutboundRing ◀──────────────bytes, in order──┘

Both count in bytes and know nothing of descriptors, so a transfer may begin and end at any byte
on either side. Space is reserved before it is asked for: a read is issued only when its data has
room, a write only when all of its payload is here.
"""

from itertools import pairwise

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..memory.banks import Banks, ReadPortSignature
from ..memory.rotators import Get, Put
from ..parts.queue import Queue
from ..records import JOB_BYTES, CardMemory, InOrderMark, placement
from ..seam import WIDTH
from .link import ReservationSignature

__all__ = ["InboundRing", "OutboundRing", "StreamBeat", "stream_beat"]


def stream_beat(width: int) -> data.StructLayout:
    """Bytes of a user stream, in memory order from lane 0: up to `width` bits of them.

    Members: `data`; `count`, how many bytes are valid, from 1 on, and fewer than a beat has only
    where the source of the stream pauses or ends; `last`, the last beat of a packet, which means
    nothing in a stream without packets.
    """
    return data.StructLayout({"data": width, "count": range(width // 8 + 1), "last": 1})


#: Of the engine's width: eight bytes.
StreamBeat = stream_beat(WIDTH)


def _check_size(size, largest):
    if size & (size - 1) or not 2 * JOB_BYTES <= size <= largest:
        raise ValueError(
            f"ring size must be a power of two, 1 KiB to {largest >> 10} KiB, not {size}"
        )


class InboundRing(wiring.Component):
    """Bytes that reads of a channel have placed, as a stream.

    A beat leaves two cycles and the latency of `Get` after the mark has passed it, then one per
    cycle. All beats are full except the one before a pause: fewer bytes wait for more until `drain`
    says that no more are on their way.

    Parameters
    ----------
    size : int
        Bytes, a power of two.
    width : int
        Bits of a beat and of a word.

    Members
    -------
    reservation : In(ReservationSignature)
        Space for the next read, and where its bytes go. Never ready in the cycle after `take`.
    placement : In(stream of placement, always ready)
        Bytes to write; only those of this ring.
    mark : In(stream of InOrderMark, always ready)
        Of the channel's oldest read, be it one of this ring or not.
    gap : In(1)
        A read has failed. From here on marks are ignored: bytes are missing.
    drain : In(1)
        Nothing is reserved that has not arrived.
    flush : In(1)
        Forget all bytes. Nothing may be reserved that could still arrive.
    beats : Out(stream of stream_beat)
    """

    #: beats between memory and sink, to cover the read latency
    _DEPTH = 4

    def __init__(self, size: int, width: int = WIDTH):
        _check_size(size, 1 << 15)
        self._size = size
        self._width = width
        super().__init__(
            {
                "reservation": In(ReservationSignature()),
                "placement": In(stream.Signature(placement(width), always_ready=True)),
                "mark": In(stream.Signature(InOrderMark, always_ready=True)),
                "gap": In(1),
                "drain": In(1),
                "flush": In(1),
                "beats": Out(stream.Signature(stream_beat(width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = (self._size - 1).bit_length()
        lanes = self._width // 8
        m.submodules.memory = banks = Banks(self._size, self._width)
        m.submodules.get = get = Get(self._width, bits)
        wiring.connect(m, wiring.flipped(self.placement), banks.write)
        wiring.connect(m, get.memories[0], banks.read)

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

        m.submodules.queue = queue = ResetInserter(self.flush)(
            Queue(stream_beat(self._width), self._DEPTH)
        )
        here = Signal(bits + 1)
        full = Signal()
        count = Signal(range(lanes + 1))
        issue = Signal()
        #: the beats on their way from the memory, the youngest in bit 0, and their bytes
        coming = Signal(get.latency)
        counts = [count, *(Signal.like(count, name=f"count{n}") for n in range(get.latency))]
        m.d.comb += [
            here.eq(arrived - left),
            full.eq(here >= lanes),
            count.eq(Mux(full, lanes, here)),
            issue.eq(
                (full | (self.drain & (here != 0))) & (queue.level + sum(coming) < self._DEPTH)
            ),
            get.address.eq(left),
            get.read.eq(issue),
        ]
        m.d.sync += coming.eq(Cat(issue, coming))
        m.d.sync += [after.eq(before) for before, after in pairwise(counts)]
        with m.If(issue):
            m.d.sync += left.eq(left + count)

        wiring.connect(m, queue.o, wiring.flipped(self.beats))
        entry = queue.i.payload
        m.d.comb += [
            entry.data.eq(get.data),
            entry.count.eq(counts[-1]),
            queue.i.valid.eq(coming[-1]),
        ]
        with m.If(self.flush):
            m.d.sync += [left.eq(reserved), arrived.eq(reserved), coming.eq(0)]
        return m


class OutboundRing(wiring.Component):
    """A stream, collected into payloads that can be written at once.

    One beat is taken per cycle. Its bytes count for `ready` as many cycles later as `Put` takes.

    Parameters
    ----------
    size : int
        Bytes, a power of two from 1 KiB to 4 KiB: the position counts to twice the size and runs
        on to the end of a write, all within the offset of a placement address.
    pair : int
        Number of the pair, for its placement addresses.
    width : int
        Bits of a beat and of a word.

    Members
    -------
    beats : In(stream of stream_beat)
    reservation : In(ReservationSignature)
        The bytes of the next write, and where they are.
    released : In(1)
        The oldest reserved payload has been sent: its space is free again.
    read : In(ReadPortSignature)
        For the writer, from the cycle after `take`; rows count modulo the size.
    flush : In(1)
        Forget all bytes. Nothing may be claimed that could still be released.
    """

    #: Payloads that are claimed and not released, at most: as many as writer and adapter can hold.
    _CLAIMS = 16

    def __init__(self, size: int, *, pair: int = 0, width: int = WIDTH):
        _check_size(size, 1 << 12)
        self._size = size
        self._pair = pair
        self._width = width
        super().__init__(
            {
                "beats": In(stream.Signature(stream_beat(width))),
                "reservation": In(ReservationSignature()),
                "released": In(1),
                "read": In(ReadPortSignature(width)),
                "flush": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = (self._size - 1).bit_length()
        lanes = self._width // 8
        m.submodules.memory = banks = Banks(self._size, self._width)
        m.submodules.put = put = Put(self._width, bits)
        wiring.connect(m, put.o, banks.write)
        wiring.connect(m, wiring.flipped(self.read), banks.read)

        # Byte positions: taken from the stream, in the memory after this cycle, claimed, released.
        taken, claimed, freed = (Signal(bits + 1, name=n) for n in ("taken", "claimed", "freed"))
        written = taken
        for _ in range(put.latency - 1):
            before, written = written, Signal(bits + 1, name="written")
            m.d.sync += written.eq(Mux(self.flush, 0, before))
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

        beat = self.beats.payload
        accept = Signal()
        used = Signal(bits + 1)
        m.d.comb += [
            used.eq(taken - freed),
            self.beats.ready.eq(used <= self._size - lanes),
            accept.eq(self.beats.valid & self.beats.ready & ~self.flush),
            put.i.valid.eq(accept),
            put.i.payload.address.eq(taken),
            put.i.payload.data.eq(beat.data),
            put.i.payload.enable.eq((1 << beat.count) - 1),
            put.discard.eq(self.flush),
        ]
        with m.If(accept):
            m.d.sync += taken.eq(taken + beat.count)
        with m.If(self.flush):
            m.d.sync += [position.eq(0) for position in (taken, claimed, freed)]
        return m
