# SPDX-License-Identifier: BSD-2-Clause
"""Records that the blocks of launch queues pass to each other."""

from amaranth import *
from amaranth.lib import data, enum

__all__ = [
    "DEPTH_BITS",
    "ENTRY_BYTES",
    "Doorbell",
    "Entry",
    "QueueEnd",
    "QueueSettings",
    "Slot",
    "Status",
    "Write",
]

#: A queue has at most ``2**DEPTH_BITS`` tickets that are not completed.
DEPTH_BITS = 8
#: Bytes of an entry of the submission ring, and of a record.
ENTRY_BYTES = 8


class Doorbell(data.Struct):
    """A word that says how far a queue's submission ring is filled."""

    #: the lower half of the first ticket that is not submitted
    tail: 16
    #: that of the queue; 0 is none
    generation: 16


class Entry(data.Struct):
    """What a GPU writes into the submission ring."""

    ticket: 32
    slot: 6
    reserved: 26


class Slot(data.Struct):
    """A job that trusted software has prepared."""

    valid: 1
    #: number of the channel, H2C first
    channel: 3
    #: queue that may launch it
    queue: 2
    #: read `flush` before the record is written
    flushes: 1
    #: write a done word
    has_done: 1
    adjacent: 6
    #: byte addresses: of the chain of descriptors, of a dword of the destination, of the done word
    chain: 64
    flush: 64
    done: 64


class QueueSettings(data.Struct):
    """What software has set for a queue."""

    armed: 1
    generation: 16
    #: the ring has ``1 << depth`` entries, at most ``2**DEPTH_BITS``
    depth: range(DEPTH_BITS + 1)
    #: first ticket, taken over while not armed
    first: 32
    #: byte addresses, multiples of `ENTRY_BYTES`
    ring: 64
    records: 64
    #: of the word that is polled as a doorbell, if `polls`
    shadow: 64
    polls: 1


class QueueEnd(enum.Enum, shape=3):
    """Why a queue takes no more doorbells."""

    NONE = 0
    #: a tail was more than the depth ahead
    TAIL = 1
    #: an entry did not have the ticket that was expected, however often it was read
    ENTRY = 2
    #: the ring, or the shadow tail, could not be read
    READ = 3
    #: a record or a done word was lost
    RECORD = 4


class Status(enum.Enum, shape=8):
    """Status of a ticket in its record; those of `hw.records.Outcome` are as there."""

    OK = 0
    #: the slot is not valid, or is another queue's
    SLOT = 16
    #: an earlier ticket failed; this one was not started
    FLUSHED = 17
    #: stopped by software
    ABORTED = 18


class Write(data.Struct):
    """A dword, or two, to write on PCIe."""

    address: 64
    data: 64
    #: one dword, not two
    short: 1
