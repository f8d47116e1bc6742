# SPDX-License-Identifier: BSD-2-Clause
"""hw/write/arbiter.py: who sends, when, and what becomes of it."""

from __future__ import annotations

from collections import deque

import pytest

from hw.pcie.series7.block import SERIES7
from hw.seam import WIDTHS
from hw.write.arbiter import RequestArbiter
from tests.hw.helpers import seeded, send, simulate
from tests.hw.pcie.tlps import seam_beats

INFINITE = 0xFF
CREDIT_LAG = SERIES7.credit_lag
#: What the arbiter knows of the block, besides the bits of a beat.
BLOCK = {
    "transmit_buffers": SERIES7.transmit_buffers,
    "credit_lag": CREDIT_LAG,
}
#: A link on which everything may go.
OPEN = {"bus_master": 1, "read_room": 1, "write_room": 1, "np_headers": INFINITE}


def write(random, token: int, beats: int, width: int = 64) -> list[dict]:
    """A write; the token tells it from the others."""
    data = random.randbytes(width // 8 * beats)
    header = {"write": 1, "address": random.randrange(0, 1 << 64, 4), "token": token}
    return seam_beats(header | {"dwords": len(data) // 4}, data, width)


def read(random, tag: int) -> list[dict]:
    return seam_beats({"write": 0, "address": random.randrange(0, 1 << 64, 4), "tag": tag}, None)


class Run:
    """Sends reads and writes through an arbiter until all is consumed and reported.

    Parameters
    ----------
    reads : list of packets
    writes : list of packets, for each writer
    ready : whether the block takes a beat in this cycle
    pause : idle cycles before a beat of a source
    link : link state in a cycle, given its number and this object
    owe : cycles from the end of a write to its token, at least 1
    header : the block takes a cycle before the first beat of a packet, as the adapter does
    drops : tokens of writes that the block drops
    width : bits of a beat of the writes

    Attributes
    ----------
    packets : (header, cycles of its beats, words of data) of each packet that left
    offers : (cycle, header) of each packet, with the first cycle in which it was offered
    sent : (cycle, token, dropped)
    by_block : tokens among these that the block dropped
    links : link state by cycle
    """

    def __init__(
        self,
        reads=(),
        writes=((),),
        *,
        ready=lambda: 1,
        pause=lambda: 0,
        link=lambda cycle, run: OPEN,
        owe=lambda: 2,
        header=False,
        drops=(),
        width=64,
    ):
        dut = RequestArbiter(len(writes), width=width, **BLOCK)
        self.packets, self.offers, self.sent, self.links = [], [], [], []
        self.by_block = []
        self._inside = None
        tokens = deque()

        def source(stream, packets):
            async def run(ctx):
                await ctx.tick().repeat(2)  # the link state is known
                await send(ctx, stream, [beat for packet in packets for beat in packet], pause)

            return run

        async def block(ctx):
            cycle, before, closed = 0, None, header
            while True:
                state = link(cycle, self)
                self.links.append(state)
                ctx.set(dut.link, state)
                ctx.set(dut.request.ready, not closed and ready())
                due = tokens and tokens[0][0] <= cycle
                ctx.set(dut.seam_sent.valid, bool(due))
                if due:
                    _, token = tokens.popleft()
                    ctx.set(dut.seam_sent.payload, {"token": token, "dropped": token in drops})
                _, _, beat, valid, taken, sent, reported, asking = await ctx.tick().sample(
                    dut.request.payload,
                    dut.request.valid,
                    dut.request.ready,
                    dut.sent.payload,
                    dut.sent.valid,
                    dut.reads.valid,
                )
                if reported:
                    self.sent.append((cycle, sent.token, sent.dropped))
                    self.by_block += [sent.token] * (sent.dropped & sent.by_block)
                if before is not None:
                    assert valid, "an offer was withdrawn"
                    assert beat.header == before.header, "the header changed"
                    assert (beat.first, beat.last) == (before.first, before.last)
                    assert not beat.header.write or beat.data == before.data
                elif valid and beat.first:
                    self.offers.append((cycle, beat.header))
                    if beat.header.write and asking and state == OPEN:
                        before_it = [start for start, other in self.offers if not other.write]
                        assert before_it[-1:] == [cycle - 1], "a write went before a read"
                before = beat if valid and not taken else None
                if valid and taken:
                    self._collect(cycle, beat, tokens, owe)
                closed = header and not (valid and not (taken and beat.last))
                cycle += 1

        async def reported(ctx):
            while len(self.sent) < sum(len(packets) for packets in writes):
                await ctx.tick()

        simulate(
            dut,
            reported,
            source(dut.reads, reads),
            *(source(*pair) for pair in zip(dut.writes, writes, strict=True)),
            background=[block],
        )
        assert self._inside is None, "a packet has no end"

    def _collect(self, cycle, beat, tokens, owe):
        assert beat.first == (self._inside is None), "a packet inside a packet, or no start"
        header, cycles, words = self._inside = self._inside or (beat.header, [], [])
        assert beat.header == header, "the header changed"
        cycles.append(cycle)
        words.append(beat.data)
        if beat.last:
            self.packets.append(self._inside)
            self._inside = None
            if header.write:
                tokens.append((cycle + owe(), header.token))

    def left(self, token: int) -> list[int]:
        """Words of data of the write with this token."""
        (found,) = [
            words for header, _, words in self.packets if header.write and header.token == token
        ]
        return found


def some_writes(random, writers: int, count: int, width: int = 64) -> list[list]:
    """`count` packets of 1 to 16 beats for each writer; tokens count through."""
    return [
        [
            write(random, count * writer + n, random.choice((1, 2, 3, 16)), width)
            for n in range(count)
        ]
        for writer in range(writers)
    ]


@pytest.mark.parametrize(
    ("writers", "stall", "width"),
    [(1, 0, 64), (1, 0.5, 64), (3, 0, 64), *((3, 0.5, width) for width in WIDTHS)],
)
def test_everything_arrives_in_order_and_unbroken(writers, stall, width):
    random = seeded()
    reads = [read(random, n) for n in range(40)]
    writes = some_writes(random, writers, 25, width)
    run = Run(
        reads,
        writes,
        ready=lambda: random.random() >= stall,
        pause=lambda: random.choice((0, 0, 0, 3)),
        owe=lambda: random.randint(1, 5),
        width=width,
    )
    assert [header.tag for header, *_ in run.packets if not header.write] == list(range(40))
    order = [header.token for header, *_ in run.packets if header.write]
    for number, packets in enumerate(writes):
        own = range(25 * number, 25 * number + 25)
        assert [token for token in order if token in own] == list(own)
        for token, packet in zip(own, packets, strict=True):
            assert run.left(token) == [beat["data"] for beat in packet]
    assert [token for _, token, _ in run.sent] == order
    assert not any(dropped for *_, dropped in run.sent)


@pytest.mark.parametrize("writers", [1, 3])
def test_no_gap_between_packets(writers):
    random = seeded()
    writes = some_writes(random, writers, 20)
    run = Run([read(random, n) for n in range(20)], writes)
    cycles = [cycle for _, cycles, _ in run.packets for cycle in cycles]
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


def test_reads_alone_go_every_other_cycle():
    """The adapter needs two cycles for each."""
    random = seeded()
    for header in (False, True):
        run = Run([read(random, n) for n in range(10)], header=header)
        cycles = [cycle for _, (cycle,), _ in run.packets]
        assert cycles == list(range(cycles[0], cycles[0] + 20, 2))


def test_writers_take_turns():
    random = seeded()
    writes = [[write(random, 10 * writer + n, 2) for n in range(8)] for writer in range(3)]
    order = [header.token for header, *_ in Run((), writes).packets]
    assert order == [10 * writer + n for n in range(8) for writer in range(3)]


def test_a_writer_alone_is_not_slowed_by_the_turns_of_others():
    random = seeded()
    run = Run((), [[], [write(random, n, 2) for n in range(8)], []])
    cycles = [cycle for _, cycles, _ in run.packets for cycle in cycles]
    assert cycles == list(range(cycles[0], cycles[0] + 16))


def test_no_write_without_room():
    random = seeded()
    run = Run(
        (),
        [[write(random, n, 16) for n in range(30)]],
        link=lambda cycle, run: OPEN | {"write_room": random.choice((0, 0, 0, 1))},
    )
    assert all(run.links[cycle - 1]["write_room"] for cycle, _ in run.offers)


def test_reads_pass_writes_that_wait_for_room():
    random = seeded()
    closed = OPEN | {"write_room": 0}
    reads = [read(random, n) for n in range(5)]
    run = Run(
        reads,
        [[write(random, 0, 16)]],
        link=lambda cycle, run: OPEN if len(run.packets) >= 5 else closed,
    )
    assert [header.write for header, *_ in run.packets] == [0] * 5 + [1]


def test_no_read_without_room():
    random = seeded()
    run = Run(
        [read(random, n) for n in range(20)],
        header=True,
        link=lambda cycle, run: OPEN | {"read_room": random.choice((0, 0, 0, 1))},
    )
    assert all(run.links[cycle - 1]["read_room"] for cycle, _ in run.offers)


@pytest.mark.parametrize("header", [False, True])
def test_reads_never_exceed_the_credits(header):
    """Credits come back one by one, and the count that is reported lags as much as it may."""
    random = seeded()
    granted = [2]

    def link(cycle, run):
        granted.append(granted[-1] + (random.random() < 0.1))
        seen = sum(start < cycle - CREDIT_LAG for start, _ in run.offers)
        return OPEN | {"np_headers": granted[-1] - seen}

    run = Run([read(random, n) for n in range(40)], link=link, header=header)
    for number, (start, _) in enumerate(run.offers, start=1):
        assert number <= granted[start]


def test_writes_need_no_non_posted_credit():
    random = seeded()
    run = Run(
        [read(random, 0)],
        [[write(random, n, 2) for n in range(5)]],
        link=lambda cycle, run: OPEN | {"np_headers": INFINITE if len(run.packets) == 5 else 0},
    )
    assert [header.write for header, *_ in run.packets] == [1] * 5 + [0]


def test_bus_master_off_drops_everything_and_says_so():
    random = seeded()
    run = Run(
        [read(random, n) for n in range(10)],
        [[write(random, n, 16) for n in range(5)]],
        link=lambda cycle, run: {"bus_master": 0, "read_room": 0, "write_room": 0, "np_headers": 0},
    )
    assert not run.offers and not run.by_block
    assert [(token, dropped) for _, token, dropped in run.sent] == [(n, 1) for n in range(5)]


def test_what_the_block_drops_is_reported_as_dropped():
    random = seeded()
    run = Run((), [[write(random, n, 2) for n in range(6)]], drops={2, 5})
    assert [(token, dropped) for _, token, dropped in run.sent] == [
        (n, n in (2, 5)) for n in range(6)
    ]
    assert run.by_block == [2, 5]


@pytest.mark.parametrize(("header", "width"), [(False, 64), *((True, width) for width in WIDTHS)])
def test_bus_master_comes_and_goes(header, width):
    """A packet leaves whole or not at all, and tokens keep their order however late they are."""
    random = seeded()
    state = dict(OPEN)

    def link(cycle, run):
        if random.random() < 0.03:
            state["bus_master"] ^= 1
        return dict(state)

    count = 40
    run = Run(
        [read(random, n) for n in range(20)],
        some_writes(random, 2, count, width),
        ready=lambda: random.random() < 0.7,
        pause=lambda: random.choice((0, 0, 5)),
        owe=lambda: random.randint(1, 12),
        link=link,
        header=header,
        width=width,
    )
    assert all(run.links[cycle - 1]["bus_master"] for cycle, _ in run.offers)
    order = [token for _, token, _ in run.sent]
    for own in (range(count), range(count, 2 * count)):
        assert [token for token in order if token in own] == list(own)
    whole = [header.token for header, *_ in run.packets if header.write]
    assert [token for _, token, dropped in run.sent if not dropped] == whole
    assert 0 < len(whole) < 2 * count


def test_there_must_be_a_writer():
    with pytest.raises(ValueError, match="writers must be at least 1, not 0"):
        RequestArbiter(0, width=64, **BLOCK)
