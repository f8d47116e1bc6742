# SPDX-License-Identifier: BSD-2-Clause
"""What the adapter wires between the seam and the ports of the block; interrupts and credits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hw.pcie.adapters import ADAPTERS
from hw.pcie.ultrascale.adapter import UltraScaleAdapter
from hw.pcie.ultrascale.credits import SHOWN_LATE, NonPostedCredits, ReadRoom
from hw.pcie.ultrascale.family import (
    FAMILIES,
    ULTRASCALE,
    ULTRASCALE_PLUS,
    ULTRASCALE_PLUS_PCIE4C,
)
from hw.pcie.ultrascale.interrupts import Interrupts
from hw.pcie.ultrascale.sent import PATIENCE
from hw.seam import WIDTHS
from tests.hw.helpers import fields, seeded, send, simulate

EACH_FAMILY = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@EACH_FAMILY
def test_link_state(family):
    """Field by field: port, lowest bit there, bits."""
    rng = seeded()
    dut = UltraScaleAdapter(family, 64)
    same = {
        "link_up": ("user_lnk_up", 0, 1),
        "bus_master": ("cfg_function_status", 2, 1),
        "intx_disable": ("cfg_function_status", 3, 1),
        "msi_enable": ("cfg_interrupt_msi_enable", 0, 1),
        "msi_granted": ("cfg_interrupt_msi_mmenable", 0, 3),
        "msix_enable": ("cfg_interrupt_msix_enable", 0, 1),
        "msix_mask": ("cfg_interrupt_msix_mask", 0, 1),
        "max_payload": ("cfg_max_payload", 0, family.max_payload),
        "max_read_request": ("cfg_max_read_req", 0, 3),
        "rcb": ("cfg_rcb_status", 0, 1),
        "np_headers": ("cfg_fc_nph", 0, 8),
    }

    async def bench(ctx):
        for _ in range(50):
            ports = {}
            for port in {port for port, _, _ in same.values()}:
                signal = getattr(dut.pcie, port)
                ports[port] = rng.randrange(1 << len(signal))
                ctx.set(signal, ports[port])
            bus = rng.randrange(256)
            if family.bus_number:
                ctx.set(dut.pcie.cfg_bus_number, bus)
            await ctx.delay(1e-9)
            link = fields(ctx.get(dut.seam.link))
            for name, (port, low, bits) in same.items():
                assert link[name] == ports[port] >> low & (1 << bits) - 1, name
            assert link["requester_id"] == (bus << 8 if family.bus_number else 0)
            await ctx.tick()
        assert ctx.get(dut.pcie.cfg_fc_sel) == 4

    simulate(dut, bench)


@EACH_FAMILY
def test_device_control_is_read_again_and_again(family):
    """What the dword holds when an access ends is at the seam from the next cycle on."""
    rng = seeded()
    dut = UltraScaleAdapter(family, 64)
    pcie, link = dut.pcie, dut.seam.link
    address = (0xC8 if family == ULTRASCALE else 0x78) // 4

    async def bench(ctx):
        relaxed = extended = 0
        for _ in range(20):
            cycles = 0
            while not ctx.get(pcie.cfg_mgmt_read):
                cycles += 1
                await ctx.tick()
            assert cycles == 1, "one cycle between two accesses"
            for _ in range(rng.randrange(5)):
                ctx.set(pcie.cfg_mgmt_read_data, rng.getrandbits(32))
                await ctx.tick()
                assert (ctx.get(pcie.cfg_mgmt_read), ctx.get(pcie.cfg_mgmt_addr)) == (1, address)
                assert (ctx.get(link.relaxed_ordering), ctx.get(link.extended_tag)) == (
                    relaxed,
                    extended,
                )
            data = rng.getrandbits(32)
            relaxed, extended = data >> 4 & 1, data >> 8 & 1
            ctx.set(pcie.cfg_mgmt_read_data, data)
            ctx.set(pcie.cfg_mgmt_read_write_done, 1)
            await ctx.tick()
            ctx.set(pcie.cfg_mgmt_read_write_done, 0)
            found = ctx.get(link.relaxed_ordering), ctx.get(link.extended_tag)
            assert found == (relaxed, extended)

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("family", "codes", "speed", "width"),
    [
        (ULTRASCALE, (1, 1), 1, 1),
        (ULTRASCALE, (2, 4), 2, 4),
        (ULTRASCALE, (4, 8), 3, 8),
        (ULTRASCALE_PLUS, (0, 0), 1, 1),
        (ULTRASCALE_PLUS, (2, 3), 3, 8),
        (ULTRASCALE_PLUS, (2, 4), 3, 16),
        (ULTRASCALE_PLUS_PCIE4C, (3, 3), 4, 8),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_speed_and_width_are_in_the_codes_of_link_status(family, codes, speed, width):
    dut = UltraScaleAdapter(family, 64)

    async def bench(ctx):
        ctx.set(dut.pcie.cfg_current_speed, codes[0])
        ctx.set(dut.pcie.cfg_negotiated_width, codes[1])
        await ctx.delay(1e-9)
        assert (ctx.get(dut.seam.link.speed), ctx.get(dut.seam.link.width)) == (speed, width)

    simulate(dut, bench)


def test_what_the_engine_knows_of_the_blocks():
    """The smaller of what documents and models say that the receive buffer holds, and no more."""
    known = {
        name: (kind.block.width, kind.block.completions(512), kind.block.transmit_buffers)
        for name, kind in ADAPTERS.items()
        if name != "series7"
    }
    assert known == {f"ultrascale-{width}": (width, 64, 8) for width in WIDTHS} | {
        f"{name}-{width}": (width, 128, 32)
        for name in ("ultrascale_plus", "ultrascale_plus_pcie4c")
        for width in WIDTHS
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_pcie4c_is_pcie4_to_the_core(width):
    """So that what models of PCIE4 show holds for it as far as PG213 has one table for both."""
    kinds = [ADAPTERS[f"{name}-{width}"] for name in ("ultrascale_plus", "ultrascale_plus_pcie4c")]
    assert kinds[0].ports == kinds[1].ports
    assert kinds[0].block == kinds[1].block
    assert kinds[0].core == kinds[1].core


def test_a_reset_of_the_function():
    """Only that of function 0; INTA falls with it, and what waits for the block waits no more."""
    dut = UltraScaleAdapter(ULTRASCALE_PLUS, 64)
    pcie, seam = dut.pcie, dut.seam

    async def bench(ctx):
        ctx.set(pcie.cfg_function_status, 0xFFFF)
        ctx.set(pcie.cfg_flr_in_process, 0b1110)
        ctx.set(seam.interrupt.payload, {"msi": 0, "asserted": 1})
        ctx.set(seam.interrupt.valid, 1)
        for _ in range(4):
            await ctx.tick()
            found = ctx.get(seam.function_reset), ctx.get(seam.link.bus_master)
            assert (*found, ctx.get(pcie.cfg_interrupt_int)) == (0, 1, 1)
        ctx.set(pcie.cfg_flr_in_process, 1)
        assert ctx.get(seam.link.bus_master) == 0
        ctx.set(seam.interrupt.valid, 0)
        await ctx.tick()
        assert ctx.get(pcie.cfg_interrupt_int) == 0
        await ctx.tick().repeat(ULTRASCALE_PLUS.rest)
        assert (ctx.get(seam.function_reset), ctx.get(seam.link.bus_master)) == (1, 0)
        for done in (0, 1):
            ctx.set(seam.function_reset_done, done)
            assert ctx.get(pcie.cfg_flr_done) == done
        ctx.set(pcie.cfg_flr_in_process, 0)
        # One that is left over from before does not count as the answer to the next.
        ctx.set(seam.interrupt.valid, 1)
        assert not ctx.get(seam.interrupt.ready)
        await ctx.tick()
        assert ctx.get(pcie.cfg_interrupt_int) == 1

    simulate(dut, bench)


async def _reset_begins(ctx, seam, most: int) -> int:
    """Cycles until the core is reset, which are no more than that."""
    for cycles in range(most + 1):
        if ctx.get(seam.function_reset):
            return cycles
        await ctx.tick()
    raise AssertionError(f"the core is not reset after {most} cycles")


@pytest.mark.parametrize("rest", [5, ULTRASCALE_PLUS.rest])
def test_the_core_is_reset_when_requests_of_before_have_passed(rest):
    """Those of the host, and the core's own: one that is offered, and one that the block lets wait.

    None that is offered for good keeps the host waiting.
    """
    dut = UltraScaleAdapter(replace(ULTRASCALE_PLUS, rest=rest), 128)
    pcie, seam = dut.pcie, dut.seam

    async def again(ctx):
        ctx.set(pcie.cfg_flr_in_process, 0)
        assert not ctx.get(seam.function_reset)
        await ctx.tick()
        ctx.set(pcie.cfg_flr_in_process, 1)

    async def bench(ctx):
        read = {"header": {"dwords": 1, "first_be": 0xF}, "first": 1, "last": 1}
        ctx.set(seam.requester.payload, read)
        ctx.set(pcie.m_axis_cq_tlast, 1)
        await again(ctx)
        assert await _reset_begins(ctx, seam, rest) == rest
        for offered in (pcie.m_axis_cq_tvalid, seam.requester.valid):
            await again(ctx)
            await ctx.tick().repeat(rest - 1)
            ctx.set(offered, 1)
            await ctx.tick()
            ctx.set(offered, 0)
            if offered is seam.requester.valid:
                await ctx.tick().repeat(2 * rest)
                assert not ctx.get(seam.function_reset), "the block has not taken the read"
                ctx.set(pcie.s_axis_rq_tready, 1)
                await ctx.tick()
            assert await _reset_begins(ctx, seam, rest) == rest
            # From then on it is the core's turn, whatever comes.
            ctx.set(pcie.m_axis_cq_tvalid, 1)
            await ctx.tick().repeat(2)
            assert ctx.get(seam.function_reset)
            ctx.set(pcie.m_axis_cq_tvalid, 0)
        ctx.set(pcie.m_axis_cq_tvalid, 1)
        await again(ctx)
        assert await _reset_begins(ctx, seam, PATIENCE) == PATIENCE

    simulate(dut, bench, cycles=20_000)


def test_messages_go_one_at_a_time_until_they_are_sent():
    rng = seeded()
    dut, sent = Interrupts(), []
    requests = [{"msi": 1, "vector": rng.randrange(32)} for _ in range(30)]

    async def core(ctx):
        ctx.set(dut.msi_enable, 1)
        await send(ctx, dut.request, requests, pause=lambda: rng.choice((0, 0, 5)))

    async def block(ctx):
        while len(sent) < len(requests):
            await ctx.tick().until(dut.message != 0)
            message = ctx.get(dut.message)
            assert message == 0, "for a cycle only"
            for _ in range(rng.randrange(5)):
                await ctx.tick()
            fails = rng.random() < 0.3
            ctx.set(dut.message_failed if fails else dut.message_sent, 1)
            await ctx.tick()
            ctx.set(dut.message_failed, 0)
            ctx.set(dut.message_sent, 0)
            if not fails:
                sent.append(0)

    async def watched(ctx):
        async for _, _, message in ctx.tick().sample(dut.message):
            if message:
                shown.append(message)

    shown = []
    simulate(dut, core, block, background=[watched])
    wanted = [1 << request["vector"] for request in requests]
    # What failed is shown again, and nothing else is.
    again = iter(shown)
    assert all(any(each == found for found in again) for each in wanted)
    assert set(shown) == set(wanted)


def test_inta_follows_requests_and_ends_with_messages():
    dut = Interrupts()

    async def bench(ctx):
        for level in (1, 0, 1):
            ctx.set(dut.request.payload, {"msi": 0, "asserted": level})
            ctx.set(dut.request.valid, 1)
            for _ in range(4):
                await ctx.tick()
                assert (ctx.get(dut.asserted), ctx.get(dut.request.ready)) == (level, 0)
            ctx.set(dut.sent, 1)
            assert ctx.get(dut.request.ready)
            await ctx.tick()
            ctx.set(dut.sent, 0)
            ctx.set(dut.request.valid, 0)
            await ctx.tick()
        ctx.set(dut.msi_enable, 1)
        await ctx.tick()
        assert ctx.get(dut.asserted) == 0

    simulate(dut, bench)


@pytest.mark.parametrize("pending", [{"msi": 1}, {"msi": 0, "asserted": 1}])
def test_a_request_that_has_become_pointless_ends(pending):
    """The block may never answer it, and behind it others wait."""
    dut = Interrupts()

    async def bench(ctx):
        ctx.set(dut.msi_enable, pending["msi"])
        ctx.set(dut.request.payload, pending)
        ctx.set(dut.request.valid, 1)
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.request.ready)
        ctx.set(dut.msi_enable, not pending["msi"])
        assert ctx.get(dut.request.ready)

    simulate(dut, bench)


def test_two_non_posted_requests_are_under_way_at_most():
    rng = seeded()
    dut = NonPostedCredits()

    async def bench(ctx):
        granted = 0
        for _ in range(500):
            ok = rng.random() < 0.7
            arrives = granted > 0 and rng.random() < 0.3
            ctx.set(dut.ok, ok)
            ctx.set(dut.arrives, arrives)
            request = ctx.get(dut.request)
            assert request == (ok and granted < 2)
            granted += request - arrives
            await ctx.tick()

    simulate(dut, bench)


@EACH_FAMILY
def test_a_packet_is_cut_off_by_the_bit_of_its_stream(family):
    """Bits of `tuser`, of PG156 and PG213; a packet of three beats, with all its other bits set.

    The packet behind it is whole.
    """
    for port, user, bit, stream in (
        ("m_axis_cq", family.cq_user, 41, "target"),
        ("m_axis_rc", 75, 42, "requester_completion"),
    ):
        dut = UltraScaleAdapter(family, 64)
        seam, ends = getattr(dut.seam, stream), []

        async def bench(ctx, dut=dut, port=port, user=user, bit=bit):
            for cut in (True, False):
                for beat in range(3):
                    last = beat == 2
                    bits = ((1 << user) - 1) ^ 1 << bit
                    values = {"tdata": 0, "tkeep": 3, "tlast": last, "tuser": bits | cut << bit}
                    for name, value in {**values, "tvalid": 1}.items():
                        ctx.set(getattr(dut.pcie, f"{port}_{name}"), value)
                    await ctx.tick().until(getattr(dut.pcie, f"{port}_tready"))
            ctx.set(getattr(dut.pcie, f"{port}_tvalid"), 0)
            await ctx.tick().repeat(6)

        async def watched(ctx, seam=seam, ends=ends):
            async for _, _, valid, payload in ctx.tick().sample(seam.valid, seam.payload):
                if valid and payload.last:
                    ends.append(payload)

        simulate(dut, bench, background=[watched])
        assert len(ends) == 1, port


def test_reads_that_the_block_does_not_show_yet_have_no_room():
    """However long they wait in front of the block, and however late that shows them."""
    rng = seeded()
    dut = ReadRoom()
    limit, taken, left, late = 5, 0, 0, [0] * SHOWN_LATE

    async def bench(ctx):
        nonlocal taken, left
        for _ in range(1000):
            ctx.set(dut.shown, limit - late[0])
            room = ctx.get(dut.room)
            assert 0 <= room <= limit - taken
            takes = room > 0 and taken - left < 3 and rng.random() < 0.5
            leaves = taken > left and rng.random() < 0.2
            ctx.set(dut.takes, takes)
            ctx.set(dut.leaves, leaves)
            await ctx.tick()
            taken, left = taken + takes, left + leaves
            late.append(left)
            del late[0]
            # The partner makes room for what it has, once all of it is seen.
            if left == taken == limit == late[0]:
                assert ctx.get(dut.room) == 0
                taken = left = 0
                late[:] = [0] * SHOWN_LATE
                ctx.set(dut.takes, 0)
                ctx.set(dut.leaves, 0)
                await ctx.tick().repeat(SHOWN_LATE)

    simulate(dut, bench)
