# SPDX-License-Identifier: BSD-2-Clause
"""Accounts for the room that outstanding reads need in the PCIe block's completion buffer."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import JOB_BYTES, ReadJob
from .records import Owner

__all__ = ["MOST_COMPLETIONS", "OVERCOMMIT", "CompletionSpace"]

#: The smaller read completion boundary; the larger one is twice that.
BOUNDARY = 64
#: Completions of a read of `JOB_BYTES` at most: one more than if it begins at a boundary.
MOST_COMPLETIONS = JOB_BYTES // BOUNDARY + 1
#: How many times as many as there is room for may be under way with `overcommit`.
OVERCOMMIT = 2


class _Charge(data.Struct):
    """What is left of the charge of a tag."""

    #: completions
    left: range(MOST_COMPLETIONS + 1)
    #: counted with a boundary of 128 bytes
    wide: 1
    #: the read has timed out
    lost: 1
    #: the read is of data, and has not timed out
    data: 1


class CompletionSpace(wiring.Component):
    """Charges each read with the most completions that may answer it.

    That is one for each block of 64 bytes that the read touches, or of 128 bytes if Link Control
    says that the root complex completes at those boundaries. When a completion begins to leave the
    PCIe block, its length is known, so all blocks that end in it are given back but one; this one,
    for which the buffer holds the completion until its last beat, is given back with that beat.
    With the last completion, or when no more will come, the rest is. So the buffer never holds more
    than is charged, however long the block or the port pauses. A read that has timed out keeps its
    charge, since its completions may still come; so does one that was flushed.

    Whether there is room is said for the largest read, two cycles after a job was taken; so there
    is a cycle in which no job may be taken. Room for the job itself would have to be known in the
    cycle in which it is chosen.

    Parameters
    ----------
    tags : int
    capacity : int
        Completions for which the PCIe block has room, each with 128 bytes, and one of them with
        `JOB_BYTES`.
    fetches : int
        The first clients, whose reads are no data.
    abut : bool
        A job may begin in a cycle with the last beat of a completion, and another read be late or
        closed. What the last beat gives back is kept beside the charges then, from the first one
        on.
    overcommit : bool
        More may be charged than there is room for, while the member of this name is high.
    unit : int
        A power of two, see `in_flight`.

    Members
    -------
    boundary_128 : In(1)
        The read completion boundary is 128 bytes, not 64.
    in_flight : In(4)
        Most bytes of data reads in flight, in units of `JOB_BYTES` times `unit`, those not counted
        that have timed out; 0: as many as there is room for.
    most : In(range(most_under_way + 1))
        Most charges of data reads in flight, in the same way, when another one is asked for.
    overcommit : In(1), if it may be
        `OVERCOMMIT` times as many completions may be under way. Once it has fallen, no read is
        asked for beyond the room, but for one that is taken in the next cycle.
    taken : In(stream of Owner, always ready), job : In(ReadJob), asks : In(1)
        A job begins, and whether it makes a request. Not in a cycle with one of the events below,
        but for `arrives` and what comes with it if packets may abut.
    tag : In(8)
        The tag of the events below, but for `arrives` if packets may abut.
    begins, arrives : In(1), lower_address : In(7), dwords : In(11)
        The first, and the last beat of a good completion of the request have left the PCIe block's
        buffer. Each completion has both, perhaps in one cycle, unless the request is closed before.
        If packets may abut, `begins` is also that of one which is not good but closes the request,
        and `arrives` that of any packet, missing where the block cuts one off.
    late : In(1)
        The read has timed out, but completions may still come.
    closed : In(1)
        No more completions will come. If packets may abut, that is said with `begins` of the last
        one, which counts until `arrives`.
    room, data_room : Out(1)
        There is room for any read; for the data of a channel, which does not cross a multiple of
        `JOB_BYTES` and has limits. While none of its reads is in flight, its limits allow one.
    hopeless : Out(1)
        There will be no room for every read before completions of reads that have timed out come,
        or are given up.
    returned : Out(range(MOST_COMPLETIONS + 1))
        Charges that were given back in the cycle before.

    Raises
    ------
    ValueError
        If there is not even room for one read.
    """

    def __init__(
        self,
        tags: int,
        capacity: int,
        fetches: int,
        *,
        abut: bool = False,
        overcommit: bool = False,
        unit: int = 1,
    ):
        if capacity < MOST_COMPLETIONS:
            raise ValueError(
                f"a read of {JOB_BYTES} bytes may have {MOST_COMPLETIONS} completions, and the "
                f"PCIe block has room for {capacity} of 128 bytes each: use one that has more"
            )
        self._tags = tags
        self._capacity = capacity
        self._fetches = fetches
        self._abut = abut
        self._overcommit = overcommit
        self._unit = unit
        #: completions that may ever be under way
        self.most_under_way: int = capacity * OVERCOMMIT if overcommit else capacity
        super().__init__(
            {
                "boundary_128": In(1),
                "in_flight": In(4),
                "most": In(range(self.most_under_way + 1)),
                "taken": In(stream.Signature(Owner, always_ready=True)),
                "job": In(ReadJob),
                "asks": In(1),
                "tag": In(8),
                "begins": In(1),
                "arrives": In(1),
                "lower_address": In(7),
                "dwords": In(11),
                "late": In(1),
                "closed": In(1),
                "room": Out(1),
                "data_room": Out(1),
                "hopeless": Out(1),
                "returned": Out(range(MOST_COMPLETIONS + 1)),
            }
            | ({"overcommit": In(1)} if overcommit else {})
        )

    def elaborate(self, platform):
        m = Module()
        # A job is charged for the boundary for which there was room.
        wide = Signal()
        m.d.sync += wide.eq(self.boundary_128)
        m.submodules.charges = charges = memory.Memory(shape=_Charge, depth=self._tags, init=[])
        write, read = charges.write_port(), charges.read_port(domain="comb")
        charge = read.data

        # Of a job: blocks up to its last byte, counted from a multiple of 128.
        offset = self.job.address[:7]
        last = Signal(10)
        needed = Signal.like(charge.left)
        charged = Signal.like(charge.left)
        m.d.comb += [
            last.eq(offset + self.job.length - 1),
            needed.eq(Mux(wide, last[7:] + 1, last[6:] + 1 - offset[6])),
        ]
        m.d.sync += charged.eq(Mux(self.taken.valid & self.asks, needed, 0))

        # Of a completion: boundaries up to its end, counted in the same way.
        end = Signal(9)
        ended = Signal.like(charge.left)
        returns = Signal.like(charge.left)
        returned = self.returned
        #: The block that the completion itself counts as until its last beat. If it does not end at
        #: a boundary, it is the request's last, and what it counts as is given back as the rest.
        itself = Signal()
        m.d.comb += [
            itself.eq((end[:4] == 0) & ~(charge.wide & end[4])),
            end.eq(self.lower_address[2:] + self.dwords),
            ended.eq(Mux(charge.wide, end[5:], end[4:] - self.lower_address[6])),
        ]
        if self._abut:
            # The completion that has begun, if it counts as one, and of which read it was then
            begun = Signal()
            kind = Signal(_Charge)
            counts = Mux(self.closed, charge.left.any(), itself)
            with m.If(self.begins):
                m.d.sync += [begun.eq(counts), kind.eq(charge)]
            with m.If(self.arrives):
                m.d.sync += begun.eq(0)
            # The next one may begin without the end of this one.
            released = begun & (self.begins | self.arrives)
            taken_off = Mux(self.closed, charge.left, Mux(self.begins, ended, 0))
            m.d.comb += returns.eq(taken_off - (self.begins & ~self.arrives & counts))
            written = self.begins | self.late
        else:
            with m.If(self.closed):
                m.d.comb += returns.eq(charge.left)
            with m.Elif(self.begins):
                m.d.comb += returns.eq(ended - (itself & ~self.arrives))
            with m.Elif(self.arrives):
                m.d.comb += returns.eq(itself)
            taken_off = returns
            written = self.begins | self.arrives | self.late | self.closed

        all_returns = returns
        data_returns = Mux(charge.data, Mux(self.late, charge.left, returns), 0)
        lost_returns = Mux(charge.lost, returns, 0)
        if self._abut:
            all_returns += released
            data_returns += released & kind.data
            lost_returns += released & kind.lost
        m.d.sync += returned.eq(all_returns)

        for_data = self.taken.p.client >= self._fetches
        m.d.comb += [
            read.addr.eq(self.tag),
            write.addr.eq(Mux(self.taken.valid, self.taken.p.tag, self.tag)),
            write.data.left.eq(Mux(self.taken.valid, needed, charge.left - taken_off)),
            write.data.wide.eq(Mux(self.taken.valid, wide, charge.wide)),
            write.data.lost.eq(~self.taken.valid & (charge.lost | self.late)),
            write.data.data.eq(Mux(self.taken.valid, for_data, charge.data & ~self.late)),
            write.en.eq(self.taken.valid | written),
        ]

        # Completions that may come for data, without those of reads that have timed out
        data_charged, data_returned = Signal.like(charge.left), Signal.like(charge.left)
        under_way = Signal(range(self.most_under_way + 1))
        following_data = Signal.like(under_way)
        m.d.sync += [
            data_charged.eq(Mux(self.taken.valid & self.asks & for_data, needed, 0)),
            data_returned.eq(data_returns),
            under_way.eq(following_data),
        ]
        m.d.comb += following_data.eq(under_way + data_charged - data_returned)

        # Completions that may come, and those of them that are of reads that have timed out
        expected = Signal(range(self.most_under_way + 1))
        following = Signal.like(expected)
        lost = Signal.like(expected)
        lost_charged = Signal.like(charge.left)
        lost_returned = Signal.like(charge.left)
        m.d.comb += following.eq(expected + charged - returned)
        m.d.sync += [
            expected.eq(following),
            lost_charged.eq(Mux(self.late, charge.left, 0)),
            lost_returned.eq(lost_returns),
            lost.eq(lost + lost_charged - lost_returned),
        ]

        wider = self.boundary_128
        most = Mux(wider, MOST_COMPLETIONS // 2 + 1, MOST_COMPLETIONS)
        most_data = Mux(wider, MOST_COMPLETIONS // 2, MOST_COMPLETIONS - 1)
        capacity = self._capacity
        if self._overcommit:
            capacity = Mux(self.overcommit, self.most_under_way, capacity)
        finer = exact_log2(self._unit)
        others = ((self.in_flight.shift_left(finer) - 1)[: 4 + finer] << 3) >> wider
        m.d.sync += [
            self.room.eq(following <= capacity - most),
            self.data_room.eq(
                (following <= capacity - most_data)
                & ((self.in_flight == 0) | (following_data <= others))
                & (following_data <= self.most)
            ),
            self.hopeless.eq(lost > capacity - most),
        ]
        return m
