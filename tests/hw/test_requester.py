# SPDX-License-Identifier: BSD-2-Clause
"""`hw.requester` against a root complex in Python: see `requester_bench`."""

import random

import pytest
from hw.transfer import JOB_BYTES, Outcome

from tests.hw.requester_bench import Bench, seed

PAGE = 4096


def random_jobs(bench: Bench, count: int, lengths: tuple[int, int] = (1, JOB_BYTES)):
    """Submits `count` jobs for random clients, with gaps of 0 to 9 bytes between their places."""
    rng = bench.rng
    places = [rng.randrange(1 << 17) for _ in range(bench.clients)]
    jobs = []
    for _ in range(count):
        client = rng.randrange(bench.clients)
        length = rng.randint(*lengths)
        address = rng.choice([rng.randrange(1 << 32), rng.randrange(1 << 64)])
        address -= max(0, address % PAGE + length - PAGE)
        jobs.append(bench.submit(client, address, length, places[client], rng.getrandbits(1)))
        places[client] = (places[client] + length + rng.randint(0, 9)) % (1 << 17)
    return jobs


@pytest.mark.parametrize("rcb", [64, 128])
@pytest.mark.parametrize("clients, tags", [(1, 32), (4, 4), (3, 32), (6, 8)])
def test_random_reads(clients, tags, rcb):
    rng = random.Random(seed())
    bench = Bench(
        clients, tags, rng, ready_rate=0.7, gap_rate=0.1, latency=(5, 200), rcb=rcb, reorder=True
    )

    async def test(bench):
        jobs = random_jobs(bench, 150)
        await bench.drain()
        assert all(job.outcome == Outcome.OK for job in jobs)
        assert not bench.errors and not bench.unexpected and not bench.timed_out
        assert len(bench.requests) == len(jobs)

    bench.run(test)
