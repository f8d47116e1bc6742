# SPDX-License-Identifier: BSD-2-Clause
"""The user stream of a pair of channels: the way of its bytes, and what flushes it."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..memory.banks import ReadPortSignature
from ..records import InOrderMark, placement
from ..registers.bus import BusSignature
from .axi_stream import UserPorts
from .link import StreamChannelSignature
from .ring import CopyRing
from .user_blocks import Axis, FrameBlock, PassThrough
from .user_path import UserPath

__all__ = ["StreamPair"]


class StreamPair(wiring.Component):
    """What H2C channel n sends, and C2H channel n receives, through the window at bit 63.

    When a run that used the stream, or may have, ends other than by Stop, on either side, the pair
    is flushed when both channels are idle: rings and user block are then as after reset. Meanwhile
    neither channel starts a run, so the next copy is clean whichever side failed. Bytes that C2H
    does not take any more are dropped, those behind a failed read at once: what C2H writes are the
    first bytes of the copy.

    Until software has cleared Run of the side that failed, the other one may start: that is the
    other half of the same copy, and what it brings is dropped as well.

    After a normal Stop bytes that nobody took yet stay, for the runs that follow, unless software
    asks for a flush.

    Parameters
    ----------
    user : type of UserBlock
        For `PassThrough` one ring takes the place of the block and the two rings around it.
    number : int
        0 to 3: which pair this is.
    inbound, outbound : int
        Ring sizes in bytes, by default 1,024 and 512 words; `PassThrough` has no outbound ring.
    width : int
        Bits of a word of the rings, and of a beat of the stream.
    recorded : bool
        The frames of a `FrameBlock` can have records.
    packets : bool
        C2H can take such a frame with its record, and no more: a packet.

    Members
    -------
    bus : In(BusSignature)
        The user block's registers.
    flush : In(1)
        High for a cycle: flush the pair as soon as both channels are idle.
    records : In(1), cycles : In(64)
        Software wants a record behind each frame; clock cycles since reset. Only if frames can have
        records.
    h2c, c2h : In(StreamChannelSignature)
        Both channels, whose runs start only while the pair is not broken. That of C2H with
        `packets`.
    packet : Out(1)
        A packet has begun to come, or is there. Only with `packets`.
    placement : In(stream of placement, always ready)
    mark : In(stream of InOrderMark, always ready)
        The data of the H2C channel that is for the stream, and how far its oldest read has come.
    read : In(ReadPortSignature), released : In(1)
        The writer reads a payload, and its space is free when it was sent.
    active : Out(1)
        The user block is a source, and a C2H run waits for what it makes.
    ports : Out(UserPorts)
        Only with `Axis`.
    """

    def __init__(
        self,
        user,
        *,
        number: int = 0,
        inbound: int | None = None,
        outbound: int | None = None,
        width: int,
        recorded: bool = True,
        packets: bool = False,
    ):
        # A wider link brings more in a round trip, and block RAMs side by side have the room.
        inbound, outbound = inbound or 128 * width, outbound or 64 * width
        self._source = user.RATIO[0] == 0
        self.recorded: bool = recorded and issubclass(user, FrameBlock)
        self.packets: bool = packets and self.recorded
        # A class derived from it may change the bytes.
        if user is PassThrough:
            self._path = CopyRing(inbound, pair=number, width=width)
        else:
            self._path = UserPath(
                user(width),
                number=number,
                inbound=inbound,
                outbound=outbound,
                width=width,
                recorded=self.recorded,
                packets=self.packets,
            )
        always = {"always_ready": True}
        ports = {"ports": Out(UserPorts(width))} if issubclass(user, Axis) else {}
        super().__init__(
            {
                "bus": In(BusSignature()),
                "flush": In(1),
                **({"records": In(1), "cycles": In(64)} if self.recorded else {}),
                "h2c": In(StreamChannelSignature()),
                "c2h": In(StreamChannelSignature(self.packets)),
                "placement": In(stream.Signature(placement(width), **always)),
                "mark": In(stream.Signature(InOrderMark, **always)),
                "read": In(ReadPortSignature(width)),
                "released": In(1),
                "active": Out(1),
                **({"packet": Out(1)} if self.packets else {}),
                **ports,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self._path
        h2c, c2h = self.h2c.run, self.c2h.run
        wiring.connect(m, wiring.flipped(self.h2c.reservation), path.reads)
        wiring.connect(m, wiring.flipped(self.c2h.reservation), path.writes)
        wiring.connect(m, wiring.flipped(self.placement), path.placement)
        wiring.connect(m, wiring.flipped(self.mark), path.mark)
        wiring.connect(m, wiring.flipped(self.read), path.read)
        if isinstance(path, UserPath):
            wiring.connect(m, wiring.flipped(self.bus), path.bus)
            m.d.comb += path.drain.eq(self.h2c.drained)
            if "ports" in self.signature.members:
                wiring.connect(m, path.ports, wiring.flipped(self.ports))
        if self.recorded:
            m.d.comb += [path.records.eq(self.records), path.cycles.eq(self.cycles)]
        if self.packets:
            wiring.connect(m, wiring.flipped(self.c2h.packet), path.packet)
            m.d.comb += self.packet.eq(path.there)
        was_broken = Signal()
        broken, start_ok = Signal(), Signal()
        m.d.comb += [
            broken.eq(was_broken | self.flush | h2c.breaks | c2h.breaks),
            path.flush.eq(broken & ~h2c.running & ~c2h.running),
            # While C2H runs it may take what it gets of a broken copy.
            path.discard.eq(broken & ~c2h.running),
            path.released.eq(self.released),
            # In the cycle of a flush, as nothing of a run that starts comes before the next.
            start_ok.eq(~broken | path.flush),
            h2c.start_ok.eq(start_ok),
            c2h.start_ok.eq(start_ok),
            self.active.eq(c2h.running & self._source),
        ]
        m.d.sync += was_broken.eq(broken & ~path.flush)
        # If a failure does not break the pair, no bytes of the stream followed the failed read.
        with m.If(~h2c.running):
            m.d.sync += path.gap.eq(0)
        with m.Elif(self.h2c.failed):
            m.d.sync += path.gap.eq(1)
        return m
