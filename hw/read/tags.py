# SPDX-License-Identifier: BSD-2-Clause
"""Bookkeeping of read tags: which are free, which are out, and in-order retirement."""

from itertools import pairwise

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..seam import FIVE_BIT_TAGS
from .records import Owner

__all__ = ["OrderQueues", "TagStates"]


class TagStates(wiring.Component):
    """Scoreboard of the tags: three bits for each.

    * busy: a job owns the tag, from `free` to `released`;
    * waiting: the job waits for completions;
    * quarantined: no job waits for them, but completions may still come.

    A tag is free when it is neither busy nor quarantined: a missing completion keeps its tag out
    of use even after its job has ended, and across `flush`.

    Parameters
    ----------
    tags : int
        Number of tags, a power of two.
    abut : bool
        A tag may be `completed` in any cycle, also in one in which another one is taken, or ends.

    Members
    -------
    free : Out(stream of tag)
        A tag to use; taking it makes it busy. At best one in two cycles; with few free tags it
        takes up to one cycle for eight tags to find one. Not to be taken in a cycle with `flush`.
    wait : In(1)
        The tag that is taken in this cycle begins to wait.
    lookup_tag : In(8)
        The tag that the next four members report or change.
    lookup_waiting, lookup_quarantined : Out(1)
    ended : In(1)
        Waiting becomes quarantined: the job has ended. Not in a cycle in which a tag is taken.
    closed : In(1)
        No more completions will come; wins over `ended`. Nor this.
    completed : In(stream of tag, always ready), with `abut`
        No more completions will come for this tag; wins over `ended`. Not for a tag that is taken.
    released : In(stream of tag, always ready)
        The job of this tag has retired.
    flush : In(1)
        All jobs are forgotten: busy tags are not, waiting tags become quarantined.
    waiting, quarantined : Out(tags)
    extended : In(1), with more than `FIVE_BIT_TAGS` tags
        From the next cycle on, others than these may be taken, or not any more.
    """

    def __init__(self, tags: int, *, abut: bool = False):
        self._tags = tags
        self._abut = abut
        event = stream.Signature(8, always_ready=True)
        super().__init__(
            {
                "free": Out(stream.Signature(8)),
                "wait": In(1),
                "lookup_tag": In(8),
                "lookup_waiting": Out(1),
                "lookup_quarantined": Out(1),
                "ended": In(1),
                "closed": In(1),
                "released": In(event),
                "flush": In(1),
                "waiting": Out(tags),
                "quarantined": Out(tags),
            }
            | ({"completed": In(event)} if abut else {})
            | ({"extended": In(1)} if tags > FIVE_BIT_TAGS else {})
        )

    def elaborate(self, platform):
        m = Module()
        tags = self._tags
        width = (tags - 1).bit_length()

        def one_hot(tag, enable):
            return Cat(enable & (tag[:width] == i) for i in range(tags))

        def every(condition):
            return condition.replicate(tags)

        # A tag is taken or its completions change, so that one decoder serves both.
        taken = self.free.valid & self.free.ready
        changed = one_hot(
            Mux(taken, self.free.p, self.lookup_tag), taken | self.ended | self.closed
        )
        released = one_hot(self.released.p, self.released.valid)
        busy = Signal(tags)
        free = Signal(tags)
        kept = ~changed
        quarantines = changed & every(self.ended & ~self.closed)
        if self._abut:
            completed = one_hot(self.completed.p, self.completed.valid)
            kept, quarantines = kept & ~completed, quarantines & ~completed
        lost = self.waiting & every(self.flush)
        m.d.sync += [
            busy.eq((busy | (changed & every(taken))) & ~released & ~every(self.flush)),
            self.waiting.eq(
                ((self.waiting & kept) | (changed & every(taken & self.wait))) & ~every(self.flush)
            ),
            self.quarantined.eq(((self.quarantined | lost) & kept) | quarantines),
        ]
        m.d.comb += [
            self.lookup_waiting.eq(self.waiting.bit_select(self.lookup_tag[:width], 1)),
            self.lookup_quarantined.eq(self.quarantined.bit_select(self.lookup_tag[:width], 1)),
            free.eq(~(busy | self.quarantined)),
        ]
        # One group of tags is searched per cycle: a priority encoder finds its lowest free tag.
        size = min(tags, 8)
        groups = Array(free[i : i + size] for i in range(0, tags, size))
        group = Signal(range(len(groups)))
        candidates = Signal(size)
        found, searched = self.free.valid, group
        if tags > FIVE_BIT_TAGS:
            # Without extended tags, only the first groups are searched, and a tag of another that
            # had been found is not offered.
            extended, found, searched = Signal(), Signal(), Signal.like(group)
            first = group[: exact_log2(FIVE_BIT_TAGS // size)]
            m.d.sync += extended.eq(self.extended)
            m.d.comb += [
                searched.eq(Mux(extended, group, first)),
                self.free.valid.eq(found & (extended | (self.free.p < FIVE_BIT_TAGS))),
            ]
        m.d.comb += candidates.eq(groups[searched])
        with m.If(~self.free.valid):
            m.d.sync += [
                found.eq(candidates.any()),
                group.eq(group + 1),
            ]
            for i in reversed(range(size)):
                with m.If(candidates[i]):
                    m.d.sync += self.free.p.eq(searched * size + i)
        with m.Elif(self.free.ready):
            m.d.sync += found.eq(0)
        return m


class OrderQueues(wiring.Component):
    """Retires the jobs of each client in the order in which they were pushed.

    One look-up serves the clients round robin, one per cycle, unless `predicted` names a client. A
    tag appears at `retire` two cycles after the look-up if it no longer waits in the cycle after
    the look-up.

    Parameters
    ----------
    clients, tags : int
        Queues, and room in each.

    Members
    -------
    taken : In(stream of Owner, always ready)
        Not in a cycle with `flush`.
    waiting : In(tags)
        Of `TagStates`; sampled from the cycle after `taken`.
    predicted : In(stream of client, always ready)
        Look up this client now: from the next cycle on its oldest job may no longer wait. Not in
        every cycle, because the round robin stands still meanwhile.
    retire : Out(stream of Owner, always ready)
        The oldest tag of a client whose job has ended.
    head : Out(stream of Owner, always ready)
        The oldest tag of the client that was looked up in the cycle before, unless its job is
        about to retire.
    retires : Out(1)
        `head` is at `retire` in the next cycle, unless that has `flush`.
    idle : Out(clients)
        The queue is empty; rises in the cycle after `retire`.
    flush : In(1)
        Empties the queues. From the next cycle on nothing is retired.
    """

    def __init__(self, clients: int, tags: int):
        self._clients = clients
        self._tags = tags
        event = stream.Signature(Owner, always_ready=True)
        super().__init__(
            {
                "taken": In(event),
                "waiting": In(tags),
                "predicted": In(stream.Signature(4, always_ready=True)),
                "retire": Out(event),
                "head": Out(event),
                "retires": Out(1),
                "idle": Out(clients),
                "flush": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        clients, tags = self._clients, self._tags
        slot = Signal(range(clients))
        client = Signal(range(clients))
        m.d.comb += client.eq(Mux(self.predicted.valid, self.predicted.p, slot))
        with m.If(~self.predicted.valid):
            m.d.sync += slot.eq(Mux(slot == clients - 1, 0, slot + 1))

        m.submodules.order = order = memory.Memory(
            shape=range(tags), depth=(1 << (clients - 1).bit_length()) * tags, init=[]
        )
        write = order.write_port()
        read = order.read_port(domain="comb")
        # One bit wider than an index, to tell full from empty.
        heads = Array(Signal(range(2 * tags), name=f"head{i}") for i in range(clients))
        tails = Array(Signal(range(2 * tags), name=f"tail{i}") for i in range(clients))

        taken, retire = self.taken, self.retire
        index = range(tags)[-1].bit_length()
        m.d.comb += [
            write.addr.eq(Cat(tails[taken.p.client][:index], taken.p.client)),
            write.data.eq(taken.p.tag),
            write.en.eq(taken.valid),
            read.addr.eq(Cat(heads[client][:index], client)),
        ]
        with m.If(taken.valid):
            m.d.sync += tails[taken.p.client].eq(tails[taken.p.client] + 1)

        # A pipeline: look up the tag at the head; test whether its job has ended; retire. The last
        # word of its data is in the memory by then. The head pointer moves only with `retire`, so
        # a client that is in the pipeline, or has just left it, is looked up with a stale head:
        # such a look-up is a duplicate.
        stages = [Signal(retire.p.shape(), name=f"stage{i}") for i in range(3)]
        valids = [Signal(name=f"valid{i}") for i in range(3)]
        duplicate = Cat(
            valid & (stage.client == stages[0].client)
            for stage, valid in zip(stages[1:], valids[1:], strict=True)
        ).any()
        m.d.sync += [
            stages[0].client.eq(client),
            stages[0].tag.eq(read.data),
            valids[0].eq(heads[client] != tails[client]),
            valids[1].eq(self.retires),
            *(after.eq(before) for before, after in pairwise(stages)),
            *(after.eq(before) for before, after in pairwise(valids[1:])),
        ]
        m.d.comb += [
            retire.p.eq(stages[1]),
            retire.valid.eq(valids[1] & ~self.flush),
            self.head.p.eq(stages[0]),
            self.head.valid.eq(valids[0] & ~duplicate & ~self.flush),
            self.retires.eq(self.head.valid & ~self.waiting.bit_select(stages[0].tag, 1)),
        ]
        with m.If(retire.valid):
            m.d.sync += heads[retire.p.client].eq(heads[retire.p.client] + 1)
        for i in range(clients):
            m.d.comb += self.idle[i].eq(heads[i] == tails[i])
        with m.If(self.flush):
            m.d.sync += [pointer.eq(0) for pointer in (*heads, *tails)]
            m.d.sync += [valid.eq(0) for valid in valids]
        return m
