# SPDX-License-Identifier: BSD-2-Clause
"""Rings of frames from a source on the board, and transfers that change the number of bytes."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import time
import zlib

import numpy as np
import pytest

import peerdma
from peerdma import testing, uapi
from peerdma.regs import FRAME_NUMBER_VALID, FRAME_RECORD, LaunchStatus, WaitsFor
from peerdma.testing.pattern import fill_bytes
from peerdma.uapi import (
    Access,
    Frame,
    Ioctl,
    Op,
    PrepareFlag,
    QueueWord,
    Reason,
    ReleaseFrames,
    StartRing,
)
from tests.system.launching import Queue
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    PAGE,
    STREAM,
    Buffer,
    Gpu,
    Node,
    rebound,
    results,
    setting,
    spawn,
    until,
)
from tests.system.rings import CANCELLED, RECORD, SENSOR, SIZE, Ring, set_register, source

#: The second board has a source of frames, the third one halves what it is sent. Both have launch
#: queues.
HALF = "/dev/picoevb2"
GUEST = {
    "configuration": "identity",
    "further_boards": [
        ["--user", "pattern", "--launch-queues", "2"],
        ["--no-msix", "--user", "bfloat16", "--launch-queues", "2"],
    ],
}
pytestmark = IN_GUEST

BUSY = (errno.EBUSY, Reason.BUSY)


# Frames --------------------------------------------------------------------------------------


def test_frames_that_are_given_back_late():
    with source(SIZE, 11), Node(SENSOR) as node:
        assert node.info().features & uapi.Feature.STREAMS
        before = node.info()
        ring = Ring(node, 3, seed=11)
        ring.run(5)
        # Three are the board's, then it waits.
        ring.wait(8)
        until(lambda: node.info().c2h_waits_for == WaitsFor.CREDIT)
        found = ring.memory[:]
        time.sleep(4)
        assert (ring.memory[:], node.info().timeouts) == (found, before.timeouts)
        for number in (5, 6, 7):
            ring.check(number)
        # Not more than has been filled, and never back.
        with node.refused(errno.EINVAL, "9 frames since the start are more than"):
            ring.release(9)
        with node.refused(errno.EINVAL, "are more than have been filled"):
            ring.release(2**64 - 1)
        ring.release(2)
        ring.release(7)
        ring.wait(10)
        for number in (7, 8, 9):
            ring.check(number)
        ring.release(8)
        ring.wait(11)
        for number in (8, 9, 10):
            ring.check(number)
        ring.stop()
        with node.refused(errno.ENOENT, "has ended, or never was"):
            ring.release(11)
        assert node.info().lost_interrupts == before.lost_interrupts


def test_records_are_off_behind_a_ring_and_a_new_one_begins_anew():
    size = 260
    target = Buffer(PAGE, b"")
    with source(size, 3), Node(SENSOR) as node:
        for count in (1, 2):
            ring = Ring(node, count, size=size, seed=3)
            ring.run(4)
            ring.stop()
        node.c2h(STREAM, target.address, 2 * size)
        frames = b"".join(fill_bytes(3 + number, 0, size).tobytes() for number in (0, 1))
        assert target[: 2 * size] == frames
        # Without records, from where the stream is.
        ring = Ring(node, 2, size=size, seed=3, start=False)
        request = ring.request(flags=0, records_handle=0)
        ring.job = node.request(Ioctl.START_RING, request).job
        ring.wait(2)
        for number in (0, 1):
            at = number * (size + 3)
            assert ring.memory[at : at + size] == fill_bytes(5 + number, 0, size).tobytes()
        ring.stop()


def scattered() -> Buffer:
    """Three pages against the order in which they were allocated: hardly in one piece."""
    file = os.memfd_create("scattered")
    os.ftruncate(file, 3 * PAGE)
    libc = ctypes.CDLL(None)
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    whole = Buffer(3 * PAGE, b"")
    for page in range(3):
        os.pwrite(file, bytes(PAGE), page * PAGE)
        fixed = mmap.MAP_SHARED | 0x10
        libc.mmap(whole.address + (2 - page) * PAGE, PAGE, 3, fixed, file, page * PAGE)
    return whole


def test_more_pieces_of_memory_than_credits_at_once():
    """Frames of three pieces and their records, all in one place: the records tell them apart."""
    size, count = PAGE + 8, 256
    with source(size, 1), Node(SENSOR) as node:
        ring = Ring(node, count, size=64, seed=1, start=False)
        handle = node.pages(scattered())
        frames = [Frame(handle=handle, offset=PAGE - 4, length=size)] * count
        pieces = node.query(handle).segments * count
        ring.job = node.request(Ioctl.START_RING, ring.request(frames)).job
        ring.wait(count)
        assert pieces in (count, 2 * count, 3 * count)
        ring.release(count // 2)
        ring.wait(count + 1)
        ring.stop()
        records = np.frombuffer(ring.records[: count * RECORD], FRAME_RECORD)
        for number in (count // 2, count - 1, count):
            crc = zlib.crc32(fill_bytes(1 + number, 0, size).tobytes())
            record = records[number % count]
            assert (record["number"], record["crc"]) == (number | FRAME_NUMBER_VALID, crc)


def test_frames_in_gpu_memory_that_is_taken_away():
    with source(SIZE, 2), Gpu() as gpu, Node(SENSOR) as node:
        ring = Ring(node, 1, seed=2, start=False)
        for move in (False, True):
            memory = gpu.alloc(GPU_PAGE)
            view, fd = gpu.view(memory, GPU_PAGE), gpu.export(memory)
            handle = node.dmabuf(fd)
            places = [Frame(handle=handle, offset=at, length=SIZE) for at in (0, 8000)]
            ring.filled = 0
            ring.job = node.request(Ioctl.START_RING, ring.request(places, records_handle=0)).job
            ring.wait(2)
            assert view[:SIZE] == fill_bytes(2, 0, SIZE).tobytes()
            assert view[8000 : 8000 + SIZE] == fill_bytes(3, 0, SIZE).tobytes()
            assert gpu.revoke(fd, move=move) == 0
            assert results([ring.end()]) == [(errno.ESTALE, Reason.REVOKED)]
            node.unpin(handle)
            os.close(fd)


# The end -------------------------------------------------------------------------------------


def test_a_ring_ends_with_its_file_and_its_process():
    def endless() -> None:
        node = Node(SENSOR)
        Ring(node, 2, seed=1).wait(1)
        time.sleep(1000)

    with source(SIZE, 1), Node(SENSOR) as other:
        for _ in range(2):
            node = Node(SENSOR)
            ring = Ring(node, 2, seed=1)
            ring.wait(1)
            ring.release(1)
            node.close()
            until(lambda: not other.info().pinned_bytes)
        pid = spawn(endless)
        until(lambda: other.info().pinned_bytes)
        until(lambda: other.info().c2h_waits_for == WaitsFor.CREDIT)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        until(lambda: not other.info().pinned_bytes)
        with Node(SENSOR) as node:
            ring = Ring(node, 2, seed=1)
            ring.run(3)
            ring.stop()


def test_unpin_reset_and_the_boards_end_are_the_rings_end():
    with source(SIZE, 1), Node(SENSOR) as node:
        ring = Ring(node, 2, seed=1)
        ring.wait(2)
        node.unpin(ring.records_handle)
        assert results([ring.end()]) == [(errno.ECANCELED, Reason.UNPINNED)]
        ring = Ring(node, 2, seed=1)
        ring.wait(2)
        node.request(Ioctl.RESET, uapi.Reset())
        assert results([ring.end()]) == [(errno.EIO, Reason.RESET)]
    with Node(SENSOR) as node:
        set_register(node, "frame_words", SIZE // 4)
        ring = Ring(node, 2, seed=1)
        ring.wait(2)
        with rebound("picoevb1"):
            assert results([ring.end()]) == [(errno.ENODEV, Reason.LOST)]
            with node.refused(errno.ENOENT, "has ended"):
                ring.release(2)
    with source(SIZE, 1), Node(SENSOR) as node:
        ring = Ring(node, 2, seed=1)
        ring.run(3)
        ring.stop()


# Others --------------------------------------------------------------------------------------


def test_a_ring_keeps_its_channel_and_no_other():
    memory = Buffer(PAGE)
    words = f"a job of process {os.getpid()}, which waits for data of the user stream, keeps"
    with source(SIZE, 1), Node(SENSOR) as node, Node(SENSOR) as other:
        # No frames come, and none is left in the stream.
        node.request(Ioctl.RESET, uapi.Reset())
        handle = other.pages(memory)
        ring = Ring(node, 2, seed=1, start=False)
        # What is queued before it starts is not done, either: but for one, as files take turns.
        holds = node.endless(ring.handle)
        for _ in range(100):
            other.submit(Op.C2H, PAGE, dst_handle=handle)
        ring.job = node.request(Ioctl.START_RING, ring.request()).job
        node.cancel(holds)
        assert results(node.events(1)) == [CANCELLED]
        ended = results(other.events(100))
        assert set(ended) == {(0, 0), BUSY}
        assert ended.count(BUSY) > 50
        set_register(node, "seed", 1)
        set_register(node, "frame_words", SIZE // 4)
        ring.wait(2)
        for each in (node, other):
            with each.refused(errno.EBUSY, words):
                each.c2h(0, memory.address, 8)
            with each.refused(errno.EBUSY, words):
                each.c2h(STREAM, memory.address, 8)
            with each.refused(errno.EBUSY, words):
                Ring(each, 1, seed=1)
        # The ring is nobody else's.
        request = ReleaseFrames(job=ring.job, count=1)
        other.refuses(errno.ENOENT, "never was", Ioctl.RELEASE_FRAMES, request)
        other.refuses(errno.ENOENT, "never was", Ioctl.CANCEL, uapi.Cancel(job=ring.job))
        other.h2c(memory.address, 0, PAGE)
        ring.run(5)
        ring.stop()
        other.c2h(0, memory.address, 8)


def test_a_file_for_reading_starts_and_releases_nothing():
    with Node(SENSOR, mode=os.O_RDONLY) as node:
        for code, request in (
            (Ioctl.START_RING, StartRing(count=1)),
            (Ioctl.RELEASE_FRAMES, ReleaseFrames(job=1)),
        ):
            node.refuses(errno.EACCES, "opened for reading only", code, request)


def test_rings_that_are_refused():
    with Node(SENSOR) as node, Node() as plain:
        ring = Ring(node, 2, seed=1, start=False)
        read_only = node.pages(Buffer(PAGE), access=uapi.Access.READ)
        size = len(ring.memory)

        def refused(words: str, frames: list[Frame] | None = None, **members: int) -> None:
            request = ring.request(frames, **members)
            node.refuses(errno.EINVAL, words, Ioctl.START_RING, request)

        def with_frame(**members: int) -> list[Frame]:
            wanted = {"handle": ring.handle, "offset": 0, "length": 8, **members}
            return [*ring.frames(), Frame(**wanted)]

        for count in (0, 257, 2**32 - 1):
            refused(f"1 to 256 frames, not {count}", count=count)
        refused("unknown flags 0x3", flags=3)
        refused("records, 32, but no memory", records_handle=0, records_offset=32)
        refused("multiples of 32, not at 8", records_offset=8)
        refused("in the stream already have no records", flags=0)
        refused("no memory is pinned as handle 99", records_handle=99)
        refused("beyond the memory pinned", records_offset=PAGE - RECORD)
        refused("beyond the memory pinned", records_offset=2**64 - RECORD)
        refused("not pinned for the board to write", records_handle=read_only)
        refused("frame 2 has no bytes", with_frame(length=0))
        refused("frame 2: a reserved member is 1", with_frame(reserved=1))
        refused("no memory is pinned as handle 0", with_frame(handle=0))
        refused("not pinned for the board to write", with_frame(handle=read_only))
        for offset, length in ((size, 1), (size - 7, 8), (2**64 - 4, 8), (8, 2**64 - 8)):
            refused("beyond the memory pinned", with_frame(offset=offset, length=length))
        for address in (0, 1, 2**47, 2**64 - 8):
            request = ring.request(frames=None)
            request.frames = address
            with pytest.raises(OSError, match="Bad address"):
                node.request(Ioctl.START_RING, request)
        request = ReleaseFrames(job=1, flags=1)
        node.refuses(errno.EINVAL, "unknown flags", Ioctl.RELEASE_FRAMES, request)
        job = node.submit(Op.H2C, 0, src_handle=ring.handle)
        request = ReleaseFrames(job=job)
        node.refuses(errno.ENOENT, "has ended", Ioctl.RELEASE_FRAMES, request)
        # A board whose frames have no records.
        handle = plain.pages(ring.memory)
        frames = [Frame(handle=handle, length=8)]
        request = ring.request(frames, records_handle=handle)
        plain.refuses(errno.EOPNOTSUPP, "makes no records", Ioctl.START_RING, request)
        # Other jobs are no rings.
        job = plain.endless(handle)
        request = ReleaseFrames(job=job)
        plain.refuses(errno.EINVAL, "has no frames", Ioctl.RELEASE_FRAMES, request)
        plain.cancel(job)


# Packets: frames that launch queues take ------------------------------------------------------

OK, LONG = LaunchStatus.OK, LaunchStatus.LONG
SLOT, FLUSHED, ABORTED = LaunchStatus.SLOT, LaunchStatus.FLUSHED, LaunchStatus.ABORTED


class Packets:
    """A queue, and places for frames in one memory: each with a record behind it."""

    def __init__(self, node: Node, seed: int, count: int = 3):
        self.queue, self.seed = Queue(node), seed
        self.memory = Buffer(3 * PAGE * count, b"\xee" * 3 * PAGE * count)
        self.handle = node.pages(self.memory)

    def prepare(self, place: int, length: int, op: Op = Op.C2H, **members: int) -> int:
        """Prepares to take packets: a slot."""
        begin = 3 * PAGE * place
        settings = {
            "flags": PrepareFlag.RECEIVE,
            "src_offset": STREAM,
            "dst_handle": self.handle,
            "dst_offset": begin + 3,
            "record_handle": self.handle,
            "record_offset": begin + 2 * PAGE,
        }
        return self.queue.prepare(op, length, **(settings | members))

    def check(self, place: int, frame: int, length: int = SIZE) -> None:
        """That a place has no more of a frame than `length` bytes, and its record."""
        begin = 3 * PAGE * place + 3
        data = fill_bytes(self.seed + frame, 0, SIZE).tobytes()
        taken = data[:length]
        rest = self.memory[begin + len(taken) : begin - 3 + 2 * PAGE]
        assert self.memory[begin : begin + len(taken)] == taken, (place, frame)
        assert rest == b"\xee" * len(rest), (place, frame)
        at = begin - 3 + 2 * PAGE
        (record,) = np.frombuffer(self.memory[at : at + RECORD], FRAME_RECORD)
        assert record["number"] == frame | FRAME_NUMBER_VALID
        assert (record["bytes"], record["crc"]) == (SIZE, zlib.crc32(data))


def test_tickets_take_frames_in_order():
    """Shorter than their memory, exactly as long, and longer by much; and then none has records."""
    rooms = (SIZE + 1000, SIZE, 64)
    target = Buffer(2 * PAGE, b"")
    with source(SIZE, 5), Node(SENSOR) as node:
        assert node.info().features & uapi.Feature.RECEIVE
        packets = Packets(node, 5)
        slots = [packets.prepare(place, room) for place, room in enumerate(rooms)]
        for turn in range(3):
            assert packets.queue.run(*slots) == [OK, OK, LONG]
            for place, room in enumerate(rooms):
                packets.check(place, 3 * turn + place, room)
        # LONG is no failure. Each has two slots.
        assert (packets.queue.query().state, packets.queue.query().slots) == (0, 0b111111)
        pieces = scattered()
        there = {"dst_handle": node.pages(pieces), "dst_offset": PAGE - 4}
        slots.append(packets.prepare(0, 2 * PAGE, **there))
        assert packets.queue.run(slots[-1]) == [OK]
        assert pieces[PAGE - 4 : PAGE - 4 + SIZE] == fill_bytes(5 + 9, 0, SIZE).tobytes()
        for slot in slots:
            packets.queue.unprepare(slot)
        node.c2h(STREAM, target.address, SIZE + 8)
        frames = [fill_bytes(5 + number, 0, SIZE).tobytes() for number in (0, 1)]
        assert target[: SIZE + 8] == frames[0] + frames[1][:8]


def test_tickets_wait_for_frames_without_their_channel():
    """Others use that meanwhile, but for the stream; and nobody waits for them to give a slot."""
    memory = Buffer(PAGE)
    with source(SIZE, 6), Node(SENSOR) as node, Node(SENSOR) as other:
        # What is in the stream has no records.
        set_register(node, "frame_words", 0)
        packets = Packets(node, 6)
        slots = [packets.prepare(place, SIZE, done=place) for place in range(2)]
        packets.queue.done(0).value = packets.queue.done(1).value = 0
        tickets = packets.queue.submit(*slots)
        for _ in range(5):
            for each in (node, other):
                each.c2h(0, memory.address, PAGE)
                each.h2c(memory.address, 0, PAGE)
        with other.refused(errno.EACCES, "has the user stream of channel 0 for itself"):
            Ring(other, 1, seed=6)
        words = [packets.queue.status(each) for each in tickets], packets.queue.done(0).value
        assert words == ([None, None], 0)
        packets.queue.unprepare(slots[0])
        assert packets.queue.done(0).value == 1
        assert packets.queue.wait(*tickets) == [SLOT, FLUSHED]
        packets.queue.resume()
        set_register(node, "frame_words", SIZE // 4)
        assert packets.queue.run(slots[1]) == [OK]
        packets.check(1, 0)


def test_queues_end_while_tickets_wait_for_frames():
    """Nobody is left waiting, and the next queue begins with the first frame."""
    with source(SIZE, 7), Gpu() as gpu, Node(SENSOR) as node:

        def waiting(node: Node, **members: int) -> tuple[Queue, list[int]]:
            set_register(node, "frame_words", 0)
            packets = Packets(node, 7)
            slot = packets.prepare(0, SIZE, done=0, **members)
            packets.queue.done(0).value = 0
            tickets = packets.queue.submit(slot, slot)
            time.sleep(0.05)
            assert [packets.queue.status(each) for each in tickets] == [None, None]
            return packets.queue, tickets

        def ended(queue: Queue, tickets: list[int], reason: Reason) -> None:
            assert queue.wait(*tickets) == [FLUSHED, FLUSHED]
            until(lambda: queue.done(0).value == 1)
            assert queue.state(QueueWord.REASON) == reason

        queue, tickets = waiting(node)
        queue.destroy()
        ended(queue, tickets, Reason.CANCELLED)
        with Node(SENSOR) as closed:
            queue, tickets = waiting(closed)
        ended(queue, tickets, Reason.CANCELLED)
        fd = gpu.export(gpu.alloc(GPU_PAGE))
        there = dict.fromkeys(("dst_handle", "record_handle"), node.dmabuf(fd))
        queue, tickets = waiting(node, **there)
        assert gpu.revoke(fd) == 0
        os.close(fd)
        ended(queue, tickets, Reason.REVOKED)
        assert results([queue.event()]) == [(errno.ESTALE, Reason.REVOKED)]
        queue, tickets = waiting(node)
        node.request(Ioctl.RESET, uapi.Reset())
        ended(queue, tickets, Reason.RESET)
        assert results([queue.event()]) == [(errno.EIO, Reason.RESET)]
        set_register(node, "seed", 7)
        packets = Packets(node, 7)
        slot = packets.prepare(0, SIZE)
        tickets = packets.queue.submit(slot)
        set_register(node, "frame_words", SIZE // 4)
        assert packets.queue.wait(*tickets) == [OK]
        packets.check(0, 0)


def test_a_ring_beside_slots_that_take_packets():
    """Of the same file: frames have records for as long as one of both wants that."""
    with source(SIZE, 8), Node(SENSOR) as node:
        packets = Packets(node, 8)
        slot = packets.prepare(0, SIZE)
        ring = Ring(node, 2, seed=8)
        ring.run(3)
        ring.stop()
        assert packets.queue.run(slot, slot) == [OK, OK]
        packets.check(0, 1)
        packets.queue.unprepare(slot)
        ring = Ring(node, 2, seed=8)
        ring.run(3)
        ring.stop()


def test_a_ticket_that_keeps_the_stream_from_being_flushed():
    """Its queue ends when a job of others on the pair is late for that."""
    memory = Buffer(PAGE)
    with source(SIZE, 4), Node(SENSOR) as node, Node(SENSOR) as other:
        set_register(node, "frame_words", 0)
        packets = Packets(node, 4)
        packets.queue.unprepare(packets.prepare(0, SIZE))
        plain = packets.prepare(1, SIZE, flags=0, record_handle=0, record_offset=0)
        (ticket,) = packets.queue.submit(plain)
        time.sleep(0.1)
        packets.prepare(0, SIZE)
        # It waits for as long as that, and then has as much time to move.
        with setting("peerdma", "timeout_ms", 3):
            other.h2c(memory.address, 0, PAGE)
        assert packets.queue.wait(ticket) == [ABORTED]
        assert results([packets.queue.event()]) == [(errno.ETIMEDOUT, Reason.TIMEOUT)]


def test_frames_and_records_in_a_gpu():
    with source(SIZE, 9), Gpu() as gpu, Node(SENSOR) as node:
        packets = Packets(node, 9)
        va = gpu.alloc(2 * GPU_PAGE)
        view, fd = gpu.view(va, 2 * GPU_PAGE), gpu.export(va)
        both, record = node.dmabuf(fd), node.dmabuf(fd, offset=GPU_PAGE, length=64)
        data = {"dst_handle": both, "dst_offset": 1}
        for number, (place, at) in enumerate(((both, GPU_PAGE + 64), (record, 32))):
            slot = packets.prepare(0, SIZE, record_handle=place, record_offset=at, **data)
            packets.queue.unprepare(slot)  # the next one begins anew
            slot = packets.prepare(0, SIZE, record_handle=place, record_offset=at, **data)
            assert packets.queue.run(slot) == [OK], number
            packets.queue.unprepare(slot)
            frame = fill_bytes(9, 0, SIZE).tobytes()
            assert view[1 : 1 + SIZE] == frame
            at += GPU_PAGE if place == record else 0
            (found,) = np.frombuffer(view[at : at + RECORD], FRAME_RECORD)
            assert found["crc"] == zlib.crc32(frame)
        os.close(fd)


def test_packets_that_are_refused():
    memory = Buffer(PAGE)
    with Node(SENSOR) as node, Node(HALF) as half:
        packets = Packets(node, 1)
        read_only = node.pages(memory, access=Access.READ)
        for words, members in (
            ("a record, handle .* at byte 8192, but no flag", {"flags": 0}),
            ("a record, handle 0 at byte 8192", {"flags": 0, "record_handle": 0}),
            ("or a reserved member 1", {"reserved": 1}),
            ("comes from the stream window, .* not from 0x0 by operation 1", {"src_offset": 0}),
            ("by operation 0", {"op": Op.H2C}),
            ("by operation 2", {"op": Op.COPY}),
            ("no memory is pinned as handle 0", {"record_handle": 0}),
            ("no memory is pinned as handle 4095", {"record_handle": 4095}),
            ("byte 8 of its memory, is not at a multiple of 32", {"record_offset": 8}),
            ("beyond the memory pinned", {"record_offset": len(packets.memory) - 16}),
            ("beyond the memory pinned", {"record_offset": 2**64 - 32}),
            ("not pinned for the board to write", {"record_handle": read_only, "record_offset": 0}),
            ("not pinned for the board to write", {"dst_handle": read_only}),
            ("1 to 16777216 bytes, not 0", {"length": 0}),
        ):
            with node.refused(errno.EINVAL, words):
                packets.prepare(0, **({"length": SIZE} | members))
        # Nothing is in the stream behind this.
        packets.queue.unprepare(packets.prepare(0, SIZE))
        running = node.endless(packets.handle)
        with node.refused(errno.EBUSY, "another job uses the user stream of channel 0: try again"):
            packets.prepare(0, SIZE)
        node.cancel(running)
        node.events(1)
        # Nothing is left of any.
        assert node.query(packets.handle).jobs == 0
        with half.refused(errno.EOPNOTSUPP, "launch queues of this board take no packets"):
            Packets(half, 1).prepare(0, SIZE)


# Transfers that change the number of bytes ---------------------------------------------------


def test_process():
    """More than the board holds; in any case what comes out are the same bytes."""
    values = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    taken, made = Buffer(PAGE * 49, values.tobytes()), Buffer(PAGE * 25, b"")
    with Node(HALF) as node:
        s, d = node.pages(taken), node.pages(made)
        both = {"src_handle": s, "dst_handle": d, "src_offset": 4, "dst_offset": 3}
        for count in (1, 1024, 49_999):
            made[:] = bytes(len(made))
            node.submit(Op.PROCESS, 4 * count, dst_length=2 * count, **both)
            (event,) = node.events(1)
            assert (results([event]), event.bytes) == ([(0, 0)], 2 * count)
            found = np.frombuffer(made[3 : 3 + 2 * count], np.uint16)
            words = values[1 : 1 + count].view(np.uint32).astype(np.uint64)
            rounded = words + 0x7FFF + (words >> 16 & 1) >> 16
            assert (found == rounded).all()
            assert not any(made[3 + 2 * count :])
        node.submit(Op.PROCESS, 0, **both)
        assert results(node.events(1)) == [(0, 0)]


def test_lengths_that_do_not_match_the_ratio():
    memory = Buffer(2 * PAGE)

    def refused(path: str, number: int, words: str, op: Op = Op.PROCESS, **members: int) -> None:
        with Node(path) as node:
            handle = node.pages(memory)
            sides = {"src_handle": handle, "dst_handle": handle, "dst_offset": PAGE}
            request = uapi.Submit(op=op, **{**sides, **members})
            node.refuses(number, words, Ioctl.SUBMIT, request)

    for taken, made in ((8, 8), (8, 0), (0, 2), (6, 3), (7, 3), (8, 2)):
        words = f"{taken} bytes do not become {made}: the user block makes 2 bytes of each 4"
        refused(HALF, errno.EINVAL, words, length=taken, dst_length=made)
    for made in (PAGE + 1, 2**63, 2**64 - 1):
        refused(HALF, errno.EINVAL, "beyond the memory", length=8, dst_length=made)
    overlap = {"length": 4096, "dst_length": 2048, "dst_offset": 4000}
    refused(HALF, errno.EINVAL, "source and destination overlap", **overlap)
    refused(SENSOR, errno.EOPNOTSUPP, "makes bytes of others", length=8, dst_length=8)
    refused(HALF, errno.EINVAL, "except for PEERDMA_OP_PROCESS", Op.COPY, length=8, dst_length=8)
    with Node() as node:
        handle = node.pages(memory)
        both = {"src_handle": handle, "dst_handle": handle, "dst_offset": PAGE}
        node.submit(Op.PROCESS, PAGE, dst_length=PAGE, **both)
        assert results(node.events(1)) == [(0, 0)]
    assert memory[:PAGE] == memory[PAGE:]


# The library ---------------------------------------------------------------------------------


def test_frames_and_process_by_the_library():
    with peerdma.open(SENSOR) as board:
        sensor = testing.PatternSource(board)
        sensor.start(SIZE, seed=20)
        ring, began = [np.zeros(SIZE, np.uint8) for _ in range(3)], time.monotonic_ns()
        with pytest.raises(peerdma.UnsupportedError, match="Leave overwrite out"):
            board.frames(ring, overwrite=True)
        with board.frames(ring) as frames:
            for number in range(7):
                frame = next(frames)
                assert (frame.number, frame.record.number) == (number, number)
                assert (frame.array == fill_bytes(20 + number, 0, SIZE)).all()
                assert frame.intact()
                assert frame.time.simulated
                assert began <= frame.time.ns <= time.monotonic_ns()
        sensor.stop()
        places = np.zeros(2 * PAGE, np.uint8)
        record = places[-places.ctypes.data % 32 :][:32]
        plans = [board.prepare_receive(each, record) for each in (ring[0], ring[1][:100])]
        sensor.start(SIZE, seed=30)
        with board.queue(plans, depth=8) as queue:
            for number in range(4):
                index = number % 2
                queue.wait(queue.submit(index))
                frame = fill_bytes(30 + number, 0, SIZE)[: (SIZE, 100)[index]]
                assert (ring[index][: len(frame)] == frame).all()
                found = record.view(FRAME_RECORD)[0]
                assert (found["number"], found["bytes"]) == (number | FRAME_NUMBER_VALID, SIZE)
            assert queue.stats().first_error == 0
        sensor.stop()
        late = pytest.raises(peerdma.Timeout, match="the user block to give data")
        with board.frames(ring, timeout=2) as frames, late:
            next(frames)
    with peerdma.open(HALF) as board:
        values, made = np.arange(5000, dtype=np.float32), np.zeros(5000, np.uint16)
        transfer = board.process(values, made)
        assert transfer.bytes == values.nbytes
        assert (made[:256] == values[:256].view(np.uint32) >> 16).all()
