# SPDX-License-Identifier: BSD-2-Clause
"""Round-robin arbitration."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RoundRobin"]


class RoundRobin(wiring.Component):
    """Chooses one of several requests: the next one in the circle.

    Parameters
    ----------
    count : int
        Number of requests.
    registered : bool
        `grant` is a register. It moves on after `advance`, so a request that comes while another
        one is granted waits one more cycle.

    Members
    -------
    requests : In(count)
    advance : In(1)
        The request that is granted is served in this cycle. If `registered`: it need not be
        granted any longer.
    grant : Out(range(count))
        The first request behind the one that was served last, which itself comes last; 0 if there
        is no request. If `registered`: the request that was chosen at the last `advance`; it stays
        if there was no other.
    """

    def __init__(self, count: int, *, registered: bool = False):
        self._count = count
        self._registered = registered
        super().__init__(
            {"requests": In(count), "advance": In(1), "grant": Out(range(count))},
        )

    def elaborate(self, platform):
        m = Module()
        last = Signal.like(self.grant)
        following = Signal.like(self.grant)
        if self._registered:
            m.d.comb += [self.grant.eq(last), following.eq(last)]
        else:
            m.d.comb += self.grant.eq(following)
        with m.Switch(last):
            for current in range(self._count):
                with m.Case(current):
                    # The last assignment wins: that of the nearest request.
                    for step in reversed(range(1, self._count + 1)):
                        index = (current + step) % self._count
                        with m.If(self.requests[index]):
                            m.d.comb += following.eq(index)
        with m.If(self.advance):
            m.d.sync += last.eq(following)
        return m
