# SPDX-License-Identifier: BSD-2-Clause
"""hw/pcie/ultrascale/transmit.py and insert.py against cocotbext-pcie's packets."""

from __future__ import annotations

import pytest
from cocotbext.pcie.core.tlp import TlpAttr, TlpTc, TlpType
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us.tlp import Tlp_us

from hw.pcie.ultrascale.family import ULTRASCALE, ULTRASCALE_PLUS
from hw.pcie.ultrascale.transmit import CompletionTransmitter, RequestTransmitter
from hw.seam import WIDTHS
from tests.hw.helpers import seeded, send, simulate, toggle, watch
from tests.hw.pcie.tlps import seam_beats
from tests.hw.pcie.ultrascale.packets import completion, frames_of, header_of, request

READS, WRITES = (TlpType.MEM_READ, TlpType.MEM_READ_64), (TlpType.MEM_WRITE, TlpType.MEM_WRITE_64)


#: Bits of `tuser` of requests that may be set, in any beat: byte enables and the sequence number.
#: The others cut a packet off, or are hints and parity; of completions there are no others.
BESIDE = 0xFF | 0xF << 24 | 3 << 60


def ours(rng, kind: TlpType) -> Tlp_us:
    """A request as the core makes them."""
    tlp = request(rng, kind)
    tlp.tc, tlp.attr = TlpTc(0), TlpAttr(rng.choice((0, TlpAttr.RO)))
    tlp.requester_id = PcieId(0, 0, 0)
    long = kind in (TlpType.MEM_READ_64, TlpType.MEM_WRITE_64)
    tlp.address = tlp.address | 1 << 40 if long else tlp.address % (1 << 32)
    return tlp


def request_beats(tlp: Tlp_us, width: int) -> list[dict]:
    """The seam's beats of a request."""
    header = {name: getattr(tlp, name) for name in ("address", "first_be", "last_be", "tag")}
    header |= {
        "write": tlp.has_data(),
        "dwords": tlp.length,
        "relaxed": tlp.attr == TlpAttr.RO,
    }
    return seam_beats(header, bytes(tlp.data) or None, width)


def completion_beats(tlp: Tlp_us, width: int) -> list[dict]:
    """The seam's beats of a completion."""
    return seam_beats(header_of(tlp), bytes(tlp.data) or None, width)


def transmit(dut, width, packets, *, beside=BESIDE, ready=lambda: 1, pause=lambda: 0):
    """Send packets, lists of the seam's beats; returns what `frames_of` does.

    Fails if other bits of `user` than those in `beside` are ever set.
    """
    log, ends = [], [n for n, packet in enumerate(packets) for _ in packet]

    async def core(ctx):
        await send(ctx, dut.i, [beat for packet in packets for beat in packet], pause)
        while sum(beat.last for _, beat in log) < len(packets):
            await ctx.tick()

    async def taken_late(ctx):
        """The seam's rule: the first beat of payload is offered for a cycle before it is taken."""
        offered = False
        async for _, _, valid, ready_, beat in ctx.tick().sample(
            dut.i.valid, dut.i.ready, dut.i.payload
        ):
            payload = beat.header.dwords and getattr(beat.header, "write", True)
            assert not (valid and ready_ and beat.first and payload) or offered
            offered = valid and not ready_

    async def held(ctx):
        """What is offered stays until it is taken."""
        before = None
        async for _, _, payload, valid, taken in ctx.tick().sample(
            dut.o.payload, dut.o.valid, dut.o.ready
        ):
            assert before is None or (valid and payload == before)
            before = payload if valid and not taken else None

    background = [taken_late, held, toggle(dut.o.ready, ready), watch(dut.o, log)]
    simulate(dut, core, background=background)
    assert ends
    assert not any(beat.user & ~beside for _, beat in log), "cut off, or with parity"
    return frames_of(log, width)


@pytest.mark.parametrize("stall", [0, 0.4])
@pytest.mark.parametrize("family", [ULTRASCALE, ULTRASCALE_PLUS], ids=lambda each: each.name)
@pytest.mark.parametrize("width", WIDTHS)
def test_requests(width, family, stall):
    rng = seeded()
    dut = RequestTransmitter(width, family.rq_user)
    tlps = [ours(rng, rng.choice((*READS, *WRITES))) for _ in range(60)]
    found = transmit(
        dut,
        width,
        [request_beats(tlp, width) for tlp in tlps],
        ready=lambda: rng.random() >= stall,
        pause=lambda: rng.choice((0, 0, 3)) if stall else 0,
    )
    for tlp, (_, frame, user) in zip(tlps, found, strict=True):
        frame.first_be, frame.last_be = user & 0xF, user >> 4 & 0xF
        assert user == user & 0xFF, "no offset, no hints, not cut off, no parity"
        assert Tlp_us.unpack_us_rq(frame) == tlp


@pytest.mark.parametrize("stall", [0, 0.4])
@pytest.mark.parametrize("width", WIDTHS)
def test_completions(width, stall):
    rng = seeded()
    dut = CompletionTransmitter(width)
    tlps = [completion(rng) for _ in range(60)]
    for tlp in tlps:
        tlp.completer_id = PcieId(0, 0, 0)
    found = transmit(
        dut,
        width,
        [completion_beats(tlp, width) for tlp in tlps],
        beside=0,
        ready=lambda: rng.random() >= stall,
        pause=lambda: rng.choice((0, 0, 3)) if stall else 0,
    )
    for tlp, (_, frame, _) in zip(tlps, found, strict=True):
        assert Tlp_us.unpack_us_cc(frame) == tlp


@pytest.mark.parametrize(("width", "beats"), [(64, 34), (128, 17), (256, 9)])
def test_writes_of_256_bytes_lose_no_cycle(width, beats):
    """Descriptor and payload are 17 * 16 bytes: at 256 bits the last beat is half full."""
    rng = seeded()
    dut = RequestTransmitter(width, ULTRASCALE_PLUS.rq_user)
    tlps = []
    for _ in range(6):
        tlps.append(ours(rng, TlpType.MEM_WRITE_64))
        tlps[-1].set_data(rng.randbytes(256))
        tlps[-1].last_be = 0xF
    found = transmit(dut, width, [request_beats(tlp, width) for tlp in tlps])
    cycles = [cycle for cycles, _, _ in found for cycle in cycles]
    assert cycles == list(range(cycles[0], cycles[0] + 6 * beats))


@pytest.mark.parametrize(("width", "beats"), [(64, 18 + 2), (128, 9 + 1), (256, 5 + 1)])
def test_reads_between_writes_lose_no_cycle(width, beats):
    """At 256 bits the read is taken while the end of the write before it leaves."""
    rng = seeded()
    dut = RequestTransmitter(width, ULTRASCALE_PLUS.rq_user)
    tlps = []
    for _ in range(6):
        tlps += [ours(rng, kind) for kind in (TlpType.MEM_WRITE_64, TlpType.MEM_READ_64)]
        tlps[-2].set_data(rng.randbytes(128))
        tlps[-2].last_be = 0xF
    found = transmit(dut, width, [request_beats(tlp, width) for tlp in tlps])
    cycles = [cycle for cycles, _, _ in found for cycle in cycles]
    assert cycles == list(range(cycles[0], cycles[0] + 6 * beats))


@pytest.mark.parametrize("sequence", [0, 0b001011, 0b101101])
@pytest.mark.parametrize("family", [ULTRASCALE, ULTRASCALE_PLUS], ids=lambda each: each.name)
def test_sequence_numbers_are_where_the_block_looks(family, sequence):
    rng = seeded()
    dut = RequestTransmitter(256, family.rq_user)

    async def bench(ctx):
        ctx.set(dut.sequence, sequence)
        ctx.set(dut.i.payload, request_beats(ours(rng, TlpType.MEM_READ_64), 256)[0])
        ctx.set(dut.i.valid, 1)
        await ctx.tick().until(dut.o.valid)
        user = ctx.get(dut.o.payload.user)
        found = user >> 24 & 0xF | (user >> 60 & 3) << 4
        assert found == sequence % (1 << family.sequence_bits)

    simulate(dut, bench)
