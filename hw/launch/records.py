# SPDX-License-Identifier: BSD-2-Clause
"""Records that the blocks of launch queues pass to each other, and where the table has what."""

from enum import IntEnum

from amaranth import *
from amaranth.lib import data, enum
from amaranth.utils import exact_log2

from peerdma import regs

from ..channel.signatures import RUNS

__all__ = [
    "CONTROL",
    "DOORBELL",
    "DOORBELL_ENTRY",
    "ENTRY_BYTES",
    "LEAST_BITS",
    "PLACES",
    "QUEUE_COLUMN",
    "ROW_BITS",
    "SETTINGS",
    "SLOT_BITS",
    "STATE",
    "Entry",
    "Phase",
    "Read",
    "queue_row",
    "slot_row",
]


def _layout(fields) -> data.FlexibleLayout:
    """The fields of a dword, as `peerdma.regs` has them."""
    return data.FlexibleLayout(
        32, {field.name: data.Field(field.width, field.lsb) for field in fields}
    )


#: Control of a slot, control and state of a queue, and the dwords of a doorbell.
CONTROL = _layout(regs.LAUNCH_SLOT["control"].fields)
SETTINGS = _layout(regs.LAUNCH_QUEUE["control"].fields)
STATE = _layout(regs.LAUNCH_QUEUE["state"].fields)
DOORBELL = _layout(regs.DOORBELL_FIELDS)
DOORBELL_ENTRY = _layout(regs.DOORBELL_ENTRY_FIELDS)

#: Bytes of an entry of the submission ring, and of a record.
ENTRY_BYTES = regs.LAUNCH_ENTRY.itemsize
#: Bits that a ring's mask has at least.
LEAST_BITS = 3
#: Places of a queue for what is kept of tickets: as many as are at work at most. A ticket has that
#: of its number modulo as many.
PLACES = regs.LAUNCH_PLACES
assert PLACES == RUNS + 1
SLOT_BITS = exact_log2(regs.LAUNCH_SLOTS)
#: Bits of a row's number in the table, which has eight words of 64 bits for each slot.
ROW_BITS = 3 + SLOT_BITS
#: Number of the word of a slot that the table keeps for the queues.
QUEUE_COLUMN = 7


class Entry(data.Struct):
    """What is kept of an entry, which stands where the lower half of its ticket's number says."""

    #: the other half of that number
    upper: 16
    slot: SLOT_BITS


class Read(enum.Enum, shape=2):
    """What launch queues read."""

    #: entries of the ring
    ENTRIES = 0
    #: the shadow tail
    SHADOW = 1
    #: a dword of the destination
    FLUSH = 2


class Phase(IntEnum):
    """Where the next ticket of a queue is, up to the start of its run."""

    #: waiting for its entry, or for a channel that another queue or a run has; or its slot is
    #: looked up
    IDLE = 0
    #: its channels are requested, or it follows a run
    GRANT = 1
    #: it is not started, and waits for the record of the ticket before
    OVER = 2


def slot_row(slot: Value, word: Value | str) -> Value:
    """The table's row for a word of a slot, by its number or by the name of a register."""
    if isinstance(word, str):
        word = Const(regs.LAUNCH_SLOT[word].offset // 8, 3)
    return Cat(word[:3], slot)


def queue_row(queue: Value, name: str) -> Value:
    """The table's row for a register of a queue."""
    return Cat(Const(QUEUE_COLUMN, 3), Const(regs.LAUNCH_QUEUE[name].offset // 8, 3), queue)
