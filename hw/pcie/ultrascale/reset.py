# SPDX-License-Identifier: BSD-2-Clause
"""When the core is reset, after the host has reset the function."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .sent import PATIENCE

__all__ = ["FunctionReset"]


class FunctionReset(wiring.Component):
    """Resets the core once all requests of before the reset have passed, in both directions.

    The block may still hold writes of the host's, which it hands over during the reset, or behind a
    short one. Behind the core's own reset they would change registers that are as after power-up,
    and start channels without the addresses that were written before. And a request of the core's
    that the block was offered, but has not taken, must not go out when Bus Master is on again. The
    block takes no other requests of the host meanwhile, as Memory Space is off.

    It waits for `PATIENCE` cycles at most, as for writes, since the host waits for the reset.

    Parameters
    ----------
    rest : int
        Cycles without a request after which none of before is on its way.

    Members
    -------
    asked : In(1)
        The host resets the function. High until the core has been reset.
    moves : In(1)
        A request is offered, in either direction.
    reset : Out(1)
        Falls with `asked`.
    """

    def __init__(self, rest: int):
        self._rest = rest
        super().__init__({"asked": In(1), "moves": In(1), "reset": Out(1)})

    def elaborate(self, platform):
        m = Module()
        rests, waits = Signal(range(self._rest)), Signal(range(PATIENCE))
        passed = Signal()
        m.d.comb += self.reset.eq(self.asked & passed)
        m.d.sync += [rests.eq(rests + 1), waits.eq(waits + 1)]
        with m.If(self.moves | ~self.asked):
            m.d.sync += rests.eq(0)
        with m.Elif(rests == self._rest - 1):
            m.d.sync += passed.eq(1)
        with m.If(waits == PATIENCE - 1):
            m.d.sync += passed.eq(1)
        with m.If(~self.asked):
            m.d.sync += [waits.eq(0), passed.eq(0)]
        return m
