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


class QueueEnd(enum.Enum, shape=3):
    """Why a queue takes no more doorbells."""

    NONE = 0
    #: a tail was more than the depth ahead
    TAIL = 1
    #: an entry did not have the ticket that was expected, however often it was read
    ENTRY = 2
    #: the ring, or the shadow tail, could not be read
    READ = 3
