# SPDX-License-Identifier: BSD-2-Clause
"""`hw.read.placement_switch`: each word, and each mark, goes to one memory only."""

from amaranth.hdl import ClockDomain, Module

from hw.read.placement_switch import PlacementSwitch
from hw.records import PLACE_BITS, CardMemory
from tests.hw.helpers import RING_PLACE, placement, seeded, simulate, write_of

FETCHES, RINGS = 4, 2


def test_random_words_and_marks():
    """The fetch is clients 0 to 3; 4 and 5 have a ring, 6 has none."""
    rng = seeded()
    dut = PlacementSwitch(FETCHES, RINGS)

    async def bench(ctx):
        for _ in range(500):
            client, reader = rng.randrange(7), rng.randrange(7)
            ring = client in (4, 5) and rng.randrange(2)
            valid, told = rng.randrange(2), rng.randrange(2)
            word = {
                "client": client,
                "memory": CardMemory.RING if ring else CardMemory.RAM,
                **write_of(rng, rng.randrange(RING_PLACE), rng.randbytes(rng.randint(1, 8))),
            }
            place = rng.getrandbits(PLACE_BITS)
            ctx.set(dut.placement.payload, word)
            ctx.set(dut.placement.valid, valid)
            ctx.set(dut.mark.payload, {"client": reader, "place": placement(place)})
            ctx.set(dut.mark.valid, told)

            targets = [dut.fetch, dut.ram, *dut.rings]
            target = 0 if client < FETCHES else client - FETCHES + 2 if ring else 1
            for index, port in enumerate(targets):
                assert ctx.get(port.valid) == (valid and index == target)
                if valid and index == target:
                    found = ctx.get(port.payload)
                    assert {name: getattr(found, name) for name in ("client", "data")} == {
                        name: word[name] for name in ("client", "data")
                    }
                    assert found.memory == word["memory"]
                    assert [list(found.rows), list(found.enable)] == [word["rows"], word["enable"]]
            for index, port in enumerate((dut.fetch_mark, *dut.marks)):
                mine = told and index == max(reader - FETCHES + 1, 0)
                assert ctx.get(port.valid) == mine
                if mine:
                    mark = ctx.get(port.payload)
                    assert (mark.client, mark.place.as_bits()) == (reader, place)
            await ctx.tick()

    clocked = Module()
    clocked.domains.sync = ClockDomain()
    clocked.submodules.dut = dut
    simulate(clocked, bench)
