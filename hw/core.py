# SPDX-License-Identifier: BSD-2-Clause
"""The DMA core: everything between the seam to a PCIe block and the card.

      host reads and writes our BARs            our own reads and writes of host or GPU memory
                  │                                              ▲
    ┌─────────────▼─────────────┐                ┌───────────────┴───────────────┐
    │ completer ─▶ register bus │                │ requester (reads)   tx  writer│
    └─────────────┬─────────────┘                └───▲──────┬───────────▲────▲───┘
                  ▼                                  │ jobs │ data      │jobs│ data
     extension, config, irq, user,    ┌──────────────┴──┐   ▼       ┌───┴────┴─┐
     channel registers ──────────────▶│ H2C: fetch,     │ card RAM  │ C2H:     │
                                      │ split at MRRS   │   └──────▶│ split MPS│
                                      └─────────────────┘           └──────────┘

Requester clients: the descriptor fetches of all channels (H2C first), then the H2C data paths.
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from .channel.channel import ChannelPipeline
from .interrupts.irq import USER_INTERRUPTS, InterruptBlock
from .memory.card_ram import CardRam
from .read.engine import Requester
from .records import RING_PLACE, Outcome
from .registers.bank import RegisterBank, delayed, fan_out
from .registers.completer import Completer
from .registers.extension import CapturedError, ExtensionBlock
from .registers.user import UserRegisters
from .seam import WIDTH, Block, SeamSignature
from .stream.pair import StreamPair, read_memory
from .stream.user_blocks import PassThrough, UserBlock
from .write.arbiter import TxArbiter
from .write.post import PostWriter
from .write.writer import Writer

__all__ = ["Core", "CoreConfig"]


@dataclass(frozen=True)
class CoreConfig:
    """What can be chosen when the core is built.

    Parameters
    ----------
    h2c, c2h : int
        Channels in each direction, 1 to 4.
    tags : int
        Reads in flight, at most 32 (five tag bits need no configuration by the host).
    ram_size : int
        Bytes of card RAM, a power of two from 4 KiB to 64 KiB.
    clock_khz : int
        Frequency of the core's clock, for software that turns cycles into time.
    completion_timeout_us : int
        After how long an unanswered read is an error (Device Control 2, default range).
    user : type of UserBlock, or None
        What is between H2C and C2H in the user stream; None for a core without streams.
    extension : bool
        Answer in the extension block's registers; without them drivers see a plain XDMA core.
    """

    h2c: int = 1
    c2h: int = 1
    tags: int = 32
    ram_size: int = regs.CARD_RAM_SIZE
    clock_khz: int = 125_000
    completion_timeout_us: int = 10_000
    user: type[UserBlock] | None = PassThrough
    extension: bool = True

    def __post_init__(self):
        for name in ("h2c", "c2h"):
            if not 1 <= getattr(self, name) <= 4:
                raise ValueError(f"{name} must be 1 to 4 channels, not {getattr(self, name)}")
        if self.tags not in (8, 16, 32):
            raise ValueError(f"tags must be 8, 16 or 32, not {self.tags}")
        if self.ram_size > 1 << 16:
            raise ValueError(f"card RAM is at most 64 KiB, not {self.ram_size} bytes")


class _Token(data.Struct):
    """Where a write came from; travels with it and comes back when it is sent."""

    #: not the data of a channel, but a message or a writeback; then nothing else is said
    post: 1
    channel: 2
    #: its bytes came from the channel's ring
    stream: 1
    #: the last piece of its descriptor
    last: 1


class Core(wiring.Component):
    """The engine behind the seam.

    Parameters
    ----------
    block : Block
        What is on the other side of the seam.
    config : CoreConfig

    Members
    -------
    seam : Out(SeamSignature)
    led : Out(3)
        LEDs as software set them, 1 is on.
    gpio : In(4)
    user_irq : In(16)
        Level-sensitive user interrupt requests.
    time_scale : In(32)
        How much slower than real time this core runs; 1 on hardware.
    active : Out(1)
        A source is at work that shows at no other port; for simulations that rest.
    """

    def __init__(self, block: Block, config: CoreConfig = CoreConfig()):
        if block.width != WIDTH:
            raise ValueError(f"the engine is {WIDTH} bits wide, the PCIe block {block.width}")
        self.block = block
        self._config = config
        super().__init__(
            {
                "seam": Out(SeamSignature(block)),
                "led": Out(3),
                "gpio": In(4),
                "user_irq": In(USER_INTERRUPTS),
                "time_scale": In(32),
                "active": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        seam, link = self.seam, self.seam.link
        count = config.h2c + config.c2h

        m.submodules.completer = completer = Completer()
        m.submodules.requester = requester = Requester(
            clients=count + config.h2c,
            tags=config.tags,
            timeout_cycles=config.completion_timeout_us * config.clock_khz // 1000,
        )
        m.submodules.tx = tx = TxArbiter(
            writers=2,
            tx_buffers=self.block.transmit_buffers,
            credit_lag=self.block.credit_lag,
        )
        m.submodules.writer = writer = Writer()
        m.submodules.post = post = PostWriter(1 + count, _Token.const({"post": 1}).as_value())
        m.submodules.ram = ram = CardRam(config.ram_size)
        m.submodules.irq = irq = InterruptBlock(count)
        m.submodules.user = user = UserRegisters()
        m.submodules.common = common = RegisterBank(regs.SGDMA_COMMON, bar=regs.BAR_DMA[0])
        m.submodules.extension = extension = ExtensionBlock(
            h2c=config.h2c,
            c2h=config.c2h,
            tags=config.tags,
            ram_size=config.ram_size,
            clock_khz=config.clock_khz,
            capabilities=regs.Capability.MAILBOX
            | regs.Capability.WRITEBACK
            | (regs.Capability.STREAM if config.user else regs.Capability(0)),
            user=config.user,
        )
        reset = Signal()
        stop = Signal()
        streams = min(config.h2c, config.c2h) if config.user else 0
        channels = []
        for c2h, number in ((False, config.h2c), (True, config.c2h)):
            for index in range(number):
                pipeline = ChannelPipeline(
                    index=index,
                    c2h=c2h,
                    ram_size=config.ram_size,
                    has_stream=index < streams,
                )
                m.submodules[f"{'c2h' if c2h else 'h2c'}{index}"] = ResetInserter(reset)(pipeline)
                channels.append(pipeline)
        h2c, c2h = channels[: config.h2c], channels[config.h2c :]
        pairs = []
        for index in range(streams):
            pair = StreamPair(config.user(), number=index)
            m.submodules[f"pair{index}"] = ResetInserter(reset)(pair)
            pair.join(m, h2c[index], c2h[index], requester, client=count + index)
            m.d.comb += pair.flush.eq(extension.stream_flush[index])
            pairs.append(pair)
        m.d.comb += self.active.eq(Cat(pair.active for pair in pairs).any())

        # The seam
        wiring.connect(m, wiring.flipped(seam.target), completer.target)
        wiring.connect(m, completer.completion, wiring.flipped(seam.completion))
        wiring.connect(m, wiring.flipped(seam.requester_completion), requester.completion)
        wiring.connect(m, requester.request, tx.reads)
        wiring.connect(m, writer.request, tx.writes[0])
        wiring.connect(m, post.request, tx.writes[1])
        wiring.connect(m, tx.requester, wiring.flipped(seam.requester))
        wiring.connect(m, wiring.flipped(seam.sent), tx.seam_sent)
        wiring.connect(m, irq.interrupt, wiring.flipped(seam.interrupt))
        m.d.comb += [
            seam.target_np_ok.eq(completer.target_np_ok),
            seam.reads_pending.eq(requester.reads_pending),
            seam.timed_out.eq(requester.timed_out),
            seam.unexpected.eq(requester.unexpected),
            requester.bus_master.eq(link.bus_master),
            requester.relaxed.eq(extension.relaxed),
            requester.flush.eq(reset),
            tx.link.eq(link),
            extension.link.eq(link),
            irq.bus_master.eq(link.bus_master),
            irq.intx_disable.eq(link.intx_disable),
            irq.msi_enable.eq(link.msi_enable),
            irq.msi_granted.eq(link.msi_granted),
            irq.msix_enable.eq(link.msix_enable),
            irq.msix_mask.eq(link.msix_mask),
        ]

        # Interrupt messages and writebacks
        token = data.View(_Token, tx.sent.payload.token[: Shape.cast(_Token).width])
        wiring.connect(m, irq.message, post.posts[0])
        m.d.comb += [
            post.sent.eq(tx.sent.valid & token.post),
            irq.message_masked.eq(post.masked),
            irq.message_done.eq(post.done[0]),
            irq.message_dropped.eq(tx.sent.payload.dropped),
        ]
        for number, channel in enumerate(channels, start=1):
            wiring.connect(m, channel.writeback, post.posts[number])
            m.d.comb += channel.writeback_done.eq(post.done[number])

        # Registers
        wiring.connect(m, completer.bus, post.host)
        parts = [common, irq, user, *channels, *pairs]
        if config.extension:
            parts.append(extension)
        banks = [part.bus for part in parts]
        m.d.sync += post.bus.read_data.eq(fan_out(m, delayed(m, post.bus), banks))
        m.d.comb += [
            common.identifier.eq(regs.identifier(6)),
            extension.time_scale.eq(self.time_scale),
            extension.quarantined.eq(requester.quarantined),
            user.cycles.eq(extension.cycles),
            user.gpio.eq(self.gpio),
            self.led.eq(user.led),
            irq.user.eq(self.user_irq),
            irq.channel.eq(Cat(channel.interrupt for channel in channels)),
        ]

        # Descriptor fetches of all channels, then the data of H2C channels
        for client, channel in enumerate(channels):
            place = client if channel in h2c else 16 + client - len(h2c)
            wiring.connect(m, channel.fetch_job, requester.jobs[client])
            wiring.connect(m, requester.retired[client], channel.fetch_retired)
            m.d.comb += [
                channel.fetch_placement.payload.eq(requester.placement.payload),
                channel.fetch_placement.valid.eq(
                    requester.placement.valid & (requester.placement.payload.client == client)
                ),
                channel.halt.eq(common.halt[place]),
                channel.credit_mode.eq(common.credit_enable[place]),
                channel.read_limit.eq(extension.read_limit),
                channel.piece_limit.eq(
                    extension.read_limit if channel in h2c else extension.payload_limit
                ),
                channel.stop_request.eq(stop),
            ]
        for client, channel in enumerate(h2c, start=count):
            job, retired = requester.jobs[client], requester.retired[client]
            m.d.comb += [
                job.valid.eq(channel.piece.valid),
                channel.piece.ready.eq(job.ready),
                job.payload.address.eq(channel.piece.payload.address),
                job.payload.place.eq(channel.piece.payload.place),
                job.payload.length.eq(channel.piece.payload.length),
                job.payload.last.eq(channel.piece.payload.last),
                channel.piece_done.eq(retired.valid),
                channel.piece_last.eq(retired.payload.last),
                channel.piece_outcome.eq(retired.payload.outcome),
            ]
        placement = requester.placement
        to_ring = placement.payload.address[exact_log2(RING_PLACE // 8)]
        m.d.comb += [
            ram.write_valid.eq(placement.valid & (placement.payload.client >= count) & ~to_ring),
            ram.write_address.eq(placement.payload.address),
            ram.write_data.eq(placement.payload.data),
            ram.write_enable.eq(placement.payload.enable),
        ]
        read_memory(m, writer, ram, pairs)
        self._write_jobs(m, c2h, pairs, writer, tx)
        self._soft_reset(m, extension.soft_reset, c2h, post, stop, reset)
        self._errors(m, extension, requester, h2c, c2h)
        return m

    @staticmethod
    def _write_jobs(m, c2h, pairs, writer, tx):
        """C2H channels take turns, a memory write each; tokens find their way back."""
        turn = Signal(range(len(c2h)))
        for current in range(len(c2h)):
            with m.If(turn == current):
                taken = Const(0, 1)
                for step in range(1, len(c2h) + 1):
                    index = (current + step) % len(c2h)
                    piece = c2h[index].piece
                    with m.If(piece.valid & ~taken):
                        m.d.comb += _give(writer.job, piece, index)
                        with m.If(writer.job.ready):
                            m.d.sync += turn.eq(index)
                    taken = taken | piece.valid
        token = data.View(_Token, tx.sent.payload.token[: Shape.cast(_Token).width])
        for index, channel in enumerate(c2h):
            m.d.comb += [
                channel.piece_done.eq(tx.sent.valid & ~token.post & (token.channel == index)),
                channel.piece_last.eq(token.last),
                channel.piece_outcome.eq(
                    Mux(tx.sent.payload.dropped, Outcome.BUS_MASTER_OFF, Outcome.OK)
                ),
            ]
        for pair, channel in zip(pairs, c2h, strict=False):
            m.d.comb += pair.outbound.released.eq(channel.piece_done & token.stream)

    @staticmethod
    def _soft_reset(m, request, c2h, post, stop, reset):
        """Stop all channels; once no write of theirs is under way, reset them and forget reads.

        Reads need no waiting: the requester keeps their tags until the completions have come.
        """
        busy = Cat(channel.pieces_out | channel.piece.valid for channel in c2h).any()
        m.d.comb += reset.eq(stop & ~busy & ~post.busy)
        with m.If(request):
            m.d.sync += stop.eq(1)
        with m.Elif(reset):
            m.d.sync += stop.eq(0)

    @staticmethod
    def _errors(m, extension, requester, h2c, c2h):
        """What the error capture sees: failed reads, and what channels find out by themselves."""
        read, failed = Signal(CapturedError), requester.error.payload
        m.d.comb += [read.outcome.eq(failed.outcome), read.address.eq(failed.address)]
        sources = [(requester.error.valid, read)]
        clients = [(channel, 1) for channel in (*h2c, *c2h)] + [(channel, 0) for channel in h2c]
        with m.Switch(failed.client):
            for client, (channel, descriptor) in enumerate(clients):
                with m.Case(client):
                    m.d.comb += [read.descriptor.eq(descriptor), *_whose(read, channel, h2c, c2h)]
        for channel in (*h2c, *c2h):
            own, report = Signal(CapturedError), channel.error
            m.d.comb += [
                own.outcome.eq(report.outcome),
                own.address.eq(report.address),
                own.descriptor.eq(report.descriptor),
                *_whose(own, channel, h2c, c2h),
            ]
            unreported = (report.outcome == Outcome.MAGIC) | (report.outcome == Outcome.DECODE)
            if channel in c2h:
                unreported = unreported | ~report.descriptor
            sources.append((channel.error_valid & unreported, own))
        # Merged by OR, of which only one is not 0: smaller than a chain of multiplexers.
        merged, earlier = 0, Const(0, 1)
        for valid, error in sources:
            merged = merged | Mux(valid & ~earlier, error.as_value(), 0)
            earlier = earlier | valid
        m.d.comb += [extension.error_valid.eq(earlier), extension.error.as_value().eq(merged)]


def _whose(error, channel, h2c, c2h):
    is_c2h = channel in c2h
    index = (c2h if is_c2h else h2c).index(channel)
    return [error.channel.eq(index), error.c2h.eq(is_c2h)]


def _give(job, piece, channel):
    """Hand a piece of C2H channel `channel` to the writer."""
    token = Signal(_Token)
    return [
        token.channel.eq(channel),
        token.stream.eq(piece.payload.stream),
        token.last.eq(piece.payload.last),
        job.valid.eq(piece.valid),
        piece.ready.eq(job.ready),
        job.payload.address.eq(piece.payload.address),
        job.payload.place.eq(piece.payload.place),
        job.payload.length.eq(piece.payload.length),
        job.payload.token.eq(token.as_value()),
    ]
