# SPDX-License-Identifier: BSD-2-Clause
"""The sequence of a soft reset."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SoftReset"]


class SoftReset(wiring.Component):
    """Stops all channels and, once no write of theirs is under way, resets them.

    Reads need no waiting: the read engine keeps their tags until the completions have come.

    Members
    -------
    request : In(1)
        High for the cycle in which software asks for it.
    writing : In(1)
        Writes are under way.
    stop : Out(1)
        From the cycle after `request` to that of `reset`: begin nothing new.
    reset : Out(1)
        High for one cycle.
    """

    request: In(1)
    writing: In(1)
    stop: Out(1)
    reset: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.reset.eq(self.stop & ~self.writing)
        with m.If(self.request):
            m.d.sync += self.stop.eq(1)
        with m.Elif(self.reset):
            m.d.sync += self.stop.eq(0)
        return m
