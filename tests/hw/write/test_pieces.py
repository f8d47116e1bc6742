# SPDX-License-Identifier: BSD-2-Clause
"""`hw.write.pieces`: channels share the link by bytes, and each hears of its own writes."""

import pytest

from hw.records import PLACE_BITS, Outcome
from hw.write.pieces import EXTRA_BYTES, PieceWrites
from tests.hw.helpers import placement, seeded, simulate
from tests.hw.parts.shares import Shares


@pytest.mark.parametrize("channels", [1, 3])
def test_jobs_and_reports(channels):
    """Tokens come back in order, some as dropped, and between them those of records."""
    rng = seeded()
    dut = PieceWrites(channels)

    async def bench(ctx):
        offered = [None] * channels
        sent, served = [], 0
        shares = Shares(channels, EXTRA_BYTES)
        #: whose job was at the port in the cycle before: channel 0's, if none was offered
        before = 0
        for number in range(600):
            for channel, port in enumerate(dut.pieces):
                if offered[channel] is None and rng.random() < 0.4:
                    offered[channel] = {
                        "address": rng.getrandbits(64),
                        "length": rng.randint(1, 512),
                        "stream": rng.randrange(2),
                        "last": rng.randrange(2),
                    }
                    place = rng.getrandbits(PLACE_BITS)
                    ctx.set(port.payload, {**offered[channel], "place": placement(place)})
                    offered[channel]["place"] = place
                ctx.set(port.valid, offered[channel] is not None)
            ready = rng.random() < 0.6
            ctx.set(dut.job.ready, ready)

            back, dropped, by_block = None, rng.randrange(2), rng.randrange(2)
            ctx.set(dut.sent.valid, 0)
            if sent and rng.random() < 0.5:
                token, back = sent.pop(0)
                ctx.set(
                    dut.sent.payload, {"token": token, "dropped": dropped, "by_block": by_block}
                )
                ctx.set(dut.sent.valid, 1)
            elif rng.random() < 0.3:
                # A record, which no channel hears of.
                ctx.set(dut.sent.payload, {"token": 1 | rng.getrandbits(4) << 1, "dropped": 0})
                ctx.set(dut.sent.valid, 1)
            for channel, report in enumerate(dut.reports):
                mine = back is not None and back[0] == channel
                assert ctx.get(report.valid) == mine
                assert ctx.get(dut.released[channel]) == (mine and back[1]["stream"])
                if mine:
                    outcome = Outcome.OK
                    if dropped:
                        outcome = Outcome.WRITE_DROPPED if by_block else Outcome.BUS_MASTER_OFF
                    assert ctx.get(report.payload.last) == back[1]["last"]
                    assert ctx.get(report.payload.outcome) == outcome

            lengths = [piece["length"] if piece else 0 for piece in offered]
            allowed, goes = shares.allowed(), None
            assert ctx.get(dut.job.valid) == any(offered)
            channel = 0
            if any(offered):
                circle = [(served + step) % channels for step in range(1, channels + 1)]
                channel = next(each for each in circle if offered[each] and allowed[each])
                job, piece = ctx.get(dut.job.payload), offered[channel]
                found = job.address, job.length, job.place.as_bits()
                assert found == (piece["address"], piece["length"], piece["place"]), number
                assert job.steady == (piece["stream"] and before == channel)
                if ready:
                    sent.append((job.token, (channel, piece)))
                    offered[channel], served = None, channel
                    goes = channel
            shares.step(lengths, goes)
            before = channel
            await ctx.tick()

    simulate(dut, bench)


def test_a_piece_is_taken_only_in_its_turn():
    """One that has had its share, as the one that waited is withdrawn: a cycle without a job."""
    dut = PieceWrites(2)

    async def bench(ctx):
        ctx.set(dut.job.ready, 1)
        ctx.set(dut.pieces[0].payload.length, 512)
        ctx.set(dut.pieces[0].valid, 1)
        await ctx.tick().repeat(2)
        ctx.set(dut.job.ready, 0)
        ctx.set(dut.pieces[1].valid, 1)
        await ctx.tick()
        ctx.set(dut.job.ready, 1)
        assert (ctx.get(dut.job.valid), ctx.get(dut.pieces[0].ready)) == (1, 0)
        ctx.set(dut.pieces[1].valid, 0)
        assert (ctx.get(dut.job.valid), ctx.get(dut.pieces[0].ready)) == (0, 0)
        await ctx.tick()
        assert (ctx.get(dut.job.valid), ctx.get(dut.pieces[0].ready)) == (1, 1)

    simulate(dut, bench)
