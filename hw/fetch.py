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

Format: PG195 (DMA/Bridge Subsystem for PCI Express), descriptor format and descriptor fetch.
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from peerdma import regs

from .splitter import request_bytes
from .transfer import JOB_BYTES, Descriptor, Outcome, Placement, ReadJob, Retired

__all__ = ["DescriptorFetch"]

DESCRIPTOR_BYTES = regs.DESCRIPTOR.itemsize
#: Adjacent descriptors of a block at most: Nxt_adj has 6 bits.
BLOCK = 64
#: Reads under way at most.
READS = 2


class _Control(data.Struct):
    """What is kept of a descriptor's control dword."""

    good: 1
    stop: 1
    completed: 1
    adjacent: 6


class _State(enum.Enum, shape=2):
    #: no list, or it has ended
    IDLE = 0
    FETCH = 1
    #: an error ended the list; find the address of its descriptor
    LOCATE = 2
    #: offer the error behind the last good descriptor
    REPORT = 3


class DescriptorFetch(wiring.Component):
    """Fetches and checks the descriptors of one channel.

    From `start` to the first read job: 2 cycles. From the retirement of a read to its first
    descriptor: 2 cycles, then one per cycle; to the job for the next block behind the read's `n`
    descriptors: ``n + 2`` cycles. At most two reads are under way.

    Parameters
    ----------
    c2h : bool
        The channel's direction: which of the descriptor's addresses is the one on PCIe.
    slots : int
        Descriptors in the ring, a power of two from 16.

    Members
    -------
    start : In(1)
        High for one cycle: begin a list. Must not happen while `active` or `flush` is high.
    address : In(64)
        Byte address of the first descriptor; bits 4:0 are ignored. Sampled with `start`.
    adjacent : In(6)
        How many more descriptors follow the first one contiguously. Sampled with `start`.
    halt : In(1)
        While high, no read job is offered; reads under way finish.
    flush : In(1)
        While high, neither a job nor a descriptor is offered, and the list is dropped with all
        that is fetched of it. Ignored data of reads under way still arrives; `active` falls when
        the last of them has retired, at the earliest one cycle after `flush` rose.
    limit : In(3)
        Max read request size, PCIe encoding; above 512 bytes it counts as 512.
    job : Out(stream of ReadJob)
        Reads of whole descriptors; places count bytes in the ring, modulo its size. Once valid it
        stays, unless `halt` or `flush` withdraws it.
    retired : In(stream of Retired, always ready)
        One for each job, in their order, no earlier than the cycle of its last placement.
    placement : In(stream of Placement, always ready)
        What the reads brought, for this client only; enabled by whole dwords.
    descriptor : Out(stream of Descriptor)
        The list in order, up to and including the one with Stop, or up to the error that ended
        it: then `card_address`, `length` and the flags of the last one mean nothing. Once valid
        it stays, unless `flush` withdraws it.
    active : Out(1)
        From the cycle after `start` until the list has ended, its descriptors are taken and
        its reads have retired.

    Raises
    ------
    ValueError
        If `slots` is not a power of two, or holds less than the largest read.
    """

    def __init__(self, *, c2h: bool, slots: int = 32):
        least = JOB_BYTES // DESCRIPTOR_BYTES
        if slots < least or slots & (slots - 1):
            raise ValueError(f"slots must be a power of two, at least {least}, not {slots!r}")
        self._c2h = c2h
        self._slots = slots
        super().__init__(
            {
                "start": In(1),
                "address": In(64),
                "adjacent": In(6),
                "halt": In(1),
                "flush": In(1),
                "limit": In(3),
                "job": Out(stream.Signature(ReadJob)),
                "retired": In(stream.Signature(Retired, always_ready=True)),
                "placement": In(stream.Signature(Placement, always_ready=True)),
                "descriptor": Out(stream.Signature(Descriptor)),
                "active": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        align = exact_log2(DESCRIPTOR_BYTES)
        slot = exact_log2(self._slots)
        state = Signal(_State)

        # Ring positions; the bit above the slot number tells full from empty.
        reserved = Signal(slot + 1)
        filled = Signal(slot + 1)
        checked = Signal(slot + 1)
        taken = Signal(slot + 1)
        unchecked = Signal(slot + 1)
        used = Signal(slot + 1)
        m.d.comb += [unchecked.eq(reserved - checked), used.eq(reserved - taken)]

        # A column per word of the descriptor, so that a descriptor is read in one cycle. They are
        # distributed RAM: 32 slots take no more of it than their read registers would.
        arriving = self.placement.payload
        word = Array(self.placement.valid & (arriving.address[:2] == n) for n in range(4))
        halves = Cat(arriving.enable[0], arriving.enable[4])

        def column(name, shape, written, enable, *positions, **granularity):
            memory = Memory(shape=shape, depth=self._slots, init=[])
            m.submodules[name] = memory
            write = memory.write_port(**granularity)
            m.d.comb += [
                write.addr.eq(arriving.address[2:]),
                write.data.eq(written),
                write.en.eq(enable),
            ]
            reads = [memory.read_port(domain="comb") for _ in positions]
            m.d.comb += [read.addr.eq(at) for read, at in zip(reads, positions, strict=True)]
            return [read.data for read in reads]

        def address_column(name, index, position):
            enable = halves & word[index].replicate(2)
            return column(name, 64, arriving.data, enable, position, granularity=32)[0]

        control = Signal(_Control)
        dword = arriving.data[:32]
        m.d.comb += [
            control.good.eq(dword[16:] == regs.DESC_MAGIC),
            control.stop.eq((dword & regs.DESC_STOP).any()),
            control.completed.eq((dword & regs.DESC_COMPLETED).any()),
            control.adjacent.eq(dword[8:]),
        ]
        check, use = column("control", _Control, control, word[0] & halves[0], checked, taken)
        length_bits = regs.DESC_MAX_LENGTH.bit_length()
        (length,) = column("length", length_bits, arriving.data[32:], word[0] & halves[1], taken)
        source = address_column("source", 1, taken)
        destination = address_column("destination", 2, taken)
        following = address_column("next", 3, checked)

        # What is not read yet of the block: `left` descriptors from `where` on, in descriptors.
        # The next read is planned in a cycle of its own.
        where = Signal(64 - align)
        left = Signal(range(BLOCK + 1))
        count = Signal(range(JOB_BYTES // DESCRIPTOR_BYTES + 1))
        planned = Signal()
        outstanding = Signal(range(READS + 1))
        outcome = Signal(Outcome)
        with m.If(~planned):
            in_page = Const(4096 // DESCRIPTOR_BYTES) - where[: 12 - align]
            limit = request_bytes(self.limit) >> align
            nearest = Mux(left < in_page, left, in_page)
            m.d.sync += [
                count.eq(Mux(nearest < limit, nearest, limit)),
                planned.eq(left != 0),
            ]
        job = self.job.payload
        m.d.comb += [
            self.job.valid.eq(
                (state == _State.FETCH)
                & planned
                & (used + count <= self._slots)
                & (outstanding != READS)
                & (outcome == Outcome.OK)
                & ~self.halt
                & ~self.flush
            ),
            job.address.eq(where << align),
            job.length.eq(count << align),
            job.place.eq(reserved[:slot] << align),
        ]
        issue = self.job.valid & self.job.ready
        back = state == _State.LOCATE
        moved = Signal(64 - align)
        m.d.comb += moved.eq(where + Mux(back, -unchecked, count))
        with m.If(issue):
            m.d.sync += [
                where.eq(moved),
                left.eq(left - count),
                reserved.eq(reserved + count),
                planned.eq(0),
            ]

        # A read that failed leaves all behind `filled` unfilled.
        m.d.sync += outstanding.eq(outstanding + issue - self.retired.valid)
        retired = self.retired.payload
        with m.If(self.retired.valid & (outcome == Outcome.OK)):
            m.d.sync += outcome.eq(retired.outcome)
            with m.If(retired.outcome == Outcome.OK):
                m.d.sync += filled.eq(filled + (retired.length >> align))

        offered = self.descriptor.payload
        waiting = taken != checked
        m.d.comb += [
            self.descriptor.valid.eq((waiting | (state == _State.REPORT)) & ~self.flush),
            offered.pci_address.eq(destination if self._c2h else source),
            offered.card_address.eq(source if self._c2h else destination),
            offered.length.eq(length),
            offered.stop.eq(use.stop),
            offered.completed.eq(use.completed),
            self.active.eq((state != _State.IDLE) | waiting | (outstanding != 0)),
        ]
        with m.If(~waiting):
            m.d.comb += [offered.pci_address.eq(where << align), offered.outcome.eq(outcome)]
        take = self.descriptor.valid & self.descriptor.ready
        with m.If(take & waiting):
            m.d.sync += taken.eq(taken + 1)

        with m.Switch(state):
            with m.Case(_State.IDLE):
                with m.If(self.start):
                    m.d.sync += [
                        state.eq(_State.FETCH),
                        where.eq(self.address[align:]),
                        left.eq(self.adjacent + 1),
                        planned.eq(0),
                        outcome.eq(Outcome.OK),
                        *(position.eq(0) for position in (reserved, filled, checked, taken)),
                    ]
            with m.Case(_State.FETCH):
                with m.If(checked != filled):
                    with m.If(~check.good):
                        m.d.sync += [outcome.eq(Outcome.MAGIC), state.eq(_State.LOCATE)]
                    with m.Else():
                        m.d.sync += checked.eq(checked + 1)
                        with m.If(check.stop):
                            m.d.sync += state.eq(_State.IDLE)
                        with m.Elif((left == 0) & (unchecked == 1)):
                            m.d.sync += [
                                where.eq(following[align:]),
                                left.eq(check.adjacent + 1),
                                planned.eq(0),
                            ]
                with m.Elif(outcome != Outcome.OK):
                    m.d.sync += state.eq(_State.LOCATE)
            with m.Case(_State.LOCATE):
                # All that is reserved from `checked` on belongs to the block that ends at `where`.
                m.d.sync += [where.eq(moved), state.eq(_State.REPORT)]
            with m.Case(_State.REPORT):
                with m.If(take & ~waiting):
                    m.d.sync += state.eq(_State.IDLE)
        with m.If(self.flush):
            m.d.sync += [state.eq(_State.IDLE), checked.eq(taken)]

        return m
