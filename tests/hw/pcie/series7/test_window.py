# SPDX-License-Identifier: BSD-2-Clause
"""hw/pcie/series7/window.py: as much in the block as keeps the link busy, and no more."""

from __future__ import annotations

from collections import deque

import pytest

from hw.pcie.series7 import window
from hw.pcie.series7.window import _SPARE, UNIT, WriteWindow
from tests.hw.helpers import Driver, seeded, simulate

#: Bytes around a TLP on the link, of the header, of a read request in all.
FRAMING, HEADER, READ = 8, 12, 24
#: Cycles from `write` to the first beat of the write that it lets go, in the core.
START = 4


class Link:
    """A block with a link behind it, and a core that always has a write to send.

    Parameters
    ----------
    clock_khz, speed, lanes, max_payload : int
        The latter in bytes.
    buffers : int
        TLPs that the block holds.
    ack : int
        Cycles from the end of a TLP on the link to its buffer free again.
    lag : int
        Cycles by which the count of free buffers is late.
    size : int, optional
        Bytes of a write's payload; the max payload.

    Attributes
    ----------
    together : int
        So many TLPs have one acknowledgement, with the last of them, or `ack` cycles after the
        first one.
    stalled : int
        For so many cycles more the link sends nothing: it has no credits.
    idle, waiting : list of int
        For each cycle: whether the link is idle, and bytes in the block that wait to be sent or
        are being sent.
    inside : list of int
        TLPs in the block.
    """

    def __init__(
        self, *, clock_khz=125_000, speed=2, lanes=1, max_payload=128, buffers=30, ack=50, lag=0,
        size=None,
    ):  # fmt: skip
        self.dut = WriteWindow(clock_khz)
        self.rate = 250_000 * speed * lanes / clock_khz
        self.speed, self.lanes = speed, lanes
        self.buffers, self.ack, self.lag = buffers, ack, lag
        self.size = size or max_payload
        self.idle, self.waiting, self.inside = [], [], []
        self.together, self.stalled = 1, 0
        self._pending = []
        self._queue, self._unacknowledged = deque(), deque()
        self._free = deque()
        self._room = deque([0] * START, maxlen=START)
        self._cycle, self._sent = 0, 0.0
        self._taking = 0

    def run(self, testbench):
        """Runs `testbench(ctx)` beside core and block."""

        async def body(ctx):
            self._drive = Driver(ctx)
            ctx.set(self.dut.link_up, 1)
            ctx.set(self.dut.speed, self.speed)
            ctx.set(self.dut.lanes, self.lanes)
            await testbench(ctx)

        simulate(self.dut, body)

    async def cycle(self, ctx, *, beat=0, first=0, last=0, payload=0):
        """One clock cycle, in which the core may hand a beat over."""
        dut, drive = self.dut, self._drive
        drive(dut.beat, beat)
        drive(dut.first, first)
        drive(dut.last, last)
        drive(dut.payload, payload)
        self._cycle += 1
        # The link.
        if self._queue and not self.stalled:
            self._sent += self.rate
            if self._sent >= self._queue[0]:
                self._sent -= self._queue.popleft()
                self._pending.append(self._cycle)
        self.stalled = max(self.stalled - 1, 0)
        together = len(self._pending) >= self.together
        if self._pending and (together or self._cycle - self._pending[0] >= self.ack):
            self._unacknowledged += [self._cycle + self.ack] * len(self._pending)
            self._pending.clear()
        if not self._queue:
            self._sent = 0.0
        while self._unacknowledged and self._unacknowledged[0] <= self._cycle:
            self._unacknowledged.popleft()
        self._taking |= first
        sent = len(self._pending) + len(self._unacknowledged)
        inside = len(self._queue) + sent + self._taking
        self.idle.append(not self._queue)
        self.waiting.append(sum(self._queue) - self._sent)
        self.inside.append(inside)
        self._free.append(max(self.buffers - inside, 0))
        self._room.append(ctx.get(dut.write))
        await ctx.tick()
        while len(self._free) > self.lag + 1:
            self._free.popleft()
        drive(dut.free, self._free[0])

    async def send(self, ctx, nbytes):
        """Hand a TLP over that is so many bytes long, without its framing."""
        while self.inside and self.inside[-1] >= self.buffers:
            await self.cycle(ctx)
        beats = -(-nbytes // 8)
        for number in range(beats):
            await self.cycle(
                ctx, beat=1, first=number == 0, last=number == beats - 1, payload=beats > 2
            )
        self._taking = 0
        self._queue.append(nbytes + FRAMING)

    def message(self):
        """The block sends a TLP of its own, which takes a buffer."""
        self._queue.append(READ)

    async def rest(self, ctx, cycles=600):
        """Nothing to send."""
        for _ in range(cycles):
            await self.cycle(ctx)

    async def learn(self, ctx):
        """What every job begins with: a read when nothing else is going on."""
        await self.rest(ctx)
        await self.send(ctx, READ - FRAMING)
        await self.rest(ctx)

    async def write(self, ctx, count, *, read_after=0):
        """So many writes, each as soon as it may; after each `read_after`-th a read."""
        for number in range(count):
            while not self._room[0]:
                await self.cycle(ctx)
            await self.send(ctx, HEADER + self.size)
            if read_after and number % read_after == 0:
                await self.send(ctx, READ - FRAMING)

    async def measure(self, ctx, count, **reads):
        """While so many are written: share of the time in which the link is busy, longest queue."""
        start = len(self.idle)
        await self.write(ctx, count, **reads)
        idle = self.idle[start:]
        return 1 - sum(idle) / len(idle), max(self.waiting[start:])


def wire(nbytes: int) -> int:
    return HEADER + nbytes + FRAMING


@pytest.mark.parametrize("max_payload", [128, 256, 512])
@pytest.mark.parametrize("ack_ns", [400, 1000, 2000])
@pytest.mark.parametrize("clock_khz", [62_500, 125_000])
def test_the_link_is_busy_and_little_waits(clock_khz, ack_ns, max_payload):
    link = Link(clock_khz=clock_khz, ack=ack_ns * clock_khz // 1_000_000, max_payload=max_payload)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 15)
        busy, queue = await link.measure(ctx, 40)
        assert busy == 1
        assert queue <= 4 * wire(max_payload)

    link.run(testbench)


@pytest.mark.parametrize("lag", [0, 8])
@pytest.mark.parametrize("ack", [50, 250])
@pytest.mark.parametrize("buffers", [14, 15, 24, 28, 29, 32])
def test_any_number_of_buffers(buffers, ack, lag):
    """With reads between the writes, as a copy has them."""
    link = Link(buffers=buffers, ack=ack, lag=lag)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 5, read_after=4)
        assert (await link.measure(ctx, 60, read_after=4))[0] == 1

    link.run(testbench)


@pytest.mark.parametrize("size", [16, 64])
def test_small_writes_are_more_of_them(size):
    link = Link(ack=100, size=size)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 30)
        busy, queue = await link.measure(ctx, 100)
        assert busy == 1 if size > 16 else busy > 0.85
        # Those that may wait, one that has just been let go, and for late acknowledgements.
        assert queue <= 3 * wire(size) + _SPARE * UNIT

    link.run(testbench)


@pytest.mark.parametrize(("speed", "lanes"), [(1, 1), (2, 1), (2, 2)])
def test_latency_is_counted_in_what_the_link_carries(speed, lanes):
    link = Link(speed=speed, lanes=lanes, ack=125)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 15)
        busy, queue = await link.measure(ctx, 40)
        assert busy == 1
        assert queue <= 4 * wire(128)

    link.run(testbench)


def test_nothing_is_learned_yet():
    """Writes go, and wait for acknowledgements, which tell how many they may be."""
    link = Link(ack=250)

    async def testbench(ctx):
        await link.rest(ctx, 10)
        busy, queue = await link.measure(ctx, 10)
        assert 0.2 < busy < 0.6
        assert queue <= 4 * wire(128)
        await link.write(ctx, 30)
        assert (await link.measure(ctx, 40))[0] == 1

    link.run(testbench)


@pytest.mark.parametrize("how", ["the link went down", "a read came by itself"])
@pytest.mark.parametrize(("before", "after"), [(50, 250), (250, 50)])
def test_latency_is_learned_again(before, after, how):
    link = Link(ack=before)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 10)
        link.ack = after
        await link.rest(ctx)
        if how == "the link went down":
            ctx.set(link.dut.link_up, 0)
            await ctx.tick().repeat(3)
            ctx.set(link.dut.link_up, 1)
        await link.learn(ctx)
        await link.write(ctx, 15)
        busy, queue = await link.measure(ctx, 40)
        assert busy == 1
        assert queue <= 4 * wire(128)

    link.run(testbench)


@pytest.mark.parametrize(
    ("before", "after", "max_payload", "together", "read_after"),
    [
        (400, 2000, 128, 1, 0),
        (400, 2000, 128, 4, 4),
        (400, 2000, 256, 1, 4),
        (400, 2000, 512, 1, 0),
        (1000, 2000, 128, 4, 4),
        (400, 1400, 256, 1, 4),
    ],
)
@pytest.mark.parametrize("clock_khz", [62_500, 125_000])
def test_a_longer_latency_is_learned_in_a_run(
    clock_khz, before, after, max_payload, together, read_after
):
    """In 64 writes."""
    link = Link(clock_khz=clock_khz, ack=before * clock_khz // 1_000_000, max_payload=max_payload)

    async def testbench(ctx):
        await link.learn(ctx)
        link.together = together
        await link.write(ctx, 70, read_after=read_after)
        link.ack = after * clock_khz // 1_000_000
        await link.write(ctx, 64, read_after=read_after)
        busy, queue = await link.measure(ctx, 100, read_after=read_after)
        assert busy >= 0.94
        assert queue <= 5 * wire(max_payload)

    link.run(testbench)


@pytest.mark.parametrize("what", ["acknowledgements were late", "the link stalled", "neither"])
def test_what_is_over_is_forgotten_in_a_run(monkeypatch, what):
    """Without a pause of the writes."""
    patience = 16
    monkeypatch.setattr(window, "_PATIENCE", patience)
    link = Link(clock_khz=62_500, ack=25)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 50)
        if what == "acknowledgements were late":
            link.ack = 125
            await link.write(ctx, 100)
            link.ack = 25
        for _ in range(10 if what == "the link stalled" else 0):
            link.stalled = 200
            await link.write(ctx, 3)
        await link.write(ctx, 25 * patience)
        busy, queue = await link.measure(ctx, 100)
        assert busy == 1
        assert queue <= 4 * wire(128)

    link.run(testbench)


def test_one_stall_changes_nothing():
    link = Link(clock_khz=62_500, ack=25)

    async def testbench(ctx):
        await link.learn(ctx)
        for _ in range(4):
            await link.write(ctx, 40)
            link.stalled = 200
            await link.write(ctx, 15)
            busy, queue = await link.measure(ctx, 20)
            assert busy == 1
            assert queue <= 4 * wire(128)

    link.run(testbench)


@pytest.mark.parametrize("ack", [25, 125])
def test_a_link_that_is_slower_than_it_says(ack):
    """A larger window does not help, and is not kept."""
    link = Link(clock_khz=62_500, ack=ack)
    link.rate *= 0.85

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 400)
        busy, queue = await link.measure(ctx, 100)
        assert busy == 1
        assert queue <= 5 * wire(128)

    link.run(testbench)


@pytest.mark.parametrize("pause", [1, 8, 40, 80])
def test_a_core_without_writes_is_not_taken_for_a_slow_link(pause):
    link = Link()

    async def testbench(ctx):
        await link.learn(ctx)
        # Fewer than it takes to find out that a larger window does not help.
        for _ in range(6):
            await link.write(ctx, 1)
            await link.rest(ctx, pause)
        await link.write(ctx, 15)
        busy, queue = await link.measure(ctx, 20)
        assert busy == 1
        assert queue <= 4 * wire(128)

    link.run(testbench)


def test_a_read_that_others_follow_tells_the_latency_too():
    """The acknowledgement takes longer than the read's answer: it is never alone to the end."""
    link = Link(ack=250)

    async def testbench(ctx):
        await link.rest(ctx)
        await link.send(ctx, READ - FRAMING)
        await link.rest(ctx, 150)
        await link.write(ctx, 20)
        assert (await link.measure(ctx, 40))[0] == 1

    link.run(testbench)


@pytest.mark.parametrize("ahead", [0, 1, 10, 40, 100, 200])
def test_what_the_block_sends_by_itself_is_not_measured(ahead):
    """An interrupt, say: when it is acknowledged tells nothing of a read that came after it."""
    link = Link(ack=250)

    async def testbench(ctx):
        await link.learn(ctx)
        for _ in range(3):
            link.message()
            await link.rest(ctx, ahead)
            await link.send(ctx, READ - FRAMING)
            await link.rest(ctx)
            link.message()
            await link.rest(ctx)
        await link.write(ctx, 15)
        assert (await link.measure(ctx, 40))[0] == 1

    link.run(testbench)


def test_a_write_tells_nothing():
    """Its time on the link is not that of an acknowledgement."""
    link = Link(ack=10, max_payload=512)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.rest(ctx)
        await link.write(ctx, 1)
        await link.rest(ctx)
        await link.write(ctx, 8)
        assert (await link.measure(ctx, 20))[1] <= 4 * wire(512)

    link.run(testbench)


@pytest.mark.parametrize("buffers", [16, 28])
def test_a_block_with_fewer_buffers_than_before_does_not_hang(buffers):
    """What it shows when it has nothing is how many it has, even if it was more."""
    link = Link(buffers=30)

    async def testbench(ctx):
        await link.learn(ctx)
        await link.write(ctx, 10)
        await link.rest(ctx)
        link.buffers = buffers
        await link.learn(ctx)
        await link.write(ctx, 5)
        assert (await link.measure(ctx, 40))[0] == 1

    link.run(testbench)


def test_a_buffer_is_left_for_a_read():
    """The block takes TLPs and sends nothing: writes end before its buffers do."""
    link = Link(ack=100_000, buffers=6, size=64)

    async def testbench(ctx):
        dut = link.dut
        await link.learn(ctx)
        while ctx.get(dut.write):
            await link.send(ctx, HEADER + link.size)
            await link.rest(ctx, 4)
        assert ctx.get(dut.read)
        assert link.inside[-1] == 5
        await link.send(ctx, READ - FRAMING)
        await link.rest(ctx, 4)
        assert not ctx.get(dut.read)
        await link.rest(ctx, 3000)
        assert not ctx.get(dut.read) and not ctx.get(dut.write)

    link.run(testbench)


def test_a_tlp_that_comes_when_another_goes_does_not_hide_its_end():
    """The count of free buffers stays, and no longer latency is taken from that."""
    link = Link()

    async def testbench(ctx):
        await link.learn(ctx)
        await link.send(ctx, READ - FRAMING)
        cycles = 0
        while link.inside[-1]:
            await link.cycle(ctx)
            cycles += 1
        await link.rest(ctx)
        await link.send(ctx, READ - FRAMING)
        await link.rest(ctx, cycles - 1)
        await link.send(ctx, READ - FRAMING)
        assert link.inside[-4:] == [1] * 4
        assert (await link.measure(ctx, 40))[1] <= 4 * wire(128)

    link.run(testbench)


def test_any_traffic_keeps_the_rules():
    """Random sizes, pauses, latencies, buffers: the link idles only when the core does."""
    random = seeded()
    for _ in range(2):
        ack = random.randrange(10, 260)
        link = Link(ack=ack, buffers=random.randrange(20, 33), lag=random.randrange(9))

        async def testbench(ctx, link=link):
            await link.learn(ctx)
            for _ in range(4):
                if random.random() < 0.4:
                    await link.rest(ctx, random.randrange(700))
                for _ in range(30):
                    link.size = random.choice((4, 16, 64, 128, 128, 128))
                    await link.write(ctx, 1, read_after=random.choice((0, 1)))
                link.size = 128
                await link.write(ctx, 15)
                busy, queue = await link.measure(ctx, 10)
                assert busy == 1
                assert queue <= 4 * wire(128)

        link.run(testbench)


def test_a_clock_that_no_link_has():
    with pytest.raises(ValueError, match="must have 31250 kHz or more, not 100"):
        WriteWindow(100)
