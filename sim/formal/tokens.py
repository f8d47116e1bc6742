# SPDX-License-Identifier: BSD-2-Clause
"""Tokens of writes that an UltraScale block has sent."""

from amaranth import *
from amaranth.hdl import Assert, Assume

from hw.pcie.ultrascale.family import Family
from hw.pcie.ultrascale.sent import MOST_BYTES, SMALLEST_PAYLOAD, SentWrites

from .property import Property

__all__ = ["SentTokens"]

#: The rate of the link that `MOST_BYTES` is for, eight lanes of 8 GT/s, in lanes of 2.5 GT/s.
_FASTEST = 8 << 2


class SentTokens(Property):
    """Each write's token comes back once, in order, with its number, and no two have one number.

    Never more writes are under way than there are numbers for, nor, beyond two, more bytes than the
    link's rate allows at this payload. A token comes in the cycle after the number, or after the
    token before. It says that the write is dropped only if its number has not come, and only after
    the patience without Bus Master. Followed is any one token. Assumed: one write is offered at a
    time, and begins with room; the block gives numbers of writes back in order, as many in a cycle
    as it has ports, with any of reads between; it gives none of a write back that was taken for
    dropped; payload and link stay as they are.
    """

    def __init__(self, family: Family):
        self._most = family.writes
        #: with the smallest max payload
        self._allowed = min(self._most, MOST_BYTES // SMALLEST_PAYLOAD)
        # Until as many writes are under way.
        self.reach = self._allowed + 7
        super().__init__(SentWrites(family.sequence_bits, len(family.sequence_ports)))

    def _state(self, m):
        block, inside, most = self.block, self.inside, self._most
        upper = Const(1, 1)
        dropping = inside("dropping")
        starts, follow = self.free(1, "starts"), self.free(1, "follow")
        out = block.sent

        # Writes under way, and how many of the oldest the block has given back.
        offered, place = Signal(), Signal(range(most))
        writes, back = Signal(range(most + 1)), Signal(range(most + 1))
        oldest = (place - writes)[: len(place)]
        came = Const(0)
        for valid, number in zip(block.valid, block.number, strict=True):
            ours = valid & number[-1]
            following = Cat((oldest + back + came)[: len(place)], upper)
            m.d.comb += Assume(~ours | dropping | (number == following))
            came = came + ours
        m.d.comb += [
            Assume(~starts | (block.room & (~offered | block.takes))),
            Assume(~block.takes | (offered & block.write)),
            Assume(dropping | (back + came <= writes)),
        ]
        m.d.sync += [
            offered.eq(starts | (offered & ~block.takes)),
            place.eq(place + block.takes),
            writes.eq(writes + block.takes - out.valid),
            back.eq(back + Mux(dropping, 0, came) - (out.valid & (back != 0))),
        ]
        m.d.comb += [
            Assert(block.sequence == Mux(block.write, Cat(place, upper), 0)),
            Assert(~offered | (writes < most)),
            Assert(~out.valid | (writes != 0)),
            Assert((back == 0) | out.valid),
            Assert(~out.valid | (out.payload.dropped == (back == 0))),
            Assert(~(out.valid & out.payload.dropped) | dropping),
            # What is inside.
            Assert(writes <= most),
            Assert(back <= writes),
            Assert(inside("under_way") == writes),
            Assert(inside("sent") == back),
            Assert(inside("place") == place),
            Assert(inside("oldest") == oldest),
        ]

        link, before, later = Cat(block.max_payload, block.speed, block.width), Signal(13), Signal()
        rate, limit = block.width << (block.speed - 1)[:2], inside("limit")
        share = MOST_BYTES // _FASTEST
        m.d.sync += [before.eq(link), later.eq(1)]
        m.d.comb += [
            Assume(~later | (before == link)),
            Assume((block.speed >= 1) & (block.speed <= 4)),
            Assume((block.width != 0) & ((block.width & (block.width - 1)) == 0)),
            Assume(block.width <= _FASTEST >> 1),
            Assert(writes + offered <= limit),
            Assert(
                ~later
                | (limit <= 2)
                | (
                    (limit << block.max_payload) * SMALLEST_PAYLOAD
                    <= share * Mux(rate > _FASTEST, _FASTEST, rate)
                )
            ),
            Assert(later | (limit <= 2)),
            Assert(limit <= most),
        ]

        ahead, held, token = Signal(range(most)), Signal(), Signal(8)
        with m.If(held & out.valid):
            m.d.sync += [ahead.eq(ahead - 1), held.eq(ahead != 0)]
        with m.If(block.takes & follow & ~held):
            m.d.sync += [held.eq(1), ahead.eq(writes - out.valid), token.eq(block.token)]
        with m.If(held & (ahead == 0) & out.valid):
            m.d.comb += Assert(out.payload.token == token)
        at = (oldest + ahead)[: len(place)]
        m.d.comb += [
            Assert(~held | (ahead < writes)),
            Assert(~held | (inside.word("tokens", at) == token)),
        ]
        self.cover(
            m,
            writes == self._allowed,
            held & (ahead == 0) & out.valid & (place == 1),
            came == len(block.valid),
        )
