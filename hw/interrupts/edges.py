# SPDX-License-Identifier: BSD-2-Clause
"""Which interrupt messages are owed: one for each rising edge of a request."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["EdgeTracker"]


class EdgeTracker(wiring.Component):
    """Keeps for each source whether a message is owed.

    A request that falls takes its message back. The source is then looked at once more, because
    the message may have left a pending bit.

    Parameters
    ----------
    sources : int
    early : int
        The first sources, whose edges are at `ready` at once.

    Members
    -------
    request : In(sources)
        Levels.
    enabled : In(1)
        Messages are on. Edges count from that moment: what is requested by then makes one.
    picked : In(sources)
        One bit, of the source that the three inputs below and `alive` are of, or none.
    sent : In(1)
        Its message is on its way: until the next edge none is owed.
    lost : In(1)
        Its message was dropped: the level that stands counts as an edge.
    masked : In(1)
        Its vector was found masked: its message is deferred. Never together with `recheck`.
    settled : In(1)
        No message of it is owed, and no pending bit stands for one. Only together with `recheck`.
    recheck : In(1)
        No message is deferred any more.
    ready : Out(sources)
        To be looked at: messages that are owed and not deferred, or that were taken back; of the
        `early` sources those, too, that are owed from the next cycle on.
    alone : Out(early)
        The `early` sources of `ready`, if there are no others and their edges are in this cycle.
    gone : In(1), chosen : In(1)
        The lowest of `alone`, which is `picked` from the next cycle on: its message is on its way,
        and is not owed; or it is owed.
    alive : Out(1)
        The message of `picked` was owed, and still requested, in the cycle before; or was `chosen`
        then. Registered, because this is the critical path.
    """

    def __init__(self, sources: int, early: int = 0):
        self._early = early
        super().__init__(
            {
                "request": In(sources),
                "enabled": In(1),
                "picked": In(sources),
                "sent": In(1),
                "lost": In(1),
                "masked": In(1),
                "settled": In(1),
                "recheck": In(1),
                "ready": Out(sources),
                "alone": Out(early),
                "gone": In(1),
                "chosen": In(1),
                "alive": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, bit = self.request, self.picked
        before, pending, deferred = (
            Signal.like(request, name=name) for name in ("before", "pending", "deferred")
        )
        edge = request & ~before
        early = Mux(self.enabled, edge[: self._early], 0)
        waiting = pending ^ deferred
        m.d.comb += [
            self.ready.eq(waiting | early),
            self.alone.eq(Mux(waiting.any(), 0, early)),
        ]
        # With `recheck`, `hit` is for what is settled, and without for what is masked.
        hit = Mux(self.masked | self.settled, bit, 0)
        again = self.recheck.replicate(len(request))
        gone = Mux(self.gone, (self.alone & -self.alone)[: self._early], 0)
        m.d.sync += [
            self.alive.eq((pending & request & bit).any() | self.chosen),
            before.eq(request),
            pending.eq(
                request
                & (~(before | gone) | (pending & ~Mux(self.sent, bit, 0)) | Mux(self.lost, bit, 0))
            ),
            # Without a request: what was taken back, until that is settled. An edge starts anew.
            deferred.eq(
                (request & pending & ~again & (deferred | hit))
                | (~request & (deferred | pending) & ~(hit & again))
            ),
        ]
        with m.If(~self.enabled):
            m.d.sync += [before.eq(0), pending.eq(0)]
        return m
