# SPDX-License-Identifier: BSD-2-Clause
"""All that the host accesses: the register bus with its blocks, interrupts, and record writes.

    target ──▶ Completer ──▶ RecordWriter ──▶ BusStage ──▶ RegisterFile
                  │ completion    │ request                     │
                  ▼               ▼                         BusFanOut ─┬─▶ registers of channels
                                                                       ├─▶ user blocks of pairs
                                                                       ├─▶ IRQ block, MSI-X table
                                                                       ├─▶ launch queues
                                                                       └─▶ user, common, extension

Register accesses pass through the record writer, which looks up what it has to write in cycles in
which the host reads nothing.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .channel.capture import ErrorCapture
from .channel.signatures import ChannelHostSignature
from .interrupts.irq import USER_INTERRUPTS, InterruptBlock
from .parts.reset import Resets
from .records import ReadError
from .registers.bank import RegisterBank
from .registers.bus import BusFanOut, BusSignature, BusStage, RegisterWrite
from .registers.completer import Completer
from .registers.extension import ExtensionBlock
from .registers.file import RegisterFile
from .registers.soft_reset import SoftReset
from .registers.user import UserRegisters
from .seam import InterruptRequest, LinkState
from .write.record_writer import DirectRecordSignature, RecordWriter

__all__ = ["HostInterface"]


class HostInterface(wiring.Component):
    """Serves the host's accesses, and interrupts it.

    Parameters
    ----------
    h2c, c2h, pairs : int
        Channels in each direction, and pairs of user streams.
    tags : int
        Tags of the read engine.
    width : int
        Bits of a beat at the seam.
    extension : ExtensionBlock
    token : int
        Token of the memory writes.
    shared : bool
        Another owner has runs on the channels, too.
    launch_queues : bool
        There are launch queues.

    Members
    -------
    target : In(stream of beats of TargetHeader), target_np_ok : Out(1)
    completion : Out(stream of beats of CompletionHeader)
    interrupt : Out(stream of InterruptRequest)
    link : In(LinkState)
        As at the seam.
    request : Out(stream of beats of RequestHeader)
        Interrupt messages and writebacks.
    sent : In(1), dropped : In(1)
        The token of such a write came back, and whether the write was dropped.
    channels : array of Out(ChannelHostSignature)
        H2C channels, then C2H channels.
    pairs : array of Out(BusSignature), flush : Out(pairs)
        Registers of the user blocks, and the pairs that software wants flushed.
    frame_records : Out(pairs), cycles : Out(64)
        The pairs of whose frames software wants records; clock cycles since reset. Only if the
        extension block has `frame_records`.
    launch_bus : Out(BusSignature), launch_records : In(DirectRecordSignature)
        Registers of the launch queues, and what they write.
    doorbell : Out(RegisterWrite)
        All writes of the host, a cycle earlier than on any other bus here. These three only if
        there are launch queues.
    read_error : In(stream of ReadError, always ready), quarantined : In(tags), relaxed : Out(1),
    in_flight : Out(4), tolerant : Out(1)
        As at the read engine.
    read_limit : Out(3)
        Largest read of descriptors, PCIe encoding.
    overcommit_off : In(1)
        As at the extension block. Only with `Capability.OVERCOMMIT`.
    moving : In(1)
        Writes of data are under way.
    function_reset : In(1), function_reset_done : Out(1)
        As at the seam.
    reset : Out(1)
        High for one cycle: reset channels and pairs.
    led, gpio, user_irq, time_scale, waits_for
        As at `hw.core.Core`.
    """

    def __init__(
        self,
        *,
        h2c: int,
        c2h: int,
        pairs: int,
        tags: int,
        width: int,
        extension: ExtensionBlock,
        token: int,
        shared: bool = False,
        launch_queues: bool = False,
    ):
        self._h2c, self._c2h = h2c, c2h
        self._completer = Completer(width=width)
        self._records = RecordWriter(1 + h2c + c2h, token, width=width, direct=launch_queues)
        self._launch_queues = launch_queues
        self._extension = extension
        self._shared = shared
        always = {"always_ready": True}
        super().__init__(
            {
                "target": self._completer.signature.members["target"],
                "target_np_ok": Out(1),
                "completion": self._completer.signature.members["completion"],
                "interrupt": Out(stream.Signature(InterruptRequest)),
                "link": In(LinkState),
                "request": self._records.signature.members["request"],
                "sent": In(1),
                "dropped": In(1),
                "channels": Out(ChannelHostSignature(shared)).array(h2c + c2h),
                "pairs": Out(BusSignature()).array(pairs),
                "flush": Out(pairs),
                **({"frame_records": Out(pairs), "cycles": Out(64)} if extension.records else {}),
                **(
                    {
                        "launch_bus": Out(BusSignature()),
                        "launch_records": In(DirectRecordSignature()),
                        "doorbell": Out(RegisterWrite()),
                    }
                    if launch_queues
                    else {}
                ),
                "read_error": In(stream.Signature(ReadError, **always)),
                "quarantined": In(tags),
                "relaxed": Out(1),
                "in_flight": Out(4),
                "tolerant": Out(1),
                "read_limit": Out(3),
                **({"overcommit_off": In(1)} if extension.overcommits else {}),
                "moving": In(1),
                "function_reset": In(1),
                "function_reset_done": Out(1),
                "reset": Out(1),
                "led": Out(3),
                "gpio": In(4),
                "user_irq": In(USER_INTERRUPTS),
                "time_scale": In(32),
                "waits_for": In(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        channels, extension = self.channels, self._extension
        m.submodules.completer = completer = self._completer
        m.submodules.records = records = self._records
        m.submodules.soft_reset = soft_reset = SoftReset()
        resets = Resets(soft_reset.registers)
        irq = InterruptBlock(len(channels))
        user = UserRegisters()
        common = RegisterBank(regs.SGDMA_COMMON, bar=regs.BAR_DMA[0])
        capture = ErrorCapture(
            h2c=self._h2c,
            c2h=self._c2h,
            first=len(channels) + self._launch_queues,
            shared=self._shared,
        )
        m.submodules.irq, m.submodules.user = resets(irq), resets(user)
        m.submodules.common, m.submodules.extension = resets(common), resets(extension)
        m.submodules.capture = resets(capture)

        # The register bus
        banks = [common.bus, irq.bus, user.bus, extension.bus]
        banks += [wiring.flipped(channel.bus) for channel in channels]
        banks += [wiring.flipped(pair) for pair in self.pairs]
        if self._launch_queues:
            banks.append(wiring.flipped(self.launch_bus))
        m.submodules.stage = stage = BusStage()
        m.submodules.file = file = RegisterFile()
        m.submodules.fan_out = fan_out = BusFanOut(len(banks), registered=False)
        wiring.connect(m, wiring.flipped(self.target), completer.target)
        wiring.connect(m, completer.completion, wiring.flipped(self.completion))
        wiring.connect(m, completer.bus, records.host)
        wiring.connect(m, records.bus, stage.bus)
        wiring.connect(m, stage.target, file.bus)
        wiring.connect(m, file.target, fan_out.bus)
        for target, bank in zip(fan_out.targets, banks, strict=True):
            wiring.connect(m, target, bank)

        # Messages and writebacks
        wiring.connect(m, irq.interrupt, wiring.flipped(self.interrupt))
        wiring.connect(m, records.request, wiring.flipped(self.request))
        wiring.connect(m, irq.records, records.sources[0])
        for channel, source in zip(channels, records.sources[1:], strict=True):
            wiring.connect(m, wiring.flipped(channel.records), source)
        if self._launch_queues:
            wiring.connect(m, wiring.flipped(self.launch_records), records.direct)
            write = records.bus.write
            m.d.comb += [
                # One that is taken in the cycle of the reset would be written after it.
                records.direct.record.valid.eq(self.launch_records.record.valid & ~soft_reset.stop),
                self.doorbell.valid.eq(write.valid),
                self.doorbell.bar.eq(write.bar),
                self.doorbell.address.eq(write.address),
                self.doorbell.data.eq(write.data),
                self.doorbell.enable.eq(write.enable),
            ]

        # Errors
        wiring.connect(m, wiring.flipped(self.read_error), capture.read)
        for channel, port in zip(channels, capture.channels, strict=True):
            wiring.connect(m, wiring.flipped(channel.error), port)
        wiring.connect(m, extension.capture, capture.reader)
        m.d.comb += capture.begins.eq(
            Cat(channel.begins | soft_reset.reset for channel in channels)
        )
        if self._shared:
            m.d.comb += capture.owned.eq(Cat(channel.owned for channel in channels))

        for number, channel in enumerate(channels):
            c2h = number >= self._h2c
            bit = 16 + number - self._h2c if c2h else number
            settings = channel.settings
            m.d.comb += [
                settings.halt.eq(common.halt[bit]),
                settings.credit_mode.eq(common.credit_enable[bit]),
                settings.stop.eq(soft_reset.stop),
                settings.piece_limit.eq(extension.payload_limit if c2h else extension.read_limit),
            ]
        m.d.comb += [
            self.target_np_ok.eq(completer.target_np_ok),
            records.sent.eq(self.sent),
            records.dropped.eq(self.dropped),
            irq.link.eq(self.link),
            irq.user.eq(self.user_irq | user.user_irq),
            irq.channel.eq(Cat(channel.interrupt for channel in channels)),
            common.identifier.eq(regs.identifier(6)),
            extension.link.eq(self.link),
            extension.time_scale.eq(self.time_scale),
            extension.quarantined.eq(self.quarantined),
            extension.waits_for.eq(self.waits_for),
            self.relaxed.eq(extension.relaxed),
            self.read_limit.eq(extension.read_limit),
            self.in_flight.eq(extension.in_flight),
            self.tolerant.eq(extension.tolerant),
            self.flush.eq(extension.stream_flush),
            user.cycles.eq(extension.cycles),
            user.gpio.eq(self.gpio),
            self.led.eq(user.led),
            soft_reset.request.eq(extension.soft_reset),
            soft_reset.function.eq(self.function_reset),
            self.function_reset_done.eq(soft_reset.done),
            soft_reset.writing.eq(self.moving | records.busy),
            self.reset.eq(soft_reset.reset),
        ]
        if extension.overcommits:
            m.d.comb += extension.overcommit_off.eq(self.overcommit_off)
        if extension.records:
            m.d.comb += [
                self.frame_records.eq(extension.frame_records),
                self.cycles.eq(extension.cycles),
            ]
        return m
