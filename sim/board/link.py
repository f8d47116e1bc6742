# SPDX-License-Identifier: BSD-2-Clause
"""PCIe links by their names, such as gen3x8."""

from __future__ import annotations

import re

__all__ = ["parse", "raw_mbps"]

#: Raw 10^6 bytes per second of a lane, less its line code, by generation.
_LANE_MBPS = {1: 250.0, 2: 500.0, 3: 8000 / 8 * 128 / 130}


def parse(name: str) -> tuple[int, int]:
    """Speed and lanes as Link Status has them; ValueError if it is no name of a link."""
    match = re.fullmatch(r"gen([123])x([1248])", name)
    if not match:
        raise ValueError(f"a link is gen1x1 to gen3x8, not {name!r}")
    return int(match[1]), int(match[2])


def raw_mbps(speed: int, lanes: int) -> float:
    """Raw 10^6 bytes per second of a link, less its line code."""
    return _LANE_MBPS[speed] * lanes
