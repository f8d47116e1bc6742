# SPDX-License-Identifier: BSD-2-Clause
"""hw/pcie/series7/transmit.py: packets of the seam become TLPs, without a gap."""

from __future__ import annotations

import itertools

import pytest

from hw.pcie.series7.block import SERIES7
from hw.pcie.series7.transmit import Transmitter
from tests.hw.helpers import seeded, send, simulate, toggle, watch
from tests.hw.pcie.tlps import (
    COMPLETION,
    COMPLETION_LOCKED,
    COMPLETIONS,
    MEMORY,
    Tlp,
    from_beats,
    seam_beats,
)

REQUESTER_ID = 0x2A08
DROP_LAG = SERIES7.drop_lag
#: Cycles from the last beat of a write to its token.
TOKEN_LAG = DROP_LAG + 2


def request(tlp: Tlp, relaxed: int = 0, token: int = 0) -> list[dict]:
    """The seam's beats of a memory request."""
    header = {
        "write": tlp.data is not None,
        "address": tlp.address,
        "dwords": tlp.length,
        "first_be": tlp.first_be,
        "last_be": tlp.last_be,
        "tag": tlp.tag,
        "relaxed": relaxed,
        "token": token,
    }
    return seam_beats(header, tlp.data)


def completion(tlp: Tlp) -> list[dict]:
    """The seam's beats of a completion."""
    names = "status byte_count lower_address tag requester_id traffic_class attributes poisoned"
    header = {name: getattr(tlp, name) for name in names.split()}
    header |= {"dwords": tlp.length, "locked": tlp.type == COMPLETION_LOCKED}
    return seam_beats(header, tlp.data)


def write_tlp(random, dwords: int, address: int) -> Tlp:
    """A memory write of random data; byte enables need not make sense here."""
    return Tlp(
        MEMORY,
        random.randbytes(4 * dwords),
        length=dwords,
        address=address,
        first_be=random.randrange(16),
        last_be=random.randrange(16),
        tag=random.randrange(256),
        requester_id=REQUESTER_ID,
        attributes=random.choice((0, 2)),
    )


def read_tlp(random, address: int) -> Tlp:
    """A memory read."""
    tlp = write_tlp(random, random.randint(1, 1024), address)
    tlp.data = None
    return tlp


def completion_tlp(random, dwords: int) -> Tlp:
    """A completion with `dwords` of data, or without."""
    return Tlp(
        random.choice((COMPLETION, COMPLETION_LOCKED)),
        random.randbytes(4 * dwords) if dwords else None,
        length=dwords,
        completer_id=REQUESTER_ID,
        requester_id=random.randrange(1 << 16),
        tag=random.randrange(256),
        status=random.choice((0, 1, 4)),
        byte_count=random.randint(1, 4096),
        lower_address=random.randrange(128),
        traffic_class=random.randrange(8),
        attributes=random.randrange(8),
        poisoned=random.randrange(2),
    )


def transmit(
    requests, completions=(), *, ready=None, pause=lambda: 0, pause_completion=None, drop=()
):
    """Run packets, given as lists of beats, through a Transmitter.

    Returns (cycle, beat) of the TLP stream, and (cycle, token) of `sent`, the token negative if it
    was dropped; cycle 0 is the one in which the first packet is offered. `drop` are the cycles in
    which the block says that it dropped something.
    """
    dut = Transmitter(DROP_LAG)
    out, tokens = [], []

    async def requester(ctx):
        await send(ctx, dut.requester, [beat for packet in requests for beat in packet], pause)

    async def completer(ctx):
        flat = [beat for packet in completions for beat in packet]
        await send(ctx, dut.completion, flat, pause_completion or pause)

    async def done(ctx):
        ctx.set(dut.requester_id, REQUESTER_ID)
        ended = 0
        while ended < len(requests) + len(completions):
            await ctx.tick().until(dut.tlp.valid & dut.tlp.ready & dut.tlp.payload.eof)
            ended += 1
        await ctx.tick().repeat(TOKEN_LAG + 1)

    async def held(ctx):
        """The block sees a beat unchanged until it takes it."""
        before = None
        async for _, _, payload, valid, taken in ctx.tick().sample(
            dut.tlp.payload, dut.tlp.valid, dut.tlp.ready
        ):
            if before is not None:
                assert valid
                assert payload == before
            before = payload if valid and not taken else None

    async def dropper(ctx):
        for cycle in itertools.count():
            ctx.set(dut.drop, cycle in drop)
            await ctx.tick()

    simulate(
        dut,
        done,
        background=[
            requester,
            completer,
            held,
            toggle(dut.tlp.ready, ready or (lambda: 1)),
            watch(dut.tlp, out),
            watch(dut.sent, tokens),
            dropper,
        ],
    )
    as_dict = [
        (cycle, {name: int(getattr(beat, name)) for name in ("data", "sof", "eof", "rem")})
        for cycle, beat in out
    ]
    return as_dict, [
        (cycle, -token.token if token.dropped else token.token) for cycle, token in tokens
    ]


def tlps(out) -> list[Tlp]:
    return [Tlp.parse(dwords) for dwords in from_beats([beat for _, beat in out])]


@pytest.mark.parametrize("base", [0x8000_0000, 0x12_8000_0000], ids=["3dw", "4dw"])
def test_writes_of_128_bytes_take_18_beats_each(base):
    random = seeded()
    sent = [write_tlp(random, 32, base + 128 * number) for number in range(5)]
    out, _ = transmit([request(tlp, tlp.attributes >> 1) for tlp in sent])
    assert tlps(out) == sent
    assert [cycle for cycle, _ in out] == [1 + n for n in range(5 * 18)]


def test_reads_take_2_beats_each():
    random = seeded()
    sent = [read_tlp(random, random.choice((0x1000, 0x1_0000_0000))) for _ in range(9)]
    out, tokens = transmit([request(tlp, tlp.attributes >> 1) for tlp in sent])
    assert tlps(out) == sent
    assert [cycle for cycle, _ in out] == [1 + n for n in range(9 * 2)]
    assert not tokens


def test_completions_of_one_register_take_2_beats_each():
    random = seeded()
    sent = [completion_tlp(random, random.choice((0, 1))) for _ in range(9)]
    out, tokens = transmit([], [completion(tlp) for tlp in sent])
    assert tlps(out) == sent
    assert [cycle for cycle, _ in out] == [1 + n for n in range(9 * 2)]
    assert not tokens


def mixture(random, count: int) -> list[Tlp]:
    """Requests of all sizes, below and above 4 GiB."""
    base = (0x4000_0000, 0xFFFF_FFFC, 0x1_0000_0000, 0xFEDC_BA98_7654_3210)
    return [
        read_tlp(random, random.choice(base))
        if random.random() < 0.4
        else write_tlp(random, random.choice((1, 2, 3, 4, 31, 32)), random.choice(base))
        for _ in range(count)
    ]


def test_any_mixture_leaves_no_gap_between_packets():
    random = seeded()
    requests = mixture(random, 60)
    completions = [completion_tlp(random, random.choice((0, 1, 2, 5, 32))) for _ in range(30)]
    out, _ = transmit(
        [request(tlp, tlp.attributes >> 1) for tlp in requests],
        [completion(tlp) for tlp in completions],
    )
    got = tlps(out)
    assert [tlp for tlp in got if tlp.type == MEMORY] == requests
    assert [tlp for tlp in got if tlp.type in COMPLETIONS] == completions
    beats = sum((len(tlp.dwords()) + 1) // 2 for tlp in requests + completions)
    assert [cycle for cycle, _ in out] == [1 + n for n in range(beats)]


@pytest.mark.parametrize("stall", [0.1, 0.5, 0.9])
def test_any_mixture_survives_stalls_of_both_sides(stall):
    random = seeded()
    requests = mixture(random, 60)
    completions = [completion_tlp(random, random.choice((0, 1, 2, 5, 32))) for _ in range(30)]
    out, _ = transmit(
        [request(tlp, tlp.attributes >> 1) for tlp in requests],
        [completion(tlp) for tlp in completions],
        ready=lambda: random.random() >= stall,
        pause=lambda: random.choice((0, 0, 0, 1, 2)),
        pause_completion=lambda: random.choice((0, 0, 3, 20)),
    )
    got = tlps(out)
    assert [tlp for tlp in got if tlp.type == MEMORY] == requests
    assert [tlp for tlp in got if tlp.type in COMPLETIONS] == completions


def test_completions_go_first_but_never_into_a_packet():
    random = seeded()
    requests = [write_tlp(random, 32, 0x1000 * n) for n in range(4)]
    completions = [completion_tlp(random, 1), completion_tlp(random, 0)]
    waits = iter([25, 0])  # until the second write is under way
    out, _ = transmit(
        [request(tlp, tlp.attributes >> 1) for tlp in requests],
        [completion(tlp) for tlp in completions],
        pause_completion=lambda: next(waits),
    )
    assert tlps(out) == [*requests[:2], *completions, *requests[2:]]


@pytest.mark.parametrize("stall", [0, 0.6])
def test_a_token_follows_the_end_of_each_write(stall):
    random = seeded()
    requests = mixture(random, 50)
    completions = [completion_tlp(random, 3) for _ in range(10)]
    out, tokens = transmit(
        [request(tlp, tlp.attributes >> 1, token=n) for n, tlp in enumerate(requests)],
        [completion(tlp) for tlp in completions],
        ready=lambda: random.random() >= stall,
    )
    ends = [cycle for cycle, beat in out if beat["eof"]]
    written = [
        end + TOKEN_LAG
        for end, tlp in zip(ends, tlps(out), strict=True)
        if tlp.type == MEMORY and tlp.data is not None
    ]
    assert [cycle for cycle, _ in tokens] == written
    assert [token for _, token in tokens] == [
        n for n, tlp in enumerate(requests) if tlp.data is not None
    ]


def test_a_write_that_the_block_drops_is_not_reported_as_sent():
    """Whenever it says so, from the first beat of one to as late as it may; others are sent."""
    random = seeded()
    requests = [write_tlp(random, 8, 0x1000 * n) for n in range(1, 4)]
    beats = 6
    for at in range(beats + DROP_LAG + 6):
        # Between the three there is nothing.
        pauses = iter([0, 0, 0, 0, 20, 0, 0, 0, 20, 0, 0, 0])
        out, tokens = transmit(
            [request(tlp, tlp.attributes >> 1, token=n) for n, tlp in enumerate(requests, 1)],
            pause=lambda pauses=pauses: next(pauses),
            drop={20 + at},
        )
        first = [cycle for cycle, beat in out if beat["sof"]][1]
        last = [cycle for cycle, beat in out if beat["eof"]][1]
        hit = first <= 20 + at <= last + DROP_LAG
        assert [token for _, token in tokens] == [1, -2 if hit else 2, 3], at


def test_what_may_have_been_dropped_counts_as_dropped():
    """Writes of three beats, one behind the other: the block does not say which it was."""
    random = seeded()
    requests = [write_tlp(random, 2, 0x1000 * n) for n in range(1, 9)]
    out, tokens = transmit(
        [request(tlp, tlp.attributes >> 1, token=n) for n, tlp in enumerate(requests, 1)],
        drop={13},
    )
    starts = [cycle for cycle, beat in out if beat["sof"]]
    ends = [cycle for cycle, beat in out if beat["eof"]]
    expected = [
        -n if start <= 13 <= end + DROP_LAG else n
        for n, (start, end) in enumerate(zip(starts, ends, strict=True), 1)
    ]
    assert [token for _, token in tokens] == expected
    assert min(expected) < 0 < expected[0]
