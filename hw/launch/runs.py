# SPDX-License-Identifier: BSD-2-Clause
"""The channels that the queues' tickets have, and how their runs end."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.data import View
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..channel.signatures import RUNS, OwnerSignature
from ..records import Outcome

__all__ = ["DESCRIPTOR_WORDS", "STATUS_BITS", "Runs", "channels_of"]

DESCRIPTOR_WORDS = regs.DESCRIPTOR.itemsize // 8
#: Bits of a `peerdma.regs.LaunchStatus`.
STATUS_BITS = 5
_STATUS = regs.LaunchStatus


def channels_of(
    control: View, h2c: int, c2h: int, pairs: int, *, packets: bool = False
) -> tuple[Value, Value]:
    """The channels that a slot's control names, H2C first, and whether the core has them.

    With `packets` those of C2H can take packets from their pair.
    """
    number = control.channel
    senders = Cat(number == index for index in range(h2c))
    receivers = Cat(number == index for index in range(c2h))
    channels = Cat(
        senders & (control.pair | ~control.c2h).replicate(h2c),
        receivers & (control.pair | control.c2h).replicate(c2h),
    )
    takes_packets = control.c2h & ~control.pair & (number < pairs) if packets else 0
    exists = Mux(control.pair, number < pairs, channels.any())
    return channels, exists & (~control.receive | takes_packets)


class Runs(wiring.Component):
    """Requests channels for queues, hands descriptors to them, and keeps how their runs end.

    A queue has channels for one ticket, or for several that have the same ones; and no two queues
    have the same channel. Runs end in the order of their tickets.
    When a run of a ticket ends otherwise than by Stop, its other one is aborted: the other half of
    a copy would wait for ever. What that has of tickets before comes to its end first.

    Parameters
    ----------
    queues, h2c, c2h, pairs : int
    packets : bool
        Runs may take packets: they begin with two descriptors.

    Members
    -------
    owners : array of Out(OwnerSignature)
    queue : In(range(queues))
        The queue that is served: what the following is of.
    begin : In(channels), receives : In(1)
        Request these from this cycle on, for a queue that has none; for a run that takes a packet.
    again, give_back, stop : In(1)
        Request all again; withdraw the requests that are granted; withdraw all.
    release : In(1)
        Forget the channels, when all have been `left`.
    abort : In(queues)
        Withdraw all requests of these queues.
    more : In(1)
        Tickets are at work, or entries are read: other requests may follow.
    used : Out(channels), taken : Out(channels)
        The channels of the queue; and those of any queue.
    granted, ready : Out(1)
        All are granted; and could begin another run.
    left : Out(1)
        None is requested or granted any more.
    ended : Out(1)
        All runs of the oldest ticket that has begun have ended, or will not begin any more.
    status : Out(STATUS_BITS)
        How that one ended: the first error in the order of the channels, else ABORTED if a run
        was aborted or has not begun, else LONG if the packet was, else OK.
    running : In(range(RUNS + 1)), next : In(1)
        Tickets that have begun, from that one on; and the one after that is the oldest from the
        next cycle on.
    target : In(channels)
        Which ones the following is for.
    push : In(1), number : In(range(words)), word : In(64), pushed : Out(1)
        A word of the descriptors that they begin with, and its number, until it is `pushed`.
    start : In(1), started : Out(1)
        Begin their run, which happens in the cycle of `started`.
    reserve : In(channels)
        These have one behind, see `hw.channel.signatures.OwnerSignature`.
    """

    def __init__(self, queues: int, *, h2c: int, c2h: int, pairs: int, packets: bool = False):
        self._queues, self._h2c, self._pairs, self._packets = queues, h2c, pairs, packets
        channels, words = h2c + c2h, DESCRIPTOR_WORDS << packets
        super().__init__(
            {
                "owners": Out(OwnerSignature()).array(channels),
                "queue": In(range(queues)),
                "begin": In(channels),
                "receives": In(1),
                "again": In(1),
                "give_back": In(1),
                "stop": In(1),
                "release": In(1),
                "abort": In(queues),
                "more": In(1),
                "used": Out(channels),
                "taken": Out(channels),
                "granted": Out(1),
                "ready": Out(1),
                "left": Out(1),
                "ended": Out(1),
                "status": Out(STATUS_BITS),
                "running": In(range(RUNS + 1)),
                "next": In(1),
                "target": In(channels),
                "push": In(1),
                "number": In(exact_log2(words)),
                "word": In(64),
                "pushed": Out(1),
                "start": In(1),
                "started": Out(1),
                "reserve": In(channels),
            }
        )

    def elaborate(self, platform):
        m = Module()
        owners, used, channels = self.owners, self.used, len(self.owners)
        masks = [Signal(channels, name=f"mask{queue}") for queue in range(self._queues)]
        mask = Array(masks)[self.queue]
        want = Signal(channels)
        granted = Cat(owner.granted for owner in owners)
        takes = Cat(owner.word.ready for owner in owners)
        for queue, each in enumerate(masks):
            served = self.queue == queue
            with m.If(self.begin.any() & served):
                m.d.sync += each.eq(self.begin)
            with m.If(self.release & served):
                m.d.sync += each.eq(0)

        drops = [Mux(self.abort[queue], each, 0) for queue, each in enumerate(masks)]
        drops += [Mux(self.give_back, used & granted, 0), Mux(self.stop, used, 0)]
        #: for each channel, whether the oldest run has ended by Stop; and the error of the one
        #: behind those that have
        good = Signal(channels)
        #: for each channel, whether a run has failed or was aborted since the channel was requested
        failed = Signal(channels)
        if self._packets:
            #: for each channel, whether the run that ended last took a packet that was too long
            long = Signal(channels)
            for number, owner in enumerate(owners):
                with m.If(owner.ended.valid):
                    m.d.sync += long[number].eq(owner.ended.payload.long)
            m.d.comb += self.status.eq(Mux((long & used).any(), _STATUS.LONG, _STATUS.OK))
        with m.If((~good & used).any()):
            m.d.comb += self.status.eq(_STATUS.ABORTED)
        for number, owner in reversed(list(enumerate(owners))):
            end, outcome = owner.ended.payload, Signal(Outcome, name=f"outcome{number}")
            broken = owner.ended.valid & ((end.outcome != Outcome.OK) | end.aborted)
            m.d.comb += good[number].eq(self.running > owner.runs)
            with m.If(broken):
                m.d.sync += outcome.eq(end.outcome)
            # Those behind one with an error are aborted.
            with m.If(self.next & used[number] & ~good[number]):
                m.d.sync += outcome.eq(Outcome.OK)
            with m.If(self.begin[number]):
                m.d.sync += owner.receives.eq(self.receives)
            with m.If(used[number] & ~good[number] & (outcome != Outcome.OK)):
                m.d.comb += self.status.eq(outcome)
            with m.If(self.begin[number]):
                m.d.sync += failed[number].eq(0)
            with m.Elif(broken):
                m.d.sync += failed[number].eq(1)
            drops.append((owner.ended.valid & end.last) << number)

            placed, bank = owner.word.payload, self.number[0]
            m.d.comb += [
                owner.request.eq(want[number] | self.begin[number]),
                owner.more.eq(self.more),
                owner.word.valid.eq(self.push & self.target[number]),
                placed.data.eq(self.word),
                owner.pushed.any.eq(1),
                owner.pushed.whole.eq(1),
                owner.pushed.count.eq(1 + owner.receives),
                owner.start.eq(self.start & self.target[number]),
                owner.reserve.eq(self.reserve[number]),
            ]
            for odd in range(2):
                m.d.comb += [
                    placed.rows[odd].eq(self.number[1:]),
                    placed.enable[odd].eq((bank == odd).replicate(8)),
                ]
        for index in range(self._pairs):
            halves = index, self._h2c + index
            both = reduce(or_, (each[halves[0]] & each[halves[1]] for each in masks))
            for one, other in (halves, halves[::-1]):
                # Its oldest run is of the ticket that has failed on the other one, or behind.
                reached = owners[one].runs <= owners[other].runs
                drops.append((both & failed[other] & reached) << one)
        add = self.begin | Mux(self.again, used, 0)
        m.d.sync += want.eq((want | add) & ~reduce(or_, drops))
        m.d.comb += [
            used.eq(mask),
            self.taken.eq(reduce(or_, masks)),
            self.granted.eq((granted & used) == used),
            self.ready.eq((Cat(owner.ready for owner in owners) & used) == used),
            self.left.eq(((want | granted) & used) == 0),
            self.ended.eq((used & ~good & (want | granted)) == 0),
            self.pushed.eq(self.push & (takes & self.target).any()),
            self.started.eq(Cat(owner.start & owner.ready for owner in owners).any()),
        ]
        return m
