# SPDX-License-Identifier: BSD-2-Clause
"""`hw.read.read_window`: the smallest window with which completions come as fast as they can."""

from collections import deque

import pytest

from hw.read import read_window
from hw.read.read_window import HASTE, LATE, PATIENCE, PAUSE, STEP, TOLERANCE, ReadWindow
from tests.hw.helpers import Driver, simulate

#: Completions for which there is room, and those of the largest data read.
CAPACITY, READ = 36, 8
TOP = (CAPACITY - READ) // STEP
#: Of each completion: charges, and cycles from one to the next, unless said otherwise.
CHARGES, PACE = 2, 10
#: Of a measurement: completions, and cycles.
COUNT = 128 // CHARGES
CYCLES = COUNT * PACE
#: Cycles by which a measurement may take longer.
TOLERATED = CYCLES // TOLERANCE


def most(steps: int) -> int:
    """What the window is with so many steps."""
    return CAPACITY if steps == TOP else steps * STEP


class Completions:
    """Gives completions to a window."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut

    @property
    def most(self) -> int:
        return self.ctx.get(self.dut.most)

    async def give(self, count: int, pace: int = PACE) -> None:
        """Completions, each in the last of so many cycles; at the end the next cycle begins."""
        for _ in range(count):
            await self.ctx.tick().repeat(pace - 1)
            self.ctx.set(self.dut.returned, CHARGES)
            await self.ctx.tick()
            self.ctx.set(self.dut.returned, 0)

    async def begin(self) -> None:
        """Data waits from now on; the first completion is where measurements begin."""
        self.ctx.set(self.dut.waits, 1)
        await self.give(1)

    async def late(self, cycles: int) -> None:
        """A measurement that takes so many cycles longer than others."""
        await self.give(COUNT - 1)
        await self.ctx.tick().repeat(cycles)
        await self.give(1)

    async def early(self, cycles: int) -> None:
        """A measurement that takes so many cycles less than others."""
        await self.give(COUNT - 1)
        await self.give(1, PACE - cycles)

    async def shrink(self, measurements: int) -> None:
        """So many measurements until the window shrinks, to the cycle."""
        before = self.most
        await self.give(measurements * COUNT - 1)
        await self.ctx.tick().repeat(PACE - 1)
        self.ctx.set(self.dut.returned, CHARGES)
        assert self.most == before
        await self.ctx.tick()
        self.ctx.set(self.dut.returned, 0)
        assert self.most < before


def run(test):
    """A test with a window and its completions."""
    dut = ReadWindow(CAPACITY, READ)

    async def bench(ctx):
        await test(Completions(ctx, dut))

    simulate(dut, bench, cycles=2_000_000)


def test_it_shrinks_while_nothing_is_late():
    async def test(link):
        await link.begin()
        for steps in reversed(range(TOP)):
            await link.shrink(HASTE)
            assert link.most == most(steps)
        # One read at a time is always allowed.
        await link.give(2 * HASTE * COUNT)
        assert link.most == 0

    run(test)


@pytest.mark.parametrize("late", [TOLERATED, TOLERATED + 1])
def test_it_grows_when_completions_are_late(late):
    async def test(link):
        await link.begin()
        for _ in range(3):
            await link.shrink(HASTE)
        for _ in range(LATE):
            assert link.most == most(TOP - 3)
            await link.late(late)
        assert link.most == most(TOP - 3 if late == TOLERATED else TOP - 2)

    run(test)


def test_what_is_late_puts_off_a_smaller_one():
    async def test(link):
        await link.begin()
        await link.shrink(HASTE)
        await link.give((HASTE - 1) * COUNT)
        await link.late(TOLERATED + 1)
        assert link.most == most(TOP - 1)
        await link.shrink(HASTE)

    run(test)


@pytest.mark.parametrize(("late", "others", "grows"), [(1, 2, False), (2, 3, True), (2, 4, False)])
def test_it_grows_if_more_than_a_third_are_late(late, others, grows):
    async def test(link):
        await link.begin()
        for _ in range(2):
            await link.shrink(HASTE)
        for _ in range(6):
            for _ in range(late):
                await link.late(TOLERATED + 1)
            await link.give(others * COUNT)
        assert (link.most > most(TOP - 2)) == grows

    run(test)


def test_it_grows_to_all_the_room_and_then_waits():
    """Completions that are slower by a fifth with whatever window: that is the link's time then."""

    async def test(link):
        await link.begin()
        for _ in range(4):
            await link.shrink(HASTE)
        for steps in range(TOP - 3, TOP + 1):
            await link.give(LATE * COUNT - 1, PACE * 6 // 5)
            assert link.most == most(steps - 1)
            await link.give(1, PACE * 6 // 5)
            assert link.most == most(steps)
        # What was measured before may not be too short.
        await link.give(2 * LATE * COUNT, PACE * 6 // 5)
        assert link.most == CAPACITY

    run(test)


def test_it_is_patient_after_a_try_that_was_too_small(monkeypatch):
    patience = 4 * HASTE
    monkeypatch.setattr(read_window, "PATIENCE", patience)

    async def test(link):
        async def late(steps):
            for _ in range(LATE):
                await link.late(TOLERATED + 1)
            assert link.most == most(steps)

        await link.begin()
        for _ in range(3):
            await link.shrink(HASTE)
        await late(TOP - 2)
        await link.shrink(patience)
        await late(TOP - 2)
        # Completions that are late again have another cause.
        await late(TOP - 1)
        await link.shrink(HASTE)
        await link.shrink(HASTE)
        assert link.most == most(TOP - 3)

    run(test)


@pytest.mark.parametrize("early", [TOLERATED - 1, TOLERATED])
def test_it_begins_anew_when_completions_are_early(early):
    """Something else had made them late: what is enough now is not known."""

    async def test(link):
        await link.begin()
        for _ in range(3):
            await link.shrink(HASTE)
        await link.early(early)
        assert link.most == (most(TOP - 3) if early < TOLERATED else CAPACITY)
        if early == TOLERATED:
            await link.shrink(HASTE)
            assert link.most == most(TOP - 1)

    run(test)


@pytest.mark.parametrize("period", [PAUSE, PAUSE + 1])
def test_short_pauses_count(period):
    """Data waits in one cycle of so many."""

    async def test(link):
        await link.begin()
        link.ctx.set(link.dut.waits, 0)
        await link.give(1)
        for _ in range(HASTE * COUNT):
            link.ctx.set(link.dut.waits, 1)
            await link.ctx.tick()
            link.ctx.set(link.dut.waits, 0)
            await link.give(1, period - 1)
        assert link.most == (most(TOP - 1) if period == PAUSE else CAPACITY)

    run(test)


def test_only_time_in_which_data_waits_counts(monkeypatch):
    monkeypatch.setattr(read_window, "PAUSE", 1)

    async def test(link):
        ctx, dut = link.ctx, link.dut
        await link.begin()
        await link.shrink(HASTE)
        for _ in range(4):
            await link.give(COUNT // 2)
            # The end of a transfer, and a pause
            ctx.set(dut.waits, 0)
            await link.give(4, 3)
            await ctx.tick().repeat(3 * CYCLES)
            # Another transfer's round trip
            ctx.set(dut.waits, 1)
            await ctx.tick().repeat(CYCLES)
            await link.give(1)
            await link.give(COUNT // 2)
            assert link.most == most(TOP - 1)
        # These were four measurements.
        await link.shrink(HASTE - 4)

    run(test)


class Platform:
    """A link of one completion in `PACE` cycles, and reads whose round trip takes a time."""

    def __init__(self, pace: int, round_trip: int):
        self.pace, self.round_trip = pace, round_trip
        self.cycle = self.out = self.free = 0
        self.asked: deque[list[int]] = deque()

    def step(self, most: int) -> tuple[bool, int]:
        """A cycle: whether data waits, and what a completion gives back."""
        self.cycle += 1
        may = self.out <= min(most, CAPACITY - READ)
        if may:
            self.out += READ
            self.asked.append([self.cycle + self.round_trip, READ])
        returned = 0
        if self.asked and self.cycle >= max(self.asked[0][0], self.free):
            returned = CHARGES
            self.free = self.cycle + self.pace
            self.asked[0][1] -= returned
            if not self.asked[0][1]:
                self.asked.popleft()
        self.out -= returned
        return not may, returned

    def time(self, steps: int) -> int:
        """Cycles of many charges with a window."""
        self.cycle = self.out = self.free = 0
        self.asked.clear()
        done, begin = 0, 0
        while done < 4000 * CHARGES:
            done += self.step(most(steps))[1]
            if done == 1000 * CHARGES and not begin:
                begin = self.cycle
        return self.cycle - begin


def right(pace: int, round_trip: int) -> int:
    """Steps of the smallest window with which the link is as fast as with all the room."""
    times = [Platform(pace, round_trip).time(steps) for steps in range(TOP + 1)]
    return next(steps for steps, time in enumerate(times) if time <= times[TOP] * 129 / 128)


def test_it_follows_the_round_trip(monkeypatch):
    """Up within a few measurements for each step, and down again."""
    monkeypatch.setattr(read_window, "PATIENCE", 2 * HASTE)
    dut, pace = ReadWindow(CAPACITY, READ), 6
    cycles = COUNT * pace

    async def bench(ctx):
        platform, drive = Platform(pace, 0), Driver(ctx)
        seen: set[int] = set()

        async def go(count: int) -> None:
            seen.clear()
            now = ctx.get(dut.most)
            for _ in range(count):
                waits, returned = platform.step(now)
                drive(dut.waits, waits)
                drive(dut.returned, returned)
                await ctx.tick()
                seen.add(now := ctx.get(dut.most))

        before, wanted = TOP, []
        for round_trip in (20, 60, 20):
            steps = right(pace, round_trip)
            wanted.append(steps)
            platform.round_trip = round_trip
            if steps > before:
                await go((LATE + 1) * (steps - before + 1) * 4 * cycles)
            else:
                await go((2 * (before - steps) + 3) * HASTE * cycles)
            await go(5 * HASTE * cycles)
            # It tries a smaller one now and then, and may grow by one step too many.
            around = {most(min(steps + n, TOP)) for n in (-1, 0, 1)}
            assert {most(steps)} <= seen <= around, (round_trip, steps, seen)
            before = steps
        assert wanted[0] == wanted[2] < wanted[1] < TOP

    simulate(dut, bench, cycles=2_000_000)


@pytest.mark.parametrize("pace", [6, 10])
def test_what_it_costs(pace):
    """Where all the room is needed, a part of a few measurements is lost in many."""
    platform = Platform(pace, 200)
    fewer, all_room = platform.time(TOP - 1), platform.time(TOP)
    assert (fewer / all_room - 1) * (LATE + 1) / PATIENCE < 0.002


@pytest.mark.parametrize(("capacity", "top"), [(36, 7), (9, 1), (72, 16), (1000, 248)])
def test_for_any_room(capacity, top):
    dut = ReadWindow(capacity, READ)
    assert dut._top == top
