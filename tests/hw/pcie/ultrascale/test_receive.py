# SPDX-License-Identifier: BSD-2-Clause
"""hw/pcie/ultrascale/receive.py and strip.py against cocotbext-pcie's packets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from cocotbext.pcie.core.tlp import CplStatus, TlpType
from cocotbext.pcie.xilinx.us.tlp import ErrorCode

from hw.pcie.ultrascale.receive import CompletionReceiver, RequestReceiver
from hw.pcie.ultrascale.straddle import STRADDLE_WIDTH
from hw.seam import BUS_WIDTH, WIDTHS, CompletionStatus, TargetKind
from tests.hw.helpers import packets, seeded, send, simulate, toggle, watch
from tests.hw.pcie.ultrascale.packets import (
    beats_of,
    completion,
    header_of,
    of_size,
    request,
    straddled,
)

KINDS = {
    TlpType.MEM_READ: TargetKind.READ,
    TlpType.MEM_READ_64: TargetKind.READ,
    TlpType.MEM_WRITE: TargetKind.WRITE,
    TlpType.MEM_WRITE_64: TargetKind.WRITE,
    TlpType.MEM_READ_LOCKED: TargetKind.OTHER,
    TlpType.IO_READ: TargetKind.OTHER,
    TlpType.FETCH_ADD: TargetKind.OTHER,
}
PAUSES = [lambda rng: 0, lambda rng: rng.choice((0, 0, 1, 4))]


def receive(dut, sent, *, pause=lambda: 0, ready=None):
    """Send packets, lists of `receive_beat`s; returns the `watch` log of the seam's beats."""
    log = []

    async def block(ctx):
        await send(ctx, dut.i, [beat for packet in sent for beat in packet], pause)
        quiet = 0
        while quiet < 20:
            count = len(log)
            await ctx.tick()
            quiet = quiet + 1 if len(log) == count else 0

    background = [watch(dut.o, log)]
    if ready:
        background.append(toggle(dut.o.ready, ready))
    simulate(dut, block, background=background)
    return log


def rc_beats(tlps, width, rng, *, straddle=True):
    """Completions as packets of `receive_beat`s, which at 256 bits may straddle."""
    frames = [tlp.pack_us_rc() for tlp in tlps]
    if width == STRADDLE_WIDTH:
        return [straddled(frames, rng, straddle=straddle, gap=0.2)]
    return [beats_of(frame, width, 0, rng) for frame in frames]


def expect_apart(found):
    """The seam's rule for what comes in."""
    starts = [cycles[0] for cycles, _, _ in found]
    assert all(later - before >= 2 for before, later in pairwise(starts))


@pytest.mark.parametrize("pause", PAUSES, ids=["back_to_back", "pauses"])
@pytest.mark.parametrize("width", WIDTHS)
def test_requests(width, pause):
    rng = seeded()
    narrow = width == BUS_WIDTH
    dut = RequestReceiver(width, always_ready=narrow)
    tlps = [request(rng, rng.choice(list(KINDS))) for _ in range(60)]
    sent = []
    for tlp in tlps:
        tlp.bar_id, tlp.bar_aperture = rng.randrange(6), rng.randrange(64)
        user = tlp.first_be | tlp.last_be << 4
        sent.append(beats_of(tlp.pack_us_cq(), width, user, rng))
    ready = None if narrow else lambda: not pause(rng)
    log = receive(dut, sent, pause=lambda: pause(rng), ready=ready)
    found = packets(log, width)
    expect_apart(found)
    for tlp, (_, header, data) in zip(tlps, found, strict=True):
        assert header == {
            "kind": KINDS[tlp.fmt_type].value,
            "address": tlp.address,
            "dwords": tlp.length,
            "first_be": tlp.first_be,
            "last_be": tlp.last_be,
            "bar": tlp.bar_id,
            "tag": tlp.tag,
            "requester_id": int(tlp.requester_id),
            "traffic_class": int(tlp.tc),
            "attributes": int(tlp.attr),
            "poisoned": 0,
            "locked": tlp.fmt_type == TlpType.MEM_READ_LOCKED,
        }
        size = len(tlp.data)
        assert data[:size] == tlp.data
        assert len(data) == max(1, -(-size // (width // 8))) * (width // 8)
    if narrow:
        # The register bus has a cycle without a beat after each packet.
        ends = [cycles[-1] for cycles, _, _ in found]
        starts = [cycles[0] for cycles, _, _ in found][1:]
        assert all(start - end >= 2 for end, start in zip(ends, starts, strict=False))


@pytest.mark.parametrize("width", WIDTHS)
def test_each_type_of_request(width):
    """Request types of PG156 and PG213; bits 1:0 of their address are the address type."""
    rng = seeded()
    dut = RequestReceiver(width, always_ready=width == BUS_WIDTH)
    kinds = [TargetKind.READ, TargetKind.WRITE, *[TargetKind.OTHER] * 6, None, None, None, None]
    kinds += [TargetKind.MESSAGE] * 3
    sent, wanted = [], []
    for code, kind in enumerate(kinds):
        if kind is None:
            continue
        tlp = request(rng, TlpType.MEM_READ_64)
        frame = tlp.pack_us_cq()
        frame.data[0] |= rng.randrange(4)
        frame.data[2] = frame.data[2] & ~(0xF << 11) | code << 11
        sent.append(beats_of(frame, width, 0, rng))
        wanted.append((kind.value, tlp.address, code == 7))
    ready = None if width == BUS_WIDTH else lambda: 1
    found = [header for _, header, _ in packets(receive(dut, sent, ready=ready), width)]
    assert [(each["kind"], each["address"], each["locked"]) for each in found] == wanted


@pytest.mark.parametrize("pause", PAUSES, ids=["back_to_back", "pauses"])
@pytest.mark.parametrize("width", WIDTHS)
def test_completions(width, pause):
    rng = seeded()
    dut = CompletionReceiver(width)
    tlps = [completion(rng) for _ in range(80)]
    log = receive(dut, rc_beats(tlps, width, rng), pause=lambda: pause(rng))
    found = packets(log, width)
    expect_apart(found)
    for tlp, (_, header, data) in zip(tlps, found, strict=True):
        assert header == header_of(tlp)
        assert data[: len(tlp.data)] == tlp.data


@pytest.mark.parametrize(
    ("width", "size", "beats"),
    # With the descriptor of 12 bytes; one beat at the seam needs a second cycle.
    [(64, 64, 10), (128, 64, 5), (256, 64, 3), (256, 256, 9), (256, 20, 2), (256, 8, 2)],
)
def test_completions_hold_up_nothing(width, size, beats):
    rng = seeded()
    dut = CompletionReceiver(width)
    tlps = of_size(rng, 8, size)
    found = packets(receive(dut, rc_beats(tlps, width, rng, straddle=False)), width)
    starts = [cycles[0] for cycles, _, _ in found]
    assert [later - before for before, later in pairwise(starts)] == [beats] * 7


@pytest.mark.parametrize(("size", "halves"), [(64, 5), (128, 9), (256, 17)])
def test_completions_that_straddle_take_the_room_of_their_halves(size, halves):
    """At 250 MHz: 6.4, 7.1 and 7.5 GB/s."""
    rng = seeded()
    dut = CompletionReceiver(STRADDLE_WIDTH)
    tlps = of_size(rng, 20, size)
    (beats,) = [straddled([tlp.pack_us_rc() for tlp in tlps], rng)]
    assert len(beats) == 10 * halves
    found = packets(receive(dut, [beats]), STRADDLE_WIDTH)
    starts = [cycles[0] for cycles, _, _ in found]
    apart = [later - before for before, later in pairwise(starts)]
    assert apart == [halves // 2, (halves + 1) // 2] * 9 + [halves // 2]
    for tlp, (_, _, data) in zip(tlps, found, strict=True):
        assert data == tlp.data


#: What each error code changes of a completion: those of `ErrorCode`, and the reserved ones.
AS_IT_IS: dict[str, int] = {}
NOBODYS = {"tag": 0xFF}
ENDED = {"status": CompletionStatus.UR.value, "locked": 0}
ERROR_CODES = {
    ErrorCode.NORMAL_TERMINATION: AS_IT_IS,
    ErrorCode.POISONED: {"poisoned": 1},
    ErrorCode.BAD_STATUS: AS_IT_IS,
    ErrorCode.INVALID_LENGTH: AS_IT_IS,
    ErrorCode.MISMATCH: NOBODYS,
    ErrorCode.INVALID_ADDRESS: AS_IT_IS,
    ErrorCode.INVALID_TAG: NOBODYS,
    7: ENDED,
    ErrorCode.FLR: ENDED,
    ErrorCode.TIMEOUT: {"status": CompletionStatus.TIMEOUT.value, "locked": 0},
    **dict.fromkeys(range(10, 16), ENDED),
}


@pytest.mark.parametrize("width", WIDTHS)
def test_error_codes(width):
    """What the engine does not see by itself."""
    rng = seeded()
    dut = CompletionReceiver(width)
    tlps, wanted = [], []
    assert sorted(ERROR_CODES) == list(range(16))
    for error, change in ERROR_CODES.items():
        tlp = completion(rng)
        tlp.ep, tlp.error_code = False, error
        same = {"tag": tlp.tag, "poisoned": 0, "status": int(tlp.status)}
        same["locked"] = tlp.fmt_type in (TlpType.CPL_LOCKED, TlpType.CPL_LOCKED_DATA)
        tlps.append(tlp)
        wanted.append(same | change)
    log = receive(dut, rc_beats(tlps, width, rng))
    found = [header for _, header, _ in packets(log, width)]
    assert [{name: header[name] for name in wanted[0]} for header in found] == wanted


@pytest.mark.parametrize("width", WIDTHS)
def test_of_a_packet_that_is_cut_off_the_end_is_missing(width):
    """From the beat on that says so; the packets around it are whole."""
    rng = seeded()
    dut = CompletionReceiver(width)
    for _ in range(10):
        tlps = []
        while len(tlps) < 3:
            tlp = completion(rng)
            if tlp.status == CplStatus.SC:
                tlps.append(tlp)
        sent = [beats for tlp in tlps for beats in rc_beats([tlp], width, rng)]
        at = rng.randrange(len(sent[1]))
        for beat in sent[1][at:]:
            beat["discontinued"] = rng.random() < 0.5
        sent[1][at]["discontinued"] = True
        log = receive(dut, sent)
        tags = [beat.header.tag for _, beat in log if beat.last]
        assert tags == [tlps[0].tag, tlps[2].tag]
        cut = log[[beat.last for _, beat in log].index(1) + 1 :]
        starts = [n for n, (_, beat) in enumerate(cut) if beat.first]
        assert len(cut[: starts[-1]]) <= at
        assert packets(cut[starts[-1] :], width)[0][2][: len(tlps[2].data)] == tlps[2].data


def test_of_a_beat_that_is_cut_off_both_packets_are_missing():
    """19 dwords each: the second one begins behind the end of the first."""
    rng = seeded()
    dut = CompletionReceiver(STRADDLE_WIDTH)
    tlps = of_size(rng, 3, 64)
    (beats,) = [straddled([tlp.pack_us_rc() for tlp in tlps], rng)]
    beats[2]["discontinued"] = 1
    log = receive(dut, [beats])
    assert [beat.header.tag for _, beat in log if beat.last] == [tlps[2].tag]
    last = max(n for n, (_, beat) in enumerate(log) if beat.first)
    assert packets(log[last:], STRADDLE_WIDTH)[0][2] == tlps[2].data
