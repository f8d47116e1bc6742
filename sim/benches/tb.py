# SPDX-License-Identifier: BSD-2-Clause
"""The test bench: the core, its hard block, a host and perhaps a GPU, powered up and enumerated.

A bench is an ``async def`` with the decorator `bench`; it gets a `TB` and plays the driver. All
random choices follow from the environment variable SEED. CHANNELS says how many channels the core
has each way.
"""

from __future__ import annotations

import functools
import logging
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TextIO

import cocotb
from cocotb.triggers import ClockCycles, Event, SimTimeoutError, Timer, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.caps import PciCapId
from cocotbext.pcie.core.tlp import Tlp

from hw.endpoint import DEFAULT_ADAPTER
from peerdma import regs
from peerdma.trace.capture import Event as Note
from peerdma.trace.capture import Packet, Writer

from .channel import Channel
from .device import device_for
from .host import Gpu, Host
from .memory import GUARD, Buffer, Chain, Transfer, lay_out
from .tlp_log import describe

__all__ = ["BENCHES", "CAPTURE", "LONG", "SERIES7_ONLY", "TB", "TIMEOUT_US", "TLP_LOG", "bench"]

#: First docstring lines of all benches of the modules imported so far, by ``module.function``.
BENCHES: dict[str, str] = {}
#: Those among them that are about the ports of the 7-series block, or what only its model does.
SERIES7_ONLY: set[str] = set()
#: Those that take some seconds, for what hardly depends on the block.
LONG: set[str] = set()

#: File in the working directory with a line per TLP at the core's ports.
TLP_LOG = "tlps.txt"
#: ... and one for `peerdma trace`.
CAPTURE = "tlps.pcapng"
#: The core's completion timeout, in microseconds: one that a bench can wait for.
TIMEOUT_US = regs.COMPLETION_TIMEOUTS_US[0]
#: Bound of one register access, in simulated microseconds.
MMIO_US = 200
_PAGE = 4096
#: Offsets in the configuration space: base address registers, Command.
_BARS, _COMMAND = (0x10, 0x14), 0x04


def bench(us: float, *, series7: bool = False, long: bool = False, **options) -> Callable:
    """Make ``async def test(tb)`` a cocotb test that must end within `us` simulated microseconds.

    Where its file is for other blocks, too: with `series7` it is for the 7-series block only, and
    with `long` it runs behind others only when all are to be run behind all. `options` are those of
    `TB`, whose log is the file `TLP_LOG` in the working directory. After the test, `TB.finish`
    looks for damage.
    """

    def decorate(test: Callable[[TB], Awaitable[None]]):
        module = test.__module__.rpartition(".")[2]
        name = f"{module}.{test.__name__}"
        BENCHES[name] = (test.__doc__ or "").partition("\n")[0]
        if series7:
            SERIES7_ONLY.add(name)
        if long:
            LONG.add(name)

        @cocotb.test(timeout_time=us, timeout_unit="us")
        @functools.wraps(test)
        async def run(dut):
            with open(TLP_LOG, "w") as log, open(CAPTURE, "wb") as capture:
                tb = TB(dut, log, Writer(capture), **options)
                await tb.start()
                await test(tb)
                await tb.finish()

        return run

    return decorate


class TB:
    """The machine under test and a driver's view of it.

    Parameters
    ----------
    dut
        Module `peerdma_core`.
    log : text file
        Gets a line per TLP at the core's ports.
    capture : Writer
        Gets the same TLPs, and what memory there is.
    lanes : int
        Width of the 7-series block's Gen2 link. One lane carries half of what the core's ports do,
        four carry twice. The other blocks have Gen3 links that carry as much.
    gpu : bool
        Put the board and a GPU behind one switch.
    stall : float
        Probability of a pause in each cycle of each direction of the transaction ports.

    Attributes
    ----------
    rng : random.Random
    pcie : str
        Name of the PCIe block, as `sim.benches.device.device_for` takes it.
    device, host, gpu
        The models.
    channels_each_way : int
    channels : list of Channel
        All of them, H2C first.
    h2c, c2h : Channel
        The last ones of their direction.
    messages : list of int
        Numbers of the MSI or MSI-X messages that arrived.
    """

    def __init__(
        self,
        dut,
        log: TextIO,
        capture: Writer,
        *,
        lanes: int = 1,
        gpu: bool = False,
        stall: float = 0.0,
    ):
        logging.getLogger("cocotb.pcie").setLevel(logging.ERROR)
        seed = os.environ["SEED"]
        cocotb.log.info("SEED=%s", seed)
        self.dut = dut
        self.rng = random.Random(seed)
        dut.rst.value = 1
        self.pcie = os.environ.get("PCIE", DEFAULT_ADAPTER.name)
        dut.gpio.value = 0
        dut.user_irq.value = 0
        dut.time_scale.value = 1
        rng = random.Random(f"device {seed}")
        self.device = device_for(dut, self.pcie, rng, lanes=lanes, stall=stall)
        dut.timeout_cycles.value = TIMEOUT_US * 1000 // self.device.clock_ns
        self._log, self._capture = log, capture
        capture.event(Note(0, "clock", {"khz": f"{1_000_000 / self.device.clock_ns:g}"}))
        self.device.on_tlp.append(self._log_tlp)
        self.gpu = Gpu(random.Random(f"gpu {seed}")) if gpu else None
        self.host = Host(random.Random(f"host {seed}"), self.device, self.gpu)
        self.channels_each_way = count = int(os.environ["CHANNELS"])
        self.channels = [
            Channel(self, c2h=c2h, number=number)
            for c2h in (False, True)
            for number in range(count)
        ]
        self.h2c, self.c2h = self.channels[count - 1], self.channels[-1]
        self._limits: dict[str, int] = {}
        self.messages: list[int] = []
        self._noted = 0
        self._message = Event()
        self._buffers: list[Buffer] = []
        # Bump allocators of bus addresses; the gaps between buffers stay unmapped.
        self._free = {False: 0x1000_0000, True: 0x12_0000_0000}
        self._gpu_free = 1 << 20

    def _log_tlp(self, direction: str, tlp: Tlp) -> None:
        cycle = int(get_sim_time("ns")) // self.device.clock_ns
        self._log.write(f"{cycle} {direction} {describe(tlp)}\n")
        notes = ()
        if direction == "down" and not tlp.is_completion():
            hit = (n for n in range(len(_BARS)) if self._hits(n, tlp.address))
            notes = tuple(f"BAR{n}" for n in hit)
        packet = Packet(int(get_sim_time("ns")), direction == "up", bytes(tlp.pack()), notes)
        self._capture.packet(packet)

    def _hits(self, bar: int, address: int) -> bool:
        size = dict((regs.BAR_USER, regs.BAR_DMA))[bar]
        return self.bar_address(bar) <= address < self.bar_address(bar) + size

    async def start(self) -> None:
        """Release reset, wait for the link, enumerate, and enable memory and bus mastering."""
        await ClockCycles(self.dut.clk, 8)
        await self.device.leave_reset()
        await self.host.enumerate()
        self.pci = self.host.find_device(self.device.function.pcie_id)
        await self.pci.enable_device()
        await self.pci.set_master()
        await self.configure()

    async def hot_reset(self, *, down_us: float = 0) -> None:
        """Reset the board over the link; it then has the BARs and the Command that it had.

        The link stays down for `down_us` longer than it takes what is under way to get lost.
        """

        async def lost() -> None:
            await self.host.lose_link()
            if down_us:
                await Timer(down_us, "us")

        await self._restored(self.device.hot_reset(lost()))

    async def function_reset(self, cycles: int, *, late: bool) -> None:
        """The same by the function, in so many cycles at most; only behind an UltraScale block.

        The limits of requests and payloads are those of before.
        """
        await self._restored(self.device.function_reset(cycles, late=late), **self._limits)

    async def _restored(self, reset: Awaitable[None], **limits: int) -> None:
        """Reset the board, and restore what a kernel restores."""
        saved = {at: await self.pci.config_read_dword(at) for at in (*_BARS, _COMMAND)}
        await reset
        for at, value in saved.items():
            await self.pci.config_write_dword(at, value)
        await self.configure(**limits)

    async def configure(self, *, mps: int = 128, mrrs: int = 512, rcb: int = 64) -> None:
        """Set Max_Payload_Size, Max_Read_Request_Size and read completion boundary, in bytes."""
        self._limits = {"mps": mps, "mrrs": mrrs, "rcb": rcb}
        for pci in [self.pci] + ([self._gpu_pci] if self.gpu else []):
            await pci.set_mps((mps // 128).bit_length() - 1)
        await self.pci.set_readrq((mrrs // 128).bit_length() - 1)
        control = await self.pci.capability_read_byte(PciCapId.EXP, 0x10)
        await self.pci.capability_write_byte(
            PciCapId.EXP, 0x10, control & ~8 | (8 if rcb == 128 else 0)
        )
        self.host.max_payload_size = (mps // 128).bit_length() - 1
        self.host.read_completion_boundary = rcb == 128

    async def gpu_master(self) -> None:
        """Let the GPU send requests, as a kernel's stores to the board."""
        await self._gpu_pci.set_master()

    @property
    def _gpu_pci(self):
        return self.host.find_device(self.gpu.function.pcie_id)

    async def finish(self) -> None:
        """Let the last traffic arrive, then fail for anything that should not have happened."""
        await Timer(2, "us")
        for buffer in self._buffers:
            buffer.expect_guards()
        device, checker = self.device, self.device.checker
        assert not self.host.stray_writes, f"write to nowhere: {self.host.stray_writes[0]!r}"
        assert not checker.unanswered, f"request without completion: {checker.unanswered[0]!r}"
        assert not checker.outstanding_tags, f"unanswered reads, tags {checker.outstanding_tags}"
        assert not device.function.pcie_cap.transactions_pending, "transactions pending, all idle"
        device.expect_no_errors()

    # Registers ------------------------------------------------------------------------------

    def bar_address(self, bar: int, offset: int = 0) -> int:
        """Bus address of byte `offset` of a BAR."""
        return self.device.function.bar[bar] & ~0xF | offset

    async def bar_read(self, bar: int, offset: int, length: int) -> bytes:
        """Read bytes of a BAR, as one request."""
        return await self.host.mem_read(self.bar_address(bar, offset), length, MMIO_US, "us")

    async def bar_write(self, bar: int, offset: int, data: bytes) -> None:
        """Write bytes of a BAR, as one request; posted."""
        await self.host.mem_write(self.bar_address(bar, offset), data)

    async def read(self, block: regs.Block, name: str, **where: int) -> int:
        """Read a register; `where` goes to `regs.Block.address`."""
        data = await self.bar_read(_bar(block), block.address(name, **where), 4)
        return int.from_bytes(data, "little")

    async def write(self, block: regs.Block, name: str, value: int, **where: int) -> None:
        """Write a register; posted."""
        await self.bar_write(_bar(block), block.address(name, **where), value.to_bytes(4, "little"))

    # Memory ---------------------------------------------------------------------------------

    def buffer(self, size: int, *, offset: int = 0, high: bool = False, name: str = "") -> Buffer:
        """Host memory: `size` bytes, `offset` bytes into a page, above 4 GiB if `high`."""
        base = self._free[high]
        start = _PAGE + offset
        pages = -(-(start + size + GUARD) // _PAGE)
        self._free[high] = base + (pages + 1) * _PAGE
        memory = bytearray(pages * _PAGE)
        self.host.map_memory(base, memory)
        self._mapped(base, len(memory), name or "host")
        return self._guarded(Buffer(name or "host", memory, start, size, base + start, self.rng))

    def gpu_buffer(self, size: int, *, offset: int = 0) -> Buffer:
        """GPU memory behind its BAR: `size` bytes, `offset` bytes into a page."""
        start = self._gpu_free + offset
        self._gpu_free += -(-(offset + size + GUARD) // _PAGE) * _PAGE + _PAGE
        function = self.gpu.function
        bar = (function.bar[1] << 32 | function.bar[0]) & ~0xF
        self._mapped(bar + start, size, "aperture")
        return self._guarded(Buffer("GPU", self.gpu.memory, start, size, bar + start, self.rng))

    def _mapped(self, address: int, size: int, memory: str) -> None:
        where = {"address": f"{address:#x}", "size": f"{size:#x}", "memory": memory}
        self._capture.event(Note(int(get_sim_time("ns")), "map", where))

    def _guarded(self, buffer: Buffer) -> Buffer:
        self._buffers.append(buffer)
        return buffer

    def chain(
        self,
        transfers: Sequence[Transfer],
        *,
        blocks: Sequence[int] | None = None,
        high: bool = False,
    ) -> Chain:
        """Descriptors in fresh host memory; in blocks of at most 64 unless `blocks` says how."""
        if blocks is None:
            whole, rest = divmod(len(transfers), 64)
            blocks = [64] * whole + [rest] * bool(rest)
        pages = [self.buffer(_PAGE, high=high, name="descriptors") for _ in blocks]
        return lay_out(transfers, pages, blocks, self.rng)

    # Interrupts -----------------------------------------------------------------------------

    async def wait_intx(self, level: bool, us: float = MMIO_US) -> None:
        """Wait until the host sees INTA at `level`."""

        async def wait():
            while self.host.intx.level != level:
                self.host.intx.changed.clear()
                await self.host.intx.changed.wait()

        await _bounded(wait(), us, f"INTA {'asserted' if level else 'deasserted'}")

    async def enable_msi(self) -> None:
        """Turn MSI on; messages that arrive are noted in `messages`."""
        assert await self.pci.enable_msi_range(1, 1) == 1
        self._note_messages(1)

    async def enable_msix(self, vectors: int) -> None:
        """Write all of the MSI-X table and turn MSI-X on; messages are noted in `messages`."""
        assert await self.pci.enable_msix_range(vectors, vectors, 0) == vectors
        self._note_messages(regs.MSIX_ENTRIES)

    def _note_messages(self, count: int) -> None:
        first, self._noted = self._noted, max(self._noted, count)
        for number in range(first, count):

            async def arrived(number=number):
                self.messages.append(number)
                self._message.set()

            self.pci.request_irq(number, arrived)

    async def wait_messages(self, count: int, us: float = MMIO_US) -> None:
        """Wait until `count` messages have arrived since the test began."""

        async def wait():
            while len(self.messages) < count:
                self._message.clear()
                await self._message.wait()

        await _bounded(wait(), us, f"message {count}, {len(self.messages)} have come")


async def _bounded(wait: Awaitable[None], us: float, what: str) -> None:
    try:
        await with_timeout(wait, us, "us")
    except SimTimeoutError:
        raise AssertionError(f"waited {us} us in vain for {what}") from None


def _bar(block: regs.Block) -> int:
    blocks = (*regs.BLOCKS_DMA, *regs.BLOCKS_LAUNCH)
    return (regs.BAR_DMA if block in blocks else regs.BAR_USER)[0]
