# SPDX-License-Identifier: BSD-2-Clause
"""What goes on beside transfers: register accesses of every kind, nuisances, held transmission.

Each access leaves things as it found them, and its result is checked there and then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType

from hw.stream.user_blocks import find
from peerdma import regs
from peerdma.regs import Access
from sim.benches.bench_registers import BUILD_VALUES, build_values
from sim.benches.tb import MMIO_US

from .rig import Rig
from .table import GROUPS, LACKING_NUISANCES

__all__ = ["hold", "make_accesses"]

_USER, _DMA = regs.BAR_USER[0], regs.BAR_DMA[0]
#: Time of one stop of transmission, and between two, at most.
_HOLD_NS = 6000
#: The same where it is to be longer than what there is room for takes one lane.
_LONG_HOLD_NS = 16_000
_BETWEEN_NS = 4000
#: How long a message is waited for that a mask holds back.
_MASKED_US = 20
#: A core with overcommit sets it when it has to.
_OFF = int(regs.Capability.OVERCOMMIT_OFF)
#: Control and RW registers that nothing else uses: block, name, bits.
_FREE = (
    (regs.USER, "led", 0x7),
    (regs.USER, "scratch", 0xFFFF_FFFF),
    (regs.MAILBOX, "first", 0xFFFF_FFFF),
    (regs.MAILBOX, "last", 0xFFFF_FFFF),
    (regs.IRQ, "channel_vector1", 0x1F1F_1F1F),
    (regs.CONFIG, "write_flush_timeout", 0x1F),
)
#: Registers with W1S and W1C aliases, and bits of theirs that belong to no channel here.
_ALIASED = (
    (regs.SGDMA_COMMON, "halt", 0x000C_000C),
    (regs.SGDMA_COMMON, "credit_enable", 0x000C_000C),
)
#: Registers that always read the same: block and name.
_CONSTANT = tuple(
    (block, register.name)
    for block in (regs.IRQ, regs.CONFIG, regs.SGDMA_COMMON, regs.EXTENSION)
    for register in block.registers
    if register.access is Access.RO
    and (register.reset or register.name in BUILD_VALUES)
    and register.name != "channels"
    and register.name not in ("user_max_payload", "user_max_read_request", "time_scale")
)
_NUISANCES = next(g.points["kind"] for g in GROUPS if g.name == "nuisance")


async def hold(rig: Rig, kind: str) -> None:
    """Stop one way a few times: the block takes, or gives, nothing, or sends nothing on."""
    for _ in range(rig.rng.randint(1, 3) if kind else 0):
        await Timer(rig.rng.randint(1, _BETWEEN_NS), "ns")
        during = rig.during
        if kind == "transmit":
            rig.device.hold_transmit = True
        elif kind == "receive":
            rig.device.hold_receive = True
        else:
            rig.device.link_ready.clear()
        most = _LONG_HOLD_NS if rig.machine.core.overcommit else _HOLD_NS
        await Timer(rig.rng.randint(100, most), "ns")
        rig.let_go()
        rig.seen.sample("nuisance", kind=f"{kind} held", during=during)


async def make_accesses(rig: Rig, count: int) -> None:
    """So many accesses, one after the other."""
    traffic = _Traffic(rig)
    for _ in range(count):
        await traffic.step()
        await Timer(rig.rng.randint(1, 1500), "ns")


class _Traffic:
    def __init__(self, rig: Rig):
        self._rig, self._rng = rig, rig.rng
        self._steps: list[Callable[[], Awaitable[None]]] = [
            self._constant,
            self._read_write,
            self._read_write,
            self._aliased,
            self._clearing,
            self._command,
            self._table,
            self._pending_bits,
            self._nothing,
            self._sizes,
            self._from_gpu,
            self._nuisance,
            self._nuisance,
            self._user_interrupt,
            self._user_interrupt,
            self._masked_channel,
        ]

    async def step(self) -> None:
        """One access, or a few that belong together."""
        await self._rng.choice(self._steps)()

    def _sample(self, access: str, bar: int, during: str, operation: str = "read", **more) -> None:
        values = {"from": "host", "bytes": 4, **more}
        self._rig.seen.sample(
            "register",
            access=access,
            bar="user" if bar == _USER else "dma",
            during=during,
            operation=operation,
            **values,
        )

    # Registers ------------------------------------------------------------------------------

    async def _constant(self) -> None:
        rig = self._rig
        block, name = self._rng.choice(_CONSTANT)
        during = rig.during
        found = await rig.read(block, name)
        core = rig.machine.core
        values = build_values(
            find(core.user),
            clock_khz=1_000_000 // rig.device.clock_ns,
            overcommit=core.overcommit,
        )
        values["capabilities"] |= regs.Capability.LAUNCH * bool(core.launch_queues)
        values["capabilities"] |= regs.Capability.RECEIVE * core.receives
        expected = values.get(name, block[name].reset)
        if rig.machine.core.overcommit and name == "capabilities":
            found &= ~_OFF
        assert found == expected, f"{name} reads {found:#x}, expected {expected:#x}"
        self._sample("ro", _DMA, during)
        rig.dut.gpio.value = inputs = self._rng.randrange(16)
        found = await rig.read(regs.USER, "gpio")
        assert found == inputs, f"gpio reads {found:#x}, expected {inputs:#x}"
        self._sample("ro", _USER, during)

    async def _read_write(self) -> None:
        rig = self._rig
        block, name, bits = self._rng.choice(_FREE)
        bar = _USER if block in regs.BLOCKS_USER else _DMA
        during = rig.during
        value = self._rng.getrandbits(32)
        await rig.write(block, name, value)
        self._sample("rw", bar, during, "write")
        found = await rig.read(block, name)
        assert found == value & bits, f"{name} reads {found:#x} after a write of {value:#x}"
        self._sample("rw", bar, during)

    async def _aliased(self) -> None:
        rig = self._rig
        block, name, bits = self._rng.choice(_ALIASED)
        for suffix, expected in (("w1s", bits), ("w1c", 0)):
            during = rig.during
            await rig.write(block, f"{name}_{suffix}", bits)
            found = await rig.read(block, name) & bits
            assert found == expected, f"{name} has {found:#x} after {suffix}"
            self._sample(suffix, _DMA, during, "write")

    async def _clearing(self) -> None:
        """Status is written with bits that are never set; the clearing alias of no channel read."""
        rig = self._rig
        channel = self._rng.choice(rig.channels)
        during = rig.during
        await channel.write("status", int(regs.Status.ALIGN_MISMATCH | regs.Status.READ_PARITY))
        self._sample("rw1c", _DMA, during, "write")
        found = regs.Status(await channel.read("status"))
        assert not found & regs.Status.ALIGN_MISMATCH, f"{channel!r} has {found!r}"
        self._sample("rw1c", _DMA, during)

    async def _command(self) -> None:
        rig = self._rig
        name = self._rng.choice(("error_clear", "soft_reset", "stream_flush"))
        during = rig.during
        if name != "error_clear" or not rig.capturing:
            await rig.write(regs.EXTENSION, name, 0)
            assert await rig.read(regs.EXTENSION, name) == 0
            self._sample("wo", _DMA, during, "write")

    async def _table(self) -> None:
        """An entry of a vector that no source has."""
        rig = self._rig
        used = rig.vectors if rig.kind == "msix" else []
        vector = self._rng.choice([v for v in range(regs.MSIX_ENTRIES) if v not in used])
        words = [self._rng.getrandbits(32) & ~3, *(self._rng.getrandbits(32) for _ in range(2)), 1]
        data = b"".join(word.to_bytes(4, "little") for word in words)
        at = regs.MSIX_TABLE_OFFSET + 16 * vector
        during = rig.during
        await rig.bar_write(_DMA, at, data)
        self._sample("table", _DMA, during, "write", bytes="long")
        found = await rig.bar_read(_DMA, at, 16)
        assert found == data, f"MSI-X entry {vector} reads {found.hex()}, not {data.hex()}"
        self._sample("table", _DMA, during, bytes="long")

    async def _pending_bits(self) -> None:
        rig = self._rig
        during = rig.during
        found = await self._pending()
        allowed = sum(1 << vector for vector in rig.vectors) if rig.kind == "msix" else 0
        # Of a disturbed channel a message may be on its way.
        assert not found & ~allowed or not rig.calm, f"pending bits {found:#x}"
        self._sample("pba", _DMA, during, bytes=8)

    async def _pending(self) -> int:
        data = await self._rig.bar_read(_DMA, regs.MSIX_PBA_OFFSET, 8)
        return int.from_bytes(data, "little")

    async def _until_pending(self, vector: int, us: int) -> bool:
        """Whether the pending bit of a vector is set within `us` looks, a microsecond apart."""
        for _ in range(us):
            if await self._pending() >> vector & 1:
                return True
            await Timer(1, "us")
        return False

    async def _nothing(self) -> None:
        bar, at = self._rng.choice(
            ((_USER, regs.DOORBELL_BASE + 0x40), (_DMA, 0x7010), (_DMA, 0x344))
        )
        rig, during = self._rig, self._rig.during
        await rig.bar_write(bar, at, self._rng.randbytes(8))
        self._sample("none", bar, during, "write", bytes=8)
        found = await rig.bar_read(bar, at, 8)
        assert found == bytes(8), f"BAR{bar} {at:#x} reads {found.hex()}, nothing is there"
        self._sample("none", bar, during, bytes=8)

    async def _sizes(self) -> None:
        """Accesses of any size to the mailbox: a register takes all four bytes or none."""
        rig = self._rig
        at = regs.MAILBOX.address("first")
        during = rig.during
        held = bytearray(self._rng.randbytes(12))
        await rig.bar_write(_USER, at, bytes(held))
        self._sample("rw", _USER, during, "write", bytes="long")
        size = self._rng.choice((1, 2, 8))
        offset = self._rng.choice((0, 4) if size == 8 else (0, 4, 8))
        data = self._rng.randbytes(size)
        await rig.bar_write(_USER, at + offset, data)
        if size == 8:
            held[offset : offset + size] = data
        self._sample("rw", _USER, during, "write", bytes=size)
        start = self._rng.randrange(12)
        size = self._rng.choice([n for n in (1, 2, 4, 8, 12) if start + n <= 12])
        found = await rig.bar_read(_USER, at + start, size)
        assert found == held[start : start + size], f"mailbox reads {found.hex()}"
        self._sample("rw", _USER, during, bytes="long" if size == 12 else size)

    async def _from_gpu(self) -> None:
        """The GPU writes to and reads from the board's BARs, without the host."""
        rig = self._rig
        gpu = rig.gpu.function
        bar, at = self._rng.choice(
            (
                (_USER, regs.MAILBOX.address("done")),
                (_DMA, regs.IRQ.address("channel_vector1")),
            )
        )
        value = self._rng.getrandbits(32)
        expected = value & (0xFFFF_FFFF if bar == _USER else 0x1F1F_1F1F)
        during = rig.during
        async with rig.access():
            await gpu.mem_write(rig.bar_address(bar, at), value.to_bytes(4, "little"))
            found = await gpu.mem_read(rig.bar_address(bar, at), 4, MMIO_US, "us")
        assert int.from_bytes(found, "little") == expected, f"the GPU reads {found.hex()}"
        self._sample("rw", bar, during, "write", **{"from": "gpu"})
        self._sample("rw", bar, during, **{"from": "gpu"})

    # Nuisances ------------------------------------------------------------------------------

    async def _nuisance(self) -> None:
        rig, during = self._rig, self._rig.during
        lacking = () if rig.machine.ours else LACKING_NUISANCES
        kinds = [kind for kind in _NUISANCES if "held" not in kind and kind not in lacking]
        kind = self._rng.choice(kinds)
        # It spoils what a run that waits for its turn is to begin with.
        if kind == "push while busy" and (not rig.running or rig.machine.core.launch_queues):
            return
        steps = {
            "unexpected completion": self._unexpected,
            "poisoned write": self._poisoned,
            "locked read": self._unsupported,
            "atomic": self._unsupported,
            "zero-length read": self._zero_length,
            "push while busy": self._push,
            "halt": self._halt,
        }
        await steps[kind](kind)
        rig.seen.sample("nuisance", kind=kind, during=during)

    async def _unexpected(self, kind: str) -> None:
        """A completion with a tag that the core does not use."""
        rig = self._rig
        request = Tlp()
        request.requester_id = rig.device.function.pcie_id
        request.tag = self._rng.randrange(32, 256)
        request.address = 4 * self._rng.randrange(32)
        request.length = self._rng.choice((1, 2, 31))
        await self._rng.choice(rig.completers).stray(request)

    async def _poisoned(self, kind: str) -> None:
        rig = self._rig
        value = self._rng.getrandbits(32)
        await rig.write(regs.USER, "scratch", value)
        await rig.host.perform_posted_operation(self._request(TlpType.MEM_WRITE, poisoned=True))
        found = await rig.read(regs.USER, "scratch")
        assert found == value, f"a poisoned write changed {value:#x} to {found:#x}"

    def _request(self, kind: TlpType, *, poisoned: bool = False) -> Tlp:
        request = Tlp()
        request.fmt_type = kind
        request.requester_id = self._rig.host.pcie_id
        request.address = self._rig.bar_address(_USER, regs.USER.address("scratch"))
        request.length, request.first_be, request.ep = 1, 0xF, poisoned
        if request.has_data():
            request.set_data(self._rng.randbytes(8 if kind is TlpType.CAS else 4))
        return request

    async def _unsupported(self, kind: str) -> None:
        """What is no read or write of memory is answered Unsupported Request."""
        rig = self._rig
        atomics = (TlpType.FETCH_ADD, TlpType.SWAP, TlpType.CAS)
        what = TlpType.MEM_READ_LOCKED if kind == "locked read" else self._rng.choice(atomics)
        request = self._request(what)
        # The library's bridges do not route these, so they go to the block itself.
        async with rig.access():
            request.tag = await rig.host.alloc_tag()
            await rig.device.upstream_recv(request)
            completion = await rig.host.recv_cpl(request.tag, MMIO_US, "us")
            rig.host.release_tag(request.tag)
        assert completion is not None and completion.status == CplStatus.UR, f"{what.name}"

    async def _zero_length(self, kind: str) -> None:
        """A read of no byte is answered, and clears nothing."""
        channel = self._rng.choice(self._rig.channels)
        base = regs.C2H_CHANNEL_BASE if channel.c2h else regs.CHANNEL.base
        at = regs.CHANNEL.address("status_rc", channel=channel.number, base=base)
        assert await self._rig.bar_read(_DMA, at, 0) == b""

    async def _push(self, kind: str) -> None:
        """A run takes no notice of it, nor does the next one, which begins anew."""
        channel = self._rng.choice(self._rig.running)
        at = self._rng.choice((0, self._rng.randrange(0, regs.PUSH_STRIDE, 4)))
        content = self._rng.randbytes(4 * self._rng.randint(1, (regs.PUSH_STRIDE - at) // 4))
        await channel.push(content, len(content), at)

    async def _halt(self, kind: str) -> None:
        """A channel fetches no descriptors for a while."""
        rig = self._rig
        channel = self._rng.choice(rig.running or rig.channels)
        await rig.write(regs.SGDMA_COMMON, "halt_w1s", channel.halt_bit)
        await Timer(self._rng.randint(1, 3000), "ns")
        await rig.write(regs.SGDMA_COMMON, "halt_w1c", channel.halt_bit)

    # Interrupts -----------------------------------------------------------------------------

    async def _user_interrupt(self) -> None:
        rig = self._rig
        if not rig.calm:
            return
        user = self._rng.randrange(16)
        path = "at once"
        if rig.kind == "msix":
            path = self._rng.choice(("at once", "vector masked", "function masked"))
        before = rig.interrupts[user]
        vector = rig.vectors[len(rig.channels) + user] if rig.kind == "msix" else 0
        await self._mask(path, vector, masked=True)
        await self._pending()  # behind it the mask is closed
        rig.dut.user_irq.value = 1 << user
        if path != "at once":
            await Timer(self._rng.randint(1000, 4000), "ns")
            # A mask is found when the message has its turn, behind posts that wait for the link.
            assert await self._until_pending(vector, MMIO_US), f"pending bit {vector} is not set"
            assert rig.interrupts[user] == before, "a masked vector was used"
        await self._mask(path, vector, masked=False)
        await rig.until(lambda: rig.interrupts[user] > before, MMIO_US, f"user interrupt {user}")
        rig.dut.user_irq.value = 0
        await rig.read(regs.IRQ, "user_pending")
        rig.seen.sample("interrupt", kind=rig.kind, source="user", path=path)

    async def _mask(self, path: str, vector: int, *, masked: bool) -> None:
        if path == "vector masked":
            await self._rig.write_entry(vector, masked=masked)
        elif path == "function masked":
            await self._rig.mask_function(masked)

    async def _masked_channel(self) -> None:
        """A channel's message that comes while its vector is masked goes when it no longer is."""
        rig = self._rig
        waited_for = [channel for channel in rig.running if channel not in rig.polled]
        if rig.kind != "msix" or not waited_for or not rig.calm:
            return
        channel = self._rng.choice(waited_for)
        path = self._rng.choice(("vector masked", "function masked"))
        vector = rig.vectors[rig.channels.index(channel)]
        await self._mask(path, vector, masked=True)
        before = rig.interrupts[channel]
        pending = await self._until_pending(vector, _MASKED_US)
        await self._mask(path, vector, masked=False)
        if pending:
            what = f"{channel!r} to interrupt when unmasked"
            await rig.until(lambda: rig.interrupts[channel] > before, MMIO_US, what)
            way = "c2h" if channel.c2h else "h2c"
            rig.seen.sample("interrupt", kind="msix", source=way, path=path)
