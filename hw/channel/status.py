# SPDX-License-Identifier: BSD-2-Clause
"""Status, completed count and interrupt of a channel."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .errors import status_bits
from .signatures import STATUS_BITS, RunEventsSignature

__all__ = ["ChannelStatus"]


class ChannelStatus(wiring.Component):
    """Keeps the events of a run until software clears them, and counts its descriptors.

    Parameters
    ----------
    c2h : bool
        The channel's direction, which decides about the status bits that there are.

    Members
    -------
    run : In(RunEventsSignature)
        Events are kept if Control enables their logging.
    control, interrupt_enable : In(32)
        The registers of these names.
    clear : In(32)
        Status bits that software clears in this cycle. An event that occurs in the same one stays.
    status, count : Out(32)
        What software reads.
    interrupt : Out(1)
        Status AND interrupt enable.
    """

    run: In(RunEventsSignature())
    control: In(32)
    interrupt_enable: In(32)
    clear: In(32)
    status: Out(32)
    count: Out(32)
    interrupt: Out(1)

    def __init__(self, *, c2h: bool):
        self._bits = int(status_bits(c2h=c2h))
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        run = self.run
        logged, kept = Signal(STATUS_BITS), Signal(STATUS_BITS)
        count = Signal(32)
        m.d.comb += [
            logged.eq(run.event & self.control),
            self.status.eq(Cat(run.busy, Mux(run.rise, 0, kept[1:]))),
            self.count.eq(Mux(run.rise, 0, count)),
            self.interrupt.eq((kept & self.interrupt_enable[:STATUS_BITS]).any()),
        ]
        m.d.sync += [
            kept.eq(((kept & ~self.clear[:STATUS_BITS]) | logged) & self._bits),
            count.eq(count + run.counted),
        ]
        with m.If(run.rise):
            m.d.sync += [kept.eq(0), count.eq(0)]
        return m
