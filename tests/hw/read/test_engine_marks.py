# SPDX-License-Identifier: BSD-2-Clause
"""When `hw.read.engine` tells how far its oldest reads are.

That it is never ahead of memory, and in the end has told of all, `Bench` checks in every test.
"""

from __future__ import annotations

import pytest

from hw.records import JOB_BYTES, OFFSET_BITS, RAM_ADDRESS_BITS, Outcome
from hw.seam import WIDTHS, CompletionStatus
from tests.hw.helpers import RING_PLACE, seeded
from tests.hw.read.completions import smallest, split
from tests.hw.read.engine_bench import Bench

every_width = pytest.mark.parametrize("width", WIDTHS)


@pytest.mark.parametrize(
    ("offset_bits", "width"),
    [(OFFSET_BITS, 64), (RAM_ADDRESS_BITS, 64), (OFFSET_BITS, 128), (OFFSET_BITS, 256)],
)
@pytest.mark.parametrize(("memory", "begin"), [(0, -5), (RING_PLACE, 0), (RING_PLACE, -3)])
def test_odd_lengths_are_told_to_the_byte(memory, begin, offset_bits, width):
    """Also of reads across the end of their memory, which go on at its start."""
    bench = Bench(1, 8, seeded(), offset_bits=offset_bits, width=width)

    async def test(bench):
        at = bench.further(memory, begin)
        for length in (1, 2, 3, 5, 7, 9, 63, 65, JOB_BYTES - 1):
            for offset in range(4):
                bench.submit(0, 0x2000 + offset, length, at)
                at = bench.further(at, length)
        await bench.drain()

    bench.run(test)


@every_width
def test_told_as_beats_come(width):
    """Words are told of three cycles after their beat, a packet's last one two; and nothing of a
    younger read that is already there."""
    bench = Bench(3, 8, manual=True, width=width)

    async def test(bench):
        seen, seen_last = set(), set()
        size = max(64, 4 * bench.lanes)
        for phase in range(8):
            await bench.step(phase)
            (_, first), (_, second) = [await bench.ask(4 * size), await bench.ask(64)]
            bench.steps.clear()
            bench.answer(smallest(second))
            await bench.step(60)
            assert not bench.steps
            for count, packet in enumerate(split(first, bench.rng, size, size)):
                bench.steps.clear()
                bench.beats.clear()
                bench.answer([packet])
                await bench.step(25)
                if count == 3:
                    # The younger read has become the oldest, and was told of as a whole.
                    assert bench.steps.pop()[2] == 64
                for cycle, client, reached in bench.steps:
                    assert client == 0
                    words, rest = divmod(reached - size * count, bench.lanes)
                    assert not rest
                    times = seen_last if words == size // bench.lanes else seen
                    times.add(cycle - bench.late - bench.beats[words - 1])
                assert reached == size * (count + 1)
                assert len(bench.steps) > 1, "not told before the end of the packet"
            await bench.drain()
        assert seen == {3}
        assert seen_last == {2}

    bench.run(test)


@every_width
def test_no_last_mark_is_lost_behind_the_end_of_a_packet(width):
    """A client's second read, answered before its first, retires whenever another's packet ends.

    `Bench` checks that all of each read was told of by then.
    """
    bench = Bench(3, 8, manual=True, width=width)

    async def test(bench):
        for gap in range(16):
            (_, first), (_, second) = [await bench.ask(32), await bench.ask(32, 0x2000)]
            _, other = await bench.ask(64, 0x3000, client=1)
            bench.answer(smallest(second))
            await bench.step(20)
            bench.answer(smallest(first))
            await bench.step(gap)
            bench.answer(smallest(other))
            await bench.drain()

    bench.run(test)


@every_width
def test_the_end_of_a_packet_of_one_beat(width):
    """It may be of another tag than the packet before it, which was the oldest."""
    bench = Bench(2, 8, manual=True, width=width)

    async def test(bench):
        for length in (4, 8):
            (_, first), (_, second) = [await bench.ask(128), await bench.ask(length, 0x2000)]
            packets = smallest(first)
            bench.answer(packets[:1])
            await bench.step(20)
            bench.steps.clear()
            bench.answer(smallest(second))
            await bench.step(20)
            assert not bench.steps
            bench.answer(packets[1:])
            await bench.drain()

    bench.run(test)


@every_width
def test_words_of_a_packet_with_pauses(width):
    """A packet that takes its time is told of as it comes, at any alignment."""
    bench = Bench(1, 8, seeded(), gap_rate=0.8, max_payload=512, width=width)

    async def test(bench):
        for offset in range(4):
            for lane in range(0, bench.lanes, bench.lanes // 8):
                bench.steps.clear()
                bench.submit(
                    0, 0x4000 + offset, 200, RING_PLACE + 1024 * (8 * offset + lane) + lane
                )
                await bench.drain()
                assert len(bench.steps) > 80 // bench.lanes

    bench.run(test)


@every_width
@pytest.mark.parametrize("failure", ["poisoned", "status"])
def test_nothing_of_a_completion_that_failed(failure, width):
    """What came before it was told; the job after it begins at its own place."""
    bench = Bench(1, 8, manual=True, width=width)

    async def test(bench):
        (job, request), (after, next_request) = [await bench.ask(256), await bench.ask(64)]
        packets = smallest(request)
        if failure == "poisoned":
            packets[2].poisoned = 1
        else:
            packets[2].status = CompletionStatus.UR
            packets[2].data = b""
            del packets[3]
        bench.answer(packets[:2])
        await bench.step(40)
        bench.answer(packets[2:])
        await bench.until(lambda: job.retired)
        told = [reached for _, _, reached in bench.steps]
        assert 64 in told
        assert told[-1] == 128
        bench.answer(smallest(next_request))
        await bench.drain()
        assert (job.outcome == Outcome.OK, after.outcome) == (False, Outcome.OK)

    bench.run(test)
