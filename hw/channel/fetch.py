# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch: walks a list of XDMA descriptors in host memory ahead of their use.

The list is a chain of blocks. A block is 1 to 64 adjacent descriptors; how many, the start
registers say for the first block, and the Nxt_adj field of the last descriptor of a block for the
next. `next` and Nxt_adj of the descriptors inside a block are not looked at: Linux leaves garbage
there. A block is fetched by one or more reads into a ring of slots:

      taken        checked          filled            reserved
        ▼             ▼                ▼                 ▼
    ────┬─────────────┬────────────────┬─────────────────┬────
        │ for the     │ in the ring,   │ reads under way │ free
        │ channel     │ not checked    │ (at most two)   │
    ────┴─────────────┴────────────────┴─────────────────┴────

The check looks at a descriptor per cycle, in order, as soon as it is in the ring, for its magic
and Stop; behind the last one of a block it loads where the next block is. So a `next` is never
followed past a Stop, and the next block is under way long before this one is used up.

A list may also begin with a block that the host has pushed into the slots from 0 on while there was
no list (`hw.channel.push`). It is filled and not checked then, as if it had been read: what the
host wrote is trusted no more than what memory holds.

Format: PG195 (DMA/Bridge Subsystem for PCI Express), descriptor format and descriptor fetch.
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import FETCH_DESCRIPTORS, Descriptor, Outcome, Placement, ReadJob, Retired
from .signatures import FetchSignature
from .splitter import request_bytes

__all__ = ["DescriptorFetch", "DescriptorRam"]

DESCRIPTOR_BYTES = regs.DESCRIPTOR.itemsize
#: Adjacent descriptors of a block at most: Nxt_adj has 6 bits.
BLOCK = 64
#: Reads under way at most.
READS = 2
#: No read crosses a multiple of this.
PAGE_BYTES = 4096


class _Control(data.Struct):
    """What is kept of a descriptor's control dword."""

    good: 1
    stop: 1
    completed: 1
    adjacent: 6


class _Slot(data.Struct):
    """A descriptor, as far as the channel needs it."""

    control: _Control
    length: regs.DESC_MAX_LENGTH.bit_length()
    source: 64
    destination: 64


class DescriptorRam(wiring.Component):
    """Slots for descriptors, written by words of 64 bits and read whole, in the same cycle.

    A column per word makes that possible; distributed RAM of 32 slots is smaller than the
    registers that would collect a descriptor out of a block RAM. Only a block's last descriptor
    needs its next address, so that has no column.

    Parameters
    ----------
    slots : int
        Power of two.

    Members
    -------
    placement : In(stream of Placement, always ready)
        Written at the end of the cycle; enabled by whole dwords.
    check_at : In(slot number), check : Out(_Control)
        A descriptor's control.
    last_at : In(slot number), following : Out(64)
        The next address of the descriptor that was written last into this slot.
    use_at : In(slot number), use : Out(_Slot)
        The rest of another one.
    """

    def __init__(self, slots: int):
        self._slots = slots
        super().__init__(
            {
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "check_at": In(range(slots)),
                "check": Out(_Control),
                "last_at": In(range(slots)),
                "following": Out(64),
                "use_at": In(range(slots)),
                "use": Out(_Slot),
            }
        )

    def elaborate(self, platform):
        m = Module()
        placed = self.placement.payload
        word = placed.data
        #: for each bank, which dwords of its word are written
        dwords = [Cat(enable[0], enable[4]) for enable in (placed.enable[0], placed.enable[1])]

        def column(name, index, shape, written, dword=slice(None), **granularity):
            """Memory for (a part of) one word of each descriptor: two rows of both banks."""
            bank, row = index % 2, placed.rows[index % 2]
            m.submodules[name] = memory = Memory(shape=shape, depth=self._slots, init=[])
            write = memory.write_port(**granularity)
            m.d.comb += [write.addr.eq(row[1:]), write.data.eq(written)]
            with m.If(self.placement.valid & (row[0] == index // 2)):
                m.d.comb += write.en.eq(dwords[bank][dword])
            return memory

        def read(memory, at, target):
            port = memory.read_port(domain="comb")
            m.d.comb += [port.addr.eq(at), target.eq(port.data)]

        kept = Signal(_Control)
        m.d.comb += [
            kept.good.eq(word[16:32] == regs.DESC_MAGIC),
            kept.stop.eq((word & regs.DESC_STOP).any()),
            kept.completed.eq((word & regs.DESC_COMPLETED).any()),
            kept.adjacent.eq(word[8:]),
        ]
        length_bits = len(self.use.length)
        control = column("control", 0, _Control, kept, 0)
        length = column("length", 0, length_bits, word[32:], 1)
        source = column("source", 1, 64, word, granularity=32)
        destination = column("destination", 2, 64, word, granularity=32)
        last = Cat(Const(1, 1), self.last_at)
        with m.If(self.placement.valid & (placed.rows[1][: len(last)] == last)):
            for half in range(2):
                with m.If(dwords[1][half]):
                    m.d.sync += self.following.word_select(half, 32).eq(word.word_select(half, 32))

        read(control, self.check_at, self.check)
        read(control, self.use_at, self.use.control)
        read(length, self.use_at, self.use.length)
        read(source, self.use_at, self.use.source)
        read(destination, self.use_at, self.use.destination)
        return m


class _State(enum.Enum, shape=2):
    #: no list, or it has ended
    IDLE = 0
    FETCH = 1
    #: an error ended the list; put the address of its descriptor into its slot
    LOCATE = 2
    #: offer the error behind the last good descriptor
    REPORT = 3


class DescriptorFetch(wiring.Component):
    """Fetches and checks the descriptors of one channel.

    From `start` to the first read job, or to the first descriptor that was pushed: 2 cycles. From
    the retirement of a read to its first descriptor: 2 cycles, then one per cycle; to the job for
    the next block behind the read's `n` descriptors: ``n + 2`` cycles. At most two reads are under
    way; as each brings up to 16 descriptors, a channel for which 16 descriptors last longer than a
    read waits for the first read only.

    Parameters
    ----------
    c2h : bool
        The channel's direction: which of the descriptor's addresses is the one on PCIe.
    slots : int
        Descriptors in the ring, a power of two from 16.

    Members
    -------
    control : In(FetchSignature)
    limit : In(3)
        Max read request size, PCIe encoding; above 512 bytes it counts as 512.
    job : Out(stream of ReadJob)
        Reads of whole descriptors; places count bytes in the ring, modulo its size. Once valid it
        stays, unless `halt`, `flush` or the end of the list withdraws it.
    retired : In(stream of Retired, always ready)
        One for each job, in their order, no earlier than the cycle of its last placement.
    placement : In(stream of Placement, always ready)
        What the reads brought, for this client only; enabled by whole dwords.
    push : In(stream of Placement, always ready)
        Words that the host pushes, in `rows` from that of slot 0. Only while there is no list:
        `control.active` is low.
    descriptor : Out(stream of Descriptor)
        The list in order, up to and including the one with Stop, or up to the error that ended
        it: then `pci_address`, `length` and the flags of the last one mean nothing. Once valid
        it stays, unless `flush` withdraws it. The address of a pushed one is its offset within the
        window, with bit 0 set.

    Raises
    ------
    ValueError
        If `slots` is not a power of two, or holds less than the largest read.
    """

    def __init__(self, *, c2h: bool, slots: int = 32):
        if slots < FETCH_DESCRIPTORS or slots & (slots - 1):
            raise ValueError(
                f"slots must be a power of two, at least {FETCH_DESCRIPTORS}, not {slots!r}"
            )
        self._c2h = c2h
        self._slots = slots
        super().__init__(
            {
                "control": In(FetchSignature()),
                "limit": In(3),
                "job": Out(stream.Signature(ReadJob)),
                "retired": In(stream.Signature(Retired, always_ready=True)),
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "push": In(stream.Signature(Placement, always_ready=True)),
                "descriptor": Out(stream.Signature(Descriptor)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        control, pushed = self.control, self.control.pushed
        align = exact_log2(DESCRIPTOR_BYTES)
        slot = exact_log2(self._slots)
        state = Signal(_State)
        idle = Signal()
        m.d.comb += idle.eq(state == _State.IDLE)

        # Ring positions; the bit above the slot number tells full from empty.
        reserved = Signal(slot + 1)
        filled = Signal(slot + 1)
        checked = Signal(slot + 1)
        taken = Signal(slot + 1)
        unchecked = Signal(slot + 1)
        used = Signal(slot + 1)
        m.d.comb += [unchecked.eq(reserved - checked), used.eq(reserved - taken)]

        m.submodules.ram = ram = DescriptorRam(self._slots)
        # A block that is asked for to its end has its last descriptor below `reserved`. Of those
        # that are pushed, the last one is the one that was written last. What still arrives of a
        # list that was dropped, or has ended by an error, may be lost.
        m.d.comb += [
            ram.check_at.eq(checked),
            ram.use_at.eq(taken),
            ram.last_at.eq(Mux(idle, self.push.payload.rows[1][1:], reserved - 1)),
        ]

        # What is not read yet of the block: `left` descriptors from the one numbered `at` of a
        # page on. A block that crosses 4 KiB, which PG195 forbids, goes on at the next page when
        # all before it is checked: so what is not checked always lies in one page, and an address
        # is never more than a counter above a small adder.
        page_bits = 64 - exact_log2(PAGE_BYTES)
        in_page = PAGE_BYTES // DESCRIPTOR_BYTES
        page = Signal(page_bits)
        at = Signal(range(in_page + 1))
        left = Signal(range(BLOCK + 1))
        #: the block was pushed: `page` is 0 then, and none is `left`
        on_card = Signal()
        turning = Signal()
        m.d.comb += turning.eq(
            (state == _State.FETCH) & at[-1] & (left != 0) & (checked == reserved)
        )
        # Reads are planned a cycle ahead, so that the read engine sees registers only.
        count = Signal(range(FETCH_DESCRIPTORS + 1))
        outstanding = Signal(range(READS + 1))
        outcome = Signal(Outcome)
        #: a read was issued in the cycle before, and `credit` does not show it yet
        issued = Signal()
        one_read = request_bytes(self.limit) >> align
        limit = Mux(one_read < control.credit, one_read, control.credit)
        here = in_page - at
        nearest = Mux(left < here, left, here)
        most = Mux(nearest < limit, nearest, limit)
        with m.If(~self.job.valid):
            m.d.sync += [
                count.eq(most),
                self.job.valid.eq(
                    (state == _State.FETCH)
                    & (outcome == Outcome.OK)
                    & (left != 0)
                    & ~at[-1]
                    & (control.credit != 0)
                    & ~issued
                    # Room for the largest read, whatever this one asks for: `count` is not in the
                    # critical path.
                    & (used <= self._slots - FETCH_DESCRIPTORS)
                    & (outstanding != READS)
                ),
            ]
        job = self.job.payload
        m.d.comb += [
            job.address.eq(Cat(Const(0, align), at[:-1], page)),
            job.length.eq(count << align),
            job.place.as_value().eq(reserved[:slot] << align),
        ]
        issue = self.job.valid & self.job.ready
        withdraw = Signal()
        m.d.comb += withdraw.eq(issue | control.halt | control.flush)
        m.d.sync += issued.eq(issue)
        with m.If(issue):
            m.d.comb += control.spent.eq(count)
            m.d.sync += [
                at.eq(at + count),
                left.eq(left - count),
                reserved.eq(reserved + count),
            ]

        # A read that failed leaves all behind `filled` unfilled.
        m.d.sync += outstanding.eq(outstanding + issue - self.retired.valid)
        retired = self.retired.payload
        with m.If(self.retired.valid & (outcome == Outcome.OK)):
            m.d.sync += outcome.eq(retired.outcome)
            with m.If(retired.outcome == Outcome.OK):
                m.d.sync += filled.eq(filled + (retired.length >> align))
            with m.Else():
                m.d.comb += withdraw.eq(1)

        offered = self.descriptor.payload
        waiting = taken != checked
        m.d.comb += [
            self.descriptor.valid.eq(waiting | (state == _State.REPORT)),
            offered.pci_address.eq(ram.use.destination if self._c2h else ram.use.source),
            offered.card_address.eq(ram.use.source if self._c2h else ram.use.destination),
            offered.length.eq(ram.use.length),
            offered.stop.eq(ram.use.control.stop),
            offered.completed.eq(ram.use.control.completed),
            control.reading.eq(outstanding != 0),
            control.active.eq((state != _State.IDLE) | waiting | control.reading),
        ]
        with m.If(~waiting):
            m.d.comb += offered.outcome.eq(outcome)
        take = self.descriptor.valid & self.descriptor.ready
        with m.If(take & waiting):
            m.d.sync += taken.eq(taken + 1)

        following = Signal()
        with m.If(turning):
            m.d.sync += at.eq(0)
        with m.Switch(state):
            with m.Case(_State.IDLE):
                m.d.sync += [
                    at.eq(Mux(pushed.any, pushed.count, control.address[align:-page_bits])),
                    left.eq(Mux(pushed.any, 0, control.adjacent + 1)),
                    on_card.eq(pushed.any),
                ]
                with m.If(control.start):
                    m.d.sync += [
                        state.eq(_State.FETCH),
                        outcome.eq(Outcome.OK),
                        *(position.eq(pushed.count) for position in (reserved, filled)),
                        *(position.eq(0) for position in (checked, taken)),
                    ]
                    # None of them is used then: software believes that it has pushed more.
                    with m.If(pushed.any & ~pushed.whole):
                        m.d.sync += [
                            outcome.eq(Outcome.MAGIC),
                            state.eq(_State.LOCATE),
                            *(position.eq(pushed.count) for position in (checked, taken)),
                        ]
            with m.Case(_State.FETCH):
                with m.If(checked != filled):
                    with m.If(~ram.check.good):
                        m.d.comb += withdraw.eq(1)
                        m.d.sync += [outcome.eq(Outcome.MAGIC), state.eq(_State.LOCATE)]
                    with m.Else():
                        m.d.sync += checked.eq(checked + 1)
                        with m.If(ram.check.stop):
                            m.d.comb += withdraw.eq(1)
                            m.d.sync += state.eq(_State.IDLE)
                        with m.Elif((left == 0) & ((checked + 1)[: slot + 1] == reserved)):
                            m.d.comb += following.eq(1)
                            m.d.sync += [
                                at.eq(ram.following[align:-page_bits]),
                                left.eq(ram.check.adjacent + 1),
                                on_card.eq(0),
                            ]
                with m.Elif(outcome != Outcome.OK):
                    m.d.sync += state.eq(_State.LOCATE)
            with m.Case(_State.LOCATE):
                m.d.sync += state.eq(_State.REPORT)
            with m.Case(_State.REPORT):
                with m.If(take & ~waiting):
                    m.d.sync += state.eq(_State.IDLE)
        # What is written: words that are pushed, or read, or the address of the descriptor at
        # `checked`, in place of its card address. All that is reserved from there on is in the
        # page, and ends at `at`.
        written, card_word = ram.placement, 1 if self._c2h else 2
        with m.If(idle):
            m.d.comb += [written.valid.eq(self.push.valid), written.payload.eq(self.push.payload)]
        with m.Elif(state == _State.LOCATE):
            m.d.comb += [
                written.valid.eq(1),
                written.payload.enable[card_word % 2].eq(~0),
                written.payload.rows[card_word % 2].eq(Cat(card_word // 2, checked[:slot])),
                written.payload.data.eq(
                    Cat(on_card, Const(0, align - 1), (at - unchecked)[: len(at) - 1], page)
                ),
            ]
        with m.Else():
            m.d.comb += [
                written.valid.eq(self.placement.valid),
                written.payload.eq(self.placement.payload),
            ]
        # One adder with its multiplexer in front of it is one LUT per bit.
        source = Mux(idle, control.address[-page_bits:], ram.following[-page_bits:])
        with m.If(idle | following | turning):
            m.d.sync += page.eq(Mux(turning, page, source) + turning)
        with m.If(idle & pushed.any):
            m.d.sync += page.eq(0)
        with m.If(control.flush):
            m.d.sync += [state.eq(_State.IDLE), checked.eq(0), taken.eq(0)]
        with m.If(withdraw):
            m.d.sync += self.job.valid.eq(0)

        return m
