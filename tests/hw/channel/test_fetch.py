# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch against the reference algorithm: driver lists, errors, flush, isolation."""

import pytest

from hw.channel.fetch import DescriptorFetch
from hw.records import Outcome
from hw.seam import WIDTHS
from peerdma import regs
from tests.hw.channel.fetch_bench import Bench, busy_bench
from tests.hw.channel.fetch_lists import (
    SIZE,
    STOP,
    Error,
    List,
    chain,
    pack,
    picoevb,
    reference,
    upstream,
    word64,
    xdma_ko,
)
from tests.hw.helpers import seeded

# Lists of the drivers -----------------------------------------------------------------------


def test_picoevb():
    rng = seeded()

    async def scenario(side):
        for _ in range(10):
            await side.finish(picoevb(rng))
            assert len(side.reads) == 1
            assert len(side.items) == 1

    busy_bench(rng).run(scenario, scenario)


@pytest.mark.parametrize("width", WIDTHS)
def test_xdma_ko(width):
    """Lists that start anywhere in a 2 KiB block."""
    rng = seeded()

    async def scenario(side):
        for length in (1, 2, 30, 64, 65, 130):
            await side.finish(xdma_ko(rng, length, rng.randrange(64)))

    busy_bench(rng, limit=rng.randrange(6)).run(scenario, scenario, width=width)


@pytest.mark.parametrize("limit", range(3))
def test_upstream(limit):
    rng = seeded()

    async def scenario(side):
        for length in (1, 32, 33, 70):
            await side.finish(upstream(rng, length))

    busy_bench(rng, limit=limit).run(scenario, scenario)


@pytest.mark.parametrize("periods", [1, 3, 32])
def test_cyclic(periods):
    """Goes round for ever; ends when flushed."""
    rng = seeded()

    async def scenario(side):
        todo = chain(rng, [1] * periods, cyclic=True)
        await side.start(todo)
        while len(side.items) < 70:
            await side.step()
        assert side.items == reference(todo, 2, most=len(side.items))[1]
        while side.active:
            await side.step(flush=1)
        await side.finish(picoevb(rng))

    busy_bench(rng).run(scenario)


@pytest.mark.parametrize(
    ("h2c", "c2h", "slots", "lists", "width"),
    [
        (1, 1, 16, 3, 64),
        (2, 2, 32, 2, 64),
        (4, 4, 32, 2, 64),
        (1, 2, 64, 3, 64),
        (1, 1, 16, 3, 128),
        (2, 2, 32, 2, 128),
        (1, 1, 16, 3, 256),
        (2, 2, 32, 2, 256),
    ],
)
def test_any_list(h2c, c2h, slots, lists, width):
    """On all channels at once: blocks of any size anywhere, across 4 KiB too, Stop inside some."""
    rng = seeded()

    async def scenario(side):
        for _ in range(lists):
            sizes = [rng.choice((1, 2, 64, rng.randrange(1, 65))) for _ in range(3)]
            todo = chain(rng, sizes, in_page=rng.random() < 0.3)
            if rng.random() < 0.5:
                todo.memory[rng.choice(tuple(todo.memory))] = pack(
                    rng, STOP, rng.randrange(64), word64(rng)
                )
            failed = rng.random() < 0.2
            failures = {rng.randrange(4): Outcome.COMPLETER_ABORT} if failed else {}
            await side.finish(todo, failures)

    count = h2c + c2h
    bench = busy_bench(rng, limit=rng.randrange(3))
    bench.run(*[scenario] * count, h2c=h2c, c2h=c2h, slots=slots, width=width, cycles=100_000)


@pytest.mark.parametrize("stop", [1, 2, 4])
def test_nothing_is_read_past_a_stop(stop):
    """However long before the Stop is taken its block has arrived."""
    rng = seeded()

    async def scenario(side):
        todo = chain(rng, [5, 5])
        address = todo.address + stop * SIZE
        todo.memory[address] = pack(rng, STOP, 4, list(todo.memory)[5])
        await side.finish(todo)
        assert sum(length for _, length in side.reads) == 5 * SIZE

    Bench(rng, consume=lambda: 100).run(scenario)


# Errors -------------------------------------------------------------------------------------


def test_bad_magic_everywhere():
    """The good ones before it, then the error with its address; the next block is not touched."""
    rng = seeded()

    async def scenario(side):
        whole = chain(rng, [20, 1, 10])
        order = list(whole.memory)
        for position, address in enumerate(order):
            block_end = next(end for end in (20, 21, 31) if position < end)
            memory = {at: whole.memory[at] for at in order[:block_end]}
            magic = regs.DESC_MAGIC ^ 1 << rng.randrange(16)
            memory[address] = pack(rng, rng.randrange(4), 63, word64(rng), magic)
            await side.finish(whole._replace(memory=memory))
            assert side.items[-1] == Error(address, Outcome.MAGIC)
            assert len(side.items) == position + 1

    busy_bench(rng, limit=rng.randrange(3)).run(scenario)


def test_errors_on_either_side_of_a_page():
    """A block must not cross 4 KiB; of one that does, an error's address is exact all the same."""
    rng = seeded()

    async def scenario(side):
        for ahead in (1, rng.randrange(2, 63), 63):
            start = (rng.randrange(1, 1 << 50) << 12) - ahead * SIZE
            at = [start + n * SIZE for n in range(64)]
            memory = {address: pack(rng) for address in at} | {at[-1]: pack(rng, STOP)}
            todo = List(start, 63, memory)
            for position in {0, ahead - 1, ahead, min(ahead + 1, 63)}:
                bad = {at[position]: pack(rng, magic=0)}
                await side.finish(todo._replace(memory=memory | bad))
                assert side.items[-1] == Error(at[position], Outcome.MAGIC)
            reads, _ = reference(todo, 1)
            for index in {0, 1, len(reads) // 2, len(reads) - 1}:
                await side.finish(todo, {index: Outcome.POISONED})
                assert side.items[-1].outcome == Outcome.POISONED

    busy_bench(rng, limit=1).run(scenario)


@pytest.mark.parametrize("ones", [0, 12, 13, 26, 39, 51])
def test_the_number_of_a_page_carries(ones):
    """Behind a page whose number ends with so many ones comes the right one."""
    rng = seeded()

    async def scenario(side):
        for _ in range(2):
            above = rng.randrange(1 << 51 - ones) << ones + 1
            start = ((above | (1 << ones) - 1) + 1 << 12) - rng.randrange(1, 64) * SIZE
            at = [(start + n * SIZE) % (1 << 64) for n in range(64)]
            memory = {address: pack(rng) for address in at} | {at[-1]: pack(rng, STOP)}
            await side.finish(List(start, 63, memory))
            assert len(side.items) == 64

    busy_bench(rng, limit=rng.randrange(3)).run(scenario, scenario)


@pytest.mark.parametrize("outcome", [Outcome.UNSUPPORTED_REQUEST, Outcome.COMPLETION_TIMEOUT])
def test_failed_reads(outcome):
    """What had arrived is good. A read behind a Stop, or behind another error, is not heard of."""
    rng = seeded()

    async def scenario(side):
        todo = chain(rng, [20, 40, 3])
        reads, _ = reference(todo, 1)
        for index, _ in enumerate(reads):
            await side.finish(todo, {index: outcome, index + 1: Outcome.POISONED})
            assert side.items[-1].outcome == outcome
        for error in (Outcome.OK, outcome):
            todo = chain(rng, [64])
            todo.memory[todo.address + 7 * SIZE] = pack(rng, STOP)
            await side.finish(todo, {1: error, 2: error})
            assert len(side.items) == 8
            todo.memory[todo.address + 7 * SIZE] = pack(rng, magic=0)
            await side.finish(todo, {1: error, 2: error})
            assert side.items[-1] == Error(todo.address + 7 * SIZE, Outcome.MAGIC)

    busy_bench(rng, limit=1).run(scenario)


@pytest.mark.parametrize("error", [None, Outcome.MAGIC, Outcome.POISONED])
def test_no_read_is_offered_past_the_end(error):
    """A read that was offered before the end of the list was known is withdrawn."""
    rng = seeded()

    async def scenario(side):
        bench, offered = side.bench, side.bench.dut.jobs[0].valid
        todo = chain(rng, [64])
        magic = regs.DESC_MAGIC ^ (error == Outcome.MAGIC)
        todo.memory[todo.address] = pack(rng, STOP, magic=magic)
        bench.ready = lambda: not side.reads
        await side.start(todo, {0: error} if error == Outcome.POISONED else {})
        while not side.under_way:
            await side.step()
        for _ in range(5):
            await side.step()
        assert bench.ctx.get(offered)
        while side.active:
            await side.step()
        await side.step()
        assert not bench.ctx.get(offered)
        assert len(side.reads) == 1
        assert side.items == reference(todo, 2, side.failed)[1]

    Bench(rng).run(scenario)


# Flush and halt -----------------------------------------------------------------------------


def test_flush_at_any_time():
    """Nothing comes out of a flush, and the list after it is as if there had been none before."""
    rng = seeded()

    async def scenario(side):
        for _ in range(12):
            todo = chain(rng, [rng.randrange(1, 65) for _ in range(3)])
            bad = rng.choice(tuple(todo.memory))
            if rng.random() < 0.3:
                todo.memory[bad] = pack(rng, magic=1)
            failures = {rng.randrange(3): Outcome.COMPLETION_TIMEOUT} if rng.random() < 0.5 else {}
            await side.start(todo, failures)
            for _ in range(rng.randrange(200)):
                await side.step()
            await side.step(flush=1)
            await side.step(flush=1)
            before = list(side.items)
            _, items = reference(todo, 1, side.failed)
            assert before == items[: len(before)]
            for _ in range(rng.choice((0, 0, 1, 50))):
                await side.step(flush=1)
            while side.active:
                await side.step()
            assert not side.under_way
            assert side.items == before
            await side.step()
            await side.finish(chain(rng, [rng.randrange(1, 20)]))

    busy_bench(rng, limit=1).run(scenario)


def test_halt():
    """Reads under way finish, descriptors come out, no read begins until halt is over."""
    rng = seeded()

    async def scenario(side):
        todo = upstream(rng, 64)
        side.halt = 1
        await side.start(todo)
        for _ in range(30):
            await side.step()
        assert not side.reads
        side.halt = 0
        while not side.reads:
            await side.step()
        side.halt = 1
        for _ in range(200):
            await side.step()
        assert len(side.reads) == 1
        assert len(side.items) == 16
        side.halt = 0
        await side.end()

    Bench(rng).run(scenario)


# Channels beside each other -----------------------------------------------------------------


@pytest.mark.parametrize("stuck", ["taken", "read", "halted"])
def test_a_stuck_channel_does_not_hold_up_another(stuck):
    """One that takes nothing, whose read never ends, or that is halted with a job on offer."""
    rng = seeded()

    async def first(side):
        offered = side.bench.dut.jobs[0].valid
        side.stalled = stuck == "halted"
        await side.start(chain(rng, [1, 2], cyclic=True))
        while stuck == "taken" and not side.items:
            await side.step()
        if stuck == "taken":
            side.busy = 1 << 30
        while stuck == "read" and not side.under_way:
            await side.step()
        if stuck == "read":
            side.under_way[0].due = 1 << 30
        while stuck == "halted" and not side.ctx.get(offered):
            await side.step()
        side.halt = stuck == "halted"
        while not (others and others[0].done):
            await side.step()

    async def second(side):
        side.done = False
        others.append(side)
        for _ in range(5):
            await side.start(chain(rng, [20, 1, 3]))
            await side.end(cycles=1000)
        side.done = True

    others = []
    Bench(rng).run(first, second)


def test_channels_take_turns():
    """Endless lists on all channels: each gets its share of what the fetch can hand on."""
    rng = seeded()

    async def scenario(side):
        sides.append(side)
        await side.start(chain(rng, [60, 3], cyclic=True))
        while len(side.items) < 240:
            await side.step()
        counts.append([len(each.items) for each in sides])

    sides, counts = [], []
    Bench(rng).run(*[scenario] * 4, h2c=2, c2h=2)
    # Whose words come first is random: not seldom, one has two thirds of what another has.
    assert min(counts[0]) > 100, counts[0]


# Speed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_latency(width):
    """With one channel at work: start to job, word to descriptor, block to block."""
    rng = seeded()

    async def scenario(side):
        todo = chain(rng, [16, 1, 5, 1])
        for _ in range(rng.randrange(2)):
            await side.step()
        await side.finish(todo)
        assert side.read_times[0] == side.started + 3
        sizes = [length // SIZE for _, length in side.reads]
        assert sizes == [16, 1, 5, 1]
        for index in (1, 3):
            # Last word and its mark, the descriptor's three parts a cycle behind each other.
            item = side.item_times[sum(sizes[:index])]
            assert item == side.arrived_times[index] + 4
        for index in range(3):
            # Descriptors come first, which arrive faster than they are handed on if words are wide.
            handed = side.item_times[sum(sizes[: index + 1]) - 1]
            known = side.arrived_times[index] if width == 64 else handed
            assert side.read_times[index + 1] <= known + 12

    Bench(rng, shuffle=False).run(scenario, width=width)


@pytest.mark.parametrize("build", [upstream, xdma_ko])
def test_never_starves_the_channels(build):
    """Both take one in 22 cycles, reads take 540: only the first one is waited for."""
    rng = seeded()

    async def scenario(side):
        await side.start(build(rng, 150))
        while not side.items:
            await side.step()
        side.starved = 0
        while len(side.items) < 150:
            await side.step()
        # The cycles from a visit to the first part of each.
        assert side.starved < 6 * 150

    Bench(rng, latency=lambda: 540, consume=lambda: 16, shuffle=False).run(scenario, scenario)


@pytest.mark.parametrize("slots", [0, 8, 24, 33])
def test_slots_are_checked(slots):
    with pytest.raises(ValueError, match=f"power of two, at least 16, not {slots}"):
        DescriptorFetch(h2c=1, c2h=1, width=64, slots=slots)


def test_the_number_of_channels_is_checked():
    with pytest.raises(ValueError, match="at least two channels are needed, not 1"):
        DescriptorFetch(h2c=1, c2h=0, width=64)
