# SPDX-License-Identifier: BSD-2-Clause
"""When `hw.requester` tells how far its oldest reads are.

That it is never ahead of memory, and in the end has told of all, `Bench` checks in every test.
"""

from __future__ import annotations

import pytest

from hw.seam import CompletionStatus
from hw.transfer import JOB_BYTES, RING_PLACE, Outcome
from tests.hw.completions import smallest
from tests.hw.helpers import seeded
from tests.hw.requester_bench import PLACES, Bench


@pytest.mark.parametrize("place", [RING_PLACE - 5, RING_PLACE, RING_PLACE + 5, PLACES - 3])
def test_odd_lengths_are_told_to_the_byte(place):
    """Also of a read that ends where another memory begins, or begins where one has ended."""
    bench = Bench(1, 8, seeded())

    async def test(bench):
        at = place
        for length in (1, 2, 3, 5, 7, 9, 63, 65, JOB_BYTES - 1):
            for offset in range(4):
                bench.submit(0, 0x2000 + offset, length, at % PLACES)
                at += length
        await bench.drain()

    bench.run(test)


def test_told_as_completions_come():
    """Of a read in four completions a quarter each, between four and seven cycles after its last
    beat; and before that nothing of a younger read that is already there."""
    bench = Bench(3, 8, manual=True)

    async def test(bench):
        seen = set()
        for phase in range(8):
            await bench.step(phase)
            (_, first), (_, second) = [await bench.ask(256), await bench.ask(64)]
            bench.steps.clear()
            bench.answer(smallest(second))
            await bench.step(60)
            assert not bench.steps
            for count, packet in enumerate(smallest(first), start=1):
                bench.answer([packet])
                await bench.step(25)
                cycle, client, reached = bench.steps[count - 1]
                assert (client, reached) == (0, 64 * count)
                seen.add(cycle - bench.beats[-1])
            await bench.drain()
        assert seen == set(range(4, 8))

    bench.run(test)


@pytest.mark.parametrize("failure", ["poisoned", "status"])
def test_nothing_of_a_completion_that_failed(failure):
    """What came before it was told; the job after it begins at its own place."""
    bench = Bench(1, 8, manual=True)

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
        assert [reached for _, _, reached in bench.steps] == [64, 128]
        bench.answer(smallest(next_request))
        await bench.drain()
        assert (job.outcome == Outcome.OK, after.outcome) == (False, Outcome.OK)

    bench.run(test)
