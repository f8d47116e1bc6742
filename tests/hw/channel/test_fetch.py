# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch against the reference algorithm: driver lists, errors, flush, exact timing."""

from itertools import count

import pytest

from hw.channel.fetch import DescriptorFetch
from hw.records import Outcome
from peerdma import regs
from tests.hw.channel.fetch_bench import (
    SIZE,
    STOP,
    Bench,
    Error,
    List,
    busy_bench,
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


@pytest.mark.parametrize("c2h", [False, True])
def test_picoevb(c2h):
    rng = seeded()

    async def scenario(bench):
        for _ in range(10):
            await bench.finish(picoevb(rng))
            assert len(bench.reads) == 1
            assert len(bench.items) == 1

    busy_bench(rng).run(scenario, c2h=c2h)


def test_xdma_ko():
    """Lists that start at every index of a 2 KiB block."""
    rng = seeded()

    async def scenario(bench):
        for first in range(64):
            length = rng.choice((1, 2, 30, 64, 65, 130))
            await bench.finish(xdma_ko(rng, length, first), first % 6)

    busy_bench(rng).run(scenario, cycles=500_000)


@pytest.mark.parametrize("limit", range(6))
def test_upstream(limit):
    rng = seeded()

    async def scenario(bench):
        for length in (1, 31, 32, 33, 100):
            await bench.finish(upstream(rng, length), limit)

    busy_bench(rng).run(scenario, cycles=100_000)


@pytest.mark.parametrize("periods", [1, 2, 3, 32])
def test_cyclic(periods):
    """Goes round for ever; ends when flushed."""
    rng = seeded()

    async def scenario(bench):
        todo = chain(rng, [1] * periods, cyclic=True)
        await bench.start(todo)
        while len(bench.items) < 100:
            await bench.step()
        assert bench.items == reference(todo, 2, most=100)[1][:100]
        while bench.ctx.get(bench.dut.control.active):
            await bench.step(flush=1)
        await bench.finish(picoevb(rng))

    busy_bench(rng).run(scenario)


@pytest.mark.parametrize("slots", [16, 32, 64])
def test_any_list(slots):
    """Blocks of any size anywhere, across 4 KiB too, with Stop now and then inside a block."""
    rng = seeded()

    async def scenario(bench):
        for _ in range(8):
            sizes = [rng.choice((1, 2, 63, 64, rng.randrange(1, 65))) for _ in range(4)]
            todo = chain(rng, sizes, in_page=rng.random() < 0.3)
            if rng.random() < 0.5:
                todo.memory[rng.choice(tuple(todo.memory))] = pack(
                    rng, STOP, rng.randrange(64), word64(rng)
                )
            await bench.finish(todo, rng.randrange(8))

    busy_bench(rng).run(scenario, slots=slots, cycles=200_000)


# Errors -------------------------------------------------------------------------------------


def test_bad_magic_everywhere():
    """The good ones before it, then the error with its address; the next block is not touched."""
    rng = seeded()

    async def scenario(bench):
        whole = chain(rng, [20, 1, 40])
        order = list(whole.memory)
        for position, address in enumerate(order):
            block_end = next(end for end in (20, 21, 61) if position < end)
            memory = {at: whole.memory[at] for at in order[:block_end]}
            magic = regs.DESC_MAGIC ^ 1 << rng.randrange(16)
            memory[address] = pack(rng, rng.randrange(4), 63, word64(rng), magic)
            await bench.finish(whole._replace(memory=memory), rng.randrange(3))
            assert bench.items[-1] == Error(address, Outcome.MAGIC)
            assert len(bench.items) == position + 1

    busy_bench(rng).run(scenario, cycles=100_000)


def test_errors_on_either_side_of_a_page():
    """A block must not cross 4 KiB; of one that does, an error's address is exact all the same."""
    rng = seeded()

    async def scenario(bench):
        for ahead in (1, 5, 31, 63):
            start = (rng.randrange(1, 1 << 50) << 12) - ahead * SIZE
            at = [start + n * SIZE for n in range(64)]
            memory = {address: pack(rng) for address in at} | {at[-1]: pack(rng, STOP)}
            todo = List(start, 63, memory)
            for position in {0, ahead - 1, ahead, min(ahead + 1, 63)}:
                bad = {at[position]: pack(rng, magic=0)}
                await bench.finish(todo._replace(memory=memory | bad), rng.randrange(3))
                assert bench.items[-1] == Error(at[position], Outcome.MAGIC)
            reads, _ = reference(todo, 1)
            for index, (address, _) in enumerate(reads):
                await bench.finish(todo, 1, {index: Outcome.POISONED})
                assert bench.items[-1] == Error(address, Outcome.POISONED)

    busy_bench(rng).run(scenario)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in (Outcome.OK, Outcome.MAGIC)])
def test_failed_reads(outcome):
    """Each read of a list fails; one behind a Stop, or behind another error, is not heard of."""
    rng = seeded()

    async def scenario(bench):
        todo = chain(rng, [20, 40, 3])
        reads, _ = reference(todo, 1)
        for index, (address, _) in enumerate(reads):
            await bench.finish(todo, 1, {index: outcome})
            assert bench.items[-1] == Error(address, outcome)
            await bench.finish(todo, 1, {index: outcome, index + 1: Outcome.POISONED})
            assert bench.items[-1] == Error(address, outcome)
        for error in (Outcome.OK, outcome):
            todo = chain(rng, [64])
            todo.memory[todo.address + 7 * SIZE] = pack(rng, STOP)
            await bench.finish(todo, 1, {1: error, 2: error})
            assert len(bench.items) == 8
            todo.memory[todo.address + 7 * SIZE] = pack(rng, magic=0)
            await bench.finish(todo, 1, {1: error, 2: error})
            assert bench.items[-1] == Error(todo.address + 7 * SIZE, Outcome.MAGIC)

    busy_bench(rng).run(scenario)


@pytest.mark.parametrize("error", [None, Outcome.MAGIC, Outcome.POISONED])
def test_no_read_is_offered_past_the_end(error):
    """A read that was offered before the end of the list was known is withdrawn."""
    rng = seeded()

    async def scenario(bench):
        todo = chain(rng, [64])
        magic = regs.DESC_MAGIC ^ (error == Outcome.MAGIC)
        todo.memory[todo.address] = pack(rng, STOP, magic=magic)
        bench.ready = lambda: not bench.reads
        failures = {0: error} if error == Outcome.POISONED else {}
        await bench.start(todo, failures=failures)
        while not bench.under_way:
            await bench.step()
        await bench.step()
        await bench.step()
        assert bench.ctx.get(bench.dut.job.valid)
        while bench.under_way:
            await bench.step()
        await bench.step()
        await bench.step()
        assert not bench.ctx.get(bench.dut.job.valid)
        bench.ready = lambda: 1
        while bench.ctx.get(bench.dut.control.active):
            await bench.step()
        reads, items = reference(todo, 2, failures)
        assert (bench.reads, bench.items) == (reads[:1], items)

    Bench(rng).run(scenario)


# Flush and halt -----------------------------------------------------------------------------


def test_flush_at_any_time():
    """Nothing comes out of a flush, and the list after it is as if there had been none before."""
    rng = seeded()

    async def scenario(bench):
        for _ in range(100):
            todo = chain(rng, [rng.randrange(1, 65) for _ in range(3)])
            bad = rng.choice(tuple(todo.memory))
            if rng.random() < 0.3:
                todo.memory[bad] = pack(rng, magic=1)
            failures = {rng.randrange(3): Outcome.COMPLETION_TIMEOUT} if rng.random() < 0.5 else {}
            _, items = reference(todo, 1, failures)
            await bench.start(todo, 1, failures)
            for _ in range(rng.randrange(200)):
                await bench.step()
            await bench.step(flush=1)
            before = list(bench.items)
            assert before == items[: len(before)]
            for _ in range(rng.choice((0, 0, 1, 50))):
                await bench.step(flush=1)
            assert bench.ctx.get(bench.dut.control.active) == bool(bench.under_way)
            while bench.ctx.get(bench.dut.control.active):
                await bench.step()
            assert not bench.under_way
            assert bench.items == before
            await bench.finish(chain(rng, [rng.randrange(1, 20)]))

    busy_bench(rng).run(scenario, cycles=200_000)


def test_halt():
    """Reads under way finish, descriptors come out, no read begins until halt is over."""
    rng = seeded()

    async def scenario(bench):
        todo = upstream(rng, 64)
        bench.halt = 1
        await bench.start(todo)
        for _ in range(30):
            await bench.step()
        assert not bench.reads
        bench.halt = 0
        while not bench.reads:
            await bench.step()
        bench.halt = 1
        for _ in range(200):
            await bench.step()
        assert len(bench.reads) == 1
        assert len(bench.items) == 16
        bench.halt = 0
        while bench.ctx.get(bench.dut.control.active):
            await bench.step()
        reads, items = reference(todo, 2)
        assert (bench.reads, bench.items) == (reads, items)

    Bench(rng).run(scenario)


# Pushed descriptors -------------------------------------------------------------------------


@pytest.mark.parametrize("c2h", [False, True])
def test_pushed_and_fetched(c2h):
    """Lists that begin with pushed descriptors, and go on in memory or not, between others."""
    rng = seeded()

    async def scenario(bench):
        for _ in range(20):
            sizes = [rng.randrange(1, 5), *(rng.randrange(1, 65) for _ in range(rng.randrange(3)))]
            todo = chain(rng, sizes)
            failures = {rng.randrange(2): Outcome.POISONED} if rng.random() < 0.2 else {}
            if rng.random() < 0.3:
                bad, rest = rng.choice(tuple(todo.memory)), (rng.randrange(64), word64(rng))
                flags, magic = rng.choice(((STOP, regs.DESC_MAGIC), (0, regs.DESC_MAGIC ^ 1)))
                todo.memory[bad] = pack(rng, flags, *rest, magic)
            await bench.finish_pushed(todo, rng.randrange(3), failures)
            await bench.finish(chain(rng, [rng.randrange(1, 65)]))

    busy_bench(rng).run(scenario, c2h=c2h, cycles=200_000)


def test_incomplete_push():
    """None of them is used: a magic error, for the first descriptor that is not complete."""
    rng = seeded()

    async def scenario(bench):
        for whole in range(8):
            await bench.push(chain(rng, [4]))
            await bench.start(chain(rng, [1]), pushed={"any": 1, "whole": 0, "count": whole})
            while bench.ctx.get(bench.dut.control.active):
                await bench.step()
            assert bench.items == [Error(whole * SIZE | 1, Outcome.MAGIC)]
            assert not bench.reads
            await bench.finish_pushed(chain(rng, [2, 3]))

    Bench(rng).run(scenario)


def test_flush_of_pushed_descriptors():
    """An abort at any time drops them, and what is pushed next is what counts."""
    rng = seeded()

    async def scenario(bench):
        for cycles in range(12):
            todo = chain(rng, [4, 20])
            await bench.push(todo)
            await bench.start(todo, pushed={"any": 1, "whole": 1, "count": 4})
            for _ in range(cycles):
                await bench.step()
            while bench.ctx.get(bench.dut.control.active):
                await bench.step(flush=1)
            await bench.finish_pushed(chain(rng, [rng.randrange(1, 5), 3]))

    Bench(rng, latency=lambda: 3).run(scenario)


def test_pushed_descriptors_need_no_credits_and_ignore_halt():
    rng = seeded()

    async def scenario(bench):
        bench.halt = 1
        bench.ctx.set(bench.dut.control.credit, 0)
        await bench.finish_pushed(chain(rng, [4]))
        todo = chain(rng, [2, 1])
        await bench.push(todo)
        await bench.start(todo, pushed={"any": 1, "whole": 1, "count": 2})
        for _ in range(50):
            await bench.step()
        assert len(bench.items) == 2
        assert not bench.reads

    Bench(rng).run(scenario)


# Speed --------------------------------------------------------------------------------------


def test_latency():
    """Start to job 2 cycles, retired to descriptor 2, last of `n` retired to next block n + 2."""
    rng = seeded()

    async def scenario(bench):
        todo = chain(rng, [16, 1, 5, 1])
        await bench.finish(todo)
        assert bench.read_times[0] == bench.started + 2
        sizes = [length // SIZE for _, length in bench.reads]
        assert sizes == [16, 1, 5, 1]
        position = 0
        for index, size in enumerate(sizes):
            retired = bench.retired_times[index]
            times = bench.item_times[position : position + size]
            assert times == list(range(retired + 2, retired + 2 + size))
            position += size
            if index + 1 < len(sizes):
                assert bench.read_times[index + 1] == retired + size + 2

    Bench(rng).run(scenario)


def test_latency_of_pushed_descriptors():
    """Start to the first 2 cycles, then one per cycle; to the read behind `n` of them, n + 2."""
    rng = seeded()

    async def scenario(bench):
        for pushed in range(1, 5):
            await bench.finish_pushed(chain(rng, [pushed, 1]))
            first = bench.started + 2
            assert bench.item_times[:pushed] == list(range(first, first + pushed))
            assert bench.read_times == [first + pushed]

    Bench(rng).run(scenario)


def test_two_reads_under_way():
    """The second read of a block is issued 3 cycles behind the first, the third waits for it."""
    rng = seeded()

    async def scenario(bench):
        await bench.finish(chain(rng, [64]), limit=0)
        assert len(bench.reads) == 16
        assert bench.read_times[1] == bench.read_times[0] + 3
        for third, first in zip(bench.read_times[2:], bench.retired_times, strict=False):
            assert third > first

    Bench(rng, latency=lambda: 100, shuffle=False).run(scenario)


@pytest.mark.parametrize("build", [upstream, xdma_ko])
def test_never_starves_the_channel(build):
    """Descriptors taken every 22 cycles, reads of 320: only the first one is waited for."""
    rng = seeded()
    period, turns = 22, count()

    def consume():
        return next(turns) % period == 0

    async def scenario(bench):
        await bench.start(build(rng, 192))
        while not bench.items:
            await bench.step()
        bench.starved = 0
        while len(bench.items) < 192:
            await bench.step()
        assert bench.starved == 0

    Bench(rng, latency=lambda: 250, consume=consume).run(scenario)


@pytest.mark.parametrize("slots", [0, 8, 24, 33])
def test_slots_are_checked(slots):
    with pytest.raises(ValueError, match=f"power of two, at least 16, not {slots}"):
        DescriptorFetch(c2h=False, slots=slots)
