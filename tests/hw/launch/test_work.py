# SPDX-License-Identifier: BSD-2-Clause
"""What is kept of each queue: only of the one that is served, and of whose read it was."""

import pytest

from hw.channel.signatures import RUNS
from hw.launch.records import PLACES, STATE, Phase, Read
from hw.launch.work import Kept, QueueWork
from hw.records import Outcome
from peerdma import regs
from tests.hw.helpers import seeded, simulate

END, STATUS = regs.LaunchEnd, regs.LaunchStatus
QUEUES = 3


class Bench:
    """One queue of three that something happens to. The others must not notice."""

    def __init__(self, ctx, dut, queue):
        self.ctx, self.dut, self.queue, self.bit = ctx, dut, queue, 1 << queue
        ctx.set(dut.queue, queue)
        ctx.set(dut.completer, queue)

    async def cycle(self, *flags):
        """One cycle with this queue's bit of these inputs set."""
        for name in flags:
            self.ctx.set(getattr(self.dut, name), self.bit)
        await self.ctx.tick()
        for name in flags:
            self.ctx.set(getattr(self.dut, name), 0)

    async def step(self, **fields):
        self.ctx.set(self.dut.step, fields)
        await self.ctx.tick()
        self.ctx.set(self.dut.step, {})

    async def ends(self, what, outcome):
        """A read of this queue ends."""
        dut = self.dut
        self.ctx.set(dut.reading, what)
        self.ctx.set(dut.reader, self.queue)
        self.ctx.set(dut.retired.payload.outcome, outcome)
        self.ctx.set(dut.retired.valid, 1)
        await self.ctx.tick()
        self.ctx.set(dut.retired.valid, 0)

    def __getattr__(self, name):
        return self.ctx.get(getattr(self.dut.known[self.queue], name))

    @property
    def state(self):
        word = STATE.from_bits(self.ctx.get(self.dut.state[self.queue]))
        at_work = "place", "recorded", "ending", "running", "starting"
        names = ("busy", "failed", "status", "end", *at_work)
        return {name: getattr(word, name) for name in names}

    @property
    def ending(self):
        return self.ctx.get(self.dut.ending[self.queue])


def run(scenario, queue):
    dut = QueueWork(QUEUES)

    async def bench(ctx):
        others = [n for n in range(QUEUES) if n != queue]

        def kept():
            return [(ctx.get(dut.known[n]), ctx.get(dut.ending[n])) for n in others]

        before = kept()
        await scenario(Bench(ctx, dut, queue))
        assert kept() == before

    simulate(dut, bench)


@pytest.fixture(params=range(QUEUES))
def queue(request):
    return request.param


def test_a_ticket_moves_its_queue_on(queue):
    async def scenario(work):
        await work.step(looked_up=1, kept={"flushes": 1}, pair=0)
        assert (work.pair, work.flushes) == (0, 1)
        for phase in (Phase.GRANT, Phase.OVER, Phase.IDLE):
            await work.step(moves=1, phase=phase)
            assert work.phase == phase
            assert work.state["busy"] == work.state["starting"] == (phase != Phase.IDLE)
            assert work.ctx.get(work.dut.idle) >> queue & 1 == (phase == Phase.IDLE)

    run(scenario, queue)


def test_tickets_that_run_and_the_one_that_ends_are_counted_up_to_their_last_write(queue):
    """And what is kept of each from when its slot was looked up is shown while it is the oldest."""
    rng = seeded()

    async def scenario(work):
        number = 0

        def shown(wanted):
            """Places and slots of all, and the oldest one's."""
            state = work.state
            first = state["place"] - state["recorded"]
            count = state["ending"] + state["running"] + state["starting"]
            assert (number - first) % PLACES == 0 and count == len(wanted) and state["busy"]
            for place, kept in enumerate(wanted, first):
                work.ctx.set(work.dut.place, PLACES * queue + place % PLACES)
                assert work.ctx.get(work.dut.slot) == kept["slot"]
            assert work.ctx.get(work.dut.here).kept.as_bits() == Kept.const(wanted[0]).as_bits()

        for _ in range(8):
            wants = []
            for count in range(rng.randrange(1, RUNS + 1)):
                kept = {"slot": 64, "upper": 2**16, "has_done": 2, "flushes": 2}
                wants.append({name: rng.randrange(most) for name, most in kept.items()})
                await work.step(looked_up=1, kept=wants[-1])
                await work.step(moves=1, phase=Phase.GRANT)
                assert work.state["running"] == count
                shown(wants)
                await work.step(starts=1, moves=1, phase=Phase.IDLE)
                assert work.state["running"] == count + 1
            while wants:
                await work.step(ended=1)
                for step in ({}, {"counted": 1}):
                    await work.step(**step)
                    shown(wants)
                await work.step(finished=1)
                number += 1
                del wants[0]
                assert work.state["busy"] == bool(wants) and not work.state["ending"]

    run(scenario, queue)


@pytest.mark.parametrize("first", [0, 2**16 - 1])
def test_its_number_counts_up_from_where_software_has_set_it(queue, first):
    async def scenario(work):
        work.ctx.set(work.dut.first, first)
        await work.cycle("load")

        def numbers():
            here = work.dut.here
            return [work.ctx.get(each) for each in (here.oldest, here.ticket)]

        for turn in range(3):
            now, following = (first + turn) % 2**16, (first + turn + 1) % 2**16
            assert numbers() == [now, now]
            # The next one can be started while this one has no record.
            await work.step(ended=1, unstarted=1)
            assert numbers() == [now, following]
            assert work.state["ending"]
            await work.step(counted=1)
            assert numbers() == [following, following]
            assert work.ctx.get(work.dut.head[queue]) == following
            await work.step(finished=1)

    run(scenario, queue)


def test_the_first_status_that_failed_stays_until_software_resumes(queue):
    async def scenario(work):
        await work.step(ended=1, unstarted=1, outcome=STATUS.OK)
        await work.step(finished=1)
        assert not work.failed
        await work.step(ended=1, unstarted=1, outcome=STATUS.SLOT)
        # From here on no ticket is started.
        assert work.state["failed"] and work.state["status"] == STATUS.SLOT
        await work.step(finished=1)
        await work.step(looked_up=1)
        assert work.flushed
        await work.step(ended=1, unstarted=1, outcome=STATUS.FLUSHED)
        await work.step(finished=1)
        assert work.state["failed"] and work.state["status"] == STATUS.SLOT
        await work.cycle("resume")
        assert work.resuming and work.failed
        await work.step(resumes=1)
        assert not work.resuming and not work.failed
        assert work.state["status"] == STATUS.OK
        await work.step(looked_up=1)
        assert not work.flushed

    run(scenario, queue)


def test_a_flush_read_that_fails_is_its_tickets_error(queue):
    async def scenario(work):
        await work.step(ended=1, unstarted=1, outcome=STATUS.OK)
        await work.ends(Read.FLUSH, Outcome.OK)
        assert work.ending.status == STATUS.OK and not work.failed
        await work.ends(Read.FLUSH, Outcome.POISONED)
        assert work.ending.status == work.status == Outcome.POISONED.value and work.failed
        # The first error counts.
        await work.ends(Read.FLUSH, Outcome.COMPLETER_ABORT)
        assert work.ending.status == work.status == Outcome.POISONED.value
        # Of the next ticket it is not: that may have begun by then.
        await work.step(finished=1)
        await work.step(ended=1, unstarted=1, outcome=STATUS.OK)
        assert work.ending.status == STATUS.OK
        assert work.status == Outcome.POISONED.value and work.failed
        assert work.end == END.NONE

    run(scenario, queue)


def test_what_ends_a_queue_is_kept_until_it_is_armed(queue):
    async def scenario(work):
        async def read_fails():
            await work.ends(Read.ENTRIES, Outcome.POISONED)

        causes = {
            END.TAIL: lambda: work.cycle("over"),
            END.RECORD: lambda: work.step(lost=1),
            END.ENTRY: lambda: work.step(gives_up=1),
            END.READ: read_fails,
        }
        for end, cause in causes.items():
            await cause()
            assert work.state["end"] == end
            await work.cycle("armed")
            assert work.state["end"] == END.NONE

    run(scenario, queue)


def test_reads_for_an_entry_are_counted_and_paced(queue):
    async def scenario(work):
        for tries in range(1, 4):
            await work.step(begins=1, paces=1)
            assert (work.tried, work.tries, work.due) == (1, tries, 0)
        await work.cycle("moved")
        assert not work.tried
        await work.step(begins=1)
        assert work.tries == 1

    run(scenario, queue)


def test_each_queue_may_read_again_at_a_tick():
    async def scenario(ctx):
        ctx.set(dut.tick, 1)
        await ctx.tick()
        assert [ctx.get(known.due) for known in dut.known] == [1] * QUEUES

    dut = QueueWork(QUEUES)
    simulate(dut, scenario)


def test_the_queue_that_is_served_is_shown():
    async def scenario(ctx):
        for queue in range(QUEUES):
            ctx.set(dut.settings[queue], {"armed": 1, "mask": 7 + queue})
        for queue in range(QUEUES):
            ctx.set(dut.queue, queue)
            ctx.set(dut.waits, queue == 1)
            ctx.set(dut.step, {"moves": 1, "phase": queue + 1})
            await ctx.tick()
            here = ctx.get(dut.here)
            assert (here.known.phase, here.waits) == (queue + 1, queue == 1)
            assert here.settings.mask == 7 + queue

    dut = QueueWork(QUEUES)
    simulate(dut, scenario)
