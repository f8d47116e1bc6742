# SPDX-License-Identifier: BSD-2-Clause
"""The core at the seam, with jobs that launch queues start beside those of software."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hw.seam import WIDTHS
from hw.stream.user_blocks import PassThrough
from peerdma import regs
from peerdma.regs import ErrorKind, LaunchEnd, LaunchStatus
from tests.hw.helpers import seeded, simulate
from tests.hw.launch_queue import (
    BASE,
    DESTINATION,
    DONE,
    HOSTS_RAM,
    JOBS_DESTINATION,
    JOBS_RAM,
    JOBS_SOURCE,
    LISTS,
    QUEUES,
    SOURCE,
    LaunchQueue,
    launching,
    prepare,
    word,
)
from tests.hw.seam_model import SeamModel, transfer


def test_a_doorbell_starts_a_job_and_a_record_and_a_done_word_follow():
    """Into card RAM and out of it, with lists that go on in memory."""
    rng, model = seeded(), launching()
    queue = LaunchQueue(model, 0, QUEUES[0])
    data = rng.randbytes(700)

    async def bench(ctx):
        await model.link_up(ctx)
        capabilities = await model.read(ctx, regs.EXTENSION.address("capabilities"))
        assert capabilities & regs.Capability.LAUNCH
        channels = regs.EXTENSION["channels"]
        found = await model.read(ctx, regs.EXTENSION.address("channels"))
        assert channels.field("launch_queues").get(found) == 2
        model.memory[JOBS_SOURCE : JOBS_SOURCE + 700] = data
        at = BASE + JOBS_SOURCE
        spans = [(at, JOBS_RAM, 300), (at + 300, JOBS_RAM + 300, 400)]
        prepare(model, 5, spans, LISTS, done=BASE + DONE)
        to = BASE + JOBS_DESTINATION
        prepare(
            model, 63, [(JOBS_RAM, to, 700)], LISTS + 256, flush=to, done=BASE + DONE + 4, c2h=1
        )
        queue.arm()
        (first,) = queue.submit(5)
        assert await queue.wait(ctx, first) == [LaunchStatus.OK]
        await ctx.tick().repeat(60)
        assert word(model, DONE) == 1 and word(model, DONE + 4) == 0
        (second,) = queue.submit(63)
        assert await queue.wait(ctx, second) == [LaunchStatus.OK]
        assert model.memory[JOBS_DESTINATION : JOBS_DESTINATION + 700] == data
        await ctx.tick().repeat(60)
        assert word(model, DONE + 4) == 1
        state = await queue.state(ctx)
        idle = {"status": 0, "failed": 0, "busy": 0, "armed": 1, "end": 0, "place": 2}
        assert state == idle | {"recorded": 0, "ending": 0, "running": 0, "starting": 0}
        records = [each for each in model.writes if each[0] >= BASE + QUEUES[0] + 4096]
        assert records == [(BASE + QUEUES[0] + 4096 + 8 * n, 2, 0) for n in range(2)]

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_two_queues_run_tickets_of_all_kinds(width):
    """By doorbells of both widths and by the shadow tail, beyond the wrap; the tests of one kind
    each have 64 bits."""
    rng, model = seeded(), launching(width=width, user=PassThrough)
    size = 150

    def jobs(number):
        queue = LaunchQueue(model, number, QUEUES[number], first=2**32 - 5, polls=number)
        source, ram = JOBS_SOURCE + 0x800 * number, JOBS_RAM + 512 * number
        copied, read = (JOBS_DESTINATION + 0x800 * number + 0x400 * n for n in range(2))
        done, window = DONE + 8 * number, regs.STREAM_WINDOW
        copies, into, out, bad = (16 * number + n for n in (0, 2, 3, 4))

        async def bench(ctx):
            await ctx.tick().repeat(10)
            at, lists = BASE + source, LISTS + 512 * number
            common = {"queue": number, "done": BASE + done}
            to = BASE + copied
            prepare(model, copies, [(at, window, size)], lists, pair=1, flush=to, **common)
            prepare(model, copies + 1, [(window, to, size)], lists + 64, valid=0)
            halves = [(at, ram, 70), (at + 70, ram + 70, size - 70)]
            prepare(model, into, halves, lists + 128, queue=number)
            to = BASE + read
            prepare(model, out, [(ram, to, size)], lists + 256, c2h=1, flush=to, **common)
            prepare(model, bad, [(at, 0x10_0000, size)], lists + 320, queue=number)
            queue.arm()
            await queue.state(ctx)
            for count in (1, 6, 4):
                data = rng.randbytes(size)
                model.memory[source : source + size] = data
                model.memory[done : done + 4] = bytes(4)
                batch = [into, *rng.choices((copies, into, out), k=count - 1)]
                tickets = queue.submit(*batch, wide=rng.random() < 0.5)
                assert await queue.wait(ctx, *tickets) == [LaunchStatus.OK] * count
                await ctx.tick().repeat(60)
                assert word(model, done) == (copies in batch or out in batch)
                for slot, place in ((copies, copied), (out, read)):
                    if slot in batch:
                        assert model.memory[place : place + size] == data
            expected = [LaunchStatus.OK, ErrorKind.DECODE, LaunchStatus.FLUSHED]
            assert await queue.wait(ctx, *queue.submit(into, bad, copies)) == expected
            queue.resume()
            await queue.state(ctx)
            assert await queue.wait(ctx, *queue.submit(copies)) == [LaunchStatus.OK]
            assert await queue.read(ctx, "ignored") == 0

        return bench

    async def first(ctx):
        await model.link_up(ctx)
        await jobs(0)(ctx)

    simulate(model.core, first, jobs(1), background=model.benches, cycles=60_000)


def test_queues_and_software_share_the_channels():
    """Two queues and software's registers, in both directions: each has its data, all move on."""
    rng, model = seeded(), launching()
    rounds, order = 4, []
    half = 0x800

    async def host(ctx):
        await model.link_up(ctx)
        for _ in range(2 * rounds):
            size = rng.randrange(1, 600)
            data = rng.randbytes(size)
            model.memory[SOURCE : SOURCE + size] = data
            into = [(BASE + SOURCE, HOSTS_RAM, size)]
            found = await transfer(ctx, model, c2h=False, descriptors=into, pushed=1)
            assert found == regs.Status.DESCRIPTOR_STOPPED
            back = [(HOSTS_RAM, BASE + DESTINATION, size)]
            await transfer(ctx, model, c2h=True, descriptors=back)
            assert model.memory[DESTINATION : DESTINATION + size] == data
            order.append("host")
        assert await model.read(ctx, regs.EXTENSION.address("error_info")) == 0

    def jobs(number):
        async def run(ctx):
            await ctx.tick().repeat(10)
            queue = LaunchQueue(model, number, QUEUES[number], first=2**32 - 3)
            ram, size = JOBS_RAM + number * half // 2, 500
            source, to = JOBS_SOURCE + number * half, JOBS_DESTINATION + number * half
            lists = LISTS + 512 * number
            spans = [(BASE + source + 250 * n, ram + 250 * n, 250) for n in range(2)]
            prepare(model, 10 + number, spans, lists, queue=number)
            to_host = [(ram, BASE + to, size)]
            prepare(model, 20 + number, to_host, lists + 128, c2h=1, queue=number, flush=BASE + to)
            queue.arm()
            for _ in range(rounds):
                data = rng.randbytes(size)
                model.memory[source : source + size] = data
                tickets = queue.submit(10 + number, 20 + number)
                assert await queue.wait(ctx, *tickets) == [LaunchStatus.OK] * 2
                assert model.memory[to : to + size] == data
                order.append(number)

        return run

    simulate(model.core, host, jobs(0), jobs(1), background=model.benches, cycles=60_000)
    assert {"host", 0, 1} <= set(order[: 2 * rounds]), "they did not run beside each other"


@pytest.mark.parametrize(("done", "of_30"), [(False, 890), (True, 990)])
def test_cycles_from_one_record_to_the_next(done, of_30):
    """Of jobs that write 64 bytes, all submitted at once; entries are read meanwhile."""
    model, tickets = launching(), 40
    queue = LaunchQueue(model, 0, QUEUES[0], entries=64)
    cycles = []

    async def bench(ctx):
        await model.link_up(ctx)
        place = BASE + DONE if done else None
        prepare(model, 3, [(JOBS_RAM, BASE + JOBS_DESTINATION, 64)], LISTS, c2h=1, done=place)
        queue.arm()
        await queue.state(ctx)
        for ticket in queue.submit(*[3] * tickets):
            cycles.append(0)
            while queue.status(ticket) is None:
                cycles[-1] += 1
                await ctx.tick()

    simulate(model.core, bench, background=model.benches, cycles=20_000)
    assert sum(cycles[4:34]) == of_30


def test_tickets_go_in_one_turn_beside_softwares_runs():
    """Software starts the next run as soon as one has ended; all tickets that wait go between."""
    model, tickets = launching(), 20
    queue = LaunchQueue(model, 0, QUEUES[0], entries=32)
    ended = [0]

    async def bench(ctx):
        await model.link_up(ctx)
        prepare(model, 3, [(BASE + JOBS_SOURCE, JOBS_RAM, 64)], LISTS)
        queue.arm()
        await queue.state(ctx)
        queue.submit(*[3] * tickets)
        while ended[-1] < tickets:
            into = [(BASE + SOURCE, HOSTS_RAM, 512)]
            await transfer(ctx, model, c2h=False, descriptors=into, pushed=1)
            ended.append(sum(queue.status(ticket) is not None for ticket in range(tickets)))

    simulate(model.core, bench, background=model.benches, cycles=20_000)
    assert max(after - before for before, after in pairwise(ended)) > tickets * 3 // 4


class TwoPaths(SeamModel):
    """A GPU's memory from `DESTINATION` on: what is written there arrives late, unless it is read.

    All before it is host memory, where writes arrive at once.
    """

    def __init__(self, core, base, size):
        super().__init__(core, base, size)
        self.on_the_way = []

    def _on_gpu(self, header) -> bool:
        at = header["address"] - self.base
        return JOBS_DESTINATION <= at < JOBS_DESTINATION + 0x1000

    def _store(self, header, data):
        if self._on_gpu(header):
            self.on_the_way.append((header, data))
        else:
            super()._store(header, data)

    def _load(self, header):
        if self._on_gpu(header):
            self.arrive()
        super()._load(header)

    def arrive(self):
        """All that is on its way arrives."""
        for header, data in self.on_the_way:
            super()._store(header, data)
        self.on_the_way.clear()


@pytest.mark.parametrize("flushes", [True, False])
def test_a_record_does_not_overtake_data_that_a_flush_read_pushes(flushes):
    """Without the read it does, where the two part: this bench would see a read that is missing."""
    rng, model = seeded(), launching(model=TwoPaths)
    queue = LaunchQueue(model, 1, QUEUES[1])
    data, size = rng.randbytes(300), 300
    to = BASE + JOBS_DESTINATION

    async def bench(ctx):
        await model.link_up(ctx)
        model.memory[JOBS_SOURCE : JOBS_SOURCE + size] = data
        prepare(model, 0, [(BASE + JOBS_SOURCE, JOBS_RAM, size)], LISTS, queue=1)
        last = to + size - 4 if flushes else None
        prepare(model, 1, [(JOBS_RAM, to, size)], LISTS + 64, c2h=1, flush=last, queue=1)
        queue.arm()
        assert await queue.wait(ctx, *queue.submit(0, 1)) == [LaunchStatus.OK] * 2
        arrived = model.memory[JOBS_DESTINATION : JOBS_DESTINATION + size] == data
        assert arrived == flushes
        assert not any(relaxed for _, _, relaxed in model.writes)

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_job_reads_what_the_one_before_has_written(overlap):
    """Also on its way to a GPU, while that job waits for its flush read; the same slots again.

    Jobs that may overlap do not do so with those of the other direction.
    """
    rng, model = seeded(), launching(model=TwoPaths)
    queue = LaunchQueue(model, 1, QUEUES[1], entries=16)
    size = 200
    to, back = BASE + JOBS_DESTINATION, BASE + DESTINATION
    begun = []

    async def watch(ctx):
        async for _, _, *seen in ctx.tick().sample(
            model.seam.requester.valid & model.seam.requester.ready,
            model.seam.requester.payload,
        ):
            if seen[0] and seen[1].first and not seen[1].header.write:
                begun.append(seen[1].header.address)

    async def bench(ctx):
        await model.link_up(ctx)
        # Around: out of card RAM to the GPU, from there into card RAM, and out to the host.
        read, write = {"queue": 1, "overlap": overlap}, {"queue": 1, "overlap": overlap, "c2h": 1}
        prepare(model, 0, [(JOBS_RAM, to, size)], LISTS, flush=to, **write)
        prepare(model, 1, [(to, JOBS_RAM + 512, size)], LISTS + 64, **read)
        prepare(model, 2, [(JOBS_RAM + 512, back, size)], LISTS + 128, flush=back, **write)
        prepare(model, 3, [(BASE + JOBS_SOURCE, JOBS_RAM, size)], LISTS + 192, **read)
        queue.arm()
        for _ in range(4):
            data = rng.randbytes(size)
            model.memory[JOBS_SOURCE : JOBS_SOURCE + size] = data
            tickets = queue.submit(3, 0, 0, 1, 2, 2)
            assert await queue.wait(ctx, *tickets) == [LaunchStatus.OK] * len(tickets)
            assert model.memory[DESTINATION : DESTINATION + size] == data

    simulate(model.core, bench, background=(*model.benches, watch), cycles=60_000)
    # The second flush read of a turn is asked for while the next job's data is not.
    assert begun.count(to) >= 12 and begun.count(back) == 8


def test_the_shadow_tail():
    rng, model = seeded(), launching(launch_queues=1)
    queue = LaunchQueue(model, 0, QUEUES[0], polls=1, first=2**16 - 2)

    async def bench(ctx):
        await model.link_up(ctx)
        prepare(model, 7, [(BASE + JOBS_SOURCE, JOBS_RAM, 128)], LISTS)
        queue.arm()
        for count in (1, 3, 2):
            await ctx.tick().repeat(rng.randrange(1, 300))
            tickets = queue.submit(*[7] * count)
            assert await queue.wait(ctx, *tickets) == [LaunchStatus.OK] * count
        assert await queue.read(ctx, "ignored") == 0, "an old word is not a doorbell"
        # A tail that is too far ahead ends the queue, as from a doorbell.
        queue.ring(queue.next + queue.entries + 1)
        await ctx.tick().repeat(300)
        assert (await queue.state(ctx))["end"] == LaunchEnd.TAIL

    simulate(model.core, bench, background=model.benches, cycles=60_000)


@pytest.mark.parametrize(
    ("c2h", "wide", "width", "cycles"),
    [
        (False, False, 64, 16),
        (True, False, 64, 18),
        (False, True, 64, 12),
        (True, True, 64, 14),
        (False, False, 128, 16),
        (False, False, 256, 17),
    ],
)
def test_cycles_from_the_doorbell_to_the_first_request_of_data(c2h, wide, width, cycles):
    """Less the round trip of the entry's read; the second of two tickets, on a resting channel.

    A doorbell of 64 bits brings the entry along: then these are all. At 256 bits, what is read
    comes a cycle later.
    """
    model = launching(width=width)
    seam, beats = model.seam, []
    queue = LaunchQueue(model, 0, QUEUES[0])

    async def watch(ctx):
        cycle, waits = 0, False
        async for _, _, target, request, taken, completion in ctx.tick().sample(
            seam.target.valid & (seam.target.payload.header.bar == regs.BAR_USER[0]),
            seam.requester.valid,
            seam.requester.ready,
            seam.requester_completion.valid,
        ):
            cycle += 1
            asked, waits = request and not waits, request and not taken
            for kind, seen in (("bell", target), ("asked", asked), ("came", completion)):
                if seen:
                    beats.append((cycle, kind))

    async def bench(ctx):
        await model.link_up(ctx)
        card = [(JOBS_RAM, BASE + JOBS_DESTINATION, 64), (BASE + JOBS_SOURCE, JOBS_RAM, 64)]
        prepare(model, 0, card[:1] if c2h else card[1:], LISTS, c2h=c2h)
        queue.arm()
        await queue.wait(ctx, *queue.submit(0))
        await ctx.tick().repeat(100)
        beats.clear()
        await queue.wait(ctx, *queue.submit(0, wide=wide))

    simulate(model.core, bench, background=(*model.benches, watch))
    (bell, _), (entry, kind), *rest = beats
    assert kind == "asked"
    if wide:
        assert entry - bell == cycles
        return
    came = next(cycle for cycle, kind in rest if kind == "came")
    first = next(cycle for cycle, kind in rest if kind == "asked")
    assert entry - bell + first - came == cycles


def test_runs_of_jobs_that_may_overlap_do_so():
    """Reads of several jobs are under way at once; each has its data, and records are in order."""
    rng, model = seeded(), launching()
    queue = LaunchQueue(model, 0, QUEUES[0], entries=32)
    tickets, size = 24, 64
    data = rng.randbytes(8 * size)

    async def bench(ctx):
        await model.link_up(ctx)
        model.memory[JOBS_SOURCE : JOBS_SOURCE + len(data)] = data
        for slot in range(8):
            at = BASE + JOBS_SOURCE + slot * size
            prepare(model, slot, [(at, JOBS_RAM + slot * size, size)], LISTS, overlap=1)
        prepare(model, 8, [(JOBS_RAM, BASE + JOBS_DESTINATION, 8 * size)], LISTS, c2h=1)
        queue.arm()
        await queue.state(ctx)
        drawn = queue.submit(*[n % 8 for n in range(tickets)], 8)
        most = 0
        while queue.status(drawn[-1]) is None:
            most = max(most, (await queue.state(ctx))["running"])
        assert most > 5
        assert [queue.status(ticket) for ticket in drawn] == [LaunchStatus.OK] * len(drawn)
        assert model.memory[JOBS_DESTINATION : JOBS_DESTINATION + 8 * size] == data

    simulate(model.core, bench, background=model.benches, cycles=20_000)
