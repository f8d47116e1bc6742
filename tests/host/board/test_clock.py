# SPDX-License-Identifier: BSD-2-Clause
"""Host time of frames: no estimate is farther from a made clock's time than its bound."""

import bisect
import itertools
import os
import random
import secrets

import pytest

from peerdma.board.clock import Bracket, ClockEstimator, FrameClock, measure_rate

KHZ = 125_000
TICK = 8
#: nanoseconds
SECOND = 10**9
#: The made clock keeps its rate for so long.
STEP = SECOND // 100
MINUTES = 10
STEPS = MINUTES * 60 * SECOND // STEP
#: How far apart the fastest and the slowest clock are that is allowed for, of a time span.
RANGE = 7100e-6
WRAP = 1 << 64


class MadeClock:
    """A board's counter by the host's time in nanoseconds, exact: integers only.

    `ppm` gives its rate's error for each `STEP`; `jumps` has (time, cycles) of steps that it makes.
    """

    def __init__(self, ppm, start=0, jumps=()):
        self._rates = [KHZ * (10**6 + each) for each in ppm]
        self._phases = [0, *itertools.accumulate(rate * STEP for rate in self._rates)]
        self._start, self._jumps = start, jumps

    def cycles(self, now):
        step, rest = divmod(now, STEP)
        jumped = sum(by for when, by in self._jumps if when <= now)
        passed = (self._phases[step] + self._rates[step] * rest) // 10**12
        return (self._start + passed + jumped) % WRAP


def walk(rng):
    """Between the extremes, by up to 100 ppm in a step."""
    at = 0
    for _ in range(STEPS):
        at = max(-6000, min(1000, at + rng.randint(-100, 100)))
        yield at


#: Errors of the rate over ten minutes.
DRIFTS = {
    "fast": lambda rng: itertools.repeat(100, STEPS),
    "slow": lambda rng: itertools.repeat(-100, STEPS),
    "ramp": lambda rng: (-100 + 200 * step // STEPS for step in range(STEPS)),
    "spread spectrum": lambda rng: itertools.islice(itertools.cycle(range(-5000, 0, 250)), STEPS),
    "extremes": lambda rng: (rng.choice((-6000, 1000)) for _ in range(STEPS)),
    "walk": walk,
}


def late(rng):
    """Rarely interrupted, for milliseconds, on either side of the reading."""
    return tuple(rng.randrange(5_000_000 if not rng.randrange(50) else 2_000) for _ in range(2))


#: Nanoseconds from the host's clock to the counter, and from there to the host's clock again.
JITTERS = {
    "even": lambda rng: (rng.randrange(500, 2_000), rng.randrange(500, 2_000)),
    "late answers": lambda rng: (0, rng.randrange(30_000)),
    "late requests": lambda rng: (rng.randrange(30_000), 0),
    "interrupted": late,
}


@pytest.fixture
def rng():
    seed = int(os.environ.get("SEED") or secrets.randbits(32))
    print(f"repeat with SEED={seed}")
    return random.Random(seed)


def read(clock, now, jitter=(500, 500)):
    """A bracket that begins now."""
    lead, lag = jitter
    return Bracket(now, clock.cycles(now + lead), now + lead + lag)


@pytest.mark.parametrize("jitter", JITTERS)
@pytest.mark.parametrize("drift", DRIFTS)
def test_the_bound_is_true_and_of_use(rng, drift, jitter):
    """Ten minutes with the counter's wrap in them; frames of different ages, read in turn."""
    wrapped_after = rng.randrange(1, 500) * KHZ * 1000
    clock = MadeClock(DRIFTS[drift](rng), WRAP - wrapped_after)
    estimator = ClockEstimator(KHZ, False)
    last = read(clock, 0)
    read_at, widths, began = [500], [1_000], 0
    assert estimator.add(last)
    while True:
        now = last.after_ns + rng.choice((1_000_000, 16_667_000, 100_000_000))
        if now + 20_000_000 >= STEPS * STEP:
            break
        # It began after the last one, maybe before many readings.
        began = rng.randrange(max(began, now - 60_000_000), now)
        lead, lag = JITTERS[jitter](rng)
        last = read(clock, now, (lead, lag))
        assert estimator.add(last)
        read_at.append(now + lead)
        widths.append(lead + lag)
        when = estimator.time(clock.cycles(began))
        assert abs(when.ns - began) <= when.bound_ns
        assert not when.simulated
        # No reading before it, nor the first after it, says it better: half of how long that took,
        # and of what drift can do from there. One that was interrupted says little.
        after = bisect.bisect(read_at, began)
        near = slice(max(0, after - 8), after + 1)
        around = zip(read_at[near], widths[near], strict=True)
        said = min(width + abs(began - at) * RANGE for at, width in around)
        assert when.bound_ns <= said / 2 + 2 * TICK
    assert len(read_at) > 10_000
    assert last.cycles < WRAP - wrapped_after


JUMPS = {
    "reset": lambda at, cycles: -cycles,
    "reset, long ago": lambda at, cycles: -KHZ * 1000,
    "suspended, counter goes on": lambda at, cycles: 3 * KHZ * 1000,
    "counter stops for 100 ms": lambda at, cycles: -KHZ * 100,
}


@pytest.mark.parametrize("jump", JUMPS)
def test_what_was_stamped_before_a_jump_has_no_time(rng, jump):
    """Nor have frames that may be: the ring is full of them when the jump is seen."""
    at, ring = 10 * SECOND, 8
    still = MadeClock(itertools.repeat(100, 2000))
    by = JUMPS[jump](at, still.cycles(at))
    clock = MadeClock(itertools.repeat(100, 2000), jumps=[(at, by)])
    now = 0
    frames = FrameClock(lambda: read(clock, now), ClockEstimator(KHZ, False), ring)
    begins = [rng.randrange(100_000) + 16_667_000 * number for number in range(1, 1000)]
    times = {}
    for number, began in enumerate(begins):
        # The program is up to a ring behind the board.
        now = began + rng.randrange(20_000, 16_000_000) + 16_667_000 * (ring - 2)
        when = frames.time(number, clock.cycles(began))
        if when is not None:
            assert abs(when.ns - began) <= when.bound_ns < 100_000, number
        times[number] = when
    unknown = [number for number, when in times.items() if when is None]
    seen = bisect.bisect(begins, at)
    assert unknown == list(range(unknown[0], unknown[-1] + 1))
    assert seen - ring <= unknown[0] <= seen <= unknown[-1] + 1 <= seen + 2 * ring


def test_values_beyond_the_readings_have_no_time():
    clock = MadeClock(itertools.repeat(0, 100))
    estimator = ClockEstimator(KHZ, False)
    assert estimator.time(0) is None
    for now in (100_000, 200_000):
        estimator.add(read(clock, now))
    assert estimator.time(clock.cycles(90_000)) is None
    assert estimator.time(clock.cycles(250_000)) is None
    assert estimator.time(clock.cycles(150_000)) is not None
    # The first reading is kept: nothing was asked for that lies behind the second.
    assert estimator.time(clock.cycles(110_000)) is not None
    # Now it is not.
    assert estimator.time(clock.cycles(200_500)) is not None
    assert estimator.time(clock.cycles(150_000)) is None


def test_a_simulated_board_has_times_without_a_rate(rng):
    """Its counter stands still, and runs at any speed: a frame began between two readings."""
    estimator = ClockEstimator(KHZ, True)
    now = cycles = 0
    assert estimator.add(Bracket(now, cycles, now + 1000))
    for _ in range(10_000):
        start = now
        now += rng.randrange(2_000, 10**7)
        cycles += 1 + rng.randrange(10 ** rng.randrange(1, 9))
        began = rng.randrange(start + 1000, now)
        stamp = cycles
        # Each reading takes cycles itself.
        cycles += 1 + rng.randrange(1000)
        assert estimator.add(Bracket(now, cycles, now + 1000))
        when = estimator.time(stamp)
        assert abs(when.ns - began) <= when.bound_ns <= (now - start) / 2 + 1001
        assert when.simulated
        now += 1000
    assert not estimator.add(Bracket(now, cycles - 1, now + 1000))


def test_a_board_that_does_not_tell_has_no_times():
    frames = FrameClock(lambda: None, ClockEstimator(KHZ, False), 3)
    assert frames.time(0, 5) is None


class Readings:
    """Readings of a made clock from the host's time `now`, which they and waits take on."""

    def __init__(self, clock, jitters):
        self._clock, self._jitters, self.now = clock, itertools.cycle(jitters), SECOND

    def wait(self, seconds):
        self.now += round(seconds * SECOND)

    def read(self):
        bracket = read(self._clock, self.now, next(self._jitters))
        self.now = bracket.after_ns
        return bracket


@pytest.mark.parametrize("jitter", JITTERS)
@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("nominal", [KHZ, 2 * KHZ, KHZ // 2, KHZ * 102 // 100, KHZ * 98 // 100])
def test_a_rate_that_is_measured(rng, nominal, drift, jitter):
    """No clock within the limits is doubted, and every other is, if the readings allow that."""
    clock = MadeClock(DRIFTS[drift](rng), WRAP - KHZ * 1000)
    readings = Readings(clock, (JITTERS[jitter](rng) for _ in range(1000)))
    rate = measure_rate(readings.read, readings.wait)
    assert rate.least_khz <= KHZ * (1 + 1000e-6)
    assert rate.most_khz >= KHZ * (1 - 6000e-6)
    assert (rate.most_khz - rate.least_khz) / KHZ < 1e-3
    assert rate.may_be(nominal) == (nominal == KHZ)


def test_a_rate_that_cannot_be_measured():
    steady = itertools.repeat(0, STEPS)
    assert measure_rate(lambda: None, lambda _: None) is None
    reset = MadeClock(steady, 10**12, [(SECOND + SECOND // 20, -(10**11))])
    readings = Readings(reset, [(500, 500)])
    assert measure_rate(readings.read, readings.wait) is None
