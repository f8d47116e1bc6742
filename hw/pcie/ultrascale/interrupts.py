# SPDX-License-Identifier: BSD-2-Clause
"""INTx and MSI by the block's configuration interface."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import InterruptRequest

__all__ = ["Interrupts"]


class Interrupts(wiring.Component):
    """Asks the block for one interrupt at a time, and waits until it says that it has sent it.

    A message that the block could not send is asked for again. A request that software has made
    pointless meanwhile, by enabling or disabling messages, ends without one.

    Members
    -------
    request : In(stream of InterruptRequest)
    msi_enable, msix_enable : In(1)
    asserted : Out(1), sent : In(1)
        INTA, and that the block has sent its change.
    message : Out(32), message_sent, message_failed : In(1)
        For a cycle, the bit of a message; what became of it.
    """

    request: In(stream.Signature(InterruptRequest))
    msi_enable: In(1)
    msix_enable: In(1)
    asserted: Out(1)
    sent: In(1)
    message: Out(32)
    message_sent: In(1)
    message_failed: In(1)

    def elaborate(self, platform):
        m = Module()
        request = self.request.payload
        messages = self.msi_enable | self.msix_enable
        m.d.sync += self.message.eq(0)
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.request.valid & request.msi):
                    m.d.sync += self.message.eq(1 << request.vector)
                    m.next = "Message"
                with m.Elif(self.request.valid):
                    m.d.sync += self.asserted.eq(request.asserted)
                    m.next = "Level"
            with m.State("Message"):
                m.d.comb += self.request.ready.eq(self.message_sent | ~self.msi_enable)
                with m.If(self.request.ready | self.message_failed):
                    m.next = "Idle"
            with m.State("Level"):
                m.d.comb += self.request.ready.eq(self.sent | messages)
                with m.If(self.request.ready):
                    m.next = "Idle"
        with m.If(messages):
            m.d.sync += self.asserted.eq(0)
        return m
