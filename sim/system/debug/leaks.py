# SPDX-License-Identifier: BSD-2-Clause
"""Memory that a guest's kernel has lost, as kmemleak finds it."""

from __future__ import annotations

import contextlib

from ..errors import KernelComplaint
from ..guest import Guest

__all__ = ["check_leaks"]

#: kmemleak reports what it has not found for longer than 5 s, and what it misses twice.
_SCAN = """
for n in 1 2; do
    echo scan >/sys/kernel/debug/kmemleak
    sleep 6
done
echo scan >/sys/kernel/debug/kmemleak
cat /sys/kernel/debug/kmemleak
echo clear >/sys/kernel/debug/kmemleak
"""


def check_leaks(guest: Guest) -> None:
    """KernelComplaint with where it was allocated, if memory was lost since the last check."""
    guest.check()
    _, report = guest.start(_SCAN).wait(300)
    # The log says how much was lost, but not where.
    with contextlib.suppress(KernelComplaint):
        guest.check()
    if "unreferenced object" in report:
        raise KernelComplaint(f"the guest's kernel lost memory:\n{report}")
