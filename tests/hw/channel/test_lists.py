# SPDX-License-Identifier: BSD-2-Clause
"""Lists of channels: begun, filled, ended, failed; each channel's by itself."""

import pytest

from hw.channel.lists import READS, Lists
from hw.records import Outcome
from hw.seam import WIDTHS
from peerdma import regs
from tests.hw.helpers import placement, seeded, simulate, write_of

CHANNELS, SLOTS, SIZE = 3, 16, regs.DESCRIPTOR.itemsize


class Bench:
    """One of three channels; the others' flags stay as they are."""

    def __init__(self, ctx, dut, channel, rng, width):
        self.ctx, self.dut, self.channel, self.rng, self.width = ctx, dut, channel, rng, width
        ctx.set(dut.channel, channel)

    def __getattr__(self, name):
        """A flag of the channel; of those that have a bit for each, its own."""
        value = self.ctx.get(getattr(self.dut, name))
        shared = name in ("running", "reading", "complete")
        return value >> self.channel & 1 if shared else value

    async def flag(self, name):
        own = name in ("start", "flush", "issue")
        self.ctx.set(getattr(self.dut, name), 1 << self.channel if own else 1)
        await self.ctx.tick()
        self.ctx.set(getattr(self.dut, name), 0)

    async def begin(self):
        await self.flag("start")
        assert self.starts and self.running
        await self.flag("begin")
        assert self.runs and not self.starts

    async def arrives(self, slot, control):
        """The control word of a descriptor."""
        dword = control.to_bytes(4, "little")
        await self.brings(slot * SIZE, dword + self.rng.randbytes(self.width // 8 - 4))

    async def brings(self, place, data):
        """Any bytes of descriptors."""
        written = write_of(self.rng, place, data, self.width)
        placed = {"client": self.channel, "memory": 0, **written}
        self.ctx.set(self.dut.placement.payload, placed)
        await self._tick(self.dut.placement)

    async def mark(self, descriptors):
        mark = {"client": self.channel, "place": placement(descriptors * SIZE)}
        self.ctx.set(self.dut.mark.payload, mark)
        await self._tick(self.dut.mark)

    async def retires(self, outcome):
        retired = self.dut.retired[self.channel]
        self.ctx.set(retired.payload.outcome, outcome)
        await self._tick(retired)

    async def _tick(self, stream):
        self.ctx.set(stream.valid, 1)
        await self.ctx.tick()
        self.ctx.set(stream.valid, 0)


def run(scenario, channel=1, width=64):
    rng = seeded()
    dut = Lists(CHANNELS, SLOTS, width=width)

    async def bench(ctx):
        await scenario(Bench(ctx, dut, channel, rng, width))
        for other in range(CHANNELS):
            if other != channel:
                ctx.set(dut.channel, other)
                flags = dut.runs, dut.starts, dut.ended, dut.failed, dut.filled
                assert [ctx.get(flag) for flag in flags] == [0] * len(flags)

    simulate(dut, bench)


@pytest.mark.parametrize("end", ["end", "flush"])
def test_a_list_runs_from_its_start_to_its_end(end):
    async def scenario(lists):
        await lists.begin()
        assert not lists.complete
        await lists.flag(end)
        assert not lists.runs and not lists.running and lists.complete

    run(scenario)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("control", "ends"),
    [
        (regs.DESC_MAGIC << 16, False),
        (regs.DESC_MAGIC << 16 | regs.DESC_COMPLETED, False),
        (regs.DESC_MAGIC << 16 | regs.DESC_STOP, True),
        ((regs.DESC_MAGIC ^ 0x100) << 16, True),
    ],
)
def test_stop_or_a_wrong_magic_is_the_end(control, ends, width):
    async def scenario(lists):
        await lists.begin()
        await lists.arrives(5, control)
        assert (lists.ended, lists.complete) == (ends, ends)
        await lists.flag("end")
        await lists.begin()
        assert not lists.ended

    run(scenario, width=width)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_other_dword_is_taken_for_control(width):
    """Whatever is in it, in a beat that begins with it or has it behind the end of a word."""
    stop = (regs.DESC_MAGIC << 16 | regs.DESC_STOP).to_bytes(4, "little")
    good = (regs.DESC_MAGIC << 16).to_bytes(4, "little")

    async def scenario(lists):
        await lists.begin()
        for dword in range(2 * SIZE // 4):
            dwords = min(width // 32, 3 * SIZE // 4 - dword)
            data = [stop if (dword + n) % (SIZE // 4) else good for n in range(dwords)]
            await lists.brings(4 * dword, b"".join(data))
            assert not lists.ended, dword
        # In its place it counts in whichever lane a beat has begun.
        place = SIZE - 4 * (width // 32 - 1)
        await lists.brings(place, bytes(width // 8 - 4) + stop)
        assert lists.ended

    run(scenario, width=width)


def test_marks_tell_how_far_it_is_filled():
    async def scenario(lists):
        await lists.begin()
        for descriptors in (1, 4, SLOTS, 2 * SLOTS - 1):
            await lists.mark(descriptors)
            assert lists.filled == descriptors
        await lists.mark(0)

    run(scenario)


def test_the_first_error_of_a_read_stays_and_marks_behind_it_do_not_count():
    async def scenario(lists):
        await lists.begin()
        await lists.mark(3)
        for _ in range(2):
            await lists.flag("issue")
        await lists.retires(Outcome.POISONED)
        assert lists.failed and lists.complete and lists.failure == Outcome.POISONED
        await lists.mark(7)
        await lists.retires(Outcome.COMPLETER_ABORT)
        assert (lists.filled, lists.failure) == (3, Outcome.POISONED)
        await lists.flag("end")
        await lists.begin()
        assert not lists.failed
        await lists.mark(0)

    run(scenario)


def test_reads_under_way_are_counted():
    async def scenario(lists):
        for _ in range(READS):
            assert not lists.busy
            await lists.flag("issue")
            assert lists.reading
        assert lists.busy
        for _ in range(READS):
            assert lists.reading
            await lists.retires(Outcome.OK)
            assert not lists.busy
        assert not lists.reading

    run(scenario)
