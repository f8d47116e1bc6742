# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues whose plans receive frames of a source on the board."""

import itertools
import zlib
from collections import deque
from dataclasses import replace

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.regs import EXTENSION, FRAME_NUMBER_VALID, FRAME_RECORD, LaunchStatus
from peerdma.testing import pattern
from peerdma.userspace.registers import Bank
from tests.boards import options
from tests.host.board.launch_helpers import controls

#: Seconds that the library gives a transfer, and a plan that is to end.
PATIENCE = 1.0
#: Bytes of a buffer, and of the longest frame that fits.
WHOLE, ROOM = 4096, 3000
#: Where frames go in a buffer.
PARTS = {
    "one piece": [(0, ROOM)],
    # more than a block of descriptors, the last one up to the record
    "parts": [(5, 6), (7, 70), *((n, n + 30) for n in range(80, 3680, 40)), (3700, 3936)],
}
SEED, UNTOUCHED = 7, 0x5A


@pytest.fixture(scope="module")
def receiver():
    """A board with the pattern source, whose frames launch queues take."""
    with peerdma.open("sim", arguments=options("receiver"), timeout=PATIENCE) as board:
        yield board


@pytest.fixture
def source(receiver):
    """The pattern source, off at the end."""
    source = testing.PatternSource(receiver)
    yield source
    source.stop()


@pytest.fixture
def near():
    """A GPU whose memory is the host's."""
    with peerdma.gpu("emulated", memory="host") as gpu:
        yield gpu


class Buffer:
    """A surface for a frame and its record, and the plan that receives them."""

    def __init__(self, board, gpu, parts=PARTS["one piece"]):
        self._whole = gpu.surface(WHOLE)
        self._parts = parts
        self._place = -(-parts[-1][1] // FRAME_RECORD.itemsize) * FRAME_RECORD.itemsize
        self.pin = board.pin(self._whole)
        record = self.pin[self._place : self._place + FRAME_RECORD.itemsize]
        self.plan = board.prepare_receive([self.pin[slice(*part)] for part in parts], record)
        self.clear()

    def clear(self):
        self._whole.set(np.uint8(UNTOUCHED))

    def record(self, number):
        """The record, with all that there is as it should be of frame `number`, and no more."""
        found, end = self._whole.get(), self._place + FRAME_RECORD.itemsize
        (record,) = found[self._place : end].view(FRAME_RECORD)
        frame = pattern.fill_bytes(SEED + number, 0, int(record["bytes"]))
        assert (record["number"], record["dropped"]) == (FRAME_NUMBER_VALID | number, 0)
        assert record["crc"] == zlib.crc32(frame)
        expected = np.full(WHOLE, UNTOUCHED, np.uint8)
        expected[self._place : end] = found[self._place : end]
        for start, stop in self._parts:
            part, frame = frame[: stop - start], frame[stop - start :]
            expected[start : start + len(part)] = part
        assert (found == expected).all(), f"frame {number}"
        return record


def take(queue, buffer, number):
    """Takes the next frame into the buffer of the first plan; the frame has to be this one."""
    queue.wait(queue.submit(0))
    buffer.record(number)
    buffer.clear()


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_frames_of_any_length_come_in_order(receiver, source, gpu, parts):
    """Into buffers in turn, whole or as much as fits, beside transfers of the program.

    None is lost while there is no buffer.
    """
    given, taken = np.arange(5000).astype("u1"), np.zeros(5000, "u1")
    receiver.write(given)
    buffers = [Buffer(receiver, gpu, parts) for _ in range(3)]
    assert buffers[0].plan.nbytes == ROOM
    numbers, begun = itertools.count(), [0]
    with receiver.queue([buffer.plan for buffer in buffers], depth=8) as queue:
        under_way = deque(queue.submit(index) for index in range(3))
        for nbytes in (4, 100, ROOM, ROOM + 4, 3 * ROOM, 8):
            source.start(nbytes, seed=SEED)
            found = 0
            while found < nbytes * 2:
                number = next(numbers)
                index, ticket = number % 3, under_way.popleft()
                queue.wait(ticket)
                record = buffers[index].record(number)
                found += int(record["bytes"]) * (record["bytes"] == nbytes)
                _, status = queue._memory.record(ticket)
                assert (status == LaunchStatus.LONG) == (record["bytes"] > ROOM)
                begun.append(int(record["cycles"]))
                buffers[index].clear()
                under_way.append(queue.submit(index))
                # On the channel of the frames.
                receiver.read(taken)
                assert (taken == given).all()
                taken[:] = 0
        stats = queue.stats()
    assert begun == sorted(set(begun))
    assert (stats.first_error, stats.ended) == (0, "")


def test_queues_take_frames_in_turn(receiver, source, near):
    """Another queue goes on where the first is; after the last one they are counted from 0."""
    one, other = Buffer(receiver, near), Buffer(receiver, near)
    source.start(100, seed=SEED)
    with receiver.queue([one.plan]) as first:
        take(first, one, 0)
        with receiver.queue([other.plan]) as second:
            for number in (1, 2):
                take(second, other, number)
        take(first, one, 3)
    with receiver.queue([other.plan]) as queue:
        take(queue, other, 0)


@pytest.mark.parametrize(("memory", "read_back"), [("host", 0), ("device", 1)])
def test_slots_of_frames(receiver, near, monkeypatch, memory, read_back):
    """A frame in a device, wherever its record is, is read back before the ticket is done."""
    with peerdma.gpu("emulated", memory=memory) as gpu:
        array = gpu.surface(100)
        plans = [
            receiver.prepare_receive(array, each.surface(1, FRAME_RECORD)) for each in (gpu, near)
        ]
        names = ("c2h", "pair", "receive", "overlap", "flush")
        assert controls(receiver, monkeypatch, plans, *names) == [(1, 0, 1, 0, read_back)] * 2


def reset(board):
    """Resets the engine, as nobody does while a queue is open."""
    with board._lock:
        Bank(board._backend._function.device, EXTENSION).write("soft_reset", 1)


#: What ends a ticket that waits for a frame, by board, queue and pin; and what is said.
ENDS = {
    "queue": (lambda board, queue, pin: queue.close(), "it was closed"),
    "pin": (lambda board, queue, pin: pin.close(), "was not started"),
    "reset": (lambda board, queue, pin: reset(board), "the board was reset"),
}


@pytest.mark.parametrize(("end", "words"), ENDS.values(), ids=ENDS)
def test_a_ticket_that_waits_for_a_frame(receiver, source, near, end, words):
    """It keeps no channel from anybody, and ends in bounded time."""
    data, there = np.arange(64, dtype="u1"), np.zeros(64, "u1")
    buffer = Buffer(receiver, near)
    following = Buffer(receiver, near)
    with receiver.queue([buffer.plan, receiver.prepare_write(data)]) as queue:
        tickets = [queue.submit(index) for index in (0, 1)]
        with pytest.raises(peerdma.Timeout):
            queue.wait(tickets[0], timeout=0.1)
        receiver.write(data)
        receiver.read(there)
        assert (there == data).all()
        end(receiver, queue, buffer.pin)
        for ticket in tickets:
            with pytest.raises(peerdma.PeerdmaError, match=words):
                queue.wait(ticket)
        # A queue that has ended, and is open, does not matter to the next one.
        source.start(100, seed=SEED)
        with receiver.queue([following.plan]) as again:
            take(again, following, 0)
    for each in (buffer, following):
        each.pin.close()
    assert (buffer._whole.get() == UNTOUCHED).all()
    assert not [pin for pin in receiver._pins if pin.memory.nbytes == WHOLE]


def test_a_board_that_is_closed_while_a_ticket_waits(near):
    with peerdma.open("sim", arguments=options("receiver"), timeout=PATIENCE) as board:
        queue = board.queue([Buffer(board, near).plan])
        ticket = queue.submit(0)
    with pytest.raises(peerdma.Cancelled, match="it was closed"):
        queue.wait(ticket)


def test_a_queue_that_is_closed_in_the_middle_of_a_frame(receiver, source, near):
    """What was there of it is lost, and the next one is whole."""
    large, buffer = near.surface(1 << 20), Buffer(receiver, near)
    source.start(1 << 20)
    plan = receiver.prepare_receive(large, near.surface(1, FRAME_RECORD))
    with receiver.queue([plan]) as queue:
        ticket = queue.submit(0)
        while not large.get()[:64].any():
            assert queue._memory.record(ticket) is None
        queue.close()
        with pytest.raises(peerdma.Cancelled, match="it was closed"):
            queue.wait(ticket)
    assert not large.get()[-64:].any()
    source.start(100, seed=SEED)
    with receiver.queue([buffer.plan]) as queue:
        take(queue, buffer, 0)


def test_frames_are_taken_by_a_queue_or_by_the_program(receiver, source, near):
    buffer = Buffer(receiver, near)
    source.start(100, seed=SEED)
    with receiver.queue([buffer.plan]) as queue:
        with pytest.raises(peerdma.PeerdmaError, match="prepare_receive takes the frames"):
            receiver.frames([np.zeros(100, "u1")])
        take(queue, buffer, 0)
    with receiver.frames([np.zeros(100, "u1")]) as frames:
        assert next(frames).number == 0
        with pytest.raises(peerdma.PeerdmaError, match="while a stream is open"):
            receiver.queue([buffer.plan])
    with receiver.queue([buffer.plan]) as queue:
        take(queue, buffer, 0)


def test_what_is_refused(receiver, board, sensor, without, near, monkeypatch):
    array, record = np.zeros(64, "u1"), near.surface(1, FRAME_RECORD)
    plan = receiver.prepare_receive(array, record)
    pin = receiver.pin(near.surface(128))

    def behind_an_older_driver():
        older = replace(receiver.info(), receives=False)
        monkeypatch.setattr(receiver._backend, "info", older)
        return receiver.prepare_receive(array, record)

    def much(nbytes):
        return receiver.prepare_receive(np.zeros(nbytes, "u1"), record)

    for call, kind, words in (
        (
            lambda: without.prepare_receive(array, record),
            peerdma.UnsupportedError,
            "this board has no user block",
        ),
        (
            lambda: board.prepare_receive(array, record),
            peerdma.UnsupportedError,
            "the board's user block PASS makes none .*--user pattern",
        ),
        (
            lambda: sensor.prepare_receive(array, record),
            peerdma.UnsupportedError,
            "gateware has no launch queues, .*--launch-queues 2",
        ),
        (lambda: receiver.queue([much((1 << 20) + 1)]), peerdma.UnsupportedError, "most 1048576"),
        (
            lambda: receiver.queue([plan] * 33),
            peerdma.UnsupportedError,
            "33 plans do not fit: .* a copy and a receive take two",
        ),
        (lambda: receiver.queue([much(0)]), ValueError, "a plan of no bytes"),
        (plan.run, peerdma.UnsupportedError, r"only a launch queue receives .*board\.queue"),
        (plan.submit, peerdma.UnsupportedError, "only a launch queue receives"),
        (lambda: receiver.prepare_receive(bytes(64), record), peerdma.PinError, "read-only"),
        (
            lambda: receiver.prepare_receive(array, pin[:31]),
            peerdma.TransferError,
            "record has 32 bytes, at a multiple of 32: these are 31 bytes at 0x",
        ),
        (lambda: receiver.prepare_receive(array, pin), peerdma.TransferError, "are 128 bytes"),
        (lambda: receiver.prepare_receive(array, pin[8:40]), peerdma.TransferError, "multiple"),
        (
            lambda: receiver.prepare_receive([array, pin[:65]], pin[64:96]),
            peerdma.TransferError,
            "a frame and its record overlap at 0x",
        ),
        (
            lambda: receiver.prepare_receive(array, [record, record]),
            TypeError,
            r"the record of board\.prepare_receive\(array, record\) is an array, .*, not one of",
        ),
        (lambda: receiver.prepare_receive(7, record), TypeError, "a transfer takes an array"),
        (behind_an_older_driver, peerdma.UnsupportedError, "the board's driver does not support"),
    ):
        with pytest.raises(kind, match=words):
            call()
    pin.close()
