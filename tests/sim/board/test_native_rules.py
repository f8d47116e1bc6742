# SPDX-License-Identifier: BSD-2-Clause
"""The native judge of the core's TLPs: every rule lets good TLPs pass and names a broken one."""

from __future__ import annotations

import ctypes
from functools import cache

import pytest

from sim.compile.native import compile_ideal

US, MPS, MRRS = 0x0100, 128, 512
LIMITS = {"id": US, "mps": MPS, "mrrs": MRRS, "bus_master": 1, "extended": 0, "relaxed": 1}
READ, WRITE, COMPLETION, FOUR_DW = 0x00, 0x40, 0x4A, 0x20


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(compile_ideal()))


def judge(words: list[int], **limits: int) -> str:
    """What the judge says of the TLP made of `words`."""
    values = list((LIMITS | limits).values())
    text = ctypes.create_string_buffer(512)
    library().tlp_violation(
        (ctypes.c_uint32 * len(words))(*words),
        ctypes.c_size_t(len(words)),
        (ctypes.c_uint * len(values))(*values),
        text,
        ctypes.c_size_t(len(text)),
    )
    return text.value.decode()


def request(kind: int, address: int, dws: int, *, first=15, last=None, tag=0, id_=US, bits=0):
    """Header (and payload) of a memory request of `dws` dwords."""
    if last is None:
        last = 0 if dws == 1 else 15
    four = FOUR_DW if address >> 32 else 0
    words = [(kind | four) << 24 | bits | dws & 0x3FF, id_ << 16 | tag << 8 | last << 4 | first]
    words += [address >> 32] if four else []
    words.append(address & 0xFFFFFFFF)
    return words + [0] * (dws if kind == WRITE else 0)


@pytest.mark.parametrize(
    "words",
    [
        request(READ, 0x1000, 1),
        request(READ, 0x1000, 1, first=0),
        request(READ, 0x1E00, 128),
        request(READ, 0xFFFF_FFFC, 1),
        request(READ, 0x1_0000_0000, 128, first=8, last=1, tag=31),
        request(WRITE, 0x1000, 32),
        request(WRITE, 0x1000, 1, first=5),
        request(WRITE, 0x1008, 2, first=5, last=10),
        request(WRITE, 0x1004, 3, first=14, last=7),
        request(WRITE, 0x1000, 32, bits=2 << 12),
        [COMPLETION << 24 | 1, US << 16 | 4, 0x0000_0500, 0],
    ],
)
def test_legal(words):
    assert judge(words) == ""


@pytest.mark.parametrize(
    ("words", "limits", "reason"),
    [
        ([], {}, "do not match the length"),
        ([0], {}, "do not match the length"),
        (request(WRITE, 0x1000, 4)[:-1], {}, "6 dwords do not match"),
        ([*request(READ, 0x1000, 4), 0], {}, "4 dwords do not match"),
        (request(READ, 0x1000, 1), {"bus_master": 0}, "while Bus Master Enable is 0"),
        (request(READ, 0x1000, 1, id_=0), {}, "id 0000 instead of 0100"),
        (request(READ, 0x1FFC, 2), {}, "crosses a 4 KiB boundary"),
        (request(READ, 0x1000, 129), {}, "read of 516 bytes exceeds MRRS 512"),
        (request(WRITE, 0x1000, 33), {}, "payload of 132 bytes exceeds MPS 128"),
        (request(READ, 0x1000, 1, last=15), {}, "byte enables"),
        (request(READ, 0x1000, 2, last=0), {}, "byte enables"),
        (request(READ, 0x1000, 2, first=0), {}, "byte enables"),
        (request(READ, 0x1004, 2, first=7), {}, "byte enables"),
        (request(WRITE, 0x1000, 3, first=5), {}, "byte enables"),
        (request(WRITE, 0x1000, 3, last=14), {}, "byte enables"),
        (request(READ, 0x1000, 1, tag=32), {}, "tag 32 without Extended Tag Field Enable"),
        (request(READ, 0x1000, 1, bits=2 << 12), {"relaxed": 0}, "relaxed ordering without"),
        ([FOUR_DW << 24 | 1, US << 16 | 15, 0, 0x1000], {}, "4-DW header for address 0x1000"),
        (request(READ, 0x1000, 1, bits=1 << 15), {}, "reserved or unsupported bits"),
        (request(READ, 0x1000, 1, bits=1 << 14), {}, "reserved or unsupported bits"),
        (request(READ, 0x1000, 1, bits=1 << 20), {}, "reserved or unsupported bits"),
        (request(READ, 0x1000, 1, bits=1 << 10), {}, "reserved or unsupported bits"),
        (request(0x02, 0x1000, 1), {}, "type 0x02 is not for the core to send"),
        ([0x34000000, US << 16 | 0x20, 0, 0], {}, "type 0x34 is not for the core to send"),
        ([COMPLETION << 24 | 1, 4, 0x0000_0500, 0], {}, "id 0000 instead of 0100"),
        ([COMPLETION << 24 | 1 | 2 << 12, US << 16 | 4, 0x500, 0], {}, "attributes 2"),
    ],
)
def test_illegal(words, limits, reason):
    assert reason in judge(words, **limits)


def test_extended_tags():
    assert judge(request(READ, 0x1000, 1, tag=255), extended=1) == ""


# The seam: what a core shows in each cycle -----------------------------------------------------

NOTHING = (0, 0, 0, 0)


def beat(dwords: int, *, first: bool = False, last: bool = False) -> tuple[int, ...]:
    return (1, first, last, dwords)


def seam(cycles: list[tuple[int, ...]], width: int) -> str:
    """What the block says of a core that shows these."""
    flat = [value for cycle in cycles for value in cycle]
    text = ctypes.create_string_buffer(2000)
    library().seam_violations(
        width,
        (ctypes.c_uint32 * len(flat))(*flat),
        ctypes.c_size_t(len(cycles)),
        text,
        ctypes.c_size_t(len(text)),
    )
    return text.value.decode()


@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("beats", [1, 2, 3])
def test_good_packets_pass_the_seam(width, beats):
    """One that is offered for a cycle first, and another one right behind it."""
    dwords = beats * width // 32 - 1
    shown = [beat(dwords, first=n == 0, last=n == beats - 1) for n in range(beats)]
    assert seam(2 * [shown[0], *shown] + [NOTHING], width) == ""


FIRST, LAST = beat(3, first=True), beat(3, last=True)


@pytest.mark.parametrize(
    ("cycles", "said"),
    [
        ([FIRST, NOTHING], "takes back a beat"),
        ([beat(3), beat(3), LAST], "has first where it is not, or has it not"),
        ([FIRST, FIRST, beat(3, first=True, last=True)], "has first where it is not, or has it"),
        ([FIRST, beat(4, first=True)], "a header of the core changes within its packet"),
        ([FIRST, FIRST, beat(4, last=True)], "a header of the core changes within its packet"),
        ([FIRST, FIRST, beat(3)], "is not as long as its header says"),
        ([FIRST, beat(3, first=True, last=True)], "is not as long as its header says"),
    ],
)
def test_broken_packets_do_not_pass_the_seam(cycles, said):
    assert said in seam(cycles, 64)


# Streams of 256 bits: what a core shows in each cycle ------------------------------------------

#: Bits of tuser: where byte enables end, the discontinue of requests, the upper part of the
#: sequence number, which lies in its second dword.
ALL, LATE, SEQUENCE_HIGH = 0xFF, 1 << 11, 28


def dwords(kind: int, count: int, **changed: int) -> list[int]:
    """A request, or with kind None a completion, and its payload; `changed` are dwords of it."""
    descriptor = [0x1000, 0, kind << 11 | count, 0]
    for name, value in changed.items():
        descriptor[int(name.removeprefix("dword"))] = value
    return descriptor + [0] * (count if kind else 0)


def answer(**changed: int) -> list[int]:
    """A completion of one dword."""
    descriptor = [4 << 16, 1, 5]
    for name, value in changed.items():
        descriptor[int(name.removeprefix("dword"))] = value
    return [*descriptor, 0]


def shown(
    packet: list[int], *, user: tuple[int, int] = (ALL, 0), completion: bool = False
) -> list[tuple]:
    """A packet as beats."""
    beats = [packet[at : at + 8] for at in range(0, len(packet), 8)]
    ends = [(beat is beats[-1], (1 << len(beat)) - 1) for beat in beats]
    padded = [beat + [0] * (8 - len(beat)) for beat in beats]
    return [(completion, 1, *end, *user, *beat) for end, beat in zip(ends, padded, strict=True)]


def streams(beats: list[tuple]) -> str:
    """What the block says of a core that shows these."""
    flat = [int(value) for beat in beats for value in beat]
    text = ctypes.create_string_buffer(2000)
    library().streams_violations(
        (ctypes.c_uint32 * len(flat))(*flat),
        ctypes.c_size_t(len(beats)),
        text,
        ctypes.c_size_t(len(text)),
    )
    return text.value.decode()


QUIET = [(0,) * 14]
GOOD = shown(dwords(1, 16))


@pytest.mark.parametrize("count", [2, 4, 5, 12, 13, 32])
def test_good_packets_pass_the_streams(count):
    """Behind each other, and completions beside them."""
    packets = 2 * shown(dwords(1, count)) + shown(dwords(0, count))
    assert streams(packets + shown(answer(), user=(0, 0), completion=True) + QUIET) == ""


@pytest.mark.parametrize(
    ("beats", "said"),
    [
        (shown(dwords(1, 16), user=(ALL | LATE, 0)), "cuts off a packet"),
        (shown(answer(), user=(1, 0), completion=True), "cuts off a packet"),
        ([(*GOOD[0][:3], 0x7F, *GOOD[0][4:]), *GOOD[1:]], "has dwords left out"),
        ([*GOOD[:2], (*GOOD[2][:3], 0x0D, *GOOD[2][4:])], "has dwords left out"),
        (shown([0x1000, 0, 1]), "shorter than its descriptor"),
        (shown([4 << 16, 1], completion=True, user=(0, 0)), "shorter than its descriptor"),
        (shown(dwords(1, 16)[:-1]), "not as long as its descriptor says"),
        (shown([*dwords(0, 16), 0]), "not as long as its descriptor says"),
        (shown([*answer(), 0], completion=True, user=(0, 0)), "not as long as its descriptor"),
        (shown(dwords(2, 16)), "bits set that it may not have"),
        (shown(dwords(1, 16, dword0=0x1001)), "bits set that it may not have"),
        (shown(dwords(1, 16, dword3=1 << 8)), "bits set that it may not have"),
        (shown(answer(dword2=1 << 8 | 5), completion=True, user=(0, 0)), "bits set that it may"),
        (shown(dwords(1, 16), user=(0xF0, 0)), "byte enables"),
        (shown(dwords(1, 64)), "exceeds MPS 128"),
    ],
)
def test_broken_packets_do_not_pass_the_streams(beats, said):
    assert said in streams(beats + QUIET)


def test_a_beat_that_the_block_does_not_take_stays():
    """After so many writes its buffers are full, as the link is slow."""
    many = 31 * GOOD
    assert "error" not in streams(many + [GOOD[0]] * 2)
    changed = (*GOOD[0][:-1], 1)
    assert "takes back or changes a beat" in streams([*many, GOOD[0], changed])
    assert "takes back or changes a beat" in streams([*many, GOOD[0], *QUIET])
