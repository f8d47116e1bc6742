# SPDX-License-Identifier: BSD-2-Clause
"""The receiver's internal data width, changed at the transceiver's reconfiguration port."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ADDRESS", "WIDTH_BIT", "DrpSignature", "RxWidth"]

#: RX_DATA_WIDTH of GTPE2_CHANNEL at its reconfiguration port (UG482, DRP address map): of its
#: three bits at 13:11 the lowest tells 20 bits from 16.
ADDRESS, WIDTH_BIT = 0x011, 11


class DrpSignature(wiring.Signature):
    """Dynamic reconfiguration port of a transceiver (UG482), seen from what uses it.

    An access is `en` for one cycle, with `we` and `di` for a write; `rdy` ends it, with `do`.
    """

    def __init__(self):
        super().__init__(
            {
                "en": Out(1),
                "we": Out(1),
                "addr": Out(9),
                "di": Out(16),
                "do": In(16),
                "rdy": In(1),
            }
        )


class RxWidth(wiring.Component):
    """Switches the receiver between 16 and 20 bits by a read-modify-write of one bit.

    UG482 requires a width of 16 bits while the receiver's PMA is in reset, and 20 before the rest
    of the reset sequence. A receiver that is reset at 20 bits may come up with the wrong phase.

    Members
    -------
    request : In(1), done : Out(1)
        Four-phase handshake: `done` rises when the register is written and falls after `request`.
    narrow : In(1)
        16 bits instead of 20; stable while `request` is 1.
    drp : Out(DrpSignature)
        In the clock domain of this component.
    """

    request: In(1)
    narrow: In(1)
    done: Out(1)
    drp: Out(DrpSignature())

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.drp.addr.eq(ADDRESS)
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.request):
                    m.next = "Read"
            with m.State("Read"):
                m.d.comb += self.drp.en.eq(1)
                m.next = "Modify"
            with m.State("Modify"):
                with m.If(self.drp.rdy):
                    m.d.sync += [
                        self.drp.di.eq(self.drp.do),
                        self.drp.di[WIDTH_BIT].eq(~self.narrow),
                    ]
                    m.next = "Write"
            with m.State("Write"):
                m.d.comb += [self.drp.en.eq(1), self.drp.we.eq(1)]
                m.next = "Written"
            with m.State("Written"):
                with m.If(self.drp.rdy):
                    m.next = "Done"
            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                with m.If(~self.request):
                    m.next = "Idle"
        return m
