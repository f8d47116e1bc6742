# SPDX-License-Identifier: BSD-2-Clause
"""The campaign finds what it has to find, does the same again, and says what it has seen."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import secrets
import shlex
import signal
import subprocess
import sys
import zlib
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cocotbext.pcie.core.tlp import Tlp, TlpType

from hw.endpoint import DEFAULT_ADAPTER
from hw.pcie.adapters import ADAPTERS
from peerdma import regs
from peerdma.regs import ErrorKind, LaunchStatus
from peerdma.testing import pattern
from sim.benches.model import SEAMS
from sim.benches.series7 import CLOCK_NS, PORT_LAG
from sim.campaign import __main__ as command
from sim.campaign import draw as drawing
from sim.campaign import session
from sim.campaign.copies import CopyWatch
from sim.campaign.coverage import Coverage, Exclusion, Group, band
from sim.campaign.drain import Drain
from sim.campaign.draw import draw
from sim.campaign.execute import SEEDS, Campaign, NoWorkers, cluster, run
from sim.campaign.faults import ARRIVES_US, release_pair
from sim.campaign.job import Job
from sim.campaign.launched import _Queue
from sim.campaign.launches import ram_of
from sim.campaign.monitor import Read
from sim.campaign.packets import Packets
from sim.campaign.plan import (
    EVERY_CORE,
    FUNCTION_RESET,
    RESETTING,
    Core,
    Piece,
    Plan,
    Queue,
    Run,
    Slot,
    Source,
    TicketFault,
)
from sim.campaign.report import Record
from sim.campaign.scoreboard import CardRam, FramePair, Pair, Scope, check_either
from sim.campaign.slots import LaunchSlot, Part
from sim.campaign.table import BLOCKS, GROUPS, LATE_PORT, TICKET_PLACES, WAYS
from sim.compile.tools import ROOT
from sim.copies import Edit, environment, private_copy
from sim.mutants import MUTANTS

#: Bound of a command, in seconds; models may have to be built first.
LIMIT = 600


def start(checkout: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start ``python -m sim.campaign`` of a checkout; both of its streams are in `stdout`.

    The environment has the SEED of something else, which it must not heed.
    """
    other = str(secrets.randbits(20))
    return subprocess.Popen(
        [sys.executable, "-m", "sim.campaign", *arguments],
        cwd=checkout,
        env={**environment(checkout), "SEED": other},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def campaign(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m sim.campaign`` as `start` does."""
    with start(checkout, *arguments) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, said)


# Seeds --------------------------------------------------------------------------------------


def number_for(core: Core, seeds: int = 1) -> int:
    """A campaign whose first seeds have this core, which has to be compiled then; from SEED on."""
    first = int(os.environ.get("SEED") or secrets.randbits(20))
    print(f"SEED={first}")

    def has(number: int) -> bool:
        at = number * SEEDS
        return all(draw(seed, 1).machine.core == core for seed in range(at, at + seeds))

    return next(number for number in itertools.count(first) if has(number))


def test_a_replay_is_the_same_run(tmp_path: Path):
    """Of 256 bits, without an adapter."""
    number = number_for(Core("pass", 1, "seam-256"))
    output = tmp_path / "record.json"
    few = ("--episodes", "3")
    done = campaign(
        ROOT, "run", "--seed", str(number), "--seeds", "1", *few, "--output", str(output)
    )
    assert done.returncode == 0, done.stdout
    seed = str(number * SEEDS)
    digest = json.loads(output.read_text())["seeds"][seed]["digest"]
    again = campaign(ROOT, "replay", seed, *few, "--no-waves")
    assert again.returncode == 0, again.stdout
    assert f"seed {seed} passed; TLPs {digest[:20]};" in again.stdout
    seen = json.loads(output.read_text())["counts"]
    assert seen["width: width = 256"] and "width: width = 64" not in seen


def test_models_that_take_all_the_time_leave_some_for_seeds(tmp_path: Path, monkeypatch):
    given = []
    monkeypatch.setattr(command.bundle, "make", lambda cores: b"")
    monkeypatch.setattr(command.execute, "run", lambda site, what, done: given.append(what))
    command.main(["run", "--seconds", "0", "--output", str(tmp_path / "record.json")])
    assert given[0].seconds > 0


def test_an_interrupt_loses_nothing(tmp_path: Path):
    output = tmp_path / "record.json"
    number = number_for(Core("pass", 1, "series7"), seeds=2)
    few = ("--episodes", "2", "--cores", "1", "--seeds", "2", "--seconds", str(LIMIT))
    with start(ROOT, "run", "--seed", str(number), *few, "--output", str(output)) as process:
        assert process.stdout
        before = next(line for line in process.stdout if " passed, " in line)
        # As a terminal does it: to all of its processes.
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, before + said
    assert f"record: {output}" in said
    assert json.loads(output.read_text())["seeds"][str(number * SEEDS)]["passed"]


def suits(plan: Plan, kind: str) -> bool:
    """Whether a plan has a read for card RAM that fails so; for no kind any plan does."""
    runs = (run for episode in plan.episodes for engine in episode.engines for run in engine.runs)
    faults = [(run.fault, run.pieces[run.fault.index]) for run in runs if run.fault]
    return not kind or any(
        fault.kind == kind and fault.place == "data" and piece.card is not None
        for fault, piece in faults
    )


@pytest.mark.parametrize(
    ("mutant", "kind"), [("interrupt before the data", ""), ("poisoned data is good", "poisoned")]
)
def test_bugs_are_found(mutant, kind, tmp_path, monkeypatch):
    """Planted in a copy, each shows within a few seeds; the replay's command is there."""
    checkout = private_copy(tmp_path)
    next(one for one in MUTANTS if one.name == mutant).apply(checkout)
    one = (Core("pass", 1, "series7"),)
    behind = "#: Disturbances that empty all pairs.\n"
    edit = Edit("one core", "sim/campaign/plan.py", behind, f"CORES = {one}\n{behind}")
    edit.apply(checkout)
    monkeypatch.setattr(drawing, "CORES", one)
    number = next(
        n
        for n in range(2000)
        if suits(draw(n * SEEDS, 4), kind)
        and not any(draw(n * SEEDS + seed, 4).machine.core.overcommit for seed in range(3))
    )
    arguments = ("--seed", str(number), "--seeds", "3", "--episodes", "4", "--seconds", str(LIMIT))
    done = campaign(
        checkout, "run", *arguments, "--cores", "1", "--output", str(tmp_path / "record.json")
    )
    assert done.returncode == 1, done.stdout
    assert re.search(r"seed \d+ FAILED", done.stdout)
    failed = re.search(r"FAILED seed (\d+); again with waveforms: (.+)", done.stdout)
    assert failed, done.stdout
    python = shlex.quote(sys.executable)
    assert failed[2] == f"{python} -m sim.campaign replay {failed[1]} --episodes 4"


def test_each_core_of_a_seed_can_be_made():
    """What a plan says of its machine is what is compiled for it."""
    drawn = {machine.core: machine for machine in (draw(seed, 1).machine for seed in range(200))}
    assert set(drawn) == set(EVERY_CORE)
    for core, machine in drawn.items():
        pcie = core.pcie
        block = SEAMS[pcie] if pcie in SEAMS else ADAPTERS[pcie].block
        assert machine.width == block.width
        assert machine.ours == (pcie in SEAMS or pcie == DEFAULT_ADAPTER.name)
        assert machine.block in BLOCKS
        # The contract of the receive port is that of one lane.
        assert machine.lanes == 1 or not core.overcommit


def test_ports_are_late_once_in_an_episode_and_only_of_a_core_with_overcommit():
    plans = [draw(seed, 20) for seed in range(100)]
    late = 0
    for plan in plans:
        for episode in plan.episodes:
            disturbance, around = episode.disturbance, episode.surroundings
            assert (1 < around.port_lag <= PORT_LAG) is plan.machine.core.overcommit
            if disturbance and disturbance.kind == LATE_PORT:
                late += 1
                assert plan.machine.core.overcommit
                assert disturbance.pause_ns >= PORT_LAG * CLOCK_NS
                assert not episode.hold
    assert late


def test_functions_are_reset_only_behind_blocks_that_do_that():
    plans = [draw(seed, 20) for seed in range(100)]
    kinds = {
        (episode.disturbance.kind == FUNCTION_RESET, plan.machine.block in RESETTING)
        for plan in plans
        for episode in plan.episodes
        if episode.disturbance
    }
    assert kinds == {(True, True), (False, True), (False, False)}


def test_plans_are_possible_and_repeat():
    for seed in range(60):
        plan = draw(seed, 28)
        assert plan == draw(seed, 28)
        assert 28 <= len(plan.episodes) <= 29 + 2 * plan.machine.core.overcommit
        for episode in plan.episodes:
            runs = [run for engine in episode.engines for run in engine.runs]
            assert sum(run.fault is not None for run in runs) <= 1
            for run_ in runs:
                assert sum(run_.blocks) == len(run_.pieces) > 0
                assert max(run_.blocks) <= 64
                assert run_.pushes <= regs.PUSH_DESCRIPTORS
                for piece in run_.pieces:
                    inside = piece.card is None or piece.card + piece.size <= regs.CARD_RAM_SIZE
                    assert inside or run_.fault.kind == "decode"


def pieces_of(queue: Queue) -> list[Piece]:
    return [piece for slot in queue.slots for piece in (*slot.pieces, *slot.out)]


def test_launched_copies_are_where_software_keeps_nothing():
    """And tickets use other card RAM than software's runs and other queues do."""
    plans = [draw(seed, 20) for seed in range(60)]
    assert {plan.machine.core.launch_queues for plan in plans} == {0, 1, 2}
    episodes = [episode for plan in plans for episode in plan.episodes if episode.queues]
    assert {episode.disturbance is None for episode in episodes} == {True, False}
    for episode in episodes:
        engines = {(engine.c2h, engine.number): engine.runs for engine in episode.engines}
        copied = {slot.number for queue in episode.queues for slot in queue.slots if slot.out}
        copying = {each.number: each.steps for each in episode.copying}
        for number in copied - set(copying):
            runs = [*engines.get((False, number), ()), *engines.get((True, number), ())]
            assert not any(one.streamed for one in runs)
        for number, steps in copying.items():
            left = [list(engines.get((c2h, number), ())) for c2h in (False, True)]
            for step in steps:
                moved = [left[way].pop(0).streamed for way in (0, 1) if step in ("copy", WAYS[way])]
                assert moved[0] == moved[-1] and (step == "copy" or not moved[0])
            assert left == [[], []]
        areas = [ram_of(queue.number) for queue in episode.queues]
        for queue, area in zip(episode.queues, areas, strict=True):
            assert all(len(batch.slots) <= queue.entries for batch in queue.batches)
            for piece in pieces_of(queue):
                inside = piece.card in area and piece.card + piece.size <= area.stop
                assert piece.card is None or inside or not piece.size
        runs = [one for runs in engines.values() for one in runs]
        for piece in (piece for one in runs for piece in one.pieces):
            if piece.card is not None and piece.size:
                used = range(piece.card, min(piece.card + piece.size, regs.CARD_RAM_SIZE))
                assert not any(used.start < area.stop and area.start < used.stop for area in areas)


def test_copies_that_overlap_take_what_they_send_and_something_is_left_before_some():
    """Their halves have the same length, and nothing between them changes bytes. What is left is
    where nobody takes it but a launched copy drops it."""
    plans = [draw(seed, 20) for seed in range(60) if draw(seed, 1).machine.core.launch_queues]
    drawn, stale = set(), 0
    for plan in plans:
        for episode in plan.episodes:
            slots = [slot for queue in episode.queues for slot in queue.slots]
            copies = [slot for slot in slots if slot.kind == "copy"]
            assert not copies or plan.machine.core.user == "pass"
            for slot in copies:
                drawn.add(slot.overlap)
                lengths = [sum(piece.size for piece in half) for half in (slot.pieces, slot.out)]
                assert lengths[0] == lengths[1]
                assert {piece.card for piece in (*slot.pieces, *slot.out)} == {None}
            pairs = [number for number, _ in episode.stale]
            assert set(pairs) <= {slot.number for slot in copies} - episode.streams
            assert all(0 < size <= 900 for _, size in episode.stale) and sorted(pairs) == pairs
            stale += len(pairs)
    assert drawn == {False, True} and stale


def test_packets_are_where_software_takes_nothing_and_nothing_goes_wrong():
    seeds = [seed for seed in range(200) if draw(seed, 1).machine.core.receives]
    plans = [draw(seed, 20) for seed in seeds]
    episodes = [episode for plan in plans for episode in plan.episodes if episode.sources]
    assert {episode.disturbance is None for episode in episodes} == {True, False}
    for episode in episodes:
        sources = {source.number: source for source in episode.sources}
        for engine in episode.engines:
            if engine.number in sources:
                assert not any(one.streamed or one.fault for one in engine.runs)
        if episode.disturbance:
            assert not {number for _, number in episode.disturbance.victims} & set(sources)
        for slot in (slot for queue in episode.queues for slot in queue.slots):
            if slot.kind == "packet":
                assert slot.number in sources and slot.pieces[-1].size == 32
                assert len(slot.pieces) > 1 and all(piece.size for piece in slot.pieces)


# Who runs them ------------------------------------------------------------------------------


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr("sim.campaign.execute._JOIN_SECONDS", 1)
    with pytest.raises(NoWorkers, match="no Dask scheduler with workers at tcp://127"):
        cluster(b"", "tcp://127.0.0.1:1").__enter__()


class Vain:
    """A site all of whose workers are lost, with what they had."""

    def __init__(self):
        self.tries = 0
        self.executor, self.run_seed, self.bundle, self.arguments = self, None, b"", ()

    def slots(self) -> int:
        """One at a time."""
        return 1

    def submit(self, *_):
        """It comes to nothing."""
        self.tries += 1
        future: Future = Future()
        future.set_exception(OSError("worker lost"))
        return future


def test_a_seed_is_tried_again_but_not_for_ever():
    site = Vain()
    with pytest.raises(OSError, match="worker lost"):
        run(site, Campaign(1, 10, seeds=1), print)
    assert site.tries == 3


# Scoreboard ---------------------------------------------------------------------------------


def test_card_ram_knows_what_it_may_hold():
    ram = CardRam()
    ram.write(10, b"abcd")
    ram.maybe(11, b"XY")
    assert ram.allowed(11) == {ord("b"), ord("X")}
    ram.expect(10, b"aXcd")
    # What was read is settled.
    with pytest.raises(AssertionError, match="card RAM at 0xb, byte 1 of 4"):
        ram.expect(10, b"abcd")
    with pytest.raises(AssertionError, match="found 0x7a"):
        ram.expect(10, b"aXcz")
    ram.maybe(12, b"??")
    ram.write(12, b"!!")
    assert ram.allowed(12) == {ord("!")}


def test_what_was_interrupted_is_old_or_new():
    ram = CardRam()
    ram.write(0, b"new!")
    check_either("it", b"newd", b"gold", ram.options(0, 4))
    with pytest.raises(AssertionError, match="byte 2 is 0x78, neither"):
        check_either("it", b"nexd", b"gold", ram.options(0, 4))


def test_a_pair_hands_on_in_order():
    pair = Pair()
    pair.send(b"abc")
    assert pair.bytes_at(pair.take(2), 2, b"??") == b"ab"
    assert pair.left == 1
    assert pair.bytes_at(pair.take(2), 2, b"??") == b"c"


def test_a_source_hands_on_frames_with_their_records():
    pair = FramePair()
    pair.seed, pair.nbytes, pair.records = 5, 40, True
    frames = [pattern.fill_bytes(seed, 0, 40).tobytes() for seed in (5, 6)]
    data = pair.bytes_at(pair.take(112), 112, 112 * b"?")
    assert (data[:40], data[72:]) == (frames[0], frames[1])
    record = np.frombuffer(data[40:72], regs.FRAME_RECORD)[0]
    # Time cannot be known.
    assert record["cycles"].tobytes() == record["reserved"].tobytes() == 8 * b"?"
    rest = [int(record[name]) for name in ("bytes", "dropped", "crc", "number")]
    assert rest == [40, 0, zlib.crc32(frames[0]), regs.FRAME_NUMBER_VALID]
    second = np.frombuffer(pair.bytes_at(pair.take(32), 32, bytes(32)), regs.FRAME_RECORD)[0]
    assert second["number"] == regs.FRAME_NUMBER_VALID | 1
    pair.empty()
    assert pair.bytes_at(pair.take(4), 4, b"????") == frames[0][:4]


LAST = {
    "list": "unsupported request",
    "flush": "poisoned",
    "slot": "not valid",
    "head": "magic",
}
FAILS, OK, FLUSHED, ABORTED = "fails", *(LaunchStatus[n] for n in ("OK", "FLUSHED", "ABORTED"))


@pytest.mark.parametrize(
    ("place", "overlap", "records", "good"),
    [
        ("list", 0, (OK, FAILS, FLUSHED, FLUSHED), True),
        ("list", 0, (OK, OK), True),
        # One has failed before, none is to fail, or is not started.
        ("list", 0, (FLUSHED,), False),
        ("list", 0, (ABORTED,), False),
        ("list", 0, (OK, FAILS, OK), False),
        ("list", 0, (OK, FAILS, FAILS), False),
        ("slot", 1, (OK, FAILS, ABORTED), False),
        ("head", 1, (OK, FAILS, *6 * (ABORTED,), FLUSHED), True),
        ("head", 0, (OK, FAILS, ABORTED), False),
        ("head", 1, (FAILS, OK), False),
        ("list", 0, (OK, FAILS, ABORTED), False),
        ("list", 1, (OK, FAILS, *6 * (ABORTED,), FLUSHED), True),
        ("list", 1, (OK, FAILS, *7 * (ABORTED,)), False),
        ("list", 1, (OK, FAILS, FLUSHED, ABORTED), False),
        # Its run has ended well.
        ("flush", 0, (FAILS, OK, FLUSHED), True),
        ("flush", 0, (FAILS, FAILS, FLUSHED), True),
        ("flush", 0, (FAILS, OK, OK), False),
        ("flush", 0, (FAILS, FLUSHED, OK), False),
        ("flush", 1, (FAILS, *7 * (OK,), FLUSHED), True),
        ("flush", 1, (FAILS, *8 * (OK,)), False),
        ("flush", 1, (FAILS, ABORTED), False),
    ],
)
@pytest.mark.parametrize("ways", [(True,), (False, True)])
def test_what_becomes_of_tickets_behind_one_that_fails(place, overlap, records, good, ways):
    """Those of one channel, or copies."""
    channels = {(c2h, 0) for c2h in ways}
    slots = [SimpleNamespace(good=OK, overlaps=bool(overlap), channels=channels) for _ in range(2)]
    drain = Drain(TicketFault(LAST[place], place, 0, 0, False), slots[0])
    status = {"list": 3, "flush": 5, "slot": LaunchStatus.SLOT, "head": ErrorKind.MAGIC}[place]
    with nullcontext() if good else pytest.raises(AssertionError, match="has status"):
        for record in records:
            mine = record is FAILS
            drain.record(slots[not mine], status if mine else record)
        moved = [moved for _, moved in drain.moves]
        fails = {"flush": "all", "slot": "none"}.get(place, "some")
        means = {FAILS: fails, OK: "all", FLUSHED: "none", ABORTED: "some"}
        assert moved == [means[record] for record in records]


def test_a_copy_does_not_overlap_a_job_of_one_of_its_channels():
    copy, job = (
        SimpleNamespace(good=OK, overlaps=True, channels=channels)
        for channels in ({(False, 0), (True, 0)}, {(True, 0)})
    )
    drain = Drain(TicketFault(LAST["list"], "list", 0, 0, False), copy)
    drain.record(copy, 3)
    drain.record(copy, ABORTED)
    with pytest.raises(AssertionError, match="has status"):
        drain.record(job, ABORTED)


def slot_of(kind: str, size: int, overlap: bool, pair: int = 0) -> LaunchSlot:
    """One with so many bytes each way, and its first ticket of a batch."""
    rig = SimpleNamespace(rng=random.Random(1), memory=lambda *_: None, scope=Scope())
    piece = Piece(size, "low", 0, None)
    slot = LaunchSlot(rig, Slot(kind, pair, (piece,), (piece,), False, False, "off", overlap), 0)
    slot.reads, slot.writes = (
        [Part(piece, SimpleNamespace(name="", address=0, size=0))] for _ in range(2)
    )
    return slot


@pytest.mark.parametrize(
    ("kinds", "asked", "written", "at_once"),
    [
        # Copies of 8 bytes with the bit and without it (upper case: with it).
        ("CC", 8, 4, 1),
        ("CC", 12, 4, 2),
        ("CCC", 24, 4, 3),
        # Of the oldest one all is there.
        ("CCC", 24, 8, 2),
        ("cc", 8, 4, 1),
        ("cc", 16, 8, 1),
        ("cc", 12, 7, None),
        ("Cc", 12, 7, None),
        ("cC", 12, 7, None),
        ("ChC", 16, 4, None),
        ("CHC", 16, 4, None),
        # Of another pair.
        ("CD", 16, 4, None),
    ],
)
def test_which_copies_may_be_under_way_at_once(kinds, asked, written, at_once):
    kinds_of = {"c": "copy", "d": "copy", "h": "h2c"}
    made = {
        kind: slot_of(kinds_of[kind.lower()], 8, kind.isupper(), kind in "dD") for kind in kinds
    }
    slots = [made[kind] for kind in kinds]
    for slot in made.values():
        slot.begin(slots.count(slot))
    watch = CopyWatch(slots)
    copies = [slot for slot in slots if slot.plan.kind == "copy"]
    for moved, way in ((asked, "reads"), (written, "writes")):
        for slot in copies:
            part = getattr(slot, way)[0]
            part.span.left -= min(moved, 8)
            moved -= min(moved, 8)
    with nullcontext() if at_once else pytest.raises(AssertionError, match="has begun before"):
        copies[0].writes[0].span.heard(None)
        assert watch.at_once == at_once


def test_faults_of_tickets_are_where_they_can_be():
    plans = [draw(seed, 20) for seed in range(60) if draw(seed, 1).machine.core.launch_queues]
    episodes = [episode for plan in plans for episode in plan.episodes]
    faults = [
        (episode, queue, queue.fault)
        for episode in episodes
        for queue in episode.queues
        if queue.fault
    ]
    assert {fault.place for *_, fault in faults} >= {*TICKET_PLACES, "ring"}
    for episode, queue, fault in faults:
        assert queue.cut_ns is None
        batch = queue.batches[fault.batch]
        if fault.place == "ring":
            assert fault.index < len(batch.slots)
            continue
        assert fault.index in batch.slots
        slot = queue.slots[fault.index]
        assert fault.place != "flush" or slot.flush
        assert fault.place != "data" or slot.kind in ("h2c", "copy")
        assert fault.place != "shadow" or queue.polls
        # Its run may flush the pair.
        kept = episode.streams | {source.number for source in episode.sources}
        assert fault.place not in ("list", "data", "head") or slot.number not in kept
        assert fault.place != "head" or slot.kind != "packet"
    for episode in episodes:
        wrong = episode.disturbance or any(engine.runs[0].fault for engine in episode.engines)
        failing = sum(queue.fault is not None for queue in episode.queues)
        assert failing <= (0 if wrong else 1)


def packets_of(pair: FramePair, write=None) -> Packets:
    pair.seed, pair.nbytes, pair.records = 5, 40, True
    rig = SimpleNamespace(pairs=[pair], rng=random.Random(1), write=write)
    return Packets(rig, Source(0, 10, 0, ()))


@pytest.mark.parametrize(
    ("numbers", "ended", "good"),
    [
        ((0, 1, 2), False, True),
        # One is lost, one is there twice, and one begins anew though nothing was ended.
        ((0, 2), False, False),
        ((0, 1, 1), False, False),
        ((0, 1, 0), False, False),
        ((0, 1, 0, 1), True, True),
        ((0, 1, 1), True, False),
    ],
)
def test_packets_come_in_order_each_once(numbers, ended, good):
    packets = packets_of(FramePair())
    packets.may_restart = ended
    for number in numbers[:-1]:
        packets.take(packets.pair.record(number)[0])
    with nullcontext() if good else pytest.raises(AssertionError, match="comes, not"):
        packets.take(packets.pair.record(numbers[-1])[0])
        assert packets.next == numbers[-1] + 1
    with pytest.raises(AssertionError, match="the record of packet"):
        packets.take(packets.pair.record(packets.next)[0].replace(bytes((40,)), bytes((41,))))


#: Ends of which it is known that the pair was flushed, that it was not, and neither.
EMPTIED, KEPT, OPEN = False, True, None


@pytest.mark.parametrize(
    ("before", "ends", "behind", "firsts"),
    [
        ((0, 1, 2), (), (), {3}),
        ((0, 1, 2), (KEPT,), (), {3}),
        ((0, 1, 2), (EMPTIED,), (), {0}),
        ((0, 1, 2), (OPEN,), (), {0, 3}),
        # Others have taken packets behind the end.
        ((0, 1, 2), (KEPT,), (3,), {4}),
        ((0, 1, 2), (EMPTIED,), (0,), {1}),
        ((0, 1, 2), (OPEN,), (0,), {1}),
        ((0, 1, 2), (OPEN,), (3,), {0, 4}),
        ((0, 1, 2), (OPEN, OPEN), (0,), {0, 1}),
        ((0, 1, 2), (EMPTIED, OPEN), (0,), {0, 1}),
        # Whether these are from before the flush does not show.
        ((), (EMPTIED,), (0, 1), {0, 2}),
        ((), (KEPT,), (0, 1), {2}),
    ],
)
def test_what_a_source_holds_behind_ends(before, ends, behind, firsts):
    """It was flushed where that is known, or where it may have been; not in part."""

    async def write(*_, **__) -> None:
        """There are no registers."""

    for first in range(6):
        pair = FramePair()
        packets = packets_of(pair, write)
        for number in before:
            packets.take(pair.record(number)[0])
        for known in ends:
            packets.expect_end()
            packets.end(known)
        for number in behind:
            packets.take(pair.record(number)[0])
        with pytest.raises(StopIteration):
            packets.finish().send(None)
        assert not pair.unknown
        size = pair.packet + 7
        frames = [pair.frame(number) + pair.record(number)[0] for number in (first, first + 1)]
        found = b"".join(frames)
        good = pair.bytes_at(pair.take(size), size, found[:size]) == found[:size]
        assert good == (first in firsts)
        if good:
            # From then on all is known.
            rest = found[size:]
            assert pair.bytes_at(pair.take(len(rest)), len(rest), rest) == rest
            assert pair.bytes_at(pair.take(40), 40, bytes(40)) == pair.frame(first + 2)


LIST = range(0x1000, 0x1000 + 3 * 32, 32)


@pytest.mark.parametrize(
    ("descriptors", "overlap", "reads", "written", "known"),
    [
        (LIST, False, [(0x1000, 64)], 8, False),
        (LIST, False, [(0x1000, 64), (0x1040, 32)], 8, None),
        (LIST, False, [(0x1000, 96)], 8, None),
        # The last descriptor is at work.
        (LIST, False, [(0x1000, 96)], 9, True),
        (LIST, True, [(0x1000, 64)], 8, None),
        (LIST, True, [(0x1000, 96)], 9, None),
        # Its only one is in the slot.
        ((), False, [], 8, None),
        ((), False, [], 12, True),
    ],
)
def test_what_shows_of_a_list(descriptors, overlap, reads, written, known):
    """Of the third of four tickets of a slot, which is aborted."""
    rig = SimpleNamespace(rng=random.Random(1), memory=lambda *_: None, scope=Scope())
    pieces = (Piece(20, "low", 0, 0), Piece(4, "low", 0, 20))
    slot = LaunchSlot(rig, Slot("c2h", 0, pieces, (), False, False, "off", overlap), 0)
    slot.writes = [Part(piece, SimpleNamespace(name="", address=0, size=0)) for piece in pieces]
    slot.descriptors = list(descriptors)
    slot.begin(4)
    for at, size in ([(0x1000, 96)] * 2 if descriptors else []) + reads:
        slot._list_read(request(TlpType.MEM_READ, at, size))
    slot.recorded = 3
    slot.writes[-1].span.left -= written
    assert slot.known is known


@pytest.mark.parametrize(("tickets", "waited_us"), [(1, 0), (2, ARRIVES_US)])
def test_the_last_done_word_of_a_batch_has_come_before_the_next_batch(tickets, waited_us):
    """Though memory has the same word already, of a ticket before."""
    word, waited = SimpleNamespace(address=0), []
    rig = SimpleNamespace(rng=random.Random(1), memory=lambda *_: word, scope=Scope())
    slot = LaunchSlot(rig, Slot("c2h", 0, (), (), False, False, "host", False), 0)
    slot.begin(tickets)
    slot.recorded = tickets
    written = SimpleNamespace(get_data=lambda: (1).to_bytes(4, "little"))
    for _ in range(tickets):
        slot._done(written)
    word.data = written.get_data()

    async def pause(ns):
        waited.append(ns)

    with pytest.raises(StopIteration):
        slot.expect_done(pause).send(None)
    assert sum(waited) == 1000 * waited_us


def test_plans_leave_the_h2c_side_of_sources_alone():
    plans = [draw(seed, 20) for seed in range(40)]
    sources = [plan for plan in plans if plan.machine.core.user == "pattern"]
    assert 0 < len(sources) < len(plans)
    runs = [
        (engine, run)
        for plan in sources
        for episode in plan.episodes
        for engine in episode.engines
        for run in engine.runs
    ]
    assert {engine.c2h for engine, run in runs if run.streamed} == {True}


def ended(way: str, **differs) -> SimpleNamespace:
    """A job of a pair that ended by an error, as far as what it leaves there is concerned."""
    job = SimpleNamespace(finished=False, breaks=True, moment="", asked_ns=10, closed_ns=20)
    job.channel = SimpleNamespace(c2h=way == "c2h")
    vars(job).update(differs)
    return job


GOOD = {"finished": True, "breaks": False}


@pytest.mark.parametrize(
    ("jobs", "known"),
    [
        ([ended("h2c")], True),
        ([ended("c2h")], True),
        ([ended("c2h"), ended("h2c")], True),
        # Whether all of its list had come is not known.
        ([ended("h2c", breaks=False)], False),
        ([ended("c2h", breaks=False), ended("h2c")], True),
        # H2C came to its good end: begun before software had seen the failure, or behind it.
        ([ended("c2h"), ended("h2c", **GOOD)], True),
        ([ended("c2h"), ended("h2c", **GOOD, asked_ns=20)], False),
        ([ended("h2c", **GOOD), ended("c2h", **GOOD)], False),
    ],
)
def test_what_a_pair_holds_after_an_end(jobs, known):
    pair = Pair()
    pair.send(b"sent")
    release_pair(SimpleNamespace(seen=Coverage(GROUPS)), pair, jobs)
    assert pair.unknown != known
    assert pair.left == (0 if known else 4)


def test_a_run_has_begun_when_it_asks_for_something():
    """Not with Run: until then a launch queue may have had its channel."""
    memory = SimpleNamespace(name="memory", address=0x1000, size=8, data=bytes(8))
    rig = SimpleNamespace(scope=Scope(), memory=lambda *_: memory, transfer=lambda *_: None)
    rig.pairs = [Pair()]
    rig.chain = lambda *_, **__: SimpleNamespace(blocks=[(0x2000, 1)])
    planned = Run((Piece(8, "low", 0, None),), (1,), False, False, "status", "off", False, 0)
    job = Job(rig, SimpleNamespace(c2h=False, number=0), planned, None)
    job.prepare()
    assert not job.asked_ns
    for now, at, size in ((70, 0x2000, 32), (90, 0x1000, 8)):
        rig.now_ns = lambda now=now: now
        rig.scope.listen("up", request(TlpType.MEM_READ, at, size))
    assert job.asked_ns == 70


@pytest.mark.parametrize(
    ("pair", "known", "unknown"),
    [
        (FramePair(), True, False),
        (FramePair(), False, True),
        (FramePair(), None, True),
        # Others hold nothing then.
        (Pair(), False, False),
    ],
)
def test_a_ticket_that_was_ended_makes_its_source_begin_anew(pair, known, unknown):
    """Of a source that no ticket takes packets of."""
    queue = SimpleNamespace(_rig=SimpleNamespace(pairs=[pair]), _packets={})
    slot = SimpleNamespace(plan=SimpleNamespace(number=0), known=known)
    _Queue._run_ended(queue, slot)
    assert pair.unknown == unknown


def test_a_source_holds_nothing_of_h2c():
    pair = FramePair()
    release_pair(SimpleNamespace(seen=Coverage(GROUPS)), pair, [ended("h2c")])
    assert not pair.unknown


class Carried:
    """A job that comes to its good end at once; what C2H takes is not more than was sent."""

    def __init__(self, rig, channel, run, episode):
        self._pair, self._c2h, self._size = rig.pairs[0], channel == "C2H 0", run.streamed

    def prepare(self) -> None:
        """There is no memory."""

    async def begin(self) -> None:
        """Tell the pair."""
        if self._c2h:
            self._pair.take(self._size)
        else:
            self._pair.send(bytes(self._size))

    async def wait(self) -> None:
        """C2H would wait for bytes that do not come."""
        assert self._pair.left >= 0

    async def expect_good(self, after: str) -> None:
        """It is."""


@pytest.mark.parametrize("left", [0, 513])
def test_a_copy_behind_what_went_wrong_leaves_what_later_episodes_take(left, monkeypatch):
    monkeypatch.setattr(session, "Job", Carried)
    pair = Pair()
    pair.send(bytes(left))
    rig = SimpleNamespace(
        rng=random.Random(1),
        pairs=[pair],
        channels=["H2C 0", "C2H 0"],
        channels_each_way=1,
        seen=SimpleNamespace(sample=lambda *_, **__: None),
        machine=SimpleNamespace(core=SimpleNamespace(user="pass")),
    )
    with pytest.raises(StopIteration):
        session._Session(rig, None)._copy(None, 0).send(None)
    assert pair.left == left


def test_packets_are_taken_until_it_shows_whether_a_source_was_flushed(monkeypatch):
    class Taker(Carried):
        async def wait(self) -> None:
            """A source has as many bytes as are asked for."""

    monkeypatch.setattr(session, "Job", Taker)
    pair = FramePair()
    packets_of(pair)
    pair.nbytes = 2000
    rig = SimpleNamespace(
        rng=random.Random(1), pairs=[pair], channels=["H2C 0", "C2H 0"], channels_each_way=1
    )
    for kept in (False, True):
        pair.empty()
        if kept:
            pair.skip_or_empty(3)
        with pytest.raises(StopIteration):
            session._Session(rig, None)._copy(None, 0).send(None)
        assert (-pair.left >= pair.packet) is kept


def request(kind: TlpType, address: int, size: int) -> Tlp:
    tlp = Tlp()
    tlp.fmt_type = kind
    tlp.set_addr_be(address, size)
    return tlp


def test_the_card_may_touch_what_it_was_given():
    scope = Scope()
    heard = []
    span = scope.allow("it", 0x1001, 6, write=True, heard=heard.append)
    scope.listen("up", request(TlpType.MEM_WRITE, 0x1001, 6))
    assert (span.left, span.touched, len(heard)) == (0, True, 1)
    for bad in (
        request(TlpType.MEM_WRITE, 0x1001, 7),
        request(TlpType.MEM_WRITE, 0x1000, 2),
        request(TlpType.MEM_READ, 0x1001, 6),
    ):
        with pytest.raises(AssertionError, match="not, or no longer, its to use"):
            scope.listen("up", bad)
    scope.listen("down", request(TlpType.MEM_WRITE, 0, 1))
    scope.revoke([span])
    with pytest.raises(AssertionError, match="the core writes to 0x1001 to 0x1007"):
        scope.listen("up", request(TlpType.MEM_WRITE, 0x1001, 6))


def completion(size: int, left: int, at: int) -> Tlp:
    tlp = Tlp()
    tlp.fmt_type = TlpType.CPL_DATA
    tlp.byte_count, tlp.lower_address = left, at & 0x7F
    tlp.length = -(-(at % 4 + size) // 4)
    return tlp


def test_completions_that_fit_are_those_of_a_read():
    def read() -> Read:
        return Read("host", 1, 0x1_0FE2, 40)

    mine = read()
    assert mine.take(completion(30, 40, 0xFE2))
    assert (mine.left, mine.completions) == (10, 1)
    assert mine.take(completion(10, 10, 0x1000))
    assert (mine.left, mine.completions) == (0, 2)
    for size, left, at in ((40, 40, 0xFE6), (40, 41, 0xFE2), (44, 40, 0xFE2)):
        assert not read().take(completion(size, left, at)), (size, left, at)


# Coverage -----------------------------------------------------------------------------------

SMALL = (
    Group(
        "g",
        {"a": ("1", "2"), "b": ("x", "y")},
        (("a", "b"),),
        (Exclusion("twos have no y", {"a": ("2",), "b": ("y",)}),),
    ),
)


def test_holes_are_named_and_the_impossible_is_none():
    seen = Coverage(SMALL)
    seen.sample("g", a=1, b="x")
    seen.sample("g", a=2)
    assert [(hole.item, hole.bins) for hole in seen.holes()] == [
        ("g: b", ("y",)),
        ("g: a × b", ("1, y", "2, x")),
    ]
    with pytest.raises(ValueError, match="2, y was seen, but twos have no y"):
        seen.sample("g", a=2, b="y")
    with pytest.raises(ValueError, match="no bin of the table"):
        seen.sample("g", a=3)
    with pytest.raises(ValueError, match="another table"):
        seen.merge({"g: a = 9": 1})
    more = Coverage(SMALL, seen.counts)
    more.sample("g", a=1, b="y")
    assert more.counts["g: a = 1"] == 2


def test_bands():
    assert [band(n, ("0", "1-3", "4+")) for n in (0, 1, 3, 4, 99)] == [
        "0",
        "1-3",
        "1-3",
        "4+",
        "4+",
    ]
    with pytest.raises(ValueError, match="none of the bins"):
        band(5, ("1-3",))


def test_every_exclusion_excludes_something():
    for group in GROUPS:
        bins = [
            dict(zip(item, name.split(", "), strict=True))
            for item in group.items()
            for name, _ in group.bins(item)
        ]
        for one in group.exclusions:
            assert any(one.covers(sample) for sample in bins), f"{group.name}: {one.reason}"


def result(seed: int, *, passed: bool = True, **counts: int) -> dict:
    return {
        "seed": seed,
        "passed": passed,
        "cpu_seconds": 1.0,
        "simulated_ns": 1000,
        "digest": "d",
        "counts": counts,
    }


def test_records_are_merged(tmp_path, capsys):
    name = "register: access = rw"
    files = []
    for number in (1, 2):
        record = Record()
        record.add(result(number, **{name: 5}))
        files.append(str(tmp_path / f"{number}.json"))
        record.save(Path(files[-1]))
    assert command.main(["report", *files]) == 1
    said = capsys.readouterr().out
    assert "2 seeds, 0 failed" in said
    assert "register: access: ro; rc;" in said
    assert Record.load(map(Path, files)).coverage.counts[name] == 10
    assert command.main(["report", files[0], files[0]]) == 2
    assert "seed 1 is in another file, too" in capsys.readouterr().err


def test_a_record_without_holes_is_complete():
    record = Record()
    every = {
        f"{group.name}: {' × '.join(item)} = {name}": 1
        for group in GROUPS
        for item in group.items()
        for name, reason in group.bins(item)
        if not reason
    }
    record.add(result(1, **every))
    assert record.complete
    assert "No hole." in record.text()
    record.add(result(2, passed=False))
    assert not record.complete
    assert record.failed == [2]
