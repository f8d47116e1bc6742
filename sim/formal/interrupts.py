# SPDX-License-Identifier: BSD-2-Clause
"""Interrupts: from the edges of requests to messages and levels."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.interrupts.irq import USER_INTERRUPTS, InterruptBlock
from hw.interrupts.msix import MsixTable
from hw.registers.bus import READ_LATENCY
from hw.write.record_writer import RecordWriter

from .property import Property

__all__ = ["Edges", "Masked", "Pending", "Records"]


class Edges(Property):
    """Each rising edge of a request makes one message, whatever is masked meanwhile; none is lost.

    A request that falls takes its message back. INTx is what is requested: it is asserted and
    deasserted in turn. Followed is any one source. Without others, a message goes out as soon as
    it may. Assumed: a message that was taken is reported done once; messages are not switched off
    for one cycle only, nor while a change of INTx waits that was there before they were on.
    """

    depth = 9
    SOURCES = 1 + USER_INTERRUPTS

    def __init__(self):
        super().__init__(InterruptBlock(1))

    def _state(self, m):
        block, inside = self.block, self.inside
        source = self.any(m, range(self.SOURCES), "source")
        m.d.comb += Assume(source < self.SOURCES)

        def of(name):
            return inside(name).bit_select(source, 1)

        request = Signal()
        m.d.comb += request.eq(of("request"))
        on = block.link.msi_enable | block.link.msix_enable
        out, records = block.interrupt, block.records
        message = records.record
        # Messages that leave, an MSI one cycle later; and those that were dropped on their way.
        picked = of("picked")
        msix = message.valid & message.ready & ~records.masked
        msi = out.valid & out.payload.msi & ~self.past(m, out.valid & ~out.ready)
        offered = inside.state("", "Offer")
        under_way = Signal()
        m.d.comb += Assume(~records.done | under_way)
        with m.If(records.done):
            m.d.sync += under_way.eq(0)
        with m.If(msix):
            m.d.sync += under_way.eq(1)
        lost = records.done & records.dropped & picked

        # One message is owed from a rising edge until it is sent, or nothing is requested; `was`
        # is all of a cycle ago.
        owed, high, was_owed, was_high = Signal(), Signal(), Signal(), Signal()
        m.d.sync += [was_owed.eq(owed), was_high.eq(high)]
        was_requested = self.past(m, request & on)
        # The MSI of a channel may go in the cycle of its edge: it was never owed then.
        was_gone, edge = self.past(m, inside("gone")), was_requested & ~was_high
        at_once = was_gone & picked
        late = ((msi & ~was_gone) | self.past(m, msix)) & self.past(m, picked)
        sent = late | (msi & at_once)
        stands = (edge & ~at_once) | (was_owed & ~sent) | self.past(m, lost)
        m.d.comb += [
            owed.eq(was_requested & stands),
            high.eq(was_requested),
            Assume(~(on & self.past(m, ~on) & self.past(m, self.past(m, on)))),
            Assert(~at_once | (msi & edge)),
            Assert(~sent | ((was_owed | at_once) & self.past(m, block.link.bus_master))),
            Assert(~(msi & self.past(m, msix))),
            Assert(of("edges.pending") == owed),
            Assert(of("edges.before") == high),
            # What is inside.
            Assert((inside("picked") & (inside("picked") - 1)) == 0),
            Assert(~(offered & picked & inside("edges.alive") & on) | owed),
        ]

        # What the block is told of INTx is what is wanted, one change after the other.
        level, change = Signal(), out.valid & ~out.payload.msi
        told = change & out.ready
        wanted = inside("request").any() & ~block.link.intx_disable
        asserted = inside("asserted")
        with m.If(on):
            m.d.sync += level.eq(0)
        with m.Elif(told):
            m.d.sync += level.eq(out.payload.asserted)
        m.d.comb += [
            Assume(~self.past(m, on) | on | ~change),
            Assert(~change | self.past(m, on) | (out.payload.asserted != level)),
            Assert(change | self.past(m, on) | (asserted == level)),
            Assert(~change | self.past(m, on) | (asserted == out.payload.asserted)),
            Assert(~self.past(m, on) | (~asserted & ~level)),
        ]
        lagging = self.waiting(m, ~on & ~out.valid & (asserted != wanted), 2)
        m.d.comb += Assert(lagging < 2)

        # Alone and with nothing in its way, a message leaves within eight cycles.
        others = (inside("request") & ~(1 << source)).any()
        free = ~others & request & block.link.bus_master & ~records.masked & message.ready
        free = free & ~block.link.msix_mask & ~inside("recheck") & ~under_way & ~out.valid
        # Those that were taken back are looked at, too.
        free = free & ~(inside("edges.deferred") & ~(1 << source)).any()
        alone = self.waiting(m, free & owed & ~of("edges.deferred"), 8)
        m.d.comb += [
            Assert((alone < 8) | ~on),
            Assert(inside.state("", "Wait") == under_way),
        ]
        was_lost, was_masked = Signal(), Signal()
        with m.If(lost):
            m.d.sync += was_lost.eq(1)
        with m.If(of("edges.deferred")):
            m.d.sync += was_masked.eq(1)
        self.cover(
            m,
            msi & late,
            msi & at_once,
            sent & was_masked & ~msi,
            sent & was_lost,
            told & ~out.payload.asserted & ~self.past(m, on),
        )


class Masked(Property):
    """A message that is held back as masked is masked, and has its pending bit.

    Unmasking lets it go, at any time.

    Followed is any one source. Assumed: the writer of messages finds the mask as it was when it
    read the table; the source's vector is not written meanwhile.
    """

    depth = 6

    def __init__(self):
        super().__init__(InterruptBlock(1))

    def _state(self, m):
        block, inside = self.block, self.inside
        source = self.any(m, range(Edges.SOURCES), "source")
        vector = self.any(m, 5, "vector")
        picked, table = inside("picked").bit_select(source, 1), inside.part("table")
        mask = inside("table.masks").bit_select(vector, 1)
        found = mask
        for _ in range(READ_LATENCY):
            found = self.past(m, found)
        registers = [inside.part("registers").channel_vector0]
        registers += [getattr(inside.part("registers"), f"user_vector{n}") for n in range(4)]
        written = Cat(
            inside.part("registers").channel_vector0_strobe,
            *(getattr(inside.part("registers"), f"user_vector{n}_strobe") for n in range(4)),
        )
        vectors = [registers[0][:5]]
        vectors += [registers[1 + n // 4][8 * (n % 4) :][:5] for n in range(USER_INTERRUPTS)]
        offered = inside.state("", "Offer")
        deferred = inside("edges.deferred").bit_select(source, 1)
        waits = inside("edges.pending").bit_select(source, 1)
        pending = inside("table.pending").bit_select(vector, 1)
        # No other source has had the vector since vectors were written, with no message offered.
        others = Cat((source != n) & (each == vector) for n, each in enumerate(vectors))
        sole, was_sole = Signal(), Signal(init=1)
        m.d.comb += sole.eq(was_sole & ~others.any())
        m.d.sync += was_sole.eq(sole | (written.any() & inside.state("", "Pick")))
        # From when it was held back until it is sent, taken back, or MSI-X is off.
        record = block.records.record
        leaves = picked & record.valid & record.ready & ~block.records.masked
        requested = inside("request").bit_select(source, 1)
        held, noted = Signal(), Signal()
        m.d.comb += noted.eq(sole & waits & (deferred | held))
        m.d.sync += held.eq(noted & requested & ~leaves & block.link.msix_enable & ~written.any())
        m.d.comb += [
            Assume(source < Edges.SOURCES),
            Assume(Array(vectors)[source] == vector),
            Assume(~(block.records.record.ready & picked) | (block.records.masked == found)),
            Assert(
                ~(deferred & waits)
                | mask
                | block.link.msix_mask
                | self.past(m, block.link.msix_mask)
            ),
            Assert(~noted | pending),
            # What is inside.
            Assert(inside.state("")),
            Assert((inside("picked") & (inside("picked") - 1)) == 0),
            Assert(inside.state("", "Pick") | inside("picked").any()),
            Assert(~(offered & picked) | (table.vector == vector)),
            Assert(~(offered & ~picked & was_sole) | (table.vector != vector)),
        ]
        unmasked = ~mask & ~block.link.msix_mask
        self.cover(m, deferred & mask & ~block.link.msix_mask, unmasked & self.past(m, deferred))


class Pending(Property):
    """A pending bit of MSI-X is set and cleared for its vector alone, or cleared with all others.

    A mask bit is what software wrote last, and each change of one is told.
    """

    def __init__(self):
        super().__init__(MsixTable())

    def _state(self, m):
        block, inside = self.block, self.inside
        vector = self.any(m, 5, "vector")
        pending, mask = Signal(), Signal(init=1)
        with m.If(block.clear):
            m.d.sync += pending.eq(0)
        with m.Elif((block.pend | block.settle) & (block.vector == vector)):
            m.d.sync += pending.eq(block.pend)
        bus = block.bus
        entry = (bus.write.bar == 1) & (bus.write.address == 0x1000 + 2 * vector + 1)
        written = bus.write.valid & entry & bus.write.enable[4:].all()
        with m.If(written):
            m.d.sync += mask.eq(bus.write.data[32])
        now = inside("masks").bit_select(vector, 1)
        m.d.comb += [
            Assert(inside("pending").bit_select(vector, 1) == pending),
            Assert(now == mask),
            Assert((now == self.past(m, now)) | self.past(m, block.changed) | ~self.started(m)),
        ]
        self.cover(m, pending & ~mask, self.past(m, pending) & ~pending)


class Records(Property):
    """A record that is taken makes one write unless it is masked, and is reported done once.

    Only what is offered is taken; the turn moves on behind each. Assumed: what is offered stays a
    cycle away when it is withdrawn; the token comes back once, after the write has been taken.
    """

    depth = 21
    reach = 32
    SOURCES = 2

    def __init__(self):
        super().__init__(RecordWriter(self.SOURCES, token=0, width=64))

    def _state(self, m):
        block, inside = self.block, self.inside
        sources = [source.record for source in block.sources]
        takes = [record.valid & record.ready for record in sources]
        done = [source.done for source in block.sources]
        taken = Cat(takes).any() & ~block.sources[0].masked
        request = block.request
        # A write is offered, is with the PCIe block, has been reported.
        offered, sending = Signal(), Signal()
        owner = Signal(range(self.SOURCES))
        with m.If(taken):
            m.d.sync += [offered.eq(1), owner.eq(takes[1])]
        with m.If(request.valid & request.ready):
            m.d.sync += [offered.eq(0), sending.eq(1)]
        with m.If(block.sent):
            m.d.sync += sending.eq(0)
        coming = inside("coming")
        reads = sum(coming[n] for n in range(len(coming))) + inside("has_address")
        m.d.comb += [
            Assume(~block.sent | sending),
            Assert(sum(takes) <= 1),
            Assert(~Cat(takes).any() | ~(offered | sending)),
            Assert(request.valid == offered),
            Assert(~request.valid | (request.payload.first & request.payload.last)),
            Assert(block.busy == (offered | sending)),
            *(
                Assert(block.sources[n].done == (block.sent & (owner == n)))
                for n in range(self.SOURCES)
            ),
            # What is inside: two reads, of the address and of the dword.
            Assert(~(offered & sending)),
            Assert(inside.state("")),
            Assert(block.busy == inside.state("", "Sent")),
            Assert(reads == Mux(inside.state("", "What"), 1, Mux(inside.state("", "Take"), 2, 0))),
            Assert(~block.busy | (inside("current") == owner)),
        ]
        alone = sources[0].valid & ~takes[0] & ~block.busy & ~sources[1].valid
        late = self.waiting(m, alone & ~block.host.read.valid, 20)
        again = Signal()
        with m.If(done[0]):
            m.d.sync += again.eq(1)
        m.d.comb += Assert(late < 20)
        self.cover(m, *done, taken & again, takes[0] & block.sources[0].masked)
