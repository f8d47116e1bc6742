# amaranth: UnusedElaboratable=no
# SPDX-License-Identifier: BSD-2-Clause
"""Descriptor fetch against the reference algorithm, on lists as each driver builds them.

A Python requester serves the reads out of a host memory that holds the list and nothing else, so
that any read beside it fails, and brings the words of the reads under way in any order.
"""

from collections import namedtuple
from itertools import count

import numpy as np
import pytest
from amaranth import Value

from hw.fetch import DescriptorFetch
from hw.transfer import JOB_BYTES, Outcome
from peerdma import regs
from tests.hw.helpers import seeded, simulate

SIZE = regs.DESCRIPTOR.itemsize
PAGE = 4096
SLOTS = 32
STOP, COMPLETED = regs.DESC_STOP, regs.DESC_COMPLETED

#: What a fetch is told to do, and the memory that it may read: {address: descriptor as bytes}.
List = namedtuple("List", "address adjacent memory")
#: A descriptor as it leaves the fetch, for H2C.
Item = namedtuple("Item", "source destination length stop completed")
#: The error that ends a list.
Error = namedtuple("Error", "address outcome")


# Lists --------------------------------------------------------------------------------------


def word64(rng):
    return rng.randrange(1 << 64)


def pack(rng, flags=0, adjacent=0, following=0, magic=regs.DESC_MAGIC):
    """A descriptor with random addresses and length, and noise in the bits to be ignored."""
    ignored = rng.randrange(1 << 16) & ~(0x3F << 8 | STOP | COMPLETED)
    control = magic << 16 | adjacent << 8 | flags | ignored
    fields = (control, rng.randrange(1 << 32), word64(rng), word64(rng), following)
    return np.array([fields], regs.DESCRIPTOR).tobytes()


def chain(rng, sizes, *, cyclic=False, in_page=True):
    """Blocks of these sizes at random addresses, the insides of their `next` fields garbage."""
    # A region of two pages each; what lies between them is not memory.
    regions = rng.sample(range(1 << 51), len(sizes))
    starts = []
    for region, size in zip(regions, sizes, strict=True):
        most = (PAGE if in_page else 2 * PAGE) // SIZE - size
        starts.append((region << 13) + rng.randrange(most + 1) * SIZE)
    memory = {}
    for block, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        for n in range(size):
            adjacent, following, flags = rng.randrange(64), word64(rng), 0
            if n == size - 1 and (cyclic or block < len(sizes) - 1):
                after = (block + 1) % len(sizes)
                # The low bits of an address are none of ours.
                adjacent, following = sizes[after] - 1, starts[after] | rng.randrange(32)
            elif n == size - 1:
                flags = STOP | COMPLETED
            if cyclic:
                flags = COMPLETED
            memory[start + n * SIZE] = pack(rng, flags, adjacent, following)
    return List(starts[0], sizes[0] - 1, memory)


def picoevb(rng):
    """One descriptor per run."""
    return chain(rng, [1])


def upstream(rng, length):
    """Blocks of 32, the last one shorter."""
    return chain(rng, [32] * (length // 32) + ([length % 32] if length % 32 else []))


def xdma_ko(rng, length, first=0):
    """Consecutive descriptors; blocks end at multiples of 2 KiB, adjacency counts down."""
    ring = (rng.randrange(1 << 30) << 14) + (1 << 34)

    def adjacent(index, left):
        return min(63 - index % 64, left - 1)

    memory = {}
    for n in range(length):
        index, left = first + n, length - n - 1
        memory[ring + index * SIZE] = (
            pack(rng, 0, adjacent(index + 1, left), ring + (index + 1) * SIZE)
            if left
            else pack(rng, STOP | COMPLETED)
        )
    return List(ring + first * SIZE, adjacent(first, length), memory)


# The reference ------------------------------------------------------------------------------


def reference(todo, limit, failures=None, most=10_000):
    """What the fetch must read and give: ([(address, bytes)], [Item or Error]).

    `failures` is {index of a read: Outcome}; `most` ends an endless list. The reads go on to the
    end of the last block: the fetch may stop earlier, but must not leave that block.
    """
    reads, items = [], []
    address, left, ended = todo.address, todo.adjacent + 1, False
    while not ended and len(items) < most:
        while left:
            k = min(
                left, (128 << limit) // SIZE, JOB_BYTES // SIZE, (-address % PAGE or PAGE) // SIZE
            )
            if not ended and (failures or {}).get(len(reads)):
                items.append(Error(address, failures[len(reads)]))
                ended = True
            reads.append((address, k * SIZE))
            for _ in range(k):
                if not ended:
                    raw = np.frombuffer(todo.memory[address], regs.DESCRIPTOR)[0]
                    control = int(raw["control"])
                    ended = control & STOP or control >> 16 != regs.DESC_MAGIC
                    items.append(
                        Item(
                            int(raw["source"]),
                            int(raw["destination"]),
                            int(raw["length"]) & regs.DESC_MAX_LENGTH,
                            control & STOP,
                            control >> 1 & 1,
                        )
                        if control >> 16 == regs.DESC_MAGIC
                        else Error(address, Outcome.MAGIC)
                    )
                    following = int(raw["next"]) & ~(SIZE - 1)
                address, left = address + SIZE, left - 1
        if not ended:
            address, left = following, (control >> 8 & 63) + 1
    return reads, items


# The bench ----------------------------------------------------------------------------------


class Read:
    """A read under way."""

    def __init__(self, job, due, outcome, words):
        self.job, self.due, self.outcome, self.words = job, due, outcome, words


class Bench:
    """A requester and a channel around a fetch, a step a cycle.

    `latency` gives the cycles from a job to its first word, `ready` and `consume` whether a job or
    a descriptor is taken in a cycle. With `shuffle`, words come in any order, some in halves.
    """

    def __init__(
        self, rng, *, latency=lambda: 20, ready=lambda: 1, consume=lambda: 1, shuffle=True
    ):
        self.rng, self.shuffle = rng, shuffle
        self.latency, self.ready, self.consume = latency, ready, consume
        self.limit, self.halt = 2, 0
        self.memory, self.failures = {}, {}
        self.cycle = 0
        self.under_way = []
        self._inputs = {}
        self._forget()

    def _forget(self):
        self.reads, self.read_times, self.retired_times = [], [], []
        self.items, self.item_times, self.starved = [], [], 0
        self._held_job = self._held_item = None
        self._flushed = self._stopped = 0

    def run(self, scenario, *, c2h=False, slots=SLOTS, cycles=50_000):
        """Runs an async function of this bench to its end."""
        self.dut = DescriptorFetch(c2h=c2h, slots=slots)
        self.c2h = c2h
        self._job_bits = Value.cast(self.dut.job.payload)
        self._item_bits = Value.cast(self.dut.descriptor.payload)

        async def testbench(ctx):
            self.ctx = ctx
            await scenario(self)

        simulate(self.dut, testbench, cycles=cycles)

    async def start(self, todo, limit=2, failures=None):
        """Starts a list; what is written down about the one before is forgotten."""
        dut, ctx = self.dut, self.ctx
        assert not ctx.get(dut.active)
        assert not self.under_way
        self._forget()
        self.memory, self.limit, self.failures = todo.memory, limit, failures or {}
        ctx.set(dut.start, 1)
        ctx.set(dut.address, todo.address | self.rng.randrange(SIZE))
        ctx.set(dut.adjacent, todo.adjacent)
        self.started = self.cycle
        await self.step()
        ctx.set(dut.start, 0)

    async def finish(self, todo, limit=2, failures=None):
        """Runs a list to its end and compares it with the reference."""
        reads, items = reference(todo, limit, failures)
        await self.start(todo, limit, failures)
        while self.ctx.get(self.dut.active):
            await self.step()
        assert not self.under_way
        for _ in range(5):
            await self.step()
        assert self.items == items
        assert self.reads == reads[: len(self.reads)]

    def _set(self, signal, value):
        """Drives an input signal; saves the simulator the work if it has that value already."""
        if self._inputs.get(id(signal)) != value:
            self._inputs[id(signal)] = value
            self.ctx.set(signal, value)

    async def step(self, flush=0):
        ctx, dut = self.ctx, self.dut
        self._set(dut.flush, flush)
        self._set(dut.halt, self.halt)
        self._set(dut.limit, self.limit)
        self._bring()
        ready, consume = self.ready(), self.consume()
        self._set(dut.job.ready, ready)
        self._set(dut.descriptor.ready, consume)

        # What a channel does not take must stay, unless it was told to go the cycle before.
        job = ctx.get(self._job_bits) if ctx.get(dut.job.valid) else None
        assert job is None or not self._stopped
        assert job is None or ctx.get(dut.active)
        assert job is None or self._held_job in (None, job)
        self._held_job = None if ready else job
        if job is not None and ready:
            self._take(ctx.get(dut.job.payload))

        item = ctx.get(self._item_bits) if ctx.get(dut.descriptor.valid) else None
        assert item is None or not self._flushed
        assert self._held_item in (None, item) or self._flushed
        self._held_item = None if consume else item
        self.starved += consume and item is None
        if item is not None and consume:
            self.item_times.append(self.cycle)
            self.items.append(self._decode(ctx.get(dut.descriptor.payload)))
        if item is not None or self.under_way:
            assert ctx.get(dut.active)
        self._flushed, self._stopped = flush, flush or self.halt
        await ctx.tick()
        self.cycle += 1

    def _decode(self, item):
        pci, card = item.pci_address, item.card_address
        if item.outcome != Outcome.OK:
            return Error(pci, item.outcome)
        source, destination = (card, pci) if self.c2h else (pci, card)
        return Item(source, destination, item.length, item.stop, item.completed)

    def _take(self, job):
        """Checks a read, looks up what it will bring."""
        index = len(self.reads)
        self.reads.append((job.address, job.length))
        self.read_times.append(self.cycle)
        assert 0 < job.length <= min(128 << self.limit, JOB_BYTES)
        assert job.address // PAGE == (job.address + job.length - 1) // PAGE
        assert len(self.under_way) < 2
        words = []
        for n in range(job.length // SIZE):
            address = job.address + n * SIZE
            assert address in self.memory, f"read beside the list, at {address:#x}"
            for word in range(4):
                raw = int.from_bytes(self.memory[address][8 * word : 8 * word + 8], "little")
                place = (job.place >> 3) + 4 * n + word
                halves = (0x0F, 0xF0) if self.shuffle and self.rng.random() < 0.1 else (0xFF,)
                words += [(place, raw, enable) for enable in halves]
        outcome = self.failures.get(index, Outcome.OK)
        if outcome != Outcome.OK:
            words = words[: self.rng.randrange(len(words))]
        if self.shuffle:
            self.rng.shuffle(words)
        self.under_way.append(Read(job, self.cycle + self.latency(), outcome, words))

    def _bring(self):
        """At most one word, of any read that is due; then the oldest read retires if it is done."""
        dut = self.dut
        due = [read for read in self.under_way if read.due <= self.cycle]
        bringing = [read for read in due if read.words]
        self._set(dut.placement.valid, bool(bringing))
        if bringing:
            read = self.rng.choice(bringing) if self.shuffle else bringing[0]
            place, raw, enable = read.words.pop(0)
            # Lanes that are not enabled hold noise.
            noise = word64(self.rng)
            mask = sum(0xFF << 8 * lane for lane in range(8) if enable >> lane & 1)
            self.ctx.set(
                dut.placement.payload,
                {
                    "client": 5,
                    "address": place % (1 << 14),
                    "data": raw & mask | noise & ~mask,
                    "enable": enable,
                },
            )
        oldest = self.under_way[0] if self.under_way else None
        done = oldest in due and not oldest.words
        self._set(dut.retired.valid, done)
        if done:
            self.under_way.pop(0)
            self.retired_times.append(self.cycle)
            self.ctx.set(
                dut.retired.payload,
                {"length": oldest.job.length, "last": oldest.job.last, "outcome": oldest.outcome},
            )


def busy_bench(rng):
    """A bench whose latencies and stalls are random and change from bench to bench."""
    most, ready, consume = rng.choice((3, 30, 120)), rng.random(), rng.choice((0.2, 0.5, 1))
    return Bench(
        rng,
        latency=lambda: rng.randrange(1, most),
        ready=lambda: rng.random() < max(ready, 0.1),
        consume=lambda: rng.random() < consume,
    )


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
        while bench.ctx.get(bench.dut.active):
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
        while bench.ctx.get(bench.dut.active):
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
            assert bench.ctx.get(bench.dut.active) == bool(bench.under_way)
            while bench.ctx.get(bench.dut.active):
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
        while bench.ctx.get(bench.dut.active):
            await bench.step()
        reads, items = reference(todo, 2)
        assert (bench.reads, bench.items) == (reads, items)

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


def test_two_reads_under_way():
    """The second read of a block is issued 2 cycles behind the first, the third waits for it."""
    rng = seeded()

    async def scenario(bench):
        await bench.finish(chain(rng, [64]), limit=0)
        assert len(bench.reads) == 16
        assert bench.read_times[1] == bench.read_times[0] + 2
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
