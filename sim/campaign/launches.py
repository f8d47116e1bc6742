# SPDX-License-Identifier: BSD-2-Clause
"""Draws what launch queues do in an episode, beside software's own runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from peerdma import regs

from .plan import (
    Batch,
    Copying,
    Core,
    Engine,
    Episode,
    Piece,
    Queue,
    Run,
    Slot,
    Source,
    TicketFault,
)
from .table import HEAD_FAULTS, SLOT_FAULTS, TICKET_FAULTS

__all__ = ["PAIR_BYTES", "QUEUE_BYTES", "RAM_BYTES", "Drawer", "Launches", "ram_of"]

#: Card RAM for the tickets of one queue, and for software's runs in pairs that both copy through.
QUEUE_BYTES, PAIR_BYTES = 6144, 4096
#: All of that, at the end of card RAM, for as many queues and pairs as a core may have.
RAM_BYTES = regs.LAUNCH_QUEUES * QUEUE_BYTES + 2 * PAIR_BYTES
#: Bytes that software leaves for launched copies to drop, at most: fewer than a ring holds.
_STALE = 900
#: Jobs into card RAM that may overlap have places of their own.
_PLACES = 3
_ENTRIES = (8, 8, 16, 64, 256)
_RECORD = regs.FRAME_RECORD.itemsize


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

    def __init__(self, rng: random.Random, faults: random.Random, core: Core, drawer: Drawer):
        self._rng, self._faults, self._core, self._drawer = rng, faults, core, drawer

    def beside(self, episode: Episode) -> Episode:
        """The good episode with queues at work, or sometimes as it is.

        On some pairs there are launched copies. There software's copies replace its other engines.
        Or some pairs have packets for tickets. There software's engines take no bytes.
        """
        rng = self._rng
        if rng.random() < 0.2:
            return episode
        if self._core.receives:
            pairs = [number for number in range(self._core.channels) if rng.random() < 0.8]
            sources = self._sources(pairs)
            engines = [
                self._without_stream(engine) if engine.number in pairs else engine
                for engine in episode.engines
            ]
            episode = replace(
                episode,
                engines=tuple(engine for engine in engines if engine.runs),
                sources=tuple(sources),
            )
            # In the middle of a packet, or while a ticket waits for one.
            queues = self._cut_some(episode, self._queues([], sources), 0.5, (3000, 30_000))
            return replace(episode, queues=tuple(queues))
        pairs = [number for number in range(self._core.channels) if rng.random() < 0.6]
        engines = [engine for engine in episode.engines if engine.number not in pairs]
        copying = []
        for number in pairs:
            steps, mine = self._steps(number)
            copying.append(Copying(number, steps))
            engines += mine
        episode = replace(episode, engines=tuple(engines), copying=tuple(copying))
        queues = self._cut_some(episode, self._queues(pairs), 0.25, (30_000,))
        return self._with_stale(replace(episode, queues=tuple(queues)))

    def within(self, episode: Episode) -> Episode:
        """The same for an episode in which something of software's goes wrong, or all ends.

        Launched copies are on pairs that software's runs do not stream through; packets are, too,
        and where nothing goes wrong that could end what these pairs hold.
        """
        if self._rng.random() < 0.3:
            return episode
        streams = episode.streams
        pairs = [number for number in range(self._core.channels) if number not in streams]
        if self._core.receives:
            broken = {engine.number for engine in episode.engines if engine.runs[0].fault}
            if episode.disturbance:
                broken |= {number for _, number in episode.disturbance.victims}
            sources = self._sources([number for number in pairs if number not in broken])
            queues = tuple(self._queues([], sources))
            return replace(episode, queues=queues, sources=tuple(sources))
        return self._with_stale(replace(episode, queues=tuple(self._queues(pairs))))

    # Software -------------------------------------------------------------------------------

    def _steps(self, number: int) -> tuple[tuple[str, ...], list[Engine]]:
        """What software does on a pair, step by step."""
        rng, drawer, area = self._rng, self._drawer, _ram_of_pair(number)
        # Where it copies nothing, tickets may fail.
        copies = 4 * (self._faults.random() < 0.6)
        steps = rng.choices(("copy", "h2c", "c2h"), (copies, 1, 2), k=rng.randint(0, 8))
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

    def _with_stale(self, episode: Episode) -> Episode:
        """Have software leave something in pairs that launched copies flush, if nobody takes it."""
        slots = [slot for queue in episode.queues for slot in queue.slots]
        pairs = {slot.number for slot in slots if slot.kind == "copy"} - episode.streams
        stale = tuple(
            (number, self._faults.randint(1, _STALE))
            for number in sorted(pairs)
            if self._faults.random() < 0.5
        )
        return replace(episode, stale=stale)

    # Queues ---------------------------------------------------------------------------------

    def _sources(self, pairs: Sequence[int]) -> list[Source]:
        """Sources of packets for these pairs."""
        rng, sources = self._rng, []
        for number in pairs:
            words = rng.choice((1, 8, 16, rng.randint(2, 100), rng.randint(100, 700)))
            how, interval, lulls = rng.choice(("at once", "paced", "lulls", "lulls")), 0, ()
            if how == "paced":
                interval = rng.choice((rng.randint(1, 100), rng.randint(100, 2000)))
            elif how == "lulls":
                lulls = tuple(
                    (rng.choice((0, rng.randrange(20_000))), rng.randrange(15_000))
                    for _ in range(rng.randint(1, 4))
                )
            sources.append(Source(number, words, interval, lulls))
        return sources

    def _without_stream(self, engine: Engine) -> Engine:
        """The same engine, but for what is in the stream; perhaps without runs."""
        runs = []
        for run in engine.runs:
            pieces = tuple(piece for piece in run.pieces if piece.card is not None)
            if pieces:
                blocks = self._drawer.blocks(len(pieces), run.pushed)
                runs.append(replace(run, pieces=pieces, blocks=blocks))
        return replace(engine, runs=tuple(runs))

    def _cut_some(
        self, episode: Episode, queues: list[Queue], share: float, most_ns: tuple[int, ...]
    ) -> list[Queue]:
        """Have some of the queues disarmed, or something of one of the others fail."""
        rng, found = self._rng, []
        for queue in queues:
            if rng.random() < share:
                most = most_ns[0] if len(most_ns) == 1 else rng.choice(most_ns)
                queue = replace(queue, cut_ns=rng.randrange(most))
            found.append(queue)
        others = [n for n, queue in enumerate(found) if queue.cut_ns is None]
        if others and self._faults.random() < 0.4:
            number = self._faults.choice(others)
            # A run that fails may flush its pair.
            kept = episode.streams | {source.number for source in episode.sources}
            fault = self._fault(found[number], kept)
            found[number] = self._beside_others(replace(found[number], fault=fault), fault)
        return found

    def _beside_others(self, queue: Queue, fault: TicketFault) -> Queue:
        """The queue that fails, perhaps with tickets right before the first one that does which
        may overlap with it."""
        rng, batch = self._faults, queue.batches[fault.batch]
        if fault.place in ("ring", "shadow"):
            return queue
        slot = queue.slots[fault.index]
        good = [
            number
            for number, one in enumerate(queue.slots)
            if number != fault.index
            and one.overlap
            and (one.kind, one.number) == (slot.kind, slot.number)
        ]
        if not slot.overlap or not good or rng.random() < 0.3:
            return queue
        before = rng.choices(good, k=rng.randint(1, 3))
        slots = (*before, fault.index, *batch.slots)[: queue.entries]
        batches = list(queue.batches)
        batches[fault.batch] = replace(batch, slots=slots)
        return replace(queue, batches=tuple(batches))

    def _fault(self, queue: Queue, kept: set[int]) -> TicketFault:
        """What fails of a queue; no run on the channels of these pairs."""
        rng = self._faults
        batch = rng.randrange(len(queue.batches))
        index = rng.choice(queue.batches[batch].slots)
        slot = queue.slots[index]
        places = ["slot", "ring"] + ["shadow"] * queue.polls + ["flush"] * 2 * slot.flush
        ends = slot.number not in kept
        if ends and slot.kind != "packet":
            places += ["head"] * 2
        if ends and slot.kind != "packet" and max(len(slot.pieces), len(slot.out)) > 1:
            places += ["list"] * 4
        if ends and slot.kind in ("h2c", "copy") and any(piece.size for piece in slot.pieces):
            # Others have begun behind it by then.
            places += ["data"] * (12 if slot.overlap else 4)
        place = rng.choice(places)
        if place == "ring":
            index = rng.randrange(len(queue.batches[batch].slots))
        kinds = {"slot": SLOT_FAULTS, "head": HEAD_FAULTS}
        kind = rng.choice(kinds.get(place, TICKET_FAULTS))
        return TicketFault(kind, place, batch, index, rng.random() < 0.5)

    def _queues(self, pairs: Sequence[int], sources: Sequence[Source] = ()) -> list[Queue]:
        count = self._core.launch_queues
        some = self._rng.sample(range(count), self._rng.randint(1, count))
        return [self._queue(number, pairs, sources) for number in sorted(some)]

    def _queue(self, number: int, pairs: Sequence[int], sources: Sequence[Source]) -> Queue:
        rng = self._rng
        slots = tuple(
            self._slot(number, pairs, sources, place) for place in range(rng.randint(1, 6))
        )
        copies = [slot.number for slot in slots if slot.kind == "copy"]
        if copies and self._faults.random() < 0.4:
            # Whichever comes behind whichever, they overlap.
            alike = {"number": copies[0], "overlap": True}
            slots = tuple(replace(slot, **alike) if slot.kind == "copy" else slot for slot in slots)
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

    def _slot(
        self, queue: int, pairs: Sequence[int], sources: Sequence[Source], place: int
    ) -> Slot:
        rng, drawer = self._rng, self._drawer
        more = ("copy", "copy") if pairs else ("packet",) * 4 if sources else ()
        kind = rng.choice(("h2c", "c2h", *more))
        overlap, out, pieces = rng.random() < 0.5, (), ()
        number = None
        area = ram_of(queue)
        # Short lists: what is in line for a channel is what matters here.
        most = rng.choice((1, 1, 2, None))
        if kind == "copy":
            pieces = tuple(drawer.piece(size, None) for size in drawer.sizes()[:most])
            out = self._cut(sum(piece.size for piece in pieces))
        elif kind == "packet":
            source = rng.choice(sources)
            number, pieces = source.number, self._room(4 * source.words)
        elif kind == "h2c" and overlap:
            # What reads bring arrives in no order.
            overlap = place < _PLACES
            if overlap:
                size = QUEUE_BYTES // _PLACES
                area = range(area.start + place * size, area.start + (place + 1) * size)
        if not pieces:
            pieces = drawer.run(kind == "c2h", area).pieces[:most]
        if number is None:
            number = rng.choice(pairs) if kind == "copy" else rng.randrange(self._core.channels)
        return Slot(
            kind,
            number,
            pieces,
            out,
            high=rng.random() < 0.5,
            flush=rng.random() < 0.5,
            done=rng.choice(("off", "host", "gpu")),
            overlap=overlap,
        )

    def _room(self, size: int) -> tuple[Piece, ...]:
        """Memory for packets of so many bytes, or fewer, or more; and for their records."""
        rng = self._rng
        room = rng.choice((size, size - 1, rng.randint(1, size), size + rng.randint(1, 300)))
        cuts = sorted(rng.sample(range(1, room), min(rng.choice((0, 0, 1, 3)), room - 1)))
        bounds = [0, *cuts, room]
        sizes = [end - start for start, end in pairwise(bounds)]
        return tuple(self._drawer.piece(each, None) for each in (*sizes, _RECORD))

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
