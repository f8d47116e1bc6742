# SPDX-License-Identifier: BSD-2-Clause
"""The window of data reads, whatever completions come."""

from amaranth import *
from amaranth.hdl import Assert

from hw.read.read_window import STEP, ReadWindow

from .property import Property

__all__ = ["Window"]


class Window(Property):
    """The window of reads is a multiple of a step or all the room; it moves by one step, or to all.

    Nothing is assumed.
    """

    CAPACITY, READ = 36, 8
    TOP = (CAPACITY - READ) // STEP
    reach = 100

    def __init__(self):
        super().__init__(ReadWindow(self.CAPACITY, self.READ))

    def _state(self, m):
        steps = self.inside("steps")
        before = self.past(m, steps)
        names = ("grows", "shrinks", "begins_anew")
        grows, shrinks, begins_anew = (self.past(m, self.inside(name)) for name in names)
        m.d.comb += [
            Assert(steps <= self.TOP),
            Assert(self.inside("excess") < 6),
            # With all the room nothing is late.
            Assert(~self.inside("beyond") | (steps != self.TOP)),
            Assert(~self.inside("late") | self.inside("beyond")),
            Assert(self.block.most == Mux(steps == self.TOP, self.CAPACITY, steps * STEP)),
            Assert(
                ~self.started(m)
                | (steps == before)
                | (begins_anew & (steps == self.TOP))
                | (grows & (steps == before + 1))
                | (shrinks & ~grows & (steps == before - 1))
            ),
        ]
        self.cover(m, shrinks, grows, begins_anew)
