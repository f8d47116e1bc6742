# SPDX-License-Identifier: BSD-2-Clause
"""Compares completions with what their requests expect next."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .placer import PlacerBeat
from .seam import CompletionBeat, CompletionStatus
from .transfer import Outcome

__all__ = ["CompletionChecker", "Progress"]


class Progress(data.Struct):
    """What a request expects next."""

    #: number of the client
    client: 4
    #: byte address in the client's memory of the next byte
    place: 17
    #: bytes still missing
    remaining: 10
    #: low bits of the PCIe address of the next byte
    lower_address: 7


class CompletionChecker(wiring.Component):
    """Checks each completion, and passes on the data of good ones.

    A successful completion must carry the Byte Count and the Lower Address of the next byte, and
    no more dwords than are missing. In one with another status these fields are not looked at:
    it ends the request in any case. (PCI Express Base Specification, "Completion Rules" and
    "Data Return for Read Requests".)

    Latency: `progress` is looked up as a packet's first beat arrives, everything else belongs to
    the beat of the cycle before (`valid`).

    Parameters
    ----------
    tags : int
        Number of tags.

    Members
    -------
    completion : In(stream of CompletionBeat, always ready)
    lookup : Out(8), progress : In(Progress)
        Combinational look-up of a tag's progress.
    valid : Out(1), tag : Out(8)
        There is a beat, of a completion with this tag.
    begins : Out(1)
        It is the first of its packet.
    open, waiting : In(1)
        State of `tag`: completions may come; a job waits for them.
    disown : In(1)
        `tag` is closed in this cycle, which has no beat: the rest of a packet is dropped.
    advance : Out(1), advanced : Out(Progress)
        With `begins`: the new progress of `tag`.
    failed : Out(1), outcome : Out(Outcome)
        With `begins`: the job has ended, and how.
    ends : Out(1)
        It is the last of its packet.
    reaches : Out(1), reached : Out(17)
        With the last beat: all bytes below this place of the job are on their way to it.
    close : Out(1)
        With the last beat: no more completions will come.
    unexpected : Out(1)
        With `begins`: the completion belongs to no request or does not fit it.
    beats : Out(stream of PlacerBeat, always ready)
        The data of good completions whose job waits.
    """

    def __init__(self, tags: int):
        self._tags = tags
        super().__init__(
            {
                "completion": In(stream.Signature(CompletionBeat, always_ready=True)),
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
                "reaches": Out(1),
                "reached": Out(17),
                "close": Out(1),
                "unexpected": Out(1),
                "beats": Out(stream.Signature(PlacerBeat, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat = Signal(CompletionBeat)
        header = beat.header
        expected = Signal(Progress)
        m.d.comb += [
            self.lookup.eq(self.completion.p.header.tag),
            self.begins.eq(self.valid & beat.first),
            self.ends.eq(self.valid & beat.last),
            self.tag.eq(header.tag),
        ]
        m.d.sync += self.valid.eq(self.completion.valid)
        with m.If(self.completion.valid):
            m.d.sync += beat.eq(self.completion.p)
            with m.If(self.completion.p.first):
                m.d.sync += expected.eq(self.progress)

        # Neither `header` nor `expected` change within a packet, so neither do these.
        offset = expected.lower_address[:2]
        end = Signal(11)
        needed = Signal(9)
        complete = Signal()
        success = Signal()
        fits = Signal()
        good = Signal()
        m.d.comb += [
            end.eq(offset + expected.remaining),
            needed.eq((end + 3)[2:]),
            complete.eq(header.dwords == needed),
            success.eq(header.status.as_value() == CompletionStatus.SC.value),
            fits.eq(
                (header.byte_count == expected.remaining)
                & (header.lower_address == expected.lower_address)
                & (header.dwords <= needed)
                & (header.dwords != 0)
            ),
            good.eq(success & fits),
        ]

        # The state of the tag may change within a packet. A packet that found its tag closed
        # belongs to nobody, even if the tag is opened before its last beat.
        owned = Signal()
        mine = Signal()
        m.d.comb += mine.eq(Mux(beat.first, header.tag < self._tags, owned) & self.open)
        with m.If(self.valid):
            m.d.sync += owned.eq(mine)
        with m.If(self.disown):
            m.d.sync += owned.eq(0)

        start = Signal.like(expected.place)
        m.d.comb += [
            start.eq(expected.place - offset),
            self.advance.eq(self.begins & mine & good),
            self.advanced.client.eq(expected.client),
            self.advanced.place.eq(start + Cat(C(0, 2), header.dwords)),
            self.advanced.remaining.eq(end - Cat(C(0, 2), header.dwords)),
            self.advanced.lower_address.eq(
                Cat(C(0, 2), expected.lower_address[2:] + header.dwords)
            ),
            self.reaches.eq(self.beats.valid & beat.last),
            self.reached.eq(
                Mux(complete, expected.place + expected.remaining, self.advanced.place)
            ),
            self.failed.eq(self.begins & mine & self.waiting & (~good | header.poisoned)),
            self.close.eq(self.valid & beat.last & mine & (~success | (good & complete))),
            self.unexpected.eq(self.begins & (~mine | (success & ~fits))),
        ]
        with m.If(header.status.as_value() == CompletionStatus.CA.value):
            m.d.comb += self.outcome.eq(Outcome.COMPLETER_ABORT)
        with m.Elif(~success):
            # Configuration Request Retry and reserved values are to be handled as this.
            m.d.comb += self.outcome.eq(Outcome.UNSUPPORTED_REQUEST)
        with m.Elif(~fits):
            m.d.comb += self.outcome.eq(Outcome.UNEXPECTED_COMPLETION)
        with m.Else():
            m.d.comb += self.outcome.eq(Outcome.POISONED)

        # Lanes before the first byte and, in the last completion of a request, behind the last
        # byte are not data; any other completion ends with a whole dword.
        stop = Mux(complete, end[:3], Cat(C(0, 2), header.dwords[0]))
        lead = Signal(8)
        trail = Signal(8)
        m.d.comb += [
            lead.eq(Mux(beat.first, 0xFF << offset, 0xFF)),
            trail.eq(Mux(beat.last & (stop != 0), (1 << stop) - 1, 0xFF)),
            self.beats.valid.eq(self.valid & mine & self.waiting & good & ~header.poisoned),
            self.beats.p.client.eq(expected.client),
            self.beats.p.start.eq(start),
            self.beats.p.data.eq(beat.data),
            self.beats.p.enable.eq(lead & trail),
            self.beats.p.first.eq(beat.first),
            self.beats.p.last.eq(beat.last),
        ]
        return m
