# SPDX-License-Identifier: BSD-2-Clause
"""Bytes as beats of a user stream, and back."""

from __future__ import annotations

from tests.hw.helpers import fields

__all__ = ["beats_of", "joined"]


def beats_of(data, rng, sizes, lanes=8):
    """`data` as beats of random `sizes`, noise in those of the `lanes` that do not count."""
    beats = []
    while data:
        count = min(rng.choice(sizes), len(data))
        word = int.from_bytes(data[:count] + rng.randbytes(lanes - count), "little")
        beats.append({"data": word, "count": count, "last": 0})
        data = data[count:]
    return beats


def joined(log):
    """The bytes of the beats in a `watch` log."""
    data = b""
    for _, payload in log:
        beat, lanes = fields(payload), payload.shape()["data"].width // 8
        assert 1 <= beat["count"] <= lanes
        data += beat["data"].to_bytes(lanes, "little")[: beat["count"]]
    return data
