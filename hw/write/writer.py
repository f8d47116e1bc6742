# SPDX-License-Identifier: BSD-2-Clause
"""Writer: turns write jobs into memory write requests that carry bytes of the card."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..memory.card_ram import ReadPortSignature
from ..parts.queue import Queue
from ..records import JOB_BYTES, OFFSET_BITS, PLACE_BITS, WriteJob, moved
from ..seam import RequestBeat

__all__ = ["Writer"]

#: Depth of both queues, in beats and packets: covers the two cycles between a beat that leaves and
#: the read that takes its room, and reading ahead while the sink sends a packet's header.
DEPTH = 8


class _Header(data.Struct):
    """What varies in the header of a write."""

    #: dword address
    address: 62
    dwords: range(JOB_BYTES // 4 + 2)
    first_be: 4
    last_be: 4
    token: 8


class _Beat(data.Struct):
    """A beat, without the header."""

    data: 64
    first: 1
    last: 1


class Writer(wiring.Component):
    """Reads the bytes of write jobs from the card and offers them as write requests.

    Any byte alignment on either side. Bytes that are not enabled hold whatever the memory holds
    beside the job's.

    The first beat is offered 3 cycles after its job was taken if its beats are words of the memory,
    that is, if the place less bits 1:0 of the address is a multiple of 8, and 4 cycles otherwise.
    Then comes a beat per cycle, without gaps within a packet, whatever the sink does. Jobs follow
    each other without a gap in the first case and with one of a cycle in the second: 128 aligned
    bytes take 16 or 17 cycles. Up to `DEPTH` beats are read ahead of a sink that stalls.

    Parameters
    ----------
    offset_bits : int
        How many bits of a place's offset count.

    Members
    -------
    job : In(stream of WriteJob)
        `ready` depends on whether the job before has been read, not on `valid`.
    memory : Out(ReadPortSignature)
        Where the bytes are; `address` is a `WordAddress`.
    request : Out(stream of RequestBeat)
        Memory writes.
    """

    def __init__(self, offset_bits: int = OFFSET_BITS):
        self._offset_bits = offset_bits
        super().__init__(
            {
                "job": In(stream.Signature(WriteJob)),
                "memory": Out(ReadPortSignature()),
                "request": Out(stream.Signature(RequestBeat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.headers = headers = Queue(_Header, DEPTH)
        m.submodules.beats = beats = Queue(_Beat, DEPTH)

        # Read: one word per cycle while there is room for its beat.
        reading = Signal()
        word = Signal(PLACE_BITS - 3)
        #: byte lane of a word that holds lane 0 of a beat; the beat ends in the word that arrives
        #: with it
        skew = Signal(3)
        #: the word to read has only the lower lanes of the first beat
        priming = Signal()
        first = Signal()
        #: beats after the one that the word to read completes
        left = Signal(range(JOB_BYTES // 8 + 1))
        last = left == 0
        arrived = Signal()
        m.d.comb += [
            self.memory.address.eq(word),
            self.memory.enable.eq(reading & (beats.level + arrived < DEPTH)),
        ]
        final = self.memory.enable & ~priming & last
        with m.If(self.memory.enable):
            m.d.sync += [word.eq(moved(word, 1, self._offset_bits - 3)), priming.eq(0)]
            with m.If(~priming):
                m.d.sync += [first.eq(0), left.eq(left - 1)]

        # Load the next job as the last word of this one is read.
        job = self.job.payload
        lane = job.address[:2]
        start = Signal(PLACE_BITS)
        end = Signal(range(JOB_BYTES + 4))
        header = headers.i.payload
        m.d.comb += [
            self.job.ready.eq((~reading | final) & headers.i.ready),
            headers.i.valid.eq(self.job.valid & self.job.ready),
            start.eq(moved(job.place.as_value(), -lane, self._offset_bits)),
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
        with m.If(final):
            m.d.sync += reading.eq(0)
        with m.If(headers.i.valid):
            m.d.sync += [
                reading.eq(1),
                word.eq(start[3:]),
                skew.eq(start[:3]),
                priming.eq(start[:3] != 0),
                first.eq(1),
                left.eq((end - 1)[3:]),
            ]

        # Align: a beat is the upper lanes of the previous word below the lower lanes of this one.
        # Words are rotated by 0 to 3 lanes first, then by 0 or 4 as they are put together, which
        # makes each step a multiplexer of four inputs.
        previous = Signal(64)
        beat = beats.i.payload
        complete = Signal()
        shift = Signal.like(skew)
        first_beat = Signal()
        last_beat = Signal()
        m.d.sync += [
            arrived.eq(self.memory.enable),
            complete.eq(~priming),
            shift.eq(skew),
            first_beat.eq(first),
            last_beat.eq(last),
        ]
        turned = Signal(64)
        with m.Switch(shift[:2]):
            for lanes in range(4):
                with m.Case(lanes):
                    m.d.comb += turned.eq(self.memory.data.rotate_right(8 * lanes))
        with m.If(arrived):
            m.d.sync += previous.eq(turned)
        half = shift[2]
        for lane in range(8):
            here, there = (source.word_select(lane, 8) for source in (turned, previous))
            here4, there4 = (source.word_select(lane ^ 4, 8) for source in (turned, previous))
            of_previous = (shift != 0) & (shift < 8 - lane)
            m.d.comb += beat.data.word_select(lane, 8).eq(
                Mux(of_previous, Mux(half, there4, there), Mux(half, here4, here))
            )
        m.d.comb += [
            beat.first.eq(first_beat),
            beat.last.eq(last_beat),
            beats.i.valid.eq(arrived & complete),
        ]

        # Offer.
        offered = self.request.payload
        queued = beats.o.payload
        ahead = headers.o.payload
        m.d.comb += [
            self.request.valid.eq(beats.o.valid),
            offered.data.eq(queued.data),
            offered.first.eq(queued.first),
            offered.last.eq(queued.last),
            offered.header.write.eq(1),
            offered.header.address.eq(Cat(Const(0, 2), ahead.address)),
            offered.header.dwords.eq(ahead.dwords),
            offered.header.first_be.eq(ahead.first_be),
            offered.header.last_be.eq(ahead.last_be),
            offered.header.token.eq(ahead.token),
            beats.o.ready.eq(self.request.ready),
            headers.o.ready.eq(self.request.valid & self.request.ready & queued.last),
        ]

        return m
