# SPDX-License-Identifier: BSD-2-Clause
"""Single dwords that the engine writes by itself: interrupt messages, poll-mode writebacks.

Where they go is in registers, and so is what they say: the writer reads both over the register
bus, as software would.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..registers.bus import READ_LATENCY, BusSignature
from ..seam import RequestBeat

__all__ = ["Post", "PostWriter"]


class Post(data.Struct):
    """A dword to write on PCIe, by the words of the register bus that know it."""

    #: has the address, of which bits 1:0 do not count
    where: 13
    #: has the dword in its lower half
    what: 13
    #: the words are an entry of the MSI-X table, `what` has its mask bit at the start of the upper
    #: half; otherwise `what` has a descriptor count
    message: 1
    #: goes with a count
    error: 1


class PostWriter(wiring.Component):
    """Makes memory writes of posts, one at a time, from several sources in turn.

    The sources are looked at one per cycle. A post is taken `READ_LATENCY` + 2 cycles later at the
    earliest, when its dword has been read, and offered at `request` in the cycle after that. The
    next one is looked for two cycles after its token came back.

    Parameters
    ----------
    sources : int
    token : int
        Token of the requests.

    Members
    -------
    posts : array of In(stream of Post)
        May be withdrawn until taken; at least one cycle then passes before the next is offered.
    masked : Out(1)
        The message that is taken in this cycle is masked, and not sent.
    request : Out(stream of RequestBeat)
        Packets of one beat.
    sent : In(1)
        The token of a request came back.
    done : Out(sources)
        Bit n: the post that was taken from source n is with the PCIe block now, or was dropped.
    busy : Out(1)
        A post was taken whose token is not back.
    host : In(BusSignature), bus : Out(BusSignature)
        What the host does goes through in the same cycle; in those in which it reads nothing the
        posts are looked up.
    """

    def __init__(self, sources: int, token: int):
        self._token = token
        super().__init__(
            {
                "posts": In(stream.Signature(Post)).array(sources),
                "masked": Out(1),
                "request": Out(stream.Signature(RequestBeat)),
                "sent": In(1),
                "done": Out(sources),
                "busy": Out(1),
                "host": In(BusSignature()),
                "bus": Out(BusSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat, header = self.request.payload, self.request.payload.header
        m.d.comb += [
            beat.first.eq(1),
            beat.last.eq(1),
            header.write.eq(1),
            header.dwords.eq(1),
            header.first_be.eq(0xF),
            header.token.eq(self._token),
        ]

        turn = Signal(range(len(self.posts)))
        following = Signal.like(turn)
        post = Signal(Post)
        valid, ready = Signal(), Signal()
        m.d.comb += following.eq(Mux(turn == len(self.posts) - 1, 0, turn + 1))
        with m.Switch(turn):
            for number, source in enumerate(self.posts):
                with m.Case(number):
                    m.d.comb += [
                        post.eq(source.payload),
                        valid.eq(source.valid),
                        source.ready.eq(ready),
                        self.done[number].eq(self.busy & self.sent),
                    ]

        host, bus = self.host, self.bus
        wanted, read = Signal(), Signal()
        place = Signal(13)
        wiring.connect(m, wiring.flipped(host), wiring.flipped(bus))
        m.d.comb += read.eq(wanted & ~host.read.valid)
        with m.If(~host.read.valid):
            m.d.comb += [
                bus.read.valid.eq(wanted),
                bus.read.bar.eq(regs.BAR_DMA[0]),
                bus.read.address.eq(place),
                bus.read.enable.eq(0xFF),
            ]

        # One bit per read under way; the address comes first.
        coming = Signal(READ_LATENCY)
        has_address = Signal()
        arrived = coming[-1]
        withdrawn = Signal()
        m.d.sync += coming.eq(Cat(read, coming))
        m.d.comb += [
            ready.eq(arrived & has_address & ~withdrawn),
            self.masked.eq(post.message & bus.read.data[32]),
        ]
        with m.If(~valid):
            m.d.sync += withdrawn.eq(1)
        with m.If(arrived):
            m.d.sync += has_address.eq(~has_address)
            with m.If(~has_address):
                m.d.sync += header.address.eq(bus.read.data & ~0x3)
            count = Cat(bus.read.data[:24], Const(0, 7), post.error)
            m.d.sync += beat.data.eq(Mux(post.message, bus.read.data[:32], count))

        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.FSM():
            with m.State("Look"):
                with m.If(valid):
                    m.d.sync += withdrawn.eq(0)
                    m.next = "Where"
                with m.Else():
                    m.d.sync += turn.eq(following)
            with m.State("Where"):
                m.d.comb += [wanted.eq(1), place.eq(post.where)]
                with m.If(read):
                    m.next = "What"
            with m.State("What"):
                m.d.comb += [wanted.eq(1), place.eq(post.what)]
                with m.If(read):
                    m.next = "Take"
            with m.State("Take"):
                with m.If(arrived & has_address):
                    m.next = "Leave"
                    with m.If(valid & ready & ~self.masked):
                        m.d.sync += [self.request.valid.eq(1), self.busy.eq(1)]
                        m.next = "Sent"
            with m.State("Leave"):
                m.d.sync += turn.eq(following)
                m.next = "Look"
            with m.State("Sent"):
                with m.If(self.sent):
                    m.d.sync += self.busy.eq(0)
                    m.next = "Leave"
        return m
