# SPDX-License-Identifier: BSD-2-Clause
"""`hw.read.placement_switch`: each word, and each mark, goes to one memory only."""

import pytest
from amaranth.hdl import ClockDomain, Module

from hw.read.placement_switch import PlacementSwitch
from hw.records import PLACE_BITS, CardMemory
from hw.seam import WIDTHS
from tests.hw.helpers import RING_PLACE, placement, seeded, simulate, write_of

FETCHES, RINGS = 4, 2


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("launch_queues", [False, True])
def test_random_words_and_marks(launch_queues, width):
    """The fetch is clients 0 to 3; behind it launch queues, two with a ring, one without."""
    rng = seeded()
    dut = PlacementSwitch(FETCHES, RINGS, width=width, launch_queues=launch_queues)
    data = FETCHES + launch_queues

    async def bench(ctx):
        for _ in range(500):
            client, reader = rng.randrange(data + 3), rng.randrange(data + 3)
            ring = client in (data, data + 1) and rng.randrange(2)
            valid, told, size = rng.randrange(2), rng.randrange(2), rng.randint(1, width // 8)
            word = {
                "client": client,
                "memory": CardMemory.RING if ring else CardMemory.RAM,
                **write_of(rng, rng.randrange(RING_PLACE), rng.randbytes(size), width),
            }
            place = rng.getrandbits(PLACE_BITS)
            ctx.set(dut.placement.payload, word)
            ctx.set(dut.placement.valid, valid)
            ctx.set(dut.mark.payload, {"client": reader, "place": placement(place)})
            ctx.set(dut.mark.valid, told)

            targets = [dut.fetch, *dut.rings, dut.ram, *([dut.launch] if launch_queues else [])]
            if client < FETCHES:
                target = dut.fetch
            elif client < data:
                target = dut.launch
            else:
                target = dut.rings[client - data] if ring else dut.ram
            for port in targets:
                assert ctx.get(port.valid) == (valid and port is target)
                if valid and port is target:
                    found = ctx.get(port.payload)
                    assert {name: getattr(found, name) for name in ("client", "data")} == {
                        name: word[name] for name in ("client", "data")
                    }
                    assert found.memory == word["memory"]
                    assert [list(found.rows), list(found.enable)] == [word["rows"], word["enable"]]
            for number, port in enumerate((dut.fetch_mark, *dut.marks), data - 1):
                mine = told and (reader == number if number >= data else reader < FETCHES)
                assert ctx.get(port.valid) == mine
                if mine:
                    mark = ctx.get(port.payload)
                    assert (mark.client, mark.place.as_bits()) == (reader, place)
            await ctx.tick()

    clocked = Module()
    clocked.domains.sync = ClockDomain()
    clocked.submodules.dut = dut
    simulate(clocked, bench)
