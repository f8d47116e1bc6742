# SPDX-License-Identifier: BSD-2-Clause
"""How many non-posted requests of the host may come."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["NonPostedCredits"]

#: Requests that may still come after the core has said that it wants no more, as the seam has it.
_MOST = 2


class NonPostedCredits(wiring.Component):
    """Gives the block credits for non-posted requests, so that two at most are under way.

    The block holds back non-posted requests for which it has no credit, and lets writes pass.

    Members
    -------
    ok : In(1)
        As `target_np_ok` of the seam.
    arrives : In(1)
        The core takes the first beat of such a request.
    request : Out(1)
        For a cycle: another may come.
    """

    ok: In(1)
    arrives: In(1)
    request: Out(1)

    def elaborate(self, platform):
        m = Module()
        granted = Signal(range(_MOST + 1))
        m.d.comb += self.request.eq(self.ok & (granted != _MOST))
        m.d.sync += granted.eq(granted + self.request - self.arrives)
        return m
