# SPDX-License-Identifier: BSD-2-Clause
"""A register slice: cuts all combinational paths through a stream."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Slice"]


class Slice(wiring.Component):
    """Payload, `valid` and `ready` are registers, and one payload passes in each cycle.

    Latency: 1 cycle. Holds two payloads: `i.ready` falls a cycle after `o.ready`, and what comes in
    that cycle waits in a second register.

    Parameters
    ----------
    shape : ShapeLike
        Of a payload.

    Members
    -------
    i : In(stream of shape), o : Out(stream of shape)
    """

    def __init__(self, shape):
        self._shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        waiting = Signal(self._shape)
        full, room = Signal(), Signal()
        m.d.comb += [self.i.ready.eq(~full), room.eq(~self.o.valid | self.o.ready)]
        with m.If(room):
            m.d.sync += [
                self.o.payload.eq(Mux(full, waiting, self.i.payload)),
                self.o.valid.eq(full | self.i.valid),
                full.eq(0),
            ]
        with m.Elif(self.i.valid & ~full):
            m.d.sync += [waiting.eq(self.i.payload), full.eq(1)]
        return m
