# SPDX-License-Identifier: BSD-2-Clause
"""A first-in, first-out queue of records."""

from amaranth import *
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """Keeps the payloads of a stream, in order, until they are taken.

    Latency: a payload that enters an empty queue is offered in the next cycle, or one cycle
    later if the queue is buffered. One payload enters and one leaves in each cycle; a full queue
    takes none, even in a cycle in which one leaves. Wrap it in `ResetInserter` to empty it.

    Parameters
    ----------
    shape : ShapeLike
        Of a payload.
    depth : int
        Payloads that it holds at most.
    buffered : bool
        Drive the output from a register, which is one of the `depth`.

    Members
    -------
    i : In(stream of shape), o : Out(stream of shape)
    level : Out(range(depth + 1))
        Payloads in the queue.
    """

    def __init__(self, shape, depth: int, *, buffered: bool = False):
        kind = fifo.SyncFIFOBuffered if buffered else fifo.SyncFIFO
        self._fifo = kind(width=Shape.cast(shape).width, depth=depth)
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = inner = self._fifo
        m.d.comb += [
            inner.w_data.eq(self.i.payload),
            inner.w_en.eq(self.i.valid),
            self.i.ready.eq(inner.w_rdy),
            Value.cast(self.o.payload).eq(inner.r_data),
            self.o.valid.eq(inner.r_rdy),
            inner.r_en.eq(self.o.ready),
            self.level.eq(inner.level),
        ]
        return m
