# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues at work: their memory, what a GPU does with them, and what must be true."""

from __future__ import annotations

import contextlib
import struct
from collections import Counter, deque
from collections.abc import Iterable

import cocotb
from cocotb.task import Task
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp

from peerdma import regs
from peerdma.regs import LaunchEnd, LaunchStatus
from sim.benches.launch_queue import LaunchQueue
from sim.benches.tb import TIMEOUT_US

from .copies import CopyWatch
from .coverage import band
from .drain import Drain
from .faults import READS, arrival, lose
from .job import RUN_US, TO_GPU_US, Job
from .launches import ram_of
from .packets import Packets, PacketSlot
from .plan import EMPTYING, Batch, Episode, Piece, Queue, Run, Slot, TicketFault
from .rig import Rig
from .scoreboard import FramePair, Span
from .slots import LaunchSlot
from .table import GROUPS

__all__ = ["Launched", "invalidate"]

#: Bound of a ticket, and of the end of a queue that is disarmed, in simulated microseconds. Before
#: a ticket there may be those of its batch, and as many of another queue; and a run of software's
#: before each.
_TICKET_US, _DISARM_US = 4 * RUN_US, 400
#: A GPU that rings before there are entries writes these so much later at most: they are read
#: again for longer than that.
_EARLY_NS = 1500
#: How often a program looks for its record.
_LOOKS_NS = 40
#: Bound of a queue that is to go on, in simulated microseconds.
_RESUME_US = 20
#: What may abort tickets so that their records say so, by what has ended their queue.
_MAY_ABORT = {
    "": set(),
    "disarmed": {LaunchStatus.ABORTED},
    "failed read": set(),
    "bus master off": set(),
    **{kind: {LaunchStatus.ABORTED} for kind in EMPTYING},
}
_TICKETS = next(group.points["tickets"] for group in GROUPS if group.name == "ticket")
_AT_ONCE = next(group.points["at once"] for group in GROUPS if group.name == "copies")


async def invalidate(rig: Rig, slots: Iterable[int]) -> None:
    """Let no queue start these slots."""
    for slot in slots:
        await rig.write(regs.LAUNCH_SLOT, "control", 0, channel=slot)


class _Ended(Exception):
    """The queue of tickets under way was ended."""


class _Queue:
    """One queue in an episode."""

    def __init__(
        self,
        rig: Rig,
        plan: Queue,
        episode: Episode,
        slots: list[LaunchSlot],
        packets: dict[int, Packets],
        stale: set[int],
    ):
        #: pairs with what the next copy is to drop
        self._stale = stale
        self._rig, self._plan, self._episode, self._slots = rig, plan, episode, slots
        #: of the pairs whose channels its slots have
        self._packets = {
            slot.plan.number: packets[slot.plan.number]
            for slot in slots
            if slot.plan.number in packets
        }
        self._queue = LaunchQueue(
            rig, plan.number, first=plan.first, entries=plan.entries, polls=plan.polls
        )
        self._spans: list[Span] = []
        #: tickets whose records are to come, in order
        self._due: deque[tuple[int, LaunchSlot]] = deque()
        #: what software did when a ticket had its record
        self._beside: dict[int, str] = {}
        #: of the batch under way: tickets that were not seen to have ended, each slot, and what the
        #: board may touch for it
        self._under_way: list[tuple[int, LaunchSlot]] = []
        self._batch: Counter[LaunchSlot] = Counter()
        self._batch_spans: list[Span] = []
        #: what has ended the queue, if something has
        self.ended_by = ""
        #: and it was disarmed
        self._over = False
        #: judge of a batch in which tickets fail, and what they have come to; the next one is
        #: flushed, too
        self._drain: Drain | None = None
        self._records: list[str] = []
        self._flushed = False
        self._statuses: dict[int, int] = {}

    async def prepare(self) -> None:
        """Fill the slots and arm the queue."""
        scope, queue = self._rig.scope, self._queue
        for slot in self._slots:
            self._spans += await slot.prepare(self._plan.number)
        for buffer, write, heard in (
            (queue.places, False, None),
            (queue.records, True, self._recorded),
            (queue.shadow, False, None),
        )[: 2 + self._plan.polls]:
            self._spans.append(
                scope.allow(buffer.name, buffer.address, buffer.size, write=write, heard=heard)
            )
        await queue.arm()

    def _recorded(self, tlp: Tlp) -> None:
        """Each ticket has one record, in order, behind its data."""
        data = tlp.get_data()
        assert self._due, f"queue {self._plan.number} writes a record {data.hex()} for nothing"
        ticket, slot = self._due.popleft()
        at = self._queue.records.address + 8 * (ticket % self._plan.entries)
        assert (tlp.address, len(data)) == (at, 8), f"a record of {len(data)} at {tlp.address:#x}"
        found, status = struct.unpack("<II", data)
        good = {slot.good} | _MAY_ABORT[self.ended_by]
        assert found == ticket and (status in good or self._drain), (
            f"the record of ticket {ticket}, {slot!r}, is that of {found}, status {status}"
        )
        self._statuses[ticket] = status
        slot.recorded += 1
        if slot.plan.kind == "copy" and status == slot.good and slot.plan.number in self._stale:
            # It has flushed the pair, and has left nothing itself.
            self._stale.remove(slot.plan.number)
            self._rig.pairs[slot.plan.number].empty()
        if self._drain:
            self._drained(slot, status)
            return
        if status == slot.good:
            slot.expect_moved()
        elif isinstance(slot, PacketSlot):
            slot.packets.end(False)
        elif slot.plan.kind == "c2h":
            self._run_ended(slot)
        self._beside[ticket] = self._now(slot)

    def _run_ended(self, slot: LaunchSlot) -> None:
        """A run of C2H was ended, or has failed.

        What has not come of its list may be for the stream: so its pair was flushed.
        """
        pair = self._rig.pairs[slot.plan.number]
        if slot.plan.number in self._packets:
            self._packets[slot.plan.number].end(slot.known)
        elif isinstance(pair, FramePair) and not slot.known:
            pair.unknown = True

    def _drained(self, slot: LaunchSlot, status: int) -> None:
        """The record of a ticket of a batch in which some fail."""
        record, place = self._drain.record(slot, status), self._plan.fault.place
        if record == "failed":
            # What was not answered is a tag that must not be used for a while, from now on.
            lose(self._rig)
        if record == "good" or (record == "failed" and place == "flush"):
            slot.expect_moved()
        ended = record == "aborted" or (record == "failed" and place in ("list", "head"))
        if ended and slot.plan.kind == "c2h":
            self._run_ended(slot)
        self._records.append(record)

    def _now(self, slot: LaunchSlot) -> str:
        running = self._rig.running
        busy = {(channel.c2h, channel.number) for channel in running}
        if len(busy) == 2 and {number for _, number in busy} == {slot.plan.number}:
            return "a copy"
        return "the same" if busy & slot.channels else "others" if busy else "nothing"

    async def play(self) -> None:
        """Submit all batches, one after the other; comes back when the queue was ended."""
        with contextlib.suppress(_Ended):
            for batch in self._plan.batches:
                await self._pause(max(batch.delay_ns, 1))
                if batch is self._plan.batches[-1] and self._plan.cut_ns is not None:
                    cocotb.start_soon(self._cut())
                await self._play_any(batch)
        alone = not {slot.plan.number for slot in self._slots} & self._episode.streams
        if self.ended_by == "failed read" or (self.ended_by == "disarmed" and alone):
            # At once: others go on. A run that is aborted may flush its pair.
            await self.finish()

    async def _cut(self) -> None:
        await Timer(max(self._plan.cut_ns, 1), "ns")
        self.end(self.ended_by or "disarmed")

    def end(self, by: str) -> None:
        """Something ends the queue: nothing is submitted any more, and no record expected."""
        self.ended_by = by
        for packets in self._packets.values():
            packets.expect_end()

    async def _pause(self, ns: int) -> None:
        await Timer(ns, "ns")
        if self.ended_by:
            raise _Ended

    async def _wait(self, ticket: int) -> None:
        """Look for a ticket's record until it is there, and no longer."""
        for _ in range(_TICKET_US * 1000 // _LOOKS_NS):
            if self._queue.status(ticket) is not None:
                return
            await self._pause(_LOOKS_NS)
        raise AssertionError(f"no record of ticket {ticket} within {_TICKET_US} us")

    async def _play_any(self, batch: Batch) -> None:
        """Play a batch, well or not."""
        fault = self._plan.fault
        failing = fault and batch is self._plan.batches[fault.batch]
        if self._flushed:
            await self._play_failing(batch)
        elif not failing:
            await self._play(batch)
        elif fault.place in ("ring", "shadow"):
            await self._play_ending(batch, fault)
        else:
            await self._play_failing(batch)

    def _begin(self, batch: Batch) -> list[tuple[int, LaunchSlot]]:
        """Tickets of a batch, with leave to do what they have to."""
        slots = [self._slots[index] for index in batch.slots]
        self._batch = counts = Counter(slots)
        self._batch_spans = [span for slot, count in counts.items() for span in slot.begin(count)]
        tickets = [((self._queue.next + n) % (1 << 32), slot) for n, slot in enumerate(slots)]
        self._due.extend(tickets)
        self._under_way = list(tickets)
        return tickets

    async def _play_failing(self, batch: Batch) -> None:
        """Some tickets fail, and all behind them are flushed; then software resumes, or after the
        next batch, of which all are."""
        rig, queue, fault = self._rig, self._queue, self._plan.fault
        victim = self._slots[fault.index]
        again, self._flushed = self._flushed, False
        if not again:
            where = await victim.spoil(fault)
            # A doorbell takes another way than what was written.
            await queue.state()
            self._drain = Drain(fault, victim)
        tickets = self._begin(batch)
        if again:
            self._drain.again()
        elif fault.place == "slot":
            victim.words = 0
        for completer in rig.completers:
            if not again and where:
                completer.inject(where, READS[fault.kind][0])
        self._records = []
        await self._submit(batch, [slot for _, slot in tickets])
        for ticket, _ in tickets:
            await self._wait(ticket)
        for slot in self._batch:
            await slot.expect_done(self._pause)
        drain, found = self._drain, await queue.state()
        expected = {"armed": 1, "failed": 1, "status": drain.status, "end": LaunchEnd.NONE}
        assert found | expected == found, f"queue {self._plan.number} is {found}, not {expected}"
        await self._recover(fault)
        rig.scope.revoke(self._batch_spans)
        await Timer(TO_GPU_US, "us")
        moves: dict[LaunchSlot, list[str]] = {slot: [] for slot in self._batch}
        for slot, moved in drain.moves:
            moves[slot].append(moved)
            if moved == "all":
                slot.note_outcome()
            elif moved == "some":
                slot.maybe_written()
        for slot, each in moves.items():
            slot.expect_drained(each)
        self._batch = Counter()
        self._under_way.clear()
        if not again and fault.place in ("slot", "head"):
            await victim.restore()
            await queue.state()
        first = 0 if again else self._records.index("failed") + 1
        for record in self._records[first:]:
            rig.seen.sample("behind", place=fault.place, record=record, of=victim.plan.kind)
        self._flushed = fault.late and not again and batch is not self._plan.batches[-1]
        if not self._flushed:
            await self._resume()
            rig.seen.sample(
                "failed ticket",
                kind=fault.kind,
                place=fault.place,
                of=victim.plan.kind,
                resumed="later" if again else "at once",
            )

    async def _resume(self) -> None:
        """Have tickets be started again: all of before have ended."""
        self._drain = None
        await self._rig.write(regs.LAUNCH_QUEUE, "resume", 0, channel=self._plan.number)
        for _ in range(_RESUME_US):
            state = await self._queue.state()
            if not state["failed"] and not state["status"]:
                return
            await Timer(1, "us")
        raise AssertionError(f"queue {self._plan.number} does not go on: {state}")

    async def _recover(self, fault: TicketFault) -> None:
        """Reads are answered again; those that were not have timed out."""
        for completer in self._rig.completers:
            completer.clear_faults()
        lose(self._rig)
        if fault.kind == "lost":
            await Timer(2 * TIMEOUT_US, "us")
            await arrival()
            lose(self._rig)

    async def _play_ending(self, batch: Batch, fault: TicketFault) -> None:
        """A read of the ring, or the shadow tail, fails: some tickets at most are started."""
        rig, queue = self._rig, self._queue
        tickets = self._begin(batch)
        if fault.place == "shadow":
            at = queue.shadow.address
        else:
            ticket, _ = tickets[fault.index]
            at = queue.places.address + 8 * (ticket % self._plan.entries)
        for completer in rig.completers:
            completer.inject(range(at, at + 1), READS[fault.kind][0])
        await self._submit(batch, [slot for _, slot in tickets])
        for _ in range(_TICKET_US):
            state = await queue.state()
            if state["end"]:
                lose(rig)
            every = fault.place == "ring" and all(ticket in self._statuses for ticket, _ in tickets)
            if (state["end"] or every) and not state["busy"]:
                break
            await Timer(1, "us")
        else:
            raise AssertionError(f"queue {self._plan.number} does not end: {state}")
        ended = state["end"]
        assert ended == LaunchEnd.READ or (every and not ended), (
            f"queue {self._plan.number} is {state}"
        )
        await self._recover(fault)
        # Those that were started have come to their good ends, and the others to nothing.
        done = Counter(slot for ticket, slot in tickets if ticket in self._statuses)
        for slot in self._batch:
            slot.words = done[slot]
            await slot.expect_done(self._pause)
        rig.scope.revoke(self._batch_spans)
        await Timer(TO_GPU_US, "us")
        for ticket, slot in tickets:
            good = ticket in self._statuses
            if good:
                slot.note_outcome()
            if ended:
                record = "good" if good else "none"
                rig.seen.sample(
                    "ended ticket", by="failed read", kind=slot.plan.kind, record=record
                )
        for slot, count in self._batch.items():
            slot.expect_drained(["all"] * done[slot] + ["none"] * (count - done[slot]))
        self._batch = Counter()
        self._under_way.clear()
        self._due.clear()
        queue_now = "ended" if ended else "goes on"
        rig.seen.sample("failed read", kind=fault.kind, place=fault.place, queue=queue_now)
        if ended:
            self.ended_by = "failed read"
            raise _Ended

    async def _play(self, batch: Batch) -> None:
        rig, queue = self._rig, self._queue
        tickets = self._begin(batch)
        slots, counts = [slot for _, slot in tickets], self._batch
        watch = CopyWatch(slots)
        await self._submit(batch, slots)
        left = Counter(slots)
        for ticket, slot in tickets:
            await self._wait(ticket)
            status = queue.status(ticket)
            assert status == slot.good, f"ticket {ticket}, {slot!r}: status {status}"
            slot.note_outcome()
            self._under_way.pop(0)
            left[slot] -= 1
            if slot.plan.flush and not left[slot]:
                # It is there, wherever that is.
                slot.expect_data()
        for slot in counts:
            await slot.expect_done(self._pause)
        rig.scope.revoke(self._batch_spans)
        if any(slot.to_gpu for slot in counts):
            await Timer(TO_GPU_US, "us")
        for slot in counts:
            slot.expect_data()
        self._batch = Counter()
        for ticket, slot in tickets:
            self._sample(batch, slot, self._beside.pop(ticket))
        with_bit = {slot.plan.overlap for slot in slots if slot.plan.kind == "copy"}
        if with_bit:
            overlap = "some" if len(with_bit) == 2 else "all" if True in with_bit else "none"
            at_once = band(watch.at_once, _AT_ONCE)
            rig.seen.sample("copies", **{"at once": at_once, "overlap": overlap})

    async def _submit(self, batch: Batch, slots: list[LaunchSlot]) -> list[int]:
        """Write entries, and tell the board."""
        rng, queue = self._rig.rng, self._queue
        first, last = queue.next, slots[-1].number
        if batch.how == "early":
            await queue.ring(first + len(slots))
            await Timer(rng.randint(1, _EARLY_NS), "ns")
        tickets = []
        for slot in slots:
            tickets += queue.submit(slot.number)
            if batch.how == "singly":
                await queue.ring(queue.next, slot.number if batch.wide else None)
                await Timer(rng.choice((1, rng.randint(1, 1000), rng.randint(1, 8000))), "ns")
        if batch.how == "merged":
            for _ in range(rng.randrange(3)):
                # Again, and behind.
                await queue.ring(first + rng.randrange(-20, len(slots) + 1))
            await queue.ring(queue.next, last if batch.wide else None)
        return tickets

    def _sample(self, batch: Batch, slot: LaunchSlot, beside: str) -> None:
        told = "doorbell of 64 bits" if batch.wide else "doorbell"
        plan = slot.plan
        self._rig.seen.sample(
            "ticket",
            kind=plan.kind,
            told="shadow tail" if self._plan.polls else told,
            how=batch.how,
            list=slot.listed,
            flush="on" if plan.flush else "off",
            done=plan.done,
            overlap="on" if plan.overlap else "off",
            tickets=band(len(batch.slots), _TICKETS),
            beside=beside,
        )
        if isinstance(slot, PacketSlot):
            source = slot.packets.plan
            come = "with lulls" if source.lulls else "paced" if source.interval else "at once"
            parts = "1" if len(plan.pieces) == 2 else "2+"
            self._rig.seen.sample("packet", room=slot.room, parts=parts, source=come)

    async def finish(self) -> None:
        """Disarm: from when it is not busy, the board may touch nothing of the queue."""
        if self._over:
            return
        self._over = True
        rig, queue = self._rig, self._queue
        reset = self.ended_by in EMPTYING
        state = await queue.state()
        if not self.ended_by:
            found = (state["armed"], state["failed"], state["end"])
            assert found == (1, 0, LaunchEnd.NONE), f"queue {self._plan.number} is {state}"
        if reset:
            assert not any(state.values()), f"queue {self._plan.number} is {state} after a reset"
        else:
            await queue.control(armed=0)
        for _ in range(_DISARM_US):
            if not (await queue.state())["busy"]:
                break
            await Timer(1, "us")
        else:
            raise AssertionError(f"queue {self._plan.number} is busy {_DISARM_US} us after its end")
        rig.scope.revoke([*self._spans, *self._batch_spans])
        await invalidate(rig, (slot.number for slot in self._slots))
        self._due.clear()
        if self._batch:
            await self._settle()

    async def _settle(self) -> None:
        """Tickets of a batch may have come to any point."""
        await Timer(TO_GPU_US, "us")
        for _, slot in self._under_way:
            slot.maybe_written()
        for slot in self._batch:
            slot.expect_perhaps()
        for ticket, slot in self._under_way:
            status = self._statuses.get(ticket)
            record = {None: "none", slot.good: "good"}.get(status, "aborted")
            by, kind = self.ended_by, slot.plan.kind
            self._rig.seen.sample("ended ticket", by=by, kind=kind, record=record)

    async def audit(self) -> None:
        """Read all card RAM of the queue."""
        area = ram_of(self._plan.number)
        piece = Piece(len(area), "high", self._rig.rng.randrange(4096), area.start)
        run = Run((piece,), (1,), False, False, "status", "off", False, 0)
        job = Job(self._rig, self._rig.channels[-1], run, self._episode)
        job.prepare()
        await job.begin()
        await job.wait()
        await job.expect_good("")


class Launched:
    """The launch queues of an episode.

    `prepare` comes before all else, `start` begins to submit, and `finish` comes when software's
    own runs have ended.

    Attributes
    ----------
    pairs : set of int
        Those with launched copies, or packets.
    """

    def __init__(self, rig: Rig, episode: Episode):
        self._rig = rig
        self._tasks: list[Task] = []
        self._ended_by = ""
        plans = episode.queues
        self._packets = {plan.number: Packets(rig, plan) for plan in episode.sources}
        self.pairs = {slot.number for plan in plans for slot in plan.slots if slot.kind == "copy"}
        self.pairs |= set(self._packets)
        #: pairs whose C2H channels have tickets
        self._takers = {
            slot.number for plan in plans for slot in plan.slots if slot.kind in ("c2h", "packet")
        }
        self._episode, self._stale = episode, {number for number, _ in episode.stale}
        # A copy needs an even slot and the next one, as does a packet.
        places = iter(rig.rng.sample(range(0, regs.LAUNCH_SLOTS, 2), regs.LAUNCH_SLOTS // 2))
        self._queues = [
            _Queue(
                rig,
                plan,
                episode,
                [self._slot(slot, next(places)) for slot in plan.slots],
                self._packets,
                self._stale,
            )
            for plan in plans
        ]
        self._at_work = bool(plans)
        self._fails = any(plan.fault for plan in plans)
        self._ignored = 0

    def _slot(self, slot: Slot, even: int) -> LaunchSlot:
        if slot.kind == "packet":
            return PacketSlot(self._rig, slot, even, self._packets[slot.number])
        odd = slot.kind != "copy" and self._rig.rng.random() < 0.5
        return LaunchSlot(self._rig, slot, even + odd)

    async def prepare(self) -> None:
        """Fill the slots of the plan, and arm the queues."""
        if not self._queues:
            return
        for packets in self._packets.values():
            await packets.begin()
        for queue in self._queues:
            await queue.prepare()
        for number, size in self._episode.stale:
            await self._leave(number, size)
        self._ignored = await self._rig.read(regs.LAUNCH_QUEUE, "ignored")
        if self._fails:
            await self._rig.write(regs.EXTENSION, "error_clear", 0)

    async def _leave(self, number: int, size: int) -> None:
        """Software sends something into a pair that a launched copy has to drop."""
        rig = self._rig
        piece = Piece(size, "high", rig.rng.randrange(4096), None)
        run = Run((piece,), (1,), False, False, "status", "off", False, 0)
        job = Job(rig, rig.channels[number], run, self._episode)
        job.prepare()
        await job.begin()
        await job.wait()
        await job.expect_good("")

    def start(self) -> None:
        """Begin to submit tickets, and to check what each of them does."""
        self._tasks = [cocotb.start_soon(queue.play()) for queue in self._queues]
        for packets in self._packets.values():
            cocotb.start_soon(packets.play())

    async def stop(self, by: str) -> None:
        """Something is about to end the queues: submit no more, and expect no record."""
        self._ended_by = by
        for queue in self._queues:
            queue.end(by)
        for packets in self._packets.values():
            packets.stopped = True
        for task in self._tasks:
            await task

    async def finish(self) -> None:
        """Disarm the queues when all tickets have ended, unless something else has ended them."""
        if not self._at_work:
            return
        self._at_work = False
        for task in self._tasks:
            await task
        if not any(queue.ended_by for queue in self._queues):
            ignored = await self._rig.read(regs.LAUNCH_QUEUE, "ignored")
            assert ignored == self._ignored, f"{ignored - self._ignored} doorbells were ignored"
        for queue in self._queues:
            await queue.finish()
        if self._fails:
            info = await self._rig.read(regs.EXTENSION, "error_info")
            assert not info, f"the error of a ticket was captured: {info:#x}"
        for packets in self._packets.values():
            packets.stopped = True
            if self._ended_by not in EMPTYING:
                await packets.finish()
        if self._ended_by == "bus master off":
            # A run may have ended so, without a record.
            for pair in (self._rig.pairs[number] for number in self._takers):
                pair.unknown |= isinstance(pair, FramePair)
        for number in self._stale:
            # No copy has come to its good end.
            self._rig.pairs[number].unknown = True

    async def audit(self) -> None:
        """Read what is in card RAM now."""
        for queue in self._queues:
            await queue.audit()
