# SPDX-License-Identifier: BSD-2-Clause
"""The sequence of a soft reset, and of a reset of the function."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SoftReset"]


class SoftReset(wiring.Component):
    """Stops all channels and, once no write of theirs is under way, resets them.

    Reads need no waiting: the read engine keeps their tags until the completions have come.

    A reset of the function is one for all registers, too. It waits for writes only, which the PCIe
    block drops by then or has sent.

    Members
    -------
    request : In(1)
        High for the cycle in which software asks for it.
    function : In(1), done : Out(1)
        Reset the function; from the cycle after `reset` on until `function` is low.
    writing : In(1)
        Writes are under way.
    stop : Out(1)
        From the cycle after `request` to that of `reset`: begin nothing new.
    reset : Out(1)
        High for one cycle.
    registers : Out(1)
        With `reset`: of all registers.
    """

    request: In(1)
    function: In(1)
    done: Out(1)
    writing: In(1)
    stop: Out(1)
    reset: Out(1)
    registers: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.reset.eq(self.stop & ~self.writing),
            self.registers.eq(self.reset & self.function),
        ]
        m.d.sync += self.done.eq(self.function & (self.done | self.reset))
        with m.If(self.request | (self.function & ~self.done & ~self.reset)):
            m.d.sync += self.stop.eq(1)
        with m.Elif(self.reset):
            m.d.sync += self.stop.eq(0)
        return m
