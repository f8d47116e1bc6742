# SPDX-License-Identifier: BSD-2-Clause
"""The whole core, attached at the seam: no adapter, no TLPs, no PCIe block."""

from __future__ import annotations

import zlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring

from hw.core import Core, CoreConfig
from hw.pcie.series7.block import SERIES7
from hw.seam import WIDTHS
from hw.stream.user_blocks import FrameBlock, PassThrough, UserBlock
from peerdma import regs
from tests.hw.helpers import seeded, simulate, watch
from tests.hw.seam_model import SeamModel, block_of, start, transfer

BASE = 0x12_3456_0000
#: Where source and destination are in the model's memory.
SOURCE, DESTINATION = 0x1000, 0x3000
SMALL = CoreConfig(tags=8, ram_size=4096, user=None)


class Wire(UserBlock):
    """As `PassThrough`, but for the pair it is not that."""

    NAME = "WIRE"

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        return m


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("user", [None, PassThrough, Wire])
def test_data_goes_to_the_card_and_back(user, width):
    """At any byte alignment, through card RAM, a ring, or two rings and a user block."""
    random = seeded()
    stream = user is not None
    model = SeamModel(Core(block_of(width), replace(SMALL, user=user)), BASE, 0x6000)
    data = random.randbytes(2000)
    cuts = [0, 1, 700, 1500, 2000]
    skew_in, card, skew_out = (random.randrange(16) for _ in range(3))
    card += regs.STREAM_WINDOW if stream else 0
    model.memory[SOURCE + skew_in : SOURCE + skew_in + len(data)] = data
    before = bytes(model.memory[DESTINATION:])

    async def bench(ctx):
        await model.link_up(ctx)
        spans = list(pairwise(cuts))
        into = [(BASE + SOURCE + skew_in + a, card + a, b - a) for a, b in spans]
        back = [(card + a, BASE + DESTINATION + skew_out + a, b - a) for a, b in spans]
        for c2h, descriptors in ((False, into), (True, back)):
            status = await transfer(ctx, model, c2h=c2h, descriptors=descriptors)
            assert status == regs.Status.DESCRIPTOR_STOPPED

    simulate(model.core, bench, background=model.benches)
    after = bytearray(before)
    after[skew_out : skew_out + len(data)] = data
    assert model.memory[DESTINATION:] == after


#: Cycles from the first beat of data at the seam to the first beat of the first write, and to the
#: last one of the last, by user block and width: of 1024 bytes, in 8 writes.
THROUGH = {
    PassThrough: {64: (20, 154), 128: (12, 82), 256: (10, 48)},
    Wire: {64: (27, 161), 128: (18, 88), 256: (17, 55)},
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("user", THROUGH)
def test_cycles_through_a_user_block(user, width):
    """Completions come as closely as the seam allows, and writes take a cycle more than beats."""
    size = 1024
    model = SeamModel(Core(block_of(width), replace(SMALL, user=user)), BASE, 0x6000)
    model.memory[SOURCE : SOURCE + size] = data = seeded().randbytes(size)
    arrived, sent = [], []

    async def bench(ctx):
        await model.link_up(ctx)
        into = (BASE + SOURCE, regs.STREAM_WINDOW, size)
        back = (regs.STREAM_WINDOW, BASE + DESTINATION, size)
        # C2H waits for what comes; nothing is fetched.
        start(model, c2h=True, descriptors=[back], pushed=1)
        start(model, c2h=False, descriptors=[into], pushed=1)
        while len(model.writes) < size // 128:
            await ctx.tick()

    logs = watch(model.seam.requester_completion, arrived), watch(model.seam.requester, sent)
    simulate(model.core, bench, background=(*model.benches, *logs))
    assert model.memory[DESTINATION : DESTINATION + size] == data
    writes = [cycle for cycle, beat in sent if beat.header.write]
    assert (writes[0] - arrived[0][0], writes[-1] - arrived[0][0]) == THROUGH[user][width]


#: Bytes of a frame of `Counting`: of no width whole beats.
FRAME = 75


class Counting(FrameBlock):
    """Frames whose bytes count, each frame from 1 more than the one before."""

    NAME, RATIO = "TEST", (0, 1)

    def elaborate(self, platform):
        m = Module()
        beat, place, number = self.o.payload, Signal(range(FRAME)), Signal(8)
        left = FRAME - place
        m.d.comb += [
            self.o.valid.eq(1),
            self.i.ready.eq(1),
            self.dropped.eq(77),
            beat.data.eq(Cat((number + place + n)[:8] for n in range(self.lanes))),
            beat.last.eq(left <= self.lanes),
            beat.count.eq(Mux(beat.last, left, self.lanes)),
        ]
        with m.If(self.o.ready):
            m.d.sync += place.eq(Mux(beat.last, 0, place + self.lanes))
            with m.If(beat.last):
                m.d.sync += number.eq(number + 1)
        return m


@pytest.mark.parametrize("width", WIDTHS)
def test_frames_have_records_where_descriptors_say(width):
    """Of a frame in one piece, and of one in two; each is one write, behind those of the data."""
    model = SeamModel(Core(block_of(width), replace(SMALL, user=Counting)), BASE, 0x4000)
    places = [(0x1003, FRAME), (0x2020, 32), (0x1101, 7), (0x1205, FRAME - 7), (0x2FE0, 32)]

    async def bench(ctx):
        await model.link_up(ctx)
        capabilities = await model.read(ctx, regs.EXTENSION.address("capabilities"))
        assert capabilities & regs.Capability.FRAME_RECORDS
        for name in ("frame_records", "stream_flush"):
            model.write(regs.EXTENSION.address(name), 1)
        clock = await model.read(ctx, regs.EXTENSION.address("cycles_lo"))
        lists = [(regs.STREAM_WINDOW, BASE + at, size) for at, size in places]
        status = await transfer(ctx, model, c2h=True, descriptors=lists)
        assert status == regs.Status.DESCRIPTOR_STOPPED
        ends = [(at & ~3, ((at & 3) + size + 3) // 4) for at, size in places]
        assert model.writes == [(BASE + at, dwords, 0) for at, dwords in ends]
        found = [bytes(model.memory[at : at + size]) for at, size in places]
        for number, (data, record) in enumerate(
            ((found[0], found[1]), (found[2] + found[3], found[4]))
        ):
            assert data == bytes(range(number, number + FRAME))
            cycles, _, *rest = np.frombuffer(record, regs.FRAME_RECORD)[0].item()
            assert rest == [FRAME, 77, zlib.crc32(data), regs.FRAME_NUMBER_VALID | number]
            # Both are there before the run begins.
            assert clock - 20 < cycles < clock + 200

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("config", [{"frame_records": False}, {"user": PassThrough}])
def test_cores_without_records_say_so(config):
    core = Core(SERIES7, replace(SMALL, **{"user": Counting} | config))
    model = SeamModel(core, BASE, 0x1000)

    async def bench(ctx):
        await model.link_up(ctx)
        found = await model.read(ctx, regs.EXTENSION.address("capabilities"))
        assert not found & regs.Capability.FRAME_RECORDS

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("width", WIDTHS)
def test_pushed_descriptors_are_followed_by_those_in_memory(width):
    random = seeded()
    model = SeamModel(Core(block_of(width), SMALL), BASE, 0x6000)
    data = random.randbytes(400)
    model.memory[SOURCE : SOURCE + len(data)] = data

    async def bench(ctx):
        await model.link_up(ctx)
        for pushed in (1, 4):
            model.memory[DESTINATION : DESTINATION + len(data)] = bytes(len(data))
            at = range(0, len(data), 80)
            into = [(BASE + SOURCE + n, n, 80) for n in at]
            back = [(n, BASE + DESTINATION + n, 80) for n in at]
            # a list that is pushed as a whole, one that is fetched, one that is both
            for c2h, descriptors, count in (
                (False, into[:pushed], pushed),
                (False, into[pushed:], 0),
                (True, back, pushed),
            ):
                status = await transfer(ctx, model, c2h=c2h, descriptors=descriptors, pushed=count)
                assert status == regs.Status.DESCRIPTOR_STOPPED
            assert model.memory[DESTINATION : DESTINATION + len(data)] == data

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize(("c2h", "cycles"), [(False, 11), (True, 12)])
def test_cycles_from_run_to_the_first_request_of_pushed_descriptors(c2h, cycles):
    """From the beat with Run to the first beat of the read (H2C) or write (C2H) of data."""
    core = Core(SERIES7, SMALL)
    model = SeamModel(core, BASE, 0x6000)
    base = regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base
    control, seen = base + regs.CHANNEL["control"].offset, {}

    async def watch(ctx):
        cycle, seam = 0, core.seam
        async for *_, run, target, asked, request in ctx.tick().sample(
            seam.target.valid, seam.target.payload, seam.requester.valid, seam.requester.payload
        ):
            cycle += 1
            if run and target.header.address == control:
                seen.setdefault("run", cycle)
            if asked:
                seen.setdefault("request", (cycle, request.header.write, request.header.address))

    async def bench(ctx):
        await model.link_up(ctx)
        ends = (0, BASE + DESTINATION) if c2h else (BASE + SOURCE, 0)
        await transfer(ctx, model, c2h=c2h, descriptors=[(*ends, 64)], pushed=1)

    simulate(core, bench, background=(*model.benches, watch))
    cycle, write, address = seen["request"]
    assert (write, address) == (c2h, BASE + (DESTINATION if c2h else SOURCE))
    assert cycle - seen["run"] == cycles


def test_a_core_without_extension_block_takes_no_descriptors():
    """The list is fetched as on any other core, whatever was written where the window would be."""
    model = SeamModel(Core(SERIES7, replace(SMALL, extension=False)), BASE, 0x6000)
    model.memory[SOURCE : SOURCE + 64] = data = seeded().randbytes(64)

    async def bench(ctx):
        await model.link_up(ctx)
        for number in range(8):
            model.write(regs.H2C_PUSH_BASE + 4 * number, 5)
        for c2h, ends in ((False, (BASE + SOURCE, 0)), (True, (0, BASE + DESTINATION))):
            status = await transfer(ctx, model, c2h=c2h, descriptors=[(*ends, 64)])
            assert status == regs.Status.DESCRIPTOR_STOPPED

    simulate(model.core, bench, background=model.benches)
    assert model.memory[DESTINATION : DESTINATION + 64] == data


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("extension", [True, False])
def test_all_blocks_of_xdma_say_what_they_are(extension, channels):
    """Whatever else the core has: drivers look for IRQ and config block, then for channels."""
    config = replace(SMALL, h2c=channels, c2h=channels, extension=extension)
    model = SeamModel(Core(SERIES7, config), BASE, 0)
    version = 6
    of_channel = {0: "H2C", 1: "C2H", 4: "H2C SGDMA", 5: "C2H SGDMA"}
    expected = {
        target << 12 | n << 8: 0x1FC << 20 | target << 16 | n << 8 | version
        for target in of_channel
        for n in range(channels)
    }
    expected |= {target << 12: 0x1FC << 20 | target << 16 | version for target in (2, 3, 6)}
    every = [target << 12 | n << 8 for target in range(7) for n in range(5)]

    async def bench(ctx):
        await model.link_up(ctx)
        for offset in every:
            assert await model.read(ctx, offset) == expected.get(offset, 0), f"{offset:#x}"
        # The limits of the link: 128 and 512 bytes. Those of software's are as after a reset.
        for name, value in (
            ("max_payload", 0),
            ("max_read_request", 2),
            ("system_id", 0xFF01),
            ("data_width", 0),
            ("pcie_control", 1),
            ("user_max_payload", 0x55),
            ("user_max_read_request", 0x55),
        ):
            assert await model.read(ctx, regs.CONFIG.address(name)) == value, name
        model.write(regs.CONFIG.address("user_max_read_request"), 1)
        assert await model.read(ctx, regs.CONFIG.address("user_max_read_request")) == 0x11
        # Vector 0 of the MSI-X table is masked.
        assert await model.read(ctx, 0x800C) & 1
        magic = await model.read(ctx, regs.EXTENSION.address("magic"))
        assert magic == (regs.EXTENSION_MAGIC if extension else 0)

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("extension", [True, False])
def test_software_limits_its_requests_by_the_config_block(extension):
    """Also of a core that has no other block to do so."""
    config = replace(SMALL, extension=extension)
    model = SeamModel(Core(SERIES7, config), BASE, 0x6000)
    model.memory[SOURCE : SOURCE + 512] = seeded().randbytes(512)

    async def bench(ctx):
        await model.link_up(ctx)
        ctx.set(model.seam.link.max_payload, 1)
        await ctx.tick().repeat(2)
        for limit, dwords in ((5, 64), (0, 32)):
            model.writes.clear()
            model.write(regs.CONFIG.address("user_max_payload"), limit)
            spans = [(0, BASE + DESTINATION, 512)]
            assert await transfer(ctx, model, c2h=True, descriptors=spans)
            assert {size for _, size, _ in model.writes} == {dwords}

    simulate(model.core, bench, background=model.benches)


def test_registers_answer():
    model = SeamModel(Core(SERIES7, SMALL), BASE, 0)

    async def bench(ctx):
        await model.link_up(ctx)
        extension = regs.EXTENSION
        link = await model.read(ctx, extension.base + extension["link"].offset)
        names = ("speed", "width", "max_payload", "max_read_request", "bus_master")
        assert [extension["link"].field(name).get(link) for name in names] == [2, 1, 0, 2, 1]

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("cause", ["behind", "lost"])
def test_overcommit_is_off_until_the_next_reset(cause):
    """A port that is behind, or a read without an answer; a soft reset changes nothing."""
    config = replace(SMALL, overcommit=True)
    model = SeamModel(Core(SERIES7, config), BASE, 0x4000)
    model.lost.update(range(0x1000, 0x1200) if cause == "lost" else ())
    can, off = regs.Capability.OVERCOMMIT, regs.Capability.OVERCOMMIT_OFF

    async def bench(ctx):
        async def capabilities() -> int:
            return await model.read(ctx, regs.EXTENSION.address("capabilities")) & (can | off)

        ctx.set(model.core.timeout_cycles, 200)
        await model.link_up(ctx)
        assert await capabilities() == can
        await transfer(ctx, model, c2h=False, descriptors=[(BASE, 0, 512)])
        assert await capabilities() == can
        if cause == "lost":
            await transfer(ctx, model, c2h=False, descriptors=[(BASE + 0x1000, 0, 512)])
        else:
            ctx.set(model.seam.behind, 1)
            await ctx.tick()
            ctx.set(model.seam.behind, 0)
        assert await capabilities() == can | off
        model.write(regs.EXTENSION.address("soft_reset"), 1)
        await ctx.tick().repeat(100)
        assert await capabilities() == can | off

    simulate(model.core, bench, background=model.benches)


def test_channels_are_busy_until_a_soft_reset_has_been():
    """A message that the block does not take delays it: what were written now would be lost."""
    model = SeamModel(Core(SERIES7, SMALL), BASE, 0x8000)
    channels = [(base, regs.CHANNEL) for base in (regs.CHANNEL.base, regs.C2H_CHANNEL_BASE)]

    async def read(ctx, name):
        return [await model.read(ctx, base + bank[name].offset) for base, bank in channels]

    async def bench(ctx):
        await model.link_up(ctx)
        link = model.seam.link
        ctx.set(link.msix_enable, 1)
        model.write(regs.MSIX_TABLE_OFFSET, BASE + SOURCE, dwords=4)
        model.write(regs.IRQ.address("user_enable"), 1)
        await ctx.tick().repeat(40)
        assert await read(ctx, "status") == [0, 0]
        ctx.set(link.write_room, 0)
        ctx.set(model.core.user_irq, 1)
        await ctx.tick().repeat(40)
        for base, bank in channels:
            model.write(base + bank["interrupt_enable"].offset, 0x1E)
        model.write(regs.EXTENSION.address("soft_reset"), 1)
        for _ in range(3):
            assert await read(ctx, "status") == [regs.Status.BUSY] * 2
        assert await read(ctx, "interrupt_enable") == [0x1E] * 2
        ctx.set(link.write_room, 1)
        while any(await read(ctx, "status")):
            pass
        assert [address for address, *_ in model.writes] == [BASE + SOURCE]
        assert await read(ctx, "interrupt_enable") == [0, 0]

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("width", WIDTHS)
def test_software_reads_how_wide_the_data_path_is(width):
    model = SeamModel(Core(block_of(width), replace(SMALL, extension=False)), BASE, 0)

    async def bench(ctx):
        await model.link_up(ctx)
        assert 64 << await model.read(ctx, regs.CONFIG.address("data_width")) == width

    simulate(model.core, bench, background=model.benches)


@pytest.mark.parametrize("width", [0, 32, 96, 512])
def test_a_block_of_another_width_is_refused(width):
    with pytest.raises(ValueError, match=f"must be one of 64, 128, 256 bits, not {width}"):
        block_of(width)


def test_a_core_has_no_more_tags_than_the_block():
    config = replace(SMALL, tags=64)
    with pytest.raises(ValueError, match="at most 32, all that the PCIe block has, not 64"):
        Core(SERIES7, config)
    assert Core(replace(SERIES7, max_tags=64), config)
