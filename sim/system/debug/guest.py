# SPDX-License-Identifier: BSD-2-Clause
"""Guests with the debug kernel."""

from __future__ import annotations

import contextlib
from typing import Any

from ..errors import KernelComplaint
from ..guest import Guest
from .kernel import debug_kernel

__all__ = ["DebugGuest"]

#: kmemleak reports what it has not found for longer than 5 s.
_SCAN = """
for n in 1 2; do
    echo scan >/sys/kernel/debug/kmemleak
    sleep 6
done
echo scan >/sys/kernel/debug/kmemleak
cat /sys/kernel/debug/kmemleak
echo clear >/sys/kernel/debug/kmemleak
"""
_PIN_OFTEN = """
from tests.system.picoevb import Buffer, Node

with Node() as node:
    buffer = Buffer(4096)
    for n in range(9):
        node.pages(buffer)
"""


class DebugGuest(Guest):
    """A guest with the debug kernel; parameters are those of `Guest`.

    At its end, memory that its kernel lost is a KernelComplaint, too.
    """

    def __init__(self, lane: str = "identity", *, load: bool = True, **settings: Any):
        super().__init__(lane, kernel=debug_kernel(), load=load, **settings)
        if load:
            self._use_up_overlaps()

    def _use_up_overlaps(self) -> None:
        """Makes the kernel say now what is of no interest.

        It can count to 7 mappings of one page, and says once that there were more, which programs
        may have.
        """
        with contextlib.suppress(KernelComplaint):
            self.python(_PIN_OFTEN)

    def check_leaks(self) -> None:
        """KernelComplaint with where it was allocated, if memory was lost since the last check."""
        self.check()
        _, report = self.start(_SCAN).wait(300)
        # The log says how much was lost, but not where.
        with contextlib.suppress(KernelComplaint):
            self.check()
        if "unreferenced object" in report:
            raise KernelComplaint(f"the guest's kernel lost memory:\n{report}")

    def close(self) -> None:
        """See `Guest.close`."""
        if self._sockets.exists():
            self.check_leaks()
        super().close()
