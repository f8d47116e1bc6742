# SPDX-License-Identifier: BSD-2-Clause
"""Draws the plan of a seed. Every constraint is here.

Whatever a plan asks for is possible, and its outcome is known as well as the programming interface
lets software know it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from peerdma import regs
from sim.benches.series7 import CLOCK_NS, PORT_LAG

from .launches import RAM_BYTES, Launches
from .plan import (
    CORES,
    EMPTYING,
    FUNCTION_RESET,
    OVERCOMMITTED,
    RECEIVING,
    Disturbance,
    Engine,
    Episode,
    Machine,
    Piece,
    Plan,
    PlantedFault,
    Run,
    Surroundings,
)
from .table import DISTURBANCES, FAULTS, LATE_PORT, MEMORIES, READ_FAULTS

__all__ = ["draw"]

#: Bytes that may stay in a pair between runs: fewer than its ring holds.
_LEFT_OVER = 3000
#: Bytes of an episode in one direction of one channel, at most.
_BYTES = 14_000
#: What any core can be disturbed by.
_USUAL = tuple(kind for kind in DISTURBANCES if kind not in (LATE_PORT, FUNCTION_RESET))
#: Bytes of a piece that takes more completions than there is room for.
_MANY = 4000
#: Nanoseconds for which a port pauses that is later than agreed: in which less comes than there is
#: room for, or perhaps more.
_LATE_NS = ((PORT_LAG * CLOCK_NS, 2 * PORT_LAG * CLOCK_NS), *2 * ((7000, 16_000),))
_SIZES = {
    (0, 0): 1,
    (1, 1): 2,
    (2, 3): 2,
    (4, 7): 2,
    (8, 63): 5,
    (64, 64): 2,
    (65, 511): 5,
    (512, 512): 2,
    (513, 4095): 4,
    (4096, 4096): 2,
    (4097, 9000): 1,
}


def draw(seed: int, episodes: int) -> Plan:
    """The plan of a seed that is to have so many episodes, or up to three more."""
    rng = random.Random(f"plan {seed}")
    machine = Machine(
        core=rng.choice(CORES),
        lanes=rng.choice((1, 2, 4, 4)),
        posted=(rng.choice((4, 16, 64)), rng.choice((40, 128, 1024))),
        nonposted=rng.choice((2, 8, 64)),
        completion=(rng.choice((4, 64)), rng.choice((40, 1024))),
        credit_ns=rng.choice((0, 300, 1500)),
        buffers=rng.choice((14, 15, 24, 28, 29, 30, 32)),
        ack_ns=rng.choice((0, 400, 1000, 2000)),
        buffer_lag=rng.choice((0, 0, rng.randint(1, 8))),
    )
    # By themselves, so that they change no other seed.
    if machine.core == OVERCOMMITTED and random.Random(f"overcommit {seed}").random() < 0.5:
        credits = max(machine.nonposted, 8)
        core = machine.core._replace(overcommit=True)
        machine = replace(machine, core=core, lanes=1, nonposted=credits)
    if machine.core == RECEIVING and random.Random(f"packets {seed}").random() < 0.5:
        machine = replace(machine, core=machine.core._replace(launch_queues=2))
    drawer = _Drawer(rng, random.Random(f"tickets {seed}"), machine)
    found: list[Episode] = []
    while len(found) < episodes:
        found += drawer.draw()
    return Plan(seed, machine, tuple(found))


class _Drawer:
    """Draws episodes, and knows what of them stays in the pairs."""

    def __init__(self, rng: random.Random, faults: random.Random, machine: Machine):
        self._rng = rng
        self._core = core = machine.core
        self._resets = machine.resets
        self._left = [0] * core.channels
        #: what H2C sends comes out at C2H
        self._passes = core.user == "pass"
        self._launches = Launches(rng, faults, core, self) if core.launch_queues else None
        #: card RAM that is not for launch queues
        self._ram = regs.CARD_RAM_SIZE - RAM_BYTES * bool(core.launch_queues)

    def draw(self) -> list[Episode]:
        """A good episode; or one that is disturbed or has an error, and a good one behind it.

        Of a core with overcommit also one or two in which the port is late.
        """
        rng = self._rng
        if self._core.overcommit and rng.random() < 0.35:
            # A core that was reset overcommits, and does so no more when the port is late again.
            resets = [self._disturbed(("hot reset", "link loss"))] if rng.random() < 0.6 else []
            late = [self._late() for _ in range(rng.randint(1, 2))]
            return [*resets, *late, self._good(short=True)]
        turn = rng.random()
        if turn < 0.4:
            return [self._good()]
        if turn < 0.7:
            return [self._faulty(), self._good(short=True)]
        kinds = (*_USUAL, "abort", "abort", *[FUNCTION_RESET] * 3 * self._resets)
        return [self._disturbed(kinds), self._good(short=True)]

    def _surroundings(self) -> Surroundings:
        rng = self._rng
        latency = rng.choice(((0, 0), (0, 900), (300, 900), (0, 3000), (1000, 3000)))
        return Surroundings(
            mps=rng.choice((128, 256, 512)),
            mrrs=rng.choice((128, 256, 512, 4096)),
            rcb=rng.choice((64, 128)),
            extended_tags=rng.random() < 0.5,
            split=rng.choice(("LARGEST", "EVERY_RCB", "RANDOM")),
            latency_ns=latency,
            gap_ns=rng.choice(((0, 0), (0, 0), (0, 100))),
            stall=rng.choice((0, 0, 0.1, 0.35)),
            idle=rng.choice(((0, 0), (0, 0), (1, 1), (0, 6))),
            in_flight=rng.choice((8, 8, 8, 0, 2)),
            interrupts=rng.choice(("intx", "msi", "msix", "msix")),
            port_lag=rng.choice((PORT_LAG // 4, PORT_LAG)) if self._core.overcommit else 0,
        )

    def _episode(
        self, engines: Sequence[Engine], disturbance: Disturbance | None = None
    ) -> Episode:
        rng = self._rng
        return Episode(
            self._surroundings(),
            tuple(engines),
            disturbance,
            accesses=rng.choice((0, 8, 16, 24)),
            hold=rng.choice(("", "", "transmit", "receive", "link")),
        )

    # What channels do -----------------------------------------------------------------------

    def _good(self, *, short: bool = False) -> Episode:
        engines = self._engines(2 if short else 3)
        self._settle(engines, ())
        episode = self._episode(engines)
        return self._launches.beside(episode) if self._launches else episode

    def _settle(self, engines: list[Engine], broken: Sequence[int]) -> None:
        """Note what stays in each pair; one of which a run is broken is emptied."""
        if not self._passes:
            return
        for number in range(self._core.channels):
            mine = [engine for engine in engines if engine.number == number]
            coming, going = (
                sum(run.streamed for engine in mine if engine.c2h == c2h for run in engine.runs)
                for c2h in (False, True)
            )
            self._left[number] += coming - going
            if mine and number in broken:
                self._left[number] = 0

    def _engines(self, most_runs: int, *, stay: bool = True) -> list[Engine]:
        """Engines for some channels. What goes into a pair comes out, or stays if it may.

        Into a source nothing goes, and there is as much of its frames as C2H takes. Nothing may
        stay where launched copies flush it.
        """
        stay = stay and not self._core.launch_queues
        rng, channels = self._rng, self._core.channels
        every = [(c2h, number) for c2h in (False, True) for number in range(channels)]
        chosen = set(rng.sample(every, rng.randint(1, len(every))))
        first = not self._passes
        pairs = {
            number for number in range(channels) if rng.random() < 0.6 and (first, number) in chosen
        }
        chosen |= {(True, number) for number in pairs}
        # One of them may send more than the ring holds, long before anybody takes it.
        floods = pairs and stay and self._passes and rng.random() < 0.12
        flooded = rng.choice(sorted(pairs)) if floods else None
        areas = self._areas(sum(not c2h for c2h, _ in chosen))
        engines = []
        for c2h, number in sorted(chosen):
            area = areas[0] if c2h else areas.pop()
            count = rng.randint(1, most_runs)
            streams = number in pairs and (c2h or self._passes)
            streamed = rng.choice((0, 1, 2)) if streams else 0
            if streams and not c2h:
                streamed = max(streamed, 1)
            runs = [self.run(c2h, area) for _ in range(count)]
            if streamed == 2:
                runs = [self.streaming(run, 1.0) for run in runs]
            elif streamed == 1:
                runs = [self.streaming(run, 0.5) for run in runs]
            if flooded == number and not c2h:
                flood = self.piece(rng.randint(14_000, 18_000), None)
                runs[0] = replace(runs[0], pieces=(flood,), blocks=(1,), delay_ns=0)
            elif flooded == number:
                runs[0] = replace(runs[0], delay_ns=rng.randint(45_000, 60_000))
            engines.append(Engine(c2h, number, tuple(runs)))
        return [
            self.balance(engine, engines, stay)
            if self._passes and engine.c2h and engine.number in pairs
            else engine
            for engine in engines
        ]

    def _areas(self, writers: int) -> list[range]:
        """Card RAM in parts: the first for all C2H channels to read, one for each H2C channel."""
        size = self._ram
        cuts = sorted(self._rng.sample(range(9000, size - 9000, 7), writers))
        bounds = [0, *cuts, size]
        areas = [range(*both) for both in itertools.pairwise(bounds)]
        self._rng.shuffle(areas)
        # Everything that is read has the size of a good piece at least.
        areas.sort(key=lambda area: len(area) < 4096)
        return areas

    def sizes(self) -> list[int]:
        rng = self._rng
        count = rng.choice((1, 1, 1, 2, 3, 4, rng.randint(5, 16), rng.randint(17, 40), 70))
        sizes = []
        for _ in range(count):
            ((low, high),) = rng.choices(list(_SIZES), list(_SIZES.values()))
            if count > 4:
                low, high = min(low, 65), min(high, 160)
            sizes.append(rng.randint(low, high))
        while sum(sizes) > _BYTES:
            sizes.pop()
        return sizes

    def run(self, c2h: bool, area: range) -> Run:
        rng = self._rng
        pieces, at = [], area.start + rng.randrange(9)
        for size in self.sizes():
            if c2h:
                at = rng.randrange(area.start, max(area.stop - size, area.start) + 1)
            if at + size > area.stop:
                size = max(area.stop - at, 0)
                at = area.stop - size
            pieces.append(self.piece(size, at))
            at += size + rng.randrange(10)
        writeback = rng.choice(("off", "off", "host", "gpu"))
        notices = ["status", "interrupt", "interrupt"] + ["writeback"] * 2 * (writeback != "off")
        pushed = rng.random() < 0.4
        return Run(
            tuple(pieces),
            self.blocks(len(pieces), pushed),
            pushed,
            high=rng.random() < 0.5,
            notice=rng.choice(notices),
            writeback=writeback,
            credits=rng.random() < 0.15,
            delay_ns=rng.choice((0, 0, rng.randrange(3000), rng.randrange(12000))),
        )

    def piece(self, size: int, card: int | None) -> Piece:
        rng = self._rng
        edge = rng.choice((None, None, None, 0, size, size // 2))
        offset = rng.randrange(4096) if edge is None else -edge % 4096
        return Piece(size, rng.choice(MEMORIES), offset, card, rng.random() < 0.2)

    def blocks(self, count: int, pushed: bool) -> tuple[int, ...]:
        """How a list of so many descriptors lies; the first block can be pushed if it is to be."""
        rng = self._rng
        if pushed:
            first = rng.randint(1, min(count, regs.PUSH_DESCRIPTORS))
            return (first, *self.blocks(count - first, False))
        kind = rng.choice(("block", "block", "singles", "blocks"))
        if kind == "singles" and count <= 20:
            return (1,) * count
        blocks = []
        while count:
            block = min(count, 64 if kind == "block" else rng.choice((1, 2, 3, 15, 16, 17, 33)))
            blocks.append(block)
            count -= block
        return tuple(blocks)

    def streaming(self, run: Run, share: float) -> Run:
        """The same run, with some of its pieces through the stream."""
        pieces = [
            replace(piece, card=None) if self._rng.random() < share else piece
            for piece in run.pieces
        ]
        return replace(run, pieces=tuple(pieces))

    def balance(self, engine: Engine, engines: list[Engine], stay: bool) -> Engine:
        """A C2H engine that takes what its pair has and gets, but for what may stay in it."""
        sender = next(one for one in engines if not one.c2h and one.number == engine.number)
        total = self._left[engine.number] + sum(run.streamed for run in sender.runs)
        if stay and self._rng.random() < 0.3:
            total -= min(total, self._rng.randrange(_LEFT_OVER))
        runs = []
        for run in engine.runs:
            pieces = []
            for piece in run.pieces:
                if piece.card is None:
                    piece = replace(piece, size=min(piece.size, total))
                    total -= piece.size
                pieces.append(piece)
            runs.append(replace(run, pieces=tuple(pieces)))
        last = runs[-1]
        rest = []
        while total:
            size = min(total, self._rng.choice((total, self._rng.randint(1, 5000))))
            rest.append(self.piece(size, None))
            total -= size
        if rest:
            pieces = (*last.pieces, *rest)
            runs[-1] = replace(last, pieces=pieces, blocks=self.blocks(len(pieces), last.pushed))
        return replace(engine, runs=tuple(runs))

    # What goes wrong ------------------------------------------------------------------------

    def _faulty(self) -> Episode:
        """One run ends by an error. Others are not concerned, but for the pair's other channel."""
        rng = self._rng
        engines = self._engines(1, stay=False)
        victim = rng.choice(engines)
        kind = rng.choice(FAULTS)
        run = self._plant(victim, kind)
        engines[engines.index(victim)] = replace(victim, runs=(run,))
        # What goes wrong in the pair is not what the plan of the others was.
        engines = [
            replace(engine, runs=tuple(self._quiet(run) for run in engine.runs))
            if engine.number == victim.number
            else engine
            for engine in engines
        ]
        self._settle(engines, (victim.number,))
        return self._within(self._episode(engines))

    def _plant(self, engine: Engine, kind: str) -> Run:
        rng = self._rng
        run = engine.runs[0]
        places = ["descriptor", "data"]
        if kind == "magic" or (kind in READ_FAULTS and engine.c2h):
            places.remove("data")
        elif kind == "spoilt push":
            places.remove("data")
            run = replace(run, blocks=self.blocks(len(run.pieces), True), pushed=True)
        elif kind == "decode":
            places.remove("descriptor")
        place = rng.choice(places)
        pieces = list(run.pieces)
        # Nothing of a list begins when what was pushed of it is spoilt.
        index = 0 if kind == "spoilt push" else rng.randrange(len(pieces))
        piece = pieces[index]
        if place == "data":
            piece = replace(piece, size=max(piece.size, 1))
            if kind == "too long":
                piece = replace(piece, size=min(piece.size, 64))
            if kind == "decode":
                end = regs.CARD_RAM_SIZE
                far = rng.randrange(end, 1 << 63)
                piece = replace(piece, card=rng.choice((end, end - piece.size + 1, far)))
        blocks = run.blocks
        if kind == "too long" and place == "descriptor":
            pieces, index = pieces[:12], min(index, 11)
            blocks = (1,) * len(pieces)
        if index < len(pieces):
            pieces[index] = piece
        blocks = blocks if len(pieces) == len(run.pieces) else (1,) * len(pieces)
        # What is pushed is not read.
        read = kind in READ_FAULTS and place == "descriptor"
        return replace(
            run,
            pieces=tuple(pieces),
            blocks=blocks,
            pushed=run.pushed and not (read and index < blocks[0]),
            credits=False,
            fault=PlantedFault(kind, place, index),
        )

    @staticmethod
    def _quiet(run: Run) -> Run:
        """The same run, but software polls: what comes is not known."""
        return replace(run, notice="status", credits=False)

    def _disturbed(self, kinds: Sequence[str]) -> Episode:
        rng = self._rng
        engines = self._engines(1, stay=False)
        engines = [
            replace(engine, runs=tuple(self._quiet(run) for run in engine.runs))
            for engine in engines
        ]
        kind = rng.choice(kinds)
        victims: tuple[tuple[bool, int], ...] = ()
        if kind == "abort":
            number = rng.choice(engines).number
            mine = [(engine.c2h, engine.number) for engine in engines if engine.number == number]
            victims = tuple(rng.sample(mine, rng.randint(1, len(mine))))
        self._settle(engines, [number] if kind == "abort" else range(self._core.channels))
        if kind in EMPTYING:
            self._left = [0] * self._core.channels
        delay = rng.choice((rng.randrange(1500), rng.randrange(6000), rng.randrange(25_000)))
        return self._within(self._episode(engines, Disturbance(kind, delay, victims)))

    def _late(self) -> Episode:
        """The port is late, and nothing else holds it up; many completions are under way."""
        rng = self._rng
        engines: list[Engine] = []
        while not any(piece.size >= _MANY for piece in _read_from_host(engines)):
            engines = self._engines(1, stay=False)
        engines = [
            replace(engine, runs=(replace(self._quiet(engine.runs[0]), delay_ns=0),))
            for engine in engines
        ]
        self._settle(engines, range(self._core.channels))
        pause = rng.randint(*rng.choice(_LATE_NS))
        episode = self._episode(engines, Disturbance(LATE_PORT, rng.randrange(4000), (), pause))
        surroundings = replace(
            episode.surroundings,
            mrrs=rng.choice((512, 4096)),
            rcb=64,
            split=rng.choice(("EVERY_RCB", "EVERY_RCB", "RANDOM")),
            latency_ns=(1000, 3000),
            gap_ns=(0, 0),
            in_flight=rng.choice((8, 0)),
        )
        return replace(episode, surroundings=surroundings, hold="")

    def _within(self, episode: Episode) -> Episode:
        return self._launches.within(episode) if self._launches else episode


def _read_from_host(engines: Sequence[Engine]) -> Iterator[Piece]:
    """What H2C reads, but for what is a GPU's, which splits less."""
    for engine in engines:
        if not engine.c2h:
            yield from (piece for piece in engine.runs[0].pieces if piece.memory != "gpu")
