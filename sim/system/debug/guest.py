# SPDX-License-Identifier: BSD-2-Clause
"""Guests with the debug kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..board import ROOT, Board
from ..channel import Running
from ..errors import KernelComplaint
from ..guest import Guest
from .kernel import debug_kernel

__all__ = ["DebugGuest"]

#: Factor for all time limits: the kernel has every checker on, and two guests run at a time.
_SLOWNESS = 4
#: With 5-level page tables, KASAN reports an interrupt during the kernel's detection of processor
#: features: https://lkml.iu.edu/hypermail/linux/kernel/2606.1/11911.html
_WORDS = "no5lvl"
#: Looks for leaked memory. kmemleak reports objects that have been unreferenced for over 5 s. This
#: loads neither programs nor libraries, as the guest's root does not respond after a suspend.
_SCAN = """
import time

def ask(what):
    with open("/sys/kernel/debug/kmemleak", "w") as kmemleak:
        kmemleak.write(what)

for _ in range(2):
    ask("scan")
    time.sleep(6)
ask("scan")
with open("/sys/kernel/debug/kmemleak") as kmemleak:
    print(kmemleak.read())
ask("clear")
print("that is all", flush=True)
"""
#: Locks that lockdep's report of hot-plugging names.
_SLOT_LOCKS = ("reset_lock", "pci_rescan_remove_lock")
_PIN_OFTEN = """
from tests.system.picoevb import Buffer, Node

with Node() as node:
    buffer = Buffer(4096)
    for n in range(9):
        node.pages(buffer)
"""


class DebugGuest(Guest):
    """A guest with the debug kernel; parameters are those of `Guest`.

    At its end, a memory leak of the kernel is a KernelComplaint, too.
    """

    #: Whether lockdep has made its report, of which there is only one per boot.
    _has_reported = False

    def __init__(
        self,
        configuration: str = "identity",
        *,
        load: bool = True,
        append: str = "",
        **settings: Any,
    ):
        words = f"{_WORDS} {append}"
        super().__init__(configuration, kernel=debug_kernel(), load=load, append=words, **settings)
        if load:
            self._use_up_overlaps()

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "PEERDMA_SLOWNESS": str(_SLOWNESS)}

    def finish(self, running: Running, timeout: float | None = 120.0) -> tuple[int, str]:
        """See `Guest.finish`."""
        return super().finish(running, None if timeout is None else _SLOWNESS * timeout)

    def wait_for(self, pattern: str, since: int = 0, timeout: float = 30.0) -> str:
        """See `Guest.wait_for`."""
        return super().wait_for(pattern, since, _SLOWNESS * timeout)

    def _use_up_overlaps(self) -> None:
        """Provokes a warning that is of no interest, as the kernel gives it only once.

        The kernel's check of DMA counts up to 7 mappings of a page and warns of more, which are
        legitimate.
        """
        with self.expects("exceeded 7 overlapping mappings|add_dma_entry|Call Trace:"):
            self.python(_PIN_OFTEN)

    def plug(self, options: Sequence[str] = (), checkout: Path = ROOT) -> Board:
        """See `Guest.plug`; returns when the kernel has handled it.

        The first hot-plug makes lockdep report that the kernel's own code for slots takes two locks
        in both orders, and switches lockdep off. A report of anything else is an error.
        """
        if self._has_reported:
            return super().plug(options, checkout)
        since = self.mark()
        with self.expects("WARNING: possible circular locking dependency detected|Call Trace:"):
            board = super().plug(options, checkout)
            self.wait_for("</TASK>", since)
        report = "\n".join(self.messages(since))
        if not all(lock in report for lock in _SLOT_LOCKS) or "[peerdma" in report:
            raise KernelComplaint(f"the guest's kernel complains:\n{report}")
        self._has_reported = True
        return board

    def reboot(self, *, load: bool = True) -> None:
        """See `Guest.reboot`."""
        super().reboot(load=load)
        self._has_reported = False

    def check_leaks(self) -> None:
        """KernelComplaint, with the place of allocation, if memory leaked since the last check."""
        self.check()
        report = self.start_python(_SCAN).wait_for("that is all", 300)
        # The log has the number of leaks, but not their places.
        with contextlib.suppress(KernelComplaint):
            self.check()
        if "unreferenced object" in report:
            raise KernelComplaint(f"the guest's kernel leaked memory:\n{report}")

    def close(self) -> None:
        """See `Guest.close`."""
        if self._sockets.exists():
            self.check_leaks()
        super().close()
