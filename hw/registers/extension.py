# SPDX-License-Identifier: BSD-2-Clause
"""The extension block and the config block: what the core is, and the state it is in."""

from dataclasses import replace
from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import Outcome
from ..seam import BUS_WIDTH, LinkState
from .bank import RegisterBank, field
from .bus import BusFanOut, BusSignature

__all__ = ["CaptureIndex", "CaptureSignature", "CapturedError", "ExtensionBlock"]

_FRAME_RECORDS = regs.EXTENSION["frame_records"]


class CaptureIndex(data.Struct):
    """Whose capture; as a number, which one in `peerdma.regs.CAPTURE`."""

    channel: 2
    c2h: 1


class CapturedError(data.Struct):
    """An error as software sees it; all 0 if there is none."""

    outcome: Outcome
    descriptor: 1
    place: CaptureIndex
    address: 64


class CaptureSignature(wiring.Signature):
    """The error captures, from the side of who reads them.

    Members
    -------
    of_channel : Out(1), index : Out(CaptureIndex)
        That of this channel is meant, or else the first one since the last `clear`.
    clear : Out(1)
        The next error counts as the first one. The channels' captures stay.
    error : In(CapturedError)
        The one that is meant, in the same cycle.
    failed : In(1)
        A run, of one channel or several, ends by an error.
    """

    def __init__(self):
        super().__init__(
            {
                "of_channel": Out(1),
                "index": Out(CaptureIndex),
                "clear": Out(1),
                "error": In(CapturedError),
                "failed": In(1),
            }
        )


class ExtensionBlock(wiring.Component):
    """Identity, link state, error capture, soft reset, cycle counter.

    Parameters
    ----------
    h2c, c2h, tags : int
        Numbers of this build, as software reads them.
    ram_size : int
        Bytes of card RAM.
    clock_khz : int
        Frequency of the `sync` domain.
    capabilities : regs.Capability
    user : type of UserBlock, or None
        The user block of this build.
    width : int
        Bits of a beat of the engine.
    launch_queues : int
        Number of this build.
    answers : bool
        The extension block answers; the config block, which is XDMA's, does so in any case.

    Members
    -------
    bus : In(BusSignature)
    link : In(LinkState)
    time_scale : In(32)
    capture : Out(CaptureSignature)
    quarantined : In(tags)
    waits_for : In(32)
        As at `hw.core.Core`.
    cycles : Out(64)
        Clock cycles since reset.
    soft_reset : Out(1)
        High for the cycle in which software asks for it.
    stream_flush : Out(4)
        High for a cycle for each pair that software wants flushed.
    frame_records : Out(4)
        Bit n: software wants a record behind each frame of pair n. Only with
        `Capability.FRAME_RECORDS`.
    payload_limit, read_limit : Out(3)
        Largest memory write and read, PCIe encoding: what the host allows, the user limits of the
        config block allow, and the engine can do (512 bytes).
    relaxed : Out(1)
        Set the relaxed ordering attribute on reads of data.
    in_flight : Out(4)
        Most bytes of data reads in flight, as `hw.read.completion_space.CompletionSpace` takes it.
    tolerant : Out(1)
        Byte Count and Lower Address of completions may be anything.
    overcommit_off : In(1)
        The core asks for no more than there is room for. Only with `Capability.OVERCOMMIT`.
    """

    def __init__(
        self,
        *,
        h2c,
        c2h,
        tags,
        ram_size,
        clock_khz,
        capabilities,
        user,
        width,
        launch_queues=0,
        answers=True,
    ):
        self._answers = answers
        self._channels = h2c | c2h << 4 | tags << 8 | launch_queues << 16
        self._tags = tags
        self._ram_size = ram_size
        self._clock_khz = clock_khz
        self._capabilities = capabilities
        self._user = user
        self._width = width
        self.records: bool = regs.Capability.FRAME_RECORDS in capabilities
        self.overcommits: bool = regs.Capability.OVERCOMMIT in capabilities
        super().__init__(
            {
                "bus": In(BusSignature()),
                "link": In(LinkState),
                "time_scale": In(32),
                "capture": Out(CaptureSignature()),
                "quarantined": In(tags),
                "waits_for": In(32),
                "cycles": Out(64),
                "soft_reset": Out(1),
                "stream_flush": Out(4),
                **({"frame_records": Out(4)} if self.records else {}),
                "payload_limit": Out(3),
                "read_limit": Out(3),
                "relaxed": Out(1),
                "in_flight": Out(4),
                "tolerant": Out(1),
                **({"overcommit_off": In(1)} if self.overcommits else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bar = regs.BAR_DMA[0]
        registers = regs.EXTENSION.registers
        kept = [each for each in registers if self.records or each != _FRAME_RECORDS]
        block = replace(regs.EXTENSION, registers=tuple(kept))
        m.submodules.extension = ext = RegisterBank(block, bar=bar, registered=False)
        m.submodules.config = config = RegisterBank(regs.CONFIG, bar=bar, registered=False)
        link = self.link
        m.submodules.fan_out = fan_out = BusFanOut(1 + self._answers)
        wiring.connect(m, wiring.flipped(self.bus), fan_out.bus)
        wiring.connect(m, fan_out.targets[0], config.bus)
        if self._answers:
            self._connect(m, fan_out.targets[1], ext.bus)
        capture = self.capture

        window, name, ratio = 0, 0, (0, 0)
        if self._user:
            window, ratio = regs.STREAM_WINDOW, self._user.RATIO
            name = regs.four_characters(self._user.NAME)
        register = regs.EXTENSION["user_ratio"]
        for value, part in zip(ratio, register.fields, strict=True):
            m.d.comb += field(ext.user_ratio, register, part.name).eq(value)
        quarantined = [self.quarantined[at : at + 32] for at in range(0, self._tags, 32)]
        m.d.comb += [
            ext.magic.eq(regs.EXTENSION_MAGIC),
            ext.version.eq(regs.EXTENSION["version"].reset),
            ext.capabilities.eq(self._found()),
            ext.channels.eq(self._channels),
            ext.card_ram_size.eq(self._ram_size),
            ext.stream_window_lo.eq(window & 0xFFFF_FFFF),
            ext.stream_window_hi.eq(window >> 32),
            ext.clock_khz.eq(self._clock_khz),
            ext.time_scale.eq(self.time_scale),
            ext.quarantined.eq(reduce(or_, quarantined)),
            ext.waits_for.eq(self.waits_for),
            ext.user_block.eq(name),
            self.soft_reset.eq(ext.soft_reset_strobe & ext.soft_reset_data[0]),
            self.stream_flush.eq(Mux(ext.stream_flush_strobe, ext.stream_flush_data, 0)),
        ]
        if self.records:
            m.d.comb += self.frame_records.eq(ext.frame_records)
        for name, value in (
            ("speed", link.speed),
            ("width", link.width),
            ("max_payload", link.max_payload),
            ("max_read_request", link.max_read_request),
            ("rcb", link.rcb),
            ("bus_master", link.bus_master),
        ):
            m.d.comb += field(ext.link, regs.EXTENSION["link"], name).eq(value)

        # A read of the low half latches the high half. A 64-bit read returns both of one cycle.
        high = Signal(32)
        m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(ext.cycles_lo_read):
            m.d.sync += high.eq(self.cycles[32:])
        m.d.comb += [
            ext.cycles_lo.eq(self.cycles[:32]),
            ext.cycles_hi.eq(Mux(ext.cycles_lo_read, self.cycles[32:], high)),
        ]

        error, errors = capture.error, Signal(16)
        with m.If(ext.error_clear_strobe):
            m.d.sync += errors.eq(0)
        with m.Elif(capture.failed & ~errors.all()):
            m.d.sync += errors.eq(errors + 1)
        for name, value in (
            ("kind", error.outcome),
            ("channel", error.place.channel),
            ("c2h", error.place.c2h),
            ("descriptor", error.descriptor),
            ("count", errors),
        ):
            m.d.comb += field(ext.error_info, regs.EXTENSION["error_info"], name).eq(value)
        m.d.comb += [
            capture.clear.eq(ext.error_clear_strobe),
            ext.error_address_lo.eq(error.address[:32]),
            ext.error_address_hi.eq(error.address[32:]),
        ]

        m.d.comb += [
            config.identifier.eq(regs.identifier(3)),
            config.busdev.eq(link.requester_id),
            config.max_payload.eq(link.max_payload),
            config.max_read_request.eq(link.max_read_request),
            config.system_id.eq(regs.CONFIG["system_id"].reset),
            config.msi_enable.eq(Cat(link.msi_enable, link.msix_enable)),
            config.data_width.eq(exact_log2(self._width // BUS_WIDTH)),
            self.relaxed.eq(config.pcie_control[0] & link.relaxed_ordering),
            self.in_flight.eq(field(ext.reads, regs.EXTENSION["reads"], "in_flight")),
            self.tolerant.eq(field(ext.reads, regs.EXTENSION["reads"], "tolerant")),
        ]
        for user, allowed, limit in (
            ("user_max_payload", link.max_payload, self.payload_limit),
            ("user_max_read_request", link.max_read_request, self.read_limit),
        ):
            value = getattr(config, user)[:3]
            m.d.comb += getattr(config, f"{user}_live").eq(value << 4)
            smaller = Signal(3, name=f"{user}_smaller")
            m.d.comb += smaller.eq(Mux(value < allowed, value, allowed))
            m.d.sync += limit.eq(Mux(smaller > 2, 2, smaller))
        return m

    def _found(self) -> Value:
        """Register `capabilities`."""
        built = Const(int(self._capabilities), 32)
        if not self.overcommits:
            return built
        off = exact_log2(regs.Capability.OVERCOMMIT_OFF)
        return built | (self.overcommit_off << off)

    def _connect(self, m, source, bank):
        """Connect the extension block's bank, whose error capture answers for all of them.

        A channel's capture is read in place of the bank's, whose registers are laid out alike.
        """
        own, window = regs.EXTENSION, regs.CAPTURE
        names = [register.name for register in window.registers]
        words = {window[name].offset >> 3 for name in names}
        (apart,) = {own[name].offset - window[name].offset for name in names}
        assert not apart % window.stride and window.base == own.base + own.size
        low, high = exact_log2(window.stride >> 3), exact_log2(own.size >> 3)
        address = source.read.address
        wiring.connect(m, source, bank)
        m.d.comb += [
            self.capture.index.eq(address[low:high]),
            self.capture.of_channel.eq(address[high] & address[:low].matches(*words)),
        ]
        with m.If(self.capture.of_channel):
            m.d.comb += bank.read.address.eq(
                Cat(address[:low], C(apart // window.stride, high - low + 1), address[high + 1 :])
            )
