# SPDX-License-Identifier: BSD-2-Clause
"""What one user's requests cost while another's jobs end, and thousands watch that: in a guest.

    python3 -m tests.system.watchers --kind file --entries 30000

Both times the other user does the same, but for the watchers.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import select
import signal
import statistics
import time
from collections.abc import Iterator

from peerdma import uapi
from peerdma.uapi import Op
from tests.system.hostile import OTHER, nodes_of_all, start
from tests.system.picoevb import PAGE, Buffer, Node, ended

__all__ = ["KINDS", "costs", "ratios", "watch"]

#: What is watched: the open file of the node, or the eventfd of its jobs.
KINDS = ("file", "eventfd")
_DUPLICATES = 1000
_FILES = 8192
_WARM, _TRIES = 10, 40


def watch(fd: int, entries: int, copies: int = _DUPLICATES) -> list[select.epoll | io.FileIO]:
    """Has a file watched that many times: by epoll instances, each by that many descriptors.

    Returns all of these, to be kept, and closed.
    """
    descriptors = [io.FileIO(os.dup(fd)) for _ in range(min(entries, copies))]
    epolls = [select.epoll() for _ in range(entries // len(descriptors))]
    for epoll in epolls:
        for descriptor in descriptors:
            epoll.register(descriptor, select.EPOLLIN)
    return [*epolls, *descriptors]


@contextlib.contextmanager
def _watched(kind: str, entries: int) -> Iterator[None]:
    """Another user's jobs end all the time within, watched that often."""
    read, write = os.pipe()

    def attack() -> None:
        node, memory = Node(), Buffer(PAGE)
        eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        more = {"eventfd": eventfd, "flags": uapi.SubmitFlag.EVENTFD} if kind == "eventfd" else {}
        watchers = watch(eventfd if more else node.fd, entries)
        handle = node.pages(memory)
        os.write(write, b"x")
        while watchers:
            node.submit(Op.H2C, 0, src_handle=handle, **more)
            node.events(1)

    pid = start(attack)
    os.read(read, 1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL
        os.close(read)
        os.close(write)


def _times(node: Node, handle: int, tries: int) -> dict[str, list[float]]:
    """Seconds of requests: of SUBMIT alone, and of a copy from its request to its event."""
    found: dict[str, list[float]] = {"submit": [], "copy": []}
    for _ in range(tries):
        for name, length in (("submit", 0), ("copy", 64)):
            begin = time.perf_counter()
            node.submit(Op.H2C, length, src_handle=handle)
            submitted = time.perf_counter()
            node.events(1)
            found[name].append((time.perf_counter() if length else submitted) - begin)
    return found


def costs(kind: str, entries: int) -> dict[str, list[float]]:
    """Seconds of each of one user's requests beside another's jobs."""

    def measure() -> None:
        with Node() as node:
            handle = node.pages(Buffer(PAGE))
            _times(node, handle, _WARM)  # the first ones differ
            found = _times(node, handle, _TRIES)
        with os.fdopen(write, "w") as report:
            json.dump(found, report)

    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    with _watched(kind, entries) if entries else contextlib.nullcontext():
        # Not before: the other user's program would have it open, too, and there would be no end.
        read, write = os.pipe()
        pid = start(measure, OTHER)
        os.close(write)
        with os.fdopen(read) as report:
            text = report.read()
        assert ended(pid) == 0
    return json.loads(text)


def ratios(kind: str, entries: int) -> dict[str, float]:
    """How many times as long requests take if another user's files are watched: the faster ones."""
    found: dict[int, dict[str, list[float]]] = {1: {}, entries: {}}
    with nodes_of_all():
        for turn in (1, entries) * 2:
            for name, times in costs(kind, turn).items():
                found[turn].setdefault(name, []).extend(times)
    for turn, each in found.items():
        for name, times in each.items():
            numbers = statistics.mean(times), statistics.median(times), max(times)
            print(kind, turn, name, *(round(1e6 * number) for number in numbers), "us", flush=True)
    # Other programs beside the guest have a part in the slower half. A driver that is at fault
    # makes nearly all of them slow, as the other user's jobs do nothing but end.
    quartile = {
        turn: {name: statistics.quantiles(times, n=4)[0] for name, times in each.items()}
        for turn, each in found.items()
    }
    return {name: quartile[entries][name] / quartile[1][name] for name in found[1]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--entries", type=int, required=True)
    arguments = parser.parse_args()
    found = ratios(arguments.kind, arguments.entries)
    slow = [f"{name}: {ratio:.1f} times" for name, ratio in found.items() if ratio > 2]
    print(json.dumps({"failures": slow, "ratios": found}))
