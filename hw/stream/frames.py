# SPDX-License-Identifier: BSD-2-Clause
"""Records of frames: what a frame was, in the stream behind its last byte."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .crc import Crc32
from .ring import USER_WIDTH, StreamBeat

__all__ = ["FrameRecorder"]

#: Bytes of a record that leave in one beat, a word.
_BYTES = USER_WIDTH // 8
_WORDS = regs.FRAME_RECORD.itemsize // _BYTES


class FrameRecorder(wiring.Component):
    """Hands frames on, and sends a record behind each.

    Records are bytes of the stream like those of the frames, so they are written to memory behind
    the data, through the same ring by the same channel, wherever the descriptors say: whatever
    holds for data, from back-pressure to the order of writes, holds for them.

    No latency. A beat passes as `Crc32` lets it, and a record takes four cycles.

    Parameters
    ----------
    lanes : int
        Bytes of a full beat of the frames, 4 or 8.

    Members
    -------
    i : In(stream of StreamBeat)
        Frames; `last` ends one.
    o : Out(stream of StreamBeat)
        Here it ends frames and records.
    enable : In(1)
        Send the record of the frame whose last beat passes in this cycle. Its CRC is right if this
        has been high for all of the frame. Low: beats pass at once.
    cycles : In(64)
        Time. A record has that of the cycle in which the first beat of its frame was offered, but
        not before the frame ahead of it had left with its record.
    dropped : In(32)
        The number of frames dropped so far, taken when the record is sent.
    """

    def __init__(self, lanes: int):
        self._lanes = lanes
        super().__init__(
            {
                "i": In(stream.Signature(StreamBeat)),
                "o": Out(stream.Signature(StreamBeat)),
                "enable": In(1),
                "cycles": In(64),
                "dropped": In(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = crc = Crc32(self._lanes)
        passed, sink = crc.o, self.o.payload
        # Of the frame that passes, or whose record is sent.
        number = Signal(31)
        length = Signal(32)
        begun = Signal(64)
        #: its first beat was offered
        open_ = Signal()
        #: its record is sent, word by word
        recording = Signal()
        word = Signal(range(_WORDS))
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
            m.d.comb += [sink.count.eq(_BYTES), sink.last.eq(word == _WORDS - 1)]
        # A multiplexer of four inputs, spelt out so that each of its bits becomes one LUT. What is
        # reserved is the word before it, once more.
        words = _words(
            cycles=begun,
            bytes=length,
            dropped=self.dropped,
            crc=crc.value,
            number=Cat(number, Const(1, 1)),
        )
        select = Signal(2)
        m.d.comb += [
            select.eq(Mux(recording, Mux(word == 0, 1, word), 0)),
            sink.data.eq(
                Mux(
                    select[1],
                    Mux(select[0], words[3], words[2]),
                    Mux(select[0], words[0], passed.payload.data),
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


def _words(**values: Value) -> list[Value | None]:
    """The words of a record; None for what is reserved."""
    words: list[list[Value]] = [[] for _ in range(_WORDS)]
    for name, (dtype, offset) in regs.FRAME_RECORD.fields.items():
        if name in values:
            assert len(values[name]) == 8 * dtype.itemsize, name
            words[offset // _BYTES].append(values[name])
    return [Cat(*parts) if parts else None for parts in words]
