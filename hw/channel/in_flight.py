# SPDX-License-Identifier: BSD-2-Clause
"""The descriptors of a channel whose data is being moved."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..parts.queue import Queue
from ..records import InFlight, Outcome

__all__ = ["InFlightQueue"]

#: Descriptors in flight at most: a memory of 32, and the output register behind it.
DEPTH = 33


class InFlightQueue(wiring.Component):
    """Retires descriptors in order, each when its data has been moved.

    Spans finish in the order of their descriptors. How many have finished is counted here, while
    descriptors without data leave the queue in front of theirs.

    Parameters
    ----------
    shared : bool
        The channel has another owner, too.

    Members
    -------
    entry : In(stream of InFlight)
    finished : In(stream of Outcome, always ready)
        The oldest span has finished: OK, or its first error. Errors may come for a piece in the
        middle of a span; behind the first one nothing counts.
    flush : In(1)
        Drop all entries, forget finished spans and the error.
    oldest : Out(stream of InFlight)
        The oldest descriptor, once its data has been moved.
    failure : Out(Outcome)
        The first error of a span, else OK. It belongs to the descriptor behind those that `oldest`
        still offers.
    empty : Out(1)
        There is no entry. Only if `shared`.
    """

    def __init__(self, shared: bool = False):
        self._shared = shared
        super().__init__(
            {
                "entry": In(stream.Signature(InFlight)),
                "finished": In(stream.Signature(Outcome, always_ready=True)),
                "flush": In(1),
                "oldest": Out(stream.Signature(InFlight)),
                "failure": Out(Outcome),
                **({"empty": Out(1)} if shared else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Buffered, because the run state decides by what is at the output.
        queue = Queue(InFlight, DEPTH, buffered=True)
        m.submodules.queue = ResetInserter(self.flush)(queue)
        wiring.connect(m, wiring.flipped(self.entry), queue.i)
        count = Signal(range(DEPTH + 1))
        #: `count` is not 0
        any_finished = Signal()
        arrived, used = Signal(), Signal()
        oldest = self.oldest.payload
        m.d.comb += [
            oldest.eq(queue.o.payload),
            queue.o.ready.eq(self.oldest.ready),
            self.oldest.valid.eq(queue.o.valid & (oldest.immediate | any_finished)),
            used.eq(self.oldest.valid & self.oldest.ready & ~oldest.immediate),
        ]
        with m.If(self.finished.valid & (self.failure == Outcome.OK)):
            m.d.sync += self.failure.eq(self.finished.payload)
            m.d.comb += arrived.eq(self.finished.payload == Outcome.OK)
        m.d.sync += [
            count.eq(count + arrived - used),
            any_finished.eq(arrived | (count > 1) | (any_finished & ~used)),
        ]
        if self._shared:
            m.d.comb += self.empty.eq(queue.level == 0)
        with m.If(self.flush):
            m.d.sync += [count.eq(0), any_finished.eq(0), self.failure.eq(Outcome.OK)]
        return m
