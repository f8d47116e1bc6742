# SPDX-License-Identifier: BSD-2-Clause
"""`hw.read.byte_rotator`: every rotation, with gaps and discards."""

from __future__ import annotations

import pytest

from hw.read.byte_rotator import ByteRotator
from tests.hw.helpers import RING_PLACE, further, seeded, simulate


@pytest.mark.parametrize("discards", [False, True])
def test_random_packets(discards):
    rng = seeded()
    dut = ByteRotator()

    async def bench(ctx):
        #: bytes of beats that were not discarded: (client, address) -> value
        expected = {}
        written = 0

        async def cycle(beat=None):
            nonlocal written
            ctx.set(dut.beats.valid, beat is not None)
            if beat is not None:
                ctx.set(dut.beats.payload, beat)
            discard = discards and rng.random() < 0.02
            ctx.set(dut.discard, discard)
            if ctx.get(dut.placement.valid):
                placement = ctx.get(dut.placement.payload)
                assert placement.enable
                for lane in range(8):
                    if placement.enable >> lane & 1:
                        key = placement.client, placement.address * 8 + lane
                        assert expected.pop(key) == placement.data >> 8 * lane & 0xFF
                        written += 1
            if discard:
                expected.clear()
            await ctx.tick()
            return discard

        for packet in range(300):
            # Far enough from each other to tell them apart, and across the end of the memory
            start = further(rng.choice((0, RING_PLACE)), 128 * packet + rng.randrange(8) - 8000)
            client = rng.randrange(16)
            beats = rng.choice([1, 1, 2, 3, 8])
            for index in range(beats):
                discarded = False
                while rng.random() < 0.2:
                    discarded |= await cycle()
                # The rest of a packet of which something was discarded does not come.
                if index and discarded:
                    break
                # As from a completion: only the ends of a packet have lanes without data.
                enable = 0xFF
                if index == 0:
                    enable &= 0xFF << rng.randrange(4)
                if index == beats - 1:
                    enable &= 0xFF >> rng.randrange(8)
                value = rng.getrandbits(64)
                beat = {
                    "client": client,
                    "start": start,
                    "data": value,
                    "enable": enable & 0xFF,
                    "first": index == 0,
                    "last": index == beats - 1,
                }
                for lane in range(8):
                    if enable >> lane & 1:
                        address = further(start, 8 * index + lane)
                        expected[client, address] = value >> 8 * lane & 0xFF
                if await cycle(beat):
                    break
            await cycle()
        for _ in range(3):
            await cycle()
        assert written and not expected

    simulate(dut, bench)
