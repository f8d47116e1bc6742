# SPDX-License-Identifier: BSD-2-Clause
"""AXI4-Stream at the ports for user logic: what its rules ask of a transmitter."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.stream.user_blocks import Axis

from .property import Property

__all__ = ["AxiStreamPorts", "WideAxiStreamPorts"]


class AxiStreamPorts(Property):
    """A beat that is offered to user logic stays until it is taken; in reset nothing moves.

    It has the bytes of the ring's beat, in the lowest lanes, one at least. Assumed is of the ring
    only that its beats have a byte at least, and no more than lanes: it may withdraw them, as it
    does when a copy breaks. Nothing is assumed of the user logic. A reset of the block is its first
    cycle.
    """

    WIDTH = 64
    #: beyond a reset of 16 cycles
    reach = 26

    def __init__(self):
        super().__init__(Axis(self.WIDTH))

    def _state(self, m):
        block, inside = self.block, self.inside
        bus, aresetn = block.m_axis_h2c, block.axis.aresetn
        count = block.i.payload.count
        keep = bus.tkeep
        beat = Cat(bus.tdata, keep, bus.tlast)
        waited = self.past(m, bus.tvalid & ~bus.tready)
        taken, counted = (self.past(m, one) for one in (block.i.valid & block.i.ready, count))
        m.d.comb += [
            Assume((count >= 1) & (count <= self.WIDTH // 8)),
            Assert(~waited | (bus.tvalid & (beat == self.past(m, beat)))),
            Assert(~bus.tvalid | (keep[0] & ((keep & (keep + 1)) == 0))),
            *(Assert(~taken | (lane == (counted > n))) for n, lane in enumerate(keep)),
            Assert(aresetn | ~(bus.tvalid | block.s_axis_c2h.tready)),
            Assert(aresetn | ~(block.i.ready | block.o.valid)),
            # Once over, a reset stays so until the next one.
            Assert(aresetn | ~self.past(m, aresetn)),
            # What is inside.
            Assert(aresetn | (inside("inwards.queue.fifo.level") == 0)),
        ]
        self.cover(
            m,
            waited & bus.tready & ~keep.all(),
            block.o.valid & (block.o.payload.count == 5),
        )


class WideAxiStreamPorts(AxiStreamPorts):
    """The same at 256 bits."""

    WIDTH = 256
