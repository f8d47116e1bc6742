# SPDX-License-Identifier: BSD-2-Clause
"""Two numbers of a request that belong together: where something begins, and how long it is.

Drawn apart, they hardly ever meet where sums of them wrap around.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from peerdma.uapi import Ioctl

__all__ = ["PAIRS", "STREAM", "draw"]

_WRAP = 1 << 64
_PAGE = 4096
#: Card address of the user stream: who receives from there may wait for ever.
STREAM = 1 << 63
#: Both ends of the number line, and where a 32-bit, a signed, or a user's number ends.
_EDGES = [
    *(0, 0, _PAGE, 1 << 16, 1 << 31, 1 << 32, 1 << 44, 1 << 47, 1 << 56, STREAM),
    *(_WRAP - (1 << 47), _WRAP - (1 << 32), _WRAP - (1 << 16), _WRAP - _PAGE, _WRAP - 1),
]
_STEPS = [0, 0, 0, 1, -1, 2, -2, 8, -8, _PAGE, -_PAGE, 1 << 16, -(1 << 16)]

#: Members of each request's structure: (where it begins, how long it is).
PAIRS: dict[Ioctl, list[tuple[str, str]]] = {
    Ioctl.PIN_CUDA: [("va", "size")],
    Ioctl.H2C2H_DMA: [("src", "len"), ("dst", "len")],
    Ioctl.H2C_DMA: [("src", "len"), ("dst", "len")],
    Ioctl.C2H_DMA: [("src", "len"), ("dst", "len")],
    Ioctl.PIN_DMABUF: [("offset", "length")],
    Ioctl.PIN_PAGES: [("address", "length")],
    Ioctl.SUBMIT: [
        *(("src_offset", "length"), ("dst_offset", "length")),
        *(("src_offset", "dst_length"), ("length", "dst_length")),
    ],
    Ioctl.USER_REGISTER: [("block", "offset")],
    Ioctl.SUBMIT_BATCH: [("submits", "count")],
    Ioctl.SET_CONTEXT: [("channel", "ram_length")],
    Ioctl.START_RING: [("frames", "count"), ("records_offset", "count")],
    Ioctl.RELEASE_FRAMES: [("job", "count")],
    Ioctl.CREATE_QUEUE: [("entries", "depth"), ("records", "depth"), ("shadow", "word")],
    Ioctl.PREPARE: [("src_offset", "length"), ("dst_offset", "length"), ("done", "length")],
    Ioctl.UNPREPARE: [("queue", "slot")],
}


def draw(chance: random.Random, places: Sequence[int] = ()) -> tuple[int, int]:
    """Two numbers of 64 bits, of which the sum is as often near an edge as each of them.

    Parameters
    ----------
    chance : random.Random
    places : sequence of int
        More numbers at which something begins or ends: addresses of memory, lengths of pins.
    """

    def near() -> int:
        return chance.choice([*_EDGES, *places]) + chance.choice(_STEPS)

    start, kind = near(), chance.random()
    if kind < 0.2:  # it ends within a page of where all numbers do
        length = chance.randrange(-_PAGE, _PAGE) - start
    elif kind < 0.5:
        length = near() - start
    elif kind < 0.8:
        length = near()
    else:
        length = chance.randrange(3 * _PAGE)
    return start % _WRAP, length % _WRAP
