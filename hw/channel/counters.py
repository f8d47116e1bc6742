# SPDX-License-Identifier: BSD-2-Clause
"""Performance counters of a channel (PG195, channel performance monitor registers)."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..registers.bank import field

__all__ = ["PerformanceCounters"]

_CONTROL = regs.CHANNEL["perf_control"]
_BITS = 42
_SATURATED = 32 + regs.CHANNEL["perf_cycles_hi"].field("saturated").lsb


class PerformanceCounters(wiring.Component):
    """Counts the cycles and the data beats of a channel's runs.

    Both counters stop at their largest value and say so.

    Members
    -------
    control : In(32), written : In(1), data : In(32)
        The control register, and what software writes to it in the cycle of `written`.
    busy : In(1)
        The counters count while this is high and software lets them run.
    start : In(1)
        A run starts: clears the counters in auto mode.
    beats : In(8)
        64-bit data beats that are moved in this cycle.
    cycles, moved : Out(64)
        Counters as software reads them.
    """

    control: In(32)
    written: In(1)
    data: In(32)
    busy: In(1)
    start: In(1)
    beats: In(8)
    cycles: Out(64)
    moved: Out(64)

    def elaborate(self, platform):
        m = Module()
        cleared = (self.written & field(self.data, _CONTROL, "clear")) | (
            self.start & field(self.control, _CONTROL, "auto")
        )
        counting = field(self.control, _CONTROL, "run") & self.busy
        for amount, shown in ((1, self.cycles), (self.beats, self.moved)):
            counter = Signal(_BITS + 1, name=f"{shown.name}_counter")
            with m.If(counting & ~counter[_BITS]):
                m.d.sync += counter.eq(counter + amount)
            with m.If(cleared):
                m.d.sync += counter.eq(0)
            m.d.comb += [shown[:_BITS].eq(counter), shown[_SATURATED].eq(counter[_BITS])]
        return m
