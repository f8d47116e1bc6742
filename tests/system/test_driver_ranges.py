# SPDX-License-Identifier: BSD-2-Clause
"""Ranges that wrap around, or nearly, by users without rights: none of them harms the kernel."""

from __future__ import annotations

import pytest

from sim.system import Guest
from tests.system.debug import program, seed
from tests.system.fuzz_ranges import WIDTHS

__all__ = ["seed"]

pytestmark = pytest.mark.system

#: With all that there are requests for.
GUEST = {"configuration": "identity", "board_options": ("--launch-queues", "2")}
CALLS = 2000


def test_ranges_at_the_ends_of_the_number_line(guest: Guest, seed: int):
    report = program(guest, f"fuzz_ranges --seed {seed} --calls {CALLS}")
    assert sum(sum(row.values()) for row in report["counts"].values()) >= CALLS * len(WIDTHS)
    # Each has got through, and each has been refused.
    assert [name for name, row in report["counts"].items() if len(row) < 2] == []
