# SPDX-License-Identifier: BSD-2-Clause
"""What one program's requests cost beside queues of many users: in a guest.

    python3 -m tests.system.crowd --files N --jobs N

A job that waits for ever holds a channel, and jobs of other files wait behind it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import resource
import time
from collections.abc import Callable, Iterator

from peerdma import uapi
from peerdma.uapi import Ioctl, Op
from tests.system.hostile import SOMEBODY
from tests.system.picoevb import PAGE, Buffer, Node, user

__all__ = ["crowd", "ratios"]

_ROUNDS, _TRIES = 10, 51
_USERS = 100


@contextlib.contextmanager
def crowd(files: int, jobs: int) -> Iterator[None]:
    """Files with that many jobs each, all of which wait for the same channel; of as many users, up
    to `_USERS`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files + 64, max(hard, files + 64)))
    memory = Buffer(PAGE)
    with contextlib.ExitStack() as nodes:
        holder = nodes.enter_context(Node())
        holder.endless(holder.pages(memory))
        for number in range(files):
            with user(SOMEBODY + number % _USERS):
                node = nodes.enter_context(Node())
            wanted = uapi.Submit(op=Op.C2H, length=PAGE, dst_handle=node.pages(memory))
            for _ in range(jobs):
                fcntl.ioctl(node.fd, Ioctl.SUBMIT, wanted)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _cost(prepare: Callable[[], object], timed: Callable[[], object]) -> float:
    """Seconds that a request takes when nothing else has the processor: at some time of a second,
    as what runs beside the guest may last for many of these requests.
    """
    found = []
    for _ in range(_ROUNDS):
        for _ in range(_TRIES):
            prepare()
            begin = time.perf_counter()
            timed()
            found.append(time.perf_counter() - begin)
        time.sleep(0.1)
    return min(found)


def _costs(node: Node) -> dict[str, float]:
    """Seconds of requests that have nothing to do with the jobs of others."""
    memory = Buffer(PAGE)
    kept = uapi.PinPages(address=memory.address, length=PAGE, access=3)
    unpin, pin = uapi.UnpinCuda(), uapi.PinPages(address=memory.address, length=PAGE, access=3)
    nothing = uapi.Submit(op=Op.H2C, src_handle=node.request(Ioctl.PIN_PAGES, kept).handle)

    def pinned() -> None:
        unpin.handle = node.request(Ioctl.PIN_PAGES, pin).handle

    def read() -> None:
        if submitted:
            node.events(1)
        submitted.append(True)

    submitted: list[bool] = []
    costs = {
        "unpin": _cost(pinned, lambda: fcntl.ioctl(node.fd, Ioctl.UNPIN_CUDA, unpin)),
        "submit": _cost(read, lambda: fcntl.ioctl(node.fd, Ioctl.SUBMIT, nothing)),
    }
    node.events(1)
    return costs


def ratios(files: int, jobs: int) -> dict[str, float]:
    """How many times as long requests take beside a `crowd` as on an idle board."""
    with Node() as node:
        _costs(node)  # the first ones differ
        before = _costs(node)
        with crowd(files, jobs):
            beside = _costs(node)
        after = _costs(node)
    idle = {name: max(before[name], after[name]) for name in before}
    print({name: (round(idle[name] * 1e6), round(beside[name] * 1e6)) for name in idle}, "us")
    return {name: beside[name] / idle[name] for name in idle}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    arguments = parser.parse_args()
    found = ratios(arguments.files, arguments.jobs)
    slow = [f"{name}: {ratio:.1f} times" for name, ratio in found.items() if ratio > 2]
    print(json.dumps({"failures": slow, "ratios": found}))
