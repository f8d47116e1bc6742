# SPDX-License-Identifier: BSD-2-Clause
"""Compares completions with what their requests expect next."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..memory.rotators import put_beat
from ..records import PLACE_BITS, Outcome, PlacementAddress, moved
from ..seam import CompletionHeader, CompletionStatus
from ..seam import beat as completion_beat
from .records import Progress

__all__ = ["CompletionChecker"]


class CompletionChecker(wiring.Component):
    """Checks each completion, and passes on the data of good ones.

    A successful completion must carry the Byte Count and the Lower Address of the next byte, unless
    `tolerant` says that this does not matter, and no more dwords than are missing. In one with
    another status these fields are not looked at: it ends the request in any case (PCI Express Base
    Specification, "Completion Rules" and "Data Return for Read Requests"), as does a timeout of the
    block. A completion of a locked read belongs to no request of ours.

    Latency: `lookup` and `progress` belong to the beat that arrives; all other members belong to
    the beat of the cycle before (`valid`).

    Parameters
    ----------
    tags : int
        Number of tags.
    offset_bits, width : int
        As for `hw.read.engine.ReadEngine`.

    Members
    -------
    completion : In(stream of beats of CompletionHeader, always ready)
    tolerant : In(1)
        Byte Count and Lower Address may be anything.
    lookup : Out(8), progress : In(Progress)
        Combinational look-up of a tag's progress, outside of this component.
    valid : Out(1), tag : Out(8)
        There is a beat, of a completion with this tag.
    begins : Out(1)
        It is the first of its packet.
    open, waiting : In(1)
        State of `tag`: completions may come; a job waits for them.
    disown : In(1)
        `tag` is closed in this cycle, which has no first beat: drop the rest of its packet.
    advance : Out(1), advanced : Out(Progress)
        With `begins`: the new progress of `tag`.
    failed : Out(1), outcome : Out(Outcome)
        With `begins`: the job has ended, and how.
    ends : Out(1)
        It is the last of its packet.
    arrives : Out(1), lower_address : Out(7), dwords : Out(11)
        With the last beat: the packet was a good completion; from where, and how long it is.
    reaches : Out(1), reached : Out(PLACE_BITS)
        All bytes of the job below this placement address, as a number, are on their way to the
        memory.
    completes : Out(1)
        With each beat: behind its packet no more completions will come.
    close : Out(1)
        That, with the last beat.
    unexpected : Out(1)
        With `begins`: the completion belongs to no request or does not fit it.
    beats : Out(stream of put_beat, always ready)
        The data of good completions whose job waits.
    """

    def __init__(self, tags: int, offset_bits: int, width: int):
        self._tags = tags
        self._offset_bits = offset_bits
        self._lanes = width // 8
        self._beat = completion_beat(CompletionHeader, width)
        super().__init__(
            {
                "completion": In(stream.Signature(self._beat, always_ready=True)),
                "tolerant": In(1),
                "lookup": Out(8),
                "progress": In(Progress),
                "valid": Out(1),
                "tag": Out(8),
                "begins": Out(1),
                "open": In(1),
                "waiting": In(1),
                "disown": In(1),
                "advance": Out(1),
                "advanced": Out(Progress),
                "failed": Out(1),
                "outcome": Out(Outcome),
                "ends": Out(1),
                "arrives": Out(1),
                "lower_address": Out(7),
                "dwords": Out(11),
                "reaches": Out(1),
                "reached": Out(PLACE_BITS),
                "completes": Out(1),
                "close": Out(1),
                "unexpected": Out(1),
                "beats": Out(stream.Signature(put_beat(width, offset_bits), always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, offset_bits = self._lanes, self._offset_bits
        lane_bits = exact_log2(lanes)
        word_bits = offset_bits - lane_bits
        beat = Signal(self._beat)
        header = beat.header
        expected = Signal(Progress)
        # Decided with a packet's first beat, and kept for the rest of the packet.
        complete = Signal()
        matches = Signal(3)
        good = Signal()
        misfit = Signal()
        outcome = Signal(Outcome)
        #: the word of this beat's lane 0, and the one behind it
        word, following = Signal(word_bits), Signal(word_bits)

        comes = self.completion.p.header
        count = Signal(14)
        room = Signal(14)
        delivered = Signal(13)
        m.d.comb += [
            self.lookup.eq(comes.tag),
            count.eq(comes.byte_count + comes.lower_address[:2]),
            delivered.eq(Cat(C(0, 2), comes.dwords)),
            # The last dword, if there is one, begins before the end.
            room.eq(Cat(C(0, 2), comes.dwords - 1)),
        ]
        m.d.sync += self.valid.eq(self.completion.valid)
        with m.If(self.completion.valid):
            m.d.sync += [beat.eq(self.completion.p), word.eq(following)]
            with m.If(self.completion.p.first):
                m.d.sync += [
                    expected.eq(self.progress),
                    word.eq(self.progress.start[lane_bits:]),
                    complete.eq(delivered >= self.progress.end),
                    # Compared here, ANDed in the next cycle: `progress` comes from LUTRAM, and this
                    # is the critical path.
                    matches[0].eq(count == self.progress.end),
                    matches[1].eq(comes.lower_address == self.progress.lower_address),
                    matches[2].eq(room < self.progress.end),
                ]
        status = header.status.as_value()
        success = status == CompletionStatus.SC.value
        fits = (matches | Cat(self.tolerant.replicate(2), 0)).all()
        m.d.comb += [good.eq(success & fits), misfit.eq(success & ~fits)]
        with m.If(status == CompletionStatus.CA.value):
            m.d.comb += outcome.eq(Outcome.COMPLETER_ABORT)
        with m.Elif(status == CompletionStatus.TIMEOUT.value):
            m.d.comb += outcome.eq(Outcome.COMPLETION_TIMEOUT)
        with m.Elif(~success):
            # Configuration Request Retry and reserved values are to be handled as this.
            m.d.comb += outcome.eq(Outcome.UNSUPPORTED_REQUEST)
        with m.Elif(~fits):
            m.d.comb += outcome.eq(Outcome.UNEXPECTED_COMPLETION)
        with m.Else():
            m.d.comb += outcome.eq(Outcome.POISONED)
        m.d.comb += [
            self.begins.eq(self.valid & beat.first),
            self.ends.eq(self.valid & beat.last),
            self.tag.eq(header.tag),
            self.outcome.eq(outcome),
        ]

        # The state of the tag may change within a packet. A packet whose tag was closed at its
        # first beat belongs to no request, even if the tag is opened before its last beat.
        owned = Signal()
        mine = Signal()
        ours = (header.tag < self._tags) & ~header.locked
        m.d.comb += mine.eq(Mux(beat.first, ours, owned) & self.open)
        with m.If(self.valid):
            m.d.sync += owned.eq(mine)
        with m.If(self.disown):
            m.d.sync += owned.eq(0)

        taken = Cat(C(0, 2), header.dwords)
        final = Mux(good, complete, ~misfit)
        m.d.comb += [
            self.advance.eq(self.begins & mine & good),
            self.advanced.client.eq(expected.client),
            self.advanced.start.eq(moved(expected.start, taken, offset_bits)),
            self.advanced.end.eq(expected.end - taken),
            self.advanced.lower_address.eq(
                Cat(C(0, 2), expected.lower_address[2:] + header.dwords)
            ),
            self.arrives.eq(self.ends & mine & good),
            self.lower_address.eq(expected.lower_address),
            self.dwords.eq(header.dwords),
            following.eq(word + 1),
            self.reaches.eq(self.beats.valid),
            self.reached.eq(
                Mux(
                    beat.last,
                    moved(expected.start, Mux(complete, expected.end, taken), offset_bits),
                    Cat(expected.start[:lane_bits], following, expected.start[offset_bits:]),
                )
            ),
            self.failed.eq(self.begins & mine & self.waiting & (~good | header.poisoned)),
            self.completes.eq(mine & final),
            self.close.eq(self.ends & mine & final),
            self.unexpected.eq(self.begins & (~mine | misfit)),
        ]

        # Lanes before the first byte and, in the last completion of a request, behind the last
        # byte are not data; any other completion ends with a whole dword.
        dword_bits = lane_bits - 2
        stop = Mux(complete, expected.end[:lane_bits], Cat(C(0, 2), header.dwords[:dword_bits]))
        every = (1 << lanes) - 1
        lead = Signal(lanes)
        trail = Signal(lanes)
        m.d.comb += [
            lead.eq(Mux(beat.first, every << expected.lower_address[:2], every)),
            trail.eq(Mux(beat.last & (stop != 0), (1 << stop) - 1, every)),
            self.beats.valid.eq(self.valid & mine & self.waiting & good & ~header.poisoned),
            self.beats.p.client.eq(expected.client),
            self.beats.p.memory.eq(data.View(PlacementAddress, expected.start).memory),
            self.beats.p.address.eq(Cat(expected.start[:lane_bits], word)),
            self.beats.p.data.eq(beat.data),
            self.beats.p.enable.eq(lead & trail),
        ]
        return m
