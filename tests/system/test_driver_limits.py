# SPDX-License-Identifier: BSD-2-Clause
"""What a user may take of a machine that others use as well: jobs, pinned memory, and time."""

from __future__ import annotations

import pytest

from tests.system.crowd import ratios

pytestmark = [
    pytest.mark.system,
    pytest.mark.in_guest,
    pytest.mark.usefixtures("guest"),
]


def test_requests_take_as_long_beside_the_jobs_of_others():
    """Nothing is done for each of them, least of all with interrupts off."""
    found = ratios(files=512, jobs=16)
    assert max(found.values()) <= 2, found
