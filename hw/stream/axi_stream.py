# SPDX-License-Identifier: BSD-2-Clause
"""A user stream as AXI4-Stream (ARM IHI 0051), for logic that is not written in Amaranth.

InboundRing ──beats──▶ ToAxiStream ──m_axis_h2c──▶ user's logic
OutboundRing ◀─beats── FromAxiStream ◀─s_axis_c2h── user's logic
"""

from typing import ClassVar

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..parts.queue import Queue
from ..registers.window import RegisterPort
from .ring import stream_beat

__all__ = ["AxiStream", "FromAxiStream", "StreamResetPort", "ToAxiStream", "UserPorts"]


class AxiStream(wiring.Signature):
    """AXI4-Stream, from the side of the transmitter.

    Parameters
    ----------
    width : int
        Bits of `tdata`, a multiple of 8.

    Members
    -------
    tdata : Out(width)
        Bytes in memory order from lane 0, which is bits 7:0.
    tkeep : Out(width // 8)
        The lanes that hold a byte of the stream.
    tlast : Out(1)
        The last beat of a packet.
    tvalid : Out(1), tready : In(1)
        A beat is transferred in each cycle in which both are high. Once `tvalid` is high, it and
        all of the beat stay until then; it does not wait for `tready`.
    """

    def __init__(self, width: int):
        if width <= 0 or width % 8:
            raise ValueError(f"AXI4-Stream carries bytes: {width} bits are no multiple of 8")
        super().__init__(
            {
                "tdata": Out(width),
                "tkeep": Out(width // 8),
                "tlast": Out(1),
                "tvalid": Out(1),
                "tready": In(1),
            }
        )


class StreamResetPort(wiring.Signature):
    """The reset of what is connected to the streams of a pair.

    Members
    -------
    aresetn : Out(1)
        Low for 16 cycles or more, from the cycle after the pair is flushed.
    """

    def __init__(self):
        super().__init__({"aresetn": Out(1)})


class UserPorts(wiring.Signature):
    """All that a pair's user logic is connected to, from the core's side.

    Parameters
    ----------
    width : int
        Bits of a beat of the streams.

    Members
    -------
    axis : Out(StreamResetPort)
    m_axis_h2c : Out(AxiStream)
        What the pair's H2C channel reads.
    s_axis_c2h : In(AxiStream)
        What its C2H channel writes.
    reg : Out(RegisterPort)
        The pair's part of the user BAR.
    """

    #: What each member is, for people; keys are those of the nested interfaces, joined by "_".
    DOCS: ClassVar[dict[str, str]] = {
        "axis_aresetn": "0: reset all that is connected to the two streams",
        "m_axis_h2c_tdata": "H2C: bytes in memory order from lane 0",
        "m_axis_h2c_tkeep": "lanes that hold a byte, without a gap from lane 0",
        "m_axis_h2c_tlast": "always 0: H2C has no packets",
        "m_axis_h2c_tvalid": "a beat is offered, until m_axis_h2c_tready",
        "m_axis_h2c_tready": "the beat is taken",
        "s_axis_c2h_tdata": "C2H: bytes in memory order from lane 0",
        "s_axis_c2h_tkeep": "lanes that hold a byte; any, even none",
        "s_axis_c2h_tlast": "the last beat of a packet",
        "s_axis_c2h_tvalid": "a beat is offered, until s_axis_c2h_tready",
        "s_axis_c2h_tready": "the beat is taken",
        "reg_aresetn": "0: reset the registers",
        "reg_waddr": "byte address of a write, a multiple of 8",
        "reg_wdata": "what is written",
        "reg_wstrb": "the bytes that are written in this cycle; else 0",
        "reg_raddr": "byte address of a read, a multiple of 8",
        "reg_rstrb": "the bytes that are read in this cycle; else 0",
        "reg_rdata": "what was read in the cycle before",
    }

    def __init__(self, width: int):
        super().__init__(
            {
                "axis": Out(StreamResetPort()),
                "m_axis_h2c": Out(AxiStream(width)),
                "s_axis_c2h": In(AxiStream(width)),
                "reg": Out(RegisterPort((regs.USER_BLOCK_SIZE - 1).bit_length())),
            }
        )

    def flat_members(self) -> list[tuple[tuple[str, str], wiring.Member]]:
        """All signals by interface and name; their flow is as seen from the core."""
        return [(path, member) for path, member in self.members.flatten() if member.is_port]


class ToAxiStream(wiring.Component):
    """Beats of a user stream as AXI4-Stream, a beat in each cycle, latency one cycle.

    A beat that was offered at `o` stays there even if `i` withdraws it.

    Parameters
    ----------
    width : int
        Bits of a beat.

    Members
    -------
    i : In(stream of stream_beat)
    o : Out(AxiStream)
        The bytes of a beat are in the lowest lanes.
    """

    def __init__(self, width: int):
        super().__init__(
            {"i": In(stream.Signature(stream_beat(width))), "o": Out(AxiStream(width))}
        )

    def elaborate(self, platform):
        m = Module()
        beat, out = self.i.payload, self.o
        m.d.comb += self.i.ready.eq(~out.tvalid | out.tready)
        with m.If(self.i.ready):
            m.d.sync += [
                out.tvalid.eq(self.i.valid),
                out.tdata.eq(beat.data),
                out.tkeep.eq((1 << beat.count) - 1),
                out.tlast.eq(beat.last),
            ]
        return m


class FromAxiStream(wiring.Component):
    """AXI4-Stream as beats of a user stream, a beat in each cycle, latency two cycles.

    Any lanes may hold bytes: they move together, in their order. A beat without a byte is dropped,
    unless it ends a packet: then it is passed on with a `count` of 0.

    Parameters
    ----------
    width : int
        Bits of a beat.

    Members
    -------
    i : In(AxiStream)
    o : Out(stream of stream_beat)
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            {"i": In(AxiStream(width)), "o": Out(stream.Signature(stream_beat(width)))}
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 8
        # Two beats, so that `tready` comes from registers, whatever is behind.
        m.submodules.queue = queue = Queue(
            data.StructLayout({"data": self._width, "keep": lanes, "last": 1}), 2
        )
        beat, out = queue.o.payload, self.o.payload
        m.d.comb += [
            queue.i.payload.data.eq(self.i.tdata),
            queue.i.payload.keep.eq(self.i.tkeep),
            queue.i.payload.last.eq(self.i.tlast),
            queue.i.valid.eq(self.i.tvalid),
            self.i.tready.eq(queue.i.ready),
            queue.o.ready.eq(~self.o.valid | self.o.ready),
        ]

        # Lane n goes to the lane whose number is how many lanes below it hold a byte.
        packed = [Const(0, 8)] * lanes
        below = Const(0, 1)
        for lane in range(lanes):
            held, byte = beat.keep[lane], beat.data.word_select(lane, 8)
            for target in range(lane + 1):
                here = held & (below == target)
                packed[target] = packed[target] | Mux(here, byte, 0)
            total = Signal(range(lane + 2), name=f"bytes_to_lane{lane}")
            m.d.comb += total.eq(below + held)
            below = total
        with m.If(queue.o.ready):
            m.d.sync += [
                self.o.valid.eq(queue.o.valid & (beat.keep.any() | beat.last)),
                out.data.eq(Cat(packed)),
                out.count.eq(below),
                out.last.eq(beat.last),
            ]
        return m
