# SPDX-License-Identifier: BSD-2-Clause
"""Peer-to-peer: the board and a GPU behind one switch; host memory is not on the way."""

from __future__ import annotations

from .memory import Transfer
from .tb import TB, bench

CHANNELS = (1,)
PCIE = ("ultrascale-64",)


@bench(us=1000, gpu=True)
async def host_to_gpu_and_back(tb: TB):
    """Host memory, card, GPU memory, card again, host memory: every byte arrives."""
    for size, offset in ((4096, 0), (3001, 77)):
        source, target = tb.buffer(size, offset=offset), tb.buffer(size, offset=offset + 3)
        peer = tb.gpu_buffer(size, offset=offset)
        await tb.h2c.run(tb.chain([Transfer(source.address, 0, size)]))
        await tb.c2h.run(tb.chain([Transfer(0, peer.address, size)]))
        peer.expect(source.data)
        await tb.h2c.run(tb.chain([Transfer(peer.address, 8192 + 1, size)]))
        await tb.c2h.run(tb.chain([Transfer(8192 + 1, target.address, size)]))
        target.expect(source.data)


@bench(us=1000, gpu=True)
async def gpu_to_gpu(tb: TB):
    """A copy within GPU memory sends no data through the root complex."""
    source, target = tb.gpu_buffer(5000, offset=9), tb.gpu_buffer(5000, offset=2000)
    into, out = (
        tb.chain([Transfer(source.address, 0, 5000)]),
        tb.chain([Transfer(0, target.address, 5000)]),
    )
    tb.host.requests.clear()
    await tb.h2c.run(into)
    await tb.c2h.run(out)
    target.expect(source.data)
    assert {request.address for request in tb.host.requests} == {into.address, out.address}
