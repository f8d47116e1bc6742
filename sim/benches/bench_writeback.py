# SPDX-License-Identifier: BSD-2-Clause
"""Poll-mode writeback: a word in memory that says how far a channel is, and descriptor credits."""

from __future__ import annotations

from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp, TlpType

from peerdma import regs

from .bench_dma import there_and_back
from .channel import CONTROL_START, CONTROL_STOP, FINISHED, Channel
from .host import Fault
from .memory import Buffer, Transfer
from .tb import TB, bench

CHANNELS = (1,)
PCIE = ()

POLL = regs.CHANNEL["control"].field("pollmode_wb_enable").mask
RUN = regs.CHANNEL["control"].field("run").mask
ERROR = 1 << 31
#: How long a write that must not come is waited for.
SILENCE_US = 3


class Word:
    """The word that a channel writes to, and a log of the values that were written."""

    def __init__(self, tb: TB, channel: Channel, buffer: Buffer):
        self._tb, self._channel, self._buffer = tb, channel, buffer
        self.address = buffer.address
        self.written: list[int] = []
        tb.device.on_tlp.append(self._listen)

    @classmethod
    async def set_up(cls, tb: TB, channel: Channel, *, gpu: bool = False) -> Word:
        """A word somewhere above 4 GiB or in GPU memory, made known to the channel."""
        offset = 4 * tb.rng.randrange(1000)
        buffer = tb.gpu_buffer(4, offset=offset) if gpu else tb.buffer(4, offset=offset, high=True)
        word = cls(tb, channel, buffer)
        await channel.write("writeback_lo", word.address & 0xFFFF_FFFF)
        await channel.write("writeback_hi", word.address >> 32)
        word.value = 0
        return word

    def _listen(self, direction: str, tlp: Tlp) -> None:
        writes = (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64)
        if direction == "up" and tlp.fmt_type in writes and tlp.address == self.address:
            assert (tlp.length, tlp.first_be, tlp.last_be) == (1, 0xF, 0)
            self.written.append(int.from_bytes(tlp.get_data(), "little"))

    @property
    def value(self) -> int:
        """What the word holds."""
        return int.from_bytes(self._buffer.data, "little")

    @value.setter
    def value(self, value: int) -> None:
        """Puts a value there, as a driver does."""
        self._buffer.data = value.to_bytes(4, "little")

    async def poll(self, us: float = 100) -> int:
        """Wait until the word is not 0, as a driver does, and make it 0 again."""
        for _ in range(int(us * 1000) // self._tb.device.clock_ns):
            if value := self.value:
                self.value = 0
                return value
            await Timer(self._tb.device.clock_ns, "ns")
        raise AssertionError(f"{self._channel!r} wrote nothing back within {us} us")


async def _many_runs(tb: TB, *, gpu: bool) -> None:
    words = [await Word.set_up(tb, channel, gpu=gpu) for channel in (tb.h2c, tb.c2h)]
    memory = tb.gpu_buffer if gpu else tb.buffer
    expected = []
    for _ in range(8):
        count = tb.rng.randint(1, 6)
        sizes = [tb.rng.randint(1, 600) for _ in range(count)]
        source, target = memory(sum(sizes), offset=3), memory(sum(sizes), offset=9)
        at = [sum(sizes[:n]) for n in range(count)]
        for channel, word in zip((tb.h2c, tb.c2h), words, strict=True):
            await channel.start(
                tb.chain(
                    [
                        Transfer(source.address + n, n, size)
                        if channel is tb.h2c
                        else Transfer(n, target.address + n, size)
                        for n, size in zip(at, sizes, strict=True)
                    ]
                ),
                POLL | RUN,
            )
            assert await word.poll() == count
            if channel is tb.c2h:
                target.expect(source.data)
            await channel.write("control", POLL)
            assert await channel.read("status") == 0
        expected.append(count)
    await Timer(SILENCE_US, "us")
    assert [word.written for word in words] == [expected] * 2
    assert [word.value for word in words] == [0, 0]


@bench(us=900)
async def many_runs(tb: TB):
    """One write per run behind the data; then the next run may start at once."""
    await _many_runs(tb, gpu=False)


@bench(us=900, lanes=4, gpu=True)
async def into_gpu_memory(tb: TB):
    """The same with data and word in a GPU's memory: it can wait for the board without a CPU."""
    await _many_runs(tb, gpu=True)


@bench(us=900, stall=0.3)
async def one_for_each_completed_descriptor(tb: TB):
    """The counts of all descriptors with Completed, in order, no other and none twice."""
    flags = [tb.rng.randrange(2) for _ in range(40)] + [1]
    for channel in (tb.h2c, tb.c2h):
        memory = tb.buffer(64 * len(flags))
        word = await Word.set_up(tb, channel)
        places = [(64 * n, memory.address + 64 * n) for n in range(len(flags))]
        if channel is tb.h2c:
            places = [(pci, card) for card, pci in places]
        transfers = [
            Transfer(*place, 64, regs.DESC_COMPLETED * flag)
            for place, flag in zip(places, flags, strict=True)
        ]
        await channel.start(tb.chain(transfers), CONTROL_START | POLL)
        await channel.expect_end(FINISHED, len(flags))
        await Timer(SILENCE_US, "us")
        assert word.written == [n for n, flag in enumerate(flags, start=1) if flag]
        await channel.write("control", CONTROL_STOP)


@bench(us=900)
async def errors(tb: TB):
    """An error is written once, as bit 31, beside a count that includes the failed one."""
    word = await Word.set_up(tb, tb.h2c)
    source = tb.buffer(300)
    chain = tb.chain([Transfer(source.address + 100 * n, 100 * n, 100) for n in range(3)])
    bad = range(source.address + 100, source.address + 200)
    for fault, status in (
        (Fault.UNSUPPORTED_REQUEST, regs.Status.READ_UNSUPPORTED),
        (Fault.POISONED, regs.Status.READ_POISONED | regs.Status.READ_UNSUPPORTED),
    ):
        tb.host.inject(bad, fault)
        await tb.h2c.start(chain, CONTROL_START | POLL)
        assert await word.poll() == ERROR | 2, "the failed descriptor is counted"
        await tb.h2c.expect_failed(status, 1)
        await tb.h2c.write("control", CONTROL_STOP)
        tb.host.clear_faults()
        await tb.h2c.start(chain, CONTROL_START | POLL)
        assert await word.poll() == 3
        await tb.h2c.write("control", CONTROL_STOP)
    await Timer(SILENCE_US, "us")
    assert word.written == [ERROR | 2, 3] * 2


@bench(us=3000, lanes=4, long=True)
async def abort_at_any_time(tb: TB):
    """What is not under way when Run is cleared is never written; the next run has its own word."""
    word = await Word.set_up(tb, tb.c2h)
    control = tb.bar_address(
        regs.BAR_DMA[0], regs.CHANNEL.address("control", tb.c2h.number, regs.C2H_CHANNEL_BASE)
    )
    before_stop = []

    def listen(direction: str, tlp: Tlp) -> None:
        if direction == "down" and tlp.address == control and not tlp.get_data()[0] & RUN:
            before_stop.append(len(word.written))

    tb.device.on_tlp.append(listen)
    found = set()
    for step in range(50):
        word.written.clear()
        before_stop.clear()
        target = tb.buffer(1024)
        chain = tb.chain(
            [Transfer(n, target.address + n, 64, regs.DESC_COMPLETED) for n in range(0, 1024, 64)]
        )
        await tb.c2h.start(chain, POLL | RUN)
        await Timer(1 + 10 * step * tb.device.clock_ns, "ns")
        await tb.c2h.write("control", POLL)
        if step % 2:
            # Whatever was under way comes before the answer that the channel is idle.
            await tb.c2h.idle(10)
            count = len(word.written)
            await Timer(SILENCE_US, "us")
            assert len(word.written) == count
        last = tb.buffer(64)
        await tb.c2h.start(tb.chain([Transfer(0, last.address, 64)] * 2), POLL | RUN)
        await tb.c2h.idle(20)
        await Timer(SILENCE_US, "us")
        *old, new = word.written
        assert old == list(range(1, len(old) + 1)) and new == 2, f"step {step}: {word.written}"
        assert len(old) <= before_stop[0] + 1, f"step {step}: written after Run was cleared"
        found.add(len(old))
        await tb.c2h.write("control", POLL)
        assert await tb.c2h.read("status") == 0
    assert 0 in found and max(found) > 5, f"the sweep missed the run: {found}"


@bench(us=1500)
async def credits(tb: TB):
    """In credit mode a descriptor is fetched only against a credit; Stop and Run take them away."""
    channel = tb.h2c
    enable = channel.halt_bit

    async def credit() -> int:
        return await channel.read("descriptor_credits", regs.SGDMA)

    async def give(count: int) -> None:
        await channel.write("descriptor_credits", count, regs.SGDMA)

    await give(5)
    assert await credit() == 0
    await tb.write(regs.SGDMA_COMMON, "credit_enable_w1s", enable)
    source = tb.buffer(64 * 20)
    chain = tb.chain([Transfer(source.address + 64 * n, 64 * n, 64) for n in range(20)])
    # Before the run, as xdma.ko does, and more while it is under way.
    await give(3)
    await channel.start(chain)
    for given in (3, 4, 11):
        await Timer(4, "us")
        assert await channel.read("completed_count") == given
        assert await channel.read("status") == regs.Status.BUSY
        assert await credit() == 0
        await give({3: 1, 4: 7, 11: 12}[given])
    await channel.expect_end(FINISHED, 20)
    # 23 were given.
    assert await credit() == 3
    await channel.write("control", CONTROL_STOP)
    assert await credit() == 0

    # A run without enough of them can be aborted.
    await give(2)
    await channel.start(chain)
    await Timer(4, "us")
    assert await channel.read("completed_count") == 2
    await channel.write("control", CONTROL_STOP)
    stopped = regs.Status.IDLE_STOPPED | regs.Status.DESCRIPTOR_STOPPED
    await channel.expect_end(stopped, 2)
    assert await credit() == 0
    await tb.write(regs.SGDMA_COMMON, "credit_enable_w1c", enable)
    await there_and_back(tb, [(1280, 0, 0, 0)])
