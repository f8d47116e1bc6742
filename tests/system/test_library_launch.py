# SPDX-License-Identifier: BSD-2-Clause
"""The library's launch queues on the kernel driver, with the host in place of a GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import peerdma
from peerdma.regs import LaunchStatus
from peerdma.uapi import Access, Ioctl, QueueWord, Reason, Reset
from tests.system.launching import CONVERTER, WITH_QUEUES
from tests.system.marks import IN_GUEST
from tests.system.picoevb import PAGE, Buffer, Node, until

GUEST = WITH_QUEUES
pytestmark = IN_GUEST

NODE, WITHOUT = "/dev/picoevb", "/dev/picoevb1"
SIZES = (64, 4096, 10_001, 1, 100_000)


def test_plans_of_one_direction():
    """To card RAM and back, and to the user block and from there; not without a queue to there."""
    given = np.frombuffer(os.urandom(4096), "u1").astype("u4") << 16
    made, back = np.zeros(4096, "u2"), np.zeros(4096, "u4")
    with peerdma.open(CONVERTER) as board:
        push = board.prepare_write(given, peerdma.USER_STREAM)
        pull = board.prepare_read(made, peerdma.USER_STREAM)
        card = [board.prepare_write(given, 64), board.prepare_read(back, 64)]
        with board.queue([pull]) as first, board.queue([push, *card]) as second:
            ticket = first.submit(0)
            for index in (0, 1, 2):
                last = second.submit(index)
            second.wait(last)
            first.wait(ticket)
        assert (made == given >> 16).all() and (back == given).all()
        with pytest.raises(peerdma.TransferError, match="beyond the card RAM"):
            push.run()


class Pairs:
    """Arrays of random bytes, where they are to go, and plans for that."""

    def __init__(self, board: peerdma.Board):
        self.sources = [np.frombuffer(os.urandom(size), np.uint8) for size in SIZES]
        self.there = [np.zeros(size, np.uint8) for size in SIZES]
        self.plans = list(map(board.prepare, self.sources, self.there))

    def right(self) -> bool:
        """Whether all have arrived."""
        return all(map(np.array_equal, self.sources, self.there))


def word(queue: peerdma.Queue, field: QueueWord) -> int:
    """A field of the state word as a GPU sees it."""
    return field.get(queue._memory.word())


def outcome(call: Callable[[], object]) -> tuple[type[Exception] | None, str]:
    """What a call raises, and the words."""
    try:
        call()
    except peerdma.PeerdmaError as error:
        return type(error), str(error)
    return None, ""


def held(board: peerdma.Board, holder: Node) -> tuple[peerdma.Queue, list[int]]:
    """A queue with tickets outstanding, as another file's job has the channel of the first one."""
    holder.endless(holder.pages(Buffer(PAGE)))
    queue = board.queue(Pairs(board).plans, depth=8)
    tickets = [queue.submit(0) for _ in range(3)]
    with pytest.raises(peerdma.Timeout, match="was not done within"):
        queue.wait(tickets[0], timeout=0.2)
    return queue, tickets


def ended(queue: peerdma.Queue, tickets: list[int], why: str, reason: Reason) -> None:
    """That whoever waits learns it, on every way to ask; and the driver says the same."""
    for ticket in tickets:
        kind, words = outcome(lambda ticket=ticket: queue.wait(ticket, timeout=20))
        assert kind is peerdma.Cancelled and why in words, (kind, words)
    assert why in queue.stats().ended and why in repr(queue)
    assert word(queue, QueueWord.REASON) == reason
    with pytest.raises(peerdma.PeerdmaError, match=f"the queue has ended: .*{why}"):
        queue.submit(0)
    with pytest.raises(peerdma.PeerdmaError, match=f"the queue has ended: .*{why}"):
        queue.wait((tickets[-1] + 1) % 2**32)


def pinned() -> int:
    """Bytes pinned by anybody for the board."""
    with Node() as node:
        return node.info().pinned_bytes


@pytest.mark.each_block
def test_copies_beside_the_librarys_own():
    """More tickets than the rings have places, in two queues, and copies of the library's."""
    with peerdma.open(NODE) as board:
        one, other, mine = Pairs(board), Pairs(board), Pairs(board)
        with board.queue(one.plans, depth=8) as first, board.queue(other.plans) as second:
            tickets = []
            for index in list(range(len(SIZES))) * 5:
                tickets.append((first.submit(index), second.submit(index)))
                mine.plans[index].run()
            for a, b in tickets:
                first.wait(a)
                second.wait(b)
            assert one.right() and other.right() and mine.right()
            stats = first.stats()
            assert (stats.submitted, stats.completed, stats.first_error) == (25, 25, 0)
            assert (stats.ended, stats.ignored, stats.cycles) == ("", 0, None)
            device = second.device
            assert (device.depth, device.plans, device.generation) == (
                256,
                len(SIZES),
                first._run.generation + 1,
            )
            with pytest.raises(peerdma.UnsupportedError, match="all 2 launch queues of the board"):
                board.queue(mine.plans)
        with board.queue(mine.plans) as again:
            again.wait(again.submit(1))
    assert pinned() == 0


def test_a_copy_of_what_another_one_writes_is_of_the_new_bytes():
    """A chain of small copies in one go, beside others, which the driver is told may overlap."""
    with peerdma.open(NODE) as board:
        pairs, chain = Pairs(board), [np.zeros(256, np.uint8) for _ in range(8)]
        plans = [*map(board.prepare, chain, chain[1:]), *pairs.plans]
        with board.queue(plans) as queue:
            for _ in range(4):
                for array in chain:
                    array[:] = np.frombuffer(os.urandom(256), np.uint8)
                for index in (0, 1, 7, 2, 8, 9, 3, 4, 10, 5, 11, 6):
                    ticket = queue.submit(index)
                queue.wait(ticket)
                assert all((array == chain[0]).all() for array in chain)
                assert pairs.right()


def test_the_librarys_thread_makes_no_system_call_while_tickets_are_done():
    """It sleeps until the queue ends."""
    with peerdma.open(NODE) as board:
        pairs = Pairs(board)
        with board.queue(pairs.plans) as queue:
            folder = Path(f"/proc/self/task/{queue._thread.native_id}")

            def sleeps() -> list[str]:
                """How often it went to sleep."""
                lines = (folder / "status").read_text().splitlines()
                return [line for line in lines if line.startswith("voluntary_ctxt_switches")]

            queue.wait(queue.submit(0))
            # In its one poll(), which a thread that was just started has yet to come to.
            until(lambda: "poll" in (folder / "wchan").read_text())
            before = sleeps()
            for _ in range(5):
                for ticket in [queue.submit(index) for index in range(len(SIZES))]:
                    queue.wait(ticket)
                time.sleep(0.1)
            assert before and sleeps() == before


@pytest.mark.each_block
def test_a_closed_pin_fails_its_plan_and_errors_drain():
    """Its slot is taken before it is unpinned; the others go on after resume."""
    with peerdma.open(NODE) as board:
        pairs = Pairs(board)
        source, there = np.zeros(PAGE, np.uint8), np.ones(PAGE, np.uint8)
        pin = board.pin(source)
        with board.queue([board.prepare(pin, there), *pairs.plans], depth=8) as queue:
            queue.wait(queue.submit(0))
            assert not there.any()
            slot = queue._run.slots[0]
            pin.close()
            with pytest.raises(peerdma.PinError, match="pin is closed"):
                queue.submit(0)
            # As a kernel that still names the plan
            ticket = queue._memory.submit(0, slot, queue._run.generation)
            behind = queue.submit(1)
            with pytest.raises(peerdma.TransferError, match="the pins of its plan were closed"):
                queue.wait(ticket)
            with pytest.raises(peerdma.TransferError, match="an earlier one failed with slot"):
                queue.wait(behind)
            assert queue.stats().first_error == LaunchStatus.SLOT
            until(lambda: word(queue, QueueWord.STATUS) == LaunchStatus.SLOT)
            queue.resume()
            assert queue.stats().first_error == 0
            for index in range(len(SIZES)):
                queue.wait(queue.submit(1 + index))
            assert pairs.right()


@pytest.mark.parametrize("by", ["queue", "board"])
def test_closing_with_tickets_outstanding(by: str):
    with Node() as holder, peerdma.open(NODE) as board:
        queue, tickets = held(board, holder)
        (queue if by == "queue" else board).close()
        ended(queue, tickets, "it was closed", Reason.CANCELLED)
        queue.close()
        if by == "queue":
            pairs = Pairs(board)
            with board.queue(pairs.plans) as another:
                assert another.stats().ended == ""
    assert pinned() == 0


@pytest.mark.each_block
def test_the_driver_ends_it():
    """By a reset: nobody has closed it, and the event is that of no transfer."""
    with peerdma.open(NODE) as board:
        with Node() as holder:
            queue, tickets = held(board, holder)
            holder.request(Ioctl.RESET, Reset())
            ended(queue, tickets, "the board was reset", Reason.RESET)
        pairs = Pairs(board)
        pairs.plans[0].run()
        queue.close()
        with board.queue(pairs.plans) as another:
            for index in range(len(SIZES)):
                another.wait(another.submit(index))
            assert pairs.right()
    assert pinned() == 0


def test_a_pin_of_a_ticket_that_does_not_end():
    """Closing it returns, and the queue ends for that."""
    with Node() as holder, peerdma.open(NODE) as board:
        pin = board.pin(np.zeros(PAGE, np.uint8))
        with board.queue([board.prepare(pin, np.zeros(PAGE, np.uint8))], depth=8) as queue:
            holder.endless(holder.pages(Buffer(PAGE)))
            tickets = [queue.submit(0) for _ in range(2)]
            with pytest.raises(peerdma.Timeout):
                queue.wait(tickets[0], timeout=0.2)
            pin.close()
            ended(queue, tickets, "a pin was closed", Reason.CANCELLED)
            with pytest.raises(peerdma.PinError):
                queue.resume()


def test_a_tail_that_is_too_far_ahead():
    """The board reports it, and the driver ends the queue."""
    with peerdma.open(NODE) as board, board.queue(Pairs(board).plans, depth=8) as queue:
        memory = queue._memory
        memory._row["tail"] = memory.first + 9 & 0xFFFF | queue._run.generation << 16
        until(lambda: queue.stats().ended)
        assert "further ahead than the queue is deep" in queue.stats().ended
        assert word(queue, QueueWord.REASON) == Reason.ENGINE
        with pytest.raises(peerdma.TransferError, match="a tail was announced"):
            queue.submit(0)


def test_what_the_driver_refuses():
    without = pytest.raises(peerdma.UnsupportedError, match="core was built without")
    with peerdma.open(WITHOUT) as board, without:
        board.queue(Pairs(board).plans)
    with peerdma.open(NODE) as board:
        large = [np.zeros((16 << 20) + 1, np.uint8) for _ in range(2)]
        with pytest.raises(peerdma.UnsupportedError, match="moves 1 to 16777216 bytes"):
            board.queue([board.prepare(*large)])
        plan = board.prepare(np.zeros(64, np.uint8), np.zeros(64, np.uint8))
        with pytest.raises(peerdma.UnsupportedError, match="no slot is left"):
            board.queue([plan] * 33)
        with board.queue([plan] * 32) as queue:
            queue.wait(queue.submit(31))
    assert pinned() == 0


@pytest.mark.each_block
def test_memory_of_a_gpu():
    """What is written there is read before the record: so it is pinned for both."""
    with (
        peerdma.gpu("emulated") as gpu,
        gpu.surface(70_000) as source,
        gpu.surface(70_000) as there,
        peerdma.open(NODE) as board,
    ):
        source.array[:] = np.frombuffer(os.urandom(70_000), np.uint8)
        with board.queue([board.prepare(source, there)]) as queue:
            queue.wait(queue.submit(0))
            assert np.array_equal(source.array, there.array)
        with (
            board.pin(there, access=Access.WRITE) as only,
            pytest.raises(peerdma.UnsupportedError, match="pin the destination for both"),
        ):
            board.queue([board.prepare(source, only)])
