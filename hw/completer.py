# SPDX-License-Identifier: BSD-2-Clause
"""Serves the host's reads and writes of our BARs: from the seam's target port to the register bus.

target ─┬─ writes ─▶ TargetWriter ─▶ bus.write_…
        └─ reads ──▶ queue ─▶ TargetReader ─▶ completion
                                  ▲ └─▶ bus.read_…
                                  └─── bus.read_data
"""

from amaranth import *
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .csr import READ_LATENCY, BusSignature
from .seam import CompletionBeat, CompletionStatus, TargetBeat, TargetKind

__all__ = ["Completer", "QueuedRead", "TargetReader", "TargetWriter"]

#: Reads that can wait for their completion.
QUEUE_DEPTH = 16
#: Places kept free when non-posted requests are held back: two may still follow, and two be on
#: their way through the adapter.
QUEUE_RESERVE = 4
#: Completions are cut at multiples of so many bytes: the Read Completion Boundary of an endpoint,
#: and the smallest max payload size there is.
BOUNDARY = 128


class QueuedRead(data.Struct):
    """A non-posted request that waits for its turn."""

    #: 0: answer Unsupported Request
    supported: 1
    bar: 3
    #: byte address within the BAR >> 2
    address: 14
    dwords: 11
    first_be: 4
    last_be: 4
    tag: 8
    requester_id: 16
    traffic_class: 3
    attributes: 3


class TargetWriter(wiring.Component):
    """Puts the writes among the target packets on the bus, 64 bits and one cycle later each.

    A write that starts in the upper half of a bus word may need one word more than it has beats.
    It goes out in the cycle after the packet's last beat, in which no packet may start: the seam
    has none then, for a header comes first. Poisoned writes are dropped.

    Members
    -------
    target : In(stream, always ready)
    offset : In(16)
        Byte address within the BAR of the packet's first dword.
    bus : Out(BusSignature)
        Only the write half is driven.
    """

    target: In(stream.Signature(TargetBeat, always_ready=True))
    offset: In(16)
    bus: Out(BusSignature())

    def elaborate(self, platform):
        m = Module()
        beat = self.target.payload
        header = beat.header
        bus = self.bus

        writing = Signal()
        m.d.comb += writing.eq(
            self.target.valid & (header.kind == TargetKind.WRITE) & ~header.poisoned
        )
        odd = header.dwords[0]
        enables = Signal(8)
        m.d.comb += enables.eq(0xFF)
        with m.If(beat.last & odd):
            m.d.comb += enables.eq(header.last_be)
        with m.Elif(beat.last):
            m.d.comb += enables[4:].eq(header.last_be)
        with m.If(beat.first):
            m.d.comb += enables[:4].eq(header.first_be)

        # The upper dword of a beat belongs to the next word if the packet starts in an upper half.
        shifted = self.offset[2]
        held = Signal(32)
        held_enables = Signal(4)
        spilling = Signal()
        next_address = Cat(bus.write_address[:9] + 1)[:9]  # a request never crosses 4 KiB

        m.d.sync += [bus.write_valid.eq(writing | spilling), spilling.eq(0)]
        with m.If(writing):
            m.d.sync += [
                bus.write_bar.eq(header.bar),
                bus.write_address[:9].eq(next_address),
                held.eq(beat.data[32:]),
                held_enables.eq(enables[4:]),
                spilling.eq(beat.last & shifted & ~odd),
            ]
            with m.If(beat.first):
                m.d.sync += bus.write_address.eq(self.offset[3:])
            with m.If(shifted):
                m.d.sync += [
                    bus.write_data.eq(Cat(held, beat.data[:32])),
                    bus.write_enable.eq(Cat(Mux(beat.first, 0, held_enables), enables[:4])),
                ]
            with m.Else():
                m.d.sync += [bus.write_data.eq(beat.data), bus.write_enable.eq(enables)]
        with m.Elif(spilling):
            m.d.sync += [
                bus.write_address[:9].eq(next_address),
                bus.write_data[:32].eq(held),
                bus.write_enable.eq(held_enables),
            ]
        return m


class TargetReader(wiring.Component):
    """Executes reads one after the other and completes them.

    The words of one completion are read one per cycle; the completion is offered when all its
    data is there and then never pauses. The first beat comes `READ_LATENCY` + 3 cycles after the
    request if it is in one word, one cycle later for each further word. Byte count and lower
    address: PCI Express Base Specification, rules for completions.

    Members
    -------
    request : In(stream of QueuedRead)
        Consumed with the last beat of its last completion.
    completion : Out(stream of CompletionBeat)
    bus : Out(BusSignature)
        Only the read half is used.
    """

    request: In(stream.Signature(QueuedRead))
    completion: Out(stream.Signature(CompletionBeat))
    bus: Out(BusSignature())

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        request = self.request.payload

        completion = self.completion.payload
        header = completion.header

        # Where to read on, in dwords, and where the present completion starts.
        address = Signal(14)
        left = Signal(11)
        start_address = Signal(range(BOUNDARY // 4))
        start_left = Signal(11)
        first_word = Signal()
        first_completion = Signal()
        finished = Signal()

        one_left, two_left = left == 1, left == 2
        two = ~address[0] & ~one_left
        step = Mux(two, 2, 1)
        low_enables, high_enables = Signal(4), Signal(4)
        with m.If(first_word):
            m.d.comb += low_enables.eq(request.first_be)
        with m.Else():
            m.d.comb += low_enables.eq(Mux(one_left, request.last_be, 0xF))
        with m.If(address[0]):  # only a first word
            m.d.comb += [low_enables.eq(0), high_enables.eq(request.first_be)]
        with m.Elif(two):
            m.d.comb += high_enables.eq(Mux(two_left, request.last_be, 0xF))
        # The bus goes far: it starts from registers.
        m.d.sync += [
            bus.read_valid.eq(0),
            bus.read_bar.eq(request.bar),
            bus.read_address.eq(address[1:]),
            bus.read_enable.eq(Cat(low_enables, high_enables)),
        ]

        # Each half of the words of a completion has a memory of its own, addressed by the place
        # between two boundaries: a completion that starts in an upper half takes its beats from
        # the upper half of one word and the lower half of the next.
        words = BOUNDARY // 8
        landing = Cat(bus.read_valid, bus.read_address[: (words - 1).bit_length()])
        coming = []
        for _ in range(READ_LATENCY):
            coming.append(landing[0])
            landing, before = Signal.like(landing, name="landing"), landing
            m.d.sync += landing.eq(before)
        word = Signal(range(words))
        halves = []
        for half in range(2):
            store = memory.Memory(shape=32, depth=words, init=[])
            m.submodules[f"half{half}"] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(landing[0]),
                write.addr.eq(landing[1:]),
                write.data.eq(bus.read_data.word_select(half, 32)),
                read.addr.eq(word if half else word + start_address[0]),
            ]
            halves.append(read.data)
        lower, upper = halves

        # Bytes of the first and of the last dword that were not asked for. To ask for none at all
        # counts as one byte.
        ending = Mux(request.dwords == 1, request.first_be, request.last_be)
        lead = Mux(first_completion, _zeros_below(request.first_be, none=0), 0)
        trail = _zeros_below(ending[::-1], none=3)

        unsent = Signal.like(header.dwords)
        m.d.comb += [
            completion.data.eq(Mux(start_address[0], Cat(upper, lower), Cat(lower, upper))),
            completion.last.eq(unsent <= 2),
            header.tag.eq(request.tag),
            header.requester_id.eq(request.requester_id),
            header.traffic_class.eq(request.traffic_class),
            header.attributes.eq(request.attributes),
        ]

        def start(at, dwords):
            """Begin a completion at this dword, with so many to go."""
            return [
                address.eq(at),
                left.eq(dwords),
                start_address.eq(at),
                start_left.eq(dwords),
                word.eq(at[1:]),
                header.dwords.eq(0),
                unsent.eq(0),
                completion.first.eq(1),
            ]

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += start(request.address, request.dwords)
                m.d.sync += [
                    first_word.eq(1),
                    first_completion.eq(1),
                    finished.eq(1),
                    header.status.eq(CompletionStatus.UR),
                    header.byte_count.eq(4),
                    header.lower_address.eq(0),
                ]
                with m.If(self.request.valid):
                    m.next = "Send"
                    with m.If(request.supported):
                        m.next = "Read"

            with m.State("Read"):
                m.d.sync += [
                    bus.read_valid.eq(1),
                    address.eq(address + step),
                    left.eq(left - step),
                    header.dwords.eq(header.dwords + step),
                    first_word.eq(0),
                    finished.eq(one_left | (two & two_left)),
                ]
                with m.If(one_left | (two & two_left) | address[1:5].all()):
                    m.next = "Land"

            with m.State("Land"):
                m.d.sync += [
                    unsent.eq(header.dwords),
                    header.status.eq(CompletionStatus.SC),
                    header.byte_count.eq((start_left << 2) - trail - lead),
                    header.lower_address.eq(Cat(lead, start_address)),
                ]
                with m.If(~Cat(coming).any()):
                    m.next = "Send"

            with m.State("Send"):
                m.d.comb += self.completion.valid.eq(1)
                with m.If(self.completion.ready):
                    m.d.sync += [
                        word.eq(word + 1),
                        unsent.eq(unsent - 2),
                        completion.first.eq(0),
                    ]
                    with m.If(completion.last & finished):
                        m.d.comb += self.request.ready.eq(1)
                        m.next = "Idle"
                    with m.Elif(completion.last):
                        m.d.sync += [*start(address, left), first_completion.eq(0)]
                        m.next = "Read"
        return m


def _zeros_below(enables, *, none):
    """Number of zeros below the lowest set bit of 4 byte enables; `none` if there is no set bit."""
    count = Const(none, 2)
    for position in reversed(range(4)):
        count = Mux(enables[position], position, count)
    return count


class Completer(wiring.Component):
    """Turns requests of any size and byte enables into register accesses, and answers them.

    Writes reach the bus one cycle after they arrive. Reads are executed in order, each later than
    all writes that arrived before it; what is in one word is offered `READ_LATENCY` + 4
    cycles after the request. What is neither posted nor a read is answered Unsupported Request;
    messages are dropped.

    Parameters
    ----------
    bars : sequence of (int, int)
        Number and size in bytes (a power of two, 4 KiB to 64 KiB) of each BAR.

    Members
    -------
    target : In(stream, always ready)
        At least one cycle without a beat between packets.
    target_np_ok : Out(1)
        Low when the queue of reads has room only for those that may be on their way.
    completion : Out(stream)
    bus : Out(BusSignature)
    """

    def __init__(self, bars=(regs.BAR_USER, regs.BAR_DMA)):
        for number, size in bars:
            if size not in (1 << bits for bits in range(12, 17)):
                raise ValueError(
                    f"size of BAR {number} must be a power of two from 4 KiB to 64 KiB, not {size}"
                )
        self._bars = tuple(bars)
        super().__init__(
            {
                "target": In(stream.Signature(TargetBeat, always_ready=True)),
                "target_np_ok": Out(1),
                "completion": Out(stream.Signature(CompletionBeat)),
                "bus": Out(BusSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = writer = TargetWriter()
        m.submodules.reader = reader = TargetReader()
        m.submodules.queue = queue = fifo.SyncFIFO(
            width=QueuedRead.as_shape().size, depth=QUEUE_DEPTH
        )
        header = self.target.payload.header

        # Above the size of the BAR the address says where the host has put it.
        offset = Signal(16)
        m.d.comb += offset.eq(header.address[:12])
        with m.Switch(header.bar):
            for number, size in self._bars:
                with m.Case(number):
                    m.d.comb += offset.eq(header.address[:16] & (size - 1))
        m.d.comb += [
            writer.target.payload.eq(self.target.payload),
            writer.target.valid.eq(self.target.valid),
            writer.offset.eq(offset),
        ]

        entry = Signal(QueuedRead)
        same = [
            "bar",
            "dwords",
            "first_be",
            "last_be",
            "tag",
            "requester_id",
            "traffic_class",
            "attributes",
        ]
        reading = header.kind == TargetKind.READ
        m.d.comb += [getattr(entry, name).eq(getattr(header, name)) for name in same]
        m.d.comb += [
            entry.supported.eq(reading),
            entry.address.eq(offset[2:]),
            queue.w_data.eq(entry),
            queue.w_en.eq(
                self.target.valid
                & self.target.payload.first
                & (reading | (header.kind == TargetKind.OTHER))
            ),
            reader.request.payload.eq(queue.r_data),
            reader.request.valid.eq(queue.r_rdy),
            queue.r_en.eq(reader.request.ready),
        ]
        m.d.sync += self.target_np_ok.eq(queue.level < QUEUE_DEPTH - QUEUE_RESERVE)

        wiring.connect(m, reader.completion, wiring.flipped(self.completion))
        for name in self.bus.signature.members:
            if name.startswith("write_"):
                m.d.comb += getattr(self.bus, name).eq(getattr(writer.bus, name))
        for name in ("valid", "bar", "address", "enable"):
            m.d.comb += getattr(self.bus, f"read_{name}").eq(getattr(reader.bus, f"read_{name}"))
        m.d.comb += reader.bus.read_data.eq(self.bus.read_data)
        return m
