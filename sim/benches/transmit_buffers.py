# SPDX-License-Identifier: BSD-2-Clause
"""The transmit buffers of the hard block: taken by a TLP until it is acknowledged."""

from __future__ import annotations

from collections import deque

from cocotb.utils import get_sim_time

from hw.pcie.series7.block import SERIES7

__all__ = ["TransmitBuffers"]


class TransmitBuffers:
    """Counts buffers, in TLPs.

    Attributes
    ----------
    count : int
        Of them.
    ack_ns : int
        From a TLP sent to its buffer free again.
    lag : int
        Cycles by which `shown` is late.
    free, shown : int
        Free buffers in this cycle, and as the block tells the core.
    """

    def __init__(self):
        self.count = self.free = self.shown = SERIES7.transmit_buffers
        self.ack_ns = self.lag = 0
        self._used = 0
        #: when the buffers of TLPs that were sent are free again, in nanoseconds
        self._unacknowledged: deque[float] = deque()
        #: free buffers in the last cycles, the newest last
        self._before: deque[int] = deque()

    def reset(self) -> None:
        """All are free, and nothing is awaited."""
        self._used = 0
        self._unacknowledged.clear()
        self._before.clear()

    def take(self) -> None:
        """A TLP takes one."""
        self._used += 1

    def give_back(self) -> None:
        """A TLP leaves without being sent."""
        self._used -= 1

    def sent(self, count: int) -> None:
        """What had taken so many has been sent."""
        self._unacknowledged += [get_sim_time("ns") + self.ack_ns] * count

    def cycle(self) -> None:
        """The next clock cycle."""
        now = get_sim_time("ns")
        while self._unacknowledged and self._unacknowledged[0] <= now:
            self._unacknowledged.popleft()
            # What was sent before a reset has none any more.
            self._used = max(self._used - 1, 0)
        self.free = max(self.count - self._used, 0)
        self._before.append(self.free)
        while len(self._before) > self.lag + 1:
            self._before.popleft()
        self.shown = self._before[0]
