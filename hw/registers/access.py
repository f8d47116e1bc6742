# SPDX-License-Identifier: BSD-2-Clause
"""Executes the host's requests on the register bus: writes as they come, reads from a queue."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..seam import CompletionBeat, CompletionStatus, TargetBeat, TargetKind
from .bus import READ_LATENCY, RegisterRead, RegisterWrite

__all__ = ["QueuedRead", "TargetReader", "TargetWriter"]

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
    write : Out(RegisterWrite)
    """

    target: In(stream.Signature(TargetBeat, always_ready=True))
    offset: In(16)
    write: Out(RegisterWrite())

    def elaborate(self, platform):
        m = Module()
        beat = self.target.payload
        header = beat.header
        write = self.write

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
        next_address = Cat(write.address[:9] + 1)[:9]  # a request never crosses 4 KiB

        m.d.sync += [write.valid.eq(writing | spilling), spilling.eq(0)]
        with m.If(writing):
            m.d.sync += [
                write.bar.eq(header.bar),
                write.address[:9].eq(next_address),
                held.eq(beat.data[32:]),
                held_enables.eq(enables[4:]),
                spilling.eq(beat.last & shifted & ~odd),
            ]
            with m.If(beat.first):
                m.d.sync += write.address.eq(self.offset[3:])
            with m.If(shifted):
                m.d.sync += [
                    write.data.eq(Cat(held, beat.data[:32])),
                    write.enable.eq(Cat(Mux(beat.first, 0, held_enables), enables[:4])),
                ]
            with m.Else():
                m.d.sync += [write.data.eq(beat.data), write.enable.eq(enables)]
        with m.Elif(spilling):
            m.d.sync += [
                write.address[:9].eq(next_address),
                write.data[:32].eq(held),
                write.enable.eq(held_enables),
            ]
        return m


class TargetReader(wiring.Component):
    """Executes reads one after the other and completes them.

    The words of one completion are read one per cycle; the completion is offered when all its
    data is there and then never pauses. The first beat comes `READ_LATENCY` + 3 cycles after the
    request if that is in one word, one cycle later for each further word. Byte count and lower
    address: PCI Express Base Specification, rules for completions.

    Members
    -------
    request : In(stream of QueuedRead)
        Consumed with the last beat of its last completion.
    completion : Out(stream of CompletionBeat)
    read : Out(RegisterRead)
    """

    request: In(stream.Signature(QueuedRead))
    completion: Out(stream.Signature(CompletionBeat))
    read: Out(RegisterRead())

    def elaborate(self, platform):
        m = Module()
        read = self.read
        request = self.request.payload

        completion = self.completion.payload
        header = completion.header

        # Where to read on, in dwords, and where the present completion starts.
        address = Signal(14)
        left = Signal(11)
        start_address = Signal(range(BOUNDARY // 4))
        start_left = Signal(11)
        first_word = Signal()
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
            read.valid.eq(0),
            read.bar.eq(request.bar),
            read.address.eq(address[1:]),
            read.enable.eq(Cat(low_enables, high_enables)),
        ]

        # Each half of the words of a completion has a memory of its own, addressed by the place
        # between two boundaries: a completion that starts in an upper half takes its beats from
        # the upper half of one word and the lower half of the next.
        words = BOUNDARY // 8
        landing = Cat(read.valid, read.address[: (words - 1).bit_length()])
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
            landed, sent = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [
                landed.en.eq(landing[0]),
                landed.addr.eq(landing[1:]),
                landed.data.eq(read.data.word_select(half, 32)),
                sent.addr.eq(word if half else word + start_address[0]),
            ]
            halves.append(sent.data)
        lower, upper = halves

        # Bytes of the first and of the last dword that were not asked for. To ask for none at all
        # counts as one byte.
        ending = Mux(request.dwords == 1, request.first_be, request.last_be)
        lead, trail = Signal(2), Signal(2)

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
                    lead.eq(_zeros_below(request.first_be, none=0)),
                    trail.eq(_zeros_below(ending[::-1], none=3)),
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
                    read.valid.eq(1),
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
                        m.d.sync += [*start(address, left), lead.eq(0)]
                        m.next = "Read"
        return m


def _zeros_below(enables, *, none):
    """Number of zeros below the lowest set bit of 4 byte enables; `none` if there is no set bit."""
    count = Const(none, 2)
    for position in reversed(range(4)):
        count = Mux(enables[position], position, count)
    return count
