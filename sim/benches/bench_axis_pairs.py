# SPDX-License-Identifier: BSD-2-Clause
"""User logic outside of a core with two pairs: each has ports and registers of its own."""

from __future__ import annotations

import cocotb

from peerdma import regs

from .bench_axis import Logic
from .bench_stream import copy, cut
from .tb import TB, bench

CHANNELS = (2,)
#: The user block of the core.
USER = "axis"


@bench(us=1000, lanes=4)
async def side_by_side(tb: TB):
    """Copies through both at the same time, each by its own register."""
    logics = [Logic(tb, number=number, pause=0.1) for number in range(2)]
    masks, copies, runs = (0x0F, 0xA0), [], []
    for number, mask in enumerate(masks):
        base = regs.USER_BLOCK_BASE + number * regs.USER_BLOCK_SIZE
        await tb.bar_write(regs.BAR_USER[0], base, mask.to_bytes(4, "little"))
    for number in range(2):
        source, target, *lists = copy(tb, cut(tb, 3001, 3), cut(tb, 3001, 3))
        copies.append((source, target))
        channels = tb.channels[number], tb.channels[2 + number]
        runs += [channel.run(chain, 400) for channel, chain in zip(channels, lists, strict=True)]
    for run in [cocotb.start_soon(run) for run in runs]:
        await run
    for logic, mask, (source, target) in zip(logics, masks, copies, strict=True):
        assert (logic.mask, logic.bytes) == (mask, 3001)
        target.expect(bytes(byte ^ mask for byte in source.data))
