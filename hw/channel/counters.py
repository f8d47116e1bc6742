# SPDX-License-Identifier: BSD-2-Clause
"""Performance counters of a channel (PG195, channel performance monitor registers)."""

from amaranth import *

from peerdma import regs

__all__ = ["performance_counters"]

_BITS = 42


def performance_counters(m: Module, csr, *, busy: Value, start: Value, beats: Value) -> None:
    """Add the counters behind the performance registers of a channel's bank to a module.

    Both stop at their largest value and say so.

    Parameters
    ----------
    csr : RegisterBank
        Of `regs.CHANNEL`.
    busy : Value
        Cycles and beats count while it is high and the counters run.
    start : Value
        A run starts: clears the counters in auto mode.
    beats : Value
        64-bit data beats moved in this cycle.
    """
    register = regs.CHANNEL["perf_control"]
    auto, clear, run = (register.field(name).lsb for name in ("auto", "clear", "run"))
    control = csr.perf_control
    for amount, name in ((1, "perf_cycles"), (beats, "perf_data")):
        counter = Signal(_BITS + 1, name=name)
        with m.If(control[run] & busy & ~counter[_BITS]):
            m.d.sync += counter.eq(counter + amount)
        with m.If(
            (csr.perf_control_strobe & csr.perf_control_data[clear]) | (start & control[auto])
        ):
            m.d.sync += counter.eq(0)
        m.d.comb += [
            getattr(csr, f"{name}_lo").eq(counter[:32]),
            getattr(csr, f"{name}_hi").eq(Cat(counter[32:_BITS], Const(0, 6), counter[_BITS])),
        ]
