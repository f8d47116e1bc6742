# SPDX-License-Identifier: BSD-2-Clause
"""A channel with what it needs to turn descriptors into memory requests."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import ErrorReport, Outcome, Placement, ReadJob, Retired
from ..registers.bus import BusSignature
from ..write.post import Post
from .control import Channel
from .fetch import DescriptorFetch
from .splitter import Piece, Splitter

__all__ = ["ChannelPipeline"]


class ChannelPipeline(wiring.Component):
    """Descriptor fetch, channel and splitter; what comes out are pieces to read or to write.

    Parameters
    ----------
    index, c2h, ram_size, has_stream
        As for `hw.channel.control.Channel`.

    Members
    -------
    bus : In(BusSignature)
    halt : In(1)
        No descriptor fetches.
    read_limit, piece_limit : In(3)
        Size limits of descriptor fetches and of pieces, PCIe encoding.
    fetch_job, fetch_retired, fetch_placement
        To the requester, as a client of its own.
    piece : Out(stream of Piece)
    piece_done, piece_last, piece_outcome : In
        One report for each piece that was taken, in order.
    ring_length : Out(10), ring_ready : In(1), ring_place : In(17), ring_take : Out(1)
        A piece of the stream waits for `ring_ready`, and gets its place from the ring.
    credit_mode, writeback, writeback_done
    interrupt, error_valid, error, stop_request, start_ok, running, breaks
        As for `hw.channel.control.Channel`.
    drained : Out(1)
        All that was asked for is done: no span is left, and no piece of one.
    pieces_out : Out(1)
        Pieces were taken and are not yet reported done.
    """

    def __init__(self, *, index: int, c2h: bool, ram_size: int, has_stream: bool = False):
        self._parameters = {
            "index": index,
            "c2h": c2h,
            "ram_size": ram_size,
            "has_stream": has_stream,
        }
        always = {"always_ready": True}
        super().__init__(
            {
                "bus": In(BusSignature()),
                "halt": In(1),
                "credit_mode": In(1),
                "read_limit": In(3),
                "piece_limit": In(3),
                "fetch_job": Out(stream.Signature(ReadJob)),
                "fetch_retired": In(stream.Signature(Retired, **always)),
                "fetch_placement": In(stream.Signature(Placement, **always)),
                "piece": Out(stream.Signature(Piece)),
                "piece_done": In(1),
                "piece_last": In(1),
                "piece_outcome": In(Outcome),
                "writeback": Out(stream.Signature(Post)),
                "writeback_done": In(1),
                "interrupt": Out(1),
                "error_valid": Out(1),
                "error": Out(ErrorReport),
                "stop_request": In(1),
                "start_ok": In(1, init=1),
                "running": Out(1),
                "breaks": Out(1),
                "ring_length": Out(10),
                "ring_ready": In(1),
                "ring_place": In(17),
                "ring_take": Out(1),
                "drained": Out(1),
                "pieces_out": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.channel = channel = Channel(**self._parameters)
        m.submodules.fetch = fetch = DescriptorFetch(c2h=self._parameters["c2h"])
        m.submodules.splitter = splitter = Splitter()

        wiring.connect(m, wiring.flipped(self.bus), channel.bus)
        wiring.connect(m, fetch.job, wiring.flipped(self.fetch_job))
        wiring.connect(m, wiring.flipped(self.fetch_retired), fetch.retired)
        wiring.connect(m, wiring.flipped(self.fetch_placement), fetch.placement)
        wiring.connect(m, fetch.descriptor, channel.descriptor)
        wiring.connect(m, channel.span, splitter.span)
        wiring.connect(m, channel.writeback, wiring.flipped(self.writeback))

        piece = splitter.piece
        clear = Signal()
        # A stage of its own, so that finding room in a ring and finding a turn are apart. It takes
        # every other cycle only, which no request is short enough to notice.
        taken = Signal()
        outstanding = Signal(8)
        m.d.comb += [
            clear.eq((~piece.payload.stream | self.ring_ready) & ~self.piece.valid),
            piece.ready.eq(clear),
            taken.eq(piece.valid & clear),
            self.ring_length.eq(piece.payload.length),
            self.ring_take.eq(taken & piece.payload.stream),
        ]
        with m.If(self.piece.ready):
            m.d.sync += self.piece.valid.eq(0)
        with m.If(taken):
            m.d.sync += [self.piece.valid.eq(1), self.piece.payload.eq(piece.payload)]
            with m.If(piece.payload.stream):
                m.d.sync += self.piece.payload.place.eq(self.ring_place)
        m.d.comb += [
            self.pieces_out.eq(outstanding != 0),
            fetch.start.eq(channel.start),
            fetch.address.eq(channel.first_address),
            fetch.adjacent.eq(channel.first_adjacent),
            fetch.halt.eq(self.halt | channel.halt),
            fetch.credit.eq(channel.credit),
            channel.credit_mode.eq(self.credit_mode),
            channel.writeback_done.eq(self.writeback_done),
            fetch.flush.eq(channel.flush),
            fetch.limit.eq(self.read_limit),
            splitter.limit.eq(self.piece_limit),
            splitter.abort.eq(channel.flush),
            channel.done.eq(
                self.piece_done & (self.piece_last | (self.piece_outcome != Outcome.OK))
            ),
            channel.done_outcome.eq(self.piece_outcome),
            self.drained.eq(
                ~splitter.span.valid & ~piece.valid & ~self.pieces_out & ~self.piece_done
            ),
            channel.quiet.eq(~fetch.active & self.drained),
            channel.start_ok.eq(self.start_ok),
            self.running.eq(channel.running),
            self.breaks.eq(channel.breaks),
            channel.stop_request.eq(self.stop_request),
            self.interrupt.eq(channel.interrupt),
            self.error_valid.eq(channel.error_valid),
            self.error.eq(channel.error),
        ]
        m.d.sync += channel.spent.eq(fetch.spent)
        m.d.sync += channel.beats.eq(Mux(taken, (piece.payload.length + 7) >> 3, 0))
        m.d.sync += outstanding.eq(outstanding + taken - self.piece_done)
        return m
