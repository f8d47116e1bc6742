# SPDX-License-Identifier: BSD-2-Clause
"""Host time of what a board stamped with its cycle counter.

The counter is read in brackets: the host's clock, the counter, the host's clock again. What was
stamped between two readings happened between them, and as far from each as the cycles between take.
So every time comes with an error bound, which holds without any fit or filter.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Bracket", "ClockEstimator", "ClockRate", "FrameClock", "FrameTime", "measure_rate"]

_WRAP = 1 << 64
_PPM = 1_000_000
#: How far the clocks may be off, in cycles per second of the host, as ppm of the nominal rate: at
#: the slowest and at the fastest. The reference clock of a PCIe slot is within 300 ppm, and up to
#: 5,000 ppm slower with spread spectrum (PCI Express Card Electromechanical Specification). The
#: other 700 are the host's: its oscillator, and NTP, which changes CLOCK_MONOTONIC's rate by up to
#: 500 ppm.
_SLOWEST, _FASTEST = -6000, 1000
#: Readings of which the narrowest bracket counts, and seconds from these to the next.
_READINGS, _BETWEEN = 5, 0.1


class Bracket(NamedTuple):
    """A reading of the board's cycle counter, and when it was made."""

    #: CLOCK_MONOTONIC before the counter was read, in nanoseconds
    before_ns: int
    #: the counter, of 64 bits
    cycles: int
    #: CLOCK_MONOTONIC afterwards
    after_ns: int


class ClockRate(NamedTuple):
    """The rate of a board's clock by the host's, between two bounds in kHz."""

    least_khz: float
    most_khz: float

    def may_be(self, clock_khz: int) -> bool:
        """Whether a clock of this nominal rate, as far off as clocks may be, could measure so."""
        slowest, fastest = (clock_khz * (1 + ppm / _PPM) for ppm in (_SLOWEST, _FASTEST))
        return self.least_khz <= fastest and slowest <= self.most_khz


class FrameTime(NamedTuple):
    """When a frame began, by the host's clock: at `ns`, give or take `bound_ns`."""

    #: CLOCK_MONOTONIC, that of `time.monotonic_ns`, in nanoseconds
    ns: int
    #: no more than so many nanoseconds from the real time
    bound_ns: int
    #: of a simulated board: when the simulation came there, which says nothing about hardware
    simulated: bool


class ClockEstimator:
    """Turns values of a board's cycle counter into host time; accesses neither.

    The bound of a time is true under these conditions: at each time, the counter's rate is between
    `_SLOWEST` and `_FASTEST`, and the host's clock and the counter stop together or not at all. A
    bracket that contradicts this, or a counter that went back, begins anew: the board was reset, or
    the host was suspended. Times are then told only of what was stamped after that bracket.

    Of a simulated board, whose counter has no rate, only this is used: it never goes back, and each
    reading takes cycles.

    Parameters
    ----------
    clock_khz : int
        Nominal rate of the counter.
    simulated : bool
        Whether the board is simulated.
    """

    def __init__(self, clock_khz: int, simulated: bool):
        self._khz = clock_khz
        self._simulated = simulated
        #: The counter stays at a value for so long, and is read at any time of that.
        self._tick: int = 0 if simulated else math.ceil(self._spans(1)[1])
        #: what is known of the counter's values: when each began, at the earliest and the latest
        self._known: deque[tuple[int, float, float]] = deque()

    def add(self, bracket: Bracket) -> bool:
        """Takes a reading, made after those before; False if it contradicts them.

        Then they are forgotten.
        """
        before, cycles, after = bracket
        earliest, latest = before - self._tick, after
        if self._known:
            value, low, high = self._known[-1]
            least, most = self._spans(_distance(value, cycles))
            # What was known before may say more than a wide bracket.
            earliest, latest = max(earliest, low + least), min(latest, high + most)
        if agrees := earliest <= latest:
            self._known.append((cycles, earliest, latest))
        else:
            self._known.clear()
            self._known.append((cycles, before - self._tick, after))
        return agrees

    def time(self, cycles: int) -> FrameTime | None:
        """When the counter had this value; None if that is not known.

        It is known between the first and the last reading. Values are asked for in ascending order:
        what lies before one is forgotten.
        """
        known = self._known
        if not known or _distance(cycles, known[-1][0]) < 0:
            return None
        while len(known) > 1 and _distance(known[1][0], cycles) >= 0:
            known.popleft()
        value, low, high = known[0]
        since = _distance(value, cycles)
        if since < 0:
            return None
        least, most = self._spans(since)
        earliest, latest = low + least, high + most
        if len(known) > 1:
            value, low, high = known[1]
            least, most = self._spans(_distance(cycles, value))
            earliest, latest = max(earliest, low - most), min(latest, high - least)
        first, last = math.floor(earliest), math.ceil(latest) + self._tick
        middle = (first + last) // 2
        return FrameTime(middle, last - middle, self._simulated)

    def _spans(self, cycles: int) -> tuple[int, float]:
        """Nanoseconds that so many cycles take, at least and at most."""
        if cycles < 0:
            # It went back, for which there is no time.
            return 0, -math.inf
        if self._simulated:
            return 0, math.inf if cycles else 0
        scaled = cycles * 1_000_000 * _PPM
        fast, slow = (self._khz * (_PPM + error) for error in (_FASTEST, _SLOWEST))
        return scaled // fast, -(-scaled // slow)


class FrameClock:
    """Tells when the frames of a run began. The counter is read as each is received.

    Create it before the run starts: what began before the first reading has no time.

    Parameters
    ----------
    read : callable
        Reads the board's cycle counter; None if that is not reported.
    estimator : ClockEstimator
    ring : int
        Frames that the board can be ahead of the program.
    """

    def __init__(self, read: Callable[[], Bracket | None], estimator: ClockEstimator, ring: int):
        self._read = read
        self._estimator = estimator
        self._ring = ring
        #: frames before this one may have been stamped before the counter was reset
        self._first = 0
        self._look(0)

    def time(self, number: int, cycles: int) -> FrameTime | None:
        """When frame `number` began, whose record was read and says `cycles`; None: not known."""
        self._look(number + self._ring)
        return self._estimator.time(cycles) if number >= self._first else None

    def _look(self, first: int) -> None:
        """Reads the counter; if it began anew, the first frame that is certainly later."""
        bracket = self._read()
        if bracket is not None and not self._estimator.add(bracket):
            self._first = first


def measure_rate(
    read: Callable[[], Bracket | None], wait: Callable[[float], None] = time.sleep
) -> ClockRate | None:
    """The rate of a cycle counter, in a tenth of a second.

    None if the counter is not reported, or went back: the board was reset meanwhile.

    Parameters
    ----------
    read : callable
        Reads the counter.
    wait : callable
        Waits for a number of seconds.
    """
    first = _narrowest(read)
    wait(_BETWEEN)
    last = _narrowest(read)
    if first is None or last is None:
        return None
    cycles = _distance(first.cycles, last.cycles)
    if cycles < 0:
        return None
    # A value of the counter stays for a cycle, and is read at any time of that.
    least = max(cycles - 1, 0) / (last.after_ns - first.before_ns)
    most = (cycles + 1) / (last.before_ns - first.after_ns)
    return ClockRate(least * 1e6, most * 1e6)


def _narrowest(read: Callable[[], Bracket | None]) -> Bracket | None:
    """Of some readings the one that says most."""
    found = [bracket for _ in range(_READINGS) if (bracket := read()) is not None]
    return min(found, key=lambda each: each.after_ns - each.before_ns, default=None)


def _distance(start: int, stop: int) -> int:
    """Cycles from one value of the counter to another, negative if that comes before."""
    return (stop - start + _WRAP // 2) % _WRAP - _WRAP // 2
