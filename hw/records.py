# SPDX-License-Identifier: BSD-2-Clause
"""Records that the blocks of the DMA engine pass to each other.

A channel turns descriptors into *pieces* that fit one memory request each. A piece of an H2C
channel becomes a read job of the read engine, which places the data in a memory of its client and
*retires* jobs in the order in which it took them. A piece of a C2H channel becomes a write job of
the writer, which reads its bytes out of card RAM or a ring.
"""

from amaranth import *
from amaranth.lib import data, enum
from amaranth.utils import exact_log2

from peerdma import regs

from .seam import BUS_WIDTH

__all__ = [
    "FETCH_DESCRIPTORS",
    "JOB_BYTES",
    "OFFSET_BITS",
    "PLACE_BITS",
    "RAM_ADDRESS_BITS",
    "STREAM_WINDOW_BIT",
    "CardMemory",
    "DescriptorPart",
    "DescriptorWord",
    "ErrorReport",
    "InFlight",
    "InOrderMark",
    "Outcome",
    "Piece",
    "PieceReport",
    "PlacementAddress",
    "PushedWord",
    "ReadError",
    "ReadJob",
    "Retired",
    "Sent",
    "Span",
    "WriteJob",
    "WriteToken",
    "moved",
    "offset_bits",
    "placement",
    "row_bits",
]

#: Bits of a byte address in the largest card RAM.
RAM_ADDRESS_BITS = 20
#: Bits of a placement address, as a number.
PLACE_BITS = RAM_ADDRESS_BITS + 1
#: Bits of an offset in the default card RAM, and of a position in the largest ring, which counts to
#: twice its size.
OFFSET_BITS = 16
#: Most bytes that one memory request of ours asks for or carries.
JOB_BYTES = 512
#: Most descriptors that one read asks for.
FETCH_DESCRIPTORS = JOB_BYTES // regs.DESCRIPTOR.itemsize
#: Bit of a card address that selects the user stream.
STREAM_WINDOW_BIT = exact_log2(regs.STREAM_WINDOW)


class Outcome(enum.Enum, shape=4):
    """How a descriptor or a read ended; the values are those of `peerdma.regs.ErrorKind`."""

    OK = 0
    MAGIC = 1
    DECODE = 2
    UNSUPPORTED_REQUEST = 3
    COMPLETER_ABORT = 4
    POISONED = 5
    UNEXPECTED_COMPLETION = 6
    COMPLETION_TIMEOUT = 7
    BUS_MASTER_OFF = 8
    NO_COMPLETION_SPACE = 9
    WRITE_DROPPED = 10


class CardMemory(enum.Enum, shape=1):
    """The memories that a placement address can mean."""

    RAM = 0
    RING = 1


class PlacementAddress(data.Struct):
    """Where a byte is on the card.

    As a number it is a byte address, which counts by `moved`. Only an outbound ring has its pair's
    number in `pair`. In card RAM and in an inbound ring these are the upper bits of the offset:
    which inbound ring it is follows from the client of the read.
    """

    #: bytes
    offset: OFFSET_BITS
    pair: RAM_ADDRESS_BITS - OFFSET_BITS
    memory: CardMemory


def offset_bits(ram_size: int) -> int:
    """How many bits of an offset count on a card with so many bytes of RAM."""
    return max(OFFSET_BITS, exact_log2(ram_size))


def moved(place, count, bits: int) -> Value:
    """A placement address, as a number, `count` further, or back if that is negative.

    Its lowest `bits` count modulo ``2**bits`` and the others stay, so that those that no memory of
    the card needs cost nothing, and the memory stays the same.
    """
    return Cat((place + count)[:bits], place[bits:])


class DescriptorPart(enum.Enum, shape=2):
    """What a channel gets of a descriptor: the first three in their order, or the last one."""

    #: the word with control and length
    CONTROL = 0
    #: the address on the card
    CARD = 1
    #: the address on PCIe: the source (H2C) or the destination (C2H)
    PCI = 2
    #: the list has ended by an error here
    ERROR = 3


class DescriptorWord(data.Struct):
    """A part of a descriptor, or the error that ended the list instead of one."""

    part: DescriptorPart
    #: of an ERROR: the descriptor's own address
    data: 64
    #: of an ERROR
    outcome: Outcome


class ErrorReport(data.Struct):
    """An error that ended a run, for the error capture registers."""

    outcome: Outcome
    #: the failing address, if it is `located`; else the read engine has reported it
    address: 64
    located: 1
    #: while fetching a descriptor
    descriptor: 1


class InFlight(data.Struct):
    """What a channel keeps of a descriptor until its data has been moved."""

    stop: 1
    completed: 1
    #: there is no data to wait for: length 0, or an error instead of a descriptor
    immediate: 1
    #: an error of the descriptor itself, not of its data
    from_fetch: 1
    outcome: Outcome


class Span(data.Struct):
    """A piece of a transfer: as many bytes at both addresses."""

    pci_address: 64
    card_address: 64
    #: bytes, 1 to 2**28 - 1
    length: 28


class Piece(data.Struct):
    """As much of a span as one memory request moves; never crosses 4 KiB."""

    #: byte address on PCIe
    address: 64
    #: where its bytes are on the card; of a piece of the stream, the ring says it
    place: PlacementAddress
    #: bytes, 1 to `JOB_BYTES`
    length: 10
    #: the card address is the user stream, not card RAM
    stream: 1
    #: the first piece of its span
    first: 1
    #: the last piece of its span
    last: 1


class ReadJob(data.Struct):
    """One memory read to issue; never crosses 4 KiB."""

    #: byte address on PCIe
    address: 64
    #: bytes, 1 to `JOB_BYTES`
    length: 10
    #: where the first byte goes, in the client's memory
    place: PlacementAddress
    #: comes back in `Retired`
    last: 1


class Retired(data.Struct):
    """A read job ended and its data, if the outcome is OK, is in the client's memory."""

    length: 10
    last: 1
    outcome: Outcome


class ReadError(data.Struct):
    """A read that failed."""

    #: byte address of the job
    address: 64
    outcome: Outcome
    #: number of the client
    client: 4


class InOrderMark(data.Struct):
    """How far the data of a client's oldest read has arrived without a gap."""

    #: number of the client
    client: 4
    #: all bytes of the job below this place are in the client's memory from the next cycle on
    place: PlacementAddress


class PieceReport(data.Struct):
    """A piece of a channel has been moved, or has failed."""

    #: the last piece of its span
    last: 1
    outcome: Outcome


def row_bits(width: int) -> int:
    """Bits of a row's number in a memory of two banks, whose words have `width` bits."""
    return RAM_ADDRESS_BITS - exact_log2(width // 8) - 1


def placement(width: int) -> data.StructLayout:
    """Bytes to be written into the memory of a client, in one cycle: up to a word of `width` bits.

    They may be in two words, one of the even bank and one of the odd.

    Members: `client`, its number; `memory`, for which of the client's memories; `rows`, of the even
    and of the odd bank; `data`, each byte in its lane, the same for both banks; `enable`, for each
    bank a bit for each lane that is to be written.
    """
    return data.StructLayout(
        {
            "client": 4,
            "memory": CardMemory,
            "rows": data.ArrayLayout(row_bits(width), 2),
            "data": width,
            "enable": data.ArrayLayout(width // 8, 2),
        }
    )


#: A word of a descriptor that is pushed: of the register bus, at any width of the engine.
PushedWord = placement(BUS_WIDTH)


class WriteJob(data.Struct):
    """One memory write to issue; never crosses 4 KiB, at most the max payload size."""

    #: byte address on PCIe
    address: 64
    #: bytes, 1 to `JOB_BYTES`
    length: 10
    #: where the first byte is
    place: PlacementAddress
    #: address, length and place were the same in the cycle before
    steady: 1
    #: token for `RequestHeader`
    token: 8


class WriteToken(data.Struct):
    """Where a write came from. It travels with the request and comes back when that is sent."""

    #: not the data of a channel, but a message or a writeback; then the rest means nothing
    record: 1
    #: number of the C2H channel
    channel: 2
    #: its bytes came from the channel's ring
    stream: 1
    #: the last piece of its descriptor
    last: 1


class Sent(data.Struct):
    """A write request was accepted by the PCIe block, or dropped."""

    #: that of the request: a `WriteToken` in its low bits
    token: 8
    dropped: 1
    #: if dropped: by the PCIe block; otherwise because Bus Master is off
    by_block: 1
