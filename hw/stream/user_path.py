# SPDX-License-Identifier: BSD-2-Clause
"""The way of a user stream's bytes through a user block, with a ring before and behind it."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..memory.banks import ReadPortSignature
from ..parts.reset import Resets
from ..records import InOrderMark, placement
from ..registers.bank import RegisterBank
from ..registers.bus import BusSignature
from ..registers.window import RegisterWindow
from .axi_stream import UserPorts
from .frames import FrameRecorder
from .link import PacketSignature, ReservationSignature
from .ring import InboundRing, OutboundRing
from .user_blocks import Axis

__all__ = ["UserPath"]


class UserPath(wiring.Component):
    """Reads fill a ring, the user block turns its bytes into others, writes empty a second ring.

    Parameters
    ----------
    user : UserBlock
    recorded : bool
        Frames can have records: the block is a `FrameBlock`.
    number : int
        0 to 3: which pair this is.
    inbound, outbound : int
        Ring sizes in bytes.
    width : int
        Bits of a word of the rings, and of a beat of the stream.
    packets : bool
        As for `OutboundRing`; only if `recorded`.

    Members
    -------
    bus : In(BusSignature)
        The user block's registers.
    reads : In(ReservationSignature), placement, mark, gap, drain
        As of `InboundRing`.
    writes : In(ReservationSignature), read, released
        As of `OutboundRing`.
    records : In(1), cycles : In(64)
        Software wants a record behind each frame, whose time is in `cycles`. Only if `recorded`.
    discard : In(1)
        Drop the bytes that come: nobody wants them.
    flush : In(1)
        Rings and user block are as after reset, but for the block's registers that software
        writes. Nothing may be reserved that could still arrive, or be released.
    packet, there
        As of `OutboundRing`. Only with `packets`.
    ports : Out(UserPorts)
        Only with `Axis`.
    """

    def __init__(
        self,
        user,
        *,
        number: int,
        inbound: int,
        outbound: int,
        width: int,
        recorded: bool,
        packets: bool = False,
    ):
        self._user = user
        self._recorded = recorded
        self._number = number
        self._width = width
        self._inbound = InboundRing(inbound, width=width)
        self._packets = packets
        self._outbound = OutboundRing(outbound, pair=number, width=width, packets=packets)
        always = {"always_ready": True}
        ports = {"ports": Out(UserPorts(width))} if isinstance(user, Axis) else {}
        super().__init__(
            {
                "bus": In(BusSignature()),
                "reads": In(ReservationSignature()),
                "placement": In(stream.Signature(placement(width), **always)),
                "mark": In(stream.Signature(InOrderMark, **always)),
                "gap": In(1),
                "drain": In(1),
                **({"records": In(1), "cycles": In(64)} if recorded else {}),
                "discard": In(1),
                "writes": In(ReservationSignature()),
                "released": In(1),
                "read": In(ReadPortSignature(width)),
                "flush": In(1),
                **({"packet": In(PacketSignature()), "there": Out(1)} if packets else {}),
                **ports,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.inbound = inbound = self._inbound
        m.submodules.outbound = outbound = self._outbound
        m.submodules.user = user = Resets(self.flush)(self._user)
        wiring.connect(m, wiring.flipped(self.reads), inbound.reservation)
        wiring.connect(m, wiring.flipped(self.placement), inbound.placement)
        wiring.connect(m, wiring.flipped(self.mark), inbound.mark)
        wiring.connect(m, wiring.flipped(self.writes), outbound.reservation)
        wiring.connect(m, wiring.flipped(self.read), outbound.read)
        if self._recorded:
            recorder = FrameRecorder(user.frame_lanes, width=self._width)
            m.submodules.recorder = Resets(self.flush)(recorder)
            wiring.connect(m, user.o, recorder.i)
            wiring.connect(m, recorder.o, outbound.beats)
            m.d.comb += [
                recorder.enable.eq(self.records),
                recorder.cycles.eq(self.cycles),
                recorder.dropped.eq(user.dropped),
            ]
        else:
            wiring.connect(m, user.o, outbound.beats)
        if self._packets:
            wiring.connect(m, wiring.flipped(self.packet), outbound.packet)
            m.d.comb += [outbound.records.eq(self.records), self.there.eq(outbound.there)]
        m.d.comb += [
            user.i.payload.eq(inbound.beats.payload),
            # What is discarded leaves the ring, so that reads under way find room.
            user.i.valid.eq(inbound.beats.valid & ~self.discard),
            inbound.beats.ready.eq(user.i.ready | self.discard),
            inbound.gap.eq(self.gap),
            inbound.drain.eq(self.drain),
            inbound.flush.eq(self.flush),
            outbound.released.eq(self.released),
            outbound.flush.eq(self.flush),
        ]
        bar, size = regs.BAR_USER[0], regs.USER_BLOCK_SIZE
        base = regs.USER_BLOCK_BASE + self._number * size
        if isinstance(self._user, Axis):
            m.submodules.window = window = RegisterWindow(bar=bar, base=base, size=size)
            wiring.connect(m, wiring.flipped(self.bus), window.bus)
            wiring.connect(m, window.port, wiring.flipped(self.ports.reg))
            for name in ("axis", "m_axis_h2c", "s_axis_c2h"):
                wiring.connect(m, getattr(user, name), wiring.flipped(getattr(self.ports, name)))
        elif block := self._user.REGISTERS:
            bank = RegisterBank(block, bar=bar, base=base)
            m.submodules.registers = bank
            wiring.connect(m, wiring.flipped(self.bus), bank.bus)
            for register in block.registers:
                inner, outer = getattr(user, register.name), getattr(bank, register.name)
                read_only = register.access is regs.Access.RO
                m.d.comb += outer.eq(inner) if read_only else inner.eq(outer)
        return m
