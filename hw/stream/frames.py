# SPDX-License-Identifier: BSD-2-Clause
"""Records of frames: what a frame was, in the stream behind its last byte."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .crc import Crc32
from .ring import stream_beat

__all__ = ["FrameRecorder"]


class FrameRecorder(wiring.Component):
    """Hands frames on, and sends a record behind each.

    Records are bytes of the stream like those of the frames, so they are written to memory behind
    the data, through the same ring by the same channel, wherever the descriptors say: whatever
    holds for data, from back-pressure to the order of writes, holds for them.

    No latency. A beat passes as `Crc32` lets it. A record takes as many cycles as it has words of
    a beat's width: four of 64 bits, two of 128, or one of 256.

    Parameters
    ----------
    lanes : int
        Bytes of a full beat of the frames, 4, 8, 16 or 32.
    width : int
        Bits of a beat: 64, 128 or 256.

    Members
    -------
    i : In(stream of stream_beat)
        Frames; `last` ends one.
    o : Out(stream of stream_beat)
        Here it ends frames and records.
    enable : In(1)
        Send the record of the frame whose last beat passes in this cycle. Its CRC is right if this
        has been high for all of the frame. Low: beats pass at once.
    cycles : In(64)
        Time. A record has that of the cycle in which the first beat of its frame was offered, but
        not before the frame ahead of it had left with its record.
    dropped : In(32)
        The number of frames dropped so far, taken when that word of the record is sent.
    """

    def __init__(self, lanes: int, *, width: int):
        self._lanes, self._width = lanes, width
        super().__init__(
            {
                "i": In(stream.Signature(stream_beat(width))),
                "o": Out(stream.Signature(stream_beat(width))),
                "enable": In(1),
                "cycles": In(64),
                "dropped": In(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = crc = Crc32(self._lanes, width=self._width)
        passed, sink = crc.o, self.o.payload
        # Of the frame that passes, or whose record is sent.
        number = Signal(31)
        length = Signal(32)
        begun = Signal(64)
        #: its first beat was offered
        open_ = Signal()
        #: its record is sent, word by word
        recording = Signal()
        words = self._words(
            cycles=begun,
            reserved=begun,
            bytes=length,
            dropped=self.dropped,
            crc=crc.value,
            number=Cat(number, Const(1, 1)),
        )
        word = Signal(range(len(words)))
        m.d.comb += [
            crc.enable.eq(self.enable),
            crc.i.payload.eq(self.i.payload),
            crc.i.valid.eq(self.i.valid & ~recording),
            self.i.ready.eq(crc.i.ready & ~recording),
            passed.ready.eq(self.o.ready),
            self.o.valid.eq(passed.valid | recording),
            sink.eq(passed.payload),
        ]
        with m.If(recording):
            m.d.comb += [
                sink.count.eq(self._width // 8),
                sink.last.eq(word == len(words) - 1),
            ]
        # A multiplexer of four inputs, spelt out so that each of its bits becomes one LUT. Of four
        # words the first two are the same.
        sources = [passed.payload.data, *words[-3:]]
        sources += sources[-1:] * (4 - len(sources))
        place = Mux(word == 0, 1, word) if len(words) == 4 else word + 1
        select = Signal(2)
        m.d.comb += [
            select.eq(Mux(recording, place, 0)),
            sink.data.eq(
                Mux(
                    select[1],
                    Mux(select[0], sources[3], sources[2]),
                    Mux(select[0], sources[1], sources[0]),
                )
            ),
        ]

        done = Signal()
        with m.If(self.o.valid & self.o.ready):
            with m.If(recording):
                m.d.sync += word.eq(word + 1)
                m.d.comb += done.eq(sink.last)
            with m.Else():
                m.d.sync += [length.eq(length + sink.count), recording.eq(sink.last & self.enable)]
                m.d.comb += done.eq(sink.last & ~self.enable)
        with m.If(~open_):
            m.d.sync += [begun.eq(self.cycles), open_.eq(self.i.valid)]
        m.d.comb += crc.clear.eq(done)
        with m.If(done):
            m.d.sync += [recording.eq(0), open_.eq(0), length.eq(0), number.eq(number + 1)]
        return m

    def _words(self, **values: Value) -> list[Value]:
        """A record with these values, in words of a beat's width."""
        fields = regs.FRAME_RECORD.fields
        assert all(len(values[name]) == 8 * dtype.itemsize for name, (dtype, _) in fields.items())
        record = Cat(values[name] for name in fields)
        return [record[at : at + self._width] for at in range(0, len(record), self._width)]
