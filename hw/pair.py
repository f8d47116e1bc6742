# SPDX-License-Identifier: BSD-2-Clause
"""The user stream of a pair of channels: ring, user block, ring, and what flushes them."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .ring import InboundRing, OutboundRing
from .transfer import RING_PLACE

__all__ = ["PAIR_PLACE", "StreamPair"]

#: Outbound places hold the number of the pair in two bits from this one up, so that the writer
#: knows which ring to read.
PAIR_PLACE = 1 << 14


class StreamPair(wiring.Component):
    """What H2C channel n sends, and C2H channel n receives, through the window at bit 63.

    When a run that used the stream ends other than by Stop, on either side, the pair is flushed:
    bytes are dropped until both channels are idle, then rings and user block are as after reset.
    Meanwhile neither channel starts a run, so the next copy is clean whichever side failed. Bytes
    behind a failed read are dropped at once: what C2H writes are the first bytes of the copy.

    After a normal Stop bytes that nobody took yet stay, for the runs that follow.

    Parameters
    ----------
    user : Component
        The user block: `i` In(stream of StreamBeat), `o` Out(stream of StreamBeat).
    number : int
        0 to 3: which pair this is.
    inbound, outbound : int
        Ring sizes in bytes; a place has room for four times the outbound one below `PAIR_PLACE`,
        for the position counts twice the size and runs on to the end of a write.

    Members
    -------
    h2c_running, c2h_running : In(1)
        A run is under way, or something of it is.
    h2c_breaks, c2h_breaks : In(1)
        A run that used the stream is ending otherwise than by Stop; high up to its last cycle.
    h2c_failed : In(1)
        High for a cycle: a read of the H2C channel has failed. Before `frontier` tells of the next.
    h2c_drained : In(1)
        No read of the H2C channel is under way, and none is waiting.
    start_ok : Out(1)
        Channels may start a run.
    """

    def __init__(self, user, *, number: int = 0, inbound: int = 8192, outbound: int = 4096):
        if 4 * outbound > PAIR_PLACE:
            raise ValueError(
                f"the outbound ring is at most {PAIR_PLACE // 4} bytes, not {outbound}"
            )
        self._user = user
        self.number = number
        self.inbound = InboundRing(inbound, place=RING_PLACE)
        self.outbound = OutboundRing(outbound, place=RING_PLACE + number * PAIR_PLACE)
        super().__init__(
            {
                "h2c_running": In(1),
                "c2h_running": In(1),
                "h2c_breaks": In(1),
                "c2h_breaks": In(1),
                "h2c_failed": In(1),
                "h2c_drained": In(1),
                "start_ok": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.inbound = inbound = self.inbound
        m.submodules.outbound = outbound = self.outbound
        was_broken = Signal()
        broken = Signal()
        flush = Signal()
        m.d.comb += [
            broken.eq(was_broken | self.h2c_breaks | self.c2h_breaks),
            flush.eq(broken & ~self.h2c_running & ~self.c2h_running),
            self.start_ok.eq(~broken),
        ]
        m.d.sync += was_broken.eq(broken & ~flush)
        # A failure that breaks nothing had no bytes of the stream behind it.
        with m.If(~self.h2c_running):
            m.d.sync += inbound.gap.eq(0)
        with m.Elif(self.h2c_failed):
            m.d.sync += inbound.gap.eq(1)
        m.submodules.user = user = ResetInserter(flush)(self._user)

        wiring.connect(m, user.o, outbound.beats)
        m.d.comb += [
            user.i.payload.eq(inbound.beats.payload),
            # A broken pair drains, so that reads under way find their room.
            user.i.valid.eq(inbound.beats.valid & ~broken),
            inbound.beats.ready.eq(user.i.ready | broken),
            inbound.drain.eq(self.h2c_drained),
            inbound.flush.eq(flush),
            outbound.flush.eq(flush),
        ]
        return m
