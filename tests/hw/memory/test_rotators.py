# SPDX-License-Identifier: BSD-2-Clause
"""Both rotators and the banks between them against an array of bytes, at each width."""

import pytest
from amaranth import Module
from amaranth.lib import wiring

from hw.memory.banks import Banks
from hw.memory.rotators import Get, Put
from hw.seam import WIDTHS
from tests.hw.helpers import seeded, simulate


@pytest.mark.parametrize("discards", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_put(width, discards):
    """Every byte of a beat appears in its bank, row and lane, `latency` cycles later, once."""
    rng, bits, lanes = seeded(), 10, width // 8
    dut = Put(width, bits)
    assert dut.latency == {64: 1, 128: 1, 256: 2}[width]

    async def bench(ctx):
        #: for each beat on its way: client, memory, and values by (bank, row, lane); or None
        expected = [None] * dut.latency
        appeared = 0
        for _ in range(600):
            sends = rng.random() < 0.8
            address, enable = rng.randrange(1 << bits), rng.getrandbits(lanes)
            beat = {
                "client": rng.randrange(16),
                "memory": rng.randrange(2),
                "address": address,
                "data": rng.getrandbits(width),
                "enable": enable,
            }
            discard = discards and rng.random() < 0.1
            ctx.set(dut.i.payload, beat)
            ctx.set(dut.i.valid, sends)
            ctx.set(dut.discard, discard)
            now = expected.pop(0)
            assert ctx.get(dut.o.valid) == (now is not None)
            if now is not None:
                placed = ctx.get(dut.o.payload)
                found = {
                    (bank, placed.rows[bank], lane): placed.data >> 8 * lane & 0xFF
                    for bank in range(2)
                    for lane in range(lanes)
                    if placed.enable[bank] >> lane & 1
                }
                assert (placed.client, placed.memory.value, found) == now
                appeared += 1
            places = [(address + lane) % (1 << bits) for lane in range(lanes)]
            bytes_ = {
                (place // lanes % 2, place // lanes // 2, place % lanes): beat["data"] >> 8 * lane
                & 0xFF
                for lane, place in enumerate(places)
                if enable >> lane & 1
            }
            expected.append((beat["client"], beat["memory"], bytes_) if sends else None)
            await ctx.tick()
            if discard:
                expected = [None] * dut.latency
        assert appeared > 200

    simulate(dut, bench)


class Pair(wiring.Component):
    """Two memories that are written through one `Put` and read through one `Get`."""

    def __init__(self, width, size):
        bits = (size - 1).bit_length()
        self.put, self.get = Put(width, bits), Get(width, bits, 2)
        self._banks = [Banks(size, width) for _ in range(2)]
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules += [self.put, self.get, *self._banks]
        placed = self.put.o
        for number, (banks, port) in enumerate(zip(self._banks, self.get.memories, strict=True)):
            m.d.comb += [
                banks.write.payload.eq(placed.payload),
                banks.write.valid.eq(placed.valid & (placed.payload.memory.as_value() == number)),
            ]
            wiring.connect(m, port, banks.read)
        return m


@pytest.mark.parametrize("width", WIDTHS)
def test_put_and_get(width):
    """Beats at any byte, written and read in every cycle, also across the end of a memory.

    A beat can be read in the cycle after it appeared at the banks.
    """
    rng, lanes = seeded(), width // 8
    size = 8 * lanes
    dut = Pair(width, size)
    put, get = dut.put, dut.get
    assert get.latency == {64: 1, 128: 1, 256: 2}[width]

    async def bench(ctx):
        memories = [bytearray(size), bytearray(size)]
        #: (memory, address, beat, enable) of beats that are not in the memory yet; beats being read
        writing, reading = [None] * put.latency, [None] * get.latency
        for _ in range(800):
            writes, reads = rng.random() < 0.8, rng.random() < 0.8
            address, at = rng.randrange(size), rng.randrange(size)
            target, source = rng.randrange(2), rng.randrange(2)
            beat, enable = rng.randbytes(lanes), rng.getrandbits(lanes)
            ctx.set(put.i.valid, writes)
            ctx.set(put.i.payload.memory, target)
            ctx.set(put.i.payload.address, address)
            ctx.set(put.i.payload.data, int.from_bytes(beat, "little"))
            ctx.set(put.i.payload.enable, enable)
            ctx.set(get.read, reads)
            ctx.set(get.memory, source)
            ctx.set(get.address, at)
            assert ctx.get(get.following) == (at + lanes) % size
            now = reading.pop(0)
            assert ctx.get(get.valid) == (now is not None)
            if now is not None:
                assert ctx.get(get.data).to_bytes(lanes, "little") == now
            # What is written in this cycle is read from the next one on.
            around = bytes(memories[source] * 2)
            reading.append(around[at : at + lanes] if reads else None)
            writing.append((target, address, beat, enable) if writes else None)
            if done := writing.pop(0):
                memory, begin, bytes_, enabled = done
                for lane in range(lanes):
                    if enabled >> lane & 1:
                        memories[memory][(begin + lane) % size] = bytes_[lane]
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("rotator", [Put, Get])
def test_widths_that_cannot_be(rotator):
    with pytest.raises(ValueError, match="a beat must have 64, 128 or 256 bits, not 512"):
        rotator(512, 16)
