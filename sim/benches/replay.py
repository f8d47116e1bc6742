# SPDX-License-Identifier: BSD-2-Clause
"""Register traffic of a driver as text, played on the bench.

    R 2000 1fc2xxxx     read, 4 bytes; fails unless it finds this, x stands for any hex digit
    R +0044             read what it may be
    W +0004 {start}     write; braces as in `str.format`, for values that are known later

A line is one access of the DMA BAR, offsets and values are hexadecimal. ``+`` adds the offset of
the channel that the text is played for. What stands behind ``#`` is comment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from peerdma import regs

if TYPE_CHECKING:
    from .tb import TB

__all__ = ["play"]

_LINE = re.compile(r"(?P<kind>[RW]) +(?P<own>\+?)(?P<offset>[0-9a-f]+)(?: +(?P<value>[0-9a-fx]+))?")
_BAR = regs.BAR_DMA[0]


async def play(tb: TB, script: str, *, channel: int = 0, **values: int) -> list[int]:
    """Play a script; `channel` is the channel's offset. Returns what its reads found."""
    found = []
    text = script.format(**{name: f"{value:08x}" for name, value in values.items()})
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        access = _LINE.fullmatch(line)
        if access is None:
            raise ValueError(f"{line!r} is no access")
        offset = int(access["offset"], 16) + (channel if access["own"] else 0)
        expected = access["value"]
        if access["kind"] == "W":
            await tb.bar_write(_BAR, offset, int(expected, 16).to_bytes(4, "little"))
            continue
        value = int.from_bytes(await tb.bar_read(_BAR, offset, 4), "little")
        found.append(value)
        if expected is not None:
            pattern = expected.rjust(8, "0").replace("x", ".")
            assert re.fullmatch(pattern, f"{value:08x}"), f"{line}: found {value:08x}"
    return found
