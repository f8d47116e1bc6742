# SPDX-License-Identifier: BSD-2-Clause
"""What trusted software and a GPU do with a launch queue (docs/queue.md)."""

from __future__ import annotations

import struct

import numpy as np
from cocotb.triggers import Timer

from peerdma import regs

from .memory import Buffer, Transfer
from .tb import TB

__all__ = ["LaunchQueue", "fill", "prepare"]

#: Status in a place of the ring of records that the board has not written yet.
_NOT_WRITTEN = 0xDEAD_BEEF
#: How often a program looks for its record.
_LOOKS_NS = 40


def _value(fields, **values: int) -> int:
    found = {field.name: field for field in fields}
    return sum(found[name].put(int(value)) for name, value in values.items())


async def _write_address(tb: TB, block: regs.Block, number: int, name: str, value: int) -> None:
    await tb.write(block, f"{name}_lo", value & 0xFFFF_FFFF, channel=number)
    await tb.write(block, f"{name}_hi", value >> 32, channel=number)


async def prepare(
    tb: TB,
    slot: int,
    *transfers: Transfer,
    flush: int | None = None,
    done: int | None = None,
    **control: int,
) -> None:
    """Prepare a slot with one descriptor; `control` has further fields of the slot's.

    One for a packet has two, of which the second one is in the slot behind.
    """
    tables = []
    for transfer in transfers:
        table = np.zeros(1, regs.DESCRIPTOR)
        stop = regs.DESC_STOP if transfer is transfers[-1] else 0
        table["control"] = transfer.magic << 16 | stop
        table["length"] = transfer.length
        table["source"], table["destination"] = transfer.source, transfer.destination
        tables.append(table.tobytes())
    await fill(tb, slot, *tables, flush=flush, done=done, **control)


async def fill(
    tb: TB,
    slot: int,
    *descriptors: bytes,
    flush: int | None = None,
    done: int | None = None,
    **control: int,
) -> None:
    """The same of descriptors as they are in memory: the second one goes to the slot behind."""
    block = regs.LAUNCH_SLOT
    for number, descriptor in enumerate(descriptors):
        at = block.address("descriptor", slot + number)
        await tb.bar_write(regs.BAR_DMA[0], at, descriptor)
    await _write_address(tb, block, slot, "flush", flush or 0)
    await _write_address(tb, block, slot, "done", done or 0)
    control |= {"valid": 1, "flush": flush is not None, "done": done is not None}
    await tb.write(block, "control", _value(block["control"].fields, **control), channel=slot)


class LaunchQueue:
    """A queue, with its rings and its shadow tail in host memory.

    Parameters
    ----------
    tb : TB
        With a GPU, which rings the doorbells.
    number : int
    first : int
        First ticket.
    entries : int
        Places of the rings.
    polls : bool
        The tail is in memory, and no doorbell is rung.

    Attributes
    ----------
    places, records, shadow : Buffer
        Its memory.
    """

    def __init__(self, tb: TB, number: int, *, first: int, entries: int, polls: bool):
        self._tb, self.number = tb, number
        self.next, self.entries, self._polls = first, entries, polls
        self.generation = tb.rng.randrange(1, 1 << 16)
        size, name = 8 * entries, f"queue {number}"
        self.places, self.records = (tb.buffer(size, high=True, name=name) for _ in range(2))
        self.shadow = tb.buffer(4, name=f"shadow tail {number}")

    async def arm(self) -> None:
        """Fill the rings with tickets that are not to come, set the queue up and arm it."""
        tb, block, first = self._tb, regs.LAUNCH_QUEUE, self.next
        places = np.arange(self.entries)
        rows = np.zeros(self.entries, regs.LAUNCH_RECORD)
        rows["status"] = _NOT_WRITTEN
        before = first - self.entries
        rows["ticket"] = (before + (places - before) % self.entries) % (1 << 32)
        self.places.data = self.records.data = rows.tobytes()
        self.shadow.data = bytes(4)
        for name, buffer in (
            ("ring", self.places),
            ("records", self.records),
            ("shadow", self.shadow),
        ):
            await _write_address(tb, block, self.number, name, buffer.address)
        await tb.write(block, "first", first & 0xFFFF, channel=self.number)
        await self.control(armed=1)
        # A doorbell comes another way, and must not be there first.
        assert (await self.state())["armed"]

    async def disarm(self) -> None:
        """No ticket begins any more; returns when none is at work."""
        await self.control(armed=0)
        while (await self.state())["busy"]:
            pass

    async def state(self) -> dict[str, int]:
        """The fields of its state register."""
        value = await self._tb.read(regs.LAUNCH_QUEUE, "state", channel=self.number)
        return {field.name: field.get(value) for field in regs.LAUNCH_QUEUE["state"].fields}

    async def control(self, armed: int) -> None:
        """Write its control register: arm or disarm it."""
        values = {"polls": self._polls, "mask": self.entries - 1, "generation": self.generation}
        value = _value(regs.LAUNCH_QUEUE["control"].fields, armed=armed, **values)
        await self._tb.write(regs.LAUNCH_QUEUE, "control", value, channel=self.number)

    def _put(self, buffer: Buffer, at: int, data: bytes) -> None:
        buffer.data = buffer.data[:at] + data + buffer.data[at + len(data) :]

    def submit(self, *slots: int) -> list[int]:
        """Write entries for these slots, without telling the board; their tickets."""
        tickets = []
        for slot in slots:
            ticket = self.next % (1 << 32)
            entry = struct.pack("<II", ticket, slot)
            self._put(self.places, 8 * (ticket % self.entries), entry)
            tickets.append(ticket)
            self.next += 1
        return tickets

    async def ring(self, tail: int, slot: int | None = None) -> None:
        """Tell the board: by the GPU's store to the page, or by the shadow tail.

        The store has 64 bits if it brings the last ticket's `slot` along.
        """
        word = _value(regs.DOORBELL_FIELDS, tail=tail & 0xFFFF, generation=self.generation)
        data = word.to_bytes(4, "little")
        if slot is not None:
            upper = (tail - 1) % (1 << 32) >> 16
            entry = _value(regs.DOORBELL_ENTRY_FIELDS, slot=slot, ticket=upper)
            data += entry.to_bytes(4, "little")
        if self._polls:
            self.shadow.data = data[:4]
        else:
            page = regs.DOORBELL_BASE + regs.DOORBELL_STRIDE * self.number
            at = self._tb.bar_address(regs.BAR_USER[0], page)
            await self._tb.gpu.function.mem_write(at, data)

    def status(self, ticket: int) -> int | None:
        """The status in a ticket's record; None if it is not there yet."""
        at = 8 * (ticket % self.entries)
        found, status = struct.unpack("<II", self.records.data[at : at + 8])
        return None if (found - ticket) & 1 << 31 else status

    async def wait(self, ticket: int, us: float = 100) -> int:
        """Look for a ticket's record until it is there, and no longer; its status."""
        for _ in range(int(us * 1000) // _LOOKS_NS):
            status = self.status(ticket)
            if status is not None:
                return status
            await Timer(_LOOKS_NS, "ns")
        raise AssertionError(f"no record of ticket {ticket} within {us} us")
