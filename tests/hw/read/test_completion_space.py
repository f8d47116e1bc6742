# SPDX-License-Identifier: BSD-2-Clause
"""Room for completions: what `hw.read.engine` has under way always fits the PCIe block's buffer.

The buffer is that of the 7-series block: 36 completions.
"""

from __future__ import annotations

import pytest

from hw.pcie.series7.block import SERIES7
from hw.read.completion_space import MOST_COMPLETIONS, OVERCOMMIT, CompletionSpace
from hw.records import JOB_BYTES, Outcome
from hw.seam import CompletionStatus
from tests.hw.helpers import seeded, simulate
from tests.hw.read.completions import Packet, Request, packet_of, smallest
from tests.hw.read.engine_bench import Bench

CAPACITY = SERIES7.completions(JOB_BYTES)
#: Reads of one completion that are under way at most: there is always room for the largest one.
MOST_SMALL = CAPACITY - (MOST_COMPLETIONS - 1) + 1
#: Cycles from the beat of a completion that has made room to the request for which it has.
AGAIN = 4


def blocks(address: int, length: int, rcb: int) -> int:
    """Completions that `length` bytes may come in."""
    return (address + length - 1) // rcb - address // rcb + 1 if length else 0


class Buffer(Bench):
    """A `Bench` that knows how many completions may be in the block's buffer at most."""

    def __post_init__(self):
        super().__post_init__()
        #: tag -> address and length of what has not come, and the boundary of the time of asking
        self.due: dict[int, tuple[int, int, int]] = {}
        self.most = 0

    @property
    def charged(self) -> int:
        """Completions that may come or have not been taken."""
        # The packet that is being taken is in the buffer to its last beat.
        partial = len(self.begun) - len(self.sent)
        return partial + sum(blocks(*due) for due in self.due.values())

    async def _cycle(self):
        requests, begun = len(self.requests), len(self.begun)
        await super()._cycle()
        for packet in self.begun[begun:]:
            address, length, rcb = self.due[packet.tag]
            count = min(len(packet.data) - address % 4, length)
            if packet.status != CompletionStatus.SC:
                count = length
            self.due[packet.tag] = address + count, length - count, rcb
        for request in self.requests[requests:]:
            assert self.due.get(request.tag, (0, 0, 0))[1] == 0
            self.due[request.tag] = request.address, request.length, self.rcb
        self.most = max(self.most, self.charged)
        assert self.charged <= CAPACITY, f"{self.charged} completions, in cycle {self.cycle}"


def buffer(**knobs) -> Buffer:
    """Client 0 fetches descriptors, client 1 reads data."""
    return Buffer(**{"clients": 2, "fetches": 1, "capacity": CAPACITY} | knobs)


@pytest.mark.parametrize(
    ("largest", "rcb", "width"),
    [(64, 64, 64), (64, 128, 64), (512, 64, 64), (512, 128, 64), (64, 64, 256), (512, 128, 256)],
)
def test_never_more_than_fits(largest, rcb, width):
    bench = buffer(
        rng=seeded(),
        rcb=rcb,
        max_payload=max(largest, rcb),
        ready_rate=0.9,
        gap_rate=0.3,
        latency=(5, 400),
        reorder=True,
        width=width,
    )

    async def test(bench):
        rng = bench.rng
        places = [0, 0]
        # What fills the buffer, as nothing of it comes soon; then anything.
        bench.latency = 100, 400
        lengths = [512] * 9 if rcb == 128 else [512, 512, 512, 256, 512]
        assert sum(blocks(0, length, rcb) for length in lengths) == CAPACITY
        for length in lengths:
            bench.submit(1, 512 * rng.randrange(512), length, places[1])
            places[1] = bench.further(places[1], length)
        await bench.until(lambda: len(bench.requests) == len(lengths), 100)
        bench.latency = 5, 400
        for _ in range(40 - len(lengths)):
            client = rng.choice([0, 1, 1, 1])
            length = rng.choice([512, 512, 512, rng.randint(1, 512)])
            # A fetch begins anywhere in a page, data does not cross a multiple of 512.
            room = 4096 if client == 0 else 512
            address = 4096 * rng.randrange(64) + 512 * (client and rng.randrange(8))
            address += rng.randint(0, room - length)
            bench.submit(client, address, length, places[client])
            places[client] = bench.further(places[client], length)
            if rng.random() < 0.1:
                await bench.step(rng.randrange(400))
        await bench.drain(60_000)
        assert not bench.errors and not bench.unexpected
        assert bench.most == CAPACITY
        await bench.step(8)
        assert bench.charged == 0

    bench.run(test)


@pytest.mark.parametrize(("width", "count"), [(64, 2), (128, 4), (256, 8)])
def test_the_limit_of_reads_in_flight_grows_with_the_width(width, count):
    """A link that is as much faster brings as much more in a round trip."""
    bench = buffer(rcb=128, manual=True, width=width)
    bench.in_flight = 2

    async def test(bench):
        for number in range(20):
            bench.submit(1, 512 * number, 512, 512 * number)
        await bench.step(100)
        assert len(bench.requests) == count

    bench.run(test)


@pytest.mark.parametrize(
    ("rcb", "limit", "count"), [(64, 0, 4), (128, 0, 9), (128, 8, 8), (64, 8, 4), (64, 3, 3)]
)
def test_reads_in_flight(rcb, limit, count):
    """As many as there is room for, or fewer by the limit; a completion makes room for more."""
    bench = buffer(rcb=rcb, manual=True)
    bench.in_flight = limit

    async def test(bench):
        for number in range(20):
            bench.submit(1, 512 * number, 512, 512 * number)
        await bench.step(100)
        assert len(bench.requests) == count
        left = CAPACITY - count * blocks(0, 512, rcb)
        if limit and limit == count:
            left = 0
        for number in range(8):
            # 64 or 128 bytes at a time
            for packet in bench_packets(bench.requests[number], rcb):
                asked = len(bench.requests)
                bench.answer([packet])
                left += 1
                await bench.step(40)
                if left == blocks(0, 512, rcb):
                    left = 0
                    assert len(bench.requests) == asked + 1
                    assert bench.requests[-1].cycle == bench.beats[-1] + AGAIN
                else:
                    assert len(bench.requests) == asked
        for request in bench.requests[8:]:
            bench.answer(bench_packets(request, rcb))
        await bench.step(400)
        for request in bench.requests[8 + count :]:
            bench.answer(bench_packets(request, rcb))
        await bench.step(400)

    bench.run(test)


def test_overcommit_until_it_is_off():
    """Twice as much is under way; then nothing is asked for until there is room for all of it."""
    bench = Bench(clients=2, fetches=1, capacity=CAPACITY, manual=True, overcommit=True)

    async def test(bench):
        charge = blocks(0, 512, bench.rcb)
        for number in range(12):
            bench.submit(1, 512 * number, 512, 512 * number)
        await bench.step(60)
        count = OVERCOMMIT * CAPACITY // charge
        assert len(bench.requests) == count
        bench.overcommit = False
        for answered in range(1, 13):
            bench.answer(bench_packets(bench.requests[answered - 1], bench.rcb))
            await bench.step(90)
            assert len(bench.requests) == min(max(count, answered + CAPACITY // charge), 12)

    bench.run(test)


def bench_packets(request, rcb):
    """A request's answer in packets of `rcb` bytes."""
    return [
        packet_of(request.tag, request.address + at, rcb, request.length - at)
        for at in range(0, request.length, rcb)
    ]


@pytest.mark.parametrize(
    ("rcb", "size", "early"),
    [(64, 64, 0), (64, 128, 1), (64, 256, 3), (64, 512, 7), (128, 128, 0), (128, 512, 3)],
)
def test_room_comes_back_with_the_first_beat(rcb, size, early):
    """All of a completion's room but for one completion, which it is until its last beat."""
    bench = buffer(rcb=rcb, manual=True)

    async def test(bench):
        data = blocks(0, 512, rcb)
        count, left = divmod(CAPACITY, data)
        for number in range(2 * count):
            bench.submit(1, 512 * number, 512, 512 * number)
        await bench.step(200)
        assert len(bench.requests) == count
        # As many completions as make room for one more read, each with a long pause in it.
        for packet in bench_packets(bench.requests[0], size):
            begun = len(bench.beats)
            bench.answer([packet])
            await bench.until(lambda begun=begun: len(bench.beats) == begun + 1)
            bench.gap_rate = 1
            await bench.step(50)
            if left + early >= data:
                assert len(bench.requests) == count + 1
                assert bench.requests[-1].cycle == bench.beats[-1] + AGAIN
                return
            assert len(bench.requests) == count
            bench.gap_rate = 0
            await bench.until(lambda: not bench.sending)
            await bench.step(20)
            left += early + 1
            if left >= data:
                assert len(bench.requests) == count + 1
                assert bench.requests[-1].cycle == bench.beats[-1] + AGAIN
                return
            assert len(bench.requests) == count
        raise AssertionError("a whole read made no room for another one")

    bench.run(test)


@pytest.mark.parametrize("width", [64, 256])
def test_a_last_completion_counts_until_its_last_beat(width):
    """Also if it does not end at a boundary."""
    bench = buffer(manual=True, width=width)

    async def test(bench):
        # 24 completions, 4 and 4: four more have room.
        for number, length in enumerate((512, 512, 512, 256, 200, 512)):
            bench.submit(1, 512 * number, length, 512 * number)
        await bench.step(100)
        assert len(bench.requests) == 5
        bench.answer([packet_of(bench.requests[4].tag, 2048, 200, 200)])
        await bench.until(lambda: len(bench.beats) == 1)
        bench.gap_rate = 1
        await bench.step(50)
        assert len(bench.requests) == 5
        bench.gap_rate = 0
        await bench.step(50)
        assert len(bench.requests) == 6
        assert bench.requests[5].cycle == bench.beats[-1] + AGAIN
        assert bench.charged == CAPACITY

    bench.run(test)


def test_small_reads_take_little():
    bench = buffer(manual=True, max_payload=64)

    async def test(bench):
        for number in range(40):
            bench.submit(1, 64 * number + 60, 4, 8 * number)
        await bench.step(200)
        assert len(bench.requests) == MOST_SMALL == 29

    bench.run(test)


def test_fetches_come_first_when_room_is_short():
    bench = buffer(manual=True)

    async def test(bench):
        for number in range(10):
            bench.submit(1, 512 * number, 512, 512 * number)
        await bench.step(50)
        assert len(bench.requests) == 4
        fetch = bench.submit(0, 0x10_0020, 512, 0)
        packets = [packet for request in bench.requests for packet in smallest(request)]
        # Four have room for data, five for a fetch, which needs one more.
        for count in (4, 1):
            assert fetch.taken is None
            for _ in range(count):
                bench.answer([packets.pop(0)])
                await bench.until(lambda: not bench.answers and not bench.sending)
            await bench.step(10)
        assert fetch.taken and len(bench.requests) == 5
        assert bench.requests[-1].address == 0x10_0020

    bench.run(test)


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: [Packet(request.tag, 0, 4, b"", CompletionStatus.UR)],
        lambda request: [
            *bench_packets(request, 64)[:3],
            Packet(request.tag, 0, 4, b"", CompletionStatus.CA),
        ],
        lambda request: bench_packets(request, 128),
        lambda request: bench_packets(request, 512),
    ],
    ids=["UR", "CA behind data", "128", "512"],
)
def test_whatever_ends_a_read_gives_its_room_back(answer):
    bench = buffer(manual=True)

    async def test(bench):
        done = 0
        for turn in range(6):
            for number in range(4):
                bench.submit(1, 512 * number, 512, 2048 * turn + 512 * number)
            await bench.until(lambda done=done: len(bench.requests) == done + 4, 200)
            for request in bench.requests[done:]:
                bench.answer(answer(request))
            done += 4
            await bench.drain()
        assert not bench.unexpected

    bench.run(test)


def test_a_packet_without_an_end_counts_until_the_next_one():
    """There is room for a read and one completion more."""
    bench = Bench(
        1, 2, timeout_cycles=64, quarantine_timeouts=1, capacity=10, width=256, manual=True
    )

    async def test(bench):
        for _ in range(3):
            job, request = await bench.ask(512)
            bench.answer(bench_packets(request, 512))
            await bench.until(lambda: bench.beats)
            bench.sending.clear()
            await bench.drain()
            assert job.outcome == Outcome.COMPLETION_TIMEOUT
            await bench.until(lambda: not bench.get(bench.dut.quarantined))
            bench.beats.clear()

    bench.run(test)


TIMEOUT, QUARANTINE = 256, 3


@pytest.mark.parametrize(("count", "length"), [(4, 512), (32, 64)])
@pytest.mark.parametrize("flush", [False, True])
def test_lost_reads(count, length, flush):
    """They keep their room until the end of their quarantine; meanwhile jobs fail at once."""
    bench = buffer(timeout_cycles=TIMEOUT, quarantine_timeouts=QUARANTINE, manual=True)
    asked = min(count, MOST_SMALL)

    async def test(bench):
        jobs = [bench.submit(1, 512 * n, length, 512 * n) for n in range(count)]
        await bench.until(lambda: len(bench.requests) == asked, 400)
        await bench.step(10)
        if flush:
            bench.flush = 1
            await bench.step()
            bench.flush = 0
        # Completions may still come: what is asked for now waits for them.
        waiting = [*jobs[asked:], bench.submit(0, 0x8000, 64, 0)]
        await bench.step(40)
        assert not any(job.taken for job in waiting)
        bench.refuses = True
        await bench.drain()
        assert all(job.outcome == Outcome.NO_COMPLETION_SPACE for job in waiting)
        if not flush:
            assert len(bench.timed_out) == asked
            assert all(job.outcome == Outcome.COMPLETION_TIMEOUT for job in jobs[:asked])
        for client in (0, 1, 0):
            job = bench.submit(client, 0x8000, 64, 0)
            begin = bench.cycle
            await bench.drain()
            assert job.outcome == Outcome.NO_COMPLETION_SPACE
            assert bench.cycle - begin < 30
            assert bench.errors[-1] == (client, 0x8000, Outcome.NO_COMPLETION_SPACE)
        assert len(bench.requests) == asked and not bench.unexpected
        await bench.until(lambda: not bench.get(bench.dut.quarantined))
        bench.refuses = False
        bench.due.clear()
        await bench.step(8)
        jobs = [bench.submit(1, 512 * number, 512, 512 * number) for number in range(4)]
        await bench.until(lambda: len(bench.requests) == asked + 4, 100)
        for request in bench.requests[asked:]:
            bench.answer(smallest(request))
        await bench.drain()
        assert all(job.outcome == Outcome.OK for job in jobs)

    bench.run(test)


def test_late_completions_give_room_back():
    bench = buffer(tags=8, timeout_cycles=1024, manual=True)

    async def test(bench):
        for number in range(4):
            bench.submit(1, 512 * number, 512, 512 * number)
        await bench.drain()
        assert len(bench.timed_out) == 4
        late = [packet for request in bench.requests for packet in smallest(request)]
        for packet in late[:5]:
            bench.answer([packet])
        await bench.step(100)
        job = bench.submit(1, 0x8000, 512, 0)
        await bench.until(lambda: job.taken)
        await bench.until(lambda: len(bench.requests) == 5)
        bench.answer([*late[5:], *smallest(bench.requests[-1])])
        await bench.drain()
        await bench.step(100)
        assert job.outcome == Outcome.OK and not bench.unexpected
        assert bench.charged == 0 and bench.get(bench.dut.quarantined) == 0
        await bench.check_tags()

    bench.run(test)


@pytest.mark.parametrize(("before", "after"), [(64, 128), (128, 64)])
def test_another_boundary(before, after):
    """Reads that are under way keep what they were charged."""
    bench = buffer(rcb=before, manual=True)

    async def test(bench):
        for turn in range(3):
            bench.rcb = before
            await bench.step(2)
            first = len(bench.requests)
            for number in range(12):
                bench.submit(1, 512 * number, 512, 6144 * turn + 512 * number)
            await bench.step(60)
            bench.rcb = after
            await bench.step(2)
            while len(bench.requests) < first + 12 or any(bench.active):
                for tag, (address, length, _) in bench.due.items():
                    bench.answer(bench_packets(Request(tag, address, length, 0), 128))
                await bench.until(lambda: not bench.answers and not bench.sending)
                await bench.step(20)
            assert bench.charged == 0

    bench.run(test)


def test_the_window_is_for_data():
    """Data waits for completions of data, not for those of fetches or what has timed out."""
    dut = CompletionSpace(4, CAPACITY, fetches=1)

    async def test(ctx):
        async def take(client: int, tag: int) -> None:
            ctx.set(dut.taken.valid, 1)
            ctx.set(dut.taken.p.client, client)
            ctx.set(dut.taken.p.tag, tag)
            await ctx.tick()
            ctx.set(dut.taken.valid, 0)
            await ctx.tick()

        async def event(tag: int, **signals: int) -> None:
            ctx.set(dut.tag, tag)
            for name, value in signals.items():
                ctx.set(getattr(dut, name), value)
            await ctx.tick()
            for name in signals:
                ctx.set(getattr(dut, name), 0)

        ctx.set(dut.asks, 1)
        ctx.set(dut.job.length, 512)
        ctx.set(dut.most, 4)
        await ctx.tick()
        await take(0, 0)
        assert ctx.get(dut.data_room)
        await take(1, 1)
        assert ctx.get(dut.room) and not ctx.get(dut.data_room)
        # With four of its eight completions there may be another one.
        await event(1, begins=1, arrives=1, dwords=48)
        await ctx.tick()
        assert not ctx.get(dut.data_room)
        await event(1, begins=1, arrives=1, dwords=16, lower_address=64)
        assert ctx.get(dut.returned) == 1 and not ctx.get(dut.data_room)
        await ctx.tick()
        assert ctx.get(dut.data_room)
        await take(1, 2)
        assert ctx.get(dut.room) and not ctx.get(dut.data_room)
        await event(2, late=1)
        await ctx.tick()
        assert ctx.get(dut.data_room)
        # What comes of it, or of a fetch, is not counted for data.
        await event(2, closed=1)
        await event(0, closed=1)
        await event(1, closed=1)
        await ctx.tick()
        ctx.set(dut.most, 0)
        await ctx.tick()
        assert ctx.get(dut.data_room)
        await take(1, 3)
        assert not ctx.get(dut.data_room)

    simulate(dut, test)
