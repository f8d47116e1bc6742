# SPDX-License-Identifier: BSD-2-Clause
"""The filter that hides electrical idle from the PCIe block, on a link that sleeps and wakes.

A link is a list of `Cycle`s: what the transceiver shows in each. The receiver makes noise of an
idle link, with RXVALID and control symbols in it, as real ones do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from hw.pcie.series7.phy.eios import COM, IDL, IDLE_WITHIN, LATENCY, LTSSM_L0, EiosFilter
from hw.pcie.series7.phy.pipe import FROM_BLOCK
from tests.hw.helpers import seeded, simulate

FTS, SKP, STP = 0x3C, 0x1C, 0xFB
EIOS = [(COM, 1), (IDL, 1), (IDL, 1), (IDL, 1)]
#: LTSSM states: Polling.Active, L1 Entry, Recovery.Speed (PG054).
ELSEWHERE = (0x04, 0x17, 0x1E)


@dataclass(frozen=True)
class Cycle:
    """Receive signals of one cycle."""

    rx_data: int = 0
    rx_char_is_k: int = 0
    rx_valid: int = 1
    rx_status: int = 0
    rx_elec_idle: int = 0
    rx_aligned: int = 1
    phystatus: int = 0


def words(symbols: list[tuple[int, int]], odd: bool = False) -> list[Cycle]:
    """Symbols (byte, control), two a cycle; `odd` begins with the upper half of a word."""
    symbols = [(0x4A, 0)] * odd + symbols
    symbols += [(0x4A, 0)] * (len(symbols) % 2)
    return [
        Cycle(rx_data=low | high << 8, rx_char_is_k=k | m << 1)
        for (low, k), (high, m) in zip(symbols[::2], symbols[1::2], strict=True)
    ]


def data(random, count: int) -> list[Cycle]:
    """Received data without any ordered set."""
    return words([(random.randrange(256), 0) for _ in range(2 * count)])


def noise(random, count: int, idle: int = 1) -> list[Cycle]:
    """What a receiver makes of a link that nobody drives."""
    symbols = (COM, IDL, FTS, STP, 0x00, 0xFF)
    return [
        Cycle(
            rx_data=random.choice(symbols) | random.choice(symbols) << 8,
            rx_char_is_k=random.randrange(4),
            rx_valid=random.random() < 0.8,
            rx_status=random.randrange(1, 8),
            rx_elec_idle=idle,
        )
        for _ in range(count)
    ]


def received(cycles: list[Cycle], ltssm: int = LTSSM_L0) -> list[Cycle]:
    """What the block gets of each of `cycles`."""
    dut = EiosFilter()
    found = []

    async def bench(ctx):
        ctx.set(dut.ltssm, ltssm)
        await ctx.tick().repeat(LATENCY)
        for cycle in [*cycles, *[Cycle(rx_valid=0)] * LATENCY]:
            for name, value in vars(cycle).items():
                ctx.set(getattr(dut.gt, name), value)
            await ctx.tick()
            found.append(Cycle(**{name: ctx.get(getattr(dut.block, name)) for name in vars(cycle)}))

    simulate(dut, bench)
    return found[LATENCY - 1 : LATENCY - 1 + len(cycles)]


def silent(cycle: Cycle) -> Cycle:
    """The cycle, as far as it may reach the block in L0."""
    return replace(cycle, rx_valid=0, rx_char_is_k=0, rx_status=0)


def sleep(
    random, odd: bool, detected: int, symbols: list[tuple[int, int]] = EIOS
) -> tuple[list[Cycle], int, int]:
    """A link that goes idle and wakes, and the first and the last cycle that must be hidden.

    `detected` is from the EIOS in the transceiver's output to RXELECIDLE; negative if the detector
    is faster than the elastic buffer.
    """
    before = data(random, 20) + words(symbols, odd)
    first = len(before) - len(words(symbols, odd)) + len(words(EIOS[:3], odd))
    cycles = before + noise(random, 100)
    start, end = len(before) + detected, len(cycles) - 1
    cycles = [
        replace(cycle, rx_elec_idle=int(start <= at <= end)) for at, cycle in enumerate(cycles)
    ]
    wake = words([(COM, 1), (FTS, 1), (FTS, 1), (FTS, 1)] * 10, random.random() < 0.5)
    return cycles + wake, first, end


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("detected", [-10, -1, 0, 1, 2, 20, IDLE_WITHIN - 10])
@pytest.mark.parametrize("symbols", [EIOS, EIOS * 2], ids=["Gen1", "Gen2"])
def test_noise_of_an_idle_link_is_hidden_and_nothing_else(odd, detected, symbols):
    random = seeded()
    cycles, first, last = sleep(random, odd, detected, symbols)
    found = received(cycles)
    for at, (cycle, seen) in enumerate(zip(cycles, found, strict=True)):
        seen = replace(seen, rx_elec_idle=cycle.rx_elec_idle)
        if at < first:
            assert seen == cycle, f"cycle {at}, before the EIOS was complete"
        elif at <= last:
            assert seen == silent(cycle), f"cycle {at}, idle"
    # One cycle after RXELECIDLE is 0 where the block sees it.
    awake = last + 2
    assert [replace(c, rx_elec_idle=0) for c in found[awake:]] == cycles[awake:]


def test_electrical_idle_is_as_late_as_the_words():
    random = seeded()
    cycles, _, _ = sleep(random, False, 5)
    found = received(cycles)
    assert [c.rx_elec_idle for c in found] == [c.rx_elec_idle for c in cycles]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    "symbols",
    [
        [(COM, 1), (IDL, 1), (0x4A, 0), (IDL, 1)],
        [(COM, 1), (IDL, 1), (IDL, 0), (IDL, 0)],
        [(COM, 1), (IDL, 0), (IDL, 1), (IDL, 1)],
        [(COM, 0), (IDL, 1), (IDL, 1), (IDL, 1)],
        [(COM, 1), (0x4A, 0), (IDL, 1), (IDL, 1)],
        [(IDL, 1), (IDL, 1), (IDL, 1), (IDL, 1)],
        [(COM, 1), (SKP, 1), (SKP, 1), (SKP, 1)],
        [(COM, 1), (FTS, 1), (FTS, 1), (FTS, 1)],
        [(COM, 1), (COM, 1), (IDL, 1), (0x4A, 0)],
        [(FTS, 1), (IDL, 1), (IDL, 1), (COM, 1)],
    ],
)
def test_what_is_no_eios_passes(symbols, odd):
    random = seeded()
    cycles = data(random, 5) + words(symbols, odd) + data(random, 2 * IDLE_WITHIN)
    assert received(cycles) == cycles


@pytest.mark.parametrize("odd", [False, True])
def test_an_eios_with_a_gap_in_rxvalid_is_none(odd):
    random = seeded()
    for gap in range(len(words(EIOS[:3], odd))):
        cut = words(EIOS[:3], odd)
        cut[gap] = replace(cut[gap], rx_valid=0)
        cycles = data(random, 5) + cut + data(random, IDLE_WITHIN)
        assert received(cycles) == cycles


@pytest.mark.parametrize("odd", [False, True])
def test_an_idle_too_short_for_the_detector_ends_by_itself(odd):
    random = seeded()
    eios = words(EIOS[:3], odd)
    cycles = eios + data(random, 2 * IDLE_WITHIN)
    found = received(cycles)
    hidden = len(eios) + IDLE_WITHIN
    assert found[: len(eios)] == eios
    assert found[len(eios) : hidden] == [silent(cycle) for cycle in cycles[len(eios) : hidden]]
    assert found[hidden:] == cycles[hidden:]


def test_the_next_idle_is_found_as_the_first():
    random = seeded()
    parts = [sleep(random, odd, detected) for odd, detected in ((0, 3), (1, -4), (0, 0), (1, 9))]
    found = received([cycle for cycles, _, _ in parts for cycle in cycles])
    at = 0
    for cycles, first, last in parts:
        assert all(c.rx_valid for c in found[at : at + first])
        assert not any(c.rx_valid for c in found[at + first : at + last + 1])
        at += len(cycles)


@pytest.mark.parametrize("ltssm", ELSEWHERE)
def test_outside_l0_receiver_detection_passes(ltssm):
    """A link that went down idle: the block finds in RXSTATUS whether there is a partner."""
    random = seeded()
    cycles, first, last = sleep(random, False, 0)
    detection = replace(cycles[last - 10], rx_valid=0, rx_status=3, phystatus=1)
    cycles[last - 10] = detection
    found = received(cycles, ltssm)
    assert not any(c.rx_valid or c.rx_char_is_k for c in found[first : last + 1])
    assert [c.rx_status for c in found] == [c.rx_status for c in cycles]
    seen = found[last - 10]
    assert (seen.rx_status, seen.phystatus) == (3, 1)


def test_what_the_block_sends_passes_at_once():
    random = seeded()
    dut = EiosFilter()

    async def bench(ctx):
        for _ in range(50):
            sent = {name: random.getrandbits(width) for name, (width, _) in FROM_BLOCK.items()}
            for name, value in sent.items():
                ctx.set(getattr(dut.block, name), value)
            await ctx.delay(1e-9)
            assert sent == {name: ctx.get(getattr(dut.gt, name)) for name in sent}
            await ctx.tick()

    simulate(dut, bench)


def test_phystatus_holds_the_block_until_a_clock_came():
    dut = EiosFilter()

    async def bench(ctx):
        assert ctx.get(dut.block.phystatus)
        assert ctx.get(dut.block.rx_elec_idle)
        assert not ctx.get(dut.block.rx_valid)
        await ctx.tick()

    simulate(dut, bench)
