# SPDX-License-Identifier: BSD-2-Clause
"""Draws what launch queues do in an episode, beside software's own runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from peerdma import regs

from .plan import Batch, Copying, Core, Engine, Episode, Piece, Queue, Run, Slot
from .table import KINDS

__all__ = ["PAIR_BYTES", "QUEUE_BYTES", "RAM_BYTES", "Drawer", "Launches", "ram_of"]

#: Card RAM for the tickets of one queue, and for software's runs in pairs that both copy through.
QUEUE_BYTES, PAIR_BYTES = 6144, 4096
#: All of that, at the end of card RAM, for as many queues and pairs as a core may have.
RAM_BYTES = regs.LAUNCH_QUEUES * QUEUE_BYTES + 2 * PAIR_BYTES
#: Jobs into card RAM that may overlap have places of their own.
_PLACES = 3
_ENTRIES = (8, 8, 16, 64, 256)


def ram_of(queue: int) -> range:
    """Card RAM for the tickets of this queue."""
    start = regs.CARD_RAM_SIZE - RAM_BYTES + queue * QUEUE_BYTES
    return range(start, start + QUEUE_BYTES)


def _ram_of_pair(pair: int) -> range:
    start = regs.CARD_RAM_SIZE - (pair + 1) * PAIR_BYTES
    return range(start, start + PAIR_BYTES)


class Drawer(Protocol):
    """What draws runs."""

    def piece(self, size: int, card: int | None) -> Piece:
        """A piece of this size, with this card address or in the stream."""

    def sizes(self) -> list[int]:
        """Sizes of the pieces of a run."""

    def run(self, c2h: bool, area: range) -> Run:
        """A run from or to this part of card RAM."""

    def blocks(self, count: int, pushed: bool) -> tuple[int, ...]:
        """How a list of so many descriptors lies."""

    def streaming(self, run: Run, share: float) -> Run:
        """The same run, with so many of its pieces through the stream."""

    def balance(self, engine: Engine, engines: list[Engine], stay: bool) -> Engine:
        """A C2H engine that takes what that of H2C sends."""


class Launches:
    """Draws queues, and what software does on pairs that they copy through."""

    def __init__(self, rng: random.Random, core: Core, drawer: Drawer):
        self._rng, self._core, self._drawer = rng, core, drawer

    def beside(self, episode: Episode) -> Episode:
        """The good episode with queues at work, or sometimes as it is.

        On some pairs there are launched copies. There software's copies replace its other engines.
        """
        rng = self._rng
        if rng.random() < 0.2:
            return episode
        pairs = [number for number in range(self._core.channels) if rng.random() < 0.6]
        engines = [engine for engine in episode.engines if engine.number not in pairs]
        copying = []
        for number in pairs:
            steps, mine = self._steps(number)
            copying.append(Copying(number, steps))
            engines += mine
        queues = [
            replace(queue, cut_ns=rng.randrange(30_000)) if rng.random() < 0.25 else queue
            for queue in self._queues(pairs)
        ]
        return replace(
            episode, engines=tuple(engines), queues=tuple(queues), copying=tuple(copying)
        )

    def within(self, episode: Episode) -> Episode:
        """The same for an episode in which something of software's goes wrong, or all ends.

        Launched copies are on pairs that software's runs do not stream through.
        """
        if self._rng.random() < 0.3:
            return episode
        streams = {
            engine.number for engine in episode.engines for run in engine.runs if run.streamed
        }
        pairs = [number for number in range(self._core.channels) if number not in streams]
        return replace(episode, queues=tuple(self._queues(pairs)))

    # Software -------------------------------------------------------------------------------

    def _steps(self, number: int) -> tuple[tuple[str, ...], list[Engine]]:
        """What software does on a pair, step by step."""
        rng, drawer, area = self._rng, self._drawer, _ram_of_pair(number)
        steps = rng.choices(("copy", "h2c", "c2h"), (4, 1, 2), k=rng.randint(0, 8))
        runs: dict[bool, list[Run]] = {False: [], True: []}
        for step in steps:
            if step != "copy":
                runs[step == "c2h"].append(self._run(step == "c2h", area))
                continue
            into = drawer.streaming(self._run(False, area), rng.choice((1.0, 1.0, 0.5)))
            out = drawer.streaming(self._run(True, area), 1.0)
            sender = Engine(False, number, (into,))
            taker = drawer.balance(Engine(True, number, (out,)), [sender], False)
            runs[False].append(into)
            runs[True] += taker.runs
        engines = [Engine(c2h, number, tuple(mine)) for c2h, mine in runs.items() if mine]
        return tuple(steps), engines

    def _run(self, c2h: bool, area: range) -> Run:
        """A run that is short in most cases, and often comes directly after the one before.

        So tickets come between software's runs, wherever these are.
        """
        rng, run = self._rng, self._drawer.run(c2h, area)
        pieces = run.pieces[: rng.choice((1, 2, 4, None))]
        blocks = self._drawer.blocks(len(pieces), run.pushed)
        delay_ns = rng.choice((0, 0, 0, run.delay_ns))
        return replace(run, pieces=pieces, blocks=blocks, delay_ns=delay_ns)

    # Queues ---------------------------------------------------------------------------------

    def _queues(self, pairs: Sequence[int]) -> list[Queue]:
        count = self._core.launch_queues
        some = self._rng.sample(range(count), self._rng.randint(1, count))
        return [self._queue(number, pairs) for number in sorted(some)]

    def _queue(self, number: int, pairs: Sequence[int]) -> Queue:
        rng = self._rng
        slots = tuple(self._slot(number, pairs, place) for place in range(rng.randint(1, 6)))
        entries = rng.choice(_ENTRIES)
        wrap = rng.choice((1 << 16, 1 << 32, rng.randrange(1, 1 << 32)))
        return Queue(
            number,
            first=(wrap - rng.randrange(20)) % (1 << 32),
            entries=entries,
            polls=rng.random() < 0.3,
            slots=slots,
            batches=tuple(self._batch(slots, entries) for _ in range(rng.randint(2, 6))),
        )

    def _slot(self, queue: int, pairs: Sequence[int], place: int) -> Slot:
        rng, drawer = self._rng, self._drawer
        kinds = KINDS if pairs else KINDS[:-1]
        kind = rng.choice((*kinds, "copy") if pairs else kinds)
        overlap, out = rng.random() < 0.5, ()
        area = ram_of(queue)
        # Short lists: what is in line for a channel is what matters here.
        most = rng.choice((1, 1, 2, None))
        if kind == "copy":
            pieces = tuple(drawer.piece(size, None) for size in drawer.sizes()[:most])
            out = self._cut(sum(piece.size for piece in pieces))
        elif kind == "h2c" and overlap:
            # What reads bring arrives in no order.
            overlap = place < _PLACES
            if overlap:
                size = QUEUE_BYTES // _PLACES
                area = range(area.start + place * size, area.start + (place + 1) * size)
        if kind != "copy":
            pieces = drawer.run(kind == "c2h", area).pieces[:most]
        return Slot(
            kind,
            rng.choice(pairs) if kind == "copy" else rng.randrange(self._core.channels),
            pieces,
            out,
            high=rng.random() < 0.5,
            flush=rng.random() < 0.5,
            done=rng.choice(("off", "host", "gpu")),
            overlap=overlap,
        )

    def _cut(self, size: int) -> tuple[Piece, ...]:
        """The C2H half of a copy of so many bytes."""
        rng = self._rng
        cuts = sorted(rng.randint(0, size) for _ in range(rng.choice((0, 0, 1, 3, 20))))
        bounds = [0, *cuts, size]
        return tuple(self._drawer.piece(end - start, None) for start, end in pairwise(bounds))

    def _batch(self, slots: Sequence[Slot], entries: int) -> Batch:
        rng = self._rng
        count = rng.choice((1, 2, 3, rng.randint(4, 12), rng.randint(4, 12)))
        each = [rng.randrange(len(slots)) for _ in range(min(count, entries))]
        if rng.random() < 0.5:
            each = each[:1] * len(each)
        how = rng.choice(("merged", "merged", "singly", "early"))
        return Batch(
            tuple(each),
            how,
            # The entry comes before such a doorbell.
            wide=how != "early" and rng.random() < 0.5,
            delay_ns=rng.choice((0, rng.randrange(3000), rng.randrange(20_000))),
        )
