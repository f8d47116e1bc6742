# SPDX-License-Identifier: BSD-2-Clause
"""How far the list of descriptors of each channel is."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from peerdma import regs

from ..records import InOrderMark, Outcome, Retired, placement
from .plan import ALIGN
from .tables import ChannelTable

__all__ = ["READS", "Lists", "places"]

#: Reads of a channel under way at most.
READS = 4


def places(placed, dword: int) -> Value:
    """Whether a placement into a ring of descriptors brings this dword of one, in its own lane."""
    lanes = len(placed.data) // 8
    word, lane = divmod(4 * dword, lanes)
    words = regs.DESCRIPTOR.itemsize // lanes
    if words == 1:
        return placed.enable[0][lane] | placed.enable[1][lane]
    row, bank = divmod(word, 2)
    rows = exact_log2(words // 2)
    return placed.enable[bank][lane] & (placed.rows[bank][:rows] == row)


def _ends(control) -> Value:
    """Whether a list ends with the descriptor of this control dword, by Stop or by an error."""
    return (control[16:32] != regs.DESC_MAGIC) | (control & regs.DESC_STOP).any()


class Lists(wiring.Component):
    """Whether each channel's list runs, what of it has arrived, and whether a read has failed.

    If `shared`, a channel has two lists, of which one runs at a time: the host's, and with
    `channels` rounded up to a power of two added to its number, that of another owner.

    Parameters
    ----------
    channels : int
    shared : bool
    slots : int
        Descriptors in the ring of each channel.
    width : int
        Bits of a word of the ring.

    Members
    -------
    start, flush : In(channels)
        A list is to begin; it is over. As at `hw.channel.fetch.DescriptorFetch`.
    placement, mark, retired
        As at `hw.channel.fetch.DescriptorFetch`, but `client` is the number of the list.
    owned : In(channels), rest : In(channels), resume : In(channels)
        The other owner's list is meant. The host's is put aside, unless it has failed; goes on.
        Only if `shared`.
    issue : In(channels)
        A read for this channel is issued.
    running, reading : Out(channels)
        Lists that are not over; those with reads under way.
    complete : Out(channels)
        Nothing more is to be read of these lists.
    channel : In(range(channels))
        Of this one is the following.
    begin : In(1), end : In(1)
        Its list has begun; it is over.
    runs, starts, ended, failed : Out(1)
        It runs; is to begin; its end has arrived; a read of it has failed, with this `failure`.
    busy : Out(1)
        It has as many reads under way as there can be.
    filled : Out, failure : Out(Outcome)
        How many descriptors have arrived in its ring, with the bit above the slot's number.
    """

    def __init__(self, channels: int, slots: int, *, width: int, shared: bool = False):
        self._channels, self._slots, self._shared = channels, slots, shared
        self._bits = ceil_log2(channels)
        #: how many there are
        self.count = 2 << self._bits if shared else channels
        always = {"always_ready": True}
        sharing = ("owned", "rest", "resume") if shared else ()
        super().__init__(
            {
                "start": In(channels),
                "flush": In(channels),
                **{name: In(channels) for name in sharing},
                "placement": In(stream.Signature(placement(width), **always)),
                "mark": In(stream.Signature(InOrderMark, **always)),
                "retired": In(stream.Signature(Retired, **always)).array(channels),
                "issue": In(channels),
                "running": Out(channels),
                "reading": Out(channels),
                "complete": Out(channels),
                "channel": In(range(channels)),
                "begin": In(1),
                "end": In(1),
                "runs": Out(1),
                "starts": Out(1),
                "ended": Out(1),
                "failed": Out(1),
                "busy": Out(1),
                "filled": Out(exact_log2(slots) + 1),
                "failure": Out(Outcome),
            }
        )

    def elaborate(self, platform):
        m = Module()
        channels, now = self._channels, self.channel
        starting, failed = (Signal(channels, name=name) for name in ("starting", "failed_lists"))
        ended = Signal(self.count, name="ended_lists")
        #: of each channel, the end of the list that is meant has arrived
        at_end, client = ended, self.mark.payload.client
        if self._shared:
            half, client = self.count // 2, client[: self._bits]
            at_end = (ended & ~self.owned) | (ended[half:] & self.owned)
        outstanding = Array(
            Signal(range(READS + 1), name=f"outstanding{n}") for n in range(channels)
        )
        m.d.comb += [
            self.runs.eq(self.running.bit_select(now, 1)),
            self.starts.eq(starting.bit_select(now, 1)),
            self.ended.eq(at_end.bit_select(now, 1)),
            self.failed.eq(failed.bit_select(now, 1)),
            self.busy.eq(outstanding[now] == READS),
            self.complete.eq(at_end | failed | ~self.running),
        ]
        with m.If(self.begin):
            m.d.sync += starting.bit_select(now, 1).eq(0)
        with m.If(self.end):
            m.d.sync += self.running.bit_select(now, 1).eq(0)

        placed, mark = self.placement.payload, self.mark.payload
        with m.If(self.placement.valid & places(placed, 0) & _ends(placed.data[:32])):
            m.d.sync += ended.bit_select(placed.client, 1).eq(1)
        m.submodules.filled = filled = ChannelTable(len(self.filled), self.count)
        m.submodules.failure = failure = ChannelTable(Outcome, channels)
        m.d.comb += [
            filled.channel.eq(self.number(now)),
            filled.where.eq(mark.client),
            filled.data.eq(mark.place.as_value() >> ALIGN),
            # A mark of a read behind one that failed says nothing about the list.
            filled.write.eq(self.mark.valid & ~failed.bit_select(client, 1)),
            self.filled.eq(filled.value),
            failure.channel.eq(now),
            self.failure.eq(failure.value),
        ]
        for n, retired in enumerate(self.retired):
            m.d.comb += self.reading[n].eq(outstanding[n] != 0)
            m.d.sync += outstanding[n].eq(outstanding[n] + self.issue[n] - retired.valid)
            with m.If(retired.valid & (retired.payload.outcome != Outcome.OK)):
                m.d.sync += failed[n].eq(1)
                m.d.comb += [
                    failure.where.eq(n),
                    failure.data.eq(retired.payload.outcome),
                    failure.write.eq(~failed[n]),
                ]
            with m.If(self.start[n]):
                m.d.sync += [
                    self.running[n].eq(1),
                    starting[n].eq(1),
                    ended.bit_select(self.number(Const(n, self._bits)), 1).eq(0),
                    failed[n].eq(0),
                ]
            with m.If(self.flush[n]):
                m.d.sync += self.running[n].eq(0)
            if self._shared:
                with m.If(self.rest[n] & ~failed[n]):
                    m.d.sync += self.running[n].eq(0)
                with m.If(self.resume[n]):
                    # The owner's may have been flushed before it began, or have failed.
                    m.d.sync += [self.running[n].eq(1), starting[n].eq(0), failed[n].eq(0)]
        return m

    def number(self, channel):
        """That of the list of this channel that is meant; of `range(channels)`."""
        if not self._shared:
            return channel
        return Cat(channel, self.owned.bit_select(channel, 1))
