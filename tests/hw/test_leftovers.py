# SPDX-License-Identifier: BSD-2-Clause
"""What a run leaves in the user stream of its pair, however it ends; the next copy is clean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hw.core import Core, CoreConfig
from hw.pcie.series7.block import SERIES7
from hw.records import Outcome
from hw.stream.user_blocks import PassThrough, PatternSource
from peerdma import regs
from tests.hw.helpers import seeded, simulate
from tests.hw.owner import Owner
from tests.hw.seam_model import SeamModel, descriptors_of, transfer

BASE = 0x12_3456_0000
#: In the model's memory: source and destination of a copy, and the list of a run that fails.
SOURCE, DESTINATION, LIST = 0x1000, 0x2000, 0x4000
SIZE = 0x6000
WINDOW = regs.STREAM_WINDOW
COPY, COUNT = 300, 3
CONFIG = CoreConfig(tags=8, ram_size=4096, user=PassThrough)
CONTROL = regs.CHANNEL["control"]
STATUS = regs.CHANNEL["status"]
RUN = CONTROL.field("run").put(1)
LOGGED = RUN | (regs.Status.DESCRIPTOR_STOPPED | regs.Status.errors()) & CONTROL.writable

#: How a run of three descriptors fails, and at which of them.
FAILURES = [
    *((how, at) for how in ("fetch", "magic") for at in range(COUNT)),
    ("pushed", 0),
    ("data", 1),
    ("stop", 0),
    ("stop", 1),
]


class Stand:
    """A core, its host, and runs on either channel of pair 0."""

    def __init__(self, config=CONFIG, **options):
        self.rng = seeded()
        self.model = SeamModel(Core(SERIES7, config, **options), BASE, SIZE)

    @staticmethod
    def base(c2h: bool) -> int:
        return regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base

    async def status(self, ctx, c2h: bool) -> int:
        return await self.model.read(ctx, self.base(c2h) + STATUS.offset)

    def control(self, c2h: bool, value: int):
        self.model.write(self.base(c2h) + CONTROL.offset, value)

    async def idle(self, ctx, c2h: bool, reads: int = 400) -> int:
        for _ in range(reads):
            found = await self.status(ctx, c2h)
            if not found & regs.Status.BUSY:
                return found
        raise AssertionError("busy for ever")

    def start(self, c2h: bool, at: int):
        """Begins software's run of the list there."""
        sgdma = regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base
        for name, value in (
            ("descriptor_lo", BASE + at & 0xFFFF_FFFF),
            ("descriptor_hi", BASE >> 32),
        ):
            self.model.write(sgdma + regs.SGDMA[name].offset, value)
        self.control(c2h, LOGGED)

    def lay(self, c2h: bool, how: str, at: int, card: int = WINDOW):
        """A list of three descriptors of which one fails so; the first one is of card RAM."""
        spans = [
            (end, BASE + DESTINATION, 100) if c2h else (BASE + SOURCE, end, 100)
            for end in (0, card, card)
        ]
        if how == "data":
            bad = (1 << 40, BASE + DESTINATION) if c2h else (BASE + SOURCE, 1 << 40)
            spans[at] = (*bad, 100)
        table = descriptors_of(spans, BASE + LIST)
        if how == "magic":
            table["control"][at] ^= 1 << 16
        self.model.memory[LIST : LIST + table.nbytes] = table.tobytes()
        self.model.refused = {LIST + 32 * at} if how == "fetch" else set()

    async def fail(self, ctx, c2h: bool, how: str, at: int, card: int = WINDOW):
        """Such a run of software's, to its end; Run is still set unless it was stopped."""
        self.lay(c2h, how, at, card)
        if how == "pushed":
            window = regs.C2H_PUSH_BASE if c2h else regs.H2C_PUSH_BASE
            self.model.write(window, regs.DESC_MAGIC << 16)
            self.control(c2h, LOGGED)
        else:
            self.start(c2h, LIST)
        if how == "stop":
            # Before its first descriptor has come, or later.
            await ctx.tick().repeat(8 + 40 * at)
            self.control(c2h, 0)
        found = await self.idle(ctx, c2h)
        assert how == "stop" or found & regs.Status.errors()

    async def send(self, ctx, data: bytes):
        """An H2C run to its good end."""
        self.model.memory[SOURCE : SOURCE + len(data)] = data
        spans = [(BASE + SOURCE, WINDOW, len(data))]
        found = await transfer(ctx, self.model, c2h=False, descriptors=spans)
        assert found == regs.Status.DESCRIPTOR_STOPPED

    async def take(self, ctx, size: int) -> bytes:
        """A C2H run to its good end, and what it wrote."""
        self.model.memory[DESTINATION : DESTINATION + size] = bytes(size)
        spans = [(WINDOW, BASE + DESTINATION, size)]
        found = await transfer(ctx, self.model, c2h=True, descriptors=spans)
        assert found == regs.Status.DESCRIPTOR_STOPPED
        return bytes(self.model.memory[DESTINATION : DESTINATION + size])

    async def expect_clean_copy(self, ctx):
        """The next copy, of another source, and nothing else."""
        self.model.refused = set()
        data = self.rng.randbytes(COPY)
        await self.send(ctx, data)
        assert await self.take(ctx, COPY) == data

    def run(self, bench):
        async def up(ctx):
            await self.model.link_up(ctx)
            await bench(ctx)

        simulate(self.model.core, up, background=self.model.benches)


@pytest.mark.parametrize(
    ("c2h", "when"),
    [(False, "before"), (True, "before"), (True, "beside"), (True, "after")],
    ids=["h2c before", "c2h before", "c2h beside", "c2h after"],
)
def test_nothing_outlives_a_run_that_failed(c2h, when):
    """Bytes that H2C brought to its good end before it, beside it, or behind it, while software had
    not cleared Run of the one that failed."""
    stand = Stand()

    async def bench(ctx):
        for how, at in FAILURES:
            if when == "after" and (at > 1 or how == "stop"):
                continue  # what comes before it waits for bytes; Run is clear
            old = stand.rng.randbytes(COPY)
            if when == "before":
                await stand.send(ctx, old)
                await stand.fail(ctx, c2h, how, at)
            elif when == "after":
                await stand.fail(ctx, c2h, how, at)
                await stand.send(ctx, old)
            else:
                # The other one starts first, and ends when it ends.
                stand.model.memory[SOURCE : SOURCE + COPY] = old
                spans = [(BASE + SOURCE, WINDOW, COPY)]
                table = descriptors_of(spans, BASE + 0x800)
                stand.model.memory[0x800 : 0x800 + table.nbytes] = table.tobytes()
                stand.start(False, 0x800)
                await stand.fail(ctx, c2h, how, at)
                await stand.idle(ctx, False)
                stand.control(False, 0)
            stand.control(c2h, 0)
            try:
                await stand.expect_clean_copy(ctx)
            except AssertionError as error:
                raise AssertionError(f"after {how} at descriptor {at}") from error

    stand.run(bench)


@pytest.mark.parametrize("c2h", [False, True], ids=["h2c", "c2h"])
def test_a_run_that_is_known_to_be_of_card_ram_costs_no_byte(c2h):
    """All its descriptors have come, and none is for the stream."""
    stand = Stand()

    async def bench(ctx):
        data = stand.rng.randbytes(COPY)
        await stand.send(ctx, data)
        outside = (1 << 40, BASE, 64) if c2h else (BASE, 1 << 40, 64)
        found = await transfer(ctx, stand.model, c2h=c2h, descriptors=[outside])
        assert found & regs.Status.errors()
        assert await stand.take(ctx, COPY) == data

    stand.run(bench)


def test_many_runs_of_one_side_and_one_of_the_other():
    """Drivers clear Run behind each run: no byte is lost, whoever waits, and none behind Stop."""
    stand = Stand()
    sizes = [1, 100, 77, 122]

    async def bench(ctx):
        for one_c2h in (True, False):
            parts = [stand.rng.randbytes(size) for size in sizes]
            data = b"".join(parts)
            stand.model.memory[DESTINATION : DESTINATION + COPY] = bytes(COPY)
            if one_c2h:
                table = descriptors_of([(WINDOW, BASE + DESTINATION, COPY)], BASE + LIST)
                stand.model.memory[LIST : LIST + table.nbytes] = table.tobytes()
                stand.start(True, LIST)
                for part in parts:
                    await stand.send(ctx, part)
                await stand.idle(ctx, True)
                stand.control(True, 0)
                assert stand.model.memory[DESTINATION : DESTINATION + COPY] == data
            else:
                await stand.send(ctx, data)
                assert b"".join([await stand.take(ctx, len(part)) for part in parts]) == data

    stand.run(bench)


@pytest.mark.parametrize(("how", "at"), [("fetch", 0), ("fetch", 2), ("magic", 0), ("abort", 0)])
def test_nothing_outlives_a_run_of_another_owner_that_failed(how, at):
    """Such as a launch queue's: software has filled the pair."""
    stand = Stand(shared=True)

    async def bench(ctx):
        owner = Owner(stand.model.core.owners[1])
        await stand.send(ctx, stand.rng.randbytes(COPY))
        stand.lay(True, how, at)
        await owner.grant(ctx)
        await owner.begin(ctx, BASE + LIST)
        if how == "abort":
            ctx.set(owner.port.request, 0)
        end = await owner.end(ctx)
        assert end.aborted or end.outcome != Outcome.OK
        await stand.expect_clean_copy(ctx)

    stand.run(bench)


@pytest.mark.parametrize("failed", [False, True])
def test_nothing_outlives_a_run_that_was_given_up_before_its_turn(failed):
    """Another owner has the channel meanwhile, and loses nothing."""
    stand = Stand(shared=True)

    async def bench(ctx):
        owners = [Owner(port) for port in stand.model.core.owners]
        if failed:
            await stand.fail(ctx, True, "fetch", 0)
        await owners[1].grant(ctx)
        await stand.send(ctx, stand.rng.randbytes(COPY))
        stand.lay(True, "good", 0)
        if not failed:
            stand.start(True, LIST)
            assert await stand.status(ctx, True) == regs.Status.BUSY
        stand.control(True, 0)
        assert await stand.status(ctx, True) & regs.Status.BUSY == 0
        data = descriptors_of([(0, BASE + DESTINATION, 64)], BASE)
        await owners[1].begin(ctx, 0, 0, data)
        end = await owners[1].end(ctx)
        assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 1)
        await stand.expect_clean_copy(ctx)

    stand.run(bench)


@pytest.mark.parametrize("cleared", ["beside", "behind", "restarted", "given up"])
def test_a_failed_run_costs_no_byte_of_another_owners_behind_it(cleared):
    """Software clears Run of H2C while the owner's H2C run is under way, or long after.

    A run of software's that is given up meanwhile has the pair flushed, as ever.
    """
    stand = Stand(shared=True)

    async def bench(ctx):
        into = Owner(stand.model.core.owners[0])
        for how, at in (("fetch", 0), ("magic", 2), ("data", 1)):
            await stand.send(ctx, stand.rng.randbytes(COPY))
            await stand.fail(ctx, False, how, at)
            stand.model.refused = set()
            data = stand.rng.randbytes(COPY)
            stand.model.memory[SOURCE : SOURCE + COPY] = data
            table = descriptors_of([(BASE + SOURCE, WINDOW, COPY)], BASE + LIST)
            stand.model.memory[LIST : LIST + table.nbytes] = table.tobytes()
            await into.grant(ctx)
            await into.begin(ctx, BASE + LIST)
            if cleared != "behind":
                stand.control(False, 0)
            if cleared in ("restarted", "given up"):
                more = stand.rng.randbytes(COPY)
                stand.model.memory[0x3000 : 0x3000 + COPY] = more
                table = descriptors_of([(BASE + 0x3000, WINDOW, COPY)], BASE + 0x5000)
                stand.model.memory[0x5000 : 0x5000 + table.nbytes] = table.tobytes()
                stand.start(False, 0x5000)
            if cleared == "given up":
                stand.control(False, 0)
            end = await into.end(ctx)
            assert (end.outcome, end.aborted, end.count) == (Outcome.OK, 0, 1)
            if cleared == "given up":
                await stand.expect_clean_copy(ctx)
                continue
            if cleared == "behind":
                await ctx.tick().repeat(stand.rng.randrange(1, 200))
                stand.control(False, 0)
            assert await stand.take(ctx, COPY) == data
            if cleared == "restarted":
                await stand.idle(ctx, False)
                stand.control(False, 0)
                assert await stand.take(ctx, COPY) == more

    stand.run(bench)


def test_a_failed_h2c_run_of_a_source_holds_nothing_up():
    """Nothing of it comes out of a source: a run of frames goes on, and H2C starts again."""
    stand = Stand(replace(CONFIG, user=PatternSource))

    async def bench(ctx):
        model = stand.model
        # No frame is due, for which this waits.
        table = descriptors_of([(WINDOW, BASE + DESTINATION, 100)], BASE + 0x800)
        model.memory[0x800 : 0x800 + table.nbytes] = table.tobytes()
        stand.start(True, 0x800)
        await stand.fail(ctx, False, "fetch", 0, card=0)
        stand.control(False, 0)
        model.refused = set()
        spans = [(BASE + SOURCE, 0, 64)]
        assert await transfer(ctx, model, c2h=False, descriptors=spans) == (
            regs.Status.DESCRIPTOR_STOPPED
        )
        assert await stand.status(ctx, True) == regs.Status.BUSY

    stand.run(bench)
