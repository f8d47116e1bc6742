# SPDX-License-Identifier: BSD-2-Clause
"""Records that the blocks of the DMA engine pass to each other.

A channel turns descriptors into *jobs*: pieces that fit one memory request. Read jobs go to the
requester, which places the data in a memory of the client and *retires* the jobs in the order
they were given; write jobs go to the writer, which reads them out of card RAM.
"""

from amaranth import *
from amaranth.lib import data, enum
from amaranth.utils import exact_log2

from peerdma import regs

__all__ = [
    "FETCH_DESCRIPTORS",
    "JOB_BYTES",
    "RING_PLACE",
    "STREAM_WINDOW_BIT",
    "Descriptor",
    "ErrorReport",
    "InFlight",
    "Outcome",
    "PieceReport",
    "Placement",
    "ReadJob",
    "Retired",
    "Span",
    "WriteJob",
]

#: Most bytes that one memory request of ours asks for or carries.
JOB_BYTES = 512
#: Most descriptors that one read asks for.
FETCH_DESCRIPTORS = JOB_BYTES // regs.DESCRIPTOR.itemsize
#: Bit of a place that selects the ring of the pair's stream instead of card RAM.
RING_PLACE = 1 << 16
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


class Descriptor(data.Struct):
    """One parsed descriptor, or the error that ended the list instead of one."""

    #: byte address on PCIe: the source (H2C) or the destination (C2H)
    pci_address: 64
    #: byte address on the card
    card_address: 64
    #: bytes; 0 moves nothing
    length: 28
    stop: 1
    completed: 1
    #: OK, or why there is no descriptor; `pci_address` is then the descriptor's own address
    outcome: Outcome


class ErrorReport(data.Struct):
    """An error that ended a run, for the error capture registers."""

    outcome: Outcome
    #: the failing address, unless the requester has reported it already
    address: 64
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


class ReadJob(data.Struct):
    """One memory read to issue; never crosses 4 KiB."""

    #: byte address on PCIe
    address: 64
    #: bytes, 1 to `JOB_BYTES`
    length: 10
    #: byte address in the client's memory where the first byte goes
    place: 17
    #: comes back in `Retired`
    last: 1


class Retired(data.Struct):
    """A read job ended and its data, if the outcome is OK, is in the client's memory."""

    length: 10
    last: 1
    outcome: Outcome


class PieceReport(data.Struct):
    """A piece of a channel has been moved, or has failed."""

    #: the last piece of its span
    last: 1
    outcome: Outcome


class Placement(data.Struct):
    """One write of a 64-bit word into the memory of a client."""

    #: number of the client
    client: 4
    #: word address: byte address >> 3
    address: 14
    data: 64
    #: byte enables
    enable: 8


class WriteJob(data.Struct):
    """One memory write to issue; never crosses 4 KiB, at most the max payload size."""

    #: byte address on PCIe
    address: 64
    #: bytes, 1 to `JOB_BYTES`
    length: 10
    #: byte address in card RAM of the first byte
    place: 17
    #: token for `RequestHeader`
    token: 8
