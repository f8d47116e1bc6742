# SPDX-License-Identifier: BSD-2-Clause
"""Error captures of the core at the seam: errors of all channels at once are all explained."""

from __future__ import annotations

import pytest

from hw.core import Core, CoreConfig
from hw.pcie.series7.block import SERIES7
from hw.records import Outcome
from peerdma import regs
from peerdma.regs import ErrorKind, Status
from tests.hw.helpers import simulate
from tests.hw.owner import Owner
from tests.hw.seam_model import SeamModel, descriptors_of

BASE = 0x12_3456_0000
#: In the model's memory: a list for each channel, 4 KiB apart, then data, then an owner's list.
DATA, OWNED = 0x4000, 0x5000
CONFIG = CoreConfig(tags=8, ram_size=4096, user=None, h2c=2, c2h=2)
#: Channels as they are numbered in the core: direction and number.
CHANNELS = [(False, 0), (False, 1), (True, 0), (True, 1)]
RAM, OUTSIDE = 0, 0x10_0000


def place(block, c2h: bool, number: int, name: str) -> int:
    """Byte offset of a register of a channel."""
    c2h_bases = {
        regs.CHANNEL: regs.C2H_CHANNEL_BASE,
        regs.SGDMA: regs.C2H_SGDMA_BASE,
        regs.CAPTURE: regs.C2H_CAPTURE_BASE,
    }
    return block.address(name, number, c2h_bases[block] if c2h else block.base)


class Board:
    """A core with errors to come on its channels."""

    def __init__(self, shared: bool):
        self.model = SeamModel(Core(SERIES7, CONFIG, shared=shared), BASE, 0x6000)

    def load(self, channel: int, card: int, pci: int = BASE + DATA) -> None:
        """A list of two descriptors for a channel; the second one has these addresses."""
        c2h, at = CHANNELS[channel][0], 0x1000 * channel
        spans = [
            (card, pci, 64) if c2h else (pci, card, 64) for card, pci in ((RAM, pci), (card, pci))
        ]
        table = descriptors_of(spans, BASE + at)
        self.model.memory[at : at + table.nbytes] = table.tobytes()

    def start(self, channel: int) -> None:
        way, at = CHANNELS[channel], BASE + 0x1000 * channel
        self.model.write(place(regs.SGDMA, *way, "descriptor_lo"), at & 0xFFFF_FFFF)
        self.model.write(place(regs.SGDMA, *way, "descriptor_hi"), at >> 32)
        self.model.write(place(regs.SGDMA, *way, "descriptor_adjacent"), 0)
        control, events = regs.CHANNEL["control"], Status.DESCRIPTOR_STOPPED | Status.errors()
        run = control.field("run").mask
        self.model.write(place(regs.CHANNEL, *way, "control"), run | events & control.writable)

    def stop(self, channel: int) -> None:
        self.model.write(place(regs.CHANNEL, *CHANNELS[channel], "control"), 0)

    async def idle(self, ctx, channel: int) -> int:
        """The status of a channel's run, once it has ended."""
        while True:
            at = place(regs.CHANNEL, *CHANNELS[channel], "status")
            if not (status := await self.model.read(ctx, at)) & Status.BUSY:
                return status

    async def captured(self, ctx, channel: int | None = None) -> tuple:
        """Kind, place, whether of a descriptor, and address; without a channel of the first one."""

        async def read(name):
            block = regs.EXTENSION
            at = block.address(name)
            if channel is not None:
                at = place(regs.CAPTURE, *CHANNELS[channel], name)
            return await self.model.read(ctx, at)

        info = await read("error_info")
        names = ("kind", "c2h", "channel", "descriptor")
        kind, *rest = (regs.CAPTURE["error_info"].field(name).get(info) for name in names)
        low, high = await read("error_address_lo"), await read("error_address_hi")
        return ErrorKind(kind), *rest, high << 32 | low


NOTHING = (ErrorKind.NONE, 0, 0, 0, 0)


@pytest.mark.parametrize("shared", [False, True])
def test_errors_of_all_channels_at_once_are_all_captured(shared):
    """Whatever else runs, until the channel's own next run; the address is of the error itself."""
    board = Board(shared)
    model = board.model
    refused = BASE + DATA + 0x100
    kinds = ErrorKind.UNSUPPORTED_REQUEST, ErrorKind.DECODE
    expected = [
        (kinds[0], 0, 0, 0, refused),
        (kinds[0], 0, 1, 0, refused + 0x80),
        (kinds[1], 1, 0, 0, OUTSIDE),
        (kinds[0], 1, 1, 1, BASE + 0x3020),
    ]

    async def bench(ctx):
        await model.link_up(ctx)
        assert [await board.captured(ctx, n) for n in range(4)] == [NOTHING] * 4
        board.load(0, RAM, refused)
        board.load(1, RAM, refused + 0x80)
        board.load(2, OUTSIDE)
        board.load(3, RAM)
        model.refused |= {address - BASE for address in (refused, refused + 0x80, BASE + 0x3020)}
        for channel in range(4):
            board.start(channel)
        for channel in range(4):
            assert await board.idle(ctx, channel) & Status.errors()
            board.stop(channel)
        model.refused.clear()
        if shared:
            # Runs of the other owner, of which some go well.
            for channel, port in enumerate(model.core.owners):
                span = (RAM, BASE + DATA) if CHANNELS[channel][0] else (BASE + DATA, RAM)
                span = span if channel % 2 else (OUTSIDE, OUTSIDE)
                table = descriptors_of([(*span, 64)], BASE + OWNED)
                model.memory[OWNED : OWNED + 32] = table.tobytes()
                end = await Owner(port).run(ctx, BASE + OWNED)
                assert (end.outcome == Outcome.OK) == channel % 2
        assert [await board.captured(ctx, n) for n in range(4)] == expected
        first = await board.captured(ctx)
        assert first in expected
        model.write(regs.EXTENSION.address("error_clear"), 1)
        assert await board.captured(ctx) == NOTHING
        left = list(expected)
        for channel in (2, 0, 3, 1):
            board.load(channel, RAM)
            board.start(channel)
            assert await board.idle(ctx, channel) == Status.DESCRIPTOR_STOPPED
            board.stop(channel)
            left[channel] = NOTHING
            assert [await board.captured(ctx, n) for n in range(4)] == left

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_run_met_that_was_stopped_is_not_the_next_ones_error(restarted):
    """Also where the next one is started while reads of the first one are under way."""
    board = Board(shared=False)
    model = board.model
    refused = BASE + DATA + 0x100

    async def bench(ctx):
        await model.link_up(ctx)
        seen = set()
        for wait in range(1, 200, 18):
            board.load(0, RAM, refused)
            model.refused = {refused - BASE}
            board.start(0)
            await ctx.tick().repeat(wait)
            board.stop(0)
            if not restarted:
                failed = await board.idle(ctx, 0) & Status.errors()
                # What ends while it is stopped may be captured and not be logged into status.
                kind, *_ = await board.captured(ctx, 0)
                assert kind or not failed
                seen.add(bool(kind))
            # Its data is good up to the second descriptor, which does not decode.
            model.refused = set() if not restarted else {refused - BASE}
            board.load(0, OUTSIDE)
            board.start(0)
            assert await board.idle(ctx, 0) & Status.errors()
            board.stop(0)
            assert await board.captured(ctx, 0) == (ErrorKind.DECODE, 0, 0, 0, OUTSIDE)
        assert restarted or seen == {False, True}, "all were stopped before the error, or none"

    simulate(model.core, bench, background=model.benches)
