# SPDX-License-Identifier: BSD-2-Clause
"""A seed under cocotb: its episodes one after the other, each with all that it has at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp

from hw.seam import FIVE_BIT_TAGS
from peerdma import regs
from peerdma.regs import Capability
from peerdma.trace.capture import Writer
from sim.benches.channel import CONTROL_STOP, Channel
from sim.benches.host import Split
from sim.benches.series7 import PORT_LAG
from sim.benches.tb import CAPTURE, TLP_LOG

from . import disturb, faults
from .draw import draw
from .job import Job
from .launched import Launched, invalidate
from .monitor import Monitor
from .one import SEEN
from .plan import EMPTYING, Copying, Engine, Episode, Piece, Run
from .rig import Rig
from .scoreboard import FramePair, Pair
from .table import LATE_PORT
from .traffic import hold, make_accesses

__all__ = ["campaign"]

#: Bound of a seed, in simulated microseconds: all that a plan holds ends long before.
_SEED_US = 40_000
_SILENCE_US = 3
#: How much is read back after something went wrong.
_AUDIT_BYTES, _AUDIT_PIECES = 8000, 64
#: Bytes that the ring of a pair holds at 64 bits, the time in which reads fill it on any link here,
#: and how long C2H waits at least when H2C begins so much later.
_RING, _FILLS_NS, _EMPTY_NS = 8 * 1024, 40_000, 3000
_QUARANTINE_US = 700


@cocotb.test(timeout_time=_SEED_US, timeout_unit="us")
async def campaign(dut) -> None:
    """All episodes of the plan of SEED, which has EPISODES."""
    plan = draw(int(os.environ["SEED"]), int(os.environ["EPISODES"]))
    with open(TLP_LOG, "w") as log, open(CAPTURE, "wb") as capture:
        rig = Rig(dut, log, Writer(capture), plan.machine)
        monitor = Monitor(rig)
        await rig.start()
        await rig.start_sources()
        if plan.machine.core.launch_queues:
            await invalidate(rig, range(regs.LAUNCH_SLOTS))
        session = _Session(rig, monitor)
        for number, episode in enumerate(plan.episodes):
            cocotb.log.info("episode %d: %s", number, _title(episode))
            log.write(f"# episode {number}\n")
            await session.play(episode)
        await session.finish()
    result = {"simulated_ns": rig.now_ns(), "counts": dict(sorted(rig.seen.counts.items()))}
    Path(SEEN).write_text(json.dumps(result))


def _title(episode: Episode) -> str:
    engines = ", ".join(
        f"{'C2H' if engine.c2h else 'H2C'} {engine.number}" for engine in episode.engines
    )
    planted = [run.fault.kind for engine in episode.engines for run in engine.runs if run.fault]
    what = episode.disturbance.kind if episode.disturbance else " ".join(planted) or "all well"
    return f"{what}; {engines}"


class _Session:
    """Plays episodes, and knows what went wrong in the last one."""

    def __init__(self, rig: Rig, monitor: Monitor):
        self._rig, self._monitor = rig, monitor
        self._after = ""

    def _channel(self, engine: Engine) -> Channel:
        rig = self._rig
        return rig.channels[engine.c2h * rig.channels_each_way + engine.number]

    async def play(self, episode: Episode) -> None:
        """One episode, from set-up to verdict."""
        rig = self._rig
        await self._set_up(episode)
        launched = Launched(rig, episode)
        await launched.prepare()
        victim = next((engine for engine in episode.engines if engine.runs[0].fault), None)
        hindrance = cocotb.start_soon(hold(rig, episode.hold))
        accesses = cocotb.start_soon(make_accesses(rig, episode.accesses))
        launched.start()
        if episode.disturbance:
            beside = [accesses, hindrance]
            await disturb.play(rig, episode, self._jobs(episode), beside, launched)
            self._after = episode.disturbance.kind
        elif victim:
            await faults.play(rig, episode, victim, self._jobs(episode))
            self._after = victim.runs[0].fault.kind
        else:
            left = [pair.left for pair in rig.pairs]
            copying = {each.number for each in episode.copying}
            tasks = {
                (engine.c2h, engine.number): cocotb.start_soon(self._engine(engine, episode))
                for engine in episode.engines
                if engine.number not in copying
            }
            copies = {
                each.number: cocotb.start_soon(self._copying(each, episode))
                for each in episode.copying
            }
            jobs = {side: await task for side, task in tasks.items()}
            for number, task in copies.items():
                jobs[False, number], jobs[True, number] = await task
            for number, before in enumerate(left):
                sides = [jobs.get((c2h, number), []) for c2h in (False, True)]
                self._sample_stream(rig.pairs[number], before, *sides)
            self._after = ""
        await launched.finish()
        for task in (accesses, hindrance):
            if not task.done():
                await task
        await self._close(episode)
        used = {source.number for source in episode.sources} | launched.pairs
        if episode.disturbance or victim:
            await self._audit(episode)
            used |= {engine.number for engine in episode.engines}
        for number in sorted(used):
            await self._copy(episode, number)
        await launched.audit()

    async def _audit(self, episode: Episode) -> None:
        """Read back what was to be written to card RAM: it is what was there, or what was to come.

        This is also the first run after what went wrong.
        """
        rig, total, pieces = self._rig, 0, []
        written = [run for engine in episode.engines if not engine.c2h for run in engine.runs]
        for piece in (piece for run in written for piece in run.pieces):
            inside = piece.card is not None and piece.card + piece.size <= regs.CARD_RAM_SIZE
            if inside and total + piece.size <= _AUDIT_BYTES:
                total += piece.size
                pieces.append(Piece(piece.size, "high", rig.rng.randrange(4096), piece.card))
        if not pieces:
            return
        pieces = pieces[:_AUDIT_PIECES]
        run = Run(tuple(pieces), (len(pieces),), False, False, "status", "off", False, 0)
        job = Job(rig, rig.channels[-1], run, episode)
        job.prepare()
        await job.begin()
        await job.wait()
        await job.expect_good(self._after)

    async def _copy(self, episode: Episode, number: int) -> None:
        """Copy something through a pair, or take frames: nothing of what went wrong is in it, and
        no packet is missing, or there again.

        What stays in it by plan comes out first. As many bytes stay as before: later episodes of
        the plan count on them.
        """
        rig = self._rig
        pair = rig.pairs[number]
        size, offset = rig.rng.randint(1, 900), rig.rng.randrange(4096)
        passes = not isinstance(pair, FramePair)
        if not passes and pair.kept:
            size = max(size, pair.packet)
        piece = Piece(size, "high", offset, None)
        run = Run((piece,), (1,), False, False, "status", "off", False, 0)
        for c2h in (False, True) if passes else (True,):
            job = Job(rig, rig.channels[c2h * rig.channels_each_way + number], run, episode)
            job.prepare()
            await job.begin()
            await job.wait()
            await job.expect_good("")
        if self._after:
            rig.seen.sample("clean", after=self._after, user=rig.machine.core.user)

    def _jobs(self, episode: Episode) -> dict[Engine, Job]:
        return {
            engine: Job(self._rig, self._channel(engine), engine.runs[0], episode)
            for engine in episode.engines
        }

    async def _set_up(self, episode: Episode) -> None:
        rig, around = self._rig, episode.surroundings
        await rig.configure(mps=around.mps, mrrs=around.mrrs, rcb=around.rcb)
        await rig.extended_tags(around.extended_tags)
        await rig.use_interrupts(around.interrupts)
        for completer in rig.completers:
            completer.set_manner(Split[around.split], around.latency_ns, around.gap_ns)
        rig.device.stall = around.stall
        if rig.machine.ours:
            rig.device.received.gap = around.idle
        if rig.overcommits:
            rig.device.received.lag = around.port_lag
        await rig.write(regs.EXTENSION, "reads", around.in_flight)
        rig.interrupts.clear()
        rig.calm = not episode.disturbance
        self._monitor.begin(episode)

    async def _engine(self, engine: Engine, episode: Episode) -> list[Job]:
        rig, after = self._rig, self._after
        jobs = []
        for run in engine.runs:
            job = Job(rig, self._channel(engine), run, episode)
            job.prepare()
            await Timer(max(run.delay_ns, 1), "ns")
            await job.begin()
            await self._end(job, after)
            jobs.append(job)
        return jobs

    async def _copying(self, copying: Copying, episode: Episode) -> tuple[list[Job], list[Job]]:
        """What software does on a pair that launched copies use, too."""
        rig, after, jobs = self._rig, self._after, ([], [])
        mine = {
            engine.c2h: (self._channel(engine), iter(engine.runs))
            for engine in episode.engines
            if engine.number == copying.number
        }
        for step in copying.steps:
            sides = (True, False) if step == "copy" else (step == "c2h",)
            now = []
            for c2h in sides:
                channel, runs = mine[c2h]
                now.append(Job(rig, channel, next(runs), episode))
                now[-1].prepare()
            for job in now:
                await Timer(max(job.run.delay_ns, 1), "ns")
                await job.begin()
                jobs[job.channel.c2h].append(job)
            for task in [cocotb.start_soon(self._end(job, after)) for job in now]:
                await task
        return jobs

    @staticmethod
    async def _end(job: Job, after: str) -> None:
        await job.wait()
        await job.expect_good(after)

    def _sample_stream(self, pair: Pair, left: int, into: list[Job], out: list[Job]) -> None:
        """Both sides of a pair have come to their good ends; `left` bytes were in it before."""
        into, out = ([job for job in side if job.run.streamed] for side in (into, out))
        if not into or not out:
            return
        sent = left + sum(job.run.streamed for job in into if job.began_ns < out[0].began_ns)
        lead = out[0].began_ns - into[0].began_ns
        pressure = "neither"
        if sent > _RING * self._rig.machine.width // 64 and lead > _FILLS_NS:
            pressure = "h2c waits for room"
        elif not left and lead < -_EMPTY_NS:
            pressure = "c2h waits for bytes"
        self._rig.seen.sample(
            "stream",
            before="left over" if left else "empty",
            after="left over" if pair.left else "empty",
            pressure=pressure,
        )

    async def _close(self, episode: Episode) -> None:
        """Nothing is under way any more: what must be quiet is, and what was counted fits."""
        rig = self._rig
        rig.device.stall = 0
        await Timer(_SILENCE_US, "us")
        rig.check_guards()
        assert not rig.host.stray_writes, f"write to nowhere: {rig.host.stray_writes[0]!r}"
        if rig.calm:
            await self._check_interrupts(episode)
            self._monitor.end_good(episode)
        if rig.machine.ours:
            lost = await self._watch_port(episode) if rig.machine.core.overcommit else []
            self._check_block(lost)
        rig.unexpected = rig.timeouts = 0
        kind = episode.disturbance.kind if episode.disturbance else ""
        for number, pair in enumerate(rig.pairs):
            if kind in EMPTYING:
                pair.empty()
            if pair.unknown:
                await rig.write(regs.EXTENSION, "stream_flush", 1 << number)
                pair.empty()
        if kind in EMPTYING:
            # A reset switches them off.
            await rig.start_sources()

    async def _watch_port(self, episode: Episode) -> list[Tlp]:
        """The core overcommits, or does so no more, as it has to; and what the port may do then.

        Returns the completions that were lost, none of which may still come.
        """
        rig, received = self._rig, self._rig.device.received
        around, kind = episode.surroundings, episode.disturbance and episode.disturbance.kind
        on = Capability.OVERCOMMIT_OFF not in Capability(
            await rig.read(regs.EXTENSION, "capabilities")
        )
        port = "lost completions" if received.lost else "late" if kind == LATE_PORT else "not late"
        if kind in ("hot reset", "link loss"):
            assert on, "overcommit is off after a reset of the link"
        elif not rig.overcommits:
            assert not on, "overcommit is on again"
        elif received.lost or rig.device.timeouts:
            assert not on, "overcommit is on, though a read was lost"
        elif kind != LATE_PORT and episode.hold != "receive" and not around.stall:
            assert on, "overcommit is off, but the port never was late"
        before, after = ("on" if each else "off" for each in (rig.overcommits, on))
        rig.seen.sample("overcommit", before=before, port=port, after=after)
        lost, received.lost = received.lost, []
        if lost:
            await self._quarantine()
            self._monitor.forget()
        rig.overcommits = on
        received.lag, received.loses = PORT_LAG if on else None, False
        return lost

    def _check_block(self, lost: list[Tlp]) -> None:
        """The core has reported all errors to the block, and no others.

        A read of which a completion was `lost` has ended by either; and what nobody had asked for
        may be lost, too.
        """
        rig, device = self._rig, self._rig.device
        for kind, count in device.pauses.items():
            if count:
                rig.seen.sample("pause", kind=kind)
        device.pauses.clear()
        if lost:
            reported = device.unexpected or device.timeouts
            assert reported or all(tlp.tag >= FIVE_BIT_TAGS for tlp in lost), (
                f"{len(lost)} completions were lost, and no error was reported"
            )
            device.unexpected = device.timeouts = 0
            return
        assert device.unexpected == rig.unexpected, (
            f"{device.unexpected} unexpected completions, {rig.unexpected} were sent"
        )
        assert device.timeouts == rig.timeouts, (
            f"{device.timeouts} completion timeouts, expected {rig.timeouts}"
        )
        device.unexpected = device.timeouts = 0

    async def _check_interrupts(self, episode: Episode) -> None:
        """No interrupt without an event, none left over."""
        rig = self._rig
        for engine in episode.engines:
            events = sum(
                sum(piece.completed for piece in run.pieces[:-1]) + 1
                for run in engine.runs
                if run.notice == "interrupt"
            )
            found = rig.interrupts[self._channel(engine)]
            assert found <= events, f"{found} interrupts of {engine} for {events} events"
        assert await rig.read(regs.IRQ, "channel_pending") == 0, "an interrupt is left over"
        assert not rig.host.intx.level, "INTA is left over"

    async def finish(self) -> None:
        """The end of the seed: nothing is owed to anybody."""
        rig = self._rig
        for channel in rig.channels:
            await channel.write("control", CONTROL_STOP)
        for completer in rig.completers:
            await completer.release_withheld()
        await self._quarantine()
        await rig.finish()

    async def _quarantine(self) -> None:
        """Wait until no tag is in quarantine."""
        for _ in range(_QUARANTINE_US // 20):
            if not await self._rig.read(regs.EXTENSION, "quarantined"):
                return
            await Timer(20, "us")
        raise AssertionError(f"tags are in quarantine after {_QUARANTINE_US} us")
