# SPDX-License-Identifier: BSD-2-Clause
"""A DMA channel: its control, with what it needs to turn descriptors into memory requests."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma.regs import WaitsFor

from ..records import Outcome, Piece, PieceReport, PushedWord, offset_bits
from ..stream.link import StreamChannelSignature
from .control import ChannelControl
from .signatures import ChannelHostSignature, FetchSignature, OwnerSignature
from .splitter import Splitter

__all__ = ["Channel"]


class Channel(wiring.Component):
    """Control and splitter: descriptors come in; what comes out are pieces to read or to write.

    **Packets.** A run of the owner that receives takes a packet of the stream and its record. The
    descriptor with Stop is for the record, those before it are for the bytes of the packet. Where
    the packet ends, the last of its pieces is cut, and what is left of these descriptors completes
    with nothing. If it does not end by then, the rest of it is dropped, and the run ends as `long`.

    Parameters
    ----------
    index, c2h, ram_size, has_stream, doubtful, pushable, shared
        As for `hw.channel.control.ChannelControl`.
    packets : bool
        The owner's runs may receive. Only if `shared`, and `c2h`.

    Members
    -------
    host : In(ChannelHostSignature)
    owner : In(OwnerSignature)
        Only if `shared`.
    fetch : Out(FetchSignature), push : Out(stream of PushedWord, always ready),
    owned_push : Out(stream of PushedWord)
        To the descriptor fetch; the last one only if `shared`.
    fetch_short, piece_short : In(1)
        The read engine has no room for what the fetch offers, or for what is offered at `piece`.
    piece : Out(stream of Piece)
        Those of the stream every other cycle at most. Once valid it stays, unless the run ends.
    report : In(stream of PieceReport, always ready)
        One for each piece that was taken, in order.
    stream : Out(StreamChannelSignature)
        A piece of the stream waits for a reservation in the ring, which gives it its place.
    moving : Out(1)
        A piece is offered, or was taken and is not yet reported.
    blocked : Out(1), busy : Out(1)
        As at `hw.channel.control.ChannelControl`. Only if `shared`.
    waits_for : Out(WaitsFor)
        What software's run waits for: of several things, what holds up its oldest work. NOTHING in
        each cycle in which it moves.
    """

    def __init__(
        self,
        *,
        index: int,
        c2h: bool,
        ram_size: int,
        has_stream: bool = False,
        doubtful: bool = True,
        pushable: bool = False,
        shared: bool = False,
        packets: bool = False,
    ):
        self._c2h = c2h
        self._shared = shared
        self._packets = packets
        self._offset_bits = offset_bits(ram_size)
        self._control = ChannelControl(
            index=index,
            c2h=c2h,
            ram_size=ram_size,
            has_stream=has_stream,
            doubtful=doubtful,
            pushable=pushable,
            shared=shared,
        )
        always = {"always_ready": True}
        super().__init__(
            {
                "host": In(ChannelHostSignature(shared)),
                **({"owner": In(OwnerSignature())} if shared else {}),
                "fetch": Out(FetchSignature(shared)),
                "push": Out(stream.Signature(PushedWord, **always)),
                **({"owned_push": Out(stream.Signature(PushedWord))} if shared else {}),
                "fetch_short": In(1),
                "piece_short": In(1),
                "piece": Out(stream.Signature(Piece)),
                "report": In(stream.Signature(PieceReport, **always)),
                "stream": Out(StreamChannelSignature(packets)),
                "moving": Out(1),
                **({"blocked": Out(1), "busy": Out(1)} if shared else {}),
                "waits_for": Out(WaitsFor),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.control = control = self._control
        m.submodules.splitter = splitter = Splitter(self._offset_bits, cuttable=self._packets)

        wiring.connect(m, wiring.flipped(self.host), control.host)
        wiring.connect(m, control.fetch, wiring.flipped(self.fetch))
        wiring.connect(m, control.push, wiring.flipped(self.push))
        wiring.connect(m, control.span, splitter.span)
        wiring.connect(m, control.stream, wiring.flipped(self.stream.run))
        m.d.comb += [
            splitter.limit.eq(self.host.settings.piece_limit),
            splitter.abort.eq(self.fetch.flush),
        ]

        # A piece of the stream waits for the ring, whose answer is registered: to look for room and
        # to choose a piece of several channels is too much for one cycle. Others do not wait.
        piece, ring = splitter.piece, self.stream.reservation
        in_stream, found, granted, taken = piece.payload.stream, Signal(), Signal(), Signal()
        offered = piece.valid & (~in_stream | granted)
        m.d.comb += [
            found.eq(piece.valid & in_stream & ring.ready),
            self.piece.valid.eq(offered),
            self.piece.payload.eq(piece.payload),
            piece.ready.eq(self.piece.ready & (~in_stream | granted)),
            taken.eq(offered & self.piece.ready),
            ring.length.eq(piece.payload.length),
            ring.take.eq(taken & in_stream),
        ]
        with m.If(in_stream):
            m.d.comb += self.piece.payload.place.eq(ring.place)
        m.d.sync += granted.eq(found & ~taken)
        m.d.sync += control.beats.eq(Mux(taken, (piece.payload.length + 7) >> 3, 0))

        # Pieces under way
        report, outstanding = self.report.payload, Signal(8)
        m.d.sync += outstanding.eq(outstanding + taken - self.report.valid)
        m.d.comb += [
            self.stream.failed.eq(self.report.valid & (report.outcome != Outcome.OK)),
            control.finished.valid.eq(
                self.report.valid & (report.last | (report.outcome != Outcome.OK))
            ),
            control.finished.payload.eq(report.outcome),
            self.stream.drained.eq(
                ~splitter.span.valid & ~piece.valid & (outstanding == 0) & ~self.report.valid
            ),
            control.drained.eq(self.stream.drained),
            self.moving.eq((outstanding != 0) | self.piece.valid),
        ]

        # What the run waits for, oldest work first
        fetch = self.fetch
        with m.If(control.blocked):
            m.d.comb += self.waits_for.eq(WaitsFor.FLUSH)
        with m.Elif(~control.stream.running | taken | self.report.valid | fetch.word.valid):
            m.d.comb += self.waits_for.eq(WaitsFor.NOTHING)
        with m.Elif(self.moving):
            m.d.comb += self.waits_for.eq(WaitsFor.TRANSMIT if self._c2h else WaitsFor.COMPLETION)
            # Nothing but what is offered: no completion of this channel's own will make room.
            with m.If(self.piece_short & (outstanding == 0)):
                m.d.comb += self.waits_for.eq(WaitsFor.SPACE)
        with m.Elif(found):
            m.d.comb += self.waits_for.eq(WaitsFor.NOTHING)
        with m.Elif(piece.valid & in_stream):
            waits = WaitsFor.USER_OUTPUT if self._c2h else WaitsFor.USER_INPUT
            m.d.comb += self.waits_for.eq(waits)
        with m.Elif(fetch.reading | (fetch.active & fetch.wanted)):
            m.d.comb += self.waits_for.eq(WaitsFor.DESCRIPTOR)
            with m.If(~fetch.reading & self.host.settings.halt):
                m.d.comb += self.waits_for.eq(WaitsFor.RELEASE)
            with m.Elif(~fetch.reading & (fetch.credit == 0)):
                m.d.comb += self.waits_for.eq(WaitsFor.CREDIT)
            with m.Elif(~fetch.reading & self.fetch_short):
                m.d.comb += self.waits_for.eq(WaitsFor.SPACE)
        with m.Else():  # all that is left is to write back
            m.d.comb += self.waits_for.eq(WaitsFor.TRANSMIT)
        if self._shared:
            wiring.connect(m, wiring.flipped(self.owner), control.owner)
            wiring.connect(m, control.owned_push, wiring.flipped(self.owned_push))
            m.d.comb += [self.blocked.eq(control.blocked), self.busy.eq(control.busy)]
            if self._packets:
                self._receive(m, splitter, found, outstanding)
            with m.If(self.host.owned | (control.blocked & self.stream.run.start_ok)):
                waits = Mux(control.blocked, WaitsFor.GRANT, WaitsFor.NOTHING)
                m.d.comb += self.waits_for.eq(waits)
        return m

    def _receive(self, m, splitter, found, outstanding):
        """Have the pieces of a run that receives end with the packet; `found` as for any run."""
        control, packet, piece = self._control, self.stream.packet, splitter.piece
        #: the piece is of the record; bytes of its packet, or the end, come first
        of_record, before = Signal(), Signal()
        #: the packet has ended where the piece begins: its span is complete
        empty = Signal()
        at_end, none_out = packet.ends & (packet.rest == 0), outstanding == 0
        receives = self.host.owned & self.owner.receives & piece.payload.stream & piece.valid
        with m.If(splitter.span.valid & splitter.span.ready):
            m.d.sync += of_record.eq(control.ends_list)
        m.d.comb += [
            splitter.rest.eq(packet.rest),
            before.eq(receives & of_record & piece.payload.first & ~at_end),
            packet.drop.eq(before & none_out),
        ]
        with m.If(before):
            m.d.comb += found.eq(0)
        with m.If(receives & ~of_record & packet.ends & (packet.rest != piece.payload.length)):
            # Spans complete in order.
            m.d.comb += [
                found.eq(0),
                empty.eq(at_end & none_out),
                splitter.cut.eq(~at_end | none_out),
            ]
        with m.If(empty):
            m.d.comb += [control.finished.valid.eq(1), control.finished.payload.eq(Outcome.OK)]
        with m.If(packet.dropped):
            m.d.sync += control.long.eq(1)
        with m.If(self.fetch.start):
            m.d.sync += control.long.eq(0)
