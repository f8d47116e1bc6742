# SPDX-License-Identifier: BSD-2-Clause
"""`hw.read.engine` against a root complex in Python; what every test checks: see `Bench`."""

from __future__ import annotations

from bisect import bisect

import pytest

from hw.read.engine import ReadEngine
from hw.read.issuer import EXTRA_BYTES
from hw.records import Outcome
from hw.seam import WIDTHS, completions_abut
from tests.hw.helpers import seeded
from tests.hw.read.completions import packet_of, smallest, split
from tests.hw.read.engine_bench import PAGE, RETIRES, Bench


@pytest.mark.parametrize(
    ("clients", "tags", "rcb", "width"),
    [
        (1, 2, 64, 64),
        (4, 32, 128, 64),
        (6, 8, 64, 64),
        (4, 32, 128, 128),
        (6, 8, 64, 128),
        (4, 64, 128, 256),
        (6, 8, 64, 256),
    ],
)
def test_random_reads(clients, tags, rcb, width):
    bench = Bench(
        clients,
        tags,
        seeded(),
        ready_rate=0.7,
        gap_rate=0.1,
        latency=(5, 200),
        rcb=rcb,
        reorder=True,
        fetches=clients // 2,
        width=width,
    )

    async def test(bench):
        bench.relaxed = bench.rng.getrandbits(1)
        jobs = bench.submit_random(60)
        await bench.drain(40_000)
        assert all(job.outcome == Outcome.OK for job in jobs)
        assert not bench.errors and not bench.unexpected and not bench.timed_out
        assert len(bench.requests) == len(jobs)

    bench.run(test)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_alignment(width):
    bench = Bench(1, 32, seeded(), max_payload=64, width=width)

    async def test(bench):
        place, lanes = 0, bench.lanes
        for source in range(8):
            for target in range(lanes):
                for length in bench.rng.sample(range(1, 3 * lanes + 1), 32 // lanes):
                    # Near a read completion boundary, so that most are split.
                    job = bench.submit(0, 0x1_0000_0030 + source, length, place + target)
                    place = (job.place + length + lanes - 1) & -lanes
        await bench.drain()
        assert not bench.errors

    bench.run(test)


@pytest.mark.parametrize("width", WIDTHS)
def test_latency(width):
    bench = Bench(3, 8, manual=True, width=width)

    async def test(bench):
        seen = set()
        for phase in range(8):
            await bench.step(phase)
            bench.placements.clear()
            bench.beats.clear()
            # Three beats that straddle words, each written as it comes
            job = bench.submit(1, 0x1000, 3 * bench.lanes, 100)
            await bench.until(lambda: bench.requests)
            request = bench.requests.pop()
            assert request.cycle == job.taken + 1
            bench.answer(split(request, bench.rng, 128, 128))
            await bench.drain()
            first, last = bench.beats[0] + bench.late, bench.beats[-1] + bench.late
            cycles = [cycle for cycle, _ in bench.placements]
            assert cycles == list(range(first + 2, last + 3))
            seen.add(job.retired - last)
        assert seen == {RETIRES}

    bench.run(test)


def test_order():
    bench = Bench(2, 8, manual=True)

    async def test(bench):
        first, first_request = await bench.ask(64)
        second, second_request = await bench.ask(64, 0x2000)
        other, other_request = await bench.ask(64, 0x3000, client=1)
        assert bench.get(bench.dut.idle) == 0
        bench.answer(smallest(second_request) + smallest(other_request))
        await bench.step(40)
        assert other.retired and not first.retired and not second.retired
        assert bench.get(bench.dut.idle) == 2 and bench.get(bench.dut.reads_pending)
        bench.answer(smallest(first_request))
        await bench.drain()
        assert first.retired < second.retired
        assert not bench.get(bench.dut.reads_pending)

    bench.run(test)


def test_tags_run_out():
    bench = Bench(2, 4, manual=True)

    async def test(bench):
        jobs = [bench.submit(i % 2, 64 * i, 64, 64 * i) for i in range(7)]
        await bench.step(60)
        assert len(bench.requests) == 4
        assert sorted(request.tag for request in bench.requests) == [0, 1, 2, 3]
        for done in range(3):
            request = bench.requests[done]
            bench.answer(smallest(request))
            await bench.step(30)
            assert len(bench.requests) == 5 + done
            assert bench.requests[-1].tag == request.tag
        for request in bench.requests[3:]:
            bench.answer(smallest(request))
        await bench.drain()
        assert all(job.outcome == Outcome.OK for job in jobs)

    bench.run(test)


def test_more_tags_than_five_bits_need_extended_tags():
    """There are as many reads under way as may be."""
    bench = Bench(1, 64, manual=True)

    async def test(bench):
        for number in range(32 + 64 + 32):
            bench.submit(0, 64 * number, 8, 64 * number)
        answered = 0
        for extended in (0, 1, 0):
            bench.extended = extended
            await bench.step(2)
            for request in bench.requests[answered:]:
                bench.answer(smallest(request))
            answered = len(bench.requests)
            await bench.step(256)
            tags = [request.tag for request in bench.requests[answered:]]
            assert sorted(tags) == list(range(64 if extended else 32))

    bench.run(test)


def test_a_tag_is_kept_until_its_job_retires():
    bench = Bench(1, 2, manual=True)

    async def test(bench):
        await bench.ask(8)
        late = bench.requests[0]
        await bench.ask(8)
        bench.answer(smallest(bench.requests[1]))
        bench.submit(0, 0, 8, 0)
        await bench.step(40)
        assert len(bench.requests) == 2
        bench.answer(smallest(late))
        await bench.until(lambda: len(bench.requests) == 3)
        bench.answer(smallest(bench.requests[2]))
        await bench.drain()

    bench.run(test)


def test_fairness():
    bench = Bench(4, 32, latency=(20, 20))

    async def test(bench):
        jobs = [bench.submit(i // 10, 64 * i, 64, 64 * i) for i in range(40)]
        await bench.drain()
        order = [job.client for job in sorted(jobs, key=lambda job: job.taken)]
        assert order == [0, 1, 2, 3] * 10 or order == [1, 2, 3, 0] * 10
        # Clients that are alone share the turns of the others.
        jobs = [bench.submit(3 - 2 * (i // 10), 64 * i, 64, 64 * i) for i in range(20)]
        await bench.drain()
        order = [job.client for job in sorted(jobs, key=lambda job: job.taken)]
        assert order == [1, 3] * 10

    bench.run(test)


def test_data_is_shared_by_bytes():
    """One of three channels asks for an eighth at a time. Fetches have a turn like any client."""
    bench = Bench(5, 32, latency=(20, 20), fetches=2)
    sizes = (512, 32, 64, 512, 512)
    counts = (12, 12, 60, 12, 12)

    async def test(bench):
        jobs = [
            bench.submit(client, 512 * n, size, size * n)
            for client, (size, count) in enumerate(zip(sizes, counts, strict=True))
            for n in range(count)
        ]
        await bench.drain()
        order = [job.client for job in sorted(jobs, key=lambda job: job.taken)]
        for fetch in (0, 1):
            last = max(number for number, client in enumerate(order) if client == fetch)
            assert last < counts[fetch] * len(sizes)
        had = {2: 0, 3: 0, 4: 0}
        for client in [client for client in order if client in had]:
            had[client] += sizes[client] + EXTRA_BYTES
            assert max(had.values()) - min(had.values()) < 1024 + 512 + EXTRA_BYTES

    bench.run(test)


def test_issue_rate():
    bench = Bench(4, 32, manual=True)

    async def test(bench):
        await bench.step(4)
        jobs = [bench.submit(i % 4, 64 * i, 64, 64 * i) for i in range(32)]
        start = bench.cycle
        await bench.step(80)
        assert sorted(job.taken for job in jobs) == list(range(start, start + 64, 2))
        assert [request.cycle for request in bench.requests] == list(
            range(start + 1, start + 65, 2)
        )

    bench.run(test)


@pytest.mark.parametrize(
    ("length", "payload", "header_cycles", "cycles", "width"),
    [
        (512, 128, True, 18, 64),
        (512, 128, False, 16, 64),
        (64, 64, True, 10, 64),
        (512, 512, True, 66, 64),
        (512, 64, False, 4, 128),
        (512, 64, False, 2, 256),
        (512, 128, False, 4, 256),
        (512, 256, False, 8, 256),
    ],
)
def test_completions_without_a_bubble(length, payload, header_cycles, cycles, width):
    """1 µs from request to completion, on a link that is faster than the stream of beats."""
    knobs = {"max_payload": payload, "header_cycles": header_cycles, "width": width}
    bench = Bench(4, 32, latency=(125, 125), **knobs)

    async def test(bench):
        count = 60
        jobs = [bench.submit(0, length * i, length, length * i) for i in range(count)]
        bench.mutate = lambda request, _: [
            packet_of(request.tag, request.address + at, payload, length - at)
            for at in range(0, length, payload)
        ]
        await bench.drain()
        # The first beat comes one round trip after the first request; from then on ...
        assert bench.beats[0] == jobs[0].taken + 1 + 125
        busy = bench.beats[-1] - bench.beats[0] + 1
        idle_after_last = cycles - payload // bench.lanes
        assert busy == count * (length // payload) * cycles - idle_after_last
        assert jobs[-1].retired - bench.beats[-1] == RETIRES + bench.late

    bench.run(test)


def nobody(bench, beats: int, packets: int):
    """Completions of so many beats, for a tag that has no request, as close as they can come."""
    bench.answer([packet_of(255, 0, beats * bench.lanes, 4096) for _ in range(packets)])


@pytest.mark.parametrize("beats", [1, 2, 3, 8])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_job_waits_for_no_stream(beats, width):
    """It is taken with the next beat that is not a packet's first, or in a cycle without; at 64
    bits, where there is one before each packet, not with the last beat either."""
    bench = Bench(1, 32, manual=True, width=width, header_cycles=not completions_abut(width))

    async def test(bench):
        nobody(bench, beats, 200)
        await bench.step(16)
        waits = set()
        for number in range(16):
            job = bench.submit(0, 64 * number, 64, 64 * number)
            begin = bench.cycle
            await bench.until(lambda job=job: job.taken is not None, 16)
            assert bench.answers, "the stream has ended"
            waits.add(job.taken - begin)
            await bench.step(5 + number % 3)
        assert max(waits) == (1 if beats != 2 or completions_abut(width) else 2)

    bench.run(test)


@pytest.mark.parametrize("beats", [1, 2, 8])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_timeout_waits_for_no_stream(beats, width):
    """All tags are scanned as without a stream, each two cycles later at most, or one."""
    tags, timeout = 16, 512
    seen = []
    for stream in (False, True):
        knobs = {"manual": True, "header_cycles": not completions_abut(width)}
        bench = Bench(1, tags, None, timeout, 1, width=width, **knobs)

        async def test(bench, stream=stream):
            for number in range(tags):
                bench.submit(0, 64 * number, 64, 64 * number)
            await bench.until(lambda: len(bench.requests) == tags)
            if stream:
                nobody(bench, beats, 8 * timeout)
            await bench.drain()
            await bench.until(lambda: not bench.get(bench.dut.quarantined))
            assert not stream or bench.answers, "the stream has ended"
            seen.append([*bench.timed_out, bench.cycle])

        bench.rng = seeded()
        bench.run(test)
    late = [with_stream - without for without, with_stream in zip(*seen, strict=True)]
    assert len(late) == tags + 1 and max(late) <= (1 if completions_abut(width) else 2)


@pytest.mark.parametrize("beats", [1, 2, 3, 8])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_waits_for_reads_that_end(beats, width):
    """Each packet of a stream is its read's only one, and for each that ends another begins."""
    tags, period, lost = 16, 16, 2
    cycles = {"latency": (2, 2), "header_cycles": not completions_abut(width)}
    bench = Bench(3, tags, timeout_cycles=tags * period, width=width, max_payload=512, **cycles)
    bench.mutate = lambda request, packets: [] if request.address < PAGE else packets

    async def test(bench):
        for number in range(1 + lost):
            bench.submit(0, 512 * number, 8, 512 * number)
        await bench.until(lambda: bench.timed_out)
        count, waits, job = 0, [], None
        while len(bench.timed_out) <= lost:
            # Completions pile up now and then, so that they come without a pause.
            bench.gap_rate = bench.cycle % 61 < 24
            if not bench.waiting[1] and len(bench.active[1]) < tags - lost - 3:
                at = 512 * (count % 32)
                bench.submit(1, 2 * PAGE + at, beats * bench.lanes, at)
                count += 1
            if job is None or job.retired:
                job, asked = bench.submit(2, PAGE, 8, 8), bench.cycle
            await bench.step()
            if job.taken == bench.cycle - 1:
                waits.append(job.taken - asked)
        late = [(cycle - bench.timed_out[0]) % period for cycle in bench.timed_out]
        assert max(waits) <= 4 and max(late) <= 2

    bench.run(test)


@pytest.mark.parametrize("width", [width for width in WIDTHS if completions_abut(width)])
def test_a_full_stream(width):
    """Jobs begin, and end, with every packet; nothing is told of too early, too late or twice. A
    tag is scanned each 8 cycles, or 16 where completions take twice as long: no wait in the
    bench's queue is a timeout."""
    knobs = {"rng": seeded(), "latency": (5, 60), "reorder": True, "max_payload": 64}
    knobs["timeout_cycles"] = 8 * 256 // width * 32
    bench = Bench(4, 32, fetches=2, width=width, **knobs)

    async def test(bench):
        rng, lanes = bench.rng, bench.lanes
        jobs, places = [], [0] * 4
        for _ in range(600):
            client = rng.randrange(4)
            length = rng.choice([4, lanes, 2 * lanes, rng.randint(1, 64), 64, 128])
            address = 4096 * rng.randrange(64) + 64 * rng.randrange(60) + rng.randrange(4)
            jobs.append(bench.submit(client, address, length, places[client]))
            places[client] = bench.further(places[client], length + rng.randrange(3))
        await bench.drain()
        assert all(job.outcome == Outcome.OK for job in jobs)
        assert not bench.unexpected

    bench.run(test)


@pytest.mark.parametrize(("cycles", "width"), [(1, 64), (3, 64), (1, 256)])
def test_flush_with_traffic(cycles, width):
    knobs = {"ready_rate": 0.7, "gap_rate": 0.2, "latency": (5, 150), "reorder": True}
    bench = Bench(4, 16, seeded(), width=width, **knobs)

    async def test(bench):
        flushed = 0
        for _ in range(8):
            jobs = bench.submit_random(20)
            await bench.step(bench.rng.randrange(400))
            bench.flush = 1
            await bench.step(cycles)
            bench.flush = 0
            dropped = bench.get(bench.dut.quarantined)
            assert bench.get(bench.dut.idle) == 15
            assert all(dropped >> tag & 1 for tag in bench.answers)
            # One more may be in the middle of its last packet, one not yet sent.
            assert bin(dropped).count("1") <= len(bench.answers) + 2
            for queue in bench.waiting:
                queue.clear()
            flushed += sum(job.taken is not None and job.retired is None for job in jobs)
        assert flushed
        jobs = bench.submit_random(30)
        await bench.drain()
        assert all(job.outcome == Outcome.OK for job in jobs)
        await bench.until(lambda: not bench.answers and not bench.sending)
        await bench.step(8)
        assert bench.get(bench.dut.quarantined) == 0 and not bench.unexpected

    bench.run(test)


@pytest.mark.parametrize("width", WIDTHS)
def test_flush_in_every_stage(width):
    bench = Bench(1, 2, latency=(4, 4), max_payload=64, width=width)

    async def test(bench):
        for delay in range(1, 28):
            for stalled in (False, True):
                job = bench.submit(0, 0x103F, 66, 4)
                bench.ready_rate = 0 if stalled else 1
                await bench.until(lambda job=job: job.taken is not None)
                await bench.step(delay - 1)
                # The next job must wait for the end of the flush, but not for the tag of the last.
                job = bench.submit(0, 0x203F, 66, 4)
                bench.flush = 1
                await bench.step()
                bench.flush = 0
                assert bench.get(bench.dut.request.valid) == stalled
                assert bench.get(bench.dut.idle) == 1
                await bench.step(2)
                bench.ready_rate = 1
                await bench.drain()
                assert job.outcome == Outcome.OK
                await bench.until(lambda: not bench.answers and not bench.sending)
                await bench.step(8)
                assert bench.get(bench.dut.quarantined) == 0
        assert not bench.unexpected

    bench.run(test)


def test_bus_master_off():
    bench = Bench(2, 8, seeded(), ready_rate=0.5, latency=(5, 60), reorder=True)

    async def test(bench):
        jobs = bench.submit_random(80)
        bench.bus_master = bench.rng.getrandbits(1)
        changes, levels = [], []
        while left := sum(map(len, bench.waiting)):
            bench.bus_master ^= 1
            changes.append(bench.cycle)
            levels.append(bench.bus_master)
            # Each time takes one at least, and not all: there are some of both.
            await bench.until(lambda left=left: sum(map(len, bench.waiting)) < left)
            await bench.step(bench.rng.randrange(40))
        await bench.drain()
        enabled = {job: levels[bisect(changes, job.taken) - 1] for job in jobs}
        for job in jobs:
            assert job.outcome == (Outcome.OK if enabled[job] else Outcome.BUS_MASTER_OFF)
        assert 0 < len(bench.requests) == sum(enabled.values()) < len(jobs)
        assert len(bench.errors) == len(jobs) - len(bench.requests)

    bench.run(test)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"clients": 1, "capacity": 8},
            "9 completions, and .* room for 8 of 128 bytes",
        ),
        ({"clients": 0}, "clients must be 1 to 16, not 0"),
        ({"clients": 17}, "clients must be 1 to 16, not 17"),
        ({"clients": 1, "tags": 24}, "tags must be a power of two, 2 to 256, not 24"),
        (
            {"clients": 1, "tags": 32, "timeout_cycles": 127},
            "timeout_cycles must be at least 4 for each of the 32 tags, not 127",
        ),
        (
            {"clients": 1, "quarantine_timeouts": 0},
            "quarantine_timeouts must be at least 1, not 0",
        ),
    ],
)
def test_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        ReadEngine(**{"fetches": 0, "capacity": 9, "width": 64} | arguments)
