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

Where there is another owner of the channels, all this is there twice, once for the host's list and
once for the owner's, of which one runs at a time: the host's is put aside for those of the owner.

Format: PG195 (DMA/Bridge Subsystem for PCI Express), descriptor format and descriptor fetch.
"""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import (
    FETCH_DESCRIPTORS,
    DescriptorPart,
    DescriptorWord,
    InOrderMark,
    Outcome,
    PushedWord,
    ReadJob,
    Retired,
    placement,
)
from .lists import Lists, places
from .pages import BlockPages
from .plan import ALIGN, BLOCK, IN_PAGE, PAGE_BITS, Block, ReadPlan
from .signatures import FetchSignature, Pushed
from .slots import DescriptorStore
from .tables import ChannelTable

__all__ = ["DescriptorFetch"]

#: Words of a descriptor: control and length, source, destination, next.
_CONTROL, _SOURCE, _DESTINATION, _NEXT = range(4)


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


def _known(slots: int) -> data.StructLayout:
    """Fetch state of a channel. For a pushed block, `left` counts descriptors not yet issued.

    `reserved` and `taken` count descriptors in its ring; the bit above the number of the slot tells
    full from empty.
    """
    position = unsigned(exact_log2(slots) + 1)
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
    width : int
        Bits of a word of what reads bring.
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
    placement : In(stream of placement, always ready)
        What the reads brought; `client` is the channel. Enabled by whole dwords.
    mark : In(stream of InOrderMark, always ready)
        How far each channel's oldest read has arrived, the last time no later than it retires. A
        word is at `placement` no later than the mark that counts it.
    push : array of In(stream of PushedWord, always ready)
        Words that the host pushes, in `rows` from that of slot 0, for one channel at a time. Only
        while the channel has no list of the host's.
    owned_push : array of In(stream of PushedWord)
        The same of the other owner, lower numbers first. Its list begins after the last word, or
        with the first of the last descriptor, if the others follow at once. Only if `shared`.

    Raises
    ------
    ValueError
        If there are fewer than two channels, or `slots` is no power of two from 16.
    """

    def __init__(self, *, h2c: int, c2h: int, width: int, slots: int = 32, shared: bool = False):
        if h2c + c2h < 2:
            raise ValueError(f"at least two channels are needed, not {h2c + c2h}")
        if slots < FETCH_DESCRIPTORS or slots & (slots - 1):
            raise ValueError(
                f"slots must be a power of two, at least {FETCH_DESCRIPTORS}, not {slots!r}"
            )
        self._h2c, self._slots, self._shared = h2c, slots, shared
        count, always = h2c + c2h, {"always_ready": True}
        known = _known(slots)
        self._lists = Lists(count, slots, width=width, shared=shared)
        self._table = ChannelTable(known, self._lists.count)
        self._pages = BlockPages(self._lists.count)
        self._store = DescriptorStore(count, slots, width=width, shared=shared)
        self._plan = ReadPlan(count)
        #: the channel whose turn it is, and what is done for it
        self._turn = Signal(range(count), name="turn")
        self._state = Signal(_State, name="state")
        self._known, self._following = self._table.value, Signal(known, name="following")
        self._unused = Signal(known["reserved"].shape, name="unused")
        self._pushed = Signal(Pushed, name="pushed")
        self._part = Signal(DescriptorWord, name="part")
        self._adjacent = Signal(range(BLOCK), name="adjacent")
        #: of its descriptors, one can be handed on; all of its block are there; more can be read
        self._present, self._arrived = Signal(name="present"), Signal(name="arrived")
        self._readable = Signal(name="readable")
        #: what follows is kept; the visit is over
        self._save, self._done = Signal(name="save"), Signal(name="done")
        #: its list has begun; is over, as it is with the descriptor that is handed on
        self._begun, self._ends, self._stop = (
            Signal(name="begun"),
            Signal(name="ends"),
            Signal(name="stop"),
        )
        #: the end of its block is read, not the next descriptor
        self._linking = Signal(name="linking")
        #: a part of a descriptor is handed on; the error is that of a magic, not of a read
        self._hands_on, self._magic = Signal(name="hands_on"), Signal(name="magic")
        owned_push = {"owned_push": In(stream.Signature(PushedWord)).array(count)} if shared else {}
        super().__init__(
            {
                "control": In(FetchSignature(shared)).array(count),
                "limit": In(3),
                "jobs": Out(stream.Signature(ReadJob)).array(count),
                "retired": In(stream.Signature(Retired, **always)).array(count),
                "placement": In(stream.Signature(placement(width), **always)),
                "mark": In(stream.Signature(InOrderMark, **always)),
                "push": In(stream.Signature(PushedWord, **always)).array(count),
                **owned_push,
            }
        )

    def elaborate(self, platform):
        m = Module()
        lists, pages, store, known = self._lists, self._pages, self._store, self._known
        m.submodules.lists, m.submodules.pages, m.submodules.store = lists, pages, store
        m.submodules.table, m.submodules.plan = self._table, self._plan
        self._connect(m)
        m.d.comb += [
            lists.begin.eq(self._begun),
            lists.end.eq(self._ends),
            pages.first.eq(self._state == _State.VISIT),
            pages.set.eq(lists.starts),
            pages.value.eq(self._its("address")[-PAGE_BITS:]),
            self._following.eq(known),
            self._unused.eq(known.reserved - known.taken),
            self._pushed.eq(self._its("pushed")),
            self._present.eq(Mux(known.pushed, known.block.left != 0, known.taken != lists.filled)),
            self._arrived.eq(
                Mux(known.pushed, known.block.left == 0, known.reserved == lists.filled)
            ),
            # Read address of the descriptor memory
            store.pushed.eq(known.pushed),
            store.owned.eq(self._its("owned")),
            store.slot.eq(Mux(self._linking, known.reserved - 1, known.taken)),
            store.pushed_slot.eq(known.block.at - known.block.left - self._linking),
        ]
        self._plan_reads(m)
        with m.Switch(self._state):
            with m.Case(_State.VISIT):
                self._visit(m)
            with m.Case(_State.CONTROL, _State.CARD, _State.PCI, _State.REPORT):
                self._hand_on(m)
            with m.Case(_State.ADJACENT, _State.FOLLOW):
                self._follow(m)
            with m.Case(_State.PAGE):
                m.d.comb += pages.write.eq(1)
                # The visit has done the first one.
                with m.If(pages.last):
                    m.d.comb += self._done.eq(1)
                    m.d.sync += self._state.eq(_State.VISIT)
        with m.If(~lists.runs):
            m.d.sync += self._state.eq(_State.VISIT)
        self._take_turns(m)
        self._answer(m)
        return m

    def _its(self, name):
        """A member of the control of the channel whose turn it is."""
        return Array(Value.cast(getattr(port, name)) for port in self.control)[self._turn]

    def _connect(self, m):
        """The parts with each other, and with the ports."""
        lists, store, plan, turn = self._lists, self._store, self._plan, self._turn
        for part in (lists, store):
            wiring.connect(m, wiring.flipped(self.placement), part.placement)
        wiring.connect(m, wiring.flipped(self.mark), lists.mark)
        for name in ("push", "owned_push") if self._shared else ("push",):
            for outer, inner in zip(getattr(self, name), getattr(store, name), strict=True):
                wiring.connect(m, wiring.flipped(outer), inner)
        for n, port in enumerate(self.control):
            wiring.connect(m, plan.jobs[n], wiring.flipped(self.jobs[n]))
            wiring.connect(m, wiring.flipped(self.retired[n]), lists.retired[n])
            m.d.comb += [lists.start[n].eq(port.start), lists.flush[n].eq(port.flush)]
        number = lists.number(turn)
        m.d.comb += [
            self._table.where.eq(number),
            self._table.data.eq(self._following),
            self._table.write.eq(self._save),
            lists.issue.eq(Cat(plan.issue)),
        ]
        parts = {self._table: number, lists: turn, self._pages: number, store: turn, plan: turn}
        m.d.comb += [part.channel.eq(which) for part, which in parts.items()]
        if self._shared:
            self._share(m)

    def _share(self, m):
        """Tell the host's lists and the other owner's apart, and put the host's aside."""
        lists, plan, control = self._lists, self._plan, self.control
        m.d.comb += lists.owned.eq(Cat(port.owned for port in control))
        for source, *inside in (
            (self.placement, lists.placement, self._store.placement),
            (self.mark, lists.mark),
        ):
            number = lists.number(source.payload.client[: len(self._turn)])
            m.d.comb += [port.payload.client.eq(number) for port in inside]
        for n, port in enumerate(control):
            visited = (self._turn == n) & (self._state != _State.VISIT)
            reads = lists.reading[n] | self.jobs[n].valid | (plan.issued & (plan.of == n))
            m.d.comb += [
                lists.rest[n].eq(port.hold & ~visited & ~reads),
                lists.resume[n].eq(port.resume),
            ]

    def _plan_reads(self, m):
        """What is read next."""
        lists, plan, known, its = self._lists, self._plan, self._known, self._its
        m.d.comb += [
            plan.block.eq(known.block),
            plan.page.eq(self._pages.page),
            plan.place.as_value().eq(known.reserved << ALIGN),
            plan.credit.eq(its("credit")),
            plan.limit.eq(self.limit),
            plan.withdraw.eq(Cat(port.halt | port.flush for port in self.control) | lists.complete),
            self._readable.eq(
                ~known.pushed
                & (known.block.left != 0)
                & ~known.block.at[-1]
                & (plan.credit != 0)
                & ~(its("halt") | its("flush"))
                & ~(lists.ended | lists.failed)
                # Room for the largest read, whatever this one asks for: what it asks for is not in
                # the critical path.
                & (self._unused <= self._slots - FETCH_DESCRIPTORS)
                & ~lists.busy
            ),
        ]

    def _behind(self):
        """An owner has begun a list before all of its descriptor is written, and it is not yet."""
        if not self._shared:
            return Const(0)
        rows = [
            Mux(port.p.enable[1][0], port.p.rows[1], port.p.rows[0]) for port in self.owned_push
        ]
        # What is written in this cycle is read in the next one, the second row after the first.
        late = [
            port.valid & ~(port.ready & row[0])
            for port, row in zip(self.owned_push, rows, strict=True)
        ]
        return Cat(late).bit_select(self._turn, 1)

    def _visit(self, m):
        """Look what there is to do for a channel."""
        lists, plan, known, following = self._lists, self._plan, self._known, self._following
        pushed, wanted, state = self._pushed, self._its("wanted"), self._state
        resting = ~lists.runs | lists.starts
        if self._shared:
            # What has failed is not put aside.
            resting |= self._its("hold") & ~lists.failed
        m.d.comb += self._linking.eq(~(self._present & wanted))
        with m.If(plan.issued & (plan.of == self._turn)):
            m.d.comb += [
                plan.noted.eq(1),
                self._save.eq(1),
                self._done.eq(1),
                following.block.at.eq(known.block.at + plan.count),
                following.block.left.eq(known.block.left - plan.count),
                following.reserved.eq(known.reserved + plan.count),
            ]
        with m.Elif(lists.runs & lists.starts & wanted):
            m.d.sync += self._magic.eq(1)
            m.d.comb += [
                self._begun.eq(1),
                self._save.eq(1),
                following.block.at.eq(pushed.count),
                following.block.left.eq(Mux(pushed.whole, pushed.count, 0)),
                following.pushed.eq(pushed.any),
                following.reserved.eq(lists.filled),
                following.taken.eq(lists.filled),
                self._pages.write.eq(1),
            ]
            with m.If(~pushed.any):
                m.d.comb += [
                    following.block.at.eq(self._its("address")[ALIGN:-PAGE_BITS]),
                    following.block.left.eq(self._its("adjacent") + 1),
                ]
            # None of them is used then: software believes that it has pushed more.
            with m.Elif(~pushed.whole):
                m.d.sync += state.eq(_State.REPORT)
        with m.Elif(resting):
            m.d.comb += self._done.eq(1)
        with m.Elif(self._behind()):
            pass
        with m.Elif(self._present & wanted):
            m.d.sync += state.eq(_State.CONTROL)
        with m.Elif(self._arrived & ~lists.ended & (known.block.left == 0)):
            m.d.sync += state.eq(_State.ADJACENT)
        with m.Elif(self._arrived & ~lists.ended & known.block.at[-1]):
            # A block that crosses 4 KiB, which PG195 forbids
            m.d.comb += [self._save.eq(1), following.block.at.eq(0), self._pages.write.eq(1)]
            m.d.sync += state.eq(_State.PAGE)
        with m.Elif(lists.failed & ~self._present & wanted):
            m.d.sync += [self._magic.eq(0), state.eq(_State.REPORT)]
        with m.Else():
            m.d.comb += [self._done.eq(1), plan.plan.eq(plan.free & self._readable)]

    def _hand_on(self, m):
        """Hand on a descriptor, in three parts, or report an error."""
        state, known, following, part = self._state, self._known, self._following, self._part
        store, word, c2h = self._store, self._store.data, self._turn >= self._h2c
        m.d.comb += self._hands_on.eq(1)
        with m.Switch(state):
            with m.Case(_State.CONTROL):
                m.d.comb += [
                    part.part.eq(DescriptorPart.CONTROL),
                    store.word.eq(Mux(c2h, _SOURCE, _DESTINATION)),
                ]
                m.d.sync += [self._stop.eq((word & regs.DESC_STOP).any()), state.eq(_State.CARD)]
                with m.If(word[16:32] != regs.DESC_MAGIC):
                    m.d.sync += [self._magic.eq(1), state.eq(_State.REPORT)]
            with m.Case(_State.CARD):
                m.d.comb += [
                    part.part.eq(DescriptorPart.CARD),
                    store.word.eq(Mux(c2h, _DESTINATION, _SOURCE)),
                ]
                m.d.sync += state.eq(_State.PCI)
            with m.Case(_State.PCI):
                m.d.comb += [
                    part.part.eq(DescriptorPart.PCI),
                    self._save.eq(1),
                    self._done.eq(1),
                    self._ends.eq(self._stop),
                ]
                with m.If(known.pushed):
                    m.d.comb += following.block.left.eq(known.block.left - 1)
                with m.Else():
                    m.d.comb += following.taken.eq(known.taken + 1)
                m.d.sync += state.eq(_State.VISIT)
            with m.Case(_State.REPORT):
                m.d.comb += [
                    part.part.eq(DescriptorPart.ERROR),
                    self._done.eq(1),
                    self._ends.eq(1),
                ]
                m.d.sync += state.eq(_State.VISIT)

    def _follow(self, m):
        """Read Nxt_adj and `next` of the last descriptor of a block: the next block."""
        state, store, word, following = self._state, self._store, self._store.data, self._following
        with m.If(state == _State.ADJACENT):
            m.d.comb += [self._linking.eq(1), store.word.eq(_NEXT)]
            m.d.sync += [self._adjacent.eq(word[8:]), state.eq(_State.FOLLOW)]
        with m.Else():
            m.d.comb += [
                self._save.eq(1),
                following.block.at.eq(word[ALIGN:-PAGE_BITS]),
                following.block.left.eq(self._adjacent + 1),
                following.pushed.eq(0),
                self._pages.write.eq(1),
                self._pages.set.eq(1),
                self._pages.value.eq(word[-PAGE_BITS:]),
            ]
            m.d.sync += state.eq(_State.VISIT)

    def _take_turns(self, m):
        """The next visit: of the channel behind this one, or one that has just got work."""
        placed, turn, count = self.placement.payload, self._turn, len(self.control)
        # The mark comes with the last word, if that ends its packet.
        came = self.placement.valid & places(placed, regs.DESCRIPTOR.itemsize // 4 - 1)
        with m.If(self._done):
            m.d.sync += turn.eq(Mux(turn == count - 1, 0, turn + 1))
            with m.If(came):
                m.d.sync += turn.eq(placed.client)
            for n, port in enumerate(self.control):
                with m.If(port.start):
                    m.d.sync += turn.eq(n)

    def _answer(self, m):
        """What the channels get."""
        lists, plan, known, part = self._lists, self._plan, self._known, self._part
        m.d.comb += [
            part.data.eq(self._store.data),
            part.outcome.eq(Mux(self._magic, Outcome.MAGIC, lists.failure)),
        ]
        with m.If(self._state == _State.REPORT):
            # Where the descriptor is: in memory, or in the slots for pushed ones. All that are not
            # checked when one is found that is wrong are of one page.
            index = Signal(range(IN_PAGE))
            m.d.comb += index.eq(known.block.at - Mux(known.pushed, known.block.left, self._unused))
            at_page = self._pages.page & ~known.pushed.replicate(PAGE_BITS)
            m.d.comb += part.data.eq(Cat(known.pushed, Const(0, ALIGN - 1), index, at_page))
        for n, port in enumerate(self.control):
            mine = self._turn == n
            m.d.comb += [
                port.spent.eq(Mux(plan.issue[n], plan.count, 0)),
                port.begun.eq(self._begun & mine),
                port.word.valid.eq(self._hands_on & lists.runs & mine),
                port.word.payload.eq(part),
                port.reading.eq(lists.reading[n]),
                port.active.eq(lists.running[n] | port.reading | self.jobs[n].valid),
            ]
