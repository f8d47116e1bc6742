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

from sim.rtl import ROOT

from . import worker
from .worker import Bundle, run_seed

__all__ = ["SEEDS", "Site", "cluster", "local", "run"]

#: Seeds that belong to one number of a campaign.
SEEDS = 1_000_000
#: So many failures are enough to look at.
_ENOUGH = 10
#: How often a seed is tried whose worker is lost, by Dask itself and then once more here.
_TRIES = 3
_JOIN_SECONDS = 60


@dataclass
class Site:
    """Where seeds run.

    Attributes
    ----------
    executor : Executor
    slots : callable
        How many seeds it can run at once, now.
    bundle : object
        What `run_seed` gets there as its bundle.
    arguments : tuple
        What else it gets, behind the seed.
    """

    executor: Executor
    slots: Callable[[], int]
    bundle: object
    arguments: tuple = ()


@contextlib.contextmanager
def local(bundle: Bundle, cores: int | None = None) -> Iterator[Site]:
    """The cores at hand: all that this process may use, unless it is said how many."""
    count = cores or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(count) as pool:
        yield Site(pool, lambda: count, bundle, (str(ROOT / "build" / "campaign"),))


@contextlib.contextmanager
def cluster(bundle: Bundle, scheduler: str) -> Iterator[Site]:
    """The workers of the Dask scheduler at this address; they need not have this checkout.

    A worker runs as many seeds at once as it has threads. What one had in hand when it was lost
    is run again by another.
    """
    import cloudpickle
    from distributed import Client

    # Workers cannot import it.
    cloudpickle.register_pickle_by_value(worker)
    with Client(scheduler, timeout=_JOIN_SECONDS) as client:
        client.wait_for_workers(1, timeout=_JOIN_SECONDS)
        there = client.scatter(bundle, broadcast=True, hash=False)
        yield Site(
            client.get_executor(pure=False, retries=_TRIES),
            lambda: sum(client.nthreads().values()),
            there,
        )


def run(
    site: Site,
    number: int,
    seconds: float,
    done: Callable[[dict], None],
    *,
    seeds: int | None = None,
) -> None:
    """Run seeds of campaign `number`, and call `done` with each result as it comes.

    None is started when `seconds` have passed, or after `seeds` of them, or when many have failed.
    """
    end = time.monotonic() + seconds
    mine = itertools.islice(itertools.count(number * SEEDS), seeds)
    pending: dict[Future, tuple[int, int]] = {}
    failures = 0

    def submit(seed: int, tries: int = 1) -> None:
        future = site.executor.submit(run_seed, site.bundle, seed, *site.arguments)
        pending[future] = (seed, tries)

    while True:
        while time.monotonic() < end and failures < _ENOUGH and len(pending) < site.slots():
            seed = next(mine, None)
            if seed is None:
                break
            submit(seed)
        if not pending:
            return
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            seed, tries = pending.pop(future)
            error = future.exception()
            if error is not None and tries < _TRIES:
                submit(seed, tries + 1)
                continue
            result = future.result()
            failures += not result["passed"]
            done(result)
