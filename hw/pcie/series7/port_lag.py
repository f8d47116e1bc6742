# SPDX-License-Identifier: BSD-2-Clause
"""Bounds how far the receive port falls behind the link, from what passes the port."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...seam import FRAMING_BYTES, Block
from ..tlp import Dword0, TlpType
from .parameters import PARAMETERS

__all__ = ["LARGEST_TLP", "PortLag"]

#: Bytes of the largest TLP on the link: its payload, four dwords of header, a digest, and framing.
LARGEST_TLP = (128 << PARAMETERS["DEV_CAP_MAX_PAYLOAD_SUPPORTED"]) + 16 + 4 + FRAMING_BYTES
#: Bytes that pass with the last beat of a TLP.
_MOST_PASSED = 8 + FRAMING_BYTES


class PortLag(wiring.Component):
    """Says when the port may be more than half of `Block.port_lag` behind, or was.

    What the block has received cannot be seen, only what it hands on. But after a pause as long as
    `PortContract.idle` it holds nothing but a TLP that is just coming. From then on, the link has
    brought at most its rate times the cycles, and what has passed the port since is counted; the
    difference is what may still be in the block. If it exceeds that TLP and what comes in half of
    the lag, the port may be that far behind. If as much more has passed than can have come, it was
    that far behind when it paused: pauses do not mean what they should.

    Non-posted requests do not count, since those that the core holds back may be from before. So
    they look like cycles without a beat.

    Latency: `behind` rises two cycles after the beat, or the cycle without one, that is the cause.

    Parameters
    ----------
    block : Block
        With a `PortContract`.
    clock_khz : int

    Members
    -------
    dword0, valid, first, last, whole, discontinued : In
        `trnrd[63:32]`, `trnrsrcrdy`, `trnrsof`, `trnreof`, `trnrrem`, `trnrsrcdsc`.
    behind : Out(1)
        Stays high.

    Raises
    ------
    ValueError
        As `Block.port_lag`.
    """

    dword0: In(32)
    valid: In(1)
    first: In(1)
    last: In(1)
    whole: In(1)
    discontinued: In(1)
    behind: Out(1)

    def __init__(self, block: Block, clock_khz: int):
        self._rate = block.port.link_bytes(clock_khz) if block.port else 0
        #: bytes that come in half of the lag
        self.half: int = block.port_lag(clock_khz) // 2 * self._rate
        self._idle = block.port.idle
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        # The paths from the PCIe block's ports are long: register them before any logic.
        dword0, valid, first, last, whole, discontinued = (
            Signal.like(each, name=f"{name}_before")
            for name, each in (
                ("dword0", Dword0(self.dword0)),
                ("valid", self.valid),
                ("first", self.first),
                ("last", self.last),
                ("whole", self.whole),
                ("discontinued", self.discontinued),
            )
        )
        m.d.sync += [
            dword0.eq(self.dword0),
            valid.eq(self.valid),
            first.eq(self.first),
            last.eq(self.last),
            whole.eq(self.whole),
            discontinued.eq(self.discontinued),
        ]

        kind = dword0.type
        message = kind[3:] == 0b10
        completes = (kind == TlpType.COMPLETION) | (kind == TlpType.COMPLETION_LOCKED)
        held_back = ~(completes | message | ((kind == TlpType.MEMORY) & dword0.with_data))
        inside, uncounted = Signal(name="inside"), Signal(name="uncounted")
        counts = ~Mux(first, held_back, uncounted)
        passed = Signal(range(_MOST_PASSED + 1))
        with m.If(valid & counts):
            m.d.comb += passed.eq(Mux(last, Mux(whole, _MOST_PASSED, _MOST_PASSED - 4), 8))
        with m.If(discontinued):
            m.d.sync += inside.eq(0)
        with m.Elif(valid):
            m.d.sync += inside.eq(~last)
        with m.If(valid & first):
            m.d.sync += uncounted.eq(held_back)

        # Cycles without a beat between TLPs, and whether they are enough
        idle = Signal(range(self._idle))
        empty = Signal(init=1)
        with m.If(valid):
            m.d.sync += [idle.eq(0), empty.eq(0)]
        with m.Elif(~inside & ~empty):
            m.d.sync += [idle.eq(idle + 1), empty.eq(idle == self._idle - 1)]

        # Bytes that have passed since the block was empty, less those that can have come
        most, least = LARGEST_TLP + self.half, -self.half
        ahead = Signal(range(least - self._rate, most + _MOST_PASSED + 1))
        with m.If(empty & ~valid):
            m.d.sync += ahead.eq(0)
        with m.Elif(~self.behind):
            m.d.sync += ahead.eq(Mux(empty, 0, ahead) + passed - self._rate)
        with m.If((ahead > most) | (ahead < least)):
            m.d.sync += self.behind.eq(1)
        return m
