# SPDX-License-Identifier: BSD-2-Clause
"""What is around launch queues: models that take their time, and may fail."""

from __future__ import annotations

import gc
import random
from collections import deque
from contextlib import asynccontextmanager

from hw.channel.signatures import RUNS
from hw.launch.queues import LaunchQueues
from hw.records import Outcome
from peerdma import regs
from peerdma.regs import LaunchStatus
from tests.hw.helpers import simulate, write_of
from tests.hw.registers.bus import bus_read, bus_write

__all__ = ["DONE", "FLUSH", "RINGS", "SHADOWS", "World", "steps"]

#: Two queues: where their rings, records and shadow tails are.
RINGS, RECORDS, SHADOWS = (0x10_0000, 0x11_0000), (0x20_0000, 0x21_0000), (0x30_0000, 0x30_0100)
FLUSH, DONE = 0x40_0000, 0x50_0000
#: Fields of a queue's state that add up to its tickets at work.
AT_WORK = ("ending", "running", "starting")


class World:
    """Memory with a read engine in front of it, the channels, and a record writer.

    Parameters
    ----------
    rng : random.Random
    queues, entries, first : int
        How many, places of their rings, and their first ticket.
    width : int
        Bits of a beat of a read.
    packets : bool
        Slots may be for packets.

    Attributes
    ----------
    memory : dict of int to int
        Qwords by address.
    log : list of (str, int, int)
        ("read", address, length) when it has ended, ("write", address, value) when it was taken,
        ("run", channel, dword) and ("ended", channel, dword), as they happened; the dword is the
        first one of the descriptor.
    records : list of list of (int, int)
        Ticket and status of each record of each queue, in order.
    ends : dict of int to deque of Outcome or None
        How the next runs of a channel end; None is never. OK when there is none left.
    outcome : function of int
        How a read of an address ends.
    held, closed : set of int
        Channels that somebody else has; and on which no run begins behind others, but for one that
        was promised.
    late : deque of int
        Cycles that the next runs wait for their start, of any channel; 0 when there is none left.
    lasts : deque of int
        Cycles that the next runs take, of any channel; less than 60 when there is none left.
    pause : int
        Cycles between the beats of a read.
    delays : dict of int to int
        Cycles that reads of these addresses take, at least.
    dropped : deque of bool
        Whether the next writes are lost; False when there is none left.
    long : deque of bool
        Whether the packets of the next runs are too long; False when there is none left.
    most : int
        Runs that were under way on a channel at once, at most.
    writing : bool
        A write was taken and is not done.
    """

    def __init__(
        self,
        rng: random.Random,
        queues: int = 2,
        entries: int = 8,
        first: int = 0,
        width: int = 64,
        packets: bool = False,
    ):
        self.dut = LaunchQueues(queues=queues, h2c=1, c2h=1, pairs=1, width=width, packets=packets)
        self.rng, self.entries, self.queues, self.width = rng, entries, queues, width
        self.memory, self.log = {}, []
        self.records = [[] for _ in range(queues)]
        self.next = [first] * queues
        self.ends = {0: deque(), 1: deque()}
        self.outcome = lambda address: Outcome.OK
        self.held, self.closed = set(), set()
        self.late = deque()
        self.lasts = deque()
        self.pause = 0
        self.delays = {}
        self.dropped = deque()
        self.long = deque()
        self.writing = False
        self.flushed = self.most = self.cycle = 0
        self._driven = set()

    def run(self, *benches, background=(), cycles=100_000):
        models = (self._reads, self._records, self._channel(0), self._channel(1), self._watch)
        try:
            simulate(self.dut, *benches, background=(*models, *background), cycles=cycles)
        finally:
            # What is left of the models ends here: where it does while pytest parses a file to show
            # a failure, Python 3.11 raises an error of its own.
            gc.collect()

    @asynccontextmanager
    async def _driving(self, ctx, port: str):
        """One of several benches at a time drives the port."""
        while port in self._driven:
            await ctx.tick()
        self._driven.add(port)
        try:
            yield
        finally:
            self._driven.discard(port)

    # What software does

    async def register(self, ctx, block, number, name, value):
        async with self._driving(ctx, "write"):
            await bus_write(ctx, self.dut.bus, block.address(name, number), value)

    async def slot(self, ctx, slot, *, marker=None, flush=0, done=0, valid=1, **fields):
        """Prepare a slot, whose descriptor begins with `marker`."""
        block, control = regs.LAUNCH_SLOT, regs.LAUNCH_SLOT["control"]
        await self.register(ctx, block, slot, "descriptor", slot if marker is None else marker)
        await self.register(ctx, block, slot, "flush_lo", FLUSH + 8 * slot)
        await self.register(ctx, block, slot, "done_lo", DONE + 8 * slot)
        fields |= {"valid": valid, "done": done, "flush": flush}
        value = sum(control.field(name).put(int(field)) for name, field in fields.items())
        await self.register(ctx, block, slot, "control", value)

    async def control(self, ctx, queue, armed, *, polls=0, generation=1):
        control = regs.LAUNCH_QUEUE["control"]
        values = {"armed": armed, "polls": polls, "mask": self.entries - 1}
        values["generation"] = generation
        value = sum(control.field(name).put(field) for name, field in values.items())
        await self.register(ctx, regs.LAUNCH_QUEUE, queue, "control", value)

    async def arm(self, ctx, queue, **control):
        for name, places in (("ring", RINGS), ("records", RECORDS), ("shadow", SHADOWS)):
            await self.register(ctx, regs.LAUNCH_QUEUE, queue, f"{name}_lo", places[queue])
        for place in range(self.entries):
            # what an earlier ticket left there
            ticket = self.next[queue] - self.entries
            ticket += (place - ticket) % self.entries
            self.memory[RINGS[queue] + 8 * place] = ticket & 0xFFFF_FFFF | 63 << 32
        await self.register(ctx, regs.LAUNCH_QUEUE, queue, "first", self.next[queue] & 0xFFFF)
        await self.control(ctx, queue, 1, **control)

    async def disarm(self, ctx, queue):
        await self.control(ctx, queue, 0)
        while (await self.state(ctx, queue))["busy"]:
            pass

    async def state(self, ctx, queue):
        register = regs.LAUNCH_QUEUE["state"]
        async with self._driving(ctx, "read"):
            value = await bus_read(ctx, self.dut.bus, regs.LAUNCH_QUEUE.address("state", queue))
        return {field.name: field.get(value) for field in register.fields}

    async def at_work(self, ctx, queue):
        """The queue's state, and the slots of its tickets at work, from the oldest one on."""
        state, slots = await self.state(ctx, queue), []
        first = state["place"] - state["recorded"]
        for place in range(first, first + sum(state[name] for name in AT_WORK)):
            number = regs.LAUNCH_PLACES * queue + place % regs.LAUNCH_PLACES
            async with self._driving(ctx, "read"):
                address = regs.LAUNCH_TICKET.address("slot", number)
                slots.append(await bus_read(ctx, self.dut.bus, address))
        return state, slots

    # What a GPU does

    def submit(self, queue, *slots) -> list[int]:
        """Write entries, without a doorbell; their tickets."""
        tickets = []
        for slot in slots:
            ticket = self.next[queue] % 2**32
            self.memory[RINGS[queue] + 8 * (ticket % self.entries)] = ticket | slot << 32
            tickets.append(ticket)
            self.next[queue] += 1
        return tickets

    async def ring(
        self,
        ctx,
        queue,
        tail=None,
        generation=1,
        *,
        at=0,
        bar=regs.BAR_USER[0],
        entry=None,
        enable=0xFF,
    ):
        """Write a doorbell, `at` bytes behind its place.

        If `entry` is a slot it has 64 bits, of whose bytes those of `enable` are written.
        """
        tail = self.next[queue] if tail is None else tail
        doorbell, base = self.dut.doorbell, regs.DOORBELL_BASE + regs.DOORBELL_STRIDE * queue
        lane = at >> 2 & 1
        async with self._driving(ctx, "doorbell"):
            ctx.set(doorbell.bar, bar)
            ctx.set(doorbell.address, base + at >> 3)
            word = tail & 0xFFFF | generation << 16
            if entry is None:
                enable &= 0xF
            else:
                word |= (entry | (tail - 1 >> 16 & 0xFFFF) << 16) << 32
            ctx.set(doorbell.data, word << 32 * lane)
            ctx.set(doorbell.enable, enable << 4 * lane)
            ctx.set(doorbell.valid, 1)
            await ctx.tick()
            ctx.set(doorbell.valid, 0)

    # What the board did

    async def until(self, ctx, condition, cycles=5000):
        for _ in range(cycles):
            if condition():
                return
            await ctx.tick()
        raise AssertionError(f"not within {cycles} cycles")

    async def served(self, ctx, queue, tickets, status=LaunchStatus.OK, cycles=5000):
        """Wait for the records of these tickets, the last ones of the queue."""
        wanted = [(ticket, status) for ticket in tickets]
        await self.until(ctx, lambda: self.records[queue][-len(wanted) :] == wanted, cycles)

    # The models

    async def _reads(self, ctx):
        dut = self.dut
        while True:
            ctx.set(dut.job.ready, self.rng.random() < 0.7)
            _, _, taken, job = await ctx.tick().sample(
                dut.job.valid & dut.job.ready, dut.job.payload
            )
            if not taken:
                continue
            ctx.set(dut.job.ready, 0)
            assert job.address // 4096 == (job.address + job.length - 1) // 4096
            for _ in range(self.delays.get(job.address, 0)):
                await ctx.tick()
            await ctx.tick().repeat(self.rng.randrange(1, 30))
            outcome = self.outcome(job.address)
            for place, data in self._beats(job) if outcome is Outcome.OK else ():
                ctx.set(dut.placement.payload, write_of(self.rng, place, data, self.width))
                ctx.set(dut.placement.valid, 1)
                await ctx.tick()
                ctx.set(dut.placement.valid, 0)
                for _ in range(self.pause):
                    await ctx.tick()
            await ctx.tick().repeat(3)
            ctx.set(dut.retired.payload, {"length": job.length, "outcome": outcome})
            ctx.set(dut.retired.valid, 1)
            await ctx.tick()
            self.log.append(("read", job.address, job.length))
            ctx.set(dut.retired.valid, 0)

    def _beats(self, job):
        """Place and bytes of each beat; a completion ends at multiples of 64 bytes."""
        at = 0
        while at < job.length:
            address = job.address + at
            count = min(self.width // 8, job.length - at, 64 - address % 64)
            words = (
                self.memory.get(each & ~7, 0) >> 8 * (each % 8)
                for each in range(address, address + count)
            )
            yield job.place.offset + at, bytes(word & 0xFF for word in words)
            at += count

    async def _records(self, ctx):
        records = self.dut.records
        while True:
            ctx.set(records.record.ready, self.rng.random() < 0.3)
            _, _, taken, record = await ctx.tick().sample(
                records.record.valid & records.record.ready, records.record.payload
            )
            if not taken:
                continue
            ctx.set(records.record.ready, 0)
            assert record.wide == (record.address & ~0xFFFF in RECORDS)
            if record.wide:
                ticket, status = record.data & 0xFFFF_FFFF, record.data >> 32
                queue = RECORDS.index(record.address & ~0xFFFF)
                assert record.address == RECORDS[queue] + 8 * (ticket % self.entries)
                self.records[queue].append((ticket, status))
            self.log.append(("write", record.address, record.data if record.wide else 1))
            self.writing = True
            for _ in range(self.rng.randrange(1, 10)):
                _, _, offered = await ctx.tick().sample(records.record.valid)
                assert not offered, "a write does not wait for the one before"
            self.writing = False
            ctx.set(records.done, 1)
            ctx.set(records.dropped, self.dropped.popleft() if self.dropped else False)
            await ctx.tick()
            ctx.set(records.done, 0)

    def _channel(self, number):
        async def run(ctx):
            owner, rng = self.dut.owners[number], self.rng
            while True:
                await ctx.tick().until(owner.request)
                for _ in range(rng.choice((0, 0, rng.randrange(20)))):
                    await ctx.tick()
                if not ctx.get(owner.request) or number in self.held:
                    continue
                ctx.set(owner.granted, 1)
                ctx.set(owner.runs, 1)
                words, first = 0, None
                # A run that takes a packet begins with two descriptors.
                count = 1 + ctx.get(owner.receives)
                total = 4 * count
                # A run may have begun before all words of its descriptor have come.
                early, begun = not self.late and rng.randrange(2), False
                while ctx.get(owner.request) and not (
                    (begun or ctx.get(owner.start)) and words == total
                ):
                    ctx.set(owner.started, begun)
                    ctx.set(owner.ready, early and not begun)
                    assert not ctx.get(owner.start) or words >= total - 4
                    ctx.set(owner.word.ready, ready := rng.randrange(8) > 0)
                    _, _, valid, placed, start, asked = await ctx.tick().sample(
                        owner.word.valid, owner.word.payload, owner.start, owner.request
                    )
                    begun = begun or (early and start and asked)
                    if valid and ready:
                        assert placed.enable[words % 2] and not placed.enable[1 - words % 2]
                        assert placed.rows[words % 2] == words // 2
                        first = placed.data & 0xFFFF_FFFF if words == 0 else first
                        words += 1
                ctx.set(owner.ready, 0)
                if ctx.get(owner.request):
                    assert ctx.get(owner.pushed.whole) and ctx.get(owner.pushed.count) == count
                    for _ in range(self.late.popleft() if self.late else 0):
                        await ctx.tick()
                if begun and not ctx.get(owner.request):
                    await self._end(ctx, owner, Outcome.OK, aborted=True)
                elif ctx.get(owner.request) and (begun or ctx.get(owner.start)):
                    if not begun:
                        ctx.set(owner.ready, 1)
                        await ctx.tick()
                        ctx.set(owner.ready, 0)
                    await self._runs(ctx, owner, number, first)
                ctx.set(owner.granted, 0)
                await ctx.tick()

        return run

    async def _runs(self, ctx, owner, number, first):
        """A run that has begun, and those that begin behind it until there is none."""
        rng, runs, words, owed = self.rng, deque(), 4, False

        def begin(dword):
            self.log.append(("run", number, dword))
            outcome = self.ends[number].popleft() if self.ends[number] else Outcome.OK
            lasts = self.lasts.popleft() if self.lasts else rng.randrange(1, 60)
            runs.append((dword, outcome, 10**9 if outcome is None else self.cycle + lasts))
            self.most = max(self.most, len(runs))
            ctx.set(owner.runs, len(runs))

        ctx.set(owner.started, 1)
        begin(first)
        while True:
            # One that was promised may be the only one.
            dword, outcome, until = runs[0] if runs else (None, None, 10**9)
            under_way = len(runs) + owed
            ends = self.cycle >= until and (under_way > 1 or words == 4)
            if ends and (under_way == 1 or outcome is not Outcome.OK):
                break
            if ends:
                runs.popleft()
                self.log.append(("ended", number, dword))
                ctx.set(owner.ended.payload, {"last": 0})
            room = owed or (under_way < RUNS and number not in self.closed)
            ready = not ends and words == 4 and room and rng.randrange(4) > 0
            takes = ready or (words < 4 and rng.randrange(8) > 0)
            ctx.set(owner.ended.valid, ends)
            ctx.set(owner.ready, ready)
            ctx.set(owner.word.ready, takes)
            _, _, request, start, reserve, valid, placed = await ctx.tick().sample(
                owner.request, owner.start, owner.reserve, owner.word.valid, owner.word.payload
            )
            ctx.set(owner.ended.valid, 0)
            assert not reserve or (ready and not owed)
            owed = (owed or reserve) and not (ready and start)
            ctx.set(owner.runs, len(runs) + owed)
            if not request:
                outcome = None
                break
            if ready and start:
                words = 0
                begin(placed.data & 0xFFFF_FFFF)
            if takes and valid:
                assert placed.rows[words % 2] == words // 2
                words += 1
        ctx.set(owner.ready, 0)
        aborted = outcome is None
        await self._end(ctx, owner, Outcome.OK if aborted else outcome, aborted)
        if outcome is Outcome.OK:
            ctx.set(owner.runs, 0)
        self.log += [("ended", number, dword) for dword, *_ in runs]

    async def _end(self, ctx, owner, outcome, aborted):
        end = {"outcome": outcome, "aborted": aborted, "last": 1}
        end["long"] = self.long.popleft() if self.long else False
        ctx.set(owner.ended.payload, end)
        ctx.set(owner.ended.valid, 1)
        await ctx.tick()
        ctx.set(owner.ended.valid, 0)
        ctx.set(owner.started, 0)

    async def _watch(self, ctx):
        async for _, _, flush in ctx.tick().sample(self.dut.flush):
            self.flushed += flush
            self.cycle += 1


def steps(slot: int, ticket: int, world: World, queue=0) -> list[tuple[str, int, int]]:
    """What the log has of a ticket."""
    place = 0x20_0000 + 0x1_0000 * queue + 8 * (ticket % world.entries)
    return [
        ("run", slot & 1, slot),
        ("ended", slot & 1, slot),
        *([("read", FLUSH + 8 * slot, 4)] if slot >> 1 else []),
        ("write", place, ticket),
        *([("write", DONE + 8 * slot, 1)] if slot & 1 else []),
    ]
