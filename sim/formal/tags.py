# SPDX-License-Identifier: BSD-2-Clause
"""Tags: when they are free, and in which order their jobs retire."""

from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.utils import exact_log2

from hw.read.tags import OrderQueues, TagStates
from hw.seam import FIVE_BIT_TAGS

from .property import Property

__all__ = ["AbuttingTags", "ExtendedTags", "Order", "Tags"]


class Tags(Property):
    """No tag is offered while its job has not retired or completions for it may come.

    Nor is one forgotten: a tag that is neither owned nor quarantined is offered, or another, as
    long as any is left. Assumed is what the read engine sees to: no job is taken in a cycle with
    `flush`, `ended` or `closed`; a job retires once, when it has ended; only what waits ends, only
    what is expected is closed.
    """

    ABUT = False
    depth = 4
    TAGS = 16

    def __init__(self):
        super().__init__(TagStates(self.TAGS, abut=self.ABUT))

    def _state(self, m):
        block, bits = self.block, exact_log2(self.TAGS)
        tag = self.any(m, bits, "tag")
        owned, waiting, expected = Signal(), Signal(), Signal()
        taken, released, lookup = Signal(), Signal(), Signal()
        m.d.comb += [
            taken.eq(block.free.valid & block.free.ready & (block.free.payload == tag)),
            released.eq(block.released.valid & (block.released.payload[:bits] == tag)),
            lookup.eq(block.lookup_tag[:bits] == tag),
            Assume(~(block.free.ready & (block.flush | block.ended | block.closed))),
            Assume(~released | (owned & ~waiting)),
            Assume(~(lookup & block.ended) | waiting),
            Assume(~(lookup & block.closed) | expected),
        ]
        completed = self._completed(m, tag, taken, expected)
        with m.If(released | block.flush):
            m.d.sync += owned.eq(0)
        with m.If(block.flush | (lookup & (block.ended | block.closed)) | completed):
            m.d.sync += waiting.eq(0)
        with m.If((lookup & block.closed) | completed):
            m.d.sync += expected.eq(0)
        with m.If(taken):
            m.d.sync += [owned.eq(1), waiting.eq(block.wait), expected.eq(block.wait)]
        was_missing = Signal()
        with m.If(((lookup & block.closed) | completed) & ~waiting):
            m.d.sync += was_missing.eq(1)
        offered = block.free.valid & (block.free.payload == tag)
        usable = ~owned & ~expected
        m.d.comb += [
            Assert(~offered | usable),
            Assert(block.waiting.bit_select(tag, 1) == waiting),
            Assert(block.quarantined.bit_select(tag, 1) == (expected & ~waiting)),
            Assert(~waiting | (expected & owned)),
            Assert(block.free.payload < self.TAGS),
            # What is inside.
            Assert(self.inside("busy").bit_select(tag, 1) == owned),
        ]
        self.cover(
            m,
            offered & self.past(m, block.flush),
            block.quarantined.bit_select(tag, 1) & owned,
            offered & was_missing,
        )
        self._offer(m, offered, usable)

    def _completed(self, m, tag, taken, expected):
        """Whether the tag is closed by the decoder of its own."""
        return Const(0)

    def _offer(self, m, offered, usable):
        # Two groups of eight are searched in turn: at most three cycles until the next is found.
        idle = self.waiting(m, usable & ~self.block.free.valid, 3)
        m.d.comb += Assert(idle < 3)


class ExtendedTags(Tags):
    """The same of more tags than five bits have: none of the others is offered without leave.

    That no tag is forgotten is shown for fewer.
    """

    TAGS = 2 * FIVE_BIT_TAGS

    def _offer(self, m, offered, usable):
        extended = self.past(m, self.block.extended)
        beyond = self.block.free.payload >= FIVE_BIT_TAGS
        m.d.comb += Assert(~(self.block.free.valid & beyond) | extended)
        self.cover(m, offered & beyond, offered & ~beyond & extended)


class AbuttingTags(Tags):
    """The same where packets may abut: a tag is completed in any cycle, whatever another one does.

    Assumed: what is completed was expected, and is not taken in that cycle.
    """

    ABUT = True

    def _completed(self, m, tag, taken, expected):
        port = self.block.completed
        completed = Signal()
        m.d.comb += [
            completed.eq(port.valid & (port.payload[:4] == tag)),
            Assume(~completed | (expected & ~taken)),
        ]
        both = completed & (self.block.lookup_tag[:4] == tag) & self.block.ended
        self.cover(m, self.past(m, both), completed & self.block.free.ready, both)
        return completed


class Order(Property):
    """Each client's jobs retire in their order, each once, when its tag has stopped waiting.

    Followed is any one tag: in whose queue it is, and behind how many. Assumed: a tag is pushed
    when no queue holds it, as `Tags` says, so that a queue has room for it, and not in a cycle
    with `flush`; a tag that has stopped waiting does not wait again before it has retired.
    """

    depth = 9
    CLIENTS, TAGS = 3, 4

    def __init__(self):
        super().__init__(OrderQueues(self.CLIENTS, self.TAGS))

    def _state(self, m):
        block, inside, tags = self.block, self.inside, self.TAGS
        tag = self.any(m, range(tags), "tag")
        pushed_job, retire = block.taken, block.retire
        heads = Array(inside(f"head{n}") for n in range(self.CLIENTS))
        tails = Array(inside(f"tail{n}") for n in range(self.CLIENTS))
        lengths = Array((tails[n] - heads[n])[:3] for n in range(self.CLIENTS))
        held, owner, ahead, ended = Signal(), Signal(2), Signal(3), Signal()
        waits = block.waiting.bit_select(tag, 1)
        pushed = pushed_job.valid & (pushed_job.payload.tag == tag)
        retired = retire.valid & (retire.payload.client == owner) & held
        m.d.comb += [
            Assume(~pushed_job.valid | (pushed_job.payload.client < self.CLIENTS)),
            Assume(~pushed_job.valid | (pushed_job.payload.tag < tags)),
            Assume(~block.predicted.valid | (block.predicted.payload < self.CLIENTS)),
            Assume(~pushed_job.valid | (lengths[pushed_job.payload.client] < tags)),
            Assume(~(pushed_job.valid & block.flush)),
            Assume(~(pushed & held)),
            Assume(~(waits & ended)),
        ]
        m.d.sync += ended.eq(held & (ended | ~waits))
        with m.If(retired):
            m.d.sync += [ahead.eq(ahead - 1), held.eq(ahead != 0)]
            with m.If(ahead == 0):
                m.d.sync += ended.eq(0)
        with m.If(pushed):
            length = lengths[pushed_job.payload.client]
            left = retire.valid & (retire.payload.client == pushed_job.payload.client)
            m.d.sync += [held.eq(1), owner.eq(pushed_job.payload.client), ahead.eq(length - left)]
        with m.If(block.flush):
            m.d.sync += [held.eq(0), ended.eq(0)]

        leaves = retire.valid & (retire.payload.tag == tag)
        # A predicted client is looked up instead.
        late = self.waiting(m, held & (ahead == 0) & ~waits & ~block.predicted.valid, 8)
        m.d.comb += [
            Assert(leaves == (retired & (ahead == 0))),
            Assert(~leaves | ended),
            Assert(late < 8),
            Assert(~retire.valid | (lengths[retire.payload.client] != 0)),
            *(Assert(block.idle[n] == (lengths[n] == 0)) for n in range(self.CLIENTS)),
        ]
        self._inside(m, tag, held, owner, ahead, ended, heads, lengths)
        self.cover(
            m,
            leaves & (lengths[owner] == tags),
            pushed & (lengths[pushed_job.payload.client] == 2),
            leaves & (heads[owner] == 2),
        )

    def _inside(self, m, tag, held, owner, ahead, ended, heads, lengths):
        """The queues hold the tag where it is followed, and nowhere else; stages are of heads."""
        inside, slot = self.inside, self.inside("slot")

        def word(client, position):
            return inside.word("order", Cat((heads[client] + position)[:2], Const(client, 2)))

        words = [[word(n, i) for i in range(self.TAGS)] for n in range(self.CLIENTS)]
        m.d.comb += [
            Assert(~held | ((owner < self.CLIENTS) & (ahead < lengths[owner]))),
            Assert(~ended | held),
        ]
        for client, row in enumerate(words):
            m.d.comb += Assert(lengths[client] <= self.TAGS)
            for position, found in enumerate(row):
                here = held & (owner == client) & (ahead == position)
                has = (position < lengths[client]) & (found == tag)
                m.d.comb += Assert(has == here)
        firsts = Array(row[0] for row in words)
        stages = [inside(f"stage{n}") for n in range(3)]
        valids = [inside(f"valid{n}") for n in range(3)]
        owners, of = [stage[:4] for stage in stages], [stage[4:12] for stage in stages]
        duplicate = Cat(valids[n] & (owners[n] == owners[0]) for n in (1, 2)).any()
        for number in range(2):
            counts = valids[number] & ~(duplicate if number == 0 else 0)
            m.d.comb += [
                Assert(~valids[number] | (owners[number] < self.CLIENTS)),
                Assert(~counts | (lengths[owners[number]] != 0)),
                Assert(~counts | (of[number] == firsts[owners[number]])),
            ]
            if number:
                m.d.comb += Assert(~(counts & (of[number] == tag)) | ended)
        m.d.comb += Assert(~(valids[1] & valids[2]) | (owners[1] != owners[2]))
        m.d.comb += Assert(slot < self.CLIENTS)
