# SPDX-License-Identifier: BSD-2-Clause
"""The writer against a byte model of card RAM and of the memory it writes, and its exact timing."""

from itertools import pairwise

import pytest

from hw.records import JOB_BYTES, OFFSET_BITS, RAM_ADDRESS_BITS
from hw.seam import WIDTHS
from hw.write.writer import DEPTH, Writer
from tests.hw.helpers import PAIR_PLACE, RING_PLACE, placement, seeded, simulate

#: bytes of an outbound ring
RING = 4096
#: places of the memories, and their sizes
RINGS = {RING_PLACE: RING, RING_PLACE + PAIR_PLACE: RING}


class Packet:
    """A write request as it left: header, beats, and the cycles of its beats."""

    def __init__(self, header):
        self.header = header
        self.data = b""
        self.times = []

    def bytes_written(self):
        """{byte address: value} of the enabled bytes."""
        header, written = self.header, {}
        for dword in range(header.dwords):
            enable = 0xF
            if dword == header.dwords - 1 and dword:
                enable = header.last_be
            elif dword == 0:
                enable = header.first_be
            for lane in range(4):
                if enable >> lane & 1:
                    offset = 4 * dword + lane
                    written[header.address + offset] = self.data[offset]
        return written


class Bench:
    """Feeds jobs to a writer over its memories, collects its packets, checks the stream's rules.

    The sink takes a packet's first beat when it has been offered for `header_beats` cycles, at
    least one, as the seam demands. With 0 only the first packet's: it is for jobs that follow each
    other, where the data of the others is there.

    `shows` says whether a job that is not offered in a cycle is at the port all the same: it is
    steady if it is offered in the next one.
    """

    def __init__(
        self,
        rng,
        ready=lambda: True,
        pause=lambda: False,
        header_beats=1,
        width=64,
        shows=lambda: False,
    ):
        self.width, self.lanes = width, width // 8
        self.offset_bits = rng.choice((OFFSET_BITS, RAM_ADDRESS_BITS))
        #: contents of the memories, by where they begin: card RAM, and two rings
        sizes = {0: 1 << self.offset_bits, **RINGS}
        self.memories = {place: rng.randbytes(size) for place, size in sizes.items()}
        self.rng = rng
        self.ready, self.pause, self.header_beats = ready, pause, header_beats
        self.shows = shows
        #: cycles in which jobs were taken, and in which packets were first offered
        self.accepted, self.offered = [], []
        self.packets = []
        #: cycles in which the sink was ready and nothing was offered
        self.starved = 0

    def run(self, jobs):
        """Jobs are (address, length, place); returns the packets."""
        dut = Writer(len(RINGS), self.offset_bits, width=self.width)

        async def testbench(ctx):
            await self._drive(ctx, dut, jobs)

        simulate(dut, testbench, cycles=200 + 200 * len(jobs))
        return self.packets

    async def _drive(self, ctx, dut, jobs):
        cycle, index, inside, held, waited = 0, 0, False, None, 0
        done, waiting, shown = 0, False, None
        while done < len(jobs):
            waiting = waiting or not self.pause()
            offer = index < len(jobs) and waiting
            ctx.set(dut.job.valid, offer)
            steady, shown = shown == index, None
            if offer or (index < len(jobs) and self.shows()):
                address, length, place = jobs[index]
                shown = index if self.shows() else None
                ctx.set(
                    dut.job.payload,
                    {
                        "address": address,
                        "length": length,
                        "place": placement(place),
                        "steady": steady,
                        "token": index % 256,
                    },
                )
            else:
                noise = {"address": self.rng.getrandbits(64), "length": self.rng.randrange(1, 513)}
                ctx.set(dut.job.payload, noise)
            beat = ctx.get(dut.request.payload) if ctx.get(dut.request.valid) else None
            begins = beat is not None and not inside
            if begins and not waited:
                self.offered.append(cycle)
            early = begins and waited < max(self.header_beats, not self.packets)
            waited = waited + 1 if begins else 0
            ready = self.ready() and not early
            ctx.set(dut.request.ready, ready)
            if offer and ctx.get(dut.job.ready):
                self.accepted.append(cycle)
                index, waiting = index + 1, False

            assert beat is not None or not inside, "a gap inside a packet"
            if held is not None:
                assert beat is not None, "an offer was withdrawn"
                assert beat.header == held.header, "an offered header changed"
                assert (beat.first, beat.last) == (held.first, held.last)
                assert waited == 2 or beat.data == held.data, "offered data changed"
            held = None if ready else beat
            self.starved += ready and beat is None
            if beat is not None and ready:
                assert beat.first == (not inside)
                if beat.first:
                    self.packets.append(Packet(beat.header))
                packet = self.packets[-1]
                assert beat.header == packet.header, "the header changed"
                packet.data += beat.data.to_bytes(self.lanes, "little")
                packet.times.append(cycle)
                inside, waited = not beat.last, 0
                done += beat.last

            # Synchronous memories; what nobody asked for is noise.
            ports = (dut.ram, *dut.rings)
            asked = [ctx.get(port.rows) if ctx.get(port.enable) else None for port in ports]
            await ctx.tick()
            cycle += 1
            for port, rows, memory in zip(ports, asked, self.memories.values(), strict=True):
                for bank in range(2):
                    data = self.rng.randbytes(self.lanes)
                    if rows is not None:
                        at = (2 * rows[bank] + bank) * self.lanes % len(memory)
                        data = memory[at : at + self.lanes]
                    ctx.set(port.data[bank], int.from_bytes(data, "little"))

    def at(self, place, length):
        """So many bytes from a place on."""
        memory = max(begin for begin in self.memories if begin <= place)
        data, offset = self.memories[memory], place - memory
        return bytes(data[(offset + n) % len(data)] for n in range(length))

    def check(self, jobs):
        """Every packet writes its job's bytes, where they go, and nothing else."""
        assert len(self.packets) == len(jobs)
        for index, (packet, job) in enumerate(zip(self.packets, jobs, strict=True)):
            address, length, place = job
            header = packet.header
            context = f"job {index}: {length} bytes from {place:#x} to {address:#x}"
            data = self.at(place, length)
            expected = {address + n: data[n] for n in range(length)}
            assert packet.bytes_written() == expected, context
            assert header.write == 1
            assert header.address % 4 == 0, context
            assert header.token == index % 256, context
            assert header.dwords == (address % 4 + length + 3) // 4, context
            assert (header.last_be == 0) == (header.dwords == 1), context
            assert len(packet.data) == -(-4 * header.dwords // self.lanes) * self.lanes, context


@pytest.mark.parametrize("width", WIDTHS)
def test_every_alignment(width):
    """Each place in a word, each address modulo 8, each length to two words, and some more.

    Of wide words, whose alignments are many, only some.
    """
    rng = seeded()
    lanes = width // 8
    jobs = [
        (0x1_2345_6780 + address, length, 0x100 + place)
        for place in range(lanes)
        for address in range(8)
        for length in (*range(1, 2 * lanes + 2), 129)
    ]
    if width > 64:
        jobs = rng.sample(jobs, 600)
    jobs += [(address, JOB_BYTES, lanes - address) for address in range(8)]
    bench = Bench(rng, width=width)
    bench.run(jobs)
    bench.check(jobs)


@pytest.mark.parametrize("width", WIDTHS)
def test_random_jobs_with_stalls(width):
    rng = seeded()
    jobs, mood = [], [0.5]

    def ready():
        if rng.random() < 0.02:
            mood[0] = rng.choice((0.1, 0.5, 0.9, 1))
        return rng.random() < mood[0]

    for _ in range(600 if width == 64 else 200):
        length = rng.randrange(1, 1 << rng.randrange(1, 10))
        address = rng.randrange(1 << rng.choice((16, 34, 64)))
        address -= max(0, address % 4096 + length - 4096)
        place = rng.randrange(1 << OFFSET_BITS)
        if rng.random() < 0.5:
            # Near the ends of a ring, too
            place = rng.choice(list(RINGS)) + rng.choice((place, place % 8)) % (2 * RING)
        jobs.append((address, length, place))
    bench = Bench(
        rng,
        ready=ready,
        pause=lambda: rng.random() < 0.2,
        width=width,
        shows=lambda: rng.random() < 0.7,
    )
    bench.run(jobs)
    bench.check(jobs)


@pytest.mark.parametrize(("width", "latency"), [(64, 3), (128, 3), (256, 4)])
@pytest.mark.parametrize(
    ("address", "place"), [(0, 0), (4, 8), (3, 3), (7, 8 + 3), (4, 4), (0, 1), (2, 1)]
)
def test_latency(address, place, width, latency):
    """As many cycles from job to first beat for any alignment, which was offered a cycle before."""
    bench = Bench(seeded(), width=width)
    (packet,) = bench.run([(0x1000 + address, 64, place)])
    assert bench.accepted == [0]
    assert bench.offered == [latency - 1]
    assert packet.times[0] == latency
    assert packet.times == list(range(latency, latency + len(packet.times)))


@pytest.mark.parametrize(("width", "latency"), [(64, 2), (128, 2), (256, 3)])
@pytest.mark.parametrize("address", [0, 7])
@pytest.mark.parametrize("length", [1, 8, 9, 64])
def test_latency_of_a_steady_job(length, address, width, latency):
    """It is read in the cycle in which it is taken, also right behind one of a single beat."""
    pauses = [True, False, True]
    bench = Bench(
        seeded(), pause=lambda: bool(pauses) and pauses.pop(0), width=width, shows=lambda: True
    )
    jobs = [(0x1000 + address, 1, 0x20), (0x2000 + address, length, 0x25)]
    bench.run(jobs)
    bench.check(jobs)
    assert bench.accepted == [1, 3]
    assert bench.offered[0] == 1 + latency - 1
    assert bench.offered[1] == 3 + latency - 1


@pytest.mark.parametrize(("width", "period"), [(64, 16), (128, 8), (256, 4)])
@pytest.mark.parametrize("place", [0, 5])
def test_throughput(place, width, period):
    """Jobs of 128 bytes take as many cycles as they have beats, wherever they begin."""
    bench = Bench(seeded(), header_beats=0, width=width)
    jobs = [(128 * n, 128, place + 128 * n) for n in range(20)]
    bench.run(jobs)
    bench.check(jobs)
    starts = [packet.times[0] for packet in bench.packets]
    assert {b - a for a, b in pairwise(starts)} == {period}


@pytest.mark.parametrize("header_beats", [1, 2])
@pytest.mark.parametrize("place", range(8))
def test_never_limits_a_link(place, header_beats):
    """A sink that spends 17 or 18 cycles on a packet of 128 bytes never waits for a beat."""
    bench = Bench(seeded(), header_beats=header_beats)
    jobs = [(128 * n, 128, place + 128 * n) for n in range(30)]
    bench.run(jobs)
    bench.check(jobs)
    start = bench.packets[0].times[0]
    assert bench.starved == start - header_beats
    assert bench.packets[-1].times[-1] == start + 30 * (16 + header_beats) - header_beats - 1


def test_reads_ahead_while_the_sink_stalls():
    """The queue fills behind a stalled sink, no further, and drains without a gap."""
    rng = seeded()
    stalled = [100]

    def ready():
        stalled[0] -= 1
        return stalled[0] < 0

    bench = Bench(rng, ready=ready, header_beats=0)
    jobs = [(0x40 * n, 4, 0x40 * n + 4) for n in range(3 * DEPTH)]
    bench.run(jobs)
    bench.check(jobs)
    assert sum(time < 100 for time in bench.accepted) == DEPTH
    times = [time for packet in bench.packets for time in packet.times]
    assert times[:DEPTH] == list(range(100, 100 + DEPTH))
