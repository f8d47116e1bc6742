# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: a GPU starts jobs itself, and its memory is not where the records are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cocotb
from cocotb.triggers import Timer

from hw.endpoint import DEFAULT_ADAPTER
from peerdma import regs
from peerdma.regs import LaunchStatus

from .completer import Split
from .launch_queue import LaunchQueue, prepare
from .memory import Buffer, Transfer
from .tb import TB, bench
from .ultrascale import FLR_CYCLES

CHANNELS = (1,)
PCIE = ("ultrascale_plus-128",)
LAUNCH_QUEUES = 2

#: For how long the switch may keep a write to the GPU: much longer than a record takes.
LATE_NS = (3000, 6000)
DONE, NOT_DONE = b"\1\0\0\0", bytes(4)


@dataclass
class Copy:
    """A pair of slots: from memory into card RAM, and from there to the GPU."""

    into: int
    out: int
    source: Buffer
    target: Buffer
    done: Buffer


async def copy(tb: TB, queue: int, number: int, *, flush: bool = True) -> Copy:
    """Prepare two slots, of any size and alignment."""
    slot, size, card = 16 * queue + 2 * number, tb.rng.randint(1, 700), 1024 * number
    card += 8192 * queue + tb.rng.randrange(8)
    offset = tb.rng.randrange(4096 - 2 * size)
    source = (tb.gpu_buffer if number % 2 else tb.buffer)(size, offset=offset)
    target, done = tb.gpu_buffer(size, offset=tb.rng.randrange(4096)), tb.buffer(4)
    await prepare(tb, slot, Transfer(source.address, card, size), queue=queue)
    last = (target.address + size - 1) & ~3 if flush else None
    out = Transfer(card, target.address, size)
    await prepare(tb, slot + 1, out, queue=queue, c2h=1, flush=last, done=done.address)
    return Copy(slot, slot + 1, source, target, done)


async def batch(tb: TB, queue: LaunchQueue, copies: list[Copy]) -> None:
    """Submit some copies in any order and ring for them anyhow: each has its data in time."""
    jobs = []
    for each in copies:
        each.source.data = tb.rng.randbytes(each.source.size)
        each.done.data = NOT_DONE
        jobs += [each, each]
    tb.rng.shuffle(jobs)
    seen, slots, begin = [], [], queue.next
    for each in jobs:
        slots.append(each.out if each in seen else each.into)
        seen.append(each)
    how = tb.rng.choice(("early", "singly", "merged", "merged"))
    early = how == "early"
    if early:
        await queue.ring(begin + len(slots))
        await Timer(tb.rng.randint(1, 1500), "ns")
    tickets = []
    for slot in slots:
        tickets += queue.submit(slot)
        if how == "singly":
            # With the entry, which counts if the one before has completed.
            await queue.ring(queue.next, slot)
            await Timer(tb.rng.randint(1, 6000), "ns")
    if how == "merged":
        # Repeated, and behind.
        for _ in range(tb.rng.randrange(3)):
            await queue.ring(begin + tb.rng.randrange(-20, len(slots) + 1))
        await queue.ring(queue.next, tb.rng.choice((None, slots[-1])))
    for ticket, slot, each in zip(tickets, slots, jobs, strict=True):
        assert await queue.wait(ticket) == LaunchStatus.OK
        if slot == each.out:
            each.target.expect(each.source.data)
    for each in copies:
        await done(each)


async def done(each: Copy) -> None:
    """Wait for a copy's done word, which is not behind its record by much."""
    for _ in range(100):
        if each.done.data == DONE:
            return
        await Timer(40, "ns")
    each.done.expect(DONE)


@bench(us=8000, lanes=4, gpu=True, stall=0.05)
async def records_behind_data(tb: TB):
    """By page and by shadow tail, through both wraps: with a record, the data is in GPU memory."""
    tb.host.gpu_port.posted_ns = LATE_NS
    for completer in (tb.host, tb.gpu.function):
        completer.set_manner(Split.RANDOM, (0, 500), (0, 50))
    await tb.gpu_master()
    # Behind another block the wraps of tickets only: rings of up to 256 entries are above the seam.
    count = 310 if tb.pcie == DEFAULT_ADAPTER.name else 30
    firsts = tb.rng.sample(((1 << 32) - count + 10, (1 << 16) - count + 10), 2)

    async def run(number: int, polls: bool) -> None:
        entries = tb.rng.choice((8, 16, 256))
        queue = LaunchQueue(tb, number, first=firsts[number], entries=entries, polls=polls)
        copies = [await copy(tb, number, each) for each in range(4)]
        await queue.arm()
        while queue.next < firsts[number] + count:
            await batch(tb, queue, tb.rng.sample(copies, tb.rng.randint(1, len(copies))))
        await queue.disarm()

    page = tb.rng.randrange(2)
    runs = [cocotb.start_soon(run(number, polls=number != page)) for number in range(2)]
    for each in runs:
        await each
    assert await tb.read(regs.LAUNCH_QUEUE, "ignored") == 0


@bench(us=300, lanes=4, gpu=True)
async def without_a_flush_read(tb: TB):
    """The record comes before the data: what the flush read is for, and that a bench sees it."""
    tb.host.gpu_port.posted_ns = LATE_NS
    await tb.gpu_master()
    queue = LaunchQueue(tb, 0, first=0, entries=8, polls=False)
    each = await copy(tb, 0, 0, flush=False)
    before = each.target.data
    await queue.arm()
    tickets = queue.submit(each.into, each.out)
    await queue.ring(queue.next)
    for ticket in tickets:
        assert await queue.wait(ticket) == LaunchStatus.OK
    each.target.expect(before)
    await Timer(2 * LATE_NS[1], "ns")
    each.target.expect(each.source.data)


@bench(us=2000, lanes=4)
async def slots_over_resets(tb: TB):
    """A reset of any kind, with tickets under way, disarms the queue and leaves its slots."""
    resets = [tb.hot_reset, partial(tb.write, regs.EXTENSION, "soft_reset", 1)]
    if tb.pcie != DEFAULT_ADAPTER.name:
        resets += [partial(tb.function_reset, FLR_CYCLES, late=late) for late in (False, True)]
    size, slots = 700, range(2)
    source, target = tb.buffer(size, offset=3), tb.buffer(size, offset=9, high=True)
    await prepare(tb, slots[0], Transfer(source.address, 64, size))
    await prepare(tb, slots[1], Transfer(64, target.address, size), c2h=1)
    prepared = [await tb.read(regs.LAUNCH_SLOT, "control", channel=slot) for slot in slots]
    first = tb.rng.randrange(1 << 16)
    for reset in (*resets, None):
        queue = LaunchQueue(tb, 0, first=first, entries=8, polls=True)
        await queue.arm()
        source.data = tb.rng.randbytes(size)
        tickets = queue.submit(*slots)
        await queue.ring(queue.next)
        for ticket in tickets:
            assert await queue.wait(ticket) == LaunchStatus.OK
        target.expect(source.data)
        if reset is None:
            await queue.disarm()
            break
        queue.submit(*slots)
        await queue.ring(queue.next)
        await Timer(tb.rng.randint(1, 3000), "ns")
        await reset()
        while tb.device.checker.outstanding_tags:
            await Timer(1, "us")
        assert await tb.read(regs.LAUNCH_QUEUE, "control") == 0
        assert await tb.read(regs.LAUNCH_QUEUE, "state") == 0
        found = [await tb.read(regs.LAUNCH_SLOT, "control", channel=slot) for slot in slots]
        assert found == prepared
        first = queue.next
