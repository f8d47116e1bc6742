# SPDX-License-Identifier: BSD-2-Clause
"""What is written for a ticket, in which order: its record, then a done word if there is one."""

import pytest

from hw.launch.completion import Completion
from tests.hw.helpers import seeded, simulate

RECORD, RECORD_AT, DONE_AT = 0x1234_5678_9ABC_DEF0, 0x1000, 0x2004


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("has_done", [0, 1])
def test_a_record_then_a_done_word(has_done, dropped):
    rng = seeded()
    dut = Completion()
    taken, counted, lost = [], [], 0

    async def scenario(ctx):
        nonlocal lost
        offer = dut.records.record
        for _ in range(5):
            before, waits, later = len(taken), 0, False
            ctx.set(dut.has_done, has_done)
            ctx.set(dut.record, RECORD)
            finished = False
            while not finished:
                ctx.set(dut.active, not ctx.get(dut.under_way))
                hold, ready = rng.random() < 0.3, rng.random() < 0.5
                ctx.set(dut.hold, hold)
                ctx.set(offer.ready, ready)
                ctx.set(dut.address, DONE_AT if ctx.get(dut.second) else RECORD_AT)
                # What was taken is done later; until then nothing is offered.
                done = waits == 1
                waits = max(0, waits - 1)
                ctx.set(dut.records.done, done)
                ctx.set(dut.records.dropped, done and dropped)
                valid = ctx.get(offer.valid)
                assert not (valid and (hold or waits or done))
                assert ctx.get(dut.takes) == (valid and ready)
                if valid and ready:
                    payload = ctx.get(offer.payload)
                    data = payload.data if payload.wide else 1
                    taken.append([payload.wide, payload.address, data])
                    waits = rng.randrange(1, 4)
                    # From then on somebody else may have the address.
                    later = ctx.get(offer.payload.wide)
                counted.append(ctx.get(dut.counted))
                assert counted[-1] == bool(valid and ready and taken[-1][0])
                lost += ctx.get(dut.lost)
                finished = ctx.get(dut.finished)
                assert not finished or done
                await ctx.tick()
                ctx.set(dut.has_done, has_done if not later else rng.randrange(2))
                later = False
            ctx.set(dut.active, 0)
            ctx.set(dut.records.done, 0)
            await ctx.tick().repeat(rng.randrange(1, 3))
            assert taken[before:] == [[1, RECORD_AT, RECORD], [0, DONE_AT, 1]][: 1 + has_done]

    simulate(dut, scenario)
    assert sum(counted) == 5
    assert lost == (5 * (1 + has_done) if dropped else 0)
