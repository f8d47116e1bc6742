# SPDX-License-Identifier: BSD-2-Clause
"""`hw.requester` tells how far its oldest reads are: never ahead of memory, and all in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hw.seam import CompletionStatus
from hw.transfer import JOB_BYTES, RING_PLACE, Outcome
from tests.hw.completions import smallest
from tests.hw.helpers import seeded
from tests.hw.requester_bench import PLACES, Bench, Job


@dataclass
class Watched(Bench):
    """A `Bench` that holds each value of `frontier` against the bytes that are in memory.

    A byte that is placed in a cycle can be read from the next one on, as can be used then what
    `frontier` says in that cycle.
    """

    #: per client: how many bytes of its oldest job it was told of
    told: dict[int, int] = field(default_factory=dict)
    #: (cycle, client, bytes) whenever it was told of more
    steps: list[tuple[int, int, int]] = field(default_factory=list)

    def _retire(self, valids: int):
        oldest = [queue[0] if queue else None for queue in self.active]
        super()._retire(valids)
        for client, job in enumerate(oldest):
            if job is None or job.retired is None:
                continue
            reached = self.told.pop(client, None)
            if job.outcome == Outcome.OK:
                assert reached == job.length, f"retired, but {reached} of {job.length} were told"

    def _take(self, ready: int):
        port = self.dut.frontier
        if self._ctx.get(port.valid):
            told = self._ctx.get(port.payload)
            assert self.active[told.client], f"client {told.client} has no job"
            self._check(told.client, self.active[told.client][0], told.place)
        super()._take(ready)

    def _check(self, client: int, job: Job, place: int):
        reached = (place - job.place) % PLACES
        before = self.told.get(client, 0)
        assert before <= reached <= job.length, f"{reached} of {job.length} bytes, after {before}"
        for index in range(before, reached):
            assert (job.place + index) % PLACES not in self.missing[client], "ahead of memory"
        if reached > before:
            self.steps.append((self.cycle, client, reached))
        self.told[client] = reached


@pytest.mark.parametrize(("clients", "tags", "rcb"), [(1, 2, 64), (3, 32, 64), (6, 8, 128)])
def test_random_reads(clients, tags, rcb):
    """Reordered, split and interrupted completions, at every alignment and place."""
    bench = Watched(
        clients,
        tags,
        seeded(),
        ready_rate=0.7,
        gap_rate=0.1,
        latency=(5, 200),
        rcb=rcb,
        reorder=True,
    )

    async def test(bench):
        jobs = bench.submit_random(80)
        await bench.drain(40_000)
        assert all(job.outcome == Outcome.OK for job in jobs)
        assert len(bench.steps) > len(jobs), "only told at the end"

    bench.run(test)


@pytest.mark.parametrize("place", [RING_PLACE, RING_PLACE + 5, PLACES - 3])
def test_odd_lengths_are_told_to_the_byte(place):
    """Also where a read begins at a byte before which its first completion has dwords' rest."""
    bench = Watched(1, 8, seeded())

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
    bench = Watched(3, 8, manual=True)

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
    bench = Watched(1, 8, manual=True)

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
