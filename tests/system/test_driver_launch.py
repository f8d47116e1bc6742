# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: jobs that a process starts as a GPU would, by memory alone, and how they end."""

from __future__ import annotations

import errno
import os
import random
import time

import pytest

from peerdma import uapi
from peerdma.regs import LAUNCH_SLOTS, LaunchEnd, LaunchStatus
from peerdma.uapi import Access, BoardState, Context, Ioctl, Op, PrepareFlag, QueueWord, Reason
from tests.system.launching import CONVERTER, RECORDS, SHADOW, WITH_QUEUES, WORD, Queue, polled
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    PAGE,
    STREAM,
    Buffer,
    Gpu,
    Node,
    results,
    setting,
    until,
    user,
)

GUEST = WITH_QUEUES
pytestmark = IN_GUEST

OK, SLOT, FLUSHED = LaunchStatus.OK, LaunchStatus.SLOT, LaunchStatus.FLUSHED
ABORTED = LaunchStatus.ABORTED
SIZE = 5 * PAGE


# Jobs ----------------------------------------------------------------------------------------


@pytest.mark.each_block
def test_jobs_to_the_card_and_back():
    """Data, records and done words, for more tickets than the rings have places."""
    source, destination = Buffer(SIZE), Buffer(SIZE, b"")
    with Node() as node:
        queue = Queue(node)
        before = node.info()
        to, back = (node.pages(memory) for memory in (source, destination))
        write = queue.prepare(Op.H2C, 3000, 0, src_handle=to, src_offset=5, dst_offset=64)
        read = queue.prepare(Op.C2H, 3000, 1, dst_handle=back, dst_offset=7, src_offset=64)
        for turn in range(20):
            source[:] = os.urandom(SIZE)
            queue.done(0).value = queue.done(1).value = 0
            assert queue.run(write, read) == [OK, OK]
            assert destination[:] == bytes(7) + source[5:3005] + bytes(SIZE - 3007), turn
            until(lambda: queue.done(0).value == queue.done(1).value == 1)
        assert queue.query().slots == 1 << write | 1 << read
        assert queue.query().state == queue.word(WORD).value == 0
        queue.unprepare(write)
        assert queue.query().slots == 1 << read
        queue.destroy()
        # Software's registers do not show jobs of slots, and its counters do not count them.
        after = node.info()
        assert (after.jobs, after.failures) == (before.jobs, before.failures)


@pytest.mark.each_block
def test_copies_of_scattered_memory():
    """Through the stream, in more descriptors than one."""
    source, destination = Buffer(64 * PAGE), Buffer(64 * PAGE, b"")
    with Node() as node:
        queue = Queue(node, depth=256)
        handles = {"src_handle": node.pages(source), "dst_handle": node.pages(destination)}
        whole = queue.prepare(Op.COPY, 64 * PAGE, 0, **handles)
        part = queue.prepare(Op.COPY, 10001, src_offset=3, dst_offset=1, **handles)
        assert whole % 2 == part % 2 == 0
        assert queue.run(whole) == [OK]
        assert destination[:] == source[:]
        source[:] = os.urandom(len(source))
        assert queue.run(part) == [OK]
        assert destination[1:10002] == source[3:10004]


@pytest.mark.parametrize("says", [False, True])
def test_only_copies_that_say_so_overlap(says: bool):
    """A copy of what the one ahead of it writes takes old bytes then, as it reads first."""
    length, old = 256, 0
    with Node() as node:
        assert node.info().features & uapi.Feature.OVERLAP
        queue, memory = Queue(node), Buffer(3 * PAGE, b"")
        handle = node.pages(memory)
        slots = [
            queue.prepare(
                Op.COPY,
                length,
                src_handle=handle,
                src_offset=place * PAGE,
                dst_handle=handle,
                dst_offset=(place + 1) * PAGE,
                flags=PrepareFlag.OVERLAP * says,
            )
            for place in range(2)
        ]
        for _ in range(10):
            first, second = os.urandom(length), os.urandom(length)
            memory[:length], memory[PAGE : PAGE + length] = first, second
            assert queue.run(*slots) == [OK, OK]
            assert memory[PAGE : PAGE + length] == first
            copied = memory[2 * PAGE : 2 * PAGE + length]
            assert copied in (first, second)
            old += copied == second
        assert bool(old) == says


def test_a_slot_can_be_started_at_once():
    """Though the board reads the tail before all that was written to its registers has arrived."""
    with Node() as node:
        memory = node.pages(Buffer(PAGE)), node.pages(Buffer(PAGE))
        there = dict(zip(("src_handle", "dst_handle"), memory, strict=True))
        for _ in range(4):
            queue = Queue(node)
            slots = [queue.prepare(Op.COPY, PAGE, **there) for _ in range(LAUNCH_SLOTS // 2)]
            assert queue.run(slots[-1]) == [OK]
            queue.destroy()


@pytest.mark.parametrize("kind", ["cuda", "dmabuf"])
def test_memory_of_a_gpu(kind: str):
    """What the board writes there is read before the record."""
    with Gpu() as gpu, Node() as node:
        queue = Queue(node)
        va = gpu.alloc(2 * GPU_PAGE)
        view = gpu.view(va, 2 * GPU_PAGE)
        if kind == "cuda":
            handle = node.cuda(va, 2 * GPU_PAGE)
        else:
            handle = node.dmabuf(fd := gpu.export(va))
            os.close(fd)
        view[:GPU_PAGE] = os.urandom(GPU_PAGE)
        there = {"src_handle": handle, "dst_handle": handle, "dst_offset": GPU_PAGE}
        assert queue.run(queue.prepare(Op.COPY, GPU_PAGE, **there)) == [OK]
        assert view[GPU_PAGE:] == view[:GPU_PAGE]
        queue.destroy()


def test_a_gpu_that_is_only_written():
    with Gpu() as gpu, Node() as node:
        queue, fd = Queue(node), gpu.export(gpu.alloc(GPU_PAGE))
        pin = uapi.PinDmabuf(fd=fd, access=Access.WRITE)
        handle = node.request(Ioctl.PIN_DMABUF, pin).handle
        with node.refused(errno.EINVAL, "pin the destination for both"):
            queue.prepare(Op.C2H, PAGE, dst_handle=handle)
        os.close(fd)


def test_two_queues_beside_the_jobs_of_others():
    """Of other files, on the same channels: copies that go through the same stream."""
    with Node() as node, Node() as other, Node() as host:
        pairs = []
        for each in (node, other):
            source, destination = Buffer(SIZE), Buffer(SIZE, b"")
            queue = Queue(each, depth=16)
            handles = [each.pages(memory) for memory in (source, destination)]
            slot = queue.prepare(Op.COPY, SIZE, src_handle=handles[0], dst_handle=handles[1])
            pairs.append((queue, slot, source, destination))
        sent, got = Buffer(3 * PAGE), Buffer(3 * PAGE, b"")
        copies = 0

        def copy() -> None:
            nonlocal copies
            sent[:] = os.urandom(len(sent))
            host.h2c2h(sent.address, got.address, len(sent))
            assert got[:] == sent[:]
            copies += 1

        with polled(copy) as raised:
            for _ in range(30):
                for _, _, source, _ in pairs:
                    source[:] = os.urandom(SIZE)
                tickets = [queue.submit(slot, slot) for queue, slot, _, _ in pairs]
                for (queue, _, source, destination), both in zip(pairs, tickets, strict=True):
                    assert queue.wait(*both) == [OK, OK]
                    assert destination[:] == source[:]
            until(lambda: raised or copies > 5)
        assert raised == []


# The user stream -----------------------------------------------------------------------------


def _halves(words: bytes) -> bytes:
    """The upper halves of words: what the converter makes of them if the lower ones are 0."""
    return b"".join(words[at + 2 : at + 4] for at in range(0, len(words), 4))


def _words(count: int) -> bytes:
    """Of numbers, so that nothing is rounded."""
    return b"".join(bytes((0, 0, each, 0x40)) for each in os.urandom(count))


def test_what_goes_to_the_user_block_and_what_it_makes():
    """By two queues more than it holds, the one that pulls first."""
    given, made = Buffer(4 * PAGE, _words(PAGE)), Buffer(2 * PAGE, b"")
    with Node(CONVERTER) as node:
        push, pull = Queue(node), Queue(node)
        source, there = node.pages(given), node.pages(made)
        write = push.prepare(Op.H2C, 4 * PAGE, src_handle=source, dst_offset=STREAM)
        read = pull.prepare(Op.C2H, 2 * PAGE, 0, dst_handle=there, src_offset=STREAM)
        pulled = pull.submit(read)
        assert push.run(write) == [OK]
        assert pull.wait(*pulled) == [OK]
        assert made[:] == _halves(given[:])
        with node.refused(errno.EOPNOTSUPP, "go through card RAM"):
            push.prepare(Op.COPY, 64, src_handle=source, dst_handle=there)


def test_the_user_stream_is_a_files_own():
    """While it has such jobs in slots; afterwards, nothing of it is left there."""
    given, made = Buffer(PAGE, _words(PAGE // 4)), Buffer(PAGE, b"")
    with Node(CONVERTER) as node, Node(CONVERTER) as other:
        queue, others = Queue(node), Queue(other)
        mine, handle = node.pages(given), other.pages(made)
        process = {"src_handle": other.pages(given), "dst_handle": handle, "dst_length": 256}
        running = other.endless(handle)
        with node.refused(errno.EBUSY, "uses the user stream of channel 0: try again"):
            queue.prepare(Op.H2C, 64, src_handle=mine, dst_offset=STREAM)
        other.cancel(running)
        other.events(1)
        # One that is queued when the stream is taken is told when its turn comes.
        running = node.endless(node.pages(Buffer(PAGE)))
        other.submit(Op.PROCESS, 512, **process)
        slot = queue.prepare(Op.H2C, 64, src_handle=mine, dst_offset=STREAM)
        node.cancel(running)
        node.events(1)
        assert results(other.events(1)) == [(errno.EACCES, Reason.PARTITION)]
        words = "another open file has the user stream of channel 0 for itself"
        for refused in (
            lambda: other.submit(Op.PROCESS, 512, **process),
            lambda: other.endless(handle),
            lambda: others.prepare(Op.C2H, 64, dst_handle=handle, src_offset=STREAM),
        ):
            with other.refused(errno.EACCES, words):
                refused()
        other.submit(Op.C2H, PAGE, dst_handle=handle)
        assert results(other.events(1)) == [(0, 0)]
        # The file itself takes what its GPU has sent.
        assert queue.run(slot) == [OK]
        back = Buffer(32, b"")
        node.submit(Op.C2H, 32, dst_handle=node.pages(back), src_offset=STREAM)
        assert results(node.events(1)) == [(0, 0)]
        assert back[:] == _halves(given[:64])
        assert queue.run(slot) == [OK]
        queue.unprepare(slot)
        other.submit(Op.PROCESS, 512, **process)
        assert results(other.events(1)) == [(0, 0)]
        assert made[:256] == _halves(given[:512])


# Errors --------------------------------------------------------------------------------------


def test_an_error_drains_until_resume():
    memory = Buffer(PAGE)
    with Node() as node:
        queue = Queue(node)
        good = queue.prepare(Op.H2C, 64, 0, src_handle=node.pages(memory))
        assert queue.run(good, 63, good, good) == [OK, SLOT, FLUSHED, FLUSHED]
        assert queue.run(good) == [FLUSHED]
        assert queue.told(QueueWord.STATUS) == SLOT
        until(lambda: queue.state(QueueWord.STATUS) == SLOT)
        assert queue.state(QueueWord.REASON) == queue.state(QueueWord.END) == 0
        queue.resume()
        assert queue.run(good, good) == [OK, OK]
        until(lambda: queue.word(WORD).value == 0)


def test_a_slot_of_another_queue():
    memory = Buffer(PAGE)
    with Node() as node, Node() as other:
        mine, others = Queue(node), Queue(other)
        slot = others.prepare(Op.H2C, 64, src_handle=other.pages(memory))
        assert mine.run(slot) == [SLOT]
        with node.refused(errno.ENOENT, f"slot {slot} of this queue has no job"):
            mine.unprepare(slot)
        with node.refused(errno.ENOENT, "no launch queue"):
            node.request(Ioctl.DESTROY_QUEUE, uapi.DestroyQueue(queue=others.queue + 1000))
        assert others.run(slot) == [OK]


@pytest.mark.parametrize("seed", range(3))
def test_hostile_words_end_that_queue_alone(seed: int):
    """Random entries, tails, records and words of state."""
    rng = random.Random(seed)
    memory, sent = Buffer(PAGE), Buffer(SIZE)
    with Node() as node, Node() as other:
        hostile, good = Queue(node, depth=16), Queue(other)
        slots = [hostile.prepare(Op.H2C, 64, n, src_handle=node.pages(memory)) for n in range(3)]
        slot = good.prepare(Op.H2C, SIZE, src_handle=other.pages(sent))
        generation, first = hostile.created.generation, hostile.created.first
        deadline = time.monotonic() + 60
        while not hostile.told(QueueWord.REASON):
            assert time.monotonic() < deadline
            for _ in range(rng.randrange(1, 40)):
                ticket = (first + rng.randrange(-40, 40)) % (1 << 32)
                hostile.entry(ticket, rng.choice([*slots, rng.getrandbits(32)]))
                hostile.word(rng.randrange(RECORDS, SHADOW, 4)).value = rng.getrandbits(32)
                hostile.word(WORD).value = rng.getrandbits(8)
                tail = rng.choice([first + rng.randrange(-20, 40), rng.getrandbits(16)])
                told = rng.choice([generation, generation, rng.getrandbits(16)])
                hostile.word(SHADOW).value = told << 16 | tail & 0xFFFF
            assert good.run(slot) == [OK]
        assert hostile.told(QueueWord.END) in (LaunchEnd.TAIL, LaunchEnd.ENTRY)
        assert results([hostile.event()]) == [(errno.EIO, Reason.ENGINE)]
        assert node.info().state == BoardState.LIVE
        assert good.run(slot, slot) == [OK, OK]
        assert good.query().state == 0


# Requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words", "members"),
    [
        (errno.EINVAL, "8 to 256 places, a power of two, not 7", {"depth": 7}),
        (errno.EINVAL, "8 to 256 places, a power of two, not 4", {"depth": 4}),
        (errno.EINVAL, "8 to 256 places, a power of two, not 512", {"depth": 512}),
        (errno.EINVAL, "unknown flags 0x1", {"flags": 1}),
        (errno.EINVAL, "reserved member 3", {"reserved": 3}),
        (errno.EINVAL, "no memory is pinned as handle 4095", {"handle": 4095}),
        (errno.EINVAL, "64 bytes of a launch queue, byte 32 of its memory", {"entries": 32}),
        (errno.EINVAL, "64 bytes of a launch queue, byte 8 of its memory", {"records": 8}),
        (errno.EINVAL, "4 bytes of a launch queue, byte 2 of its memory", {"shadow": 2}),
        (errno.EINVAL, "64 bytes from 8192 on are beyond the memory", {"entries": 2 * PAGE}),
        (errno.EINVAL, "4 bytes from .* on are beyond the memory", {"word": 2**64 - 4}),
    ],
)
def test_queues_that_are_refused(number: int, words: str, members: dict[str, int]):
    with Node() as node:
        queue = Queue(node)
        node.refuses(number, words, Ioctl.CREATE_QUEUE, queue.request(**members))


def test_memory_that_no_queue_can_have():
    with Gpu() as gpu, Node() as node:
        queue = Queue(node)
        code, write = Ioctl.CREATE_QUEUE, node.pages(queue.memory, access=Access.WRITE)
        words = "pinned for the board to read and to write"
        node.refuses(errno.EINVAL, words, code, queue.request(handle=write))
        for handle in (
            node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE),
            node.dmabuf(gpu.export_host(PAGE)),
        ):
            words = "memory of a process, by PEERDMA_IOC_PIN_PAGES"
            node.refuses(errno.EOPNOTSUPP, words, code, queue.request(handle=handle, entries=0))


def test_boards_without_launch_queues():
    with Node("/dev/picoevb1") as node:
        request = uapi.CreateQueue(depth=8, handle=node.pages(Buffer(2 * PAGE)))
        node.refuses(errno.EOPNOTSUPP, "no launch queues", Ioctl.CREATE_QUEUE, request)


def test_all_queues_are_in_use():
    with Node() as node, Node() as other:
        queues = [Queue(node), Queue(other)]
        assert queues[0].created.generation != queues[1].created.generation
        request = queues[0].request()
        node.refuses(errno.EBUSY, "all 2 launch queues of the board", Ioctl.CREATE_QUEUE, request)
        queues[1].destroy()
        generation = node.request(Ioctl.CREATE_QUEUE, request).generation
        assert generation not in [queue.created.generation for queue in queues]


def test_slots_that_are_refused():
    memory = Buffer(PAGE)
    with Node() as node, Node() as reader:
        queue = Queue(node)
        handle = node.pages(memory)
        for number, words, members in (
            (errno.EINVAL, "unknown flags 0x8", {"flags": 8}),
            (errno.EINVAL, "overlap is for copies: operation 0", {"flags": PrepareFlag.OVERLAP}),
            (errno.EINVAL, "a done word at byte 64, but no flag", {"done": 64}),
            (errno.EINVAL, "operation 3 is none of these", {"op": Op.PROCESS}),
            (errno.EINVAL, "1 to 16777216 bytes, not 0", {"length": 0}),
            (errno.EINVAL, "1 to 16777216 bytes, not 16777217", {"length": (16 << 20) + 1}),
            (errno.EINVAL, "no memory is pinned as handle 4095", {"src_handle": 4095}),
            (errno.EINVAL, "beyond the memory pinned", {"src_offset": 1, "length": PAGE}),
            (errno.EINVAL, "beyond the card RAM", {"dst_offset": 65536}),
            (errno.EINVAL, "byte 2 of its memory", {"flags": 1, "done": 2}),
            (errno.EINVAL, "beyond the memory pinned", {"flags": 1, "done": 2 * PAGE}),
            (errno.ENOENT, "no launch queue 4711", {"queue": 4711}),
        ):
            settings = {"op": Op.H2C, "length": 64, "src_handle": handle, "queue": queue.queue}
            node.refuses(number, words, Ioctl.PREPARE, uapi.Prepare(**(settings | members)))
        with node.refused(errno.EOPNOTSUPP, "copies of this board go through its user stream"):
            queue.prepare(Op.C2H, 64, dst_handle=handle, src_offset=STREAM)
        with node.refused(errno.EOPNOTSUPP, "copies of this board go through its user stream"):
            queue.prepare(Op.H2C, 64, src_handle=handle, dst_offset=STREAM)
        with reader.refused(errno.ENOENT, "no launch queue"):
            reader.request(
                Ioctl.PREPARE,
                uapi.Prepare(
                    queue=queue.queue + 9, length=1, op=Op.H2C, src_handle=reader.pages(memory)
                ),
            )
        with node.refused(errno.ENOENT, "slot 5 of this queue has no job"):
            queue.unprepare(5)
        with node.refused(errno.ENOENT, "slot 4294967295 of this queue has no job"):
            queue.unprepare(2**32 - 1)
        # Between those that are known: none of these numbers is a request.
        for code in sorted({*range(Ioctl.GET_INFO, Ioctl.QUERY_QUEUE)} - {*Ioctl}):
            with pytest.raises(OSError, match="Inappropriate ioctl") as raised:
                node.request(code, uapi.Prepare())
            assert raised.value.errno == errno.ENOTTY


def test_slots_run_out_and_come_back():
    """A copy takes two, of which the first is even."""
    memory = Buffer(2 * PAGE)
    with Node() as node:
        queue = Queue(node)
        handle = node.pages(memory)
        copy = {"src_handle": handle, "dst_handle": handle, "dst_offset": PAGE}
        slots = [queue.prepare(Op.H2C, 64, src_handle=handle)]
        slots += [queue.prepare(Op.COPY, 64, **copy) for _ in range(LAUNCH_SLOTS // 2 - 1)]
        words = f"no slot is left of the board's {LAUNCH_SLOTS}"
        with node.refused(errno.ENOSPC, words):
            queue.prepare(Op.COPY, 64, **copy)
        slots.append(queue.prepare(Op.H2C, 64, src_handle=handle))
        with node.refused(errno.ENOSPC, words):
            queue.prepare(Op.H2C, 64, src_handle=handle)
        assert queue.query().slots == (1 << LAUNCH_SLOTS) - 1
        # A copy within it uses it twice.
        assert node.query(handle).jobs == LAUNCH_SLOTS
        queue.unprepare(slots[3])
        assert queue.prepare(Op.COPY, 64, **copy) == slots[3]
        queue.destroy()
        # Memory is released behind the end of the queue: docs/driver.md.
        until(lambda: node.query(handle).jobs == 0)


def test_jobs_in_slots_count_for_their_user():
    memory = Buffer(PAGE)
    with setting("peerdma", "jobs_per_user", 3), user(1000), Node() as node:
        queue = Queue(node)
        handle = node.pages(memory)
        slots = [queue.prepare(Op.H2C, 64, src_handle=handle) for _ in range(2)]
        with node.refused(errno.EAGAIN, "this user has 3 jobs outstanding"):
            queue.prepare(Op.H2C, 64, src_handle=handle)
        queue.unprepare(slots[0])
        queue.prepare(Op.H2C, 64, src_handle=handle)
        queue.destroy()
        queue = Queue(node)
        queue.prepare(Op.H2C, 64, src_handle=handle)


def test_card_ram_that_becomes_another_files_own():
    memory = Buffer(PAGE)
    with Node() as node, Node() as other:
        queue = Queue(node)
        handle = node.pages(memory)
        end = node.info().card_ram_size
        outside = queue.prepare(Op.H2C, PAGE, src_handle=handle)
        inside = queue.prepare(Op.H2C, PAGE, 1, src_handle=handle, dst_offset=end - PAGE)
        assert queue.run(outside, inside) == [OK, OK]
        queue.done(1).value = 0
        other.request(Ioctl.SET_CONTEXT, Context(ram_length=PAGE))
        assert queue.query().slots == 1 << outside
        assert queue.done(1).value == 1
        assert queue.run(outside, inside) == [OK, SLOT]
        with node.refused(errno.EACCES, "another open file has for itself"):
            queue.prepare(Op.H2C, PAGE, src_handle=handle, dst_offset=end - PAGE)
