# SPDX-License-Identifier: BSD-2-Clause
"""The guest's kernel log, and recognising complaints in it."""

from __future__ import annotations

import re
import time
from pathlib import Path

__all__ = ["COMPLAINT", "LINK_ERROR", "KernelLog"]

#: What kernels log of an error that a port reports: with "Error" from 7.3 on, with "error" before.
LINK_ERROR = r"AER: .*[Ee]rror"

#: Messages that must not appear in a test unless expected: failed assertions, crashes, hangs, IOMMU
#: faults, and reports of the checkers in debug kernels.
COMPLAINT = re.compile(
    "|".join(
        (
            r"\bWARNING: ",
            r"\bBUG\b",
            r"\bOops\b",
            r"Unable to handle kernel|unable to handle page fault|general protection fault",
            r"Kernel panic",
            r"Call [Tt]race:",
            r"INFO: (task|rcu|possible|trying|NMI)|rcu: INFO|detected stalls|soft lockup",
            r"DMAR: .*([Ff]ault|DMA (Read|Write))|AMD-Vi: Event|arm-smmu.*fault",
            r"DMA-API: (?!preallocated|debugging enabled)",
            r"KASAN|UBSAN|KCSAN|KFENCE|kmemleak: .*new suspected",
            r"refcount_t: |list_(add|del) corruption|Bad page state|scheduling while atomic",
            r"irq \d+: nobody cared|Disabling IRQ",
            r"Bad rss-counter|sysfs: cannot create duplicate",
            LINK_ERROR,
        )
    )
)
_PANIC = re.compile(r"Kernel panic - not syncing")
_PANICKED = re.compile(r"end Kernel panic - not syncing")
_MARK = re.compile(r"guest: mark \d+$")


class KernelLog:
    """Follows the file that a guest's console writes.

    Attributes
    ----------
    lines : list of str
        All complete lines up to the last `follow`, except marks.
    announced : list of re.Pattern
        Lines that match one of these are expected and no complaints.
    mark : str
        The last mark: a line that the host writes to the log, to know that it has read all before.
    panic : str
        The kernel's message if it panicked.
    """

    #: Number of lines to show before a complaint, and from it on.
    _BEFORE, _AFTER = 3, 80

    def __init__(self, path: Path):
        self.path = path
        self.lines: list[str] = []
        self.announced: list[re.Pattern[str]] = []
        self.mark = ""
        self.panic = ""
        self._read = 0
        self._rest = b""
        self._complaints: list[int] = []

    def follow(self) -> None:
        """Reads the lines since the last call."""
        for line in self._new():
            if mark := _MARK.search(line):
                self.mark = mark[0]
                continue
            if _PANIC.search(line):
                self.panic = self.panic or line
            if COMPLAINT.search(line) and not any(known.search(line) for known in self.announced):
                self._complaints.append(len(self.lines))
            self.lines.append(line)

    def wait_for_panic(self, patience: float) -> None:
        """Follows until the kernel has logged all that it has to say of its panic, or in vain."""
        deadline = time.monotonic() + patience
        while not any(_PANICKED.search(line) for line in self.lines[-5:]):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
            self.follow()

    def take_complaints(self) -> str:
        """The complaints since the last call, with the lines around them."""
        complaints = self.complaints()
        self._complaints = []
        return complaints

    def complaints(self) -> str:
        """What `take_complaints` would take."""
        if not self._complaints:
            return ""
        first, last = self._complaints[0], self._complaints[-1]
        stop = min(last + self._BEFORE, first + self._AFTER)
        return "\n".join(self.lines[max(0, first - self._BEFORE) : stop])

    def _new(self) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in lines]
