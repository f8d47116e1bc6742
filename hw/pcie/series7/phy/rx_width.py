# SPDX-License-Identifier: BSD-2-Clause
"""The receiver's internal data width, changed at the transceiver's reconfiguration port."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ADDRESS", "WIDTH_BIT", "RxWidth"]

#: RX_DATA_WIDTH of GTPE2_CHANNEL at its reconfiguration port (UG482, DRP address map): of its
#: three bits at 13:11 the lowest tells 20 bits from 16.
ADDRESS, WIDTH_BIT = 0x011, 11


class RxWidth(wiring.Component):
    """Reads the register, changes the one bit, writes it back.

    UG482 wants the receiver 16 bits wide while its PMA is in reset, and 20 again before its reset
    goes on; a receiver that is reset at 20 may come up with a wrong phase.

    Members
    -------
    request : In(1), done : Out(1)
        Four-phase: `request` rises, `done` rises when it is written, `request` falls, `done` falls.
    narrow : In(1)
        16 bits instead of 20; stable while `request` is 1.
    drp_en, drp_we, drp_addr, drp_di : Out; drp_do, drp_rdy : In
        The port; the clock of this component is its clock.
    """

    request: In(1)
    narrow: In(1)
    done: Out(1)
    drp_en: Out(1)
    drp_we: Out(1)
    drp_addr: Out(9)
    drp_di: Out(16)
    drp_do: In(16)
    drp_rdy: In(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.drp_addr.eq(ADDRESS)
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.request):
                    m.next = "Read"
            with m.State("Read"):
                m.d.comb += self.drp_en.eq(1)
                m.next = "Take"
            with m.State("Take"):
                with m.If(self.drp_rdy):
                    m.d.sync += [
                        self.drp_di.eq(self.drp_do),
                        self.drp_di[WIDTH_BIT].eq(~self.narrow),
                    ]
                    m.next = "Write"
            with m.State("Write"):
                m.d.comb += [self.drp_en.eq(1), self.drp_we.eq(1)]
                m.next = "Written"
            with m.State("Written"):
                with m.If(self.drp_rdy):
                    m.next = "Done"
            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                with m.If(~self.request):
                    m.next = "Idle"
        return m
