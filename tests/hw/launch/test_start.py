# SPDX-License-Identifier: BSD-2-Clause
"""The first descriptors of a ticket's channels: which words, when each begins, what is given up."""

import pytest

from hw.launch.runs import DESCRIPTOR_WORDS
from hw.launch.start import GRANT_TIMEOUT, START_TIMEOUT, RunStart
from tests.hw.helpers import seeded, simulate

SLOT = 6


class Channels:
    """The runs of one queue, as `hw.launch.runs.Runs` shows them: H2C is bit 0, C2H bit 1.

    What `starts` does so at any time before the start is given up, in the last cycle at the latest.
    """

    def __init__(self, rng, used: int, *, grants: int = 3, starts: bool = True, packet=False):
        self.rng, self.used, self.grants, self.starts = rng, used, grants & used, starts
        self.packet = packet
        #: (channel, slot, number of the word) of what was pushed, channels that began, and flushes
        self.words, self.begun, self.flushes, self.stopped, self.cycles = [], [], 0, False, 0

    async def run(self, ctx, dut):
        """From the first cycle to the last one."""
        ctx.set(dut.used, self.used)
        ctx.set(dut.pair, self.used == 3)
        ctx.set(dut.receives, self.packet)
        ctx.set(dut.slot, SLOT)
        ctx.set(dut.grants, self.grants)
        ctx.set(dut.granted, self.grants == self.used)
        await ctx.tick().repeat(2)
        ctx.set(dut.active, 1)
        row = SLOT << 3  # that of the first word
        asked = 0  # cycles since the last word
        while True:
            target, push, start = ctx.get(dut.target), ctx.get(dut.push), ctx.get(dut.start)
            asked = asked + 1 if start and not push else 0
            pushed = push and self.rng.random() < 0.5
            soon = self.rng.random() < 0.3 or asked == START_TIMEOUT
            started = start and self.starts and soon
            ctx.set(dut.pushed, pushed)
            ctx.set(dut.started, started)
            if pushed:
                self.words.append((target, row >> 3, row & 7))
                assert ctx.get(dut.number) == (row & 7) + 4 * (self.packet and row >> 3 & 1)
            if started:
                self.begun.append((target, len(self.words)))
            self.flushes |= ctx.get(dut.flush)
            self.stopped |= bool(ctx.get(dut.stop))
            row, done = ctx.get(dut.row), ctx.get(dut.done)
            await ctx.tick()
            self.cycles += 1
            if done:
                ctx.set(dut.active, 0)
                return


def bench(channels, packets=False):
    dut = RunStart(h2c=1, c2h=1, pairs=1, packets=packets)

    async def scenario(ctx):
        await channels.run(ctx, dut)
        # It leaves nothing behind.
        again = Channels(channels.rng, 1)
        await again.run(ctx, dut)
        assert again.words == [(1, SLOT, n) for n in range(DESCRIPTOR_WORDS)]

    simulate(dut, scenario)
    return channels


@pytest.mark.parametrize("packets", [False, True])
@pytest.mark.parametrize(
    ("used", "targets"), [(1, [1]), (2, [2]), (3, [1, 2])], ids=["h2c", "c2h", "pair"]
)
def test_each_channel_has_its_descriptor_before_it_begins(used, targets, packets):
    """A pair's second one has that of the slot behind; only a pair is flushed."""
    found = bench(Channels(seeded(), used), packets)
    words = range(DESCRIPTOR_WORDS)
    slots = {1: SLOT, 2: SLOT + 1 if used == 3 else SLOT}
    assert found.words == [(target, slots[target], n) for target in targets for n in words]
    begun = [(target, (n + 1) * DESCRIPTOR_WORDS) for n, target in enumerate(targets)]
    if used == 3:
        assert found.begun == begun
    else:  # it may begin with its first word, and goes on to get the others
        assert [target for target, _ in found.begun[-1:]] == targets
    assert found.flushes == (used == 3)
    assert not found.stopped


def test_a_packet_has_two_descriptors():
    """That of its slot, and of the one behind, with whose first word it may begin."""
    found = bench(Channels(seeded(), 2, packet=True), packets=True)
    words = range(DESCRIPTOR_WORDS)
    assert found.words == [(2, slot, n) for slot in (SLOT, SLOT + 1) for n in words]
    ((target, count),) = found.begun
    assert target == 2 and count >= DESCRIPTOR_WORDS


@pytest.mark.parametrize("grants", [0, 1, 2])
def test_a_pair_of_which_one_is_missing_is_not_begun(grants):
    found = bench(Channels(seeded(), 3, grants=grants))
    assert (found.words, found.begun, found.flushes) == ([], [], 0)
    assert found.cycles == GRANT_TIMEOUT + 1 and not found.stopped


def test_a_start_that_does_not_come_is_given_up():
    found = bench(Channels(seeded(), 1, starts=False))
    assert len(found.words) == DESCRIPTOR_WORDS
    assert found.stopped and found.cycles > START_TIMEOUT
