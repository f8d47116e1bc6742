# SPDX-License-Identifier: BSD-2-Clause
"""AXI4-Stream on both sides of a user's logic: what its rules are, and that no byte is lost."""

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring

from hw.seam import WIDTHS
from hw.stream.axi_stream import AxiStream, FromAxiStream, ToAxiStream, UserPorts
from hw.stream.user_blocks import Axis
from tests.hw.helpers import fields, seeded, send, simulate, toggle, watch

widths = pytest.mark.parametrize("width", WIDTHS)
SIGNALS = ("tdata", "tkeep", "tlast")


def beat_of(rng, lanes, data, keep, last=0):
    """An AXI4-Stream beat with `data` in the lanes of `keep`, noise in the others."""
    left = iter(data)
    every = [next(left) if keep >> lane & 1 else rng.randrange(256) for lane in range(lanes)]
    return {"tdata": int.from_bytes(bytes(every), "little"), "tkeep": keep, "tlast": last}


def kept(beat, lanes):
    """The bytes of an AXI4-Stream beat."""
    data = beat["tdata"].to_bytes(lanes, "little")
    return bytes(data[lane] for lane in range(lanes) if beat["tkeep"] >> lane & 1)


async def transmit(ctx, bus, beats, pause=lambda: 0):
    """Offers beats as an AXI4-Stream transmitter has to, each after `pause()` idle cycles."""
    for beat in beats:
        await ctx.tick().repeat(count) if (count := pause()) else None
        for name, value in beat.items():
            ctx.set(getattr(bus, name), value)
        ctx.set(bus.tvalid, 1)
        await ctx.tick().until(bus.tready)
        ctx.set(bus.tvalid, 0)


def judge(bus, log, aresetn=None):
    """A background bench: the rules for a transmitter, and (cycle, beat) of each transfer."""

    async def run(ctx):
        offered, cycle = None, 0
        names = [getattr(bus, name) for name in SIGNALS]
        reset = Signal() if aresetn is None else ~aresetn
        async for _, _, *values, valid, ready, in_reset in ctx.tick().sample(
            *names, bus.tvalid, bus.tready, reset
        ):
            beat = dict(zip(SIGNALS, map(int, values), strict=True))
            assert not (in_reset and valid), "tvalid in reset"
            if offered and not in_reset:
                assert valid, "tvalid fell without tready"
                assert beat == offered, "the beat changed while it waited"
            if valid:
                keep = beat["tkeep"]
                assert keep and not keep & keep + 1, f"tkeep {keep:#b} is not from lane 0 on"
            if valid and ready:
                log.append((cycle, beat))
            offered = beat if valid and not ready else None
            cycle += 1

    return run


# The signature -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [0, -8, 12])
def test_a_stream_is_of_bytes(width):
    with pytest.raises(ValueError, match=f"carries bytes: {width} bits"):
        AxiStream(width)


@pytest.mark.parametrize("width", [8, 64, 512])
def test_a_stream_has_a_tkeep_bit_for_each_byte(width):
    members = AxiStream(width).members
    assert members["tdata"] == wiring.Out(width)
    assert members["tkeep"] == wiring.Out(width // 8)
    assert [name for name, member in members.items() if member.flow == wiring.In] == ["tready"]


def test_every_port_of_a_pair_is_described():
    flat = ["_".join(path) for path, _ in UserPorts(64).flat_members()]
    assert flat == list(UserPorts.DOCS)


# H2C -----------------------------------------------------------------------------------------


@widths
@pytest.mark.parametrize("ready", [1.0, 0.4])
def test_beats_leave_by_the_rules(width, ready):
    rng = seeded()
    lanes = width // 8
    dut, log = ToAxiStream(width), []
    beats = [
        {"data": rng.getrandbits(width), "count": rng.choice([lanes, rng.randint(1, lanes)])}
        for _ in range(60)
    ]

    async def feed(ctx):
        await send(ctx, dut.i, beats, lambda: rng.choice([0, 0, 3]))
        while len(log) < len(beats):
            await ctx.tick()

    stall = toggle(dut.o.tready, lambda: rng.random() < ready)
    simulate(dut, feed, background=(judge(dut.o, log), stall))
    assert b"".join(kept(beat, lanes) for _, beat in log) == b"".join(
        beat["data"].to_bytes(lanes, "little")[: beat["count"]] for beat in beats
    )


@widths
def test_a_beat_leaves_in_every_cycle(width):
    dut, log = ToAxiStream(width), []

    async def feed(ctx):
        beats = [{"data": n, "count": width // 8} for n in range(30)]
        await send(ctx, dut.i, beats)
        await ctx.tick().repeat(2)

    simulate(dut, feed, background=(judge(dut.o, log), toggle(dut.o.tready, lambda: 1)))
    assert [cycle for cycle, _ in log] == list(range(log[0][0], log[0][0] + 30))


def test_a_beat_that_is_withdrawn_is_still_offered():
    """The pair withdraws beats when a copy breaks; AXI4-Stream does not allow that."""
    dut, log = ToAxiStream(64), []

    async def run(ctx):
        ctx.set(dut.i.payload, {"data": 0xABCD, "count": 2})
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.o.tvalid)
        ctx.set(dut.o.tready, 1)
        await ctx.tick().repeat(3)

    simulate(dut, run, background=(judge(dut.o, log),))
    assert [beat for _, beat in log] == [{"tdata": 0xABCD, "tkeep": 0b11, "tlast": 0}]


# C2H -----------------------------------------------------------------------------------------


def keeps(rng, lanes, kind):
    """One `tkeep` of that kind."""
    full = (1 << lanes) - 1
    if kind == "full":
        return full
    if kind == "trailing":
        return full >> rng.randrange(lanes)
    return rng.choice([0, full, 1 << rng.randrange(lanes), rng.getrandbits(lanes)])


@widths
@pytest.mark.parametrize("kind", ["full", "trailing", "any"])
@pytest.mark.parametrize("ready", [1.0, 0.4])
def test_bytes_move_together(width, kind, ready):
    """Packets with bytes in any lanes: all bytes, in order, and each packet ends in its place."""
    rng = seeded()
    lanes = width // 8
    dut, log = FromAxiStream(width), []
    packets, beats = [], []
    for _ in range(20):
        packet = b""
        length = rng.randint(1, 5)
        for n in range(length):
            keep = keeps(rng, lanes, kind)
            data = rng.randbytes(keep.bit_count())
            beats.append(beat_of(rng, lanes, data, keep, last=n == length - 1))
            packet += data
        packets.append(packet)

    async def feed(ctx):
        await transmit(ctx, dut.i, beats, lambda: rng.choice([0, 0, 2]))
        while sum(fields(beat)["last"] for _, beat in log) < len(packets):
            await ctx.tick()

    stall = toggle(dut.o.ready, lambda: rng.random() < ready)
    simulate(dut, feed, background=(watch(dut.o, log), stall))
    found = [b""]
    for _, payload in log:
        beat = fields(payload)
        assert beat["count"] or beat["last"], "a beat of nothing"
        found[-1] += beat["data"].to_bytes(lanes, "little")[: beat["count"]]
        if beat["last"]:
            found.append(b"")
    assert found == [*packets, b""]


@widths
def test_a_beat_arrives_in_every_cycle_two_later(width):
    rng = seeded()
    dut, log, cycles = FromAxiStream(width), [], []
    beats = [beat_of(rng, width // 8, rng.randbytes(width // 8), (1 << width // 8) - 1)] * 30

    async def feed(ctx):
        await transmit(ctx, dut.i, beats)
        await ctx.tick().repeat(4)

    async def entering(ctx):
        cycle = 0
        async for _, _, moved in ctx.tick().sample(dut.i.tvalid & dut.i.tready):
            if moved:
                cycles.append(cycle)
            cycle += 1

    simulate(dut, feed, background=(watch(dut.o, log), entering, toggle(dut.o.ready, lambda: 1)))
    assert cycles == list(range(cycles[0], cycles[0] + 30))
    assert [cycle for cycle, _ in log] == [cycle + 2 for cycle in cycles]


# The block -----------------------------------------------------------------------------------


class Flushed(wiring.Component):
    """The block as a pair has it: a flush resets it."""

    def __init__(self, width):
        self.axis = Axis(width)
        self.flush = Signal()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.axis = ResetInserter(self.flush)(self.axis)
        return m


@widths
def test_a_flush_resets_the_users_side_and_nothing_moves_meanwhile(width):
    """Beats of before are gone; reset lasts 16 cycles; then both streams go on with what is new."""
    rng, lanes = seeded(), width // 8
    every = (1 << lanes) - 1
    dut = Flushed(width)
    axis, out, into = dut.axis, [], []

    async def run(ctx):
        aresetn = axis.axis.aresetn
        for _ in range(6):
            low = 0
            while not ctx.get(aresetn):
                # Whoever is in reset may drive anything.
                assert not ctx.get(axis.i.ready) and not ctx.get(axis.s_axis_c2h.tready)
                assert not ctx.get(axis.o.valid) and not ctx.get(axis.m_axis_h2c.tvalid)
                ctx.set(axis.i.valid, rng.random() < 0.5)
                ctx.set(axis.s_axis_c2h.tvalid, rng.random() < 0.5)
                low += 1
                await ctx.tick()
            assert low == Axis.RESET_CYCLES == 16
            ctx.set(axis.i.valid, 0)
            ctx.set(axis.s_axis_c2h.tvalid, 0)
            await ctx.tick().repeat(3)
            assert (out, into) == ([], [])
            ctx.set(axis.m_axis_h2c.tready, 1)
            ctx.set(axis.o.ready, 1)
            words = [rng.getrandbits(width) for _ in range(3)]
            await send(ctx, axis.i, [{"data": word, "count": lanes} for word in words])
            into_c2h = [{"tdata": word, "tkeep": every} for word in words]
            await transmit(ctx, axis.s_axis_c2h, into_c2h)
            await ctx.tick().repeat(5)
            assert [beat["tdata"] for _, beat in out] == words
            assert [beat.data for _, beat in into] == words
            # What waits in the block, one way and the other, is of the copy that breaks.
            ctx.set(axis.m_axis_h2c.tready, 0)
            ctx.set(axis.o.ready, 0)
            await send(ctx, axis.i, [{"data": 1, "count": lanes}])
            await transmit(ctx, axis.s_axis_c2h, [{"tdata": 1, "tkeep": every}] * 3)
            ctx.set(dut.flush, 1)
            await ctx.tick()
            ctx.set(dut.flush, 0)
            out.clear()
            into.clear()

    judges = (judge(axis.m_axis_h2c, out, axis.axis.aresetn), watch(axis.o, into))
    simulate(dut, run, background=judges)
