# SPDX-License-Identifier: BSD-2-Clause
"""What rounding to bfloat16 means, slowly and by distance, for tests of whoever does it fast."""

from __future__ import annotations

import numpy as np

__all__ = ["bfloat16"]


def bfloat16(words: np.ndarray) -> np.ndarray:
    """Upper halves (uint16) of float32 bit patterns (uint32), rounded to nearest, ties to even.

    The nearest of the two neighbours is found by their distance in float64. A NaN keeps its upper
    half and becomes quiet.
    """
    found = (words >> 16).astype("u2")
    for index, word in enumerate(words):
        if word >> 23 & 0xFF == 0xFF:
            found[index] |= 0x40 * bool(word & 0x7F_FFFF)
            continue
        exact = _value(int(word))
        towards_zero = exact - _value(int(word) >> 16 << 16)
        away = _value((int(word) >> 16) + 1 << 16) - exact
        found[index] += abs(away) < abs(towards_zero) or (away == towards_zero and found[index] & 1)
    return found


def _value(bits: int) -> float:
    """Of a finite number, or of what would come after the largest."""
    exponent, fraction = bits >> 23 & 0xFF, bits & 0x7F_FFFF
    sign = -1.0 if bits >> 31 else 1.0
    return sign * (fraction + (1 << 23 if exponent else 0)) * 2.0 ** (max(exponent, 1) - 150)
