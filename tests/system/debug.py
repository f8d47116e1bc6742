# SPDX-License-Identifier: BSD-2-Clause
"""The driver on a kernel with every checker on: ``make system-debug``.

Anything that the kernel has to say fails a test, with what it said, and the seed to do it again.
"""

from __future__ import annotations

import json
import os
import secrets

import pytest

from peerdma.uapi import Ioctl
from sim.system import Guest
from sim.system.debug.guest import DebugGuest

#: Seconds of fuzzing, each time.
SECONDS = 60
#: Options of a board that has all that the driver has requests for.
ALL = ("--launch-queues", "2")
_OF_QUEUES = {
    *("CREATE_QUEUE", "PREPARE", "UNPREPARE", "RESUME_QUEUE", "QUERY_QUEUE", "DESTROY_QUEUE"),
}


@pytest.fixture
def seed() -> int:
    """The environment's SEED, else a new one; shown on failure."""
    value = int(os.environ.get("SEED") or secrets.randbits(32))
    print(f"repeat with SEED={value}")
    return value


def program(guest: Guest, command: str, timeout: float = 300) -> dict:
    """Runs one of the programs beside this file: what it reports. Its failures fail the test."""
    status, text = guest.run(f"python3 -m tests.system.{command}", timeout)
    try:
        report = json.loads(text.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        pytest.fail(f"it ended with exit status {status} and no report:\n{text}")
    assert report["failures"] == [], text
    assert status == 0, text
    return report


@pytest.mark.parametrize("configuration", ["strict", "identity"])
def test_requests_at_random(configuration: str, seed: int):
    with DebugGuest(configuration, board_options=ALL) as guest:
        report = program(guest, f"fuzz --seed {seed} --seconds {SECONDS} --rebind")
        for module in reversed(guest.configuration.modules):
            guest.unload(module)
    done = {name.partition(" ")[0] for name in report["once"]}
    possible = {each.name for each in Ioctl} | {"mmap", "touch", "read", "unbind", "bind"}
    # With CONFIG_DMA_API_DEBUG, all memory behind an IOMMU counts as synchronised.
    assert done == possible - (_OF_QUEUES if configuration == "strict" else set())
    # At random it has got somewhere, and been refused.
    assert {name.endswith(" ok") for name in report["counts"]} == {True, False}


def test_ranges_at_the_ends_of_the_number_line(seed: int):
    with DebugGuest(board_options=ALL) as guest:
        program(guest, f"fuzz_ranges --seed {seed} --calls 100000", timeout=1800)


def test_requests_at_random_while_memory_is_short(seed: int):
    with DebugGuest(board_options=ALL) as guest:
        report = program(guest, f"fuzz --seed {seed} --seconds {SECONDS} --faults 5")
    assert any(name.endswith(" ENOMEM") for name in report["counts"])


def test_each_failure_of_each_request():
    with DebugGuest(board_options=ALL) as guest:
        met = program(guest, "faults")["met"]
    # Nothing to fail: they neither allocate nor copy.
    assert [name for name, count in met.items() if not count] == ["LED"]


def test_requests_take_as_long_beside_a_hundred_thousand_jobs():
    with DebugGuest() as guest:
        program(guest, "crowd --files 400 --jobs 256")
