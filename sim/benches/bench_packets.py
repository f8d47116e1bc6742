# SPDX-License-Identifier: BSD-2-Clause
"""Packets of the pattern source that launch queues take, beside each other and software."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import cocotb
import numpy as np
from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import LaunchStatus
from peerdma.testing import pattern

from .bench_frames import RECORD, STREAM, Source
from .bench_launch import LATE_NS
from .completer import Split
from .launch_queue import LaunchQueue, prepare
from .memory import Buffer, Transfer
from .tb import TB, bench

CHANNELS = (1,)
#: Of the core that these benches are for.
USER, LAUNCH_QUEUES = "pattern", 2


@dataclass
class Place:
    """A slot, the memory for a packet, and for its record, which a flush read pushes."""

    slot: int
    data: Buffer
    record: Buffer


async def place(tb: TB, queue: int, number: int, size: int) -> Place:
    """Room for so many bytes in GPU memory."""
    slot, data = 32 * queue + 2 * number, tb.gpu_buffer(size, offset=tb.rng.randrange(4096))
    record = tb.gpu_buffer(RECORD, offset=RECORD * tb.rng.randrange(4096 // RECORD))
    transfers = [Transfer(STREAM, each.address, each.size) for each in (data, record)]
    last = record.address + RECORD - 4
    await prepare(tb, slot, *transfers, queue=queue, c2h=1, receive=1, flush=last)
    return Place(slot, data, record)


@bench(us=2000, lanes=4, gpu=True, stall=0.05)
async def packets_behind_tickets(tb: TB):
    """Each packet is one ticket's, in order: whole, or the first bytes; none waits for software."""
    tb.host.gpu_port.posted_ns = LATE_NS
    for completer in (tb.host, tb.gpu.function):
        completer.set_manner(Split.RANDOM, (0, 500), (0, 50))
    await tb.gpu_master()
    # Less than the ring has, or more.
    words = tb.rng.choice((tb.rng.randint(2, 500), tb.rng.randint(1100, 2200)))
    source, size, count = Source(tb), pattern.WORD_BYTES * words, 6
    found: set[int] = set()

    async def run(number: int) -> None:
        queue = LaunchQueue(tb, number, first=(1 << 32) - 5, entries=8, polls=bool(number))
        rooms = (size, size + 9, size - 1, tb.rng.randint(1, size))
        places = [await place(tb, number, n, room) for n, room in enumerate(rooms)]
        await queue.arm()
        last = -1
        for _ in range(count):
            some = tb.rng.sample(places, tb.rng.randint(1, len(places)))
            for each in some:
                each.data.data, each.record.data = b"\xa5" * each.data.size, bytes(RECORD)
            tickets = queue.submit(*(each.slot for each in some))
            await queue.ring(queue.next)
            for ticket, each in zip(tickets, some, strict=True):
                status = await queue.wait(ticket, 500)
                assert status == (LaunchStatus.LONG if each.data.size < size else LaunchStatus.OK)
                record = np.frombuffer(each.record.data, regs.FRAME_RECORD)[0]
                packet = int(record["number"]) & ~regs.FRAME_NUMBER_VALID
                data = pattern.fill_bytes(source.seed + packet, 0, size).tobytes()
                assert (record["bytes"], record["crc"]) == (size, zlib.crc32(data))
                each.data.expect((data + b"\xa5" * each.data.size)[: each.data.size])
                assert last < packet not in found
                last = packet
                found.add(packet)
        await queue.disarm()

    runs = [cocotb.start_soon(run(number)) for number in range(2)]
    # Nothing has come yet: software's run goes first.
    await Timer(20, "us")
    target = tb.buffer(300)
    await tb.c2h.run(tb.chain([Transfer(0, target.address, 300)]), 100)
    assert not found
    await source.start(size)
    for each in runs:
        await each
    assert sorted(found) == list(range(len(found)))
