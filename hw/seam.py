# SPDX-License-Identifier: BSD-2-Clause
"""The seam between the DMA core and a PCIe block: parsed header records, payload from lane 0.

`Block` is what the core has to know about the block that it is built for.

Four logical ports cross the seam, each a stream of beats whose header record is valid, and
constant, from the first beat of a packet to its last:

* requester out: our memory reads and writes (`RequestHeader`);
* requester completions in: the answers to our reads (`CompletionHeader`);
* completer requests in: reads and writes of our BARs (`TargetHeader`);
* completer completions out: our answers (`CompletionHeader`).

"Payload from lane 0" means that byte lane 0 of the first beat holds the byte at the packet's
dword-aligned address; byte lane n of a beat is ``data[8*n:8*n+8]``, memory order. The PCIe
block's own byte and dword order stays behind the seam. Completions of our reads are
`always_ready`: the PCIe block advertises infinite completion credits in front of a finite buffer,
so the core must never stall it. Requests of the host are so at 64 bits, the width of the register
bus; a wider block holds them while the core divides a beat into words, which depends on nothing
else.

Outbound, packets may follow each other without a gap. A request's first beat is offered for a cycle
before it is taken, and its data counts from the second one on: a PCIe block begins with the header.
That is for requests with payload: one without any may be taken at once.
Inbound, the first beats of two packets are at least two cycles apart, as the core looks up what it
expects with one beat and notes with the next what it expects then. So an adapter leaves a cycle out
after a packet of one beat, and none after any other. Host requests of a block as wide as the
register bus have a cycle without a beat after each packet: that bus may need one more than there
are beats.

A packet without payload (a read request, a completion without data) is one beat with `first`
and `last` set whose data is ignored.
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "BUS_WIDTH",
    "FIVE_BIT_TAGS",
    "WIDTHS",
    "Block",
    "CompletionHeader",
    "CompletionStatus",
    "InterruptRequest",
    "LinkState",
    "PortContract",
    "RequestHeader",
    "SeamSignature",
    "SentToken",
    "TargetHeader",
    "TargetKind",
    "beat",
    "completions_abut",
]

#: Bits of payload per beat that the engine can be built for.
WIDTHS = (64, 128, 256)
#: Bits of a word of the register bus, whatever the width of a beat.
BUS_WIDTH = 64
#: Tags of a function that has not Extended Tag Field Enable set in Device Control.
FIVE_BIT_TAGS = 32
#: Bits of a completion's header on the link.
COMPLETION_HEADER_BITS = 96
#: Bytes around a TLP on the link, at Gen1 and Gen2: start, sequence number, LCRC and end.
FRAMING_BYTES = 8
#: Bytes of the smallest completion on the link.
_SMALLEST_COMPLETION = COMPLETION_HEADER_BITS // 8 + FRAMING_BYTES
#: How many times what the link brings a port has to carry for `Block.port_lag`.
_PORT_SHARE = 1.5


@dataclass(frozen=True)
class PortContract:
    """What is taken for granted of a PCIe block's receive port by a core with `overcommit`.

    A completion that has come whole has passed the port `Block.port_lag` cycles later.

    Parameters
    ----------
    link_mbps : int
        10^6 bytes per second that the link brings at most, framing included.
    idle : int
        So many cycles without a beat, between two TLPs, mean that the block holds nothing but a TLP
        that is just coming, and non-posted requests that the core holds back.
    """

    link_mbps: int
    idle: int

    def link_bytes(self, clock_khz: int) -> int:
        """Bytes that the link brings per cycle at most, rounded up."""
        return -(-self.link_mbps * 1000 // clock_khz)


@dataclass(frozen=True)
class Block:
    """A PCIe block, as far as the engine depends on it. Each adapter has one such record.

    Parameters
    ----------
    width : int
        Bits of payload per beat, one of `WIDTHS`. The core moves as many.
    transmit_buffers : int
        TLPs that wait in the block until the link partner has acknowledged them.
    completion_headers, completion_credits : int
        Completions that its receive buffer holds, and their payload in units of 16 bytes. The block
        advertises infinite credits: a completion that does not fit is lost.
    credit_lag : int
        Cycles that a read may need to show in the non-posted credits of `LinkState`.
    drop_lag : int
        Cycles from the last beat of a TLP in which the block may still say that it dropped it.
    max_tags : int
        Reads that may be under way, those beyond `FIVE_BIT_TAGS` only with extended tags enabled.
    port : PortContract, optional
        What may be taken for granted of its receive port, if that was thought through.

    Raises
    ------
    ValueError
        If the engine cannot be built for this width.
    """

    width: int
    transmit_buffers: int
    completion_headers: int
    completion_credits: int
    credit_lag: int
    drop_lag: int
    max_tags: int
    port: PortContract | None = None

    def __post_init__(self):
        if self.width not in WIDTHS:
            allowed = ", ".join(map(str, WIDTHS))
            raise ValueError(
                f"a PCIe block's width must be one of {allowed} bits, not {self.width}"
            )

    def completions(self, largest: int) -> int:
        """Completions for which it has room.

        Each has a header and up to 128 bytes, in 8 credits; but the one that the core is just
        taking may have `largest` bytes, which need not begin at a multiple of 16.
        """
        credits = self.completion_credits - (largest // 16 + 1 - 8)
        return min(self.completion_headers, credits // 8)

    def port_lag(self, clock_khz: int) -> int:
        """Cycles for which a completion that has come whole may wait for the port.

        In these the link brings no more than the buffer holds, even of the smallest completions,
        with one that had begun to come before and one that has not ended.

        Raises
        ------
        ValueError
            If nothing is known of the port, or it is too slow to keep up with the link.
        """
        if self.port is None:
            raise ValueError(
                "overcommit needs a PCIe block of whose receive port it is known how far it falls "
                "behind the link, and nothing is known of this one's"
            )
        mbps = self.width // 8 * clock_khz // 1000
        if mbps < _PORT_SHARE * self.port.link_mbps:
            raise ValueError(
                f"overcommit needs a receive port that carries {_PORT_SHARE} times what the link "
                f"brings, {self.port.link_mbps} MB/s: {self.width} bits at {clock_khz / 1000:g} "
                f"MHz carry {mbps} MB/s"
            )
        rate = self.port.link_bytes(clock_khz)
        return (self.completion_headers - 2) * _SMALLEST_COMPLETION // rate


def beat(header, width: int) -> data.StructLayout:
    """One beat of a stream of packets: payload of `width` bits, and the packet's header."""
    return data.StructLayout({"header": header, "data": width, "first": 1, "last": 1})


def completions_abut(width: int) -> bool:
    """Whether completions may come at this width without a cycle between two packets.

    Where a header is longer than a beat, a cycle without payload comes before each packet.
    """
    return width > COMPLETION_HEADER_BITS


class CompletionStatus(enum.Enum, shape=4):
    """Completion Status field (PCI Express Base Specification, completion rules), of three bits.

    Values with the fourth one are no completion's: a block that ends requests by itself says so.
    """

    #: Successful Completion
    SC = 0
    #: Unsupported Request
    UR = 1
    #: Configuration Request Retry Status
    CRS = 2
    #: Completer Abort
    CA = 4
    #: The block has waited for the completion too long, and no more of it will come
    TIMEOUT = 8


class RequestHeader(data.Struct):
    """A memory request of the core. The adapter adds the requester ID, and chooses 3DW or 4DW."""

    #: 1: write, 0: read
    write: 1
    #: byte address of the first dword; bits 1:0 are 0
    address: 64
    #: payload length in dwords, 1 to 1024
    dwords: 11
    #: byte enables of the first dword
    first_be: 4
    #: byte enables of the last dword; 0 if there is only one
    last_be: 4
    #: tag; reads only
    tag: 8
    #: relaxed ordering attribute
    relaxed: 1
    #: writes only: comes back in `SentToken`
    token: 8


class SentToken(data.Struct):
    """A write was accepted by the PCIe block: no later completion or interrupt can pass it."""

    token: 8
    #: the block has dropped it instead
    dropped: 1


class CompletionHeader(data.Struct):
    """A completion, in either direction."""

    status: CompletionStatus
    #: bytes still to come for the request, this completion included; 1 to 4096
    byte_count: 13
    #: bits 6:0 of the address of the first byte
    lower_address: 7
    #: payload length in dwords; 0 without data
    dwords: 11
    tag: 8
    #: bus, device and function number of the requester
    requester_id: 16
    #: traffic class and attributes of the request, to be returned unchanged
    traffic_class: 3
    attributes: 3
    #: error forwarding: the data is corrupt
    poisoned: 1
    #: for a locked read
    locked: 1


class TargetKind(enum.Enum, shape=2):
    """What a completer request asks for."""

    READ = 0
    WRITE = 1
    #: other non-posted requests, such as I/O, atomics and locked reads: Unsupported Request
    OTHER = 2
    #: posted, but not a memory write; dropped
    MESSAGE = 3


class TargetHeader(data.Struct):
    """A request to one of our BARs."""

    kind: TargetKind
    #: byte address of the first dword; bits 1:0 are 0
    address: 64
    #: length in dwords, 1 to 1024
    dwords: 11
    first_be: 4
    last_be: 4
    #: number of the BAR that was hit
    bar: 3
    tag: 8
    requester_id: 16
    traffic_class: 3
    attributes: 3
    poisoned: 1
    #: a locked read, which is answered by a completion of its own kind
    locked: 1


class InterruptRequest(data.Struct):
    """One interrupt message for the PCIe block to send."""

    #: 1: MSI, 0: INTx
    msi: 1
    #: INTx only: 1 asserts INTA, 0 deasserts it
    asserted: 1
    #: MSI only: message number, below the number granted
    vector: 5


class LinkState(data.Struct):
    """Link and configuration state, in the codes of the PCIe configuration registers."""

    link_up: 1
    bus_master: 1
    intx_disable: 1
    msi_enable: 1
    #: log2 of the number of MSI messages granted
    msi_granted: 3
    msix_enable: 1
    msix_mask: 1
    #: PCIe encoding: 128 << n bytes
    max_payload: 3
    max_read_request: 3
    #: read completion boundary: 1 is 128 bytes, 0 is 64
    rcb: 1
    #: Extended Tag Field Enable
    extended_tag: 1
    relaxed_ordering: 1
    #: our bus, device and function number, for a register; the adapter puts it into TLPs
    requester_id: 16
    #: Link Status, Current Link Speed: 1 is 2.5 GT/s, 2 is 5, 3 is 8, 4 is 16
    speed: 4
    #: Link Status, Negotiated Link Width: lanes
    width: 6
    #: the PCIe block has room for a read, for a write: reads cannot overtake what it has taken
    read_room: 1
    write_room: 1
    #: non-posted header credits left; the block reports infinite credits as all ones
    np_headers: 8


class SeamSignature(wiring.Signature):
    """All that crosses the seam, from the core's side.

    Parameters
    ----------
    block : Block
    overcommit : bool
        The core relies on the block's `PortContract`.

    Members
    -------
    requester : Out(stream of beats of RequestHeader)
    sent : In(stream of SentToken, always ready)
        One token for each write request, in order, once the block has taken its last beat and can
        drop it no more.
    requester_completion : In(stream of beats of CompletionHeader, always ready)
    target : In(stream of beats of TargetHeader)
        At 64 bits always ready. Else it is ready again after a few cycles, whatever happens at the
        other ports.
    target_np_ok : Out(1)
        Low: the block holds back further non-posted requests; two more may still arrive.
    completion : Out(stream of beats of CompletionHeader)
    interrupt : Out(stream of InterruptRequest)
    link : In(LinkState)
    reads_pending : Out(1)
        Requests of the core are outstanding (Device Status, Transactions Pending).
    timed_out, unexpected : Out(1)
        Pulses: a completion timed out; a completion arrived that belongs to no request. The block
        reports these errors in its configuration space.
    behind : In(1), with `overcommit`
        The block's receive port does not keep to the contract, or may not for long.
    function_reset : In(1), function_reset_done : Out(1)
        The host resets the function, and all requests of before have passed, in both directions;
        Bus Master is off since then, and the host asks for nothing. The core ends what it is at and
        resets its registers, then `function_reset_done` is high until `function_reset` is low. That
        takes no longer than the block needs for the tokens of the writes that it has. What was read
        before may still come, and is dropped.
    """

    def __init__(self, block: Block, *, overcommit: bool = False):
        always = {"always_ready": True}
        request = stream.Signature(beat(RequestHeader, block.width))
        narrow = block.width == BUS_WIDTH
        target = stream.Signature(beat(TargetHeader, block.width), always_ready=narrow)
        completion = beat(CompletionHeader, block.width)
        super().__init__(
            {
                "requester": Out(request),
                "sent": In(stream.Signature(SentToken, **always)),
                "requester_completion": In(stream.Signature(completion, **always)),
                "target": In(target),
                "target_np_ok": Out(1),
                "completion": Out(stream.Signature(completion)),
                "interrupt": Out(stream.Signature(InterruptRequest)),
                "link": In(LinkState),
                "reads_pending": Out(1),
                "timed_out": Out(1),
                "unexpected": Out(1),
                "function_reset": In(1),
                "function_reset_done": Out(1),
            }
            | ({"behind": In(1)} if overcommit else {})
        )
