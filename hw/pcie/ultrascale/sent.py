# SPDX-License-Identifier: BSD-2-Clause
"""Which of our writes nothing can pass any more, by their sequence numbers."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import SentToken

__all__ = ["MOST_BYTES", "PATIENCE", "SMALLEST_PAYLOAD", "SentWrites"]

#: Bytes of writes that may be under way on eight lanes of Gen3; on a slower link what it carries in
#: the same time. Those in the block are in front of the next read. A number may take as long to
#: come back as the link takes for these bytes, 0.3 µs; no document says how long it takes.
MOST_BYTES = 3072
#: Code of that link: its speed, and log2 of its lanes.
_FASTEST = 3 + 3
#: The least of what Max_Payload_Size allows.
SMALLEST_PAYLOAD = 128
#: As few writes may be under way in any case: one on the link, and one that follows.
_LEAST = 2

#: Cycles without Bus Master after which a write that has not come back is taken for dropped.
PATIENCE = 4096


class SentWrites(wiring.Component):
    """Numbers our requests, and hands a write's token back with its number.

    The block gives a request's number back when no completion that it is given later can pass the
    request (PG156 and PG213, "Maintaining Transaction Order"), and those of writes in their order.
    The upper half of the numbers is for writes; reads have number 0.

    As many writes may be under way as there are numbers, but no more than `MOST_BYTES` or what the
    link carries in the same time, if each has the max payload size.

    The block may drop what it has when Bus Master is cleared, and a number is then lost. So after
    `PATIENCE` cycles without Bus Master in which none has come, all writes under way are reported
    as dropped.

    Latency: 1 cycle from a number to its token; of several at once, one in each cycle.

    Parameters
    ----------
    bits : int
        Of a number.
    ports : int
        How many may come back in one cycle.

    Members
    -------
    write : In(1), sequence : Out(6)
        The request that is offered is a write; its number.
    takes : In(1), token : In(8)
        The last beat of a write is taken, and its token.
    valid : In(ports), number : array of In(bits)
        Numbers that the block gives back.
    bus_master : In(1)
    max_payload : In(3), speed : In(4), width : In(6)
        As in `LinkState`; what they allow counts one cycle later.
    room : Out(1)
        Another write may start, beside one that ends in this cycle.
    sent : Out(stream of SentToken, always ready)
    """

    def __init__(self, bits: int, ports: int):
        self._bits, self._ports = bits, ports
        super().__init__(
            {
                "write": In(1),
                "sequence": Out(6),
                "takes": In(1),
                "token": In(8),
                "valid": In(ports),
                "number": In(bits).array(ports),
                "bus_master": In(1),
                "max_payload": In(3),
                "speed": In(4),
                "width": In(6),
                "room": Out(1),
                "sent": Out(stream.Signature(SentToken, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        upper = self._bits - 1
        most = 1 << upper
        m.submodules.tokens = tokens = memory.Memory(shape=8, depth=most, init=[])
        write, read = tokens.write_port(), tokens.read_port(domain="comb")
        #: the next write's place and the oldest one's; writes under way; those among them that are
        #: sent, whose tokens wait
        place = Signal(upper)
        oldest = Signal(upper)
        under_way = Signal(range(most + 1))
        sent = Signal(range(most + 1))
        came = sum(
            valid & number[upper] for valid, number in zip(self.valid, self.number, strict=True)
        )

        waited, dropping = Signal(range(PATIENCE)), Signal()
        with m.If(self.bus_master | came.any() | (under_way == 0)):
            m.d.sync += waited.eq(0)
        with m.Else():
            m.d.sync += waited.eq(waited + 1)
        with m.If(waited == PATIENCE - 1):
            m.d.sync += dropping.eq(1)
        with m.Elif(under_way == 0):
            m.d.sync += dropping.eq(0)

        # Half as many may be under way if the link is half as fast, or the payload twice as large.
        lanes = Cat(self.width[1] | self.width[3:].any(), self.width[2:].any())
        rate, limit = self.speed + lanes, Signal(range(most + 1), init=_LEAST)
        halvings = self.max_payload + Mux(rate < _FASTEST, (_FASTEST - rate)[:3], 0)
        allowed = (MOST_BYTES // SMALLEST_PAYLOAD >> n for n in range(1 << len(halvings)))
        m.d.sync += limit.eq(Array(max(min(most, each), _LEAST) for each in allowed)[halvings])
        hands, known = self.sent.valid, Signal(range(most + 3))
        m.d.comb += [
            self.sequence.eq(Mux(self.write, Cat(place, 1), 0)),
            write.addr.eq(place),
            write.data.eq(self.token),
            write.en.eq(self.takes),
            read.addr.eq(oldest),
            hands.eq((sent != 0) | (dropping & (under_way != 0))),
            self.sent.payload.token.eq(read.data),
            self.sent.payload.dropped.eq(sent == 0),
            self.room.eq(under_way < limit - 1),
            known.eq(sent + came),
        ]
        m.d.sync += [
            place.eq(place + self.takes),
            oldest.eq(oldest + hands),
            under_way.eq(under_way + self.takes - hands),
            # A number that is given back after its write was taken for dropped counts no more.
            sent.eq(Mux(known > under_way, under_way, known) - (hands & (sent != 0))),
        ]
        with m.If(dropping):
            m.d.sync += sent.eq(Mux(sent == 0, 0, sent - 1))
        return m
