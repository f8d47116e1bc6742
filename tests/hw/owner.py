# SPDX-License-Identifier: BSD-2-Clause
"""An owner of a channel beside software's registers, made of Python."""

from __future__ import annotations

import numpy as np

from peerdma import regs

__all__ = ["Owner"]


class Owner:
    """Drives the port of an owner, at a channel or at the core.

    Parameters
    ----------
    port : wiring interface with the members of `hw.channel.signatures.OwnerSignature`
    """

    def __init__(self, port):
        self.port = port

    async def run(self, ctx, address=0, adjacent=0, pushed=None, cycles=20_000):
        """One run; returns how it ended.

        With an array of `regs.DESCRIPTOR` in `pushed` it begins with those; with one of them it
        starts with its first word. Fails after so many `cycles`.
        """
        await self.grant(ctx)
        await self.begin(ctx, address, adjacent, pushed)
        return await self.end(ctx, cycles)

    async def grant(self, ctx, cycles=20_000):
        """Request the channel, and wait until it is granted."""
        ctx.set(self.port.request, 1)
        await self._until(ctx, self.port.granted, cycles)

    async def begin(self, ctx, address=0, adjacent=0, pushed=None):
        """Start the run that was granted."""
        port, words = self.port, []
        ctx.set(port.address, address)
        ctx.set(port.adjacent, adjacent)
        ctx.set(port.pushed, {"any": 0, "whole": 1, "count": 0})
        if pushed is not None:
            words = np.asarray(pushed, regs.DESCRIPTOR).view("<u8").tolist()
            ctx.set(port.pushed, {"any": 1, "whole": 1, "count": len(pushed)})
        ctx.set(port.start, len(words) == 4)
        for number, word in enumerate(words):
            bank, row = number % 2, number // 2
            ctx.set(
                port.word.payload,
                {"rows": [row, row], "data": word, "enable": [0xFF * (not bank), 0xFF * bank]},
            )
            ctx.set(port.word.valid, 1)
            taken = False
            while not taken:
                _, _, taken, ready = await ctx.tick().sample(port.word.ready, port.ready)
                if ready:
                    # The words may wait for another owner's, and one start begins one run.
                    ctx.set(port.start, 0)
        ctx.set(port.word.valid, 0)
        if not ctx.get(port.started):
            ctx.set(port.start, 1)
        await self._until(ctx, port.started, 1000)
        ctx.set(port.start, 0)

    async def follow(self, ctx, cycles=1000):
        """Start a run behind others that are under way, as soon as that is possible."""
        ctx.set(self.port.start, 1)
        await self._until(ctx, self.port.ready, cycles)
        await ctx.tick()
        ctx.set(self.port.start, 0)

    async def reserve(self, ctx, cycles=1000):
        """Reserve the place of a run behind others that are under way."""
        await self._until(ctx, self.port.ready, cycles)
        ctx.set(self.port.reserve, 1)
        await ctx.tick()
        ctx.set(self.port.reserve, 0)

    async def end(self, ctx, cycles=20_000, request=0):
        """Wait for the end of the run; from the cycle after it on, `request` is as given."""
        await self._until(ctx, self.port.ended.valid, cycles)
        end = ctx.get(self.port.ended.payload)
        await ctx.tick()
        ctx.set(self.port.request, request)
        return end

    @staticmethod
    async def _until(ctx, signal, cycles):
        for _ in range(cycles):
            if ctx.get(signal):
                return
            await ctx.tick()
        raise AssertionError(f"no {signal.name} within {cycles} cycles")
