# SPDX-License-Identifier: BSD-2-Clause
"""Episodes that something ends, or may end.

Aborts, resets, a lost link, Bus Master Enable taken away, a port that pauses for too long.
"""

from __future__ import annotations

import cocotb
from cocotb.task import Task
from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import Status
from sim.benches.channel import CONTROL_STOP
from sim.benches.tb import TIMEOUT_US
from sim.benches.ultrascale import FLR_CYCLES

from .faults import arrival, release_pair, stop
from .job import RUN_US, Job
from .launched import Launched
from .plan import FUNCTION_RESET, Disturbance, Engine, Episode
from .rig import Rig
from .table import LATE_PORT

__all__ = ["play"]

#: By when a soft reset has ended all that was under way.
_SOFT_RESET_US = 100
#: How long the link stays down, at most.
_DOWN_US = 100
#: When one read has failed since its completions were lost, in which time all others have.
_ALL_FAIL_US = 3 * TIMEOUT_US


async def play(
    rig: Rig,
    episode: Episode,
    jobs: dict[Engine, Job],
    beside: list[Task],
    launched: Launched,
) -> None:
    """Run all engines, and disturb them. `beside` are the tasks at work beside them."""
    disturbance = episode.disturbance
    for job in jobs.values():
        job.prepare()

    async def begin(job: Job) -> None:
        await Timer(max(job.run.delay_ns, 1), "ns")
        await job.begin()

    for task in [cocotb.start_soon(begin(job)) for job in jobs.values()]:
        await task
    await Timer(max(disturbance.delay_ns, 1), "ns")
    if disturbance.kind == "abort":
        await _abort(rig, episode, jobs)
    elif disturbance.kind == "bus master off":
        await _bus_master_off(rig, list(jobs.values()), launched)
    elif disturbance.kind == LATE_PORT:
        await _late_port(rig, disturbance, list(jobs.values()))
    else:
        await _reset(rig, disturbance.kind, list(jobs.values()), beside, launched)
    for job in jobs.values():
        if job.moment:
            ended = job.finished and disturbance.kind != LATE_PORT
            rig.seen.sample(
                "disturbance",
                kind=disturbance.kind,
                way=job.way,
                contents=job.run.contents,
                moment="after" if ended else job.moment,
                list=job.listed,
            )
    for number, pair in enumerate(rig.pairs):
        ended = [job for engine, job in jobs.items() if engine.number == number and job.moment]
        release_pair(rig, pair, ended)


async def _abort(rig: Rig, episode: Episode, jobs: dict[Engine, Job]) -> None:
    victims = [
        jobs[engine]
        for engine in jobs
        if (engine.c2h, engine.number) in episode.disturbance.victims
    ]
    numbers = {job.channel.number for job in victims}
    streaming = any(job.run.contents != "ram" for job in victims)
    others = [job for job in jobs.values() if job not in victims]
    waiting = [
        job
        for job in others
        if streaming and job.channel.number in numbers and job.run.contents != "ram"
    ]

    async def finish(job: Job) -> None:
        await job.wait()
        await job.expect_good("")

    tasks = [cocotb.start_soon(finish(job)) for job in others if job not in waiting]
    for job in victims:
        job.note_moment()
    await stop(rig, victims)
    if waiting:
        await Timer(rig.rng.randint(1, 6000), "ns")
        for job in waiting:
            job.note_moment()
        await stop(rig, waiting)
    for task in tasks:
        await task


async def _bus_master_off(rig: Rig, jobs: list[Job], launched: Launched) -> None:
    for job in jobs:
        job.note_moment()
    await launched.stop("bus master off")
    async with rig.access():
        await rig.pci.clear_master()
    await arrival()
    counts = {}
    for job in jobs:
        await job.channel.write("control", CONTROL_STOP)
    for job in jobs:
        counts[job] = await job.close()
    await launched.finish()
    async with rig.access():
        await rig.pci.set_master()
    for job in jobs:
        await job.settle(counts[job])
    if not rig.machine.ours:
        return
    # A read that was on its way out when the bit fell is dropped, and its tag times out.
    tags = regs.EXTENSION["channels"].field("tags")
    most = tags.get(await rig.read(regs.EXTENSION, "channels"))
    assert rig.device.timeouts <= most, f"{rig.device.timeouts} timeouts, of {most} tags"
    rig.timeouts = rig.device.timeouts


async def _late_port(rig: Rig, disturbance: Disturbance, jobs: list[Job]) -> None:
    """The port pauses for too long. What the block has no room for then is lost, if more was asked
    for than it has room for; and a run ends well, or says that it has lost something."""
    received = rig.device.received
    for job in jobs:
        job.note_moment()
    received.lag, received.loses = None, rig.overcommits
    rig.device.hold_receive = True
    await Timer(disturbance.pause_ns, "ns")
    rig.device.hold_receive = False
    stuck = await _all_end(rig, jobs)
    for job in jobs:
        if job in stuck:
            continue
        await job.wait()
        if received.lost and rig.events[job.channel] & Status.errors():
            await job.expect_lost()
        else:
            await job.expect_good("")
    await stop(rig, stuck)


async def _all_end(rig: Rig, jobs: list[Job]) -> list[Job]:
    """Wait until no job is busy, but for those that wait for bytes, or room, of one that failed."""
    end = rig.now_ns() + RUN_US * 1000
    failed = False
    while True:
        states = {job: Status(await job.channel.read("status")) for job in jobs}
        busy = [job for job, state in states.items() if state & Status.BUSY]
        if not failed and any(state & Status.errors() for state in states.values()):
            failed = True
            end = min(end, rig.now_ns() + _ALL_FAIL_US * 1000)
        if not busy or rig.now_ns() > end:
            # Those that wait for nobody come to their ends.
            return [job for job in busy if failed and job.run.contents != "ram"]
        await Timer(1, "us")


async def _reset(
    rig: Rig, kind: str, jobs: list[Job], beside: list[Task], launched: Launched
) -> None:
    await launched.stop(kind)
    await rig.shut()
    for task in beside:
        task.cancel()
    rig.let_go()
    for job in jobs:
        job.note_moment()
    if kind == "soft reset":
        rig.reopen()
        await rig.write(regs.EXTENSION, "soft_reset", 1)
        for channel in rig.channels:
            await channel.idle(_SOFT_RESET_US)
        # What was cancelled may have halted one, which a soft reset leaves as it is.
        every = sum(channel.halt_bit for channel in rig.channels)
        await rig.write(regs.SGDMA_COMMON, "halt_w1c", every)
        # A read that was offered before still goes out; what it brings is dropped.
        await arrival()
    else:
        if rig.unexpected:
            # What is lost with the link is not reported.
            await arrival()
        if kind == FUNCTION_RESET:
            await rig.function_reset(FLR_CYCLES, late=rig.rng.random() < 0.5)
            # What the block has taken before is on its way.
            await arrival()
        else:
            down = rig.rng.randint(1, _DOWN_US) if kind == "link loss" else 0
            await rig.hot_reset(down_us=down)
        rig.reopen()
    for job in jobs:
        job.abandon()
        await job.settle(0)
    await launched.finish()
