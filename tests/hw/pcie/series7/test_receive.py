# SPDX-License-Identifier: BSD-2-Clause
"""hw/pcie/series7/receive.py: TLPs become packets of the seam, whatever their shape and pauses."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hw.pcie.series7.receive import Receiver
from hw.seam import TargetKind
from tests.hw.helpers import packets, seeded, simulate, watch
from tests.hw.pcie.tlps import (
    COMPLETION,
    COMPLETION_LOCKED,
    COMPLETIONS,
    FETCH_ADD,
    IO,
    LOCKED,
    MEMORY,
    MESSAGE,
    Tlp,
    to_beats,
)

NO_BAR = 7
BASES = (0x4000_0000, 0xFFFF_F000, 0x1_0000_0000, 0xFEDC_BA98_7654_3000)


def request_tlp(random, type=MEMORY, dwords=None, address=None, with_data=True) -> Tlp:
    """A request with every field at random that is not given."""
    dwords = dwords or random.choice((1, 1, 2, 3, 4, 5, 31, 32, 33))
    return Tlp(
        type,
        random.randbytes(4 * dwords) if with_data else None,
        length=dwords,
        address=random.choice(BASES) + 4 * random.randrange(64) if address is None else address,
        first_be=random.randrange(16),
        last_be=random.randrange(16),
        tag=random.randrange(256),
        requester_id=random.randrange(1 << 16),
        traffic_class=random.randrange(8),
        attributes=random.randrange(8),
        poisoned=random.random() < 0.2,
    )


def completion_tlp(random, dwords=None, byte_count=None) -> Tlp:
    dwords = random.choice((0, 1, 2, 3, 16, 31, 32)) if dwords is None else dwords
    return Tlp(
        random.choice((COMPLETION, COMPLETION, COMPLETION_LOCKED)),
        random.randbytes(4 * dwords) if dwords else None,
        length=dwords,
        completer_id=random.randrange(1 << 16),
        requester_id=random.randrange(1 << 16),
        tag=random.randrange(256),
        status=random.choice((0, 1, 2, 4)),
        byte_count=byte_count or random.randint(1, 4096),
        lower_address=random.randrange(128),
        traffic_class=random.randrange(8),
        attributes=random.randrange(8),
        poisoned=random.random() < 0.2,
    )


def any_tlp(random) -> Tlp:
    kind = random.randrange(8)
    if kind < 2:
        return completion_tlp(random)
    if kind < 4:
        return request_tlp(random)
    if kind < 6:
        return request_tlp(random, dwords=random.randint(1, 1024), with_data=False)
    if kind == 6:
        return request_tlp(
            random, MESSAGE, dwords=random.randint(1, 4), with_data=random.random() < 0.5
        )
    type = random.choice((LOCKED, IO, FETCH_ADD))
    return request_tlp(
        random, type, dwords=1, address=0x1000, with_data=type != LOCKED and random.random() < 0.8
    )


def expected(tlp: Tlp, bar: int = NO_BAR) -> tuple:
    """What the seam shows: the port's name, the header, the payload."""
    data = tlp.data or b""
    names = ["requester_id", "tag", "traffic_class", "attributes", "poisoned"]
    locked = {"locked": int(tlp.type in (LOCKED, COMPLETION_LOCKED))}
    if tlp.type in COMPLETIONS:
        names += ["status", "byte_count", "lower_address"]
        header = {name: int(getattr(tlp, name)) for name in names}
        return "completion", header | locked | {"dwords": len(data) // 4}, data
    kind = {
        (MEMORY, False): TargetKind.READ,
        (MEMORY, True): TargetKind.WRITE,
        (MESSAGE, False): TargetKind.MESSAGE,
        (MESSAGE, True): TargetKind.MESSAGE,
    }.get((tlp.type, bool(data)), TargetKind.OTHER)
    names += ["first_be", "last_be", "address"]
    header = {name: int(getattr(tlp, name)) for name in names}
    header |= locked | {"dwords": tlp.length, "kind": kind.value, "bar": bar}
    return "target", header, data


def run(script) -> dict[str, list]:
    """Run TRN cycles through a Receiver: each item is a dict of its inputs, or None for a pause.

    Returns (cycle, beat) of each port of the seam, with cycles counted from the first item.
    """
    dut = Receiver()
    logs = {"target": [], "completion": []}
    idle = {"valid": 0, "sof": 1, "discontinued": 0, "data": 0x4000_0001_0BAD_0BAD}

    async def block(ctx):
        for item in [*script, *[None] * 4]:
            for name, value in (idle | (item or {})).items():
                ctx.set(getattr(dut, name), value)
            await ctx.tick()

    simulate(dut, block, background=[watch(getattr(dut, port), log) for port, log in logs.items()])
    for log in logs.values():
        begun = [cycle for cycle, beat in log if beat.first]
        assert all(after - before >= 2 for before, after in pairwise(begun)), "the seam's rule"
    return logs


def receive(script) -> list[tuple]:
    """The packets of both ports, (port, cycles, header, data) each, in order of their ends."""
    logs = run(script)
    return sorted(
        ((port, *packet) for port, log in logs.items() for packet in packets(log)),
        key=lambda packet: packet[1][-1],
    )


def check(packet: tuple, tlp: Tlp, bar: int = NO_BAR):
    """The packet is what the seam should show of the TLP."""
    port, times, header, data = packet
    wanted_port, wanted_header, payload = expected(tlp, bar)
    assert (port, header, data[: len(payload)]) == (wanted_port, wanted_header, payload)
    assert len(times) == max(1, (len(payload) + 7) // 8)


def cycles(tlp: Tlp, digest=None, **sideband) -> list[dict]:
    """The TRN cycles of a TLP, without pauses."""
    return [
        {"data": beat["data"], "sof": beat["sof"], "valid": 1, "bar_hit": 0, "error": 0} | sideband
        for beat in to_beats(tlp.dwords(digest))
    ]


@pytest.mark.parametrize("pause", [0, 0.3, 0.8])
def test_tlps_of_all_kinds_sizes_and_pauses(pause):
    random = seeded()
    sent = [any_tlp(random) for _ in range(150)]
    script = []
    for tlp in sent:
        digest = random.choice((None, None, 0xD19E_57D1))
        for item in cycles(tlp, digest):
            while random.random() < pause:
                script.append(None)
            script.append(item)
    for packet, tlp in zip(receive(script), sent, strict=True):
        check(packet, tlp)


def test_payload_is_passed_on_in_the_next_cycle():
    """One cycle after the beat that completes 64 bits; what ends in half a beat one later."""
    random = seeded()
    for base in (0x1000, 0x1_0000_1000):
        for dwords in (1, 2, 3, 4, 31, 32, 128):
            tlp = request_tlp(random, dwords=dwords, address=base)
            script = cycles(tlp)
            ((_, times, *_),) = receive(script)
            held = base < 1 << 32 and dwords % 2
            assert times[-1] == len(script) - 1 + 1 + held, f"{dwords} dwords at {base:#x}"
    for tlp in (request_tlp(random, with_data=False), completion_tlp(random, dwords=0)):
        ((_, times, *_),) = receive(cycles(tlp))
        assert times == [1 + 2]


def test_a_cycle_without_payload_lies_between_packets():
    """The completer counts on it."""
    random = seeded()
    sent = [
        request_tlp(random, dwords=random.randint(1, 6), with_data=random.random() < 0.7)
        for _ in range(100)
    ]
    times = [packet[1] for packet in receive([item for tlp in sent for item in cycles(tlp)])]
    assert len(times) == len(sent)
    assert all(after[0] >= before[-1] + 2 for before, after in pairwise(times))


def test_length_and_byte_count_of_zero_are_the_largest():
    random = seeded()
    sent = [
        request_tlp(random, dwords=1024, with_data=False),
        request_tlp(random, dwords=1024),
        completion_tlp(random, dwords=1024, byte_count=4096),
    ]
    got = receive([item for tlp in sent for item in cycles(tlp)])
    for packet, tlp in zip(got, sent, strict=True):
        check(packet, tlp)


def test_bar_is_the_lowest_that_is_hit():
    random = seeded()
    for hit, bar in [(1 << n, n) for n in range(6)] + [(0b1100, 2), (0, NO_BAR), (0x40, NO_BAR)]:
        tlp = request_tlp(random)
        (packet,) = receive(cycles(tlp, bar_hit=hit))
        check(packet, tlp, bar)


def test_error_forwarding_poisons():
    tlp = request_tlp(seeded())
    tlp.poisoned = 0
    ((_, _, header, _),) = receive(cycles(tlp, error=1))
    assert header["poisoned"] == 1


@pytest.mark.parametrize("with_beat", [True, False], ids=["with a beat", "alone"])
@pytest.mark.parametrize("base", [0x1000, 0x1_0000_1000], ids=["3dw", "4dw"])
def test_a_tlp_that_is_cut_off_does_no_harm_to_the_next(base, with_beat):
    random = seeded()
    for seen in range(1, 6):
        script = cycles(request_tlp(random, dwords=32, address=base))[:seen]
        if with_beat:
            script[-1]["discontinued"] = 1
        else:
            script.append({"discontinued": 1})
        script += [None, {"valid": 1, "sof": 0}, None]  # a beat of no packet
        write, answer = request_tlp(random, dwords=3), completion_tlp(random)
        logs = run([*script, *cycles(write), *cycles(answer)])
        passed = max(0, seen - with_beat - 2)
        assert [beat.last for _, beat in logs["target"][:passed]] == [0] * passed
        (packet,) = packets(logs["target"][passed:])
        check(("target", *packet), write)
        (packet,) = packets(logs["completion"])
        check(("completion", *packet), answer)
