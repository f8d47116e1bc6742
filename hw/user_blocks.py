# SPDX-License-Identifier: BSD-2-Clause
"""User blocks: what happens to the bytes between a pair's H2C and C2H channel."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .ring import StreamBeat

__all__ = ["PassThrough"]


class PassThrough(wiring.Component):
    """Hands the stream on as it is: host to host, or surface to surface, in one pass."""

    i: In(stream.Signature(StreamBeat))
    o: Out(stream.Signature(StreamBeat))

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        return m
