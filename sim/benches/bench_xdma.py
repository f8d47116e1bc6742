# SPDX-License-Identifier: BSD-2-Clause
"""Xilinx' driver xdma.ko, replayed register access by register access, in all its modes."""

from __future__ import annotations

from cocotb.triggers import Timer

from .memory import Buffer, Transfer
from .replay import play
from .tb import TB, bench
from .xdma_ko import FLUSH, PERF_MASK, RING, Engine, XdmaKo, buffers

CHANNELS = (1, 2)
PCIE = ()
#: Bit of status.
BUSY = 1
#: How long an interrupt or a write that must not come is waited for.
SILENCE_US = 3


async def _ready(tb: TB, mode: str) -> tuple[XdmaKo, Engine, Engine]:
    """A probed driver, and its last engine of each direction."""
    driver = XdmaKo(tb, mode)
    await driver.probe()
    each_way = tb.channels_each_way
    assert [engine.c2h for engine in driver.engines] == [False] * each_way + [True] * each_way
    return driver, driver.engines[each_way - 1], driver.engines[-1]


def _to_card(pages: list[Buffer]) -> list[Transfer]:
    card, transfers = 0, []
    for page in pages:
        transfers.append(Transfer(page.address, card, page.size))
        card += page.size
    return transfers


def _to_host(pages: list[Buffer]) -> list[Transfer]:
    return [Transfer(t.destination, t.source, t.length) for t in _to_card(pages)]


def _copies(tb: TB, count: int) -> tuple[list[Buffer], list[Buffer]]:
    """Source pages, and target pages of the same sizes."""
    sources = buffers(tb, count)
    return sources, [tb.buffer(page.size, offset=tb.rng.randrange(64)) for page in sources]


async def _there_and_back(tb: TB, driver: XdmaKo, h2c: Engine, c2h: Engine, count: int) -> None:
    sources, targets = _copies(tb, count)
    for engine, transfers in ((h2c, _to_card(sources)), (c2h, _to_host(targets))):
        await engine.start(transfers, tb.rng.randrange(RING - count))
        if driver.poll:
            await engine.finish_poll()
        else:
            assert await driver.serve() == [engine]
    for source, target in zip(sources, targets, strict=True):
        target.expect(source.data)


async def _silence(tb: TB, driver: XdmaKo) -> None:
    """Fail for an interrupt that nobody asked for, or a word that was written again."""
    messages, asserts = len(tb.messages), tb.host.intx.asserts
    await Timer(SILENCE_US, "us")
    assert (len(tb.messages), tb.host.intx.asserts) == (messages, asserts)
    for engine in driver.engines:
        assert not driver.poll or engine.word.data[:4] == bytes(4)


async def _transfers(tb: TB, mode: str) -> None:
    driver, h2c, c2h = await _ready(tb, mode)
    for engine in driver.engines:
        engine.word.data = bytes(32)
    for _ in range(12):
        await _there_and_back(tb, driver, h2c, c2h, tb.rng.choice((1, 2, tb.rng.randint(3, 20))))
    await _silence(tb, driver)
    interrupts = {"msix": 24, "msi": 24, "intx": 0, "poll": 0}
    assert len(tb.messages) == interrupts[mode]
    assert tb.host.intx.asserts == (24 if mode == "intx" else 0)


@bench(us=3000, lanes=4)
async def msix_mode(tb: TB):
    """Transfers of scattered pages from any place of the ring, an MSI-X message for each."""
    await _transfers(tb, "msix")


@bench(us=3000, lanes=4)
async def msi_mode(tb: TB):
    """The same with the one MSI vector that the driver takes."""
    await _transfers(tb, "msi")


@bench(us=3000, lanes=4)
async def intx_mode(tb: TB):
    """The same with INTx, masked and unmasked in the interrupt block."""
    await _transfers(tb, "intx")


@bench(us=3000, lanes=4)
async def poll_mode(tb: TB):
    """The same by looking at memory only; there is no interrupt."""
    await _transfers(tb, "poll")


@bench(us=4000, lanes=4, long=True)
async def ring_offsets(tb: TB):
    """A run may start at any index of the ring's blocks, and be longer than some of them."""
    driver, h2c, _ = await _ready(tb, "msix")
    source = tb.buffer(256)
    for first in range(0, 64, 3):
        count = tb.rng.choice((1, 63, 64, 65, tb.rng.randint(2, 200)))
        await h2c.start([Transfer(source.address + n % 256, n, 1) for n in range(count)], first)
        assert await driver.serve() == [h2c]
    await _silence(tb, driver)


@bench(us=3000, lanes=4, long=True)
async def queued_transfers(tb: TB):
    """The next run begins, and may end, before the interrupt is unmasked: it still interrupts."""
    for mode in ("msix", "msi"):
        tb.messages.clear()
        driver, h2c, _ = await _ready(tb, mode)
        source = tb.buffer(64)
        short = [Transfer(source.address, 0, 8)]
        await h2c.start(short)
        for turn in range(20):
            assert await driver.top_half() == [h2c]
            await h2c.bottom_half(short, turn)
            await Timer(tb.rng.randint(1, 2000), "ns")
            await driver.unmask(h2c)
        assert await driver.serve() == [h2c]
        await _silence(tb, driver)
        assert len(tb.messages) == 21
        await driver.close()
        await tb.pci.set_master()


@bench(us=3000, lanes=4, long=True)
async def both_engines_at_once(tb: TB):
    """Runs of both directions in flight: each interrupt finds its own."""
    for mode in ("msix", "intx"):
        driver, h2c, c2h = await _ready(tb, mode)
        for _ in range(6):
            sources, targets = _copies(tb, tb.rng.randint(1, 12))
            await h2c.start(_to_card(sources))
            await c2h.start(_to_host(targets))
            served: list[Engine] = []
            while len(served) < 2:
                served += await driver.serve()
            assert set(served) == {h2c, c2h}
        await _silence(tb, driver)
        await driver.close()
        tb.messages.clear()
        await tb.pci.set_master()


@bench(us=4000, lanes=4, long=True)
async def timeouts(tb: TB):
    """A run is given up at any time and its memory reused; the next one is whole."""
    for mode in ("msix", "poll"):
        tb.messages.clear()
        driver, h2c, c2h = await _ready(tb, mode)
        for engine in driver.engines:
            engine.word.data = bytes(32)
        tb.host.latency_ns = (0, 1500)
        for _ in range(10):
            engine = tb.rng.choice((h2c, c2h))
            victim = tb.buffer(4096)
            pieces = [(victim.address + n, n, 1024) for n in range(0, 4096, 1024)]
            transfers = [
                Transfer(card, host, size) if engine.c2h else Transfer(host, card, size)
                for host, card, size in pieces
            ]
            await engine.start(transfers)
            await Timer(tb.rng.randint(1, 3000), "ns")
            await engine.time_out()
            await Timer(SILENCE_US, "us")
            # What had come until then, and the end, is found and thrown away.
            while (await engine.play("R +0044"))[0] & BUSY:
                await Timer(tb.device.clock_ns, "ns")
            kept = victim.data
            if mode == "msix":
                while driver.handled < len(tb.messages):
                    await driver.top_half()
                    await driver.unmask(engine)
            engine.word.data = bytes(32)
            await _there_and_back(tb, driver, h2c, c2h, 3)
            victim.expect(kept)
        tb.host.latency_ns = (0, 0)
        await _silence(tb, driver)
        await driver.close()
        await tb.pci.set_master()


@bench(us=2000, lanes=4, long=True)
async def close_open_offline_online(tb: TB):
    """Removing and probing again, and going offline with a transfer live, leave nothing behind."""
    for mode in ("msix", "intx", "poll", "msi"):
        tb.messages.clear()
        tb.host.intx.asserts = 0
        driver, h2c, c2h = await _ready(tb, mode)
        for engine in driver.engines:
            engine.word.data = bytes(32)
        await _there_and_back(tb, driver, h2c, c2h, 4)
        victim = tb.buffer(16384)
        await c2h.start([Transfer(0, victim.address, 16384)])
        await driver.offline()
        await Timer(SILENCE_US, "us")
        await play(tb, "R 2044 00000000")
        for engine in driver.engines:
            await engine.play("R +0044")
            engine.word.data = bytes(32)
        driver.handled = len(tb.messages)
        await driver.online()
        await _there_and_back(tb, driver, h2c, c2h, 4)
        await driver.close()
        await tb.pci.set_master()
        await play(tb, "R 2010 00000000\nR 20a0 00000000\nR 2080 00000000")


@bench(us=1000, lanes=4)
async def flushed_list(tb: TB):
    """A list whose descriptors all carry Completed: the count tells how far it is, Run ends it."""
    driver, _, c2h = await _ready(tb, "msix")
    targets = [tb.buffer(512) for _ in range(12)]
    await c2h.start(_to_host(targets), flags=FLUSH)
    seen = 0
    while seen < 5:
        assert await driver.top_half() == [c2h]
        (status,) = await c2h.play("R +0044")
        assert status & 0x4, f"status {status:#x} with the interrupt"
        (count,) = await c2h.play("R +0048")
        assert count > seen
        seen = count
        await driver.unmask(c2h)
    await c2h.time_out()
    await Timer(SILENCE_US, "us")
    (status,) = await c2h.play("R +0040")
    assert not status & 1


@bench(us=1000)
async def ioctls(tb: TB):
    """Address mode and performance: a ring without Stop that runs until it is told to stop."""
    driver, h2c, _ = await _ready(tb, "msix")
    await h2c.play("W +0008 02000000\nR +004c 00010140\nW +000c 02000000\nR +004c 00010140")
    source = tb.buffer(64)
    count = 16
    where = h2c.lay_out([Transfer(source.address, 64 * n, 64) for n in range(count)])
    table = bytearray(h2c.ring.data)
    for n in range(count):
        following = h2c.ring.address + 32 * ((n + 1) % count)
        table[32 * n : 32 * n + 4] = 0xAD4B_0000.to_bytes(4, "little")
        table[32 * n + 24 : 32 * n + 32] = following.to_bytes(8, "little")
    h2c.ring.data = bytes(table)
    await h2c.play("W +00c0 00000002\nR +0000\nW +00c0 00000005\nR +0000")
    await h2c.play("W +4080 {lo}\nW +4084 {hi}\nW +4088 00000000", lo=where["lo"], hi=where["hi"])
    await h2c.play("W +0090 {mask}\nW +0004 00f83e1f\nR +0040\nR +0040 00000001", mask=PERF_MASK)
    await Timer(20, "us")
    found = await h2c.play(
        "W +0004 00f83e1e\nR +0048\nR +00c8\nR +00c4\nR +00d0\nR +00cc\nR +00d8\nR +00d4"
    )
    done, high, cycles, beats_high, beats, *pending = found
    assert done > count, "the ring has not gone round"
    assert (high, beats_high, pending) == (0, 0, [0, 0])
    # 20 us and a little, with 8 beats for each descriptor, and some on the way when it stopped.
    assert 20_000 <= cycles * tb.device.clock_ns <= 24_000
    assert 8 * done <= beats <= 8 * (done + 40)
    # The end interrupts, once. No engine runs that the driver knows of: it clears the status.
    assert await driver.top_half() == [h2c]
    assert not (await h2c.play("R +0044"))[0] & BUSY
    await driver.unmask(h2c)
    await _silence(tb, driver)
