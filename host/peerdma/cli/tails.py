# SPDX-License-Identifier: BSD-2-Clause
"""How long the slowest of many transfers take: percentiles, and a board that is kept busy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

__all__ = ["TAILS", "keep_busy", "tails"]

#: What is told of samples: for each percentile its per mille, and the fewest samples that have it.
TAILS: dict[str, tuple[int, int]] = {
    "p50": (500, 1),
    "p99": (990, 100),
    "p99.9": (999, 1000),
    "max": (1000, 1),
}
#: Transfers of the load at a time: while one is seen to, the board has the next.
_LOADS = 2


def tails(samples: Iterable[float]) -> dict[str, float | None]:
    """The percentiles of `TAILS`, by nearest rank: each is one of the samples.

    That is the smallest sample that so many per cent of them do not exceed. None for a percentile
    of too few samples.
    """
    ordered = sorted(samples)
    count = len(ordered)
    return {
        name: ordered[-(-count * per_mille // 1000) - 1] if count >= fewest else None
        for name, (per_mille, fewest) in TAILS.items()
    }


@contextlib.contextmanager
def keep_busy(transfer: Callable[[], object]) -> Iterator[None]:
    """Makes a transfer over and over, on threads, while the block runs.

    The block starts when each thread has made one. If one fails, its error is raised at the end of
    the block, unless that raises another.
    """
    ended, begun = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        try:
            transfer()
        finally:
            begun.release()
        while not ended.is_set():
            transfer()

    with ThreadPoolExecutor(_LOADS) as pool:
        try:
            loads = [pool.submit(work) for _ in range(_LOADS)]
            for _ in loads:
                begun.acquire()
            yield
        finally:
            ended.set()
    for load in loads:
        load.result()
