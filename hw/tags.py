# SPDX-License-Identifier: BSD-2-Clause
"""Bookkeeping of read tags: which are free, which are out, and whose turn it is to retire."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .issuer import Owner

__all__ = ["OrderQueues", "TagStates"]


class TagStates(wiring.Component):
    """Three bits for each tag.

    * busy: a job owns the tag, from `free` to `released`;
    * open: completions may still come, from `opened` to `close`;
    * quarantined: open, but the job does not wait for them any more.

    A tag is free when it is neither busy nor open: a missing completion keeps its tag out of use
    even after its job has ended, and across `flush`.

    Parameters
    ----------
    tags : int
        Number of tags.

    Members
    -------
    free : Out(stream of tag)
        A tag to use; taking it makes it busy. At best one in two cycles.
    opened : In(stream of tag, always ready)
        A request with this tag goes out. Not in the cycle in which the tag was taken.
    subject : In(tag)
        The tag that `subject_open` and `subject_quarantined` tell about, and that `close` and
        `quarantine` change.
    close : In(1)
        No more completions will come for `subject`.
    quarantine : In(1)
        The job of `subject`, which is open, has ended; `close` in the same cycle wins.
    released : In(stream of tag, always ready)
        The job of this tag has retired.
    flush : In(1)
        All jobs are forgotten; open tags become quarantined.
    quarantined : Out(tags)
    ended : Out(tags)
        The job of the tag, if it has one that was opened or never will be, has ended.
    pending : Out(1)
        Some tag is open.
    """

    def __init__(self, tags: int):
        self._tags = tags
        tag = stream.Signature(8)
        event = stream.Signature(8, always_ready=True)
        super().__init__(
            {
                "free": Out(tag),
                "opened": In(event),
                "subject": In(8),
                "subject_open": Out(1),
                "subject_quarantined": Out(1),
                "close": In(1),
                "quarantine": In(1),
                "released": In(event),
                "flush": In(1),
                "quarantined": Out(tags),
                "ended": Out(tags),
                "pending": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tags = self._tags
        low_bits = (tags - 1).bit_length() // 2

        def one_hot(name, tag, enable=1):
            # Decoded in two halves, as 4 + 8 lines cost less to decode, and to use, than 32.
            low = Signal(1 << low_bits, name=f"{name}_low")
            high = Signal(tags >> low_bits, name=f"{name}_high")
            m.d.comb += [
                low.eq(enable << tag[:low_bits]),
                high.eq(1 << tag[low_bits : (tags - 1).bit_length()]),
            ]
            return Cat(low & line.replicate(len(low)) for line in high)

        taken = one_hot("taken", self.free.payload, self.free.valid & self.free.ready)
        opened = one_hot("opened", self.opened.payload, self.opened.valid)
        released = one_hot("released", self.released.payload, self.released.valid)
        subject = one_hot("subject", self.subject)

        busy = Signal(tags)
        open_ = Signal(tags)
        still_open = Signal(tags)
        free = Signal(tags)
        m.d.comb += [
            still_open.eq((open_ | opened) & ~(subject & self.close.replicate(tags))),
            free.eq(~(busy | open_)),
            self.ended.eq(~open_ | self.quarantined),
            self.pending.eq(open_.any()),
            self.subject_open.eq((open_ & subject).any()),
            self.subject_quarantined.eq((self.quarantined & subject).any()),
        ]
        m.d.sync += [
            busy.eq((busy | taken) & ~released & ~self.flush.replicate(tags)),
            open_.eq(still_open),
        ]
        dropped = self.quarantined | (subject & self.quarantine.replicate(tags))
        m.d.sync += self.quarantined.eq((dropped | self.flush.replicate(tags)) & still_open)

        with m.If(~self.free.valid):
            m.d.sync += self.free.valid.eq(free.any())
            for i in reversed(range(tags)):
                with m.If(free[i]):
                    m.d.sync += self.free.payload.eq(i)
        with m.Elif(self.free.ready):
            m.d.sync += self.free.valid.eq(0)
        return m


class OrderQueues(wiring.Component):
    """Retires the jobs of each client in the order in which they were pushed.

    One look-up serves the clients in turn, each once in max(clients, 4) cycles. A tag appears at
    `retire` three cycles after it was found to have ended: at least four after `ended` rose.

    Parameters
    ----------
    clients, tags : int
        Queues, and room in each.

    Members
    -------
    push : In(stream of Owner, always ready)
    ended : In(tags)
        See `TagStates`; looked at from the cycle after the push.
    retire : Out(stream of Owner, always ready)
        The oldest tag of a client whose job has ended.
    idle : Out(clients)
        The queue is empty and nothing is being pushed; rises in the cycle after `retire`.
    flush : In(1)
        Empties the queues. From the next cycle on nothing is retired.
    """

    def __init__(self, clients: int, tags: int):
        self._clients = clients
        self._tags = tags
        event = stream.Signature(Owner, always_ready=True)
        super().__init__(
            {
                "push": In(event),
                "ended": In(tags),
                "retire": Out(event),
                "idle": Out(clients),
                "flush": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        clients, tags = self._clients, self._tags
        # The four stages below must have passed before a client's queue is looked at again.
        turns = max(clients, 4)
        turn = Signal(range(turns))
        m.d.sync += turn.eq(Mux(turn == turns - 1, 0, turn + 1))

        m.submodules.order = order = memory.Memory(
            shape=range(tags), depth=(1 << (clients - 1).bit_length()) * tags, init=[]
        )
        write = order.write_port()
        read = order.read_port(domain="comb")
        # One bit more than an index tells full from empty.
        heads = Array(Signal(range(2 * tags), name=f"head{i}") for i in range(clients))
        tails = Array(Signal(range(2 * tags), name=f"tail{i}") for i in range(clients))

        push, retire = self.push, self.retire
        index = range(tags)[-1].bit_length()
        m.d.comb += [
            write.addr.eq(Cat(tails[push.p.client][:index], push.p.client)),
            write.data.eq(push.p.tag),
            write.en.eq(push.valid),
            read.addr.eq(Cat(heads[turn][:index], turn)),
        ]
        with m.If(push.valid):
            m.d.sync += tails[push.p.client].eq(tails[push.p.client] + 1)

        # Look up the tag at the head; see whether its job has ended; wait, as the last word of
        # its data is still on the way; retire.
        stages = [Signal(retire.p.shape(), name=f"stage{i}") for i in range(3)]
        valids = [Signal(name=f"valid{i}") for i in range(3)]
        m.d.sync += [
            stages[0].client.eq(turn),
            stages[0].tag.eq(read.data),
            valids[0].eq((heads[turn] != tails[turn]) & (turn < clients)),
            stages[1].eq(stages[0]),
            valids[1].eq(valids[0] & self.ended.bit_select(stages[0].tag, 1)),
            stages[2].eq(stages[1]),
            valids[2].eq(valids[1]),
        ]
        m.d.comb += [
            retire.p.eq(stages[2]),
            retire.valid.eq(valids[2] & ~self.flush),
        ]
        with m.If(retire.valid):
            m.d.sync += heads[retire.p.client].eq(heads[retire.p.client] + 1)
        for i in range(clients):
            pushing = push.valid & (push.p.client == i)
            m.d.comb += self.idle[i].eq((heads[i] == tails[i]) & ~pushing)
        with m.If(self.flush):
            m.d.sync += [pointer.eq(0) for pointer in (*heads, *tails)]
            m.d.sync += [valid.eq(0) for valid in valids]
        return m
