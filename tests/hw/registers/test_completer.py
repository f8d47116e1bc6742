# SPDX-License-Identifier: BSD-2-Clause
"""The completer: accesses to the BARs, against registers that are memory."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hw.registers.bus import READ_LATENCY
from hw.registers.completer import QUEUE_DEPTH, QUEUE_RESERVE, Completer
from hw.seam import WIDTHS, CompletionStatus, TargetKind
from peerdma import regs
from tests.hw.helpers import packets, seeded, simulate, toggle, watch
from tests.hw.pcie.tlps import seam_beats

#: Where the host has put the BARs; their sizes are those of the register map.
BASES = {0: 0xF704_C000, 1: 0x12_F705_0000, 7: 0xE000_0000}
SIZES = dict((regs.BAR_USER, regs.BAR_DMA))
#: Non-posted requests that the block may pass on after it was told to hold them back, and the
#: cycles until it knows: its ports and the adapter take three.
FOLLOWING, LAG = 2, 3


class Registers:
    """Byte memory on a register bus. `bytes` is by (BAR, byte address); the log by cycle."""

    def __init__(self, random):
        self.random = random
        self.bytes = {}
        self.writes = []  # (cycle, bar, byte address, value)
        self.reads = []  # (cycle, bar, byte address)
        self.words = []  # cycles in which the bus wrote

    def bench(self, bus):
        async def run(ctx):
            cycle, pipe = 0, [0] * (READ_LATENCY - 1)
            read, write = bus.read, bus.write
            while True:
                (
                    _,
                    _,
                    reading,
                    *wanted,
                    writing,
                    bar,
                    address,
                    data,
                    enable,
                ) = await ctx.tick().sample(
                    *(read.valid, read.bar, read.address, read.enable),
                    *(write.valid, write.bar, write.address, write.data, write.enable),
                )
                idle = self.random.randrange(1 << 64)
                pipe.append(self._read(cycle, *wanted) if reading else idle)
                ctx.set(read.data, pipe.pop(0))
                if writing:
                    self._write(cycle, bar, address, data, enable)
                cycle += 1

        return run

    def _read(self, cycle, bar, address, enable):
        value = 0
        for lane in range(8):
            key = bar, 8 * address + lane
            value |= self.bytes.get(key, 0) << 8 * lane
            if enable >> lane & 1:
                self.reads.append((cycle, *key))
        return value

    def _write(self, cycle, bar, address, data, enable):
        self.words.append(cycle)
        for lane in range(8):
            if enable >> lane & 1:
                key = bar, 8 * address + lane
                self.bytes[key] = data >> 8 * lane & 0xFF
                self.writes.append((cycle, *key, self.bytes[key]))


class Request:
    """One request of the host."""

    def __init__(self, random, kind, bar=1, offset=None, dwords=None, enables=None, poisoned=0):
        self.bar = bar
        dwords = dwords or random.choice((1, 1, 1, 2, 2, 3, 4, 5, 31, 32, 33, 64, 1024))
        if offset is None:
            page = random.choice((0, SIZES[bar] - 4096))
            offset = page + 4 * random.randint(0, min(40, 1024 - dwords))
        self.offset, self.dwords = offset, dwords
        first, last = enables or (
            random.randrange(dwords > 1, 16),
            random.randrange(1, 16) if dwords > 1 else 0,
        )
        self.data = None
        if kind is TargetKind.WRITE:
            self.data = random.randbytes(4 * dwords)
        self.header = {
            "kind": kind,
            "address": BASES[bar] + offset,
            "dwords": dwords,
            "first_be": first,
            "last_be": last,
            "bar": bar,
            "tag": random.randrange(256),
            "requester_id": random.randrange(1 << 16),
            "traffic_class": random.randrange(8),
            "attributes": random.randrange(8),
            "poisoned": poisoned,
            "locked": int(kind is TargetKind.OTHER and random.random() < 0.5),
        }

    def enabled(self) -> list[int]:
        """Byte addresses within the BAR that the byte enables select."""
        enables = [0xF] * self.dwords
        enables[-1] = self.header["last_be"]
        enables[0] = self.header["first_be"]
        return [
            self.offset + 4 * n + lane
            for n, enable in enumerate(enables)
            for lane in range(4)
            if enable >> lane & 1
        ]

    def posted(self) -> bool:
        return self.header["kind"] in (TargetKind.WRITE, TargetKind.MESSAGE)

    def written(self) -> dict[int, int]:
        """Byte addresses within the BAR that change, and the values."""
        if self.header["kind"] is not TargetKind.WRITE or self.header["poisoned"]:
            return {}
        return {address: self.data[address - self.offset] for address in self.enabled()}

    def completions(self) -> list[tuple[dict, int]]:
        """Header of each completion, and the byte address of its first dword."""
        kind = self.header["kind"]
        if self.posted():
            return []
        names = ("tag", "requester_id", "traffic_class", "attributes", "locked")
        same = {name: self.header[name] for name in names} | {"poisoned": 0}
        if kind is TargetKind.OTHER:
            status = {"status": CompletionStatus.UR.value, "byte_count": 4, "lower_address": 0}
            return [(same | status | {"dwords": 0}, 0)]
        enabled = self.enabled() or [self.offset]
        end = self.offset + 4 * self.dwords
        cuts = [self.offset, *range((self.offset | 127) + 1, end, 128), end]
        return [
            (
                same
                | {
                    "status": CompletionStatus.SC.value,
                    "byte_count": enabled[-1] + 1 - max(start, enabled[0]),
                    "lower_address": max(start, enabled[0]) % 128,
                    "dwords": (stop - start) // 4,
                },
                start,
            )
            for start, stop in pairwise(cuts)
        ]


class Run:
    """Runs requests through a Completer and keeps what came out.

    `gap` is the number of idle cycles before a packet, `pause` before each further beat. A block
    that is wider than the register bus leaves out the one that has to be. Requests
    that are not posted heed `target_np_ok` as late as they may.

    registers : the model behind the bus
    ends : cycle of the last beat of each request
    completions : (cycles, header, data) of each
    """

    def __init__(
        self, random, requests, *, width=64, ready=lambda: 1, gap=lambda: 1, pause=lambda: 0
    ):
        self.width = width
        self.dut = Completer(width=width)
        self.registers = Registers(random)
        self.ends = []
        log = []

        np_ok = [1] * LAG

        async def host(ctx):
            target = self.dut.target
            cycle, allowed, began = 0, FOLLOWING, -2
            for request in requests:
                for _ in range(gap() if width == 64 else max(gap() - 1, began + 2 - cycle)):
                    await ctx.tick()
                    cycle += 1
                if request.posted():
                    pass
                elif np_ok[-LAG]:
                    allowed = FOLLOWING
                elif allowed:
                    allowed -= 1
                else:
                    while not np_ok[-LAG]:
                        await ctx.tick()
                        cycle += 1
                assert cycle - began >= 2, "first beats of packets are two cycles apart"
                began = cycle
                for beat in seam_beats(request.header, request.data, width):
                    for _ in range(0 if beat["first"] else pause()):
                        await ctx.tick()
                        cycle += 1
                    ctx.set(target.payload, beat)
                    ctx.set(target.valid, 1)
                    ready = False
                    while not ready:
                        _, _, ready = await ctx.tick().sample(target.ready)
                        cycle += 1
                    ctx.set(target.valid, 0)
                self.ends.append(cycle - 1)
            await ctx.tick().repeat(8)

        async def done(ctx):
            port = self.dut.completion
            for _ in range(sum(len(request.completions()) for request in requests)):
                await ctx.tick().until(port.valid & port.ready & port.payload.last)

        async def throttle(ctx):
            async for _, _, ok in ctx.tick().sample(self.dut.target_np_ok):
                np_ok.append(ok)

        simulate(
            self.dut,
            host,
            done,
            background=[
                self.registers.bench(self.dut.bus),
                toggle(self.dut.completion.ready, ready),
                watch(self.dut.completion, log),
                throttle,
            ],
        )
        self.completions = packets(log, width)

    def check(self, requests):
        """Every register access and every completion is the one that was asked for.

        A read sees what was written before it arrived, and may see what was written after.
        """
        history = {}
        for number, request in enumerate(requests):
            for address, value in request.written().items():
                history.setdefault((request.bar, address), []).append((number, value))
        memory = {key: values[-1][1] for key, values in history.items()}
        assert self.registers.bytes == memory

        reads = [r for r in requests if r.header["kind"] is TargetKind.READ]
        assert sorted(key for _, *key in self.registers.reads) == sorted(
            [r.bar, address] for r in reads for address in r.enabled()
        )

        answers = iter(self.completions)
        for number, request in enumerate(requests):
            enabled = set(request.enabled())
            for expected, start in request.completions():
                times, header, data = next(answers)
                assert header == expected
                assert len(times) == max(1, -(-header["dwords"] // (self.width // 32)))
                for address in enabled & set(range(start, start + 4 * header["dwords"])):
                    values = history.get((request.bar, address), [])
                    before = [value for when, value in values if when < number]
                    after = [value for when, value in values if when > number]
                    assert data[address - start] in [*(before or [0])[-1:], *after]
        assert next(answers, None) is None


def some_requests(random, count: int) -> list[Request]:
    """Reads and writes that often meet each other, and whatever else can arrive."""
    kinds = [TargetKind.READ] * 6 + [TargetKind.WRITE] * 8 + [TargetKind.OTHER, TargetKind.MESSAGE]
    return [
        Request(random, random.choice(kinds), bar=random.choice((0, 1, 1))) for _ in range(count)
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("stall", "count"), [(0, 50), (0.5, 40), (0.9, 15)])
def test_any_mixture_of_requests(stall, count, width):
    random = seeded()
    requests = some_requests(random, count)
    run = Run(
        random,
        requests,
        width=width,
        ready=lambda: random.random() >= stall,
        gap=lambda: random.choice((1, 1, 2, 40)),
        pause=lambda: stall > 0 and random.choice((0, 0, 1)),
    )
    run.check(requests)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_alignment_and_byte_enable_of_small_requests(width):
    """Writes of 1 to 4 dwords at every place of a word, read back by the same byte enables."""
    random = seeded()
    requests = []
    for dwords in (1, 2, 3, 4):
        for place in (0, 4, 124, 4096 - 4 * dwords):
            for first in range(16) if dwords == 1 else random.sample(range(1, 16), 4):
                enables = first, random.randrange(1, 16) if dwords > 1 else 0
                for kind in (TargetKind.WRITE, TargetKind.READ):
                    requests.append(
                        Request(random, kind, offset=place, dwords=dwords, enables=enables)
                    )
    Run(random, requests, width=width, gap=lambda: random.choice((1, 20))).check(requests)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_read_sees_the_write_just_before_it(width):
    random = seeded()
    requests = []
    for number in range(30):
        dwords = random.randint(1, 6)
        offset = 64 * number + random.choice((0, 4))
        for kind in (TargetKind.WRITE, TargetKind.READ):
            requests.append(Request(random, kind, offset=offset, dwords=dwords))
    Run(random, requests, width=width).check(requests)


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "shifted"])
def test_writes_take_one_cycle_per_64_bits(offset):
    """Back to back with one cycle between packets, the word more of a shifted write included."""
    random = seeded()
    sizes = (1024 - offset, 2, 1, 3, 32, 32, 2, 2, 7)
    requests = [Request(random, TargetKind.WRITE, offset=offset, dwords=dwords) for dwords in sizes]
    run = Run(random, requests)
    run.check(requests)
    wanted = []
    for end, dwords in zip(run.ends, sizes, strict=True):
        beats = (dwords + 1) // 2
        spill = offset == 4 and dwords % 2 == 0
        wanted += range(end - beats + 2, end + 2 + spill)
    assert run.registers.words == wanted


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "shifted"])
@pytest.mark.parametrize("width", WIDTHS[1:])
def test_writes_of_a_wider_block_take_as_many_cycles(width, offset):
    """And one more for each packet; what follows is held back for as long."""
    random = seeded()
    sizes = (512, 2, 1, 3, 9, 32, 16, 7)
    requests = [Request(random, TargetKind.WRITE, offset=offset, dwords=dwords) for dwords in sizes]
    run = Run(random, requests, width=width)
    run.check(requests)
    words = [(dwords + 1) // 2 + 1 for dwords in sizes]
    ends = [sum(words[: n + 1]) - 2 for n in range(len(words))]
    assert run.ends == ends


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("dwords", "words"), [(1, 1), (2, 1), (4, 2), (32, 16)])
def test_latency_of_a_read(dwords, words, width):
    """Of a wider block, the words are collected before they leave."""
    random = seeded()
    requests = [Request(random, TargetKind.READ, offset=256, dwords=dwords)]
    run = Run(random, requests, width=width)
    ((times, _, _),) = run.completions
    first = run.ends[0] + READ_LATENCY + 4 + words - 1
    first += words if width > 64 else 0
    assert times == list(range(first, first - (-words // (width // 64))))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_completion_never_pauses(width):
    random = seeded()
    requests = [Request(random, TargetKind.READ, offset=100, dwords=500)]
    for times, _, _ in Run(random, requests, width=width).completions:
        assert times == list(range(times[0], times[0] + len(times)))


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_not_served(width):
    """Other requests get UR, messages and poisoned writes nothing, what hits no BAR reads as 0."""
    random = seeded()
    requests = [
        Request(random, TargetKind.OTHER, dwords=1),
        Request(random, TargetKind.OTHER, dwords=64),
        Request(random, TargetKind.MESSAGE, dwords=1),
        Request(random, TargetKind.WRITE, offset=0, dwords=32, poisoned=1),
        Request(random, TargetKind.WRITE, offset=4, dwords=2, poisoned=1),
        Request(random, TargetKind.READ, offset=0, dwords=32),
        Request(random, TargetKind.READ, bar=7, offset=132, dwords=1),
    ]
    for request in requests[1:4:2]:
        request.data = random.randbytes(4 * request.dwords)
    run = Run(random, requests, width=width)
    run.check(requests)
    assert not run.registers.bytes
    assert [header["status"] for _, header, _ in run.completions] == [1, 1, 0, 0]


def test_reads_are_held_back_before_the_queue_is_full():
    """A flood of reads while no completion gets through."""
    random = seeded()
    requests = [Request(random, TargetKind.READ, dwords=1) for _ in range(3 * QUEUE_DEPTH)]
    cycles = iter(range(1 << 30))
    run = Run(random, requests, ready=lambda: next(cycles) > 300)
    run.check(requests)
    assert sum(end < 300 for end in run.ends) >= QUEUE_DEPTH - QUEUE_RESERVE


def test_a_bar_must_have_a_size_the_bus_can_address():
    with pytest.raises(ValueError, match=r"size of BAR 2 must be .* 4 KiB to 64 KiB, not 131072"):
        Completer(bars=((2, 1 << 17),), width=64)
