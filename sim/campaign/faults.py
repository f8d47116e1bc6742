# SPDX-License-Identifier: BSD-2-Clause
"""Episodes in which one run has to end by an error, and nobody else is to notice."""

from __future__ import annotations

import cocotb
from cocotb.triggers import Timer

from peerdma import regs
from peerdma.regs import ErrorKind, Status
from sim.benches.channel import CONTROL_STOP
from sim.benches.host import Fault

from .job import Job
from .plan import Engine, Episode, PlantedFault
from .rig import Rig
from .scoreboard import FramePair, Pair

__all__ = ["ARRIVES_US", "READS", "arrival", "lose", "play", "release_pair", "stop"]

#: How a completer brings a kind of fault about, what is captured, and the status bit's name
#: beside the one that stands for all of its field.
READS = {
    "unsupported request": (Fault.UNSUPPORTED_REQUEST, ErrorKind.UNSUPPORTED_REQUEST, ""),
    "completer abort": (Fault.COMPLETER_ABORT, ErrorKind.COMPLETER_ABORT, "ABORT"),
    "retry status": (Fault.RETRY, ErrorKind.UNSUPPORTED_REQUEST, ""),
    "poisoned": (Fault.POISONED, ErrorKind.POISONED, "POISONED"),
    "lost": (Fault.WITHHELD, ErrorKind.COMPLETION_TIMEOUT, ""),
    "late": (Fault.WITHHELD, ErrorKind.COMPLETION_TIMEOUT, ""),
    "wrong count": (Fault.WRONG_COUNT, ErrorKind.UNEXPECTED_COMPLETION, "UNEXPECTED"),
    "wrong address": (Fault.WRONG_ADDRESS, ErrorKind.UNEXPECTED_COMPLETION, "UNEXPECTED"),
    "too long": (Fault.TOO_LONG, ErrorKind.UNEXPECTED_COMPLETION, "UNEXPECTED"),
}
#: How long a copy goes on on its other side when one has failed.
_GOES_ON_US = 3
#: In which time what is on its way has come.
ARRIVES_US = 4


def _expected(fault: PlantedFault, c2h: bool) -> tuple[Status, ErrorKind]:
    """Status bits and captured kind."""
    if fault.kind in ("magic", "spoilt push"):
        return Status.MAGIC_STOPPED, ErrorKind.MAGIC
    if fault.kind == "decode":
        status = Status.READ_UNSUPPORTED
        return status if c2h else status | Status.WRITE_DECODE, ErrorKind.DECODE
    _, kind, name = READS[fault.kind]
    source = "DESC" if fault.place == "descriptor" else "READ"
    status = Status[f"{source}_UNSUPPORTED"]
    return status | Status[f"{source}_{name}"] if name else status, kind


async def play(rig: Rig, episode: Episode, victim: Engine, jobs: dict[Engine, Job]) -> None:
    """Run all engines of an episode, of which `victim` has a planted fault."""
    failing = jobs[victim]
    mine = [job for engine, job in jobs.items() if engine.number == victim.number]
    # The other side of a pair in which one fails waits for bytes, or room, that do not come.
    waiting = [job for job in mine if job.run.contents != "ram" and job is not failing]
    await rig.write(regs.EXTENSION, "error_clear", 0)
    rig.capturing = True
    for job in jobs.values():
        job.prepare()
    _plant(rig, failing)

    async def run(job: Job) -> None:
        await Timer(max(job.run.delay_ns, 1), "ns")
        await job.begin()
        if job in waiting:
            return
        await job.wait()
        if job is not failing:
            await job.expect_good("")

    tasks = {job: cocotb.start_soon(run(job)) for job in jobs.values()}
    await tasks[failing]
    await _expect_failure(rig, failing)
    for job in waiting:
        await tasks[job]
        await Timer(_GOES_ON_US, "us")
        await stop(rig, [job])
    for task in tasks.values():
        await task
    rig.capturing = False
    release_pair(rig, rig.pairs[victim.number], [failing, *waiting])


def _plant(rig: Rig, job: Job) -> None:
    fault = job.run.fault
    if fault.kind not in READS:
        return
    if fault.place == "data":
        where = job.data_address(fault.index)
        at = rig.rng.choice(where)
    else:
        at = job.descriptors[fault.index]
    for completer in rig.completers:
        completer.inject(range(at, at + 1), READS[fault.kind][0])


async def _expect_failure(rig: Rig, job: Job) -> None:
    """The run that was waited for ended as it had to, and the capture says so."""
    fault = job.run.fault
    piece = job.run.pieces[fault.index]
    status, kind = _expected(fault, job.channel.c2h)
    for completer in rig.completers:
        completer.clear_faults()
        if fault.kind == "late":
            rig.timeouts += len(completer.withheld)
            await completer.release_withheld()
    lose(rig)
    exact = fault.place == "data" or kind is ErrorKind.MAGIC
    await job.expect_error(status, fault.index, exact=exact)
    info = await rig.read(regs.EXTENSION, "error_info")
    expected = {
        "kind": kind,
        "channel": job.channel.number,
        "c2h": int(job.channel.c2h),
        "descriptor": int(fault.place == "descriptor"),
        "count": 1,
    }
    register = regs.EXTENSION["error_info"]
    found = {name: register.field(name).get(info) for name in expected}
    assert found == expected, f"error capture {found}, expected {expected}: {job.run}"
    pushed = fault.index < job.run.pushes
    last = len(job.run.pieces) - 1
    at = "only" if not last else {0: "first", last: "last"}.get(fault.index, "middle")
    rig.seen.sample(
        "fault",
        kind=fault.kind,
        place=fault.place,
        way=job.way,
        target="stream" if piece.card is None else "ram",
        memory=piece.memory,
        descriptor="pushed" if pushed else "fetched",
        at=at,
    )


def lose(rig: Rig) -> None:
    """What completers have withheld is never sent."""
    for completer in rig.completers:
        rig.timeouts += len(completer.withheld)
        for tag in completer.withheld:
            rig.lost[tag] = rig.now_ns()
            rig.device.abandon(tag)
        completer.drop_withheld()


async def stop(rig: Rig, jobs: list[Job]) -> None:
    """Abort these, and check what they have left behind."""
    for job in jobs:
        await job.channel.write("control", CONTROL_STOP)
    counts = {}
    for job in jobs:
        counts[job] = await job.close()
    for job in jobs:
        events = rig.events[job.channel]
        assert not events & Status.errors(), f"{job.channel!r} was stopped, and has {events!r}"
        await job.settle(counts[job])


def release_pair(rig: Rig, pair: Pair, jobs: list[Job]) -> None:
    """What is in a pair when these have ended, of which some did by anything but Stop.

    The core flushes it when one used the stream, or may have: what of its list has not come may be
    for the stream. Whether all of a list had come does not show; where that is open, and where a
    run of H2C began behind the end of what failed, software flushes the pair.
    """
    if isinstance(pair, FramePair):
        # Nothing of H2C comes out of it.
        jobs = [job for job in jobs if job.channel.c2h]
    if not jobs:
        return
    failed = [job for job in jobs if job.breaks]
    over = min((job.closed_ns for job in failed), default=0)
    late = [job for job in jobs if not job.channel.c2h and job.finished and job.asked_ns >= over]
    certain = bool(failed) and not late
    for job in jobs:
        if job.moment:
            how = "flushed by the core" if certain else "flushed by software"
            rig.seen.sample("disturbance", stream=how)
    if certain:
        pair.empty()
    else:
        pair.unknown = True


def arrival() -> Timer:
    """Until what is on its way has come."""
    return Timer(ARRIVES_US, "us")
