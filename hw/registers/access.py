# SPDX-License-Identifier: BSD-2-Clause
"""Executes the host's requests on the register bus: writes as they arrive, reads from a queue."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..seam import BUS_WIDTH, CompletionHeader, CompletionStatus, TargetHeader, TargetKind
from ..seam import beat as packet_beat
from .bus import READ_LATENCY, RegisterRead, RegisterWrite

__all__ = ["BOUNDARY", "CompletionWords", "QueuedRead", "TargetReader", "TargetWriter"]

#: Completions are split at multiples of this many bytes: the Read Completion Boundary of an
#: endpoint, and the smallest max payload size there is.
BOUNDARY = 128


class QueuedRead(data.Struct):
    """A non-posted request that waits to be executed."""

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
    #: answer with a completion of a locked read
    locked: 1


class TargetWriter(wiring.Component):
    """Executes write packets on the bus, one 64-bit word per beat, one cycle after the beat.

    A write that starts in the upper half of a bus word may need one word more than it has beats.
    That word is written in the cycle after the packet's last beat. No packet may start in it, and
    none does: a header comes first. Poisoned writes are dropped.

    Members
    -------
    target : In(stream, always ready)
    offset : In(16)
        Byte address within the BAR of the packet's first dword.
    write : Out(RegisterWrite)
    """

    target: In(stream.Signature(packet_beat(TargetHeader, BUS_WIDTH), always_ready=True))
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


class CompletionWords(wiring.Component):
    """Collects the words of one completion from the bus, and gives them out as beats.

    Each half of a word has a memory of its own: a completion that starts in an upper half takes
    its beats from the upper half of one word and the lower half of the next.

    Members
    -------
    start : In(1), at : In(4)
        A read of the bus begins; its word's number between two boundaries.
    data : In(64)
        Read data of the bus, `READ_LATENCY` cycles after `start`.
    coming : Out(1)
        Words are on their way.
    word : In(4), odd : In(1)
        The word in which the wanted beat starts, and whether in its upper half.
    beat : Out(64)
        In the same cycle.
    """

    start: In(1)
    at: In(range(BOUNDARY // 8))
    data: In(64)
    coming: Out(1)
    word: In(range(BOUNDARY // 8))
    odd: In(1)
    beat: Out(64)

    def elaborate(self, platform):
        m = Module()
        landing, coming = Cat(self.start, self.at), 0
        for _ in range(READ_LATENCY):
            coming = coming | landing[0]
            landing, before = Signal.like(landing, name="landing"), landing
            m.d.sync += landing.eq(before)
        m.d.comb += self.coming.eq(coming)
        halves = []
        for half in range(2):
            store = memory.Memory(shape=32, depth=BOUNDARY // 8, init=[])
            m.submodules[f"half{half}"] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(landing[0]),
                write.addr.eq(landing[1:]),
                write.data.eq(self.data.word_select(half, 32)),
                read.addr.eq(self.word if half else self.word + self.odd),
            ]
            halves.append(read.data)
        lower, upper = halves
        m.d.comb += self.beat.eq(Mux(self.odd, Cat(upper, lower), Cat(lower, upper)))
        return m


class TargetReader(wiring.Component):
    """Executes reads, one at a time, and completes them.

    The words of one completion are read one per cycle. The completion is offered when all its data
    is there, so that it has no gaps. The first beat comes `READ_LATENCY` + 3 cycles after the
    request if that is in one word, one cycle later for each further word. Byte count and lower
    address: PCI Express Base Specification, rules for completions.

    Members
    -------
    request : In(stream of QueuedRead)
        Consumed with the last beat of its last completion.
    completion : Out(stream of beats of CompletionHeader, of one word each)
    read : Out(RegisterRead)
    """

    request: In(stream.Signature(QueuedRead))
    completion: Out(stream.Signature(packet_beat(CompletionHeader, BUS_WIDTH)))
    read: Out(RegisterRead())

    def elaborate(self, platform):
        m = Module()
        read, request = self.read, self.request.payload
        completion, header = self.completion.payload, self.completion.payload.header

        # The next dword to read and how many are left; the same at the start of the completion.
        address = Signal(14)
        left = Signal(11)
        start_address, start_left = Signal(range(BOUNDARY // 4)), Signal(11)
        first_word, finished = Signal(), Signal()

        step, last, enables = _word(request, address[0], left, first_word)
        # The bus starts from registers: it is on the critical path.
        m.d.sync += [
            read.valid.eq(0),
            read.bar.eq(request.bar),
            read.address.eq(address[1:]),
            read.enable.eq(enables),
        ]

        m.submodules.words = words = CompletionWords()
        word = Signal(range(BOUNDARY // 8))
        m.d.comb += [
            words.start.eq(read.valid),
            words.at.eq(read.address),
            words.data.eq(read.data),
            words.word.eq(word),
            words.odd.eq(start_address[0]),
            completion.data.eq(words.beat),
        ]

        # Bytes of the first and the last dword that are not enabled. A read of no byte at all
        # counts as one byte.
        ending = Mux(request.dwords == 1, request.first_be, request.last_be)
        lead, trail = Signal(2), Signal(2)

        #: dwords of the completion; those that are left to send
        dwords, unsent = Signal(range(BOUNDARY // 4 + 1)), Signal(range(BOUNDARY // 4 + 1))
        m.d.comb += [
            header.dwords.eq(dwords),
            completion.last.eq(unsent <= 2),
            header.tag.eq(request.tag),
            header.requester_id.eq(request.requester_id),
            header.traffic_class.eq(request.traffic_class),
            header.attributes.eq(request.attributes),
            header.locked.eq(request.locked),
        ]

        def start(at, rest):
            """Begin a completion at dword `at`, with `rest` dwords of the request left."""
            return [
                address.eq(at),
                left.eq(rest),
                start_address.eq(at),
                start_left.eq(rest),
                word.eq(at[1:]),
                dwords.eq(0),
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
                    dwords.eq(dwords + step),
                    first_word.eq(0),
                    finished.eq(last),
                ]
                with m.If(last | address[1:5].all()):
                    m.next = "Land"

            with m.State("Land"):
                m.d.sync += [
                    unsent.eq(dwords),
                    header.status.eq(CompletionStatus.SC),
                    header.byte_count.eq((start_left << 2) - (trail + lead)),
                    header.lower_address.eq(Cat(lead, start_address)),
                ]
                with m.If(~words.coming):
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


def _word(request, odd, left, first):
    """Of the next word of a read: its dwords, whether it is the last, and the byte enables.

    It begins in the upper half if `odd`; `left` dwords are left to read, and none was if `first`.
    """
    one_left, two_left = left == 1, left == 2
    two = ~odd & ~one_left
    # Only the first word of a request can start in its upper half.
    lower = Mux(first, request.first_be, Mux(one_left, request.last_be, 0xF))
    upper = Mux(two, Mux(two_left, request.last_be, 0xF), 0)
    enables = Cat(Mux(odd, 0, lower), Mux(odd, request.first_be, upper))
    return Mux(two, 2, 1), one_left | (two & two_left), enables


def _zeros_below(enables, *, none):
    """Number of zeros below the lowest set bit of 4 byte enables; `none` if there is no set bit."""
    count = Const(none, 2)
    for position in reversed(range(4)):
        count = Mux(enables[position], position, count)
    return count
