# SPDX-License-Identifier: BSD-2-Clause
"""The control of one DMA channel: its registers, its run state, and the life of a descriptor.

    fetch ──▶ DescriptorIntake ──▶ span ──▶ (splitter, then read engine or writer)
                     │ entry                              │
                     └──▶ InFlightQueue ◀──── finished ───┘
                               │ oldest
                               └──▶ RunState ──▶ Writeback, ChannelStatus, interrupt

Follows PG195 for what the registers do. Where that is silent, the choice is named here:

* Clearing Run is an abort: the descriptor in progress gets no further requests, what is already
  requested is waited for, then the channel is idle. Drivers free their buffers right after it,
  so finishing up to 256 MiB would write into memory that is no longer theirs.
* A descriptor of length 0 moves nothing and completes in order.
* A card address outside card RAM and stream window is a decode error, found before any byte of
  its descriptor moves.
* Errors set their own status bit and, as drivers look at that one only, bit 0 of their field.
* A run that ends by an error also says "descriptor stopped", and the descriptor that failed is
  counted: xdma.ko takes no notice of an error with a count of 0.
* An error that ends a run is written back, too, whatever the failed descriptor's flags say. After
  Run was cleared nothing is: a word in memory must not be mistaken for the next run's.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..records import FETCH_DESCRIPTORS, Outcome, PushedWord, Span
from ..registers.bank import RegisterBank, field
from ..registers.bus import BusFanOut
from ..stream.link import StreamRunSignature
from .counters import PerformanceCounters
from .credits import CreditPool
from .grant import ChannelGrant
from .in_flight import InFlightQueue
from .intake import DescriptorIntake
from .push import PushWindow
from .run import RunState
from .signatures import ChannelHostSignature, FetchSignature, OwnerSignature
from .status import ChannelStatus
from .writeback import Writeback

__all__ = ["ChannelControl"]


class ChannelControl(wiring.Component):
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
    doubtful : bool
        As for `hw.channel.intake.DescriptorIntake`.
    pushable : bool
        The host can push descriptors.
    shared : bool
        Another owner has runs on the channel, too: see `hw.channel.grant`.

    Members
    -------
    host : In(ChannelHostSignature)
    owner : In(OwnerSignature)
        Only if `shared`.
    push : Out(stream of PushedWord, always ready)
        Words of descriptors that the host pushes, while it has no run.
    owned_push : Out(stream of PushedWord)
        Those of the owner. Only if `shared`.
    fetch : Out(FetchSignature)
        High `flush` means for the splitter and the data path, too, that they begin nothing new. It
        stays high until everything is idle.
    span : Out(stream of Span)
        Data to move, in order.
    finished : In(stream of Outcome, always ready)
        The oldest span is finished: OK, or its first error. Errors may come for a piece in the
        middle of a span.
    drained : In(1)
        Splitter and data path hold nothing of this channel.
    beats : In(8)
        64-bit data beats moved in this cycle, for the performance counter.
    stream : Out(StreamRunSignature)
    blocked : Out(1)
        A run that software started waits for `stream.start_ok`, or for its turn.
    busy : Out(1)
        It waits, or is under way. Only if `shared`.
    ends_list : Out(1), long : In(1)
        The span that is offered is that of the descriptor with Stop; and as at
        `hw.channel.grant.ChannelGrant`. Only if `shared`.
    """

    def __init__(
        self,
        *,
        index: int,
        c2h: bool,
        ram_size: int,
        has_stream: bool = False,
        doubtful: bool = True,
        pushable: bool = False,
        shared: bool = False,
    ):
        self._index = index
        self._c2h = c2h
        self._pushable = pushable
        self._shared = shared
        self._run = RunState(c2h=c2h, shared=shared, doubtful=doubtful)
        self._intake = DescriptorIntake(
            ram_size=ram_size, has_stream=has_stream, doubtful=doubtful, overlaps=shared
        )
        super().__init__(
            {
                "host": In(ChannelHostSignature(shared)),
                **({"owner": In(OwnerSignature())} if shared else {}),
                "push": Out(stream.Signature(PushedWord, always_ready=True)),
                **({"owned_push": Out(stream.Signature(PushedWord))} if shared else {}),
                "fetch": Out(FetchSignature(shared)),
                "span": Out(stream.Signature(Span)),
                "finished": In(stream.Signature(Outcome, always_ready=True)),
                "drained": In(1),
                "beats": In(8),
                "stream": Out(StreamRunSignature()),
                "blocked": Out(1),
                **({"busy": Out(1), "ends_list": Out(1), "long": In(1)} if shared else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        host, c2h, bar = self.host, self._c2h, regs.BAR_DMA[0]
        base = (regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base) + 0x100 * self._index
        sgdma_base = (regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base) + 0x100 * self._index
        m.submodules.registers = csr = RegisterBank(
            regs.CHANNEL, bar=bar, base=base, registered=False, in_file=True
        )
        m.submodules.sgdma = sgdma = RegisterBank(
            regs.SGDMA, bar=bar, base=sgdma_base, registered=False, in_file=True
        )
        m.submodules.fan_out = fan_out = BusFanOut(3 if self._pushable else 2)
        m.submodules.intake = intake = self._intake
        m.submodules.run = run = self._run
        m.submodules.in_flight = in_flight = InFlightQueue(self._shared)
        m.submodules.status = status = ChannelStatus(c2h=c2h)
        m.submodules.credits = credits = CreditPool()
        m.submodules.counters = counters = PerformanceCounters()
        m.submodules.writeback = writeback = Writeback(
            where=base + regs.CHANNEL["writeback_lo"].offset >> 3,
            what=base + regs.CHANNEL["completed_count"].offset >> 3,
        )

        # Registers
        wiring.connect(m, wiring.flipped(host.bus), fan_out.bus)
        wiring.connect(m, fan_out.targets[0], csr.bus)
        wiring.connect(m, fan_out.targets[1], sgdma.bus)
        self._connect(m, csr, run, status, counters)
        m.d.comb += [
            sgdma.identifier.eq(regs.identifier(int(c2h) + 4, self._index)),
            credits.mode.eq(host.settings.credit_mode),
            credits.give.eq(sgdma.descriptor_credits_strobe),
            credits.given.eq(sgdma.descriptor_credits_data),
            sgdma.descriptor_credits.eq(credits.credits),
        ]

        # Descriptors, for the run that has the channel
        fetch, parts = self.fetch, run
        if self._shared:
            m.submodules.grant = grant = ChannelGrant(c2h=c2h)
            parts = grant.parts
        wiring.connect(m, intake.entry, in_flight.entry)
        wiring.connect(m, intake.span, wiring.flipped(self.span))
        wiring.connect(m, wiring.flipped(self.finished), in_flight.finished)
        wiring.connect(m, in_flight.oldest, parts.oldest)
        m.d.comb += [
            fetch.start.eq(parts.start),
            fetch.address.eq(Cat(sgdma.descriptor_lo, sgdma.descriptor_hi)),
            fetch.adjacent.eq(sgdma.descriptor_adjacent),
            fetch.halt.eq(parts.halt | host.settings.halt),
            fetch.flush.eq(parts.flush),
            fetch.credit.eq(credits.allowed),
            fetch.wanted.eq(intake.wanted),
            intake.word.valid.eq(fetch.word.valid),
            intake.word.payload.eq(fetch.word.payload),
            intake.start.eq(parts.start),
            intake.flush.eq(parts.flush),
            in_flight.flush.eq(parts.flush),
            parts.failure.eq(in_flight.failure),
            run.error_address.eq(intake.error_address),
            parts.streamed.eq(intake.streamed),
        ]
        if self._pushable:
            m.submodules.window = window = PushWindow(index=self._index, c2h=c2h)
            wiring.connect(m, fan_out.targets[2], window.bus)
            wiring.connect(m, window.word, wiring.flipped(self.push))
            m.d.comb += [
                window.open.eq(~run.events.busy),
                # Of both places where a run can begin, the one that software named last counts.
                window.clear.eq((fetch.begun & ~fetch.owned) | sgdma.descriptor_lo_strobe),
                fetch.pushed.eq(window.pushed),
            ]
        # Registered, because how many a read asks for is known late.
        m.d.sync += credits.spent.eq(fetch.spent)

        # The run
        wiring.connect(m, parts.stream, wiring.flipped(self.stream))
        wiring.connect(m, run.events, status.run)
        wiring.connect(m, run.writeback, writeback.control)
        wiring.connect(m, writeback.records, wiring.flipped(host.records))
        wiring.connect(m, run.error, wiring.flipped(host.error))
        m.d.comb += [
            host.begins.eq(run.start),
            self.blocked.eq(run.events.busy & ~run.stream.running & ~run.stream.start_ok),
            run.stop.eq(host.settings.stop),
            parts.quiet.eq(~fetch.active & self.drained),
            credits.clear.eq(run.fall),
            counters.busy.eq(run.events.busy),
            counters.start.eq(run.events.rise),
            counters.beats.eq(self.beats),
        ]
        if self._shared:
            self._share(m, grant, run)
            m.d.comb += [
                fetch.hold.eq(grant.hold),
                fetch.resume.eq(grant.resume),
                intake.start.eq(parts.start | grant.resume),
                self.busy.eq(run.events.busy),
                self.blocked.eq(
                    run.events.busy & ~(run.stream.running | run.stream.start_ok) | grant.rests
                ),
                grant.beats.eq(self.beats),
                grant.streams.eq(intake.streams),
                grant.empty.eq(in_flight.empty & ~intake.entry.valid),
            ]
            with m.If(grant.owned):
                m.d.comb += counters.beats.eq(0)
                m.d.sync += credits.spent.eq(0)
            # The next descriptor there may be the owner's.
            address = Signal(64)
            m.d.comb += host.error.payload.address.eq(address)
            with m.If(run.error.valid):
                m.d.sync += address.eq(intake.error_address)
            # What an owner sets applies to its runs only, and what the host sets to the host's.
            owner = self.owner
            with m.If(grant.owned):
                m.d.comb += [
                    fetch.address.eq(owner.address),
                    fetch.adjacent.eq(owner.adjacent),
                    fetch.pushed.eq(owner.pushed),
                    fetch.halt.eq(grant.parts.halt),
                    fetch.credit.eq(FETCH_DESCRIPTORS),
                    fetch.owned.eq(1),
                ]
        return m

    def _connect(self, m, csr, run, status, counters):
        """Connect the channel's registers with what they control and show."""
        host, control = self.host, regs.CHANNEL["control"]
        m.d.comb += [
            csr.identifier.eq(regs.identifier(int(self._c2h), self._index)),
            csr.alignments.eq(regs.ALIGNMENTS_MM),
            run.enable.eq(field(csr.control, control, "run")),
            run.poll_mode.eq(field(csr.control, control, "pollmode_wb_enable")),
            run.accessed.eq(host.bus.read.valid | host.bus.write.valid),
            status.control.eq(csr.control),
            status.interrupt_enable.eq(csr.interrupt_enable),
            status.clear.eq(csr.status_clear),
            # Busy up to a soft reset: what software would write before it is lost.
            csr.status.eq(status.status | host.settings.stop),
            csr.completed_count.eq(status.count),
            host.interrupt.eq(status.interrupt),
            counters.control.eq(csr.perf_control),
            counters.written.eq(csr.perf_control_strobe),
            counters.data.eq(csr.perf_control_data),
            Cat(csr.perf_cycles_lo, csr.perf_cycles_hi).eq(counters.cycles),
            Cat(csr.perf_data_lo, csr.perf_data_hi).eq(counters.moved),
        ]

    def _share(self, m, grant, run):
        """Put `grant` between the run state and the channel's parts."""
        host = grant.host
        wiring.connect(m, host.oldest, run.oldest)
        wiring.connect(m, run.stream, host.stream)
        wiring.connect(m, wiring.flipped(self.owner), grant.owner)
        wiring.connect(m, grant.word, wiring.flipped(self.owned_push))
        m.d.comb += [
            grant.parts.fetching.eq(self.fetch.active | self._intake.entry.valid),
            self._intake.follows.eq(grant.parts.follows),
            host.start.eq(run.start),
            host.halt.eq(run.halt),
            host.flush.eq(run.flush),
            run.quiet.eq(host.quiet),
            run.failure.eq(host.failure),
            run.streamed.eq(host.streamed),
            run.rests.eq(grant.rests),
            grant.waits.eq(run.events.busy & ~run.stream.running),
            grant.stop.eq(self.host.settings.stop),
            grant.long.eq(self.long),
            # The next descriptor comes when the span is taken.
            self.ends_list.eq(self._intake.entry.payload.stop),
            self.host.owned.eq(grant.owned),
        ]
