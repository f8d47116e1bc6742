# SPDX-License-Identifier: BSD-2-Clause
"""The phy: what lies between transceiver and PCIe block, buffers, clocks, power, ties."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hw.pcie.series7.parameters import BUFFER_DEPTH, BUFFER_READ_LATENCY
from hw.pcie.series7.phy.clocking import ClockTree
from hw.pcie.series7.phy.gtp import _CHANNEL_TIED, _COMMON_TIED
from hw.pcie.series7.phy.pcie_block import TIED, PcieBlock
from hw.pcie.series7.phy.pipe import FROM_BLOCK, VALID_CYCLES, OobClock, Pipe
from hw.pcie.series7.phy.power import TurnOff
from hw.pcie.series7.phy.tlp_buffer import TlpBuffer
from tests.hw.helpers import seeded, simulate


def test_pipe_is_one_register_each_way():
    random = seeded()
    dut = Pipe()
    receive = {"rx_data": 16, "rx_char_is_k": 2, "rx_elec_idle": 1, "rx_status": 3, "rx_aligned": 1}

    async def bench(ctx):
        for _ in range(100):
            sent = {name: random.getrandbits(width) for name, (width, _) in FROM_BLOCK.items()}
            received = {name: random.getrandbits(width) for name, width in receive.items()}
            for name, value in sent.items():
                ctx.set(getattr(dut.block, name), value)
            for name, value in received.items():
                ctx.set(getattr(dut.gt, name), value)
            await ctx.tick()
            assert sent == {name: ctx.get(getattr(dut.gt, name)) for name in sent}
            assert received == {name: ctx.get(getattr(dut.block, name)) for name in received}

    simulate(dut, bench)


def test_receiver_counts_as_valid_when_it_is_steady():
    dut = Pipe()

    async def bench(ctx):
        ctx.set(dut.ready, 1)
        ctx.set(dut.rate_idle, 1)
        for length in (1, VALID_CYCLES - 1, VALID_CYCLES):
            ctx.set(dut.gt.rx_valid, 1)
            for _ in range(length):
                await ctx.tick()
                assert not ctx.get(dut.block.rx_valid)
            ctx.set(dut.gt.rx_valid, 0)
            await ctx.tick()
            assert not ctx.get(dut.block.rx_valid)
        ctx.set(dut.gt.rx_valid, 1)
        for _ in range(VALID_CYCLES):
            await ctx.tick()
        await ctx.tick()
        assert ctx.get(dut.block.rx_valid)
        ctx.set(dut.gt.rx_valid, 0)
        await ctx.tick()
        assert not ctx.get(dut.block.rx_valid), "it ends at once"
        ctx.set(dut.ready, 0)
        ctx.set(dut.gt.rx_valid, 1)
        for _ in range(VALID_CYCLES + 5):
            await ctx.tick()
            assert not ctx.get(dut.block.rx_valid), "not before the transceiver is up"

    simulate(dut, bench)


async def settle(ctx, dut):
    """Until the receiver counts as valid; returns the cycles that it took."""
    for cycle in range(3 * VALID_CYCLES):
        await ctx.tick()
        if ctx.get(dut.block.rx_valid):
            return cycle
    raise AssertionError("never valid")


@pytest.mark.parametrize("status", range(8))
def test_symbols_with_errors_do_not_count_as_steady(status):
    """RXSTATUS[2] is set for decoding and buffer errors; 1 and 2 are SKPs added and removed."""
    dut = Pipe()

    async def bench(ctx):
        ctx.set(dut.ready, 1)
        ctx.set(dut.rate_idle, 1)
        ctx.set(dut.gt.rx_valid, 1)
        for _ in range(5 if status >= 4 else 1):
            await ctx.tick().repeat(VALID_CYCLES - 1)
            ctx.set(dut.gt.rx_status, status)
            await ctx.tick()
            ctx.set(dut.gt.rx_status, 0)
            assert not ctx.get(dut.block.rx_valid)
        assert await settle(ctx, dut) == (VALID_CYCLES if status >= 4 else 0)
        # Errors of a link that is up are for the block to count.
        ctx.set(dut.gt.rx_status, status)
        for _ in range(2 * VALID_CYCLES):
            await ctx.tick()
            assert ctx.get(dut.block.rx_valid)
            assert ctx.get(dut.block.rx_status) == status

    simulate(dut, bench)


def test_nothing_is_valid_in_a_change_of_rate():
    dut = Pipe()

    async def bench(ctx):
        ctx.set(dut.ready, 1)
        ctx.set(dut.rate_idle, 1)
        ctx.set(dut.gt.rx_valid, 1)
        await settle(ctx, dut)
        ctx.set(dut.rate_idle, 0)
        for _ in range(3 * VALID_CYCLES):
            await ctx.tick()
            assert not ctx.get(dut.block.rx_valid)
        ctx.set(dut.rate_idle, 1)
        assert await settle(ctx, dut) == VALID_CYCLES, "counted from the end of the change"

    simulate(dut, bench)


def test_phystatus_is_the_transceivers_but_in_a_change_of_rate():
    dut = Pipe()

    async def bench(ctx):
        for ready, idle, done, phystatus in (
            (ready, idle, done, phystatus)
            for ready in (0, 1)
            for idle in (0, 1)
            for done in (0, 1)
            for phystatus in (0, 1)
        ):
            ctx.set(dut.ready, ready)
            ctx.set(dut.rate_idle, idle)
            ctx.set(dut.rate_done, done)
            ctx.set(dut.gt.phystatus, phystatus)
            await ctx.tick()
            expected = not ready or done or (idle and phystatus)
            assert ctx.get(dut.block.phystatus) == bool(expected)

    simulate(dut, bench)


@pytest.mark.parametrize(("fast", "cycles"), [(0, 2), (1, 4)])
def test_idle_detector_gets_62_mhz_at_both_rates(fast, cycles):
    dut = OobClock()
    seen = []

    async def bench(ctx):
        ctx.set(dut.fast, fast)
        for _ in range(4):
            await ctx.tick()
        for _ in range(8 * cycles):
            await ctx.tick()
            seen.append(ctx.get(dut.clock))

    simulate(dut, bench)
    edges = [n for n in range(1, len(seen)) if seen[n] and not seen[n - 1]]
    assert {b - a for a, b in pairwise(edges)} == {cycles}


@pytest.mark.parametrize("width", [68, 69])
def test_buffer_answers_after_the_latency_that_the_block_is_told(width):
    random = seeded()
    dut = TlpBuffer(width)
    words = {random.randrange(BUFFER_DEPTH): random.getrandbits(width) for _ in range(50)}

    async def bench(ctx):
        ctx.set(dut.write_enable, 1)
        for address, word in words.items():
            ctx.set(dut.write_address, address)
            ctx.set(dut.write_data, word)
            await ctx.tick()
        ctx.set(dut.write_enable, 0)
        ctx.set(dut.read_enable, 1)
        expected = [None] * (BUFFER_READ_LATENCY - 1)
        for address, word in words.items():
            ctx.set(dut.read_address, address)
            await ctx.tick()
            expected.append(word)
            if (wanted := expected.pop(0)) is not None:
                assert ctx.get(dut.read_data) == wanted
        ctx.set(dut.read_enable, 0)
        await ctx.tick()
        assert ctx.get(dut.read_data) == expected.pop(0)

    simulate(dut, bench)


def test_turn_off_waits_for_open_requests_and_answers_once():
    dut = TurnOff()

    async def bench(ctx):
        ctx.set(dut.pending_n, 0)
        ctx.set(dut.received, 1)
        await ctx.tick()
        ctx.set(dut.received, 0)
        for _ in range(20):
            await ctx.tick()
            assert ctx.get(dut.ok_n)
        ctx.set(dut.pending_n, 1)
        await ctx.tick()
        assert not ctx.get(dut.ok_n)
        for _ in range(20):
            await ctx.tick()
            assert ctx.get(dut.ok_n)

    simulate(dut, bench)


def test_only_clocks_that_there_are():
    with pytest.raises(ValueError, match="62500 or 125000 kHz, not 100000"):
        PcieBlock(clock_khz=100_000)
    with pytest.raises(ValueError, match="no integer fraction"):
        ClockTree(clock_khz=60_000)


@pytest.mark.parametrize("table", [TIED, _CHANNEL_TIED, _COMMON_TIED])
def test_ties_fit_their_width(table):
    for name, (width, value) in table.items():
        assert 0 <= value < 1 << width, name
        # Active low and released, but for two that only look so.
        if name.startswith(("CFGERR", "CFGMGMT")) and name.endswith("N"):
            assert value == (1 << width) - 1, name
