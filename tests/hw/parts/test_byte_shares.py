# SPDX-License-Identifier: BSD-2-Clause
"""`hw.parts.byte_shares`: a round robin whose clients get as many bytes as each other."""

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.parts.byte_shares import ByteShares
from hw.parts.round_robin import RoundRobin
from tests.hw.helpers import seeded, simulate
from tests.hw.parts.shares import Shares

MOST, EXTRA = 512, 48


class Turns(wiring.Component):
    """A round robin whose turns are by bytes."""

    def __init__(self, count):
        super().__init__(
            {
                "requests": In(count),
                "ready": In(1),
                "length": In(range(MOST + 1)),
                "grant": Out(range(count)),
                "served": Out(count),
                "allowed": Out(count),
            }
        )
        self._count = count

    def elaborate(self, platform):
        m = Module()
        m.submodules.shares = shares = ByteShares(self._count, most=MOST, extra=EXTRA)
        m.submodules.round_robin = round_robin = RoundRobin(self._count)
        m.d.comb += [
            shares.requests.eq(self.requests),
            shares.length.eq(self.length),
            shares.served.eq(self.served),
            self.allowed.eq(shares.allowed),
            round_robin.requests.eq(self.requests & shares.allowed),
            round_robin.advance.eq(self.served.any()),
            self.grant.eq(round_robin.grant),
        ]
        for number in range(self._count):
            mine = round_robin.requests[number] & (round_robin.grant == number)
            m.d.comb += self.served[number].eq(self.ready & mine)
        return m


def served_by(sizes, cycles, *, every=2):
    """Who is served, if all clients always wait with requests of their sizes, one by one."""
    dut, order = Turns(len(sizes)), []

    async def bench(ctx):
        ctx.set(dut.requests, sum(bool(size) << n for n, size in enumerate(sizes)))
        for cycle in range(cycles):
            ctx.set(dut.ready, cycle % every == 0)
            ctx.set(dut.length, sizes[ctx.get(dut.grant)])
            if ctx.get(dut.served):
                order.append(ctx.get(dut.grant))
            await ctx.tick()

    simulate(dut, bench)
    return order


@pytest.mark.parametrize("size", [16, 100, 512])
@pytest.mark.parametrize("every", [1, 2])
def test_requests_of_one_size_take_turns(size, every):
    order = served_by([size] * 4, 400, every=every)
    assert order == [(1 + n) % 4 for n in range(400 // every)]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_one_alone_never_waits(every):
    assert served_by([0, 64, 0], 500, every=every) == [1] * (500 // every)


@pytest.mark.parametrize("sizes", [(64, 512, 512, 512), (512, 1), (16, 100, 333, 512), (64, 128)])
def test_bytes_are_shared(sizes):
    """At any time all have had as much, but for a round and the largest request."""
    order = served_by(sizes, 3000)
    had, shares = [0] * len(sizes), Shares(len(sizes), EXTRA)
    for client in order:
        had[client] += shares.charge(sizes[client])
        assert max(had) - min(had) < shares.ROUND + shares.charge(MOST)
    assert min(had) > 20 * shares.ROUND


def test_small_requests_beside_large_ones_to_the_cycle():
    """5 of 64 bytes, which count 7 units, for each one of 512, which counts 35."""
    order = served_by((64, 512), 2 * 60)
    # Turns until one has had a round of 64 units, then the other's rest. Of the large ones ever
    # more is taken off in the next round, until one of them is enough for that.
    expected = "lsl" + 9 * "s" + 4 * ("lsl" + 8 * "s") + "lsss"
    assert "".join("sl"[client] for client in order) == expected


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_rule(count):
    """Whatever comes, and whatever is withdrawn: who may be served, in each cycle."""
    rng, dut = seeded(), Turns(count)

    async def bench(ctx):
        lengths, shares = [0] * count, Shares(count, EXTRA)
        for _ in range(3000):
            for n in range(count):
                if not lengths[n] and rng.random() < 0.4:
                    lengths[n] = rng.choice([rng.randint(1, 64), rng.randint(1, MOST), MOST])
                elif rng.random() < 0.01:
                    lengths[n] = 0
            ctx.set(dut.requests, sum(bool(length) << n for n, length in enumerate(lengths)))
            ctx.set(dut.ready, rng.random() < 0.6)
            ctx.set(dut.length, lengths[ctx.get(dut.grant)])
            allowed, served = shares.allowed(), ctx.get(dut.served)
            assert ctx.get(dut.allowed) == sum(each << n for n, each in enumerate(allowed))
            client = served.bit_length() - 1 if served else None
            shares.step(lengths, client)
            if client is not None:
                lengths[client] = 0
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize("sizes", [(500, 16), (512, 20), (512, 0)])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match="counted in units of 16"):
        ByteShares(2, most=sizes[0], extra=sizes[1])
