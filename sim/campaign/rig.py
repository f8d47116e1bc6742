# SPDX-License-Identifier: BSD-2-Clause
"""The machine of a seed at work: memory, register access that can be shut, and interrupts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TextIO

import cocotb
from cocotb.triggers import Event, SimTimeoutError, Timer, with_timeout
from cocotb.utils import get_sim_steps, get_sim_time
from cocotbext.pcie.core.caps import PciCapId
from cocotbext.pcie.core.port import FcStateData, FcStateHeader
from cocotbext.pcie.core.tlp import Tlp

from peerdma import regs
from peerdma.regs import Status
from peerdma.testing import pattern
from peerdma.trace.capture import Writer
from sim.benches.channel import Channel
from sim.benches.memory import GUARD, Buffer, Transfer
from sim.benches.series7 import PORT_LAG
from sim.benches.tb import TB

from .coverage import Coverage
from .plan import Machine, Piece
from .scoreboard import CardRam, FramePair, Pair, Scope
from .table import GROUPS

__all__ = ["ALL_EVENTS", "ENDED", "Rig"]

#: Every status bit that a channel can interrupt for.
ALL_EVENTS = regs.CHANNEL["interrupt_enable"].writable
#: Where a run's end shows in status.
ENDED = Status.DESCRIPTOR_STOPPED | Status.IDLE_STOPPED | Status.errors()
#: Bytes of host memory below and above 4 GiB: all buffers of a seed.
_ARENA = 64 << 20
_PAGE = 4096
_USERS = 16
#: Bits of MSI-X and MSI Message Control.
_MSIX_ENABLE, _MSIX_MASK, _MSI_ENABLE = 1 << 15, 1 << 14, 1
#: Bit of Device Control.
_EXTENDED_TAGS = 1 << 8
#: A handler is not called again at once.
_HANDLER_NS = 200
#: By when all reads are answered that the board has sent.
_ARRIVES_US = 100


class Rig(TB):
    """A `TB` for many things at once.

    Attributes
    ----------
    scope, ram, pairs
        Models of what the card may touch and must hold.
    seen : Coverage
    calm : bool
        Nothing is planted that could make an interrupt without a cause.
    interrupts : Counter
        Handled ones of each source since the episode began.
    events : dict of Channel to Status
        What handlers read out of each channel's status since its run began.
    running, polled : list of Channel
        Those whose Run is set, and those whose status no handler may clear.
    alarms : dict of Channel to callable
        What to call when the message of a channel arrives.
    """

    def __init__(self, dut, log: TextIO, capture: Writer, machine: Machine):
        super().__init__(dut, log, capture, lanes=machine.lanes, gpu=True)
        self.machine = machine
        self._limit_credits(machine)
        if machine.ours:
            buffers = self.device.buffers
            buffers.count, buffers.ack_ns = machine.buffers, machine.ack_ns
            buffers.lag = machine.buffer_lag
        #: the core may have more under way than there is room for
        self.overcommits = machine.core.overcommit
        if self.overcommits:
            self.device.received.lag = PORT_LAG
        self.scope, self.ram = Scope(), CardRam()
        pair = FramePair if machine.core.user == "pattern" else Pair
        self.pairs = [pair() for _ in range(machine.core.channels)]
        self.device.on_tlp.append(self.scope.listen)
        self.seen = Coverage(GROUPS)
        self.calm = True
        self.interrupts: Counter[object] = Counter()
        self.events = dict.fromkeys(self.channels, Status(0))
        self.running: list[Channel] = []
        self.polled: list[Channel] = []
        self.alarms: dict[Channel, Callable[[], None]] = {}
        self.kind = ""
        #: for each source of an interrupt, the channels first: its vector
        self.vectors: list[int] = []
        self._event = Event()
        self._open = Event()
        self._open.set()
        self._reading = 0
        self._arena = {}
        for high, base in self._free.items():
            self._arena[high] = (base, bytearray(_ARENA))
            self.host.map_memory(*self._arena[high])
        self._sources = [*self.channels, *range(_USERS)]
        self._messages = self.host.msi_alloc_vectors(regs.MSIX_ENTRIES + 1)
        for number, vector in enumerate(self._messages):
            vector.cb.append(self._handler(number))
        self.scope.allow("messages", self._messages[0].addr, 4, write=True)
        self.completers = [self.host, self.gpu.function]
        #: unexpected completions and completion timeouts that must be reported in this episode
        self.unexpected = self.timeouts = 0
        #: tags of reads that are lost for good, and since when, in nanoseconds
        self.lost: dict[int, int] = {}
        #: the error capture is in use
        self.capturing = False
        #: called when all reads of before have ended, or are lost
        self.on_reset: list[Callable[[], None]] = []
        self._plant_one = self.host.plant
        for completer in self.completers:
            completer.plant = self._plant
        cocotb.start_soon(self._intx_handler())

    async def _plant(self, tlp: Tlp) -> None:
        await self._plant_one(tlp)
        self.unexpected += 1

    def _limit_credits(self, machine: Machine) -> None:
        far = self.device.upstream_port.other.fc_state[0]
        far.ph, far.pd = FcStateHeader(machine.posted[0]), FcStateData(machine.posted[1])
        far.nph = FcStateHeader(machine.nonposted)
        far.cplh, far.cpld = (
            FcStateHeader(machine.completion[0]),
            FcStateData(machine.completion[1]),
        )

    async def start(self) -> None:
        """As `TB.start`; the GPU may make requests, too."""
        await super().start()
        # The link is up: how late its far end gives credits back is known, and can be changed.
        late = get_sim_steps(self.machine.credit_ns, "ns")
        self.device.upstream_port.other.max_latency_timer_steps += late
        await self._gpu_pci.set_master()

    def let_go(self) -> None:
        """Nothing holds the PCIe block up."""
        self.device.hold_transmit = self.device.hold_receive = False
        self.device.link_ready.set()

    async def hot_reset(self, *, down_us: float = 0) -> None:
        """As `TB.hot_reset`. Access is shut, and nothing holds the PCIe block up."""
        await super().hot_reset(down_us=down_us)
        if self.machine.core.overcommit:
            self.device.received.lag = PORT_LAG
        self.lost.clear()
        for forget in self.on_reset:
            forget()

    async def function_reset(self, cycles: int, *, late: bool) -> None:
        """The same of the function; what was asked for before comes, and goes nowhere."""
        await super().function_reset(cycles, late=late)
        for _ in range(_ARRIVES_US):
            if not self.device.checker.outstanding_tags:
                break
            await Timer(1, "us")
        else:
            raise AssertionError(f"a read is not answered {_ARRIVES_US} us after a reset")
        # Tags of reads that were lost before stay in quarantine.
        for forget in self.on_reset:
            forget()

    async def start_sources(self) -> None:
        """Switch the source of each pair on, all of whose channels rest; it begins with frame 0."""
        for number, pair in enumerate(self.pairs):
            if isinstance(pair, FramePair):
                seed = self.rng.getrandbits(31)
                words = self.rng.choice((1, 8, 16, self.rng.randint(2, 700)))
                await self.start_source(number, seed, words, self.rng.random() < 0.7)

    async def start_source(
        self,
        number: int,
        seed: int,
        words: int,
        records: bool,
        *,
        interval: int = 0,
        rests: bool = False,
    ) -> None:
        """Switch the source of a pair on that rests, with such frames; it may rest at first."""
        pair = self.pairs[number]
        assert isinstance(pair, FramePair), "only these pairs have sources"
        pair.seed, pair.nbytes, pair.records = seed, pattern.WORD_BYTES * words, records
        pair.drops = interval > 0
        words *= not rests
        for name, value in (("seed", seed), ("interval", interval), ("frame_words", words)):
            await self.write(regs.PATTERN_SOURCE, name, value, channel=number)
        bits = await self.read(regs.EXTENSION, "frame_records") & ~(1 << number)
        await self.write(regs.EXTENSION, "frame_records", bits | records << number)
        await self.write(regs.EXTENSION, "stream_flush", 1 << number)
        pair.empty()

    # Memory ---------------------------------------------------------------------------------

    def buffer(self, size: int, *, offset: int = 0, high: bool = False, name: str = "") -> Buffer:
        """As `TB.buffer`, out of memory that is mapped as a whole."""
        base, memory = self._arena[high]
        start = self._free[high] - base + _PAGE + offset
        self._free[high] += -(-(_PAGE + offset + size + GUARD) // _PAGE) * _PAGE
        assert start + size + GUARD <= _ARENA, "the plan moves more than fits into host memory"
        return self._guarded(Buffer(name or "host", memory, start, size, base + start, self.rng))

    def memory(self, kind: str, size: int, offset: int) -> Buffer:
        """A buffer in "low", "high" or "gpu" memory."""
        if kind == "gpu":
            return self.gpu_buffer(size, offset=offset)
        return self.buffer(size, offset=offset, high=kind == "high")

    def transfer(self, piece: Piece, buffer: Buffer, c2h: bool) -> Transfer:
        """A piece between this buffer and the card, as a descriptor has it."""
        card = piece.card
        if card is None:
            card = regs.STREAM_WINDOW | self.rng.getrandbits(63)
        ends = (card, buffer.address) if c2h else (buffer.address, card)
        return Transfer(*ends, piece.size, regs.DESC_COMPLETED * piece.completed)

    def check_guards(self) -> None:
        """Fail for a changed guard byte; those of all buffers so far are looked at no more."""
        for buffer in self._buffers:
            buffer.expect_guards()
        self._buffers.clear()

    # Registers ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def access(self) -> AsyncIterator[None]:
        """Around whatever waits for a completion of the board."""
        await self._open.wait()
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    async def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """As `TB.bar_read`, when access is open."""
        async with self.access():
            return await super().bar_read(bar, offset, length)

    async def shut(self) -> None:
        """Let nobody read any more; comes back when nobody waits for a completion."""
        self._open.clear()
        while self._reading:
            await Timer(100, "ns")

    def reopen(self) -> None:
        """Let everybody read again."""
        self._open.set()

    @property
    def during(self) -> str:
        """Which ways channels run, as bins of coverage say it."""
        ways = sorted({"c2h" if channel.c2h else "h2c" for channel in self.running})
        return {0: "idle", 1: "".join(ways), 2: "both"}[len(ways)]

    async def extended_tags(self, enabled: bool) -> None:
        """Set Extended Tag Field Enable."""
        control = await self.pci.capability_read_word(PciCapId.EXP, 8)
        control = control & ~_EXTENDED_TAGS | _EXTENDED_TAGS * enabled
        await self.pci.capability_write_word(PciCapId.EXP, 8, control)

    # Interrupts -----------------------------------------------------------------------------

    async def use_interrupts(self, kind: str) -> None:
        """Set the kind of interrupts up: "intx", "msi" or "msix". All channels are idle."""
        pci = self.pci
        await pci.capability_write_word(PciCapId.MSI, 2, 0)
        await pci.capability_write_word(PciCapId.MSIX, 2, 0)
        self.kind = kind
        message = self._messages[regs.MSIX_ENTRIES]
        if kind == "msi":
            for offset, value in ((4, message.addr & 0xFFFF_FFFF), (8, message.addr >> 32)):
                await pci.capability_write_dword(PciCapId.MSI, offset, value)
            await pci.capability_write_word(PciCapId.MSI, 12, message.data)
            await pci.capability_write_word(PciCapId.MSI, 2, _MSI_ENABLE)
        if kind == "msix":
            await self._fill_table()
            await pci.capability_write_word(PciCapId.MSIX, 2, _MSIX_ENABLE)
        await self.write(regs.IRQ, "channel_enable", (1 << len(self.channels)) - 1)
        await self.write(regs.IRQ, "user_enable", (1 << _USERS) - 1)

    async def _fill_table(self) -> None:
        self.vectors = self.rng.sample(range(regs.MSIX_ENTRIES), len(self._sources))
        for name, mine in (
            ("channel_vector", self.vectors[: len(self.channels)]),
            ("user_vector", self.vectors[len(self.channels) :]),
        ):
            for index in range(0, len(mine), 4):
                packed = sum(vector << 8 * n for n, vector in enumerate(mine[index : index + 4]))
                await self.write(regs.IRQ, f"{name}{index // 4}", packed)
        for vector in self.vectors:
            await self.write_entry(vector, masked=False)

    async def write_entry(self, vector: int, *, masked: bool) -> None:
        """Write an entry of the MSI-X table, as one request."""
        message = self._messages[vector]
        words = (message.addr & 0xFFFF_FFFF, message.addr >> 32, message.data, int(masked))
        data = b"".join(word.to_bytes(4, "little") for word in words)
        await self.bar_write(regs.BAR_DMA[0], regs.MSIX_TABLE_OFFSET + 16 * vector, data)

    async def mask_function(self, masked: bool) -> None:
        """Set Function Mask of MSI-X."""
        async with self.access():
            value = _MSIX_ENABLE | _MSIX_MASK * masked
            await self.pci.capability_write_word(PciCapId.MSIX, 2, value)

    def _handler(self, number: int) -> Callable[[], Awaitable[None]]:
        async def handle() -> None:
            if number == regs.MSIX_ENTRIES:
                assert self.kind == "msi" or not self.calm, f"MSI, but {self.kind} is on"
                await self._handle(self.channels, sure=False)
                await self._handle_users()
                return
            assert self.kind == "msix" or not self.calm, f"MSI-X message, but {self.kind} is on"
            assert number in self.vectors, f"message of vector {number}, which no source has"
            source = self._sources[self.vectors.index(number)]
            if isinstance(source, Channel):
                if source in self.alarms:
                    self.alarms[source]()
                await self._handle([source], sure=True)
            else:
                self.interrupts[source] += 1
                self._event.set()

        return handle

    async def _intx_handler(self) -> None:
        line = self.host.intx
        while True:
            if not line.level:
                line.changed.clear()
                await line.changed.wait()
                continue
            assert self.kind == "intx" or not self.calm, f"INTA, but {self.kind} is on"
            await self._handle(self.channels, sure=False)
            await self._handle_users()
            await Timer(_HANDLER_NS, "ns")

    async def _handle(self, channels: list[Channel], *, sure: bool) -> None:
        for channel in channels:
            if channel in self.polled:
                continue
            status = Status(await channel.read("status_rc")) & ~Status.BUSY
            if status:
                self.interrupts[channel] += 1
                self.events[channel] |= status
            elif sure and self.calm:
                raise AssertionError(f"{channel!r} interrupted for nothing")
        self._event.set()

    async def _handle_users(self) -> None:
        request = await self.read(regs.IRQ, "user_request")
        for user in range(_USERS):
            self.interrupts[user] += request >> user & 1
        self._event.set()

    async def until(self, done: Callable[[], bool], us: float, what: str) -> None:
        """Wait until an interrupt handler has made `done` true."""

        async def wait() -> None:
            while not done():
                self._event.clear()
                await self._event.wait()

        try:
            await with_timeout(wait(), us, "us")
        except SimTimeoutError:
            raise AssertionError(f"waited {us} us in vain for {what}") from None

    @staticmethod
    def now_ns() -> int:
        """Simulated time."""
        return int(get_sim_time("ns"))
