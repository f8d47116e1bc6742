# SPDX-License-Identifier: BSD-2-Clause
"""The user stream of a pair of channels: ring, user block, ring, and what flushes them."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import RING_PLACE
from ..registers.bank import RegisterBank
from ..registers.bus import BusSignature
from .link import StreamRunSignature
from .ring import InboundRing, OutboundRing

__all__ = ["PAIR_PLACE", "StreamPair", "read_memory"]

#: Outbound places hold the number of the pair in two bits from this one up, so that the writer
#: knows which ring to read.
PAIR_PLACE = 1 << 14


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
        Ring sizes in bytes; a place has room for four times the outbound one below `PAIR_PLACE`,
        for the position counts twice the size and runs on to the end of a write.

    Members
    -------
    bus : In(BusSignature)
        The user block's registers.
    flush : In(1)
        High for a cycle: flush the pair as soon as both channels are idle.
    h2c, c2h : In(StreamRunSignature)
        The runs of both channels, which start only while the pair is not broken.
    h2c_failed : In(1)
        High for a cycle: a read of the H2C channel has failed. Before `frontier` tells of the next.
    h2c_drained : In(1)
        No read of the H2C channel is under way, and none is waiting.
    active : Out(1)
        The user block is a source, and a C2H run waits for what it makes.
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
                "bus": In(BusSignature()),
                "flush": In(1),
                "h2c": In(StreamRunSignature()),
                "c2h": In(StreamRunSignature()),
                "h2c_failed": In(1),
                "h2c_drained": In(1),
                "active": Out(1),
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
            broken.eq(was_broken | self.flush | self.h2c.breaks | self.c2h.breaks),
            flush.eq(broken & ~self.h2c.running & ~self.c2h.running),
            self.h2c.start_ok.eq(~broken),
            self.c2h.start_ok.eq(~broken),
        ]
        m.d.sync += was_broken.eq(broken & ~flush)
        # A failure that breaks nothing had no bytes of the stream behind it.
        with m.If(~self.h2c.running):
            m.d.sync += inbound.gap.eq(0)
        with m.Elif(self.h2c_failed):
            m.d.sync += inbound.gap.eq(1)
        m.submodules.user = user = ResetInserter(flush)(self._user)
        block = self._user.REGISTERS
        if block:
            base = regs.USER_BLOCK_BASE + self.number * regs.USER_BLOCK_SIZE
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
            # A broken pair drains, so that reads under way find their room.
            user.i.valid.eq(inbound.beats.valid & ~broken),
            inbound.beats.ready.eq(user.i.ready | broken),
            inbound.drain.eq(self.h2c_drained),
            self.active.eq(self.c2h.running & (self._user.RATIO[0] == 0)),
            inbound.flush.eq(flush),
            outbound.flush.eq(flush),
        ]
        return m

    def join(self, m, h2c, c2h, requester, *, client):
        """Connect the pair's channels: two `ChannelPipeline`, and the data client of H2C."""
        inbound = self.inbound
        wiring.connect(m, h2c.stream, self.h2c)
        wiring.connect(m, c2h.stream, self.c2h)
        placement, frontier = requester.placement, requester.frontier
        for channel, ring in ((h2c, inbound), (c2h, self.outbound)):
            m.d.comb += [
                ring.length.eq(channel.ring_length),
                channel.ring_ready.eq(ring.ready),
                channel.ring_place.eq(ring.place),
                ring.take.eq(channel.ring_take),
            ]
        m.d.comb += [
            inbound.placement.payload.eq(placement.payload),
            inbound.placement.valid.eq(
                placement.valid
                & (placement.payload.client == client)
                & placement.payload.address[exact_log2(RING_PLACE // 8)]
            ),
            inbound.frontier.eq(frontier.payload.place),
            inbound.frontier_valid.eq(frontier.valid & (frontier.payload.client == client)),
            self.h2c_failed.eq(h2c.failed),
            self.h2c_drained.eq(h2c.drained),
        ]


def read_memory(m, writer, ram, pairs):
    """Connect the writer's memory port to card RAM and the rings of `pairs`: places tell which."""
    wanted = writer.memory
    from_ring = wanted.address[exact_log2(RING_PLACE // 8)]
    number = wanted.address[exact_log2(PAIR_PLACE // 8) :][:2]
    sources = [(ram.read, ~from_ring)]
    sources += [(pair.outbound.read, from_ring & (number == pair.number)) for pair in pairs]
    m.d.comb += wanted.data.eq(ram.read.data)
    for index, (source, chosen) in enumerate(sources):
        was_chosen = Signal(name=f"source{index}")
        m.d.comb += [
            source.address.eq(wanted.address),
            source.enable.eq(wanted.enable & chosen),
        ]
        with m.If(wanted.enable):
            m.d.sync += was_chosen.eq(chosen)
        with m.If(was_chosen):
            m.d.comb += wanted.data.eq(source.data)
