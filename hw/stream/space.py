# SPDX-License-Identifier: BSD-2-Clause
"""Who may use which bytes of a ring: reads that fill it, and writes that empty it.

Positions count bytes, modulo twice the size of the ring, which tells full from empty. In the order
of the bytes, oldest first:

    ReadSpace    freed ≤ arrived ≤ reserved     reads under way: from `arrived` to `reserved`
    WriteSpace   freed ≤ claimed ≤ written      writes under way: from `freed` to `claimed`
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..parts.queue import Queue
from ..records import JOB_BYTES, OFFSET_BITS, CardMemory, InOrderMark
from .link import ReservationSignature

__all__ = ["ReadSpace", "WriteSpace", "position"]

#: Bytes of the largest ring: its positions are offsets of placement addresses.
_LARGEST = 1 << OFFSET_BITS - 1


def position(size: int) -> Shape:
    """The shape of a position in a ring.

    Raises
    ------
    ValueError
        If the size is not a power of two, or not from twice a request's bytes to 32 KiB.
    """
    if size & (size - 1) or not 2 * JOB_BYTES <= size <= _LARGEST:
        raise ValueError(
            f"ring size must be a power of two, 1 KiB to {_LARGEST >> 10} KiB, not {size}"
        )
    return unsigned(size.bit_length())


class ReadSpace(wiring.Component):
    """Gives reads their room in a ring, and knows how far it is filled without a gap.

    Parameters
    ----------
    size : int
        Bytes, a power of two from 1 KiB to 32 KiB.

    Members
    -------
    reservation : In(ReservationSignature)
        Space for the next read, and where its bytes go. Never ready in the cycle after `take`.
    mark : In(stream of InOrderMark, always ready)
        Of the channel's oldest read, be it one of this ring or not.
    gap : In(1)
        A read has failed. From here on marks are ignored: bytes are missing.
    discard : In(1)
        Nobody wants the bytes: whatever a read overwrites, there is room for it.
    freed : In(position)
        Bytes before this are gone.
    reached : Out(position), arrived : Out(position)
        Bytes before this can be read from the next cycle on: by the mark of this cycle; and from
        this cycle on: by those before.
    flush : In(1)
        Forget all bytes, `freed` begins at 0 as well. Nothing may be reserved that could still
        arrive.
    """

    def __init__(self, size: int):
        self._size = size
        shape = position(size)
        super().__init__(
            {
                "reservation": In(ReservationSignature()),
                "mark": In(stream.Signature(InOrderMark, always_ready=True)),
                "gap": In(1),
                "discard": In(1),
                "freed": In(shape),
                "reached": Out(shape),
                "arrived": Out(shape),
                "flush": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        arrived, reservation, place = self.arrived, self.reservation, self.mark.payload.place
        reserved = Signal.like(arrived)
        used = Signal.like(arrived)
        # Registered for timing, so at most one cycle stale. Stale is safe after bytes were freed,
        # as free space only grows, but not after a take, which is why `ready` is low in the cycle
        # after it.
        room = Signal.like(arrived)
        taken = Signal()
        m.d.comb += [
            used.eq(reserved - self.freed),
            reservation.ready.eq((reservation.length <= room) & ~taken),
            Cat(reservation.place.offset, reservation.place.pair).eq(reserved),
            reservation.place.memory.eq(CardMemory.RING),
        ]
        m.d.sync += [
            room.eq(Mux(self.discard, self._size, self._size - used)),
            taken.eq(reservation.take),
        ]
        with m.If(reservation.take):
            m.d.sync += reserved.eq(reserved + reservation.length)
        m.d.comb += self.reached.eq(arrived)
        m.d.sync += arrived.eq(self.reached)
        with m.If(self.mark.valid & (place.memory == CardMemory.RING) & ~self.gap):
            m.d.comb += self.reached.eq(Cat(place.offset, place.pair))
        with m.If(self.flush):
            m.d.sync += [reserved.eq(0), arrived.eq(0)]
        return m


class WriteSpace(wiring.Component):
    """Gives writes their bytes in a ring, and frees them when they have been sent.

    Parameters
    ----------
    size : int
        Bytes, a power of two from 1 KiB to 32 KiB.
    pair : int
        Number of the pair, for its placement addresses.
    packets : bool
        Bytes may be skipped.

    Members
    -------
    reservation : In(ReservationSignature)
        The bytes of the next write, and where they are.
    released : In(1)
        The oldest reserved payload has been sent: its space is free again.
    written : In(position)
        Bytes before this can be read from the next cycle on.
    freed : Out(position)
        Bytes before this are gone.
    flush : In(1)
        Forget all bytes, `written` begins at 0 as well. Nothing may be claimed that could still be
        released.
    claimed : Out(position), level : Out(position)
        Bytes before this are reserved; and how many are there that are not. Only with `packets`.
    skip : In(position)
        So many of these are gone. Only while all that were reserved are released, and with
        `packets`.
    """

    #: Payloads that are claimed and not released, at most: as many as writer and adapter can hold.
    _CLAIMS = 16

    def __init__(self, size: int, *, pair: int, packets: bool = False):
        self._pair, self._packets = pair, packets
        shape = position(size)
        more = {"claimed": Out(shape), "level": Out(shape), "skip": In(shape)} if packets else {}
        super().__init__(
            {
                "reservation": In(ReservationSignature()),
                "released": In(1),
                "written": In(shape),
                "freed": Out(shape),
                "flush": In(1),
                **more,
            }
        )

    def elaborate(self, platform):
        m = Module()
        reservation = self.reservation
        m.submodules.claims = claims = ResetInserter(self.flush)(Queue(10, self._CLAIMS))
        names = "claimed", "level"
        claimed, level = (
            getattr(self, name) if self._packets else Signal.like(self.written, name=name)
            for name in names
        )
        m.d.comb += [
            level.eq(self.written - claimed),
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
            m.d.sync += self.freed.eq(self.freed + claims.o.payload)
        if self._packets:
            with m.If(self.skip.any()):
                m.d.sync += [claimed.eq(claimed + self.skip), self.freed.eq(claimed + self.skip)]
        with m.If(self.flush):
            m.d.sync += [claimed.eq(0), self.freed.eq(0)]
        return m
