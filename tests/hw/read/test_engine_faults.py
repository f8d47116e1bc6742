# SPDX-License-Identifier: BSD-2-Clause
"""`hw.read.engine` when reads fail, or time out.

What every test checks: see `Bench`.
"""

from __future__ import annotations

import pytest

from hw.records import Outcome
from hw.seam import CompletionStatus
from tests.hw.helpers import seeded
from tests.hw.read.completions import Packet, Request, packet_of, smallest
from tests.hw.read.engine_bench import PAGE, Bench

START, LENGTH = 0x103D, 200
#: `smallest` of that: 3, 64, 64, 64 and 5 bytes
PIECES = (3, 64, 64, 64, 5)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (CompletionStatus.UR, Outcome.UNSUPPORTED_REQUEST),
        (CompletionStatus.CRS, Outcome.UNSUPPORTED_REQUEST),
        (CompletionStatus.CA, Outcome.COMPLETER_ABORT),
        (CompletionStatus.TIMEOUT, Outcome.COMPLETION_TIMEOUT),
    ],
)
def test_error_completions(status, outcome):
    bench = Bench(2, 2, manual=True)

    async def test(bench):
        for bad in range(len(PIECES)):
            # Usually without data, and with fields that not everybody sets; or with data.
            for data in (b"", bytes(24)):
                job, request = await bench.ask(LENGTH, START)
                good = smallest(request)[:bad]
                bench.answer([*good, Packet(request.tag, 0, 4, data, status)])
                await bench.drain()
                assert job.outcome == outcome
                assert job.written == sum(PIECES[:bad])
                assert bench.get(bench.dut.quarantined) == 0
        assert not bench.unexpected
        assert bench.errors == [(0, START, outcome)] * (2 * len(PIECES))
        await bench.check_tags()

    bench.run(test)


def test_poisoned():
    bench = Bench(2, 2, manual=True)

    async def test(bench):
        for bad in range(len(PIECES)):
            job, request = await bench.ask(LENGTH, START, client=1)
            packets = smallest(request)
            packets[bad].poisoned = 1
            bench.answer(packets[: bad + 1])
            await bench.drain()
            assert job.outcome == Outcome.POISONED
            assert job.written == sum(PIECES[:bad])
            rest = packets[bad + 1 :]
            assert bench.get(bench.dut.quarantined) == (1 << request.tag if rest else 0)
            bench.answer(rest)
            await bench.until(lambda: not bench.answers and not bench.sending)
            await bench.step(2)
            assert bench.get(bench.dut.quarantined) == 0
        assert not bench.unexpected
        await bench.check_tags()

    bench.run(test)


def byte_count_low(packet):
    packet.byte_count -= 1


def byte_count_high(packet):
    packet.byte_count += 1024


def lower_address_dword(packet):
    packet.lower_address ^= 0x40


def lower_address_byte(packet):
    packet.lower_address ^= 1


def no_data(packet):
    packet.data = b""


def long_data(packet):
    packet.data += bytes(LENGTH + 4)


@pytest.mark.parametrize(
    "spoil",
    [
        byte_count_low,
        byte_count_high,
        lower_address_dword,
        lower_address_byte,
        no_data,
        long_data,
    ],
)
def test_completions_that_do_not_fit(spoil):
    bench = Bench(2, 2, manual=True)

    async def test(bench):
        for bad in range(len(PIECES)):
            bench.unexpected.clear()
            job, request = await bench.ask(LENGTH, START)
            packets = smallest(request)
            spoil(packets[bad])
            bench.answer(packets[: bad + 1])
            await bench.drain()
            assert job.outcome == Outcome.UNEXPECTED_COMPLETION
            assert job.written == sum(PIECES[:bad])
            assert len(bench.unexpected) == 1
            # The tag is kept for the completions that belong to the request ...
            assert bench.get(bench.dut.quarantined) == 1 << request.tag
            spoiled = packets[bad]
            for packet in smallest(request)[bad:]:
                assert bench.get(bench.dut.quarantined) == 1 << request.tag
                bench.answer([packet])
                await bench.until(lambda: not bench.answers and not bench.sending)
                await bench.step(2)
            # ... and free after them, whatever came between.
            assert bench.get(bench.dut.quarantined) == 0
            assert len(bench.unexpected) == 1
            bench.answer([spoiled])
            await bench.step(60)
            assert len(bench.unexpected) == 2
        await bench.check_tags()

    bench.run(test)


@pytest.mark.parametrize(
    "spoil", [byte_count_low, byte_count_high, lower_address_dword, lower_address_byte]
)
def test_a_sloppy_completer_can_be_tolerated(spoil):
    """Where its bytes go follows from what was asked for and what has come."""
    bench = Bench(2, 2, manual=True)

    async def test(bench):
        bench.tolerant = 1
        for bad in range(len(PIECES)):
            job, request = await bench.ask(LENGTH, START)
            packets = smallest(request)
            spoil(packets[bad])
            bench.answer(packets)
            await bench.drain()
            assert job.outcome == Outcome.OK
        # There is no place for more than was asked for.
        job, request = await bench.ask(LENGTH, START)
        packets = smallest(request)
        long_data(packets[0])
        bench.answer(packets[:1])
        await bench.drain()
        assert job.outcome == Outcome.UNEXPECTED_COMPLETION and len(bench.unexpected) == 1
        bench.answer(smallest(request))
        await bench.until(lambda: not bench.answers and not bench.sending)
        await bench.check_tags()

    bench.run(test)


def test_completions_of_locked_reads_belong_to_nobody():
    bench = Bench(1, 8, manual=True)

    async def test(bench):
        job, request = await bench.ask(LENGTH, START)
        locked = smallest(request)
        for packet in locked:
            packet.locked = 1
        bench.answer([*locked, *smallest(request)])
        await bench.drain()
        assert job.outcome == Outcome.OK
        assert len(bench.unexpected) == len(PIECES)
        await bench.check_tags()

    bench.run(test)


def test_completions_for_nobody():
    bench = Bench(1, 8, manual=True)

    async def test(bench):
        job, request = await bench.ask(LENGTH, START)
        for tag in (request.tag ^ 1, request.tag + 8, request.tag + 128):
            bench.answer(smallest(Request(tag, START, LENGTH, 0)))
        await bench.until(lambda: not bench.answers and not bench.sending)
        await bench.step(4)
        assert len(bench.unexpected) == 3 * len(PIECES)
        assert not job.written and not job.retired
        bench.answer(smallest(request))
        await bench.drain()
        assert job.outcome == Outcome.OK
        # Twice the same
        bench.answer(smallest(request)[-1:])
        await bench.step(20)
        assert len(bench.unexpected) == 3 * len(PIECES) + 1
        await bench.check_tags()

    bench.run(test)


@pytest.mark.parametrize("lead", range(-3, 1))
def test_a_completion_for_the_former_job_of_a_tag(lead):
    """It begins `lead` cycles after the tag was taken again, a cycle too early for the new job."""
    bench = Bench(1, 2, manual=True)

    async def test(bench):
        _, other = await bench.ask(4)
        former, request = await bench.ask(32, 0x2000)
        bench.answer([Packet(request.tag, 0, 4, b"", CompletionStatus.UR)])
        bench.answer(smallest(other))
        await bench.drain()
        _, other = await bench.ask(4)
        assert former.outcome == Outcome.UNSUPPORTED_REQUEST and other.tag != request.tag
        await bench.step(8)
        stale = packet_of(request.tag, 0x2000, 32, 32)
        stale.due = bench.cycle + 4 + lead
        bench.answer([stale])
        await bench.step(4)
        job, again = await bench.ask(32, 0x3000)
        assert again.tag == request.tag and bench.beats[-1] >= job.taken + lead
        assert job.taken + lead in bench.beats
        await bench.step(20)
        assert len(bench.unexpected) == 1
        bench.answer(smallest(again))
        bench.answer(smallest(other))
        await bench.drain()
        assert job.outcome == Outcome.OK

    bench.run(test)


# -- Time


@pytest.mark.parametrize("traffic", [False, True])
@pytest.mark.parametrize("chosen", [False, True], ids=["built", "chosen"])
def test_timeout(traffic, chosen):
    """The read ends in time, also while the stream of completions is full.

    In the time that the engine was built with, or that a simulation has chosen.
    """
    timeout, tags = 256, 4
    bench = Bench(2, tags, seeded(), 8 * timeout if chosen else timeout, 2, latency=(3, 3))
    bench.timeout_input = timeout if chosen else None
    hung = []

    def lose(request, _):
        if request.address != START:
            return [packet_of(request.tag, request.address, 512, 512)]
        hung.append(request.tag)
        return smallest(request)[:1]

    async def test(bench):
        bench.mutate = lose
        if traffic:
            for number in range(60):
                bench.submit(0, PAGE + 512 * number, 512, 512 * number)
        for number in range(3):
            await bench.step(bench.rng.randrange(2 * timeout))
            job = bench.submit(1, START, LENGTH, 512 * number)
            await bench.until(lambda job=job: job.retired)
            assert job.outcome == Outcome.COMPLETION_TIMEOUT
            # A visit may have to wait for the end of a packet, a job for its turn to retire.
            assert timeout - 70 <= job.retired - job.taken <= 2 * timeout + 70 + 8
            assert bench.timed_out[-1] < job.retired and len(bench.timed_out) == number + 1
            assert bench.quarantined(hung[-1])
            await bench.until(lambda: not bench.quarantined(hung[-1]))
            assert -70 <= bench.cycle - bench.timed_out[-1] - 2 * timeout <= 70
            bench.open_tags.discard(hung[-1])
        await bench.drain()
        assert not bench.unexpected
        assert len(bench.errors) == len(bench.timed_out) == 3

    bench.run(test)


def test_late_completions():
    """They free the tag without a word, and nothing of them is placed."""
    bench = Bench(2, 2, seeded(), 64, 4, manual=True)

    async def test(bench):
        for before in range(len(PIECES)):
            job, request = await bench.ask(LENGTH, START)
            packets = smallest(request)
            bench.answer(packets[:before])
            await bench.drain()
            assert job.outcome == Outcome.COMPLETION_TIMEOUT
            assert job.written == sum(PIECES[:before])
            await bench.step(bench.rng.randrange(64))
            for packet in packets[before:]:
                assert bench.quarantined(request.tag) and bench.get(bench.dut.reads_pending)
                bench.answer([packet])
                await bench.until(lambda: not bench.answers and not bench.sending)
                await bench.step(2)
            assert not bench.quarantined(request.tag)
        assert not bench.unexpected and len(bench.timed_out) == len(PIECES)
        await bench.check_tags()

    bench.run(test)


def test_completions_after_quarantine():
    bench = Bench(1, 2, timeout_cycles=64, quarantine_timeouts=1, manual=True)

    async def test(bench):
        _, request = await bench.ask(LENGTH, START)
        await bench.drain()
        await bench.until(lambda: not bench.quarantined(request.tag))
        bench.answer(smallest(request))
        await bench.until(lambda: not bench.answers and not bench.sending)
        await bench.step(2)
        assert len(bench.unexpected) == len(PIECES)
        await bench.check_tags()

    bench.run(test)


def test_an_error_completion_ends_quarantine():
    bench = Bench(1, 2, timeout_cycles=64, manual=True)

    async def test(bench):
        job, request = await bench.ask(LENGTH, START)
        await bench.drain()
        assert bench.quarantined(request.tag)
        bench.answer([Packet(request.tag, 0, 4, b"", CompletionStatus.CA)])
        await bench.step(4)
        assert not bench.quarantined(request.tag) and not bench.unexpected
        assert job.outcome == Outcome.COMPLETION_TIMEOUT
        await bench.check_tags()

    bench.run(test)


@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("reuse", [False, True])
def test_timeout_within_a_packet(reuse, width):
    """A packet stops in the middle; its rest comes late, or when its tag has another job."""
    bench = Bench(1, 2, timeout_cycles=64, quarantine_timeouts=1, width=width, manual=True)

    async def test(bench):
        job, request = await bench.ask(64, 0x2000)
        bench.answer(smallest(request))
        await bench.until(lambda: len(bench.beats) == 32 // bench.lanes)
        bench.gap_rate = 1
        await bench.drain()
        assert job.outcome == Outcome.COMPLETION_TIMEOUT and job.written == 32
        if not reuse:
            bench.gap_rate = 0
            await bench.step(20)
            assert not bench.quarantined(request.tag)
            await bench.check_tags()
            return
        await bench.until(lambda: not bench.quarantined(request.tag))
        await bench.step(4)
        jobs = [await bench.ask(64, 0x2000) for _ in range(2)]
        bench.gap_rate = 0
        await bench.step(20)
        assert not any(job.written or job.retired for job, _ in jobs)
        for _, request in jobs:
            bench.answer(smallest(request))
        await bench.drain()
        assert all(job.outcome == Outcome.OK for job, _ in jobs)

    bench.run(test)
