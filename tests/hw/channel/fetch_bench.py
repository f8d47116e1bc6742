# SPDX-License-Identifier: BSD-2-Clause
"""The world around a descriptor fetch: lists as each driver builds them, the reference algorithm,
and a read engine and a channel made of Python.

The read engine serves the reads out of a host memory that holds the list and nothing else, so that
any read beside it fails, and brings the words of the reads under way in any order.
"""

from collections import namedtuple

import numpy as np
from amaranth import Value

from hw.channel.fetch import DescriptorFetch
from hw.records import JOB_BYTES, Outcome
from peerdma import regs
from tests.hw.helpers import simulate, write_of

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
    """A read engine and a channel around a fetch, a step a cycle.

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

    async def push(self, todo):
        """Pushes the first block of a list, by words or halves of words, which it then forgets."""
        for n in range(todo.adjacent + 1):
            found, place = todo.memory.pop(todo.address + n * SIZE), n * SIZE
            while found:
                size = 8 if place % 8 == 0 and self.rng.random() < 0.8 else 4
                placed = {"client": 0, "memory": 0, **write_of(self.rng, place, found[:size])}
                self._set(self.dut.push.valid, 1)
                self.ctx.set(self.dut.push.payload, placed)
                await self.step()
                self._set(self.dut.push.valid, 0)
                place, found = place + size, found[size:]

    async def start(self, todo, limit=2, failures=None, pushed=None):
        """Starts a list; what is written down about the one before is forgotten."""
        dut, ctx = self.dut, self.ctx
        assert not ctx.get(dut.control.active)
        assert not self.under_way
        self._forget()
        self.memory, self.limit, self.failures = todo.memory, limit, failures or {}
        ctx.set(dut.control.start, 1)
        ctx.set(
            dut.control.pushed, pushed or {"any": 0, "whole": self.rng.randrange(2), "count": 0}
        )
        ctx.set(dut.control.address, todo.address | self.rng.randrange(SIZE))
        ctx.set(dut.control.adjacent, todo.adjacent)
        self.started = self.cycle
        await self.step()
        ctx.set(dut.control.start, 0)

    async def finish(self, todo, limit=2, failures=None):
        """Runs a list to its end and compares it with the reference."""
        reads, items = reference(todo, limit, failures)
        await self.start(todo, limit, failures)
        while self.ctx.get(self.dut.control.active):
            await self.step()
        assert not self.under_way
        for _ in range(5):
            await self.step()
        assert self.items == items
        assert self.reads == reads[: len(self.reads)]

    async def finish_pushed(self, todo, limit=2, failures=None):
        """The same, with the first block pushed; an error in it is at its offset, with bit 0 set.

        `failures` are of the reads behind it.
        """
        count, first = todo.adjacent + 1, todo.address
        block = {first + n * SIZE: Error(n * SIZE | 1, Outcome.MAGIC) for n in range(count)}
        own = len([each for each in reference(todo, limit)[0] if each[0] in block])
        shifted = {own + index: outcome for index, outcome in (failures or {}).items()}
        reads, items = reference(todo, limit, shifted)
        if isinstance(items[-1], Error):
            items[-1] = block.get(items[-1].address, items[-1])
        await self.push(todo)
        await self.start(todo, limit, failures, {"any": 1, "whole": 1, "count": count})
        while self.ctx.get(self.dut.control.active):
            await self.step()
        assert not self.under_way
        assert self.items == items
        assert self.reads == reads[own:][: len(self.reads)]

    def _set(self, signal, value):
        """Drives an input signal; saves the simulator the work if it has that value already."""
        if self._inputs.get(id(signal)) != value:
            self._inputs[id(signal)] = value
            self.ctx.set(signal, value)

    async def step(self, flush=0):
        ctx, dut = self.ctx, self.dut
        self._set(dut.control.flush, flush)
        self._set(dut.control.halt, self.halt)
        self._set(dut.limit, self.limit)
        self._bring()
        ready, consume = self.ready(), self.consume()
        self._set(dut.job.ready, ready)
        self._set(dut.descriptor.ready, consume)

        # What a channel does not take must stay, unless it was told to go the cycle before.
        job = ctx.get(self._job_bits) if ctx.get(dut.job.valid) else None
        assert job is None or not self._stopped
        assert job is None or ctx.get(dut.control.active)
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
            assert ctx.get(dut.control.active)
        self._flushed, self._stopped = flush, flush or self.halt
        await ctx.tick()
        self.cycle += 1

    def _decode(self, item):
        pci, card = item.pci_address, item.card_address
        if item.outcome != Outcome.OK:
            return Error(card, item.outcome)
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
        found, words = b"", []
        for n in range(job.length // SIZE):
            address = job.address + n * SIZE
            assert address in self.memory, f"read beside the list, at {address:#x}"
            found += self.memory[address][:SIZE]
        place = job.place.as_bits()
        while found:
            # Behind a completion of an odd number of dwords, beats have halves of two words.
            size = 4 if self.shuffle and self.rng.random() < 0.1 else 8
            words.append((place, found[:size]))
            place, found = place + size, found[size:]
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
            place, beat = read.words.pop(0)
            placed = {"client": 5, "memory": 0, **write_of(self.rng, place, beat)}
            self.ctx.set(dut.placement.payload, placed)
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
