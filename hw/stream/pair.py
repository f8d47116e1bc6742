# SPDX-License-Identifier: BSD-2-Clause
"""The user stream of a pair of channels: ring, user block, ring, and what flushes them."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..memory.banks import ReadPortSignature
from ..records import InOrderMark, Placement
from ..registers.bank import RegisterBank
from ..registers.bus import BusSignature
from ..seam import WIDTH
from .link import StreamChannelSignature
from .ring import InboundRing, OutboundRing

__all__ = ["StreamPair"]


class StreamPair(wiring.Component):
    """What H2C channel n sends, and C2H channel n receives, through the window at bit 63.

    When a run that used the stream ends other than by Stop, on either side, the pair is flushed:
    bytes are dropped until both channels are idle, then rings and user block are as after reset.
    Meanwhile neither channel starts a run, so the next copy is clean whichever side failed. Bytes
    behind a failed read are dropped at once: what C2H writes are the first bytes of the copy.

    After a normal Stop bytes that nobody took yet stay, for the runs that follow, unless software
    asks for a flush.

    Parameters
    ----------
    user : UserBlock
    number : int
        0 to 3: which pair this is.
    inbound, outbound : int
        Ring sizes in bytes.

    Members
    -------
    bus : In(BusSignature)
        The user block's registers.
    flush : In(1)
        High for a cycle: flush the pair as soon as both channels are idle.
    h2c, c2h : In(StreamChannelSignature)
        Both channels, whose runs start only while the pair is not broken.
    placement : In(stream of Placement, always ready)
    mark : In(stream of InOrderMark, always ready)
        The data of the H2C channel that is for the stream, and how far its oldest read has come.
    read : In(ReadPortSignature), released : In(1)
        The outbound ring's: the writer reads a payload, and its space is free when it was sent.
    active : Out(1)
        The user block is a source, and a C2H run waits for what it makes.
    """

    def __init__(self, user, *, number: int = 0, inbound: int = 8192, outbound: int = 4096):
        self._user = user
        self._number = number
        self._inbound = InboundRing(inbound)
        self._outbound = OutboundRing(outbound, pair=number)
        always = {"always_ready": True}
        super().__init__(
            {
                "bus": In(BusSignature()),
                "flush": In(1),
                "h2c": In(StreamChannelSignature()),
                "c2h": In(StreamChannelSignature()),
                "placement": In(stream.Signature(Placement, **always)),
                "mark": In(stream.Signature(InOrderMark, **always)),
                "read": In(ReadPortSignature(WIDTH)),
                "released": In(1),
                "active": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.inbound = inbound = self._inbound
        m.submodules.outbound = outbound = self._outbound
        h2c, c2h = self.h2c.run, self.c2h.run
        wiring.connect(m, wiring.flipped(self.h2c.reservation), inbound.reservation)
        wiring.connect(m, wiring.flipped(self.c2h.reservation), outbound.reservation)
        wiring.connect(m, wiring.flipped(self.placement), inbound.placement)
        wiring.connect(m, wiring.flipped(self.mark), inbound.mark)
        wiring.connect(m, wiring.flipped(self.read), outbound.read)
        was_broken = Signal()
        broken = Signal()
        flush = Signal()
        m.d.comb += [
            broken.eq(was_broken | self.flush | h2c.breaks | c2h.breaks),
            flush.eq(broken & ~h2c.running & ~c2h.running),
            h2c.start_ok.eq(~broken),
            c2h.start_ok.eq(~broken),
        ]
        m.d.sync += was_broken.eq(broken & ~flush)
        # If a failure does not break the pair, no bytes of the stream followed the failed read.
        with m.If(~h2c.running):
            m.d.sync += inbound.gap.eq(0)
        with m.Elif(self.h2c.failed):
            m.d.sync += inbound.gap.eq(1)
        m.submodules.user = user = ResetInserter(flush)(self._user)
        block = self._user.REGISTERS
        if block:
            base = regs.USER_BLOCK_BASE + self._number * regs.USER_BLOCK_SIZE
            bank = RegisterBank(block, bar=regs.BAR_USER[0], base=base)
            m.submodules.registers = bank
            wiring.connect(m, wiring.flipped(self.bus), bank.bus)
            for register in block.registers:
                inner, outer = getattr(user, register.name), getattr(bank, register.name)
                read_only = register.access is regs.Access.RO
                m.d.comb += outer.eq(inner) if read_only else inner.eq(outer)

        wiring.connect(m, user.o, outbound.beats)
        m.d.comb += [
            user.i.payload.eq(inbound.beats.payload),
            # A broken pair discards its bytes, so that reads under way find room.
            user.i.valid.eq(inbound.beats.valid & ~broken),
            inbound.beats.ready.eq(user.i.ready | broken),
            inbound.drain.eq(self.h2c.drained),
            self.active.eq(c2h.running & (self._user.RATIO[0] == 0)),
            inbound.flush.eq(flush),
            outbound.flush.eq(flush),
            outbound.released.eq(self.released),
        ]
        return m
