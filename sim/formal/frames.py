# SPDX-License-Identifier: BSD-2-Clause
"""Frames and their records."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.utils import exact_log2

from hw.stream.frames import FrameRecorder
from peerdma import regs

from .property import Property

__all__ = ["Frames", "WideFrames", "WidestFrames"]

#: bytes of a full beat of a frame
_LANES = 4


class Frames(Property):
    """A frame has a record behind it if it ends while that is enabled, and nothing else changes.

    Nothing comes between a frame's last byte and its record, whose length is that of the frame, and
    whose number is that of frames before. Assumed: no beat has more bytes than a full one.
    """

    WIDTH = 64

    def __init__(self):
        super().__init__(FrameRecorder(_LANES, width=self.WIDTH))

    def _state(self, m):
        block, inside, lanes = self.block, self.inside, self.WIDTH // 8
        beats = regs.FRAME_RECORD.itemsize // lanes
        into, out = block.i.payload, block.o.payload
        taken, sent = block.i.valid & block.i.ready, block.o.valid & block.o.ready
        #: beats of a record that are still to be sent
        owed = Signal(range(beats + 1))
        number, length = Signal(31), Signal(32)
        ends = Signal()
        m.d.comb += [
            Assume((into.count != 0) & (into.count <= _LANES)),
            ends.eq(Mux(owed == 0, taken & into.last & ~block.enable, sent & (owed == 1))),
            # What is inside.
            Assert(owed <= beats),
            Assert(inside("recording") == (owed != 0)),
            Assert(inside("word") == (beats - owed)[: exact_log2(beats)]),
            Assert(inside("number") == number),
            Assert(inside("length") == length),
        ]
        with m.If(owed == 0):
            m.d.comb += [
                Assert(taken == sent),
                Assert(~block.o.valid | block.i.valid),
                Assert(out.as_value() == into.as_value()),
            ]
            with m.If(taken):
                m.d.sync += length.eq(length + into.count)
            with m.If(taken & into.last & block.enable):
                m.d.sync += owed.eq(beats)
        with m.Else():
            m.d.comb += [
                Assert(block.o.valid & ~taken),
                Assert((out.count == lanes) & (out.last == (owed == 1))),
            ]
            for name, value in (
                ("bytes", length),
                ("dropped", block.dropped),
                ("number", Cat(number, Const(1, 1))),
            ):
                beat, byte = divmod(regs.FRAME_RECORD.fields[name][1], lanes)
                here = out.data[8 * byte : 8 * byte + len(value)] == value
                m.d.comb += Assert((owed != beats - beat) | here)
            with m.If(sent):
                m.d.sync += owed.eq(owed - 1)
        with m.If(ends):
            m.d.sync += [number.eq(number + 1), length.eq(0)]
        self.cover(
            m,
            ends & (owed == 1) & (number == 1),
            ends & (owed == 0),
            taken & (into.count == 1),
        )


class WideFrames(Frames):
    """The same at 128 bits, where a record has two beats."""

    WIDTH = 128


class WidestFrames(Frames):
    """The same at 256 bits, where a record has one beat."""

    WIDTH = 256
