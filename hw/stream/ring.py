# SPDX-License-Identifier: BSD-2-Clause
"""The rings of a user stream: memories between the reads of H2C and the writes of C2H.

With a user block there are two:

    H2C reads ──placed, any order──▶ InboundRing ──bytes, in order──▶ user block ─┐
    C2H writes ◀──whole payloads──── OutboundRing ◀──────────────bytes, in order──┘

Where bytes only pass through there is one, which nothing has to be copied out of:

    H2C reads ──placed, any order──▶ CopyRing ──whole payloads──▶ C2H writes

All count in bytes and know nothing of descriptors, so a transfer may begin and end at any byte
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
from ..records import InOrderMark, placement
from .link import PacketSignature, ReservationSignature
from .packets import PacketEnds
from .space import ReadSpace, WriteSpace

__all__ = [
    "CopyRing",
    "InboundRing",
    "OutboundRing",
    "stream_beat",
]


def stream_beat(width: int) -> data.StructLayout:
    """Bytes of a user stream, in memory order from lane 0: up to `width` bits, those of the core.

    Members: `data`; `count`, how many bytes are valid, from 1 on, and fewer than a beat has only
    where the source of the stream pauses or ends; `last`, the last beat of a packet, which means
    nothing in a stream without packets. A user block may end a packet behind its last byte, by a
    beat with `last` and a `count` of 0.
    """
    return data.StructLayout({"data": width, "count": range(width // 8 + 1), "last": 1})


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
        Bits of a word, and of a beat.

    Members
    -------
    reservation, mark, gap, flush
        As of `ReadSpace`.
    placement : In(stream of placement, always ready)
        Bytes to write; only those of this ring.
    drain : In(1)
        Nothing is reserved that has not arrived.
    beats : Out(stream of stream_beat)
    """

    #: beats between memory and sink, to cover the read latency
    _DEPTH = 4

    def __init__(self, size: int, *, width: int):
        self._space = ReadSpace(size)
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

        m.submodules.space = space = self._space
        wiring.connect(m, wiring.flipped(self.reservation), space.reservation)
        wiring.connect(m, wiring.flipped(self.mark), space.mark)
        left = Signal.like(space.freed)  # position behind the bytes that have left the memory
        m.d.comb += [
            space.gap.eq(self.gap),
            space.flush.eq(self.flush),
            space.freed.eq(left),
        ]

        m.submodules.queue = queue = ResetInserter(self.flush)(
            Queue(stream_beat(self._width), self._DEPTH)
        )
        here = Signal.like(left)
        full = Signal()
        count = Signal(range(lanes + 1))
        issue = Signal()
        #: the beats on their way from the memory, the youngest in bit 0, and their bytes
        coming = Signal(get.latency)
        counts = [count, *(Signal.like(count, name=f"count{n}") for n in range(get.latency))]
        m.d.comb += [
            here.eq(space.arrived - left),
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
            m.d.sync += [left.eq(0), coming.eq(0)]
        return m


class OutboundRing(wiring.Component):
    """A stream, collected into payloads that can be written at once.

    One beat is taken per cycle. Its bytes count for `ready` as many cycles later as `Put` takes.

    Parameters
    ----------
    size : int
        Bytes, a power of two from 1 KiB to 32 KiB.
    pair : int
        Number of the pair, for its placement addresses.
    width : int
        Bits of a word, and of a beat.
    packets : bool
        The ring knows where packets end, of those with a record behind them.

    Members
    -------
    beats : In(stream of stream_beat)
    reservation, released, flush
        As of `WriteSpace`.
    read : In(ReadPortSignature)
        For the writer, from the cycle after the ring was ready; rows count modulo the size.
    records : In(1)
        A record follows a packet whose last beat is taken now. Only with `packets`.
    packet : In(PacketSignature)
        Only with `packets`.
    there : Out(1)
        In the cycle before there were bytes, or the end of a packet, of those that have records.
        Only with `packets`.
    """

    def __init__(self, size: int, *, pair: int = 0, width: int, packets: bool = False):
        self._space = WriteSpace(size, pair=pair, packets=packets)
        self._packets = packets
        self._size = size
        self._width = width
        super().__init__(
            {
                "beats": In(stream.Signature(stream_beat(width))),
                "reservation": In(ReservationSignature()),
                "released": In(1),
                "read": In(ReadPortSignature(width)),
                "flush": In(1),
                **(
                    {"records": In(1), "packet": In(PacketSignature()), "there": Out(1)}
                    if packets
                    else {}
                ),
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

        m.submodules.space = space = self._space
        wiring.connect(m, wiring.flipped(self.reservation), space.reservation)
        # Byte positions: taken from the stream, and in the memory after this cycle.
        taken = Signal.like(space.written)
        written = taken
        for _ in range(put.latency - 1):
            before, written = written, Signal.like(taken, name="written")
            m.d.sync += written.eq(Mux(self.flush, 0, before))
        m.d.comb += [
            space.written.eq(written),
            space.released.eq(self.released),
            space.flush.eq(self.flush),
        ]

        beat = self.beats.payload
        accept = Signal()
        used = Signal.like(taken)
        m.d.comb += [
            used.eq(taken - space.freed),
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
            m.d.sync += taken.eq(0)
        if self._packets:
            self._find_packets(m, taken + beat.count, accept & beat.last)
        return m

    def _find_packets(self, m, end, last):
        """What is known of packets, of which this is the `last` beat, that ends there."""
        space, packet, reservation = self._space, self.packet, self.reservation
        m.submodules.ends = ends = PacketEnds(self._size)
        #: bytes that are there of the next packet, or of those without records before its end
        here = Signal.like(space.level)
        m.d.comb += [
            ends.end.eq(end),
            ends.last.eq(last),
            ends.records.eq(self.records),
            ends.claimed.eq(space.claimed),
            ends.flush.eq(self.flush),
            packet.ends.eq(ends.known & (ends.rest <= reservation.length)),
            packet.rest.eq(ends.rest),
            here.eq(Mux(ends.known & (ends.rest < space.level), ends.rest, space.level)),
            space.skip.eq(Mux(packet.drop & ~ends.passed, here, 0)),
            packet.dropped.eq(space.skip.any()),
        ]
        # Bytes are not reserved before it is known whether their packet ends among them.
        with m.If(ends.passed):
            m.d.comb += reservation.ready.eq(0)
        with m.If(~ends.ready):
            m.d.comb += self.beats.ready.eq(0)
        m.d.sync += self.there.eq(
            self.records & ~ends.passed & (ends.known | space.level.any()) & ~self.flush
        )


class CopyRing(wiring.Component):
    """Bytes that reads of one channel have placed, for the writes of another.

    The bytes of a write are there in the cycle after the mark has passed them.

    Parameters
    ----------
    size : int
        Bytes, a power of two from 1 KiB to 32 KiB.
    pair : int
        Number of the pair, for the placement addresses of writes.
    width : int
        Bits of a word.

    Members
    -------
    reads : In(ReservationSignature), mark, gap, discard
        As of `ReadSpace`.
    placement : In(stream of placement, always ready)
        Bytes to write; only those of this ring.
    writes : In(ReservationSignature), released
        As of `WriteSpace`.
    read : In(ReadPortSignature)
        For the writer, from the cycle after the ring was ready; rows count modulo the size.
    flush : In(1)
        Forget all bytes. Nothing may be reserved that could still arrive, or be released.
    """

    def __init__(self, size: int, *, pair: int = 0, width: int):
        self._banks = Banks(size, width)
        self._emptying, self._filling = WriteSpace(size, pair=pair), ReadSpace(size)
        super().__init__(
            {
                "reads": In(ReservationSignature()),
                "placement": In(stream.Signature(placement(width), always_ready=True)),
                "mark": In(stream.Signature(InOrderMark, always_ready=True)),
                "gap": In(1),
                "discard": In(1),
                "writes": In(ReservationSignature()),
                "released": In(1),
                "read": In(ReadPortSignature(width)),
                "flush": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = banks = self._banks
        m.submodules.filling = filling = self._filling
        m.submodules.emptying = emptying = self._emptying
        wiring.connect(m, wiring.flipped(self.placement), banks.write)
        wiring.connect(m, wiring.flipped(self.read), banks.read)
        wiring.connect(m, wiring.flipped(self.reads), filling.reservation)
        wiring.connect(m, wiring.flipped(self.mark), filling.mark)
        wiring.connect(m, wiring.flipped(self.writes), emptying.reservation)
        m.d.comb += [
            filling.gap.eq(self.gap),
            filling.discard.eq(self.discard),
            filling.freed.eq(emptying.freed),
            filling.flush.eq(self.flush),
            emptying.written.eq(filling.reached),
            emptying.released.eq(self.released),
            emptying.flush.eq(self.flush),
        ]
        return m
