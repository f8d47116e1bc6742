# SPDX-License-Identifier: BSD-2-Clause
"""The window of data reads, whatever completions come."""

from amaranth import *
from amaranth.hdl import Assert

from hw.read.read_window import STEP, ReadWindow

from .property import Property

__all__ = ["Window"]


class Window(Property):
    """The window of reads is a multiple of a step or all the room, and moves by one step.

    Nothing is assumed.
    """

    CAPACITY, READ = 36, 8
    TOP = (CAPACITY - READ) // STEP

    def __init__(self):
        super().__init__(ReadWindow(self.CAPACITY, self.READ))

    def _state(self, m):
        steps = self.inside("steps")
        before = self.past(m, steps)
        grows, shrinks = (self.past(m, self.inside(name)) for name in ("grows", "shrinks"))
        m.d.comb += [
            Assert(steps <= self.TOP),
            Assert(self.inside("excess") < 6),
            Assert(self.block.most == Mux(steps == self.TOP, self.CAPACITY, steps * STEP)),
            Assert(
                ~self.started(m)
                | (steps == before)
                | (grows & (steps == before + 1))
                | (shrinks & ~grows & (steps == before - 1))
            ),
        ]
