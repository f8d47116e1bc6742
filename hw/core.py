# SPDX-License-Identifier: BSD-2-Clause
"""The DMA core: everything between the seam to a PCIe block and the card.

    host reads and writes our BARs               our own reads and writes of host or GPU memory
                │                                                    ▲
    ┌───────────▼──────────────────┐ messages, writebacks  ┌─────────┴────────────────────┐
    │ host: completer ─▶ record    ├──────────────────────▶│ requester (reads)  tx  writer│
    │ writer ─▶ register bus ─▶    │                       └──▲──────┬───────────▲────▲───┘
    │ config, irq, user, extension │                          │ jobs │ data      │jobs│ data
    └───────────┬──────────────────┘           ┌──────────────┴──┐   ▼       ┌───┴────┴─┐
                └─────────────────────────────▶│ H2C: fetch,     │ card RAM  │ C2H:     │
                       registers of channels   │ split at MRRS   │   └──────▶│ split MPS│
                                               └─────────────────┘           └──────────┘

Requester clients: the descriptor fetches of all channels (H2C first), then the H2C data paths.
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from .channel.channel import Channel
from .host import HostInterface
from .interrupts.irq import USER_INTERRUPTS
from .memory.card_ram import CardRam
from .read.engine import Requester
from .records import RING_PLACE, Outcome
from .registers.extension import ExtensionBlock
from .seam import SeamSignature
from .stream.pair import StreamPair, read_memory
from .stream.user_blocks import PassThrough, UserBlock
from .write.arbiter import TxArbiter
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
    record: 1
    channel: 2
    #: its bytes came from the channel's ring
    stream: 1
    #: the last piece of its descriptor
    last: 1


class Core(wiring.Component):
    """The engine behind the seam.

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

    def __init__(self, config: CoreConfig = CoreConfig()):
        self._config = config
        super().__init__(
            {
                "seam": Out(SeamSignature()),
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

        m.submodules.requester = requester = Requester(
            clients=count + config.h2c,
            tags=config.tags,
            timeout_cycles=config.completion_timeout_us * config.clock_khz // 1000,
        )
        m.submodules.tx = tx = TxArbiter(writers=2)
        m.submodules.writer = writer = Writer()
        m.submodules.ram = ram = CardRam(config.ram_size)
        streams = min(config.h2c, config.c2h) if config.user else 0
        m.submodules.host = host = HostInterface(
            h2c=config.h2c,
            c2h=config.c2h,
            pairs=streams,
            tags=config.tags,
            extension=self._extension(),
            answers=config.extension,
            token=_Token.const({"record": 1}).as_value(),
        )
        reset = host.reset
        channels = []
        for c2h, number in ((False, config.h2c), (True, config.c2h)):
            for index in range(number):
                channel = Channel(
                    index=index,
                    c2h=c2h,
                    ram_size=config.ram_size,
                    has_stream=index < streams,
                )
                m.submodules[f"{'c2h' if c2h else 'h2c'}{index}"] = ResetInserter(reset)(channel)
                channels.append(channel)
        h2c, c2h = channels[: config.h2c], channels[config.h2c :]
        pairs = []
        for index in range(streams):
            pair = StreamPair(config.user(), number=index)
            m.submodules[f"pair{index}"] = ResetInserter(reset)(pair)
            pair.join(m, h2c[index], c2h[index], requester, client=count + index)
            wiring.connect(m, host.pairs[index], pair.bus)
            m.d.comb += pair.flush.eq(host.flush[index])
            pairs.append(pair)
        m.d.comb += self.active.eq(Cat(pair.active for pair in pairs).any())

        # The seam
        wiring.connect(m, wiring.flipped(seam.target), host.target)
        wiring.connect(m, host.completion, wiring.flipped(seam.completion))
        wiring.connect(m, wiring.flipped(seam.requester_completion), requester.completion)
        wiring.connect(m, requester.request, tx.reads)
        wiring.connect(m, writer.request, tx.writes[0])
        wiring.connect(m, host.request, tx.writes[1])
        wiring.connect(m, tx.requester, wiring.flipped(seam.requester))
        wiring.connect(m, wiring.flipped(seam.sent), tx.seam_sent)
        wiring.connect(m, host.interrupt, wiring.flipped(seam.interrupt))
        m.d.comb += [
            seam.target_np_ok.eq(host.target_np_ok),
            seam.reads_pending.eq(requester.reads_pending),
            seam.timed_out.eq(requester.timed_out),
            seam.unexpected.eq(requester.unexpected),
            requester.bus_master.eq(link.bus_master),
            requester.relaxed.eq(host.relaxed),
            requester.flush.eq(reset),
            tx.link.eq(link),
            host.link.eq(link),
        ]

        # The host
        token = data.View(_Token, tx.sent.payload.token[: Shape.cast(_Token).width])
        wiring.connect(m, requester.error, host.read_error)
        for port, channel in zip(host.channels, channels, strict=True):
            wiring.connect(m, port, channel.host)
        m.d.comb += [
            host.sent.eq(tx.sent.valid & token.record),
            host.dropped.eq(tx.sent.payload.dropped),
            host.quarantined.eq(requester.quarantined),
            host.moving.eq(Cat(channel.moving for channel in c2h).any()),
            host.time_scale.eq(self.time_scale),
            host.user_irq.eq(self.user_irq),
            host.gpio.eq(self.gpio),
            self.led.eq(host.led),
        ]

        # Descriptor fetches of all channels, then the data of H2C channels
        for client, channel in enumerate(channels):
            wiring.connect(m, channel.fetch_job, requester.jobs[client])
            wiring.connect(m, requester.retired[client], channel.fetch_retired)
            m.d.comb += [
                channel.fetch_placement.payload.eq(requester.placement.payload),
                channel.fetch_placement.valid.eq(
                    requester.placement.valid & (requester.placement.payload.client == client)
                ),
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
                channel.report.valid.eq(retired.valid),
                channel.report.payload.last.eq(retired.payload.last),
                channel.report.payload.outcome.eq(retired.payload.outcome),
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
                channel.report.valid.eq(tx.sent.valid & ~token.record & (token.channel == index)),
                channel.report.payload.last.eq(token.last),
                channel.report.payload.outcome.eq(
                    Mux(tx.sent.payload.dropped, Outcome.BUS_MASTER_OFF, Outcome.OK)
                ),
            ]
        for pair, channel in zip(pairs, c2h, strict=False):
            m.d.comb += pair.outbound.released.eq(channel.report.valid & token.stream)

    def _extension(self):
        config, capabilities = self._config, regs.Capability.MAILBOX | regs.Capability.WRITEBACK
        if config.user:
            capabilities |= regs.Capability.STREAM
        return ExtensionBlock(
            h2c=config.h2c,
            c2h=config.c2h,
            tags=config.tags,
            ram_size=config.ram_size,
            clock_khz=config.clock_khz,
            capabilities=capabilities,
            user=config.user,
        )


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
