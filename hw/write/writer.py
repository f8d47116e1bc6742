# SPDX-License-Identifier: BSD-2-Clause
"""Writer: turns write jobs into memory write requests that carry bytes of the card."""

from itertools import pairwise

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..memory.banks import ReadPortSignature
from ..memory.rotators import Get
from ..parts.queue import Queue
from ..records import JOB_BYTES, OFFSET_BITS, CardMemory, WriteJob
from ..seam import RequestHeader
from ..seam import beat as request_beat

__all__ = ["Writer"]

#: Depth of both queues, in beats and packets: covers the cycles between a beat that leaves and the
#: arrival of what is read into its room, and reading ahead while the sink sends a packet's header.
DEPTH = 8


class _Header(data.Struct):
    """What varies in the header of a write."""

    #: dword address
    address: 62
    dwords: range(JOB_BYTES // 4 + 2)
    first_be: 4
    last_be: 4
    token: 8


class Writer(wiring.Component):
    """Reads the bytes of write jobs from the card and offers them as write requests.

    Any byte alignment on either side. Bytes that are not enabled hold whatever the memory holds
    beside the job's.

    The first beat is offered a cycle and the latency of `Get` after its job was taken, whatever the
    alignment, and that of a `steady` job, if the one before was read by then, a cycle earlier. Its
    data is there from the next cycle on, which is early enough for the seam. Then
    comes a beat per cycle, without gaps within a packet or between packets. Up to `DEPTH` beats are
    read ahead of a sink that stalls.

    Parameters
    ----------
    rings : int
        Number of outbound rings.
    offset_bits : int
        How many bits of a place's offset count.
    width : int
        Bits of a beat and of a word.

    Members
    -------
    job : In(stream of WriteJob)
        `ready` depends on whether the job before has been read, not on `valid`. Its bytes are read
        from the cycle on in which it is taken.
    ram : Out(ReadPortSignature), rings : array of Out(ReadPortSignature)
        Where the bytes are: card RAM, or the ring of a pair. Rows count modulo their size.
    request : Out(stream of beats of RequestHeader)
        Memory writes.
    """

    def __init__(self, rings: int, offset_bits: int = OFFSET_BITS, *, width: int):
        self._get = Get(width, offset_bits, 1 + rings)
        self._width = width
        memory = ReadPortSignature(width)
        super().__init__(
            {
                "job": In(stream.Signature(WriteJob)),
                "ram": Out(memory),
                "rings": Out(memory).array(rings),
                "request": Out(stream.Signature(request_beat(RequestHeader, width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.headers = headers = Queue(_Header, DEPTH)
        ends = data.StructLayout({"first": 1, "last": 1})
        queued_beat = data.StructLayout({"data": self._width, "ends": ends})
        m.submodules.beats = beats = Queue(queued_beat, DEPTH)
        m.submodules.get = get = self._get
        for port, memory in zip((self.ram, *self.rings), get.memories, strict=True):
            wiring.connect(m, memory, wiring.flipped(port))

        # Read: one beat per cycle while there is room for it.
        lanes = self._width // 8
        lane_bits = exact_log2(lanes)
        reading = Signal()
        place = Signal.like(get.address)
        first = Signal()
        #: beats after the one to read
        left = Signal(range(JOB_BYTES // lanes + 1))
        last = left == 0
        #: the beats on their way from the memory, the youngest in bit 0
        coming = Signal(get.latency)
        #: beats that were read and have not left the queue. Counted here, as their sum would be in
        #: the critical path.
        held = Signal(range(DEPTH + 1))
        room = held != DEPTH
        #: where to read was taken from the job port in the cycle before; a job is read at once
        loaded, at_once = Signal(), Signal()
        m.d.comb += [get.address.eq(place), get.read.eq((reading & room) | at_once)]
        m.d.sync += held.eq(held + get.read - (beats.o.valid & beats.o.ready))
        final = reading & room & last
        with m.If(get.read):
            m.d.sync += [place.eq(get.following), first.eq(0), left.eq(left - 1)]

        # Load the next job as the last beat of this one is read.
        job = self.job.payload
        lane = job.address[:2]
        end = Signal(range(JOB_BYTES + 4))
        header = headers.i.payload
        m.d.comb += [
            self.job.ready.eq((~reading | final) & headers.i.ready),
            headers.i.valid.eq(self.job.valid & self.job.ready),
            end.eq(job.length + lane),
        ]
        # Byte enables of the last dword, counted from its lane 0.
        tail = Signal(4)
        with m.Switch(end[:2]):
            for count in range(4):
                with m.Case(count):
                    m.d.comb += tail.eq((1 << (count or 4)) - 1)
        lead = Signal(4)
        with m.Switch(lane):
            for skip in range(4):
                with m.Case(skip):
                    m.d.comb += lead.eq(0xF << skip)
        single = end <= 4
        m.d.comb += [
            header.address.eq(job.address[2:]),
            header.dwords.eq((end + 3)[2:]),
            header.first_be.eq(Mux(single, lead & tail, lead)),
            header.last_be.eq(Mux(single, 0, tail)),
            header.token.eq(job.token),
        ]
        m.d.comb += at_once.eq(headers.i.valid & job.steady & loaded & ~reading & room)
        m.d.sync += loaded.eq(~reading & ~at_once)
        with m.If(final):
            m.d.sync += reading.eq(0)
        with m.If(headers.i.valid):
            m.d.sync += reading.eq(~(at_once & last))
        # The dword of the first byte may begin before the ring: the place itself says which it is.
        ring = job.place.memory == CardMemory.RING
        with m.If(~at_once & (headers.i.valid | ~reading)):
            m.d.sync += [
                place.eq(job.place.as_value() - lane),
                get.memory.eq(Mux(ring, job.place.pair + 1, 0)),
                first.eq(1),
                left.eq((end - 1)[lane_bits:]),
            ]

        # Whatever is read is taken when it comes.
        beat = beats.i.payload
        of_read, *of_arrival = (Signal(ends, name=f"ends{n}") for n in range(get.latency + 1))
        m.d.comb += [
            of_read.first.eq(first),
            of_read.last.eq(last),
            beat.data.eq(get.data),
            beat.ends.eq(of_arrival[-1]),
            beats.i.valid.eq(coming[-1]),
        ]
        m.d.sync += coming.eq(Cat(get.read, coming))
        m.d.sync += [after.eq(before) for before, after in pairwise((of_read, *of_arrival))]

        # Offer. What begins a packet is offered as it comes from the memory, before its data.
        offered = self.request.payload
        queued = beats.o.payload
        ahead = headers.o.payload
        ends_now = Mux(beats.o.valid, queued.ends, beat.ends)
        m.d.comb += [
            self.request.valid.eq(beats.o.valid | (beats.i.valid & beat.ends.first)),
            offered.data.eq(queued.data),
            Cat(offered.first, offered.last).eq(ends_now),
            offered.header.write.eq(1),
            offered.header.address.eq(Cat(Const(0, 2), ahead.address)),
            offered.header.dwords.eq(ahead.dwords),
            offered.header.first_be.eq(ahead.first_be),
            offered.header.last_be.eq(ahead.last_be),
            offered.header.token.eq(ahead.token),
            beats.o.ready.eq(self.request.ready),
            headers.o.ready.eq(self.request.valid & self.request.ready & queued.ends.last),
        ]

        return m
