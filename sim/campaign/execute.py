# SPDX-License-Identifier: BSD-2-Clause
"""Runs seeds one after the other on all there is: the cores at hand, or a Dask cluster."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from sim.compile.tools import ROOT

from . import worker
from .worker import run_seed

__all__ = ["EPISODES", "SEEDS", "Campaign", "NoWorkers", "Site", "cluster", "local", "run"]

#: Seeds that belong to one number of a campaign.
SEEDS = 1_000_000
#: Episodes of a seed: some twenty seconds of a core.
EPISODES = 20
#: So many failures are enough to look at.
_ENOUGH = 10
#: How often a seed is tried whose worker is lost, by Dask itself and then once more here.
_TRIES = 3
#: How long workers are waited for.
_JOIN_SECONDS = 20


class NoWorkers(Exception):
    """There is nobody to run seeds, and has not been for a while."""


@dataclass
class Site:
    """Where seeds run.

    Attributes
    ----------
    executor : Executor
    slots : callable
        How many seeds it can run at once, now.
    run_seed : callable
        `worker.run_seed`, as it can be sent there.
    bundle : object
        What that gets as its bundle.
    arguments : tuple
        What else it gets, behind seed and episodes.
    """

    executor: Executor
    slots: Callable[[], int]
    run_seed: Callable[..., dict]
    bundle: object
    arguments: tuple = ()


@contextlib.contextmanager
def local(bundle: bytes, cores: int | None = None) -> Iterator[Site]:
    """The cores at hand: all that this process may use, unless it is said how many."""
    count = cores or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(count) as pool:
        yield Site(pool, lambda: count, run_seed, bundle, (str(ROOT / "build" / "campaign"),))


@contextlib.contextmanager
def cluster(bundle: bytes, scheduler: str) -> Iterator[Site]:
    """The workers of the Dask scheduler at this address; they need not have this checkout.

    A worker runs as many seeds at once as it has threads. What one had in hand when it was lost
    is run again by another. Raises NoWorkers.
    """
    import cloudpickle
    from distributed import Client

    # Workers cannot import it.
    cloudpickle.register_pickle_by_value(worker)
    try:
        client = Client(scheduler, timeout=_JOIN_SECONDS)
        client.wait_for_workers(1, timeout=_JOIN_SECONDS)
    except (OSError, TimeoutError) as error:
        raise NoWorkers(f"no Dask scheduler with workers at {scheduler}: {error}") from None
    with client:
        # What has no name of its own is sent by value, and with it what it uses.
        def run_there(*arguments: object) -> dict:
            return run_seed(*arguments)

        there = client.scatter(bundle, broadcast=True, hash=False)
        yield Site(
            client.get_executor(pure=False, retries=_TRIES),
            lambda: sum(client.nthreads().values()),
            run_there,
            there,
        )


@dataclass(frozen=True)
class Campaign:
    """What is to be run.

    Attributes
    ----------
    number : int
        Which seeds: another number, others.
    seconds : float
        No seed is started later.
    episodes : int
        How much each seed does.
    seeds : int or None
        How many seeds at most.
    """

    number: int
    seconds: float
    episodes: int = EPISODES
    seeds: int | None = None


def run(site: Site, campaign: Campaign, done: Callable[[dict], None]) -> None:
    """Run the seeds of a campaign, and call `done` with each result as it comes.

    When many have failed no more are started. Raises NoWorkers when there is none for a
    while, and whatever a seed raises that could not be run.
    """
    end = time.monotonic() + campaign.seconds
    seeds = itertools.islice(itertools.count(campaign.number * SEEDS), campaign.seeds)
    pending: dict[Future, tuple[int, int]] = {}
    failures = 0
    served = time.monotonic()

    def submit(seed: int, tries: int = 1) -> None:
        arguments = (site.bundle, seed, campaign.episodes, *site.arguments)
        pending[site.executor.submit(site.run_seed, *arguments)] = (seed, tries)

    while True:
        while time.monotonic() < end and failures < _ENOUGH and len(pending) < site.slots():
            seed = next(seeds, None)
            if seed is None:
                break
            submit(seed)
        if not pending:
            return
        if site.slots():
            served = time.monotonic()
        elif time.monotonic() > served + _JOIN_SECONDS:
            raise NoWorkers(f"no worker is left, and {len(pending)} seeds are not done")
        for future in wait(pending, timeout=1, return_when=FIRST_COMPLETED).done:
            seed, tries = pending.pop(future)
            if future.exception() is not None and tries < _TRIES:
                submit(seed, tries + 1)
                continue
            result = future.result()
            failures += not result["passed"]
            done(result)
