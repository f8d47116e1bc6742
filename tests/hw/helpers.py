# SPDX-License-Identifier: BSD-2-Clause
"""What the gateware tests share: a seed, a simulation, and the ends of streams."""

from __future__ import annotations

import os
import random

from amaranth.sim import Simulator

from hw.records import OFFSET_BITS, RAM_ADDRESS_BITS, CardMemory, PlacementAddress

#: Placement addresses, as numbers: where rings begin, and that of the next pair's ring.
RING_PLACE = PlacementAddress.const({"memory": CardMemory.RING}).as_bits()
PAIR_PLACE = PlacementAddress.const({"pair": 1}).as_bits()


def seeded() -> random.Random:
    """A generator whose seed is printed, and taken from the environment variable SEED if set."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"SEED={seed}")
    return random.Random(seed)


def simulate(dut, *benches, background=(), cycles=100_000):
    """Run `benches` (async functions of the simulator context) to their end, on one clock.

    Those in `background` run beside them and may be endless. Fails if the benches are not done
    after `cycles`.
    """
    left = len(benches)

    def counted(bench):
        async def run(ctx):
            nonlocal left
            await bench(ctx)
            left -= 1

        return run

    async def watchdog(ctx):
        await ctx.delay(cycles * 1e-6)
        raise TimeoutError(f"{left} of {len(benches)} benches not done after {cycles} cycles")

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for bench in benches:
        sim.add_testbench(counted(bench))
    for bench in (watchdog, *background):
        sim.add_testbench(bench, background=True)
    sim.run()


async def send(ctx, stream, payloads, pause=lambda: 0):
    """Send payloads through a stream, each after `pause()` idle cycles."""
    for payload in payloads:
        for _ in range(pause()):
            await ctx.tick()
        ctx.set(stream.payload, payload)
        ctx.set(stream.valid, 1)
        await ctx.tick().until(stream.ready)
        ctx.set(stream.valid, 0)


class Driver:
    """Sets what nobody else does, and only what changes: all logic settles after each `ctx.set`."""

    def __init__(self, ctx):
        self._ctx = ctx
        #: by identity: what is driven, and its value
        self._driven: dict[int, tuple[object, object]] = {}

    def __call__(self, signal, value):
        """Sets a signal or a struct, which has to be the same object each time."""
        if self._driven.get(id(signal), (None, None))[1] != value:
            self._ctx.set(signal, value)
            self._driven[id(signal)] = signal, value


def placement(number):
    """A `PlacementAddress` of that number, as `ctx.set` wants it."""
    return {
        "offset": number % (1 << OFFSET_BITS),
        "pair": number >> OFFSET_BITS & (1 << RAM_ADDRESS_BITS - OFFSET_BITS) - 1,
        "memory": number >> RAM_ADDRESS_BITS & 1,
    }


def further(place: int, count: int, bits: int = OFFSET_BITS) -> int:
    """A placement address, as a number, `count` bytes further in a memory of ``2**bits`` bytes."""
    size = 1 << bits
    return place - place % size + (place + count) % size


def write_of(rng, address: int, data: bytes, width: int = 64) -> dict:
    """Of a placement that writes `data`, a word at most, from a byte address on: bytes and rows.

    What is not enabled is noise. Rows wrap at the end of the memory, as their bits do.
    """
    lanes = width // 8
    word, shift = divmod(address, lanes)
    values, enable = bytearray(rng.randbytes(lanes)), [0, 0]
    for n, value in enumerate(data, shift):
        values[n % lanes] = value
        enable[(word + n // lanes) % 2] |= 1 << n % lanes
    rows = [row % (RING_PLACE // (2 * lanes)) for row in ((word + 1) // 2, word // 2)]
    return {"rows": rows, "data": int.from_bytes(values, "little"), "enable": enable}


def bytes_of(placed, width: int = 64) -> list[tuple[int, int]]:
    """What a sampled placement writes: (byte address in its memory, value) each."""
    lanes = width // 8
    # Looked up once: each field of a sampled struct costs some 20 µs.
    rows, enable, data = list(placed.rows), list(placed.enable), placed.data
    return [
        ((2 * rows[bank] + bank) * lanes + lane, data >> 8 * lane & 0xFF)
        for bank in range(2)
        for lane in range(lanes)
        if enable[bank] >> lane & 1
    ]


def watch(stream, log):
    """A background bench that appends (cycle, payload) of each transfer to `log`."""

    async def run(ctx):
        cycle = 0
        async for _, _, payload, moved in ctx.tick().sample(
            stream.payload, stream.valid & stream.ready
        ):
            if moved:
                log.append((cycle, payload))
            cycle += 1

    return run


def toggle(signal, choose):
    """A background bench that drives `signal` with `choose()` in every cycle."""

    async def run(ctx):
        while True:
            ctx.set(signal, choose())
            await ctx.tick()

    return run


def fields(value) -> dict[str, int]:
    """The fields of a sampled struct as integers."""
    found = {name: getattr(value, name) for name, _ in value.shape()}
    return {name: int(getattr(field, "value", field)) for name, field in found.items()}


def packets(log, width: int = 64) -> list[tuple]:
    """The packets in a `watch` log of a seam stream: (cycles of the beats, header, data) each.

    Fails unless `first` and `last` frame them and the header is constant.
    """
    done, header = [], None
    for cycle, beat in log:
        now = fields(beat.header)
        assert beat.first == (header is None), "first in the middle, or none at the start"
        if header is None:
            times, data = [], b""
        else:
            assert header == now, "the header changed"
        header = None if beat.last else now
        times.append(cycle)
        data += beat.data.to_bytes(width // 8, "little")
        if beat.last:
            done.append((times, now, data))
    assert header is None, "the last packet has no end"
    return done
