# SPDX-License-Identifier: BSD-2-Clause
"""Lists of descriptors as each driver builds them, and what the fetch must make of them."""

from collections import namedtuple

import numpy as np

from hw.records import JOB_BYTES, Outcome
from peerdma import regs

SIZE = regs.DESCRIPTOR.itemsize
PAGE = 4096
STOP, COMPLETED = regs.DESC_STOP, regs.DESC_COMPLETED

#: What a fetch is told to do, and the memory that it may read: {address: descriptor as bytes}.
List = namedtuple("List", "address adjacent memory")
#: A descriptor as its channel gets it.
Item = namedtuple("Item", "source destination length stop completed")
#: A list whose first block is pushed, with the memory that is left to read.
Pushed = namedtuple("Pushed", "todo memory state owned")
#: The error that ends a list.
Error = namedtuple("Error", "address outcome")


# Lists --------------------------------------------------------------------------------------


def word64(rng):
    return rng.randrange(1 << 64)


def pack(rng, flags=0, adjacent=0, following=0, magic=regs.DESC_MAGIC):
    """A descriptor with random addresses and length, and noise in the bits to be ignored."""
    ignored = rng.randrange(1 << 16) & ~(0x3F << 8 | STOP | COMPLETED)
    control = magic << 16 | adjacent << 8 | flags | ignored
    fields = (control, rng.randrange(1 << 32), word64(rng), word64(rng), following)
    return np.array([fields], regs.DESCRIPTOR).tobytes()


def chain(rng, sizes, *, cyclic=False, in_page=True):
    """Blocks of these sizes at random addresses, the insides of their `next` fields garbage."""
    # A region of two pages each; what lies between them is not memory.
    regions = rng.sample(range(1 << 51), len(sizes))
    starts = []
    for region, size in zip(regions, sizes, strict=True):
        most = (PAGE if in_page else 2 * PAGE) // SIZE - size
        starts.append((region << 13) + rng.randrange(most + 1) * SIZE)
    memory = {}
    for block, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        for n in range(size):
            adjacent, following, flags = rng.randrange(64), word64(rng), 0
            if n == size - 1 and (cyclic or block < len(sizes) - 1):
                after = (block + 1) % len(sizes)
                # The low bits of an address are none of ours.
                adjacent, following = sizes[after] - 1, starts[after] | rng.randrange(32)
            elif n == size - 1:
                flags = STOP | COMPLETED
            if cyclic:
                flags = COMPLETED
            memory[start + n * SIZE] = pack(rng, flags, adjacent, following)
    return List(starts[0], sizes[0] - 1, memory)


def picoevb(rng):
    """One descriptor per run."""
    return chain(rng, [1])


def upstream(rng, length):
    """Blocks of 32, the last one shorter."""
    return chain(rng, [32] * (length // 32) + ([length % 32] if length % 32 else []))


def xdma_ko(rng, length, first=0):
    """Consecutive descriptors; blocks end at multiples of 2 KiB, adjacency counts down."""
    ring = (rng.randrange(1 << 30) << 14) + (1 << 34)

    def adjacent(index, left):
        return min(63 - index % 64, left - 1)

    memory = {}
    for n in range(length):
        index, left = first + n, length - n - 1
        memory[ring + index * SIZE] = (
            pack(rng, 0, adjacent(index + 1, left), ring + (index + 1) * SIZE)
            if left
            else pack(rng, STOP | COMPLETED)
        )
    return List(ring + first * SIZE, adjacent(first, length), memory)


# The reference ------------------------------------------------------------------------------


def reference(todo, limit, failures=None, most=10_000, first=None):
    """What the fetch must read and give: ([(address, bytes)], [Item or Error]).

    `failures` is {index of a read: (Outcome, descriptors that arrived before it failed)}; `most`
    ends an endless list. If the first block is pushed, `first` is the address in place of its own.
    The reads go on to the end of the last block: the fetch may stop earlier, but must not leave
    that block.
    """
    reads, items = [], []
    address, left, ended = todo.address, todo.adjacent + 1, False
    # Pushed descriptors are named by their place in the window.
    moved = 0 if first is None else first - todo.address
    while not ended and len(items) < most:
        while left:
            k = min(
                left, (128 << limit) // SIZE, JOB_BYTES // SIZE, (-address % PAGE or PAGE) // SIZE
            )
            outcome, good = Outcome.OK, k
            if first is None:
                outcome, good = (failures or {}).get(len(reads), (outcome, good))
                reads.append((address, k * SIZE))
            for n in range(k):
                if not ended and n == good:
                    items.append(Error(address, outcome))
                    ended = True
                if not ended:
                    raw = np.frombuffer(todo.memory[address], regs.DESCRIPTOR)[0]
                    control = int(raw["control"])
                    ended = control & STOP or control >> 16 != regs.DESC_MAGIC
                    items.append(
                        Item(
                            int(raw["source"]),
                            int(raw["destination"]),
                            int(raw["length"]) & regs.DESC_MAX_LENGTH,
                            control & STOP,
                            control >> 1 & 1,
                        )
                        if control >> 16 == regs.DESC_MAGIC
                        else Error(address + moved, Outcome.MAGIC)
                    )
                    following = int(raw["next"]) & ~(SIZE - 1)
                address, left = address + SIZE, left - 1
        if not ended:
            address, left, first = following, (control >> 8 & 63) + 1, None
            moved = 0
    return reads, items
