# SPDX-License-Identifier: BSD-2-Clause
"""One DMA channel: its registers, its run state, and the life of a descriptor.

    descriptors ──▶ check ──▶ span ──▶ (splitter, then requester or writer)
                      │                                   │
                      └──▶ in flight (FIFO, in order) ◀── done
                                   │
                                   └──▶ count, writeback, status, interrupt

Follows PG195 for what the registers do; where that is silent, the choice is named here:

* Clearing Run is an abort: the descriptor in progress gets no further requests, what is already
  requested is waited for, then the channel is idle. Drivers free their buffers right after it,
  so finishing up to 256 MiB would write into memory that is no longer theirs.
* A descriptor of length 0 moves nothing and completes in order.
* A card address outside card RAM and stream window is a decode error, found before any data
  moves. If its logging is off (xdma.ko leaves write errors off) the descriptor completes without
  moving data.
* Errors set their own status bit and, as drivers look at that one only, bit 0 of their field.
* An error that ends a run is written back, too, whatever the failed descriptor's flags say. After
  Run was cleared nothing is: a word in memory must not be mistaken for the next run's.
"""

from amaranth import *
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..memory.card_ram import leaves
from ..records import (
    FETCH_DESCRIPTORS,
    STREAM_WINDOW_BIT,
    Descriptor,
    ErrorReport,
    InFlight,
    Outcome,
    Span,
)
from ..registers.bank import RegisterBank
from ..registers.bus import BusFanOut, BusSignature
from ..write.post import Post
from .counters import performance_counters
from .credits import CreditPool
from .errors import error_bits

__all__ = ["Channel"]

_STATUS = regs.Status
#: Descriptors whose data may be under way at once: a memory of 32, and the register behind it.
_IN_FLIGHT = 33


class Channel(wiring.Component):
    """Registers and state of one channel.

    Parameters
    ----------
    index : int
        Channel number within its direction.
    c2h : bool
        Direction.
    ram_size : int
        Bytes of card RAM: the card addresses that decode.
    has_stream : bool
        The stream window decodes, too.

    Members
    -------
    bus : In(BusSignature)
        Has cycles without an access: events wait for one.
    start : Out(1)
        One cycle: fetch from `first_address`, with `first_adjacent` more descriptors behind it.
    flush : Out(1)
        Drop descriptors and spans, start no new requests. High until everything is idle.
    descriptor : In(stream of Descriptor)
    span : Out(stream of Span)
        Data to move, in order.
    done : In(1), done_outcome : In(Outcome)
        The oldest span is finished: `done_outcome` OK, or its first error. Errors may come for a
        piece in the middle of a span.
    quiet : In(1)
        Fetch, splitter and data path hold nothing of this channel.
    beats : In(8)
        64-bit data beats moved in this cycle, for the performance counter.
    writeback : Out(stream of Post), writeback_done : In(1)
        Poll-mode writebacks, one for each descriptor that asks for it, and that one was written.
        Its status follows. Withdrawn when Run is cleared.
    credit_mode : In(1)
        Descriptors are fetched only against credits.
    credit : Out, spent : In(range(FETCH_DESCRIPTORS + 1))
        How many descriptors may be fetched, and how many a read asks for in this cycle.
    halt : Out(1)
        Fetch no more: Run was cleared.
    interrupt : Out(1)
        Status AND interrupt enable: the source for the IRQ block.
    stop_request : In(1)
        Abort and stay stopped while high (soft reset).
    start_ok : In(1)
        While low, a run that software starts waits, busy.
    running : Out(1)
        A run is under way: from its start until nothing of it is left.
    breaks : Out(1)
        A run that used the stream is ending otherwise than by Stop. High up to its last cycle.
    error_valid, error : Out
        High for one cycle when an error ends a run.
    """

    def __init__(self, *, index: int, c2h: bool, ram_size: int, has_stream: bool = False):
        self._index = index
        self._stream = has_stream
        self._c2h = c2h
        self._ram_size = ram_size
        super().__init__(
            {
                "bus": In(BusSignature()),
                "start": Out(1),
                "first_address": Out(64),
                "first_adjacent": Out(6),
                "flush": Out(1),
                "descriptor": In(stream.Signature(Descriptor)),
                "span": Out(stream.Signature(Span)),
                "done": In(1),
                "done_outcome": In(Outcome),
                "quiet": In(1),
                "beats": In(8),
                "writeback": Out(stream.Signature(Post)),
                "writeback_done": In(1),
                "credit_mode": In(1),
                "credit": Out(range(FETCH_DESCRIPTORS + 1)),
                "spent": In(range(FETCH_DESCRIPTORS + 1)),
                "halt": Out(1),
                "interrupt": Out(1),
                "stop_request": In(1),
                "start_ok": In(1, init=1),
                "running": Out(1),
                "breaks": Out(1),
                "error_valid": Out(1),
                "error": Out(ErrorReport),
            }
        )

    def elaborate(self, platform):
        m = Module()
        base = (regs.C2H_CHANNEL_BASE if self._c2h else regs.CHANNEL.base) + 0x100 * self._index
        sgdma_base = (regs.C2H_SGDMA_BASE if self._c2h else regs.SGDMA.base) + 0x100 * self._index
        bar = regs.BAR_DMA[0]
        m.submodules.registers = csr = RegisterBank(
            regs.CHANNEL, bar=bar, base=base, registered=False
        )
        m.submodules.sgdma = sgdma = RegisterBank(
            regs.SGDMA, bar=bar, base=sgdma_base, registered=False
        )
        target = 1 if self._c2h else 0
        m.submodules.fan_out = fan_out = BusFanOut(2)
        wiring.connect(m, wiring.flipped(self.bus), fan_out.bus)
        wiring.connect(m, fan_out.targets[0], csr.bus)
        wiring.connect(m, fan_out.targets[1], sgdma.bus)
        m.d.comb += [
            csr.identifier.eq(regs.identifier(target, self._index)),
            sgdma.identifier.eq(regs.identifier(target + 4, self._index)),
            csr.alignments.eq(regs.ALIGNMENTS_MM),
            self.first_address.eq(Cat(sgdma.descriptor_lo, sgdma.descriptor_hi)),
            self.first_adjacent.eq(sgdma.descriptor_adjacent),
        ]

        control = csr.control
        run = control[0] & ~self.stop_request
        run_before = Signal()
        rise = Signal()
        m.d.sync += run_before.eq(run)
        m.d.comb += rise.eq(run & ~run_before)

        m.submodules.credits = credits = CreditPool()
        m.d.comb += [
            credits.mode.eq(self.credit_mode),
            credits.clear.eq(run_before & ~run),
            credits.give.eq(sgdma.descriptor_credits_strobe),
            credits.given.eq(sgdma.descriptor_credits_data),
            credits.spent.eq(self.spent),
            sgdma.descriptor_credits.eq(credits.credits),
            self.credit.eq(credits.allowed),
        ]

        # Descriptors in flight ---------------------------------------------------------------
        # Buffered: what the run state looks at comes from registers.
        m.submodules.in_flight = in_flight = ResetInserter(self.flush)(
            fifo.SyncFIFOBuffered(width=Shape.cast(InFlight).width, depth=_IN_FLIGHT)
        )
        entry = Signal(InFlight)
        head = Signal(InFlight)
        m.d.comb += [in_flight.w_data.eq(entry), head.eq(in_flight.r_data)]

        descriptor = self.descriptor.payload
        outside = Signal()
        to_stream = Signal()
        decode_field = "ie_read_error" if self._c2h else "ie_write_error"
        decode_logged = self._field(control, decode_field).any()
        if self._stream:
            m.d.comb += to_stream.eq(descriptor.card_address[STREAM_WINDOW_BIT])
        m.d.comb += [
            outside.eq(
                ~to_stream & leaves(descriptor.card_address, descriptor.length, self._ram_size)
            ),
            entry.stop.eq(descriptor.stop),
            entry.completed.eq(descriptor.completed),
            entry.from_fetch.eq(descriptor.outcome != Outcome.OK),
            entry.immediate.eq(
                outside | (descriptor.length == 0) | (descriptor.outcome != Outcome.OK)
            ),
            entry.outcome.eq(descriptor.outcome),
        ]
        with m.If((descriptor.outcome == Outcome.OK) & outside & decode_logged):
            m.d.comb += entry.outcome.eq(Outcome.DECODE)

        # The stage between check and splitter keeps the wide comparison off the stream's path.
        span_free = ~self.span.valid | self.span.ready
        taking = Signal()
        # Nothing is taken behind an error. Its address waits in the span that it does not have: the
        # card address, if it is that one, moves over a cycle later.
        faulty, at_card = Signal(), Signal()
        with m.If(self.span.ready):
            m.d.sync += self.span.valid.eq(0)
        m.d.comb += [
            self.descriptor.ready.eq(in_flight.w_rdy & span_free & ~faulty & ~self.flush),
            taking.eq(self.descriptor.valid & self.descriptor.ready),
            in_flight.w_en.eq(taking),
        ]
        streamed = Signal()
        with m.If(self.start):
            m.d.sync += [streamed.eq(0), faulty.eq(0)]
        m.d.sync += at_card.eq(0)
        with m.If(at_card):
            m.d.sync += self.span.payload.pci_address.eq(self.span.payload.card_address)
        with m.If(taking):
            m.d.sync += [
                streamed.eq(streamed | (to_stream & ~entry.immediate)),
                self.span.payload.pci_address.eq(descriptor.pci_address),
                self.span.payload.card_address.eq(descriptor.card_address),
                self.span.payload.length.eq(descriptor.length),
                self.span.valid.eq(~entry.immediate),
                faulty.eq(entry.outcome != Outcome.OK),
                at_card.eq(entry.outcome == Outcome.DECODE),
            ]
        with m.If(self.flush):
            m.d.sync += self.span.valid.eq(0)

        # Finished spans wait here while descriptors without data leave the FIFO; a failed one
        # waits until those before it have left.
        finished = Signal(range(_IN_FLIGHT + 1))
        take_finished = Signal()
        #: `finished` is not 0
        any_finished = Signal()
        failure = Signal(Outcome)
        arrived = Signal()
        with m.If(self.done & (failure == Outcome.OK)):
            m.d.sync += failure.eq(self.done_outcome)
            m.d.comb += arrived.eq(self.done_outcome == Outcome.OK)
        m.d.sync += [
            finished.eq(finished + arrived - take_finished),
            any_finished.eq(arrived | (finished > 1) | (any_finished & ~take_finished)),
        ]
        with m.If(self.flush):
            m.d.sync += [finished.eq(0), any_finished.eq(0), failure.eq(Outcome.OK)]

        # Run state ---------------------------------------------------------------------------
        busy = Signal()
        event = Signal(24)
        hold = Signal()
        sticky = Signal(24)
        ending = Signal(24)
        counting = Signal()
        completed_wait = Signal()
        restarted = Signal()
        #: a writeback is to be handed over; it was, and is not written yet
        owed = Signal()
        writing = Signal()
        failed = Signal()
        # Whether the access is a clear of the status would be known late in the cycle, and whether
        # there is one at all never for long: packets have gaps between them.
        m.d.comb += hold.eq(self.bus.read.valid | self.bus.write.valid)

        pop = Signal()
        m.d.comb += in_flight.r_en.eq(pop)

        def retire():
            """Take the oldest descriptor, whose data has been moved, off the list."""
            m.d.comb += [pop.eq(1), take_finished.eq(~head.immediate), counting.eq(1)]

        def fail(bits):
            """End the run by an error."""
            m.d.sync += [ending.eq(bits), failed.eq(1), owed.eq(write_back)]

        def report(outcome, *, descriptor, own):
            """Tell the error capture; `own`: with the address that waits in the span."""
            m.d.sync += [
                self.error_valid.eq(1),
                self.error.outcome.eq(outcome),
                self.error.descriptor.eq(descriptor),
                own_address.eq(own),
            ]

        write_back = self._field(control, "pollmode_wb_enable")
        ready_head = in_flight.r_rdy & (head.immediate | any_finished)
        resting = Signal()
        settled = self.quiet & ~hold & ~completed_wait & ~owed & ~writing
        own_address = Signal()
        m.d.comb += [
            self.running.eq(busy & ~resting),
            self.error.address.eq(Mux(own_address, self.span.payload.pci_address, 0)),
        ]
        m.d.sync += self.error_valid.eq(0)
        with m.If(~run):
            m.d.comb += self.halt.eq(1)
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += resting.eq(1)
                with m.If(run):
                    m.d.comb += busy.eq(1)
                    with m.If(self.start_ok):
                        m.d.comb += self.start.eq(1)
                        m.next = "Run"
            with m.State("Run"):
                m.d.comb += busy.eq(1)
                m.d.sync += [restarted.eq(rise), failed.eq(0)]
                with m.If(~run_before):
                    m.next = "Abort"
                with m.Elif(completed_wait):
                    pass  # what is written and said about the last one comes first
                with m.Elif(ready_head & (head.outcome != Outcome.OK)):
                    fail(
                        Mux(
                            head.from_fetch,
                            error_bits(head.outcome, fetch=True, c2h=self._c2h),
                            error_bits(head.outcome, fetch=False, c2h=self._c2h),
                        )
                    )
                    report(head.outcome, descriptor=head.from_fetch, own=1)
                    m.d.sync += self.flush.eq(1)
                    m.next = "End"
                with m.Elif(ready_head):
                    retire()
                    m.d.sync += owed.eq(write_back & head.completed)
                    with m.If(head.stop):
                        m.d.sync += ending.eq(
                            _STATUS.DESCRIPTOR_STOPPED
                            | Mux(head.completed, int(_STATUS.DESCRIPTOR_COMPLETED), 0)
                        )
                        m.d.sync += self.flush.eq(1)
                        m.next = "End"
                    with m.Else():
                        m.d.sync += completed_wait.eq(head.completed)
                with m.Elif(failure != Outcome.OK):
                    fail(error_bits(failure, fetch=False, c2h=self._c2h))
                    report(failure, descriptor=0, own=0)
                    m.d.sync += self.flush.eq(1)
                    m.next = "End"
            with m.State("End"):
                # The event, busy and the count change together (a driver that sees one sees all),
                # and only when nothing of this run can still touch memory.
                m.d.comb += [
                    busy.eq(1),
                    self.breaks.eq(streamed & (ending & int(_STATUS.errors())).any()),
                ]
                m.d.sync += restarted.eq(restarted | rise)
                with m.If(settled):
                    m.d.sync += self.flush.eq(0)
                    m.next = "Idle"
                    with m.If(~restarted & ~rise):
                        m.d.comb += event.eq(ending)
                        with m.If(run):
                            m.next = "Stopped"
            with m.State("Stopped"):
                with m.If(~run):
                    m.next = "Idle"
            with m.State("Abort"):
                m.d.comb += [busy.eq(1), self.halt.eq(1)]
                m.d.sync += restarted.eq(restarted | rise)
                # What is finished already still counts; a run started meanwhile must not see it,
                # and in the cycle in which it rises nothing counts.
                fine = ready_head & (head.outcome == Outcome.OK) & ~completed_wait
                with m.If(fine & ~restarted):
                    retire()
                    m.d.sync += completed_wait.eq(head.completed)
                with m.Else():
                    m.d.sync += self.flush.eq(1)
                    m.next = "Drain"
            with m.State("Drain"):
                m.d.comb += [busy.eq(1), self.breaks.eq(streamed)]
                m.d.sync += restarted.eq(restarted | rise)
                with m.If(settled):
                    m.d.sync += self.flush.eq(0)
                    with m.If(~restarted & ~rise):
                        m.d.comb += event.eq(int(_STATUS.IDLE_STOPPED))
                    m.next = "Idle"
        # A completed event without stop waits for a cycle in which software cannot clear status:
        # the clear then shows as a low request, and the event makes a new edge.
        with m.If(completed_wait & ~owed & ~writing & ~hold):
            m.d.comb += event.eq(int(_STATUS.DESCRIPTOR_COMPLETED))
            m.d.sync += completed_wait.eq(0)

        logged = Signal(24)
        m.d.comb += logged.eq(event & control[:24] & ~int(_STATUS.BUSY))
        m.d.sync += sticky.eq((sticky & ~csr.status_clear[:24]) | logged)
        count = Signal(32)
        m.d.sync += count.eq(count + counting)
        with m.If(rise):
            m.d.sync += [sticky.eq(0), count.eq(0), completed_wait.eq(0)]

        m.d.comb += [
            csr.status.eq(Cat(busy, Mux(rise, 0, sticky[1:]))),
            csr.completed_count.eq(Mux(rise, 0, count)),
            self.interrupt.eq((sticky & csr.interrupt_enable[:24]).any()),
            self.writeback.valid.eq(owed & run & (~self.flush | self.quiet)),
            self.writeback.payload.where.eq(base + regs.CHANNEL["writeback_lo"].offset >> 3),
            self.writeback.payload.what.eq(base + regs.CHANNEL["completed_count"].offset >> 3),
            self.writeback.payload.error.eq(failed),
        ]
        with m.If(self.writeback_done):
            m.d.sync += writing.eq(0)
        with m.If(self.writeback.valid & self.writeback.ready):
            m.d.sync += [owed.eq(0), writing.eq(1)]
        with m.If(~run):
            m.d.sync += owed.eq(0)
        performance_counters(m, csr, busy=busy, start=rise, beats=self.beats)
        return m

    @staticmethod
    def _field(control, name):
        field = regs.CHANNEL["control"].field(name)
        return control[field.lsb : field.lsb + field.width]
