# SPDX-License-Identifier: BSD-2-Clause
"""The DMA core: everything between the seam to a PCIe block and the card.

    host reads and writes our BARs               our own reads and writes of host or GPU memory
                │                                                    ▲
    ┌───────────▼──────────────────┐ messages, writebacks  ┌─────────┴────────────────────┐
    │ host: completer ─▶ record    ├──────────────────────▶│ read engine  arbiter  writer │
    │ writer ─▶ register bus ─▶    │                       └──▲──────┬───────────▲────▲───┘
    │ config, irq, user, extension │                          │ jobs │ data      │jobs│ data
    └───────────┬──────────────────┘           ┌──────────────┴──┐   ▼       ┌───┴────┴─┐
                └─────────────────────────────▶│ fetch, H2C:     │ card RAM  │ C2H:     │
                       registers of channels   │ split at MRRS   │   └──────▶│ split MPS│
                                               └─────────────────┘           └──────────┘

Clients of the read engine: the descriptor fetch, for each channel (H2C first), then the launch
queues if there are any, then the data paths of the H2C channels.

Launch queues (`hw.launch`) start runs on the channels beside those of software's registers.
Doorbells come to them from the host, as do their registers; their records go out with the
writebacks.
"""

from dataclasses import dataclass
from pathlib import Path

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .channel.channel import Channel
from .channel.fetch import DescriptorFetch
from .channel.signatures import OwnerSignature
from .host import HostInterface
from .interrupts.irq import USER_INTERRUPTS
from .launch.queues import LaunchQueues
from .memory.card_ram import CardRam
from .parts.reset import Resets
from .read.engine import ReadEngine
from .read.pieces import PieceReads
from .read.placement_switch import PlacementSwitch
from .records import JOB_BYTES, RAM_ADDRESS_BITS, WriteToken, offset_bits
from .registers.bank import field
from .registers.extension import ExtensionBlock
from .seam import FIVE_BIT_TAGS, Block, SeamSignature
from .stream.axi_stream import UserPorts
from .stream.pair import StreamPair
from .stream.user_blocks import Axis, FrameBlock, PassThrough, UserBlock
from .write.arbiter import RequestArbiter
from .write.pieces import PieceWrites, token_of
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
        Reads in flight: 8, 16, 32 or 64, as far as the PCIe block has them (`Block.max_tags`). Of
        64, the host has to enable extended tags for more than 32 to be used.
    ram_size : int
        Bytes of card RAM, a power of two from 4 KiB to 1 MiB.
    clock_khz : int
        Frequency of the core's clock, for software that turns cycles into time.
    completion_timeout_us : int
        After how long an unanswered read is an error (Device Control 2, default range).
    user : type of UserBlock, or None
        What is between H2C and C2H in the user stream; None for a core without streams.
    frame_records : bool
        Frames can have records, if the user block makes frames.
    extension : bool
        Answer in the extension block's registers; without them drivers see a plain XDMA core.
    launch_queues : int
        Queues by which a GPU starts transfers itself, up to `peerdma.regs.LAUNCH_QUEUES`.
    overcommit : bool
        More completions may be under way than the PCIe block's receive buffer holds, for as long as
        its port is seen to keep to `hw.seam.PortContract` and no read is lost.
    """

    h2c: int = 1
    c2h: int = 1
    tags: int = 16
    ram_size: int = regs.CARD_RAM_SIZE
    clock_khz: int = 125_000
    completion_timeout_us: int = regs.COMPLETION_TIMEOUT_US
    user: type[UserBlock] | None = PassThrough
    frame_records: bool = True
    extension: bool = True
    launch_queues: int = 0
    overcommit: bool = False

    def __post_init__(self):
        for name in ("h2c", "c2h"):
            if not 1 <= getattr(self, name) <= 4:
                raise ValueError(f"{name} must be 1 to 4 channels, not {getattr(self, name)}")
        if self.tags not in (8, 16, 32, 64):
            raise ValueError(f"tags must be 8, 16, 32 or 64, not {self.tags}")
        if not 0 <= self.launch_queues <= regs.LAUNCH_QUEUES:
            raise ValueError(
                f"launch_queues must be 0 to {regs.LAUNCH_QUEUES}, not {self.launch_queues}"
            )
        if self.launch_queues and not self.extension:
            raise ValueError(
                "launch queues need the extension block, which says that they are there"
            )
        if self.ram_size not in (1 << bits for bits in range(12, RAM_ADDRESS_BITS + 1)):
            raise ValueError(
                f"card RAM must be a power of two, 4 KiB to 1 MiB, not {self.ram_size} bytes"
            )

    def require(self, block: Block) -> None:
        """Raises ValueError if this is more than the PCIe block can do."""
        if self.tags > block.max_tags:
            raise ValueError(
                f"tags must be at most {block.max_tags}, all that the PCIe block has, "
                f"not {self.tags}"
            )
        if self.overcommit:
            block.port_lag(self.clock_khz)

    @property
    def pairs(self) -> int:
        """Pairs of channels with a user stream between them."""
        return min(self.h2c, self.c2h) if self.user else 0

    @property
    def slots(self) -> int:
        """Descriptors that the board holds ahead for each channel: 64, or 32 for many channels.

        One block RAM has 128, two have 256.
        """
        return 64 if self.h2c + self.c2h == 2 else 32

    @property
    def packets(self) -> bool:
        """Tickets of launch queues can take packets: frames with their records."""
        return bool(self.launch_queues and self.recorded)

    @property
    def recorded(self) -> bool:
        """Frames of the user block can have records."""
        return bool(self.user and self.frame_records and issubclass(self.user, FrameBlock))

    @property
    def outside(self) -> int:
        """Pairs whose user logic is outside of the core."""
        return self.pairs if self.user and issubclass(self.user, Axis) else 0

    @property
    def verilog(self) -> tuple[Path, ...]:
        """Files with modules that the core has inside."""
        return (self.user.VERILOG,) if self.outside and self.user.VERILOG else ()


class Core(wiring.Component):
    """The engine behind the seam.

    Parameters
    ----------
    block : Block
        What is on the other side of the seam.
    config : CoreConfig
    shared : bool
        Another owner has runs on the channels, too, beside those of software's registers. Not
        together with launch queues, which are that owner then.

    Members
    -------
    seam : Out(SeamSignature)
    led : Out(3)
        LEDs as software set them, 1 is on.
    gpio : In(4)
    user_irq : In(16)
        Level-sensitive user interrupt requests, beside those that software raises by a register.
    time_scale : In(32)
        How much slower than real time this core runs; 1 unless it is driven.
    timeout_cycles : In
        The completion timeout: that of the configuration, which is the longest, unless driven.
    active : Out(1)
        A source is at work that shows at no other port; for simulations that rest.
    waits_for : Out(32)
        What each channel waits for, as in register `waits_for` of the extension block.
    user : array of Out(UserPorts)
        For user logic outside of the core, of each pair.
    owners : array of In(OwnerSignature)
        H2C channels, then C2H channels. Only if `shared`.

    Raises
    ------
    ValueError
        If the configuration is more than the block can do.
    """

    def __init__(self, block: Block, config: CoreConfig = CoreConfig(), *, shared: bool = False):
        if shared and config.launch_queues:
            raise ValueError("with launch queues, the channels have no port for another owner")
        config.require(block)
        self.block = block
        self._config = config
        self._shared = shared or config.launch_queues > 0
        owners = config.h2c + config.c2h if shared else 0
        self._timeout_cycles = cycles = config.completion_timeout_us * config.clock_khz // 1000
        super().__init__(
            {
                "seam": Out(SeamSignature(block, overcommit=config.overcommit)),
                "led": Out(3),
                "gpio": In(4),
                "user_irq": In(USER_INTERRUPTS),
                "time_scale": In(32, init=1),
                "timeout_cycles": In(range(cycles + 1), init=cycles),
                "active": Out(1),
                "waits_for": Out(32),
                "user": Out(UserPorts(block.width)).array(config.outside),
                "owners": In(OwnerSignature()).array(owners),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, width = self._config, self.block.width
        m.submodules.engine = engine = ReadEngine(
            clients=self._first_data + config.h2c,
            fetches=self._first_data,
            capacity=self.block.completions(JOB_BYTES),
            tags=config.tags,
            timeout_cycles=self._timeout_cycles,
            quarantine_timeouts=regs.QUARANTINE_TIMEOUTS,
            offset_bits=offset_bits(config.ram_size),
            width=width,
            overcommit=config.overcommit,
        )
        m.submodules.arbiter = arbiter = RequestArbiter(
            writers=2,
            width=width,
            transmit_buffers=self.block.transmit_buffers,
            credit_lag=self.block.credit_lag,
        )
        m.submodules.writer = writer = Writer(
            config.pairs, offset_bits(config.ram_size), width=width
        )
        m.submodules.ram = ram = CardRam(config.ram_size, width)
        m.submodules.host = host = self._host()
        m.submodules.placements = placements = PlacementSwitch(
            config.h2c + config.c2h,
            config.pairs,
            width=width,
            launch_queues=config.launch_queues > 0,
        )
        m.submodules.writes = writes = PieceWrites(config.c2h)
        h2c, c2h = self._channels(m, host)
        pairs = self._pairs(m, host, h2c, c2h)

        self._connect_seam(m, host, engine, arbiter, writer)
        self._connect_host(m, host, engine, arbiter, h2c, c2h)
        self._connect_reads(m, host, engine, placements, h2c, c2h)
        wiring.connect(m, placements.ram, ram.write)
        wiring.connect(m, writes.job, writer.job)
        wiring.connect(m, arbiter.sent, writes.sent)
        wiring.connect(m, writer.ram, ram.read)
        for index, channel in enumerate(c2h):
            wiring.connect(m, channel.piece, writes.pieces[index])
            wiring.connect(m, writes.reports[index], channel.report)
        for index, pair in enumerate(pairs):
            wiring.connect(m, placements.rings[index], pair.placement)
            wiring.connect(m, placements.marks[index], pair.mark)
            wiring.connect(m, writer.rings[index], pair.read)
            m.d.comb += pair.released.eq(writes.released[index])
        if config.launch_queues:
            self._connect_launch_queues(m, host, engine, placements, [*h2c, *c2h], pairs)
        return m

    @property
    def _first_data(self):
        """Number of the first client of the read engine that is a data path."""
        return self._config.h2c + self._config.c2h + (self._config.launch_queues > 0)

    def _channels(self, m, host):
        """The channels of both directions."""
        config = self._config
        source = config.user is not None and config.user.RATIO[0] == 0
        sides = []
        for c2h, count in ((False, config.h2c), (True, config.c2h)):
            side = [
                Channel(
                    index=index,
                    c2h=c2h,
                    ram_size=config.ram_size,
                    has_stream=index < config.pairs,
                    # Nothing of H2C comes out of a source.
                    doubtful=c2h or not source,
                    pushable=config.extension,
                    shared=self._shared,
                    packets=c2h and config.packets and index < config.pairs,
                )
                for index in range(count)
            ]
            way = "c2h" if c2h else "h2c"
            for index, channel in enumerate(side):
                m.submodules[f"{way}{index}"] = Resets(host.reset)(channel)
                waits_for = field(self.waits_for, regs.EXTENSION["waits_for"], f"{way}{index}")
                m.d.comb += waits_for.eq(channel.waits_for)
            sides.append(side)
        for channel, owner in zip([*sides[0], *sides[1]], self.owners, strict=False):
            wiring.connect(m, wiring.flipped(owner), channel.owner)
        return sides

    def _pairs(self, m, host, h2c, c2h):
        """The user streams."""
        config = self._config
        pairs = [
            StreamPair(
                config.user,
                number=index,
                width=self.block.width,
                recorded=config.frame_records,
                packets=config.packets,
            )
            for index in range(config.pairs)
        ]
        for index, pair in enumerate(pairs):
            m.submodules[f"pair{index}"] = Resets(host.reset)(pair)
            wiring.connect(m, h2c[index].stream, pair.h2c)
            wiring.connect(m, c2h[index].stream, pair.c2h)
            wiring.connect(m, host.pairs[index], pair.bus)
            m.d.comb += pair.flush.eq(host.flush[index])
            if pair.recorded:
                m.d.comb += [
                    pair.records.eq(host.frame_records[index]),
                    pair.cycles.eq(host.cycles),
                ]
        for pair, ports in zip(pairs, self.user, strict=False):
            wiring.connect(m, pair.ports, wiring.flipped(ports))
        m.d.comb += self.active.eq(Cat(pair.active for pair in pairs).any())
        return pairs

    def _connect_seam(self, m, host, engine, arbiter, writer):
        seam, link = self.seam, self.seam.link
        wiring.connect(m, wiring.flipped(seam.target), host.target)
        wiring.connect(m, host.completion, wiring.flipped(seam.completion))
        wiring.connect(m, wiring.flipped(seam.requester_completion), engine.completion)
        wiring.connect(m, engine.request, arbiter.reads)
        wiring.connect(m, writer.request, arbiter.writes[0])
        wiring.connect(m, host.request, arbiter.writes[1])
        wiring.connect(m, arbiter.request, wiring.flipped(seam.requester))
        wiring.connect(m, wiring.flipped(seam.sent), arbiter.seam_sent)
        wiring.connect(m, host.interrupt, wiring.flipped(seam.interrupt))
        m.d.comb += [
            seam.target_np_ok.eq(host.target_np_ok),
            seam.reads_pending.eq(engine.reads_pending),
            seam.timed_out.eq(engine.timed_out),
            seam.unexpected.eq(engine.unexpected),
            seam.function_reset_done.eq(host.function_reset_done),
            host.function_reset.eq(seam.function_reset),
            engine.bus_master.eq(link.bus_master),
            engine.relaxed.eq(host.relaxed),
            engine.boundary_128.eq(link.rcb),
            engine.in_flight.eq(host.in_flight),
            engine.tolerant.eq(host.tolerant),
            engine.flush.eq(host.reset),
            engine.timeout_cycles.eq(self.timeout_cycles),
            arbiter.link.eq(link),
            host.link.eq(link),
        ]
        if self._config.tags > FIVE_BIT_TAGS:
            m.d.comb += engine.extended.eq(link.extended_tag)
        if self._config.overcommit:
            # What a board has shown holds for it until the link goes down, whatever is reset.
            refuted = Signal()
            with m.If(seam.behind | engine.timed_out):
                m.d.sync += refuted.eq(1)
            m.d.comb += [engine.overcommit.eq(~refuted), host.overcommit_off.eq(refuted)]

    def _connect_host(self, m, host, engine, arbiter, h2c, c2h):
        wiring.connect(m, engine.error, host.read_error)
        for port, channel in zip(host.channels, [*h2c, *c2h], strict=True):
            wiring.connect(m, port, channel.host)
        m.d.comb += [
            host.sent.eq(arbiter.sent.valid & token_of(arbiter.sent.payload).record),
            host.dropped.eq(arbiter.sent.payload.dropped),
            host.quarantined.eq(engine.quarantined),
            host.moving.eq(Cat(channel.moving for channel in c2h).any()),
            host.time_scale.eq(self.time_scale),
            host.waits_for.eq(self.waits_for),
            host.user_irq.eq(self.user_irq),
            host.gpio.eq(self.gpio),
            self.led.eq(host.led),
        ]

    def _connect_reads(self, m, host, engine, placements, h2c, c2h):
        """Of descriptors for all channels, then of launch queues, then of data of H2C channels."""
        config, data = self._config, self._first_data
        fetch = DescriptorFetch(
            h2c=config.h2c,
            c2h=config.c2h,
            width=self.block.width,
            slots=config.slots,
            shared=self._shared,
        )
        m.submodules.fetch = Resets(host.reset)(fetch)
        m.d.comb += fetch.limit.eq(host.read_limit)
        wiring.connect(m, engine.placement, placements.placement)
        wiring.connect(m, engine.mark, placements.mark)
        wiring.connect(m, placements.fetch, fetch.placement)
        wiring.connect(m, placements.fetch_mark, fetch.mark)
        for client, channel in enumerate([*h2c, *c2h]):
            wiring.connect(m, channel.fetch, fetch.control[client])
            wiring.connect(m, channel.push, fetch.push[client])
            if self._shared:
                wiring.connect(m, channel.owned_push, fetch.owned_push[client])
            wiring.connect(m, fetch.jobs[client], engine.jobs[client])
            wiring.connect(m, engine.retired[client], fetch.retired[client])
            m.d.comb += channel.fetch_short.eq(engine.short[client])
        for index, channel in enumerate(h2c):
            m.submodules[f"reads{index}"] = reads = PieceReads()
            wiring.connect(m, channel.piece, reads.piece)
            wiring.connect(m, reads.report, channel.report)
            wiring.connect(m, reads.job, engine.jobs[data + index])
            wiring.connect(m, engine.retired[data + index], reads.retired)
            m.d.comb += channel.piece_short.eq(engine.short[data + index])

    def _connect_launch_queues(self, m, host, engine, placements, channels, pairs):
        config, client = self._config, self._first_data - 1
        m.submodules.launch = launch = Resets(host.reset)(
            LaunchQueues(
                queues=config.launch_queues,
                h2c=config.h2c,
                c2h=config.c2h,
                pairs=config.pairs,
                width=self.block.width,
                packets=config.packets,
            )
        )
        if config.packets:
            m.d.comb += launch.packets.eq(Cat(pair.packet for pair in pairs))
        wiring.connect(m, host.launch_bus, launch.bus)
        wiring.connect(m, launch.records, host.launch_records)
        wiring.connect(m, host.doorbell, launch.doorbell)
        wiring.connect(m, launch.job, engine.jobs[client])
        wiring.connect(m, engine.retired[client], launch.retired)
        wiring.connect(m, placements.launch, launch.placement)
        for channel, owner in zip(channels, launch.owners, strict=True):
            wiring.connect(m, owner, channel.owner)
        for index, pair in enumerate(pairs):
            m.d.comb += pair.flush.eq(host.flush[index] | launch.flush[index])
            # What software's H2C run sends is for its C2H run, which is still to begin, or rests.
            into, out = channels[index], channels[config.h2c + index]
            sent = Signal(name=f"sent{index}")
            sends = out.busy & (sent | into.host.begins)
            m.d.sync += [sent.eq(sends), launch.claimed[index].eq(sends & out.blocked)]

    def _host(self):
        config, capabilities = self._config, regs.Capability.MAILBOX | regs.Capability.WRITEBACK
        capabilities |= regs.Capability.PUSH | regs.Capability.CAPTURE
        if config.user:
            capabilities |= regs.Capability.STREAM
            if config.recorded:
                capabilities |= regs.Capability.FRAME_RECORDS
        if config.launch_queues:
            capabilities |= regs.Capability.LAUNCH
        if config.packets:
            capabilities |= regs.Capability.RECEIVE
        if config.overcommit:
            capabilities |= regs.Capability.OVERCOMMIT
        extension = ExtensionBlock(
            h2c=config.h2c,
            c2h=config.c2h,
            tags=config.tags,
            ram_size=config.ram_size,
            clock_khz=config.clock_khz,
            capabilities=capabilities,
            user=config.user,
            width=self.block.width,
            launch_queues=config.launch_queues,
            answers=config.extension,
        )
        return HostInterface(
            h2c=config.h2c,
            c2h=config.c2h,
            pairs=config.pairs,
            tags=config.tags,
            width=self.block.width,
            extension=extension,
            token=WriteToken.const({"record": 1}).as_value(),
            shared=self._shared,
            launch_queues=config.launch_queues > 0,
        )
