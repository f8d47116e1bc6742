# SPDX-License-Identifier: BSD-2-Clause
"""RecordWriter: dwords that registers know, written one at a time, each source in its turn."""

import pytest
from amaranth.hdl import Cat

from hw.registers.bus import READ_LATENCY
from hw.seam import WIDTHS
from hw.write.record_writer import RecordWriter
from peerdma import regs
from tests.hw.helpers import fields, seeded, simulate

TOKEN = 0x5A
MASKED = 1 << 32
#: what is in the registers: an address above 4 GiB whose bits 1:0 do not count, and dwords
WORDS = {0x10: 0x12_3456_789B, 0x11: 0x8765_4321, 0x20: 0xFEE0_0000, 0x21: 0xFFFF_FFFE_ABCD_EF01}


def record(where, *, message=0, error=0):
    return {"where": where, "what": where + 1, "message": message, "error": error}


class Bench:
    """Registers, a sink that answers with tokens, and a log of what was written."""

    def __init__(self, sources, *, rng=None, answer=6, direct=False, width=64):
        self.dut = RecordWriter(sources, TOKEN, width=width, direct=direct)
        self.words = dict(WORDS)
        self.written = []
        self._rng, self._answer = rng, answer

    def run(self, *benches):
        simulate(self.dut, *benches, background=[self._registers, self._sink])

    def _pause(self):
        return self._rng is not None and self._rng.random() < 0.5

    async def _registers(self, ctx):
        host, bus = self.dut.host, self.dut.bus
        coming = [0] * (READ_LATENCY - 1)
        while True:
            hosts = self._pause()
            ctx.set(host.read.valid, hosts)
            ctx.set(host.read.address, 0x1234)
            _, _, valid, bar, address, enable = await ctx.tick().sample(
                bus.read.valid, bus.read.bar, bus.read.address, bus.read.enable
            )
            if hosts:
                assert (valid, address) == (1, 0x1234), "the host's read did not go through"
            elif valid:
                assert (bar, enable) == (regs.BAR_DMA[0], 0xFF)
            word = self.words.get(address, 0) if valid else 0
            coming = [0xBAD << 20 if hosts else word, *coming]
            ctx.set(bus.read.data, coming.pop())

    async def _sink(self, ctx):
        dut = self.dut
        while True:
            ready = not self._pause()
            ctx.set(dut.request.ready, ready)
            _, _, valid, beat = await ctx.tick().sample(dut.request.valid, dut.request.payload)
            if not (ready and valid):
                continue
            ctx.set(dut.request.ready, 0)
            header = fields(beat.header)
            assert beat.first and beat.last
            wide = header["dwords"] == 2
            assert (header["write"], header["dwords"], header["token"]) == (1, 1 + wide, TOKEN)
            assert (header["first_be"], header["last_be"]) == (0xF, 0xF * wide)
            assert header["relaxed"] == 0
            self.written.append((header["address"], beat.data & (1 << 32 * (1 + wide)) - 1))
            for _ in range(self._answer):
                await ctx.tick()
            ctx.set(dut.sent, 1)
            await ctx.tick()
            ctx.set(dut.sent, 0)

    async def take(self, ctx, number, payload, cycles=200):
        """Offer a record until it is taken; returns whether it was masked, and after how long."""
        source = self.dut.sources[number]
        stream = source.record
        ctx.set(stream.payload, payload)
        ctx.set(stream.valid, 1)
        for cycle in range(cycles):
            _, _, ready, masked = await ctx.tick().sample(stream.ready, source.masked)
            if ready:
                ctx.set(stream.valid, 0)
                return masked, cycle
        raise AssertionError(f"not taken within {cycles} cycles")

    async def finish(self, ctx, number):
        """Wait until the record that was taken from `number` is written."""
        for _ in range(100):
            _, _, *done = await ctx.tick().sample(*(source.done for source in self.dut.sources))
            if done[number]:
                assert sum(done) == 1
                return
        raise AssertionError("not done within 100 cycles")


@pytest.mark.parametrize(
    ("payload", "written"),
    [
        (record(0x10), (0x12_3456_7898, 0x0065_4321)),
        (record(0x10, error=1), (0x12_3456_7898, 0x8065_4321)),
        (record(0x10, message=1), (0x12_3456_7898, 0x8765_4321)),
        (record(0x20, message=1), (0xFEE0_0000, 0xABCD_EF01)),
    ],
)
def test_what_the_registers_say_is_written(payload, written):
    bench = Bench(1)
    bench.words[0x21] &= ~MASKED

    async def testbench(ctx):
        assert await bench.take(ctx, 0, payload) == (0, READ_LATENCY + 2)
        assert ctx.get(bench.dut.request.valid) and ctx.get(bench.dut.busy)
        await bench.finish(ctx, 0)
        assert not ctx.get(bench.dut.busy)
        assert bench.written == [written]

    bench.run(testbench)


def test_a_masked_message_is_taken_and_not_sent():
    bench = Bench(1)
    bench.words[0x21] |= MASKED

    async def testbench(ctx):
        for _ in range(3):
            masked, _ = await bench.take(ctx, 0, record(0x20, message=1))
            assert masked
            await ctx.tick().repeat(20)
        assert bench.written == []
        # The same bit of what goes with a count is not looked at.
        assert (await bench.take(ctx, 0, record(0x20)))[0] == 0
        await bench.finish(ctx, 0)
        assert bench.written == [(0xFEE0_0000, 0x00CD_EF01)]

    bench.run(testbench)


@pytest.mark.parametrize("after", range(1, READ_LATENCY + 4))
def test_a_withdrawn_record_is_not_sent_and_the_next_one_is_its_own(after):
    bench = Bench(1)
    taken_after = READ_LATENCY + 3

    async def testbench(ctx):
        stream = bench.dut.sources[0].record
        ctx.set(stream.payload, record(0x20))
        ctx.set(stream.valid, 1)
        await ctx.tick().repeat(after)
        ctx.set(stream.valid, 0)
        await ctx.tick()
        await bench.take(ctx, 0, record(0x10))
        await bench.finish(ctx, 0)
        expected = [(0x12_3456_7898, 0x0065_4321)]
        if after == taken_after:
            expected.insert(0, (0xFEE0_0000, 0x00CD_EF01))
        assert bench.written == expected

    bench.run(testbench)


def test_a_request_that_is_dropped_at_once_is_done():
    bench = Bench(1)
    dut = bench.dut

    async def testbench(ctx):
        for _ in range(3):
            await bench.take(ctx, 0, record(0x10))
            ctx.set(dut.request.ready, 1)
            ctx.set(dut.sent, 1)
            assert ctx.get(dut.request.valid) and ctx.get(dut.sources[0].done)
            await ctx.tick()
            ctx.set(dut.request.ready, 0)
            ctx.set(dut.sent, 0)
            assert not ctx.get(dut.request.valid) and not ctx.get(dut.busy)

    simulate(dut, testbench, background=[bench._registers])


@pytest.mark.parametrize("width", WIDTHS)
def test_sources_take_turns(width):
    rng = seeded()
    sources, turns = 5, 10
    bench = Bench(sources, rng=rng, width=width)
    for number in range(sources):
        bench.words |= {2 * number: number << 12, 2 * number + 1: 0}
    left = [turns] * sources

    def source(number):
        async def run(ctx):
            for turn in range(turns):
                bench.words[2 * number + 1] = turn
                await bench.take(ctx, number, record(2 * number), cycles=1000)
                await bench.finish(ctx, number)
                left[number] -= 1
                assert max(left) - min(left) <= 2 or 0 in left, f"somebody waits: {left}"
                for _ in range(rng.randrange(4)):
                    await ctx.tick()

        return run

    bench.run(*map(source, range(sources)))
    for number in range(sources):
        assert [data for at, data in bench.written if at == number << 12] == list(range(turns))


@pytest.mark.parametrize("width", WIDTHS)
def test_records_with_their_address_and_data_beside_those_of_registers(width):
    """Of two dwords, and the dword 1; each source hears of its own ones."""
    rng = seeded()
    bench = Bench(2, rng=rng, direct=True, width=width)
    wide = [rng.random() < 0.5 for _ in range(20)]
    own = [(0x9_0000_0000 + 8 * n, rng.getrandbits(64)) for n in range(20)]

    async def direct(ctx):
        port, taken = bench.dut.direct, 0
        for (address, data), both in zip(own, wide, strict=True):
            ctx.set(port.record.payload, {"address": address, "data": data, "wide": both})
            ctx.set(port.record.valid, 1)
            done = False
            while not done:
                _, _, ready, done, others = await ctx.tick().sample(
                    port.record.ready,
                    port.done,
                    Cat(source.done for source in bench.dut.sources),
                )
                if ready:
                    ctx.set(port.record.valid, 0)
                    taken += 1
                assert not (done and others)
        assert taken == len(own)

    def registers(number):
        async def run(ctx):
            for _ in range(10):
                await bench.take(ctx, number, record(0x10))
                await bench.finish(ctx, number)

        return run

    bench.run(direct, registers(0), registers(1))
    expected = [(at, data if both else 1) for (at, data), both in zip(own, wide, strict=True)]
    assert [each for each in bench.written if each[0] >> 32 == 9] == expected
    assert bench.written.count((0x12_3456_7898, 0x0065_4321)) == 20
