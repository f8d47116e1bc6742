# SPDX-License-Identifier: BSD-2-Clause
"""What software and a GPU do with a launch queue, at the seam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hw.core import Core, CoreConfig
from peerdma import regs
from peerdma.regs import LaunchStatus
from tests.hw.seam_model import SeamModel, block_of, descriptors_of

__all__ = [
    "BASE",
    "DESTINATION",
    "DONE",
    "HOSTS_RAM",
    "JOBS_DESTINATION",
    "JOBS_RAM",
    "JOBS_SOURCE",
    "LISTS",
    "QUEUES",
    "SMALL",
    "SOURCE",
    "LaunchQueue",
    "launching",
    "prepare",
    "word",
]

BASE = 0x12_3456_0000
#: In the model's memory: software's source and destination, those of jobs, the lists of slots, and
#: two queues.
SOURCE, DESTINATION, JOBS_SOURCE, JOBS_DESTINATION, LISTS = (0x1000 * n for n in range(1, 6))
QUEUES = 0x6000, 0x8000
DONE, SIZE = 0x5800, 0xA000
SMALL = CoreConfig(tags=8, ram_size=4096, user=None, launch_queues=2)
#: Card addresses for software's runs, and for launched ones.
HOSTS_RAM, JOBS_RAM = 0, 2048


def launching(*, model=SeamModel, width: int = 64, **config) -> SeamModel:
    """A small core with launch queues, for a block of this width, and its host."""
    return model(Core(block_of(width), replace(SMALL, **config)), BASE, SIZE)


def word(model, at: int) -> int:
    return int.from_bytes(model.memory[at : at + 4], "little")


#: What a fresh record holds as its status.
_NOT_WRITTEN = 0xDEAD_BEEF


def _register(block: regs.Block, number: int, name: str) -> int:
    return block.address(name, number)


def write_address(model: SeamModel, block: regs.Block, number: int, name: str, value: int):
    """Write both halves of an address."""
    model.write(_register(block, number, f"{name}_lo"), value & 0xFFFF_FFFF)
    model.write(_register(block, number, f"{name}_hi"), value >> 32)


def prepare(
    model: SeamModel,
    slot: int,
    spans: Sequence[tuple[int, int, int]],
    at: int,
    *,
    done: int | None = None,
    flush: int | None = None,
    valid: int = 1,
    **control: int,
):
    """Prepare a slot with a list, (source, destination, length) each.

    All but the first descriptor are in the model's memory from `at` on. `control` has further
    fields of the slot's control.
    """
    block, register = regs.LAUNCH_SLOT, regs.LAUNCH_SLOT["control"]
    table = descriptors_of(spans, model.base + at)
    # What is in the slot has to be taken from there.
    model.memory[at : at + table.nbytes] = bytes(32) + table[1:].tobytes()
    for number, dword in enumerate(table[:1].view("<u4")):
        model.write(_register(block, slot, "descriptor") + 4 * number, int(dword))
    write_address(model, block, slot, "flush", flush or 0)
    write_address(model, block, slot, "done", done or 0)
    control |= {"valid": valid, "done": done is not None, "flush": flush is not None}
    value = sum(register.field(name).put(int(field)) for name, field in control.items())
    model.write(_register(block, slot, "control"), value)


class LaunchQueue:
    """A queue, its rings in the model's memory, and the tickets that were drawn.

    Parameters
    ----------
    model : SeamModel
    number : int
    at : int
        Where its memory is in the model's: 4 KiB for the ring of entries, and 4 KiB for that of
        records and the shadow tail.
    first : int
        First ticket.
    """

    def __init__(
        self, model: SeamModel, number: int, at: int, *, first=0, entries=8, generation=7, polls=0
    ):
        self.model, self.number, self.at = model, number, at
        self.first, self.entries, self.generation, self.polls = first, entries, generation, polls
        self.next = first

    def arm(self):
        """Fill the rings, set the queue up and arm it."""
        model, block = self.model, regs.LAUNCH_QUEUE
        places = np.arange(self.entries, dtype=np.uint32)
        before = (self.first - self.entries) & 0xFFFF_FFFF
        tickets = before + (places - before) % self.entries
        rows = np.zeros(self.entries, regs.LAUNCH_ENTRY)
        rows["ticket"] = tickets
        model.memory[self.at : self.at + rows.nbytes] = rows.tobytes()
        rows = np.zeros(self.entries, regs.LAUNCH_RECORD)
        rows["ticket"], rows["status"] = tickets, _NOT_WRITTEN
        model.memory[self.at + 4096 : self.at + 4096 + rows.nbytes] = rows.tobytes()
        self._shadow(0)
        write_address(model, block, self.number, "ring", model.base + self.at)
        write_address(model, block, self.number, "records", model.base + self.at + 4096)
        write_address(model, block, self.number, "shadow", model.base + self.at + 0x1FF8)
        model.write(_register(block, self.number, "first"), self.first & 0xFFFF)
        self._control(1)

    def disarm(self):
        self._control(0)

    def resume(self):
        self.model.write(_register(regs.LAUNCH_QUEUE, self.number, "resume"), 0)

    def _control(self, armed: int):
        register = regs.LAUNCH_QUEUE["control"]
        values = {"armed": armed, "polls": self.polls, "mask": self.entries - 1}
        values |= {"generation": self.generation}
        value = sum(register.field(name).put(field) for name, field in values.items())
        self.model.write(_register(regs.LAUNCH_QUEUE, self.number, "control"), value)

    def _shadow(self, word: int):
        at = self.at + 0x1FF8
        self.model.memory[at : at + 4] = word.to_bytes(4, "little")

    def submit(self, *slots: int, ring: bool = True, wide: bool = False) -> list[int]:
        """Write entries for these slots, and tell the board; their tickets.

        `wide` is a doorbell of 64 bits, with the entry of the last one.
        """
        tickets = []
        for slot in slots:
            place = self.at + 8 * (self.next % self.entries)
            entry = np.array([(self.next & 0xFFFF_FFFF, slot)], regs.LAUNCH_ENTRY)
            self.model.memory[place : place + 8] = entry.tobytes()
            tickets.append(self.next)
            self.next += 1
        if ring:
            self.ring(self.next, slot=slots[-1] if wide else None)
        return tickets

    def ring(self, tail: int, generation: int | None = None, *, slot: int | None = None):
        """A doorbell, of 64 bits if it has a slot, or the shadow tail."""
        word = tail & 0xFFFF | (self.generation if generation is None else generation) << 16
        if self.polls:
            self._shadow(word)
        else:
            base = regs.DOORBELL_BASE + regs.DOORBELL_STRIDE * self.number
            if slot is not None:
                word |= (slot | (tail - 1 & 0xFFFF_0000)) << 32
            self.model.write(base, word, regs.BAR_USER[0], dwords=1 if slot is None else 2)

    def status(self, ticket: int) -> int | None:
        """The status in a ticket's record; None if it is not there yet."""
        place = self.at + 4096 + 8 * (ticket % self.entries)
        (row,) = np.frombuffer(bytes(self.model.memory[place : place + 8]), regs.LAUNCH_RECORD)
        ahead = int(row["ticket"]) - ticket & 0xFFFF_FFFF
        if ahead >= 1 << 31:
            return None
        return int(row["status"])

    async def wait(self, ctx, *tickets: int, cycles: int = 5000) -> list[int]:
        """The statuses of tickets; fails if one has no record within so many cycles."""
        found = []
        for ticket in tickets:
            for _ in range(cycles):
                status = self.status(ticket)
                if status is not None:
                    break
                await ctx.tick()
            else:
                raise AssertionError(f"no record of ticket {ticket} within {cycles} cycles")
            found.append(LaunchStatus(status) if status in set(LaunchStatus) else status)
        return found

    async def state(self, ctx) -> dict[str, int]:
        """The fields of its state register."""
        register = regs.LAUNCH_QUEUE["state"]
        value = await self.model.read(ctx, _register(regs.LAUNCH_QUEUE, self.number, "state"))
        return {field.name: field.get(value) for field in register.fields}

    async def read(self, ctx, name: str) -> int:
        """A register of the queue."""
        return await self.model.read(ctx, _register(regs.LAUNCH_QUEUE, self.number, name))
