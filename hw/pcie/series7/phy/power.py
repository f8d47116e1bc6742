# SPDX-License-Identifier: BSD-2-Clause
"""Power management: the answer to PME_Turn_Off."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["TurnOff"]


class TurnOff(wiring.Component):
    """Lets the PCIe block answer a PME_Turn_Off once none of our requests is outstanding.

    A host that suspends or shuts down sends PME_Turn_Off and removes power after PME_TO_Ack (PCI
    Express 5.3.3.2.1). Outstanding reads end by their completion timeout at the latest, so the
    answer comes in bounded time.

    Members
    -------
    received : In(1)
        CFGMSGRECEIVEDPMETO.
    pending_n : In(1)
        CFGTRNPENDINGN: 0 while requests are outstanding.
    ok_n : Out(1)
        CFGPMTURNOFFOKN: 0 for one cycle is the answer.
    """

    received: In(1)
    pending_n: In(1)
    ok_n: Out(1, init=1)

    def elaborate(self, platform):
        m = Module()
        asked = Signal()
        m.d.sync += self.ok_n.eq(1)
        with m.If(self.received):
            m.d.sync += asked.eq(1)
        with m.Elif(asked & self.pending_n):
            m.d.sync += [asked.eq(0), self.ok_n.eq(0)]
        return m
