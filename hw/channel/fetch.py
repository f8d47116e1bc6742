# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch: walks the channels' lists of XDMA descriptors ahead of their use.

A list is a chain of blocks. A block is 1 to 64 adjacent descriptors; how many, the start registers
say for the first block, and the Nxt_adj field of the last descriptor of a block for the next.
`next` and Nxt_adj of the descriptors inside a block are not looked at: Linux leaves garbage there.
A block is fetched by one or more reads into the channel's ring of slots:

      taken                    filled            reserved
        ▼                        ▼                 ▼
    ────┬────────────────────────┬─────────────────┬────
        │ in the ring            │ reads under way │ free
    ────┴────────────────────────┴─────────────────┴────

Control dwords are looked at as they arrive: one with Stop or with a wrong magic ends the reads. So
a `next` is never followed past a Stop; and the next block is under way as soon as all of this one
is in the ring, long before it is used up. The check that counts is made when a descriptor is given
to its channel.

One state machine serves all channels. It visits them in a circle; on each visit it does one thing
for the channel, if there is something to do, and waits for no one. What it knows of a channel is in
a small memory.

A list may also begin with a block that the host has pushed (`hw.channel.push`) into slots of its
own. What the host wrote is trusted no more than what memory holds.

Format: PG195 (DMA/Bridge Subsystem for PCI Express), descriptor format and descriptor fetch.
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from peerdma import regs

from ..records import (
    FETCH_DESCRIPTORS,
    DescriptorPart,
    DescriptorWord,
    InOrderMark,
    Outcome,
    Placement,
    ReadJob,
    Retired,
)
from .plan import ALIGN, BLOCK, IN_PAGE, PAGE_BITS, Block, ReadPlan
from .signatures import FetchSignature, Pushed
from .slots import DescriptorStore

__all__ = ["DescriptorFetch"]

#: Reads of a channel under way at most.
READS = 4
#: Words of a descriptor: control and length, source, destination, next.
_CONTROL, _SOURCE, _DESTINATION, _NEXT = range(4)
#: Bits of a page's number that one is added to at a time.
_QUARTER = PAGE_BITS // 4


def _ends(control) -> Value:
    """Whether a list ends with the descriptor of this control dword, by Stop or by an error."""
    return (control[16:32] != regs.DESC_MAGIC) | (control & regs.DESC_STOP).any()


class _State(enum.Enum, shape=3):
    #: look what there is to do for a channel
    VISIT = 0
    #: hand on a descriptor's control and length, and its addresses
    CONTROL = 1
    CARD = 2
    PCI = 3
    #: report an error
    REPORT = 4
    #: read Nxt_adj and `next` of the last descriptor of a block
    ADJACENT = 5
    FOLLOW = 6
    #: add one to the number of a block's page
    PAGE = 7


def _known(position: Shape) -> data.StructLayout:
    """Fetch state of a channel. For a pushed block, `left` counts descriptors not yet issued."""
    members = {"block": Block, "pushed": 1, "reserved": position, "taken": position}
    return data.StructLayout(members)


class DescriptorFetch(wiring.Component):
    """Fetches the descriptors of all channels, checks them, and hands them on.

    With one channel at work: from `start` to the first read job 3 cycles, to the first part of a
    pushed descriptor 3; from the mark that says that a descriptor has arrived to its first part 2.
    A descriptor is handed on in 4 cycles, of which the first one is the visit. Each other channel
    delays what comes next by up to 4 cycles.

    Parameters
    ----------
    h2c, c2h : int
        Channels in each direction, together at least two. H2C channels are numbered first.
    slots : int
        Descriptors in the ring of each channel, a power of two from 16.
    shared : bool
        Another owner has runs on the channels, too, and pushes descriptors.

    Members
    -------
    control : array of In(FetchSignature)
    limit : In(3)
        Max read request size, PCIe encoding; above 512 bytes it counts as 512.
    jobs : array of Out(stream of ReadJob)
        Reads of whole descriptors, one channel's at a time; places count bytes in its ring. Once
        valid it stays, unless `halt`, `flush` or the end of the list withdraws it.
    retired : array of In(stream of Retired, always ready)
        One for each job of the channel, in their order.
    placement : In(stream of Placement, always ready)
        What the reads brought; `client` is the channel. Enabled by whole dwords.
    mark : In(stream of InOrderMark, always ready)
        How far each channel's oldest read has arrived, the last time before it retires. A word was
        at `placement` in a cycle before the mark that counts it.
    push : array of In(stream of Placement, always ready)
        Words that the host pushes, in `rows` from that of slot 0, for one channel at a time. Only
        while the channel has no list of the host's.
    owned_push : array of In(stream of Placement)
        The same of the other owner, lower numbers first. Its list begins after the last word; one
        of one descriptor with the first, if the others follow at once. Only if `shared`.

    Raises
    ------
    ValueError
        If there are fewer than two channels, or `slots` is no power of two from 16.
    """

    def __init__(self, *, h2c: int, c2h: int, slots: int = 32, shared: bool = False):
        if h2c + c2h < 2:
            raise ValueError(f"at least two channels are needed, not {h2c + c2h}")
        if slots < FETCH_DESCRIPTORS or slots & (slots - 1):
            raise ValueError(
                f"slots must be a power of two, at least {FETCH_DESCRIPTORS}, not {slots!r}"
            )
        self._h2c, self._slots, self._shared = h2c, slots, shared
        count, always = h2c + c2h, {"always_ready": True}
        owned_push = {"owned_push": In(stream.Signature(Placement)).array(count)} if shared else {}
        super().__init__(
            {
                "control": In(FetchSignature()).array(count),
                "limit": In(3),
                "jobs": Out(stream.Signature(ReadJob)).array(count),
                "retired": In(stream.Signature(Retired, **always)).array(count),
                "placement": In(stream.Signature(Placement, **always)),
                "mark": In(stream.Signature(InOrderMark, **always)),
                "push": In(stream.Signature(Placement, **always)).array(count),
                **owned_push,
            }
        )

    def elaborate(self, platform):
        m = Module()
        count, slot_bits = len(self.control), exact_log2(self._slots)
        channels = range(count)
        #: counts descriptors in a ring; the bit above the slot number tells full from empty
        position = unsigned(slot_bits + 1)
        running, starting, ended, failed = (
            Signal(count, name=name) for name in ("running", "starting", "ended", "failed")
        )
        outstanding = Array(Signal(range(READS + 1), name=f"outstanding{n}") for n in channels)

        # What is known of the channel whose turn it is
        state = Signal(_State)
        turn = Signal(channels)
        known = Signal(_known(position))
        following, save = Signal.like(known), Signal()
        filled, failure = Signal(position), Signal(Outcome)

        def table(name, value):
            """A memory of such a value for each channel; the write port of it."""
            depth = 1 << ceil_log2(count)
            m.submodules[name] = memory = Memory(shape=value.shape(), depth=depth, init=[])
            read = memory.read_port(domain="comb")
            m.d.comb += [read.addr.eq(turn), value.eq(read.data)]
            return memory.write_port()

        def its(name):
            """A member of its control."""
            return Array(Value.cast(getattr(port, name)) for port in self.control)[turn]

        write = table("known", known)
        m.d.comb += [
            write.addr.eq(turn),
            write.data.eq(following),
            write.en.eq(save),
            following.eq(known),
        ]
        runs, starts, has_ended, has_failed = (
            flags.bit_select(turn, 1) for flags in (running, starting, ended, failed)
        )
        pushed, wanted, c2h = Signal(Pushed), its("wanted"), turn >= self._h2c
        #: of its descriptors: one can be handed on; all of the block are there
        present, arrived = Signal(), Signal()
        unused = Signal(position)
        #: of the next one to be handed on: its number in its page, or of those pushed
        index = Signal(range(IN_PAGE))
        m.d.comb += [
            pushed.eq(its("pushed")),
            unused.eq(known.reserved - known.taken),
            # All that are not checked when one is found that is wrong are of one page.
            index.eq(known.block.at - Mux(known.pushed, known.block.left, unused)),
            present.eq(Mux(known.pushed, known.block.left != 0, known.taken != filled)),
            arrived.eq(Mux(known.pushed, known.block.left == 0, known.reserved == filled)),
        ]

        # What arrives
        m.submodules.store = store = DescriptorStore(count, self._slots, shared=self._shared)
        wiring.connect(m, wiring.flipped(self.placement), store.placement)
        for name in ("push", "owned_push") if self._shared else ("push",):
            for outer, inner in zip(getattr(self, name), getattr(store, name), strict=True):
                wiring.connect(m, wiring.flipped(outer), inner)
        placed, mark = self.placement.payload, self.mark.payload
        begins = placed.enable[0][0] & ~placed.rows[0][0]
        with m.If(self.placement.valid & begins & _ends(placed.data)):
            m.d.sync += ended.bit_select(placed.client, 1).eq(1)
        write_filled, write_failure = table("filled", filled), table("failure", failure)
        m.d.comb += [
            write_filled.addr.eq(mark.client),
            write_filled.data.eq(mark.place.as_value() >> ALIGN),
            # A mark of a read behind one that failed says nothing about the list.
            write_filled.en.eq(self.mark.valid & ~failed.bit_select(mark.client, 1)),
        ]

        # An owner that has begun a list before all of its descriptor is written
        behind = Signal()
        if self._shared:
            rows = [
                Mux(port.p.enable[1][0], port.p.rows[1], port.p.rows[0]) for port in self.owned_push
            ]
            # What is written in this cycle is read in the next one, the second row after the first.
            late = [
                port.valid & ~(port.ready & row[0])
                for port, row in zip(self.owned_push, rows, strict=True)
            ]
            m.d.comb += behind.eq(Cat(late).bit_select(turn, 1))

        # Read address of the descriptor memory
        linking, word = Signal(), store.data
        m.d.comb += [
            store.channel.eq(turn),
            store.pushed.eq(known.pushed),
            store.owned.eq(its("owned")),
            store.slot.eq(Mux(linking, known.reserved - 1, known.taken)),
            store.pushed_slot.eq(known.block.at - known.block.left - linking),
        ]

        # The page of its block. One is rarely added to it, so a quarter at a time: the lowest one
        # is written back behind the others, until all have been in its place. A carry through all
        # of them would be the critical path.
        page = Signal(PAGE_BITS)
        write_page = table("page", page)
        address, carry, quarters = its("address"), Signal(), Signal(range(4))
        low = page[:_QUARTER] + ((state == _State.VISIT) | carry)
        rotated = Cat(page[_QUARTER:], low[:_QUARTER])
        m.d.comb += [
            write_page.addr.eq(turn),
            write_page.data.eq(Mux(starts, address[-PAGE_BITS:], rotated)),
        ]
        m.d.sync += [carry.eq(low[_QUARTER]), quarters.eq(0)]

        # Output to the channel
        part, tells = Signal(DescriptorWord), Signal()
        #: the error is that of a magic, not of a read
        magic = Signal()
        m.d.comb += [part.data.eq(word), part.outcome.eq(Mux(magic, Outcome.MAGIC, failure))]
        with m.If(state == _State.REPORT):
            # Where the descriptor is: in memory, or in the slots for pushed ones
            at_page = page & ~known.pushed.replicate(PAGE_BITS)
            m.d.comb += part.data.eq(Cat(known.pushed, Const(0, ALIGN - 1), index, at_page))

        # What is read next
        m.submodules.plan = plan = ReadPlan(count)
        for inner, outer in zip(plan.jobs, self.jobs, strict=True):
            wiring.connect(m, inner, wiring.flipped(outer))
        m.d.comb += [
            plan.channel.eq(turn),
            plan.block.eq(known.block),
            plan.page.eq(page),
            plan.place.as_value().eq(known.reserved << ALIGN),
            plan.credit.eq(its("credit")),
            plan.limit.eq(self.limit),
            plan.withdraw.eq(
                Cat(port.halt | port.flush for port in self.control) | ended | failed | ~running
            ),
        ]
        readable = (
            ~known.pushed
            & (known.block.left != 0)
            & ~known.block.at[-1]
            & (plan.credit != 0)
            & ~(its("halt") | its("flush"))
            & ~(has_ended | has_failed)
            # Room for the largest read, whatever this one asks for: what it asks for is not in
            # the critical path.
            & (unused <= self._slots - FETCH_DESCRIPTORS)
            & (outstanding[turn] != READS)
        )

        # What a visit does
        done, begun = Signal(), Signal()
        adjacent, stop = Signal(range(BLOCK)), Signal()
        with m.Switch(state):
            with m.Case(_State.VISIT):
                m.d.comb += linking.eq(~(present & wanted))
                with m.If(plan.issued & (plan.of == turn)):
                    m.d.comb += [
                        plan.noted.eq(1),
                        save.eq(1),
                        done.eq(1),
                        following.block.at.eq(known.block.at + plan.count),
                        following.block.left.eq(known.block.left - plan.count),
                        following.reserved.eq(known.reserved + plan.count),
                    ]
                with m.Elif(runs & starts & wanted):
                    m.d.sync += [starts.eq(0), magic.eq(1)]
                    m.d.comb += [
                        begun.eq(1),
                        save.eq(1),
                        following.block.at.eq(pushed.count),
                        following.block.left.eq(Mux(pushed.whole, pushed.count, 0)),
                        following.pushed.eq(pushed.any),
                        following.reserved.eq(filled),
                        following.taken.eq(filled),
                        write_page.en.eq(1),
                    ]
                    with m.If(~pushed.any):
                        m.d.comb += [
                            following.block.at.eq(address[ALIGN:-PAGE_BITS]),
                            following.block.left.eq(its("adjacent") + 1),
                        ]
                    # None of them is used then: software believes that it has pushed more.
                    with m.Elif(~pushed.whole):
                        m.d.sync += state.eq(_State.REPORT)
                with m.Elif(~runs | starts):
                    m.d.comb += done.eq(1)
                with m.Elif(behind):
                    pass
                with m.Elif(present & wanted):
                    m.d.sync += state.eq(_State.CONTROL)
                with m.Elif(arrived & ~has_ended & (known.block.left == 0)):
                    m.d.sync += state.eq(_State.ADJACENT)
                with m.Elif(arrived & ~has_ended & known.block.at[-1]):
                    # A block that crosses 4 KiB, which PG195 forbids
                    m.d.comb += [save.eq(1), following.block.at.eq(0), write_page.en.eq(1)]
                    m.d.sync += state.eq(_State.PAGE)
                with m.Elif(has_failed & ~present & wanted):
                    m.d.sync += [magic.eq(0), state.eq(_State.REPORT)]
                with m.Else():
                    m.d.comb += [done.eq(1), plan.plan.eq(plan.free & readable)]
            with m.Case(_State.CONTROL):
                m.d.comb += [
                    tells.eq(1),
                    part.part.eq(DescriptorPart.CONTROL),
                    store.word.eq(Mux(c2h, _SOURCE, _DESTINATION)),
                ]
                m.d.sync += [stop.eq((word & regs.DESC_STOP).any()), state.eq(_State.CARD)]
                with m.If(word[16:32] != regs.DESC_MAGIC):
                    m.d.sync += [magic.eq(1), state.eq(_State.REPORT)]
            with m.Case(_State.CARD):
                m.d.comb += [
                    tells.eq(1),
                    part.part.eq(DescriptorPart.CARD),
                    store.word.eq(Mux(c2h, _DESTINATION, _SOURCE)),
                ]
                m.d.sync += state.eq(_State.PCI)
            with m.Case(_State.PCI):
                m.d.comb += [tells.eq(1), part.part.eq(DescriptorPart.PCI), save.eq(1), done.eq(1)]
                with m.If(known.pushed):
                    m.d.comb += following.block.left.eq(known.block.left - 1)
                with m.Else():
                    m.d.comb += following.taken.eq(known.taken + 1)
                m.d.sync += [runs.eq(runs & ~stop), state.eq(_State.VISIT)]
            with m.Case(_State.REPORT):
                m.d.comb += [tells.eq(1), part.part.eq(DescriptorPart.ERROR), done.eq(1)]
                m.d.sync += [runs.eq(0), state.eq(_State.VISIT)]
            with m.Case(_State.ADJACENT):
                m.d.comb += [linking.eq(1), store.word.eq(_NEXT)]
                m.d.sync += [adjacent.eq(word[8:]), state.eq(_State.FOLLOW)]
            with m.Case(_State.FOLLOW):
                m.d.comb += [
                    save.eq(1),
                    following.block.at.eq(word[ALIGN:-PAGE_BITS]),
                    following.block.left.eq(adjacent + 1),
                    following.pushed.eq(0),
                    write_page.data.eq(word[-PAGE_BITS:]),
                    write_page.en.eq(1),
                ]
                m.d.sync += state.eq(_State.VISIT)
            with m.Case(_State.PAGE):
                m.d.comb += write_page.en.eq(1)
                m.d.sync += quarters.eq(quarters + 1)
                # The visit has done the first one.
                with m.If(quarters == 2):
                    m.d.comb += done.eq(1)
                    m.d.sync += state.eq(_State.VISIT)
        with m.If(~runs):
            m.d.sync += state.eq(_State.VISIT)

        # The next visit: of the channel behind this one, or one that has just got something to do.
        came, comes = Signal(), Signal(channels)
        # The mark comes in the cycle after the last word.
        m.d.sync += came.eq(self.placement.valid & placed.enable[1][4] & placed.rows[1][0])
        m.d.sync += comes.eq(placed.client)
        with m.If(done):
            m.d.sync += turn.eq(Mux(turn == count - 1, 0, turn + 1))
            with m.If(came):
                m.d.sync += turn.eq(comes)
            for n, port in enumerate(self.control):
                with m.If(port.start):
                    m.d.sync += turn.eq(n)

        for n, port in enumerate(self.control):
            retired, issue = self.retired[n], plan.issue[n]
            m.d.comb += [
                port.spent.eq(Mux(issue, plan.count, 0)),
                port.begun.eq(begun & (turn == n)),
                port.word.valid.eq(tells & runs & (turn == n)),
                port.word.payload.eq(part),
                port.reading.eq(outstanding[n] != 0),
                port.active.eq(running[n] | port.reading | self.jobs[n].valid),
            ]
            m.d.sync += outstanding[n].eq(outstanding[n] + issue - retired.valid)
            with m.If(retired.valid & (retired.payload.outcome != Outcome.OK)):
                m.d.sync += failed[n].eq(1)
                m.d.comb += [
                    write_failure.addr.eq(n),
                    write_failure.data.eq(retired.payload.outcome),
                    write_failure.en.eq(~failed[n]),
                ]
            with m.If(port.start):
                m.d.sync += [running[n].eq(1), starting[n].eq(1), ended[n].eq(0), failed[n].eq(0)]
            with m.If(port.flush):
                m.d.sync += running[n].eq(0)
        return m
