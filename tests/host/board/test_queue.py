# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues on a simulated board, as a program uses them: life cycle, errors, hostile words."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import peerdma
from peerdma import regs
from peerdma.board.queue_memory import QueueMemory
from peerdma.regs import DOORBELL_FIELDS, EXTENSION, ErrorKind, LaunchEnd, LaunchStatus
from peerdma.uapi import QueueWord, Reason
from peerdma.userspace.launch import MOST_BYTES
from peerdma.userspace.registers import Bank
from tests.host.board.launch_helpers import LAUNCHING, Copies
from tests.host.conftest import open_files

SIZES = (64, 4096, 10_001, 1, 100_000)
GENERATION = DOORBELL_FIELDS[1]
RUNNING = (Reason.NONE, LaunchEnd.NONE)


@pytest.fixture(scope="module")
def board():
    with peerdma.open("sim", arguments=LAUNCHING) as board:
        yield board
        with board.queue([board.prepare(bytearray(8), bytearray(8))]) as queue:
            queue.wait(queue.submit(0))  # whatever was done to it


@pytest.fixture
def plain():
    """A board of the default core, which has no launch queues."""
    with peerdma.open("sim") as board:
        yield board


@pytest.fixture
def gpu():
    with peerdma.gpu("emulated", memory="host") as gpu:
        yield gpu


@pytest.fixture
def copies(board, gpu):
    return Copies(board, gpu.surface, SIZES)


def test_copies_of_all_sizes_in_any_order(board, copies, seed):
    rng = random.Random(seed)
    with board.queue(copies.plans, depth=16) as queue:
        assert (queue.depth, len(queue.plans)) == (16, len(SIZES))
        assert queue.doorbell.startswith("shadow tail: ")
        assert "--doorbell-pages" in queue.doorbell
        for _ in range(8):
            copies.fill()
            order = [4, *(rng.randrange(4) for _ in range(44))]
            tickets = [queue.submit(index) for index in order]
            queue.wait(tickets[-1])
            assert all(copies.right(index) for index in set(order))
        # Through 2^16 and 2^32: done is done, also where a later record is in the place.
        assert 0 in range(tickets[-1]) and tickets[-1] < 1 << 31
        queue.wait(tickets[0])
        stats = queue.stats()
        assert (stats.submitted, stats.completed, stats.first_error) == (360, 360, 0)
        assert (stats.ended, stats.ignored) == ("", 0) and stats.cycles > 0


def test_two_queues_and_the_library_side_by_side(board, gpu, copies):
    other, mine = Copies(board, gpu.surface, SIZES, 1), Copies(board, gpu.surface, [5000], 2)
    with board.queue(copies.plans) as one, board.queue(other.plans, depth=8) as two:
        assert not set(one._run.slots) & set(two._run.slots)
        tickets = []
        for index in list(range(len(SIZES))) * 5:
            tickets.append((one.submit(index), two.submit(index)))
            mine.plans[0].run()
        for first, second in tickets:
            one.wait(first)
            two.wait(second)
        assert all(each.right(n) for each in (copies, other) for n in range(len(SIZES)))
        assert mine.right(0)


def test_a_copy_in_many_pieces_beside_a_queue_is_refused(board, copies):
    """A launched copy could drop bytes of it, between two lists of descriptors."""
    source, there = np.arange(2500).astype("u1"), np.zeros(2500, "u1")
    with board.pin(there) as pin:
        pieces = [pin[i : i + 1] for i in reversed(range(2500))]
        with (
            board.queue(copies.plans),
            pytest.raises(peerdma.UnsupportedError, match="at most 2048 pieces"),
        ):
            board.copy(source, pieces)
        board.copy(source, pieces)
    assert (there == source[::-1]).all()


@pytest.mark.parametrize("kind", ["discrete", "arrays"])
def test_memory_that_is_read_back_and_memory_without_a_file(board, kind):
    """The thread of the queue serves what the board cannot reach by itself."""
    with peerdma.gpu("emulated", memory="device") as gpu:
        make = gpu.surface if kind == "discrete" else lambda size: np.zeros(size, "u1")
        copies = Copies(board, make, (200_000, 77))
        with board.queue(copies.plans) as queue:
            queue.wait(queue.submit(0))
            queue.wait(queue.submit(1))
            assert copies.right(0) and copies.right(1)


@pytest.mark.parametrize(("memory", "read_back"), [("device", True), ("host", False)])
def test_what_is_not_in_host_memory_is_read_back_before_the_record(
    board, monkeypatch, memory, read_back
):
    """Left out only if data and record go the same way; the last dword of the destination."""
    device, written = board._backend._function.device, {}
    write = device.write32

    def spy(bar, offset, value):
        written[offset] = value
        write(bar, offset, value)

    monkeypatch.setattr(device, "write32", spy)
    with peerdma.gpu("emulated", memory=memory) as gpu:
        array, surface = np.zeros(1000, "u1"), gpu.surface(70_003)
        with board.pin(array) as other, board.pin(surface) as pinned:
            there = [pinned[:70_000], pinned[70_000:70_001], other[:99], pinned[:0]]
            with board.queue([board.prepare(np.zeros(70_100, "u1"), there)]) as queue:
                base = regs.LAUNCH_SLOT.base + regs.LAUNCH_SLOT.stride * queue._run.slots[0]
                found = {
                    name: written[base + regs.LAUNCH_SLOT[name].offset]
                    for name in ("control", "flush_lo", "flush_hi")
                }
                queue.wait(queue.submit(0))
            part = pinned.handle.scatter.part(0, 70_001)
            last = int(part.addresses[-1] + part.lengths[-1]) - 1
    control = regs.LAUNCH_SLOT["control"]
    assert control.field("flush").get(found["control"]) == read_back
    address = found["flush_hi"] << 32 | found["flush_lo"]
    assert address == (last - last % 4 if read_back else 0)


def test_kernels_have_the_queue_for_themselves(board, copies):
    with board.queue(copies.plans) as queue:
        ticket = queue.submit(0)
        device = queue.device
        assert queue.device is device
        assert (device.depth, device.plans, device.generation) == (256, len(SIZES), 1) or (
            device.generation > 1
        )
        with pytest.raises(peerdma.PeerdmaError, match="may draw tickets of this queue"):
            queue.submit(0)
        queue.wait(ticket)


def test_what_cannot_be_a_queue(board, plain, gpu, copies):
    plan = copies.plans[0]
    for plans, options, error, match in (
        ([], {}, ValueError, "at least one plan"),
        ([plan], {"depth": 7}, ValueError, "8, 16, 32, 64, 128, 256 deep, not 7"),
        ([gpu], {}, TypeError, "board.prepare"),
        ([plan] * 33, {}, peerdma.UnsupportedError, "33 plans do not fit"),
        ([plain.prepare(bytearray(8), bytearray(8))], {}, ValueError, "on another board"),
        ([board.prepare(bytearray(), bytearray())], {}, ValueError, "no bytes"),
    ):
        with pytest.raises(error, match=match):
            board.queue(plans, **options)
    large = [np.zeros(MOST_BYTES + 1, "u1") for _ in range(2)]
    with pytest.raises(peerdma.UnsupportedError, match=f"at most {MOST_BYTES}"):
        board.queue([board.prepare(*large)])
    with peerdma.gpu("emulated") as one, peerdma.gpu("emulated") as two:
        there = [one.surface(64), two.surface(64)]
        with pytest.raises(peerdma.UnsupportedError, match="memory of 2 devices"):
            board.queue([board.prepare(np.zeros(128, "u1"), there)])
    with board.queue([plan]), board.queue([plan]) as queue:
        with pytest.raises(peerdma.UnsupportedError, match="all launch queues"):
            board.queue([plan])
        with pytest.raises(ValueError, match="plans are 0 to 0, not 1"):
            queue.submit(1)


def test_a_board_without_launch_queues_says_what_to_build(plain, node_board):
    plan = plain.prepare(bytearray(8), bytearray(8))
    with pytest.raises(peerdma.UnsupportedError, match="--launch-queues 2"):
        plain.queue([plan])
    plan = node_board.prepare(np.zeros(8, "u1"), np.zeros(8, "u1"))
    words = r"this board has no launch queues\. docs/launch\.md says what launch queues need"
    with pytest.raises(peerdma.UnsupportedError, match=words):
        node_board.queue([plan])


def test_a_board_that_does_not_copy_in_one_pass(board, copies, monkeypatch):
    monkeypatch.setattr(board._backend, "_queues", None)
    monkeypatch.setattr(board._backend._driver, "copies", False)
    with pytest.raises(peerdma.UnsupportedError, match="its user block is PASS"):
        board.queue(copies.plans)


def test_nothing_is_left_of_closed_queues(board, copies):
    board.queue(copies.plans).close()
    before, threads = open_files(), threading.active_count()
    for _ in range(40):
        queue = board.queue(copies.plans, depth=8)
        queue.wait(queue.submit(0))
        queue.close()
        queue.close()
    del queue
    assert (open_files(), threading.active_count()) == (before, threads)
    queues = board._backend._queues
    assert (len(queues._free_queues), len(queues._free_slots)) == (2, 64)


# Errors --------------------------------------------------------------------------------------


def test_a_plan_whose_pin_is_closed_fails_and_errors_drain(board, gpu, copies):
    """While it is queued, behind a copy for which the board waits as long as we have the lock."""
    first = board.prepare(np.zeros(5000, "u1"), np.zeros(5000, "u1"))
    with board.pin(gpu.surface(4096)) as pinned, board.pin(gpu.surface(4096)) as there:
        closing = board.prepare(pinned, there)
        # It reads what `closing` writes, which so does not begin before the copy ahead is done.
        reads = board.prepare(there, gpu.surface(4096))
        with board.queue([first, closing, *copies.plans, reads], depth=32) as queue:
            queue.wait(queue.submit(1))
            with board._lock:
                tickets = [queue.submit(index) for index in (0, 1, 2, 1, 2)]
                pinned.close()  # returns when the board does not use the memory any more
            with pytest.raises(peerdma.PinError, match="pin is closed"):
                queue.submit(1)
            queue.wait(tickets[0])
            with pytest.raises(peerdma.TransferError, match="the pins of its plan were closed"):
                queue.wait(tickets[1])
            for ticket in tickets[2:]:
                with pytest.raises(peerdma.TransferError, match="an earlier one failed with slot"):
                    queue.wait(ticket)
            assert queue.stats().first_error == LaunchStatus.SLOT
            queue.resume()
            assert queue.stats().first_error == 0
            queue.wait(queue.submit(2))
            assert copies.right(0)


@pytest.mark.parametrize("alone", [True, False])
def test_a_failed_copy_flushes_what_comes_after_it_until_resume(board, gpu, copies, alone):
    """Memory goes away behind the library's back, and comes back.

    What may be under way with the copy that fails is aborted where it is.
    """
    source, there = gpu.surface(4096), gpu.surface(4096)
    plan = board.prepare(source, there)
    back = [board.prepare(there, gpu.surface(4096))] if alone else []
    words = "was not started" if alone else "(was not started|is undefined)"
    platform = board._backend._platform
    with board.queue([plan, *copies.plans, *back]) as queue:
        with board._lock:
            (windows,) = [
                mapped.windows
                for mapped in board._backend._mappings._mapped.values()
                if mapped.memory is source
            ]
            platform.unmap(windows)
        tickets = [queue.submit(index) for index in (1, 0, 1, 0, 1)]
        queue.wait(tickets[0])
        with pytest.raises(peerdma.TransferError, match="unsupported request") as failed:
            queue.wait(tickets[1])
        assert failed.value.kind == ErrorKind.UNSUPPORTED_REQUEST
        for ticket in tickets[2:]:
            with pytest.raises(peerdma.TransferError, match=f"{words}, as an earlier one"):
                queue.wait(ticket)
        assert queue.stats().first_error == ErrorKind.UNSUPPORTED_REQUEST
        with pytest.raises(peerdma.TransferError, match="not started"):
            queue.wait(queue.submit(1))
        queue.resume()
        assert queue.stats().first_error == 0
        with board._lock:
            windows[:] = platform.map(source).windows
        queue.wait(queue.submit(1))
        # A GPU's memory has the same bus address again.
        queue.wait(queue.submit(0))


def test_waiting_has_a_bound(board):
    """The board waits for memory that nobody serves."""
    plan = board.prepare(bytearray(5000), bytearray(5000))
    with board.queue([plan], depth=8) as queue:
        with pytest.raises(peerdma.Timeout, match=r"was not done within 0\.01 s"):
            queue.wait(queue._memory.first, timeout=0.01)
        with board._lock:
            tickets = [queue.submit(0) for _ in range(8)]
            with pytest.raises(peerdma.Timeout, match="8 tickets of the queue were on their way"):
                queue.submit(0, timeout=0.01)
            with pytest.raises(peerdma.Timeout):
                queue.wait(tickets[0], timeout=0.01)
        queue.wait(tickets[-1])


@pytest.mark.parametrize("by", ["queue", "board"])
def test_closing_with_tickets_on_their_way(by):
    with peerdma.open("sim", arguments=LAUNCHING) as board:
        plan = board.prepare(bytearray(900_000), bytearray(900_000))
        queue = board.queue([plan], depth=8)
        tickets = [queue.submit(0) for _ in range(8)]
        (queue if by == "queue" else board).close()
        found = []
        for ticket in tickets:
            try:
                queue.wait(ticket, timeout=1)
                found.append(None)
            except peerdma.Cancelled as error:
                found.append(str(error))
        assert "it was closed" in found[-1]
        for call in (lambda: queue.submit(0), lambda: queue.device, queue.resume):
            with pytest.raises(peerdma.PeerdmaError, match="the queue has ended: it was closed"):
                call()
        assert queue.stats().ended == "it was closed" and "closed" in repr(queue)


def test_closing_that_was_interrupted_is_done_again(board, copies, monkeypatch):
    queue = board.queue(copies.plans)
    ticket, run = queue.submit(4), queue._run
    with monkeypatch.context() as interrupted:
        interrupted.setattr(run, "_settle", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            queue.close()
    assert not queue.closed
    queue.close()
    assert queue.closed and queue._memory.record(ticket) is not None


def test_a_queue_without_a_thread_is_not_open(board, copies, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            board.queue(copies.plans)
    queues = board._backend._queues
    assert (len(queues._free_queues), len(queues._free_slots)) == (2, 64)


def test_a_reset_of_the_engine_ends_the_queue(board, copies):
    with board.queue(copies.plans) as queue:
        queue.wait(queue.submit(0))
        with board._lock:
            Bank(board._backend._function.device, EXTENSION).write("soft_reset", 1)
            ticket = queue.submit(4)
        with pytest.raises(peerdma.TransferError, match="the board was reset"):
            queue.wait(ticket)
        assert queue._memory.ended is Reason.RESET
        with pytest.raises(peerdma.TransferError, match="Open another queue"):
            queue.submit(0)
    with board.queue(copies.plans) as queue:
        queue.wait(queue.submit(0))


def test_whoever_waits_learns_that_the_board_is_gone(copies):
    with peerdma.open("sim", arguments=LAUNCHING) as board:
        plan = board.prepare(bytearray(900_000), bytearray(900_000))
        with board.queue([plan], depth=8) as queue:
            tickets = [queue.submit(0) for _ in range(4)]
            os.kill(board._backend._process._process.pid, signal.SIGKILL)
            with pytest.raises(peerdma.PeerdmaError, match="went away"):
                queue.wait(tickets[-1])
            with pytest.raises(peerdma.BoardLost, match="the queue has ended: the board went away"):
                queue.submit(0)


def test_a_job_that_does_not_end_costs_the_board_its_bus(monkeypatch, gpu):
    with peerdma.open("sim", arguments=LAUNCHING) as board:
        source = np.ones(900_000, "u1")
        pin = board.pin(source)
        plan = board.prepare(pin, bytearray(900_000))
        queue = board.queue([plan])
        # Nor does disarming its queue end it.
        monkeypatch.setattr(queue._run, "_settle", lambda *_: False)
        with board._lock:
            queue.submit(0)
            while not queue._run._bank.fields("state")["busy"]:
                pass
            pin.close()
        with pytest.raises(peerdma.TransferError, match="taken off the bus"):
            board.copy(gpu.surface(8), gpu.surface(8))
        queue.close()


# A hostile GPU -------------------------------------------------------------------------------


def harmed(board, copies, harm):
    """Why a queue has ended, by driver and board, after `harm`; others, and the library, go on."""
    with board.queue(copies.plans, depth=8) as other, board.queue(copies.plans, depth=8) as queue:
        queue.device  # noqa: B018  # as kernels would have it
        harm(queue)
        other.wait(other.submit(2))
        board.copy(copies.sources[0], copies.destinations[0])
        assert copies.right(0) and copies.right(2)
        queue.stats()
        return queue._memory.ended, queue._memory.fault


def tail(queue, ahead, generation=None):
    memory = queue._memory
    generation = queue._run.generation if generation is None else generation
    memory._row["tail"] = memory.drawn() + ahead & 0xFFFF | GENERATION.put(generation)


def ended(queue):
    until = time.monotonic() + 20
    while not queue._memory.ended:
        assert time.monotonic() < until
        time.sleep(0.01)
    # Whoever waits gets an error.
    with pytest.raises(peerdma.TransferError, match=r"the queue has ended: (a tail|an entry)"):
        queue.wait(queue._memory.first)


def test_a_tail_that_is_too_far_ahead(board, copies):
    def harm(queue):
        tail(queue, 9)
        ended(queue)

    assert harmed(board, copies, harm) == (Reason.ENGINE, LaunchEnd.TAIL)


def test_an_entry_that_never_comes(board, copies):
    def harm(queue):
        tail(queue, 3)
        ended(queue)

    assert harmed(board, copies, harm) == (Reason.ENGINE, LaunchEnd.ENTRY)


def test_tails_of_others_and_old_ones_change_nothing(board, copies):
    def harm(queue):
        for ahead, generation in ((2, queue._run.generation + 1), (2, 0), (-1, None), (-300, None)):
            tail(queue, ahead, generation)
            time.sleep(0.01)

    assert harmed(board, copies, harm) == RUNNING


def test_random_words_harm_their_queue_only(board, copies, seed):
    rng = np.random.default_rng(seed)

    def harm(queue):
        memory = queue._memory
        whole = memory.pages.array()
        for _ in range(20):
            whole[:] = rng.integers(0, 256, len(whole), dtype="u1")
            tail(queue, int(rng.integers(0, 9)))
            time.sleep(0.002)

    for _ in range(4):
        ended, fault = harmed(board, copies, harm)
        assert ended is (Reason.ENGINE if fault else Reason.NONE)


def test_entries_with_foreign_slots(board, copies):
    """Slots of another queue, of nobody, and second halves: none of them moves a byte."""

    def harm(queue):
        memory = queue._memory
        own = set(queue._run.slots)
        for slot in sorted(set(range(64)) - own):
            while not memory.room():
                time.sleep(0.001)
            ticket = memory.submit(0, slot, queue._run.generation)
            with pytest.raises(peerdma.TransferError, match="names no plan of this queue"):
                queue.wait(ticket)
            queue.resume()

    before = [Copies.bytes(each).copy() for each in copies.destinations]
    slots = []

    def harm_and_look(queue):
        harm(queue)
        slots.extend(queue._run.slots)
        assert all(
            (old == Copies.bytes(new)).all()
            for old, new in zip(before, copies.destinations, strict=True)
        )

    assert harmed(board, copies, harm_and_look) == RUNNING
    assert len(slots) == len(SIZES)


def test_the_driver_completes_every_ticket():
    """Each that has no record; and the first error stays beside why it ended."""
    memory = QueueMemory(8)
    memory.start(2**32 - 3)
    for index in range(5):
        memory.submit(index, 0, 1)
    memory.note(LaunchStatus.SLOT)
    memory.note(LaunchStatus.FLUSHED)
    done, *tickets = [(memory.first + n) % 2**32 for n in range(5)]
    memory._records[done % 8] = done
    memory.end(Reason.CANCELLED)
    assert memory.record(done) == (done, LaunchStatus.OK)
    assert [memory.record(each) for each in tickets] == [
        (each, LaunchStatus.ABORTED) for each in tickets
    ]
    assert memory.record((memory.first + 5) % 2**32) is None
    assert QueueWord.REASON.get(memory.word()) == Reason.CANCELLED
    assert QueueWord.STATUS.get(memory.word()) == LaunchStatus.SLOT
    assert memory._row["done"].all()
