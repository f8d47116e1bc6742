# SPDX-License-Identifier: BSD-2-Clause
"""Dwords that the engine writes by itself: interrupt messages, poll-mode writebacks, and records of
launch queues.

Registers hold the address and the dword of each but the last. The record writer reads both over the
register bus, as software would.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..registers.bus import READ_LATENCY, BusSignature
from ..seam import RequestHeader
from ..seam import beat as request_beat

__all__ = [
    "DirectRecord",
    "DirectRecordSignature",
    "Record",
    "RecordSignature",
    "RecordWriter",
]


class Record(data.Struct):
    """A dword to write on PCIe, by the words of the register bus that describe it."""

    #: word that holds the address, of which bits 1:0 do not count
    where: 13
    #: word that holds the dword, in its lower half
    what: 13
    #: the words are an entry of the MSI-X table, and the upper half of `what` begins with the mask
    #: bit; otherwise `what` holds a completed count
    message: 1
    #: error bit of a completed count
    error: 1


class RecordSignature(wiring.Signature):
    """A source of records, from its own side.

    Members
    -------
    record : Out(stream of Record)
        May be withdrawn until taken; at least one cycle then passes before the next is offered.
    masked : In(1)
        The message that is taken in this cycle is masked, and is not sent.
    done : In(1), dropped : In(1)
        The record that was taken is with the PCIe block now; or, if `dropped`, is lost because Bus
        Master is off.
    """

    def __init__(self):
        super().__init__(
            {
                "record": Out(stream.Signature(Record)),
                "masked": In(1),
                "done": In(1),
                "dropped": In(1),
            }
        )


class DirectRecord(data.Struct):
    """Two dwords to write on PCIe, or the dword 1."""

    #: byte address, a multiple of the length
    address: 64
    data: 64
    #: both dwords of `data`, not the dword 1
    wide: 1


class DirectRecordSignature(wiring.Signature):
    """A source of records that come with their address and data, from its own side.

    Members
    -------
    record : Out(stream of DirectRecord)
        May be withdrawn until taken.
    done : In(1), dropped : In(1)
        As at `RecordSignature`.
    """

    def __init__(self):
        super().__init__(
            {"record": Out(stream.Signature(DirectRecord)), "done": In(1), "dropped": In(1)}
        )


class RecordWriter(wiring.Component):
    """Makes memory writes of records, one at a time, from several sources by round robin.

    It looks at one source per cycle. A record is taken `READ_LATENCY` + 2 cycles later at the
    earliest, when its dword has been read, and offered at `request` in the cycle after that. The
    search for the next one begins two cycles after its token came back.

    Parameters
    ----------
    sources : int
    token : int
        Token of the requests.
    width : int
        Bits of a beat.
    direct : bool
        There is another source, whose records come with address and data.

    Members
    -------
    sources : array of In(RecordSignature)
    direct : In(DirectRecordSignature)
        Only if there is one.
    request : Out(stream of beats of RequestHeader)
        Packets of one beat.
    sent : In(1), dropped : In(1)
        The token of a request came back, and whether the request was dropped.
    busy : Out(1)
        A record was taken whose token is not back.
    host : In(BusSignature), bus : Out(BusSignature)
        Accesses of the host pass through in the same cycle. Records are looked up in cycles in
        which the host reads nothing.
    """

    def __init__(self, sources: int, token: int, *, width: int, direct: bool = False):
        self._token = token
        self._direct = direct
        super().__init__(
            {
                "sources": In(RecordSignature()).array(sources),
                **({"direct": In(DirectRecordSignature())} if direct else {}),
                "request": Out(stream.Signature(request_beat(RequestHeader, width))),
                "sent": In(1),
                "dropped": In(1),
                "busy": Out(1),
                "host": In(BusSignature()),
                "bus": Out(BusSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat, header = self.request.payload, self.request.payload.header
        #: address and data that were looked up
        address_read, data_read = header.address, beat.data[:64]
        if self._direct:
            # Apart from those that come with a record, of which either is 0: a choice of what to
            # register would take a LUT for each bit, while this OR is merged into what follows.
            address_read, data_read = Signal(64), Signal(64)
            own = Signal(DirectRecord)
            m.d.comb += [
                header.address.eq(address_read | own.address),
                beat.data.eq(data_read | own.data),
            ]
        m.d.comb += [
            beat.first.eq(1),
            beat.last.eq(1),
            header.write.eq(1),
            header.first_be.eq(0xF),
            header.token.eq(self._token),
        ]

        #: the source that is looked at or served
        last = len(self.sources) - (not self._direct)
        current = Signal(range(last + 1))
        following = Signal.like(current)
        m.d.comb += following.eq(Mux(current == last, 0, current + 1))
        record, valid, ready, masked = self._source(m, current)
        wide = Signal()
        m.d.comb += [header.dwords.eq(1 + wide), header.last_be.eq(wide.replicate(4))]
        if self._direct:
            m.d.comb += [
                wide.eq(own.wide),
                self.direct.done.eq(self.busy & self.sent & (current == last)),
                self.direct.dropped.eq(self.dropped),
            ]

        host, bus = self.host, self.bus
        wanted, read = Signal(), Signal()
        address = Signal(13)
        wiring.connect(m, wiring.flipped(host), wiring.flipped(bus))
        m.d.comb += read.eq(wanted & ~host.read.valid)
        with m.If(~host.read.valid):
            m.d.comb += [
                bus.read.valid.eq(wanted),
                bus.read.bar.eq(regs.BAR_DMA[0]),
                bus.read.address.eq(address),
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
            masked.eq(record.message & bus.read.data[32]),
        ]
        with m.If(~valid):
            m.d.sync += withdrawn.eq(1)
        with m.If(arrived):
            m.d.sync += has_address.eq(~has_address)
            with m.If(~has_address):
                m.d.sync += address_read.eq(bus.read.data & ~0x3)
            count = Cat(bus.read.data[:24], Const(0, 7), record.error)
            m.d.sync += data_read.eq(Mux(record.message, bus.read.data[:32], count))

        if self._direct:
            leaves = Signal()
            with m.If(self.direct.record.ready):
                m.d.sync += own.eq(self.direct.record.payload)
            # By itself: a choice of what to register would take a LUT for each bit.
            with m.If(self.direct.record.ready & ~self.direct.record.payload.wide):
                m.d.sync += own.data.eq(1)
            with m.If(leaves):
                m.d.sync += [address_read.eq(0), data_read.eq(0), own.eq(0)]

        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.FSM():
            with m.State("Look"):
                with m.If(valid):
                    m.d.sync += withdrawn.eq(0)
                    m.next = "Where"
                with m.Else():
                    m.d.sync += current.eq(following)
                if self._direct:
                    with m.If((current == last) & self.direct.record.valid):
                        m.d.comb += self.direct.record.ready.eq(1)
                        m.d.sync += [
                            current.eq(current),
                            self.request.valid.eq(1),
                            self.busy.eq(1),
                        ]
                        m.next = "Sent"
            with m.State("Where"):
                m.d.comb += [wanted.eq(1), address.eq(record.where)]
                with m.If(read):
                    m.next = "What"
            with m.State("What"):
                m.d.comb += [wanted.eq(1), address.eq(record.what)]
                with m.If(read):
                    m.next = "Take"
            with m.State("Take"):
                with m.If(arrived & has_address):
                    m.next = "Leave"
                    with m.If(valid & ready & ~masked):
                        m.d.sync += [self.request.valid.eq(1), self.busy.eq(1)]
                        m.next = "Sent"
            with m.State("Leave"):
                if self._direct:
                    m.d.comb += leaves.eq(1)
                m.d.sync += current.eq(following)
                m.next = "Look"
            with m.State("Sent"):
                with m.If(self.sent):
                    m.d.sync += self.busy.eq(0)
                    m.next = "Leave"
        return m

    def _source(self, m, current):
        """The record of the source that is looked at or served, and `valid`, `ready`, `masked`."""
        record = Signal(Record)
        valid, ready, masked = Signal(), Signal(), Signal()
        with m.Switch(current):
            for number, source in enumerate(self.sources):
                with m.Case(number):
                    m.d.comb += [
                        record.eq(source.record.payload),
                        valid.eq(source.record.valid),
                        source.record.ready.eq(ready),
                        source.done.eq(self.busy & self.sent),
                    ]
        for source in self.sources:
            m.d.comb += [source.masked.eq(masked), source.dropped.eq(self.dropped)]
        return record, valid, ready, masked
