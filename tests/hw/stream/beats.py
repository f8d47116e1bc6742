# SPDX-License-Identifier: BSD-2-Clause
"""Bytes as beats of a user stream, and back."""

from __future__ import annotations

from tests.hw.helpers import fields

__all__ = ["beats_of", "joined"]


def beats_of(data, rng, sizes):
    """`data` as beats of random `sizes`, noise in the lanes that do not count."""
    beats = []
    while data:
        count = min(rng.choice(sizes), len(data))
        word = int.from_bytes(data[:count] + rng.randbytes(8 - count), "little")
        beats.append({"data": word, "count": count, "last": 0})
        data = data[count:]
    return beats


def joined(log):
    """The bytes of the beats in a `watch` log."""
    beats = [fields(beat) for _, beat in log]
    assert all(1 <= beat["count"] <= 8 for beat in beats)
    return b"".join(beat["data"].to_bytes(8, "little")[: beat["count"]] for beat in beats)
