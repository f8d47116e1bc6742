# SPDX-License-Identifier: BSD-2-Clause
"""Bench for `hw.read.engine`: clients, a root complex in Python, and a scoreboard.

Every cycle each byte at `placement` must belong to a job that is under way, be right, and be the
first one written to its address; when a job retires with OK, each of its bytes must have been
written in an earlier cycle, and `mark` must have reached its end, never ahead of the data.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from amaranth.hdl import Cat, Module, Signal
from amaranth.sim import Simulator

from hw.read.engine import ReadEngine
from hw.records import JOB_BYTES, OFFSET_BITS, Outcome
from hw.seam import FIVE_BIT_TAGS
from tests.hw.helpers import RING_PLACE, Driver, bytes_of, further, placement
from tests.hw.read.completions import Packet, Request, enabled_bytes, host_byte, smallest, split

__all__ = ["PAGE", "RETIRES", "Bench", "Job"]

CLOCK_PERIOD = 8e-9
PAGE = 4096
#: cycles from the last beat of a job that is alone until it retires, at 64 bits
RETIRES = 3


@dataclass(eq=False)
class Job:
    """A read job and what became of it."""

    client: int
    address: int
    length: int
    place: int
    last: int = 0
    taken: int | None = None
    retired: int | None = None
    outcome: Outcome | None = None
    written: int = 0
    #: cycle in which its last byte was written
    placed: int = -1
    #: bytes that `mark` said are there
    reached: int = 0


@dataclass
class Bench:
    """Drives a `ReadEngine` cycle by cycle.

    Set the knobs, then call `run` with a coroutine that uses `submit`, `step` and `drain`.
    """

    clients: int = 4
    tags: int = 32
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    timeout_cycles: int = 1_250_000
    quarantine_timeouts: int = 4
    #: chance that the link takes a request in a cycle, and that a beat is not sent in one
    ready_rate: float = 1.0
    gap_rate: float = 0.0
    #: cycles from request to completion: least and most
    latency: tuple[int, int] = (10, 10)
    rcb: int = 64
    max_payload: int = 128
    #: completions of different tags overtake each other, for so many cycles at most
    reorder: bool = False
    overtaken: int = 100
    #: packets take the time of a 64-bit block; else they follow as closely as the seam allows
    header_cycles: bool = False
    #: no automatic answers: the test sends packets itself
    manual: bool = False
    #: clients that are fetches, all of them if None; completions that may be under way
    fetches: int | None = None
    capacity: int = 1000
    offset_bits: int = OFFSET_BITS
    #: what is driven at the engine's input `timeout_cycles`, if anything
    timeout_input: int | None = None
    #: bits of a beat
    width: int = 64
    #: whether more may be under way than there is room for; None: not built for that
    overcommit: bool | None = None

    def __post_init__(self):
        self.lanes = self.width // 8
        #: cycles that data and what tells of it take longer than at 64 bits
        self.late = int(self.width == 256)
        self.first_data = self.clients if self.fetches is None else self.fetches
        self.dut = ReadEngine(
            self.clients,
            self.first_data,
            self.capacity,
            self.tags,
            self.timeout_cycles,
            self.quarantine_timeouts,
            self.offset_bits,
            width=self.width,
            overcommit=self.overcommit is not None,
        )
        self.cycle = 0
        self.bus_master = 1
        self.flush = 0
        self.relaxed = 0
        self.in_flight = 0
        self.tolerant = 0
        #: there is no room, so that jobs are taken to fail
        self.refuses = False
        self.extended = 1
        #: jobs of each client that are not yet taken, and taken but not retired
        self.waiting = [deque() for _ in range(self.clients)]
        self.active = [deque() for _ in range(self.clients)]
        #: per client: byte address -> (job, value), of bytes that are still to be written
        self.missing = [{} for _ in range(self.clients)]
        #: jobs that were taken and whose request has not come yet
        self.asking: deque[Job] = deque()
        self.requests: list[Request] = []
        #: packets to be sent, per tag, in order
        self.answers: dict[int, deque[Packet]] = {}
        self.sending: deque = deque()
        self.errors: list[tuple[int, int, Outcome]] = []
        self.timed_out: list[int] = []
        self.unexpected: list[int] = []
        #: cycle and client of each placement; cycle of each beat
        self.placements: list[tuple[int, int]] = []
        self.beats: list[int] = []
        #: cycle of the last first beat of a packet
        self.began = -2
        #: packets whose first, and whose last beat was sent
        self.begun: list[Packet] = []
        self.sent: list[Packet] = []
        #: (cycle, client, bytes of its oldest job) whenever `mark` told of more
        self.steps: list[tuple[int, int, int]] = []
        #: changes the packets of a request before they are sent
        self.mutate = None
        #: tags whose request has not got all its packets
        self.open_tags: set[int] = set()

    # -- for tests

    def run(self, test):
        """Runs the coroutine function `test(bench)` to its end."""
        m = Module()
        m.submodules.dut = dut = self.dut
        self._flags = flags = Signal(4 + 2 * self.clients)
        m.d.comb += flags.eq(
            Cat(
                dut.request.valid,
                dut.placement.valid,
                dut.timed_out | dut.unexpected,
                dut.mark.valid,
                *(client.ready for client in dut.jobs),
                *(client.valid for client in dut.retired),
            )
        )

        async def testbench(ctx):
            self._ctx, self._set = ctx, Driver(ctx)
            if self.timeout_input is not None:
                self._set(dut.timeout_cycles, self.timeout_input)
            await test(self)

        simulator = Simulator(m)
        simulator.add_clock(CLOCK_PERIOD)
        simulator.add_testbench(testbench)
        simulator.run()

    def submit(self, client: int, address: int, length: int, place: int, last: int = 0) -> Job:
        """Gives a client a job."""
        job = Job(client, address, length, place, last)
        self.waiting[client].append(job)
        return job

    def answer(self, packets: list[Packet]):
        """Sends packets, those of a tag in order, when they are due."""
        for packet in packets:
            self.answers.setdefault(packet.tag, deque()).append(packet)

    async def step(self, cycles: int = 1):
        """Lets `cycles` cycles pass."""
        for _ in range(cycles):
            await self._cycle()

    async def until(self, condition, limit: int = 20_000):
        """Lets cycles pass until `condition()`; fails after `limit`."""
        for _ in range(limit):
            if condition():
                return
            await self._cycle()
        raise AssertionError(f"still waiting after {limit} cycles, in cycle {self.cycle}")

    async def drain(self, limit: int = 20_000):
        """Lets cycles pass until all jobs have retired; then the clients must be idle."""
        await self.until(lambda: not any(self.waiting) and not any(self.active), limit)
        await self._cycle()
        assert self.get(self.dut.idle) == (1 << self.clients) - 1

    def get(self, signal):
        """Value of a signal in the cycle that comes next."""
        return self._ctx.get(signal)

    def forget(self):
        """Drops what the scoreboard knows of jobs that were taken: they were flushed."""
        for client in range(self.clients):
            self.active[client].clear()
            self.missing[client].clear()

    def submit_random(self, count: int):
        """Submits jobs for random clients, with gaps of 0 to 9 bytes between their places."""
        rng = self.rng
        places = [
            rng.choice((0, RING_PLACE)) + rng.randrange(1 << self.offset_bits)
            for _ in range(self.clients)
        ]
        jobs = []
        for _ in range(count):
            client = rng.randrange(self.clients)
            length = rng.choice([rng.randint(1, 16), rng.randint(1, JOB_BYTES), JOB_BYTES])
            address = rng.choice([rng.randrange(1 << 32), rng.randrange(1 << 64)])
            address -= max(0, address % PAGE + length - PAGE)
            jobs.append(self.submit(client, address, length, places[client], rng.getrandbits(1)))
            places[client] = self.further(places[client], length + rng.randint(0, 9))
        return jobs

    def further(self, place: int, count: int) -> int:
        """A place `count` bytes further in its memory."""
        return further(place, count, self.offset_bits)

    async def ask(self, length: int, address: int = 0x1000, client: int = 0):
        """A job, at a place that no other job of the test had, and its request."""
        count = len(self.requests)
        job = self.submit(client, address, length, self.further(0, count * (JOB_BYTES + 8)))
        await self.until(lambda: len(self.requests) > count)
        return job, self.requests[-1]

    async def check_tags(self):
        """All tags are free, and all of them work."""
        await self.step(8)
        assert self.get(self.dut.quarantined) == 0
        assert not self.get(self.dut.reads_pending)
        asked = [await self.ask(20, 0x7A) for _ in range(self.tags)]
        assert len({request.tag for _, request in asked}) == self.tags
        for _, request in asked:
            self.answer(smallest(request))
        await self.drain()
        assert all(job.outcome == Outcome.OK for job, _ in asked)

    def quarantined(self, tag: int) -> bool:
        """Whether the tag is quarantined."""
        return bool(self.get(self.dut.quarantined) >> tag & 1)

    # -- one cycle

    async def _cycle(self):
        ctx, dut = self._ctx, self.dut
        self._drive()
        flags = ctx.get(self._flags)
        # What is placed, told of and retired in one cycle is so in this order.
        if flags & 2:
            self._place()
        if flags & 8:
            self._reach()
        self._retire(flags >> 4 + self.clients)
        if flags & 4:
            if ctx.get(dut.timed_out):
                self.timed_out.append(self.cycle)
            if ctx.get(dut.unexpected):
                self.unexpected.append(self.cycle)
        self._take(flags >> 4)
        if flags & 1 and ctx.get(dut.request.ready):
            self._request()
        if self.flush:
            self.forget()
        await ctx.tick()
        self.cycle += 1

    def _drive(self):
        dut, drive = self.dut, self._set
        drive(dut.bus_master, self.bus_master)
        drive(dut.flush, self.flush)
        drive(dut.relaxed, self.relaxed)
        drive(dut.boundary_128, self.rcb == 128)
        drive(dut.in_flight, self.in_flight)
        drive(dut.tolerant, self.tolerant)
        if self.tags > FIVE_BIT_TAGS:
            drive(dut.extended, self.extended)
        if self.overcommit is not None:
            drive(dut.overcommit, self.overcommit)
        drive(dut.request.ready, self.rng.random() < self.ready_rate)
        for queue, port in zip(self.waiting, dut.jobs, strict=True):
            drive(port.valid, bool(queue))
            if queue:
                job = queue[0]
                payload = {name: getattr(job, name) for name in ("address", "length", "last")}
                drive(port.payload, payload | {"place": placement(job.place)})
        self._drive_completion()

    def _drive_completion(self):
        port = self.dut.completion
        if not self.sending:
            self._next_packet()
        sends = self.sending and self.rng.random() >= self.gap_rate
        packet, index = self.sending.popleft() if sends else (None, 0)
        self._set(port.valid, packet is not None)
        if packet is None:
            return
        if index == 0:
            assert self.cycle - self.began >= 2, "first beats of packets are two cycles apart"
            self.began = self.cycle
        self.beats.append(self.cycle)
        at, lanes = index * self.lanes, self.lanes
        chunk = packet.data[at : at + lanes]
        chunk += self.rng.randbytes(lanes - len(chunk))
        last = at + lanes >= len(packet.data)
        header = {
            "status": packet.status,
            "byte_count": packet.byte_count,
            "lower_address": packet.lower_address,
            "dwords": len(packet.data) // 4,
            "tag": packet.tag,
            "poisoned": packet.poisoned,
            "locked": packet.locked,
        }
        beat = {"header": header, "data": int.from_bytes(chunk, "little")}
        self._set(port.payload, beat | {"first": index == 0, "last": last})
        if index == 0:
            self.begun.append(packet)
        if last:
            self.sent.append(packet)

    def _next_packet(self):
        ready = [tag for tag, queue in self.answers.items() if queue[0].due <= self.cycle]
        if not ready:
            return
        tag = ready[0]
        if self.reorder:
            oldest = min(ready, key=lambda tag: self.answers[tag][0].due)
            late = self.answers[oldest][0].due < self.cycle - self.overtaken
            tag = oldest if late else self.rng.choice(ready)
        packet = self.answers[tag].popleft()
        if not self.answers[tag]:
            del self.answers[tag]
            self.open_tags.discard(tag)
        dwords = len(packet.data) // 4
        beats = max(1, -(-len(packet.data) // self.lanes))
        idle = (3 + dwords + 1) // 2 - beats if self.header_cycles else beats == 1
        self.sending.extend((packet, index) for index in range(beats))
        self.sending.extend([(None, 0)] * idle)

    def _request(self):
        beat = self._ctx.get(self.dut.request.payload)
        header = beat.header
        assert beat.first and beat.last and not header.write and header.address % 4 == 0
        assert header.tag < self.tags
        offset, length = enabled_bytes(header.first_be, header.last_be, header.dwords)
        request = Request(header.tag, header.address + offset, length, self.cycle)
        assert self.asking, f"nobody asked for {length} bytes at {request.address:#x}"
        job = self.asking.popleft()
        assert (request.address, length) == (job.address, job.length)
        assert header.relaxed == (self.relaxed and job.client >= self.first_data)
        self.requests.append(request)
        if self.manual:
            return
        assert request.tag not in self.open_tags, f"tag {request.tag} is in use"
        self.open_tags.add(request.tag)
        packets = split(request, self.rng, self.rcb, self.max_payload)
        if self.mutate:
            packets = self.mutate(request, packets)
        due = self.cycle + self.rng.randint(*self.latency)
        for packet in packets:
            packet.due = due
        self.answer(packets)

    def _take(self, ready: int):
        for number, queue in enumerate(self.waiting):
            if queue and ready >> number & 1:
                job = queue.popleft()
                assert not self.flush
                job.taken = self.cycle
                if self.bus_master and not self.refuses:
                    self.asking.append(job)
                self.active[number].append(job)
                for index in range(job.length):
                    place = self.further(job.place, index)
                    assert place not in self.missing[number], "the test places two jobs in one"
                    self.missing[number][place] = job, host_byte(job.address + index)

    def _place(self):
        placed = self._ctx.get(self.dut.placement.payload)
        self.placements.append((self.cycle, placed.client))
        missing = self.missing[placed.client]
        memory = RING_PLACE * placed.memory.value
        written = bytes_of(placed, self.width)
        assert written
        for address, value in written:
            place = memory + address
            assert place in missing, f"stray write to {place:#x} of {placed.client}"
            job, wanted = missing.pop(place)
            assert value == wanted, f"byte {place:#x} of {placed.client} is wrong"
            job.written += 1
            job.placed = self.cycle

    def _reach(self):
        mark = self._ctx.get(self.dut.mark.payload)
        client, place = mark.client, mark.place.as_bits()
        assert self.active[client], f"client {client} has no job"
        job = self.active[client][0]
        assert place & RING_PLACE == job.place & RING_PLACE, "told of another memory"
        reached = (place - job.place) % (1 << self.offset_bits)
        assert job.reached <= reached <= job.length, f"{reached} of a job, after {job.reached}"
        for index in range(job.reached, reached):
            place = self.further(job.place, index)
            assert place not in self.missing[client], "the mark is ahead of the data"
        if reached > job.reached:
            self.steps.append((self.cycle, client, reached))
        job.reached = reached

    def _retire(self, valids: int):
        for number in range(self.clients):
            if not valids >> number & 1:
                continue
            retired = self._ctx.get(self.dut.retired[number].payload)
            assert self.active[number], f"client {number} has no job that could retire"
            job = self.active[number].popleft()
            job.retired, job.outcome = self.cycle, retired.outcome
            assert (retired.length, retired.last) == (job.length, job.last), "not in order"
            failed = self._ctx.get(self.dut.error.valid)
            assert failed == (job.outcome != Outcome.OK)
            if failed:
                error = self._ctx.get(self.dut.error.payload)
                assert (error.address, error.client) == (job.address, number)
                assert error.outcome == job.outcome
                self.errors.append((number, job.address, job.outcome))
                for index in range(job.length):
                    self.missing[number].pop(self.further(job.place, index), None)
            else:
                assert job.written == job.length, "retired before its data was placed"
                assert job.placed < self.cycle, "retired with its data, which cannot be read yet"
                assert job.reached == job.length, "retired before the mark reached its end"
