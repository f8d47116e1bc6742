# SPDX-License-Identifier: BSD-2-Clause
"""The core at the seam, with another owner's runs beside those of software's registers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from hw.core import Core, CoreConfig
from hw.pcie.series7.block import SERIES7
from hw.records import Outcome
from hw.stream.user_blocks import PassThrough
from peerdma import regs
from tests.hw.helpers import seeded, simulate
from tests.hw.owner import Owner
from tests.hw.seam_model import SeamModel, descriptors_of, finish, transfer
from tests.hw.seam_model import start as start_list

BASE = 0x12_3456_0000
#: In the model's memory: source and destination of software's runs, then what the owner has.
SOURCE, DESTINATION, OWNED, OWNED_SOURCE, OWNED_DESTINATION = (0x1000 * n for n in range(1, 6))
SIZE = 0x6000
SMALL = CoreConfig(tags=8, ram_size=4096, user=None)
#: Card addresses from which software and the owner use the card's RAM.
HOSTS_RAM, OWNERS_RAM = 0, 2048


def shared(**config) -> SeamModel:
    return SeamModel(Core(SERIES7, replace(SMALL, **config), shared=True), BASE, SIZE)


def owners(model) -> list[Owner]:
    """Of the H2C and of the C2H channel."""
    return [Owner(port) for port in model.core.owners]


def cut(rng, size: int, at: int, to: int) -> list[tuple[int, int, int]]:
    """Random descriptors, (source, destination, length) each, that move `size` bytes."""
    cuts = sorted({0, size, *(rng.randrange(size + 1) for _ in range(rng.randrange(5)))})
    return [(at + a, to + a, b - a) for a, b in pairwise(cuts)]


async def owned(ctx, model, owner, spans, *, pushed: int, at: int = OWNED):
    """A run of an owner, whose first descriptors are pushed; how it ended."""
    table = descriptors_of(spans, BASE + at)
    model.memory[at : at + table.nbytes] = bytes(32 * pushed) + table[pushed:].tobytes()
    last = min(len(spans), pushed)
    return await owner.run(ctx, BASE + at, 0, table[:pushed] if last else None)


async def error_info(ctx, model) -> int:
    return await model.read(ctx, regs.EXTENSION.address("error_info"))


async def status(ctx, model, c2h: bool) -> int:
    base = regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base
    return await model.read(ctx, base + regs.CHANNEL["status"].offset)


def test_both_owners_copy_at_the_same_time():
    """In both directions, fetched and pushed: each has its data, and software its registers."""
    rng, model = seeded(), shared()
    rounds, order = 6, []

    async def host(ctx):
        await model.link_up(ctx)
        for _ in range(rounds):
            size = rng.randrange(1, 1500)
            data = rng.randbytes(size)
            model.memory[SOURCE : SOURCE + size] = data
            ways = (
                (False, BASE + SOURCE, HOSTS_RAM, regs.CHANNEL.base),
                (True, HOSTS_RAM, BASE + DESTINATION, regs.C2H_CHANNEL_BASE),
            )
            for c2h, source, destination, base in ways:
                spans = cut(rng, size, source, destination)
                pushed = rng.randrange(min(4, len(spans)) + 1)
                found = await transfer(ctx, model, c2h=c2h, descriptors=spans, pushed=pushed)
                assert found == regs.Status.DESCRIPTOR_STOPPED
                count = await model.read(ctx, base + regs.CHANNEL["completed_count"].offset)
                assert count == len(spans)
                order.append("host")
            assert model.memory[DESTINATION : DESTINATION + size] == data
        assert await error_info(ctx, model) == 0

    async def owner(ctx):
        await ctx.tick().repeat(10)
        ends = owners(model)
        for _ in range(3 * rounds):
            size = rng.randrange(1, 600)
            data = rng.randbytes(size)
            model.memory[OWNED_SOURCE : OWNED_SOURCE + size] = data
            for one, source, destination in (
                (ends[0], BASE + OWNED_SOURCE, OWNERS_RAM),
                (ends[1], OWNERS_RAM, BASE + OWNED_DESTINATION),
            ):
                spans = cut(rng, size, source, destination)
                pushed = rng.randrange(min(4, len(spans)) + 1)
                end = await owned(ctx, model, one, spans, pushed=pushed)
                assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, len(spans))
                order.append("owner")
            assert model.memory[OWNED_DESTINATION : OWNED_DESTINATION + size] == data

    simulate(model.core, host, owner, background=model.benches, cycles=200_000)
    assert {"host", "owner"} <= set(order[: 2 * rounds]), "they did not run beside each other"


def start(model, *, c2h: bool, at: int) -> int:
    """Starts software's run of the list at a place in memory; where the channel's Control is."""
    base = regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base
    lists = regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base
    for name, value in (("descriptor_lo", BASE + at), ("descriptor_hi", BASE + at >> 32)):
        model.write(lists + regs.SGDMA[name].offset, value & 0xFFFF_FFFF)
    control = base + regs.CHANNEL["control"].offset
    model.write(control, regs.CHANNEL["control"].field("run").put(1))
    return control


def test_aborts_of_either_at_any_time():
    """When a run has ended, nothing of it is written any more, and the next one is whole."""
    rng, model = seeded(), shared()
    aborted = {"host": 0, "owner": 0}

    def table(at, to):
        """A list of its own for each side, that writes to its own place."""
        spans = [(256 * n, BASE + to + 256 * n, 256) for n in range(8)]
        lists = descriptors_of(spans, BASE + at)
        model.memory[at : at + lists.nbytes] = lists.tobytes()

    def clear(to):
        model.memory[to : to + 2048] = bytes(2048)

    async def nothing_comes(ctx, to):
        clear(to)
        await ctx.tick().repeat(rng.randrange(1, 40))
        assert not any(model.memory[to : to + 2048])

    async def host(ctx):
        await model.link_up(ctx)
        spans = [(BASE + SOURCE, 0, 2048)]
        model.memory[SOURCE : SOURCE + 2048] = data
        await transfer(ctx, model, c2h=False, descriptors=spans)
        table(0x800, DESTINATION)
        for _ in range(12):
            control = start(model, c2h=True, at=0x800)
            await ctx.tick().repeat(rng.randrange(1, 400))
            model.write(control, 0)
            while await status(ctx, model, True) & regs.Status.BUSY:
                pass
            aborted["host"] += model.memory[DESTINATION : DESTINATION + 2048] != data
            await nothing_comes(ctx, DESTINATION)
        start(model, c2h=True, at=0x800)
        while await status(ctx, model, True) & regs.Status.BUSY:
            await ctx.tick()
        assert model.memory[DESTINATION : DESTINATION + 2048] == data

    async def owner(ctx):
        await ctx.tick().repeat(600)
        table(OWNED, OWNED_DESTINATION)
        one = owners(model)[1]
        for _ in range(12):
            await one.grant(ctx)
            await one.begin(ctx, BASE + OWNED)
            await ctx.tick().repeat(rng.randrange(1, 400))
            if ctx.get(one.port.started):
                ctx.set(one.port.request, 0)
                end = await one.end(ctx)
                aborted["owner"] += end.aborted
            ctx.set(one.port.request, 0)
            await nothing_comes(ctx, OWNED_DESTINATION)
        end = await one.run(ctx, BASE + OWNED)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 8)
        assert model.memory[OWNED_DESTINATION : OWNED_DESTINATION + 2048] == data

    data = rng.randbytes(2048)
    simulate(model.core, host, owner, background=model.benches, cycles=200_000)
    assert all(aborted.values()), "no run was aborted"


def test_long_runs_of_software_are_interrupted_for_an_owner():
    """Twice at least, behind descriptors of any size: no data and no register shows it."""
    rng, half = seeded(), 12288
    credits = rng.random() < 0.5
    config = replace(SMALL, ram_size=32768)
    model = SeamModel(Core(SERIES7, config, shared=True), BASE, 0xA000)
    lists, source, destination, others = 0x1000, 0x2000, 0x5000, 0x8000
    fields = [regs.EXTENSION["waits_for"].field(name) for name in ("h2c0", "c2h0")]
    #: of each channel, how many times software's run began to wait for the owner
    waits = [0, 0]

    async def give(ctx, c2h, descriptors):
        """Credits for a run that is started, some at a time."""
        channel = regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base
        while descriptors > 0:
            count = min(descriptors, rng.randrange(1, 20))
            model.write(channel + regs.SGDMA["descriptor_credits"].offset, count)
            descriptors -= count
            await ctx.tick().repeat(rng.randrange(1, 400))

    async def host(ctx):
        await model.link_up(ctx)
        if credits:
            model.write(regs.SGDMA_COMMON.address("credit_enable"), 0x0001_0001)
        model.memory[source : source + half] = rng.randbytes(half)
        for c2h in (False, True):
            cuts = [0]
            while cuts[-1] < half:
                cuts.append(min(half, cuts[-1] + rng.randint(half // 64, 512)))
            spans = [
                (at, BASE + destination + at, to - at) if c2h else (BASE + source + at, at, to - at)
                for at, to in pairwise(cuts)
            ]
            pushed = rng.choice((0, 4))
            channel = start_list(model, c2h=c2h, descriptors=spans, pushed=pushed)
            if credits:
                await give(ctx, c2h, len(spans) - pushed)
            assert await finish(ctx, model, channel) == regs.Status.DESCRIPTOR_STOPPED
            count = await model.read(ctx, channel + regs.CHANNEL["completed_count"].offset)
            assert count == len(spans)
        copied = model.memory[destination : destination + half]
        assert copied == model.memory[source : source + half]

    def owner(c2h):
        async def run(ctx):
            await ctx.tick().repeat(10)
            one, place = owners(model)[c2h], others + 0x1000 * c2h
            while True:
                ends_of_it = (half, BASE + place), (BASE + place, half + 1024)
                spans = [(*ends_of_it[not c2h], rng.randrange(1, 500))] * rng.randrange(1, 3)
                end = await owned(
                    ctx, model, one, spans, pushed=rng.randrange(2), at=lists + 0x800 * c2h
                )
                assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, len(spans))

        return run

    async def watch(ctx):
        before = [False, False]
        async for _, _, value in ctx.tick().sample(model.core.waits_for):
            now = [field.get(value) == regs.WaitsFor.GRANT for field in fields]
            for number in range(2):
                waits[number] += now[number] and not before[number]
            before = now

    background = *model.benches, owner(False), owner(True), watch
    simulate(model.core, host, background=background)
    # Once at the start, perhaps; then behind 4 KiB, and two descriptors that are handed on by then.
    assert min(waits) >= 2


@pytest.mark.parametrize("c2h", [False, True])
def test_software_sees_that_its_run_waits_and_for_what(c2h):
    model = shared()
    field = regs.EXTENSION["waits_for"].field("c2h0" if c2h else "h2c0")
    ends = (HOSTS_RAM, BASE + DESTINATION) if c2h else (BASE + SOURCE, HOSTS_RAM)

    async def waits_for(ctx):
        value = await model.read(ctx, regs.EXTENSION.address("waits_for"))
        assert value & ~field.mask == 0
        return field.get(value)

    async def bench(ctx):
        await model.link_up(ctx)
        owner = owners(model)[c2h]
        await owner.grant(ctx)
        assert await waits_for(ctx) == regs.WaitsFor.NOTHING
        assert await status(ctx, model, c2h) == 0
        model.memory[:32] = descriptors_of([(*ends, 64)], BASE).tobytes()
        start(model, c2h=c2h, at=0)
        assert await waits_for(ctx) == regs.WaitsFor.GRANT
        assert await status(ctx, model, c2h) == regs.Status.BUSY
        ctx.set(owner.port.request, 0)
        while await status(ctx, model, c2h) & regs.Status.BUSY:
            pass
        assert await waits_for(ctx) == regs.WaitsFor.NOTHING

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("c2h", [False, True])
def test_errors_of_the_owner_are_not_captured(c2h):
    """Not its lists', nor those of its reads and writes; software's next error is the first one."""
    model = shared()
    card = OWNERS_RAM
    span = (card, BASE + OWNED_DESTINATION, 300) if c2h else (BASE + OWNED_SOURCE, card, 300)
    outside = (0x10_0000, BASE, 64) if c2h else (BASE, 0x10_0000, 64)
    mine = (HOSTS_RAM, BASE + DESTINATION, 64) if c2h else (BASE + SOURCE, HOSTS_RAM, 64)

    async def bench(ctx):
        await model.link_up(ctx)
        owner = owners(model)[c2h]
        model.memory[OWNED : OWNED + 32] = bytes(32)
        end = await owner.run(ctx, BASE + OWNED)
        assert (end.outcome, end.descriptor, end.count) == (Outcome.MAGIC, 1, 0)
        end = await owned(ctx, model, owner, [span, outside], pushed=0)
        assert (end.outcome, end.count) == (Outcome.DECODE, 1)
        ctx.set(model.seam.link.bus_master, 0)
        for pushed in (0, 1):
            end = await owned(ctx, model, owner, [span], pushed=pushed)
            assert (end.outcome, end.descriptor) == (Outcome.BUS_MASTER_OFF, not pushed)
        assert await status(ctx, model, c2h) == 0
        assert await error_info(ctx, model) == 0
        found = await transfer(ctx, model, c2h=c2h, descriptors=[mine], pushed=1)
        assert found & regs.Status.errors()
        kind = regs.EXTENSION["error_info"].field("kind")
        assert kind.get(await error_info(ctx, model)) == regs.ErrorKind.BUS_MASTER_OFF
        ctx.set(model.seam.link.bus_master, 1)
        end = await owned(ctx, model, owner, [span], pushed=0)
        assert (end.outcome, end.count) == (Outcome.OK, 1)

    simulate(model.core, bench, background=model.benches)


def test_a_broken_copy_of_either_leaves_the_pair_clean():
    """Bytes of an H2C run that failed are not in what the other owner copies."""
    rng, model = seeded(), shared(user=PassThrough)
    window = regs.STREAM_WINDOW
    data = rng.randbytes(256)

    async def bench(ctx):
        await model.link_up(ctx)
        into, back = owners(model)

        async def copy_of_host(bad):
            spans = [(BASE + SOURCE, window, 256)]
            spans += [(BASE, window - 4096, 64)] * bad
            found = await transfer(ctx, model, c2h=False, descriptors=spans)
            assert bool(found & regs.Status.errors()) == bad
            if not bad:
                descriptors = [(window, BASE + DESTINATION, 256)]
                await transfer(ctx, model, c2h=True, descriptors=descriptors)
                assert model.memory[DESTINATION : DESTINATION + 256] == data

        async def copy_of_owner(bad):
            spans = [(BASE + OWNED_SOURCE, window, 256)]
            spans += [(BASE, window - 4096, 64)] * bad
            end = await owned(ctx, model, into, spans, pushed=0)
            assert (end.outcome != Outcome.OK) == bad
            if not bad:
                end = await owned(
                    ctx, model, back, [(window, BASE + OWNED_DESTINATION, 256)], pushed=1
                )
                assert end.outcome == Outcome.OK
                assert model.memory[OWNED_DESTINATION : OWNED_DESTINATION + 256] == data

        for place in (SOURCE, OWNED_SOURCE):
            model.memory[place : place + 256] = data
        for first, second in ((copy_of_owner, copy_of_host), (copy_of_host, copy_of_owner)):
            model.memory[DESTINATION : DESTINATION + 256] = bytes(256)
            model.memory[OWNED_DESTINATION : OWNED_DESTINATION + 256] = bytes(256)
            await first(True)
            await second(False)

    simulate(model.core, bench, background=model.benches)


def test_a_soft_reset_takes_the_channel_from_the_owner():
    model = shared()

    async def bench(ctx):
        await model.link_up(ctx)
        owner = owners(model)[0]
        spans = [(BASE + OWNED_SOURCE, OWNERS_RAM, 2048)] * 8
        table = descriptors_of(spans, BASE + OWNED)
        model.memory[OWNED : OWNED + table.nbytes] = table.tobytes()
        await owner.grant(ctx)
        await owner.begin(ctx, BASE + OWNED)
        await ctx.tick().repeat(200)
        assert ctx.get(owner.port.started)
        ctx.set(owner.port.start, 0)
        model.write(regs.EXTENSION.address("soft_reset"), 1)
        for _ in range(100):
            await ctx.tick()
            if not ctx.get(owner.port.granted):
                break
        assert not ctx.get(owner.port.started)
        ctx.set(owner.port.request, 0)
        await ctx.tick().repeat(200)
        found = await transfer(ctx, model, c2h=False, descriptors=[(BASE + SOURCE, HOSTS_RAM, 64)])
        assert found == regs.Status.DESCRIPTOR_STOPPED
        end = await owned(ctx, model, owner, [(BASE + OWNED_SOURCE, OWNERS_RAM, 64)], pushed=0)
        assert (end.outcome, end.count) == (Outcome.OK, 1)

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize(("c2h", "cycles"), [(False, 9), (True, 10)])
def test_cycles_from_request_to_the_first_request_of_data(c2h, cycles):
    """Of an owner's run with a pushed descriptor, on a channel that is free."""
    model = shared()
    seen, seam = {}, model.seam
    span = (OWNERS_RAM, BASE + OWNED_DESTINATION) if c2h else (BASE + OWNED_SOURCE, OWNERS_RAM)

    async def watch(ctx):
        cycle, port = 0, model.core.owners[c2h]
        async for _, _, wanted, asked, request in ctx.tick().sample(
            port.request, seam.requester.valid, seam.requester.payload
        ):
            cycle += 1
            if wanted:
                seen.setdefault("wanted", cycle)
            if asked:
                seen.setdefault("request", (cycle, request.header.write))

    async def bench(ctx):
        await model.link_up(ctx)
        await owned(ctx, model, owners(model)[c2h], [(*span, 64)], pushed=1)

    simulate(model.core, bench, background=(*model.benches, watch))
    cycle, write = seen["request"]
    assert write == c2h
    assert cycle - seen["wanted"] == cycles
