# SPDX-License-Identifier: BSD-2-Clause
"""The system is suspended and resumed, in every state.

As far as the devices, without the firmware. The guest's root does not outlive it: the kernel's 9p
over virtio has no suspend, and a process that ends waits for it for ever. Therefore one process
does it all, has in memory by then what it needs, and ends with the guest, which is this file's own.
It tells by the kernel's log, as a port of Linux 7.3's virtio console never takes anything again.
"""

from __future__ import annotations

import errno
import time
import traceback
from pathlib import Path

import pytest

from peerdma.regs import LaunchStatus
from peerdma.uapi import (
    BoardState,
    CardInfo,
    Context,
    Frame,
    Ioctl,
    Op,
    QueueWord,
    Reason,
    StartRing,
    SurfaceState,
)
from sim.system import Guest
from tests.system.launching import Queue, there
from tests.system.picoevb import (
    GPU_PAGE,
    PAGE,
    WITH_HUNG_BOARD,
    Buffer,
    Gpu,
    Node,
    hangs,
    leaves_nothing,
    results,
)

GUEST = {**WITH_HUNG_BOARD, "board_options": ["--launch-queues", "2"]}
pytestmark = pytest.mark.system

REVOKED = (errno.ESTALE, Reason.REVOKED)
RESET = (errno.EIO, Reason.RESET)
TIMEOUT = (errno.ETIMEDOUT, Reason.TIMEOUT)
_SOME = 60


def suspend() -> None:
    """All devices are suspended and resumed."""
    Path("/sys/power/pm_test").write_text("devices")
    # Seconds in between, for which a processor does nothing else: too long for a slow guest.
    Path("/sys/module/suspend/parameters/pm_test_delay").write_text("1")
    Path("/sys/power/state").write_text("mem")


def nothing():
    with Gpu() as gpu, Node() as node:
        words = memoryview(node.mailbox()).cast("I")
        before = node.info()
        pages, handle = node.pages(Buffer(PAGE)), node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        assert words[0] is not None
        suspend()
        after = node.info()
        assert (after.state, after.generation) == (BoardState.LIVE, before.generation + 1)
        assert words[0] is not None
        # Whether a GPU's memory is still where it was is not known.
        assert node.query(handle).state == SurfaceState.REVOKED
        assert gpu.counts()[2] == 0
        node.load(pages, 1, PAGE)
        assert results(node.events(1)) == [(0, 0)]
        with node.refused(errno.ESTALE, "generation"):
            node.submit(Op.H2C, 4, src_handle=pages, generation=before.generation)
        node.unpin(handle)
        node.unpin(node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE))


def waits_and_runs():
    """What runs may finish; what waits is done after that, if its memory is still there."""
    with Gpu() as gpu, Node() as node:
        pages, handle = node.pages(Buffer(GPU_PAGE)), node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
        # More than the board does until it is suspended.
        some = node.load(pages, _SOME)
        of_gpu = node.load(handle, 1)[0]
        suspend()
        found = {event.job: results([event])[0] for event in node.events(_SOME + 1)}
        assert found == dict.fromkeys(some, (0, 0)) | {of_gpu: REVOKED}


def hangs_then():
    with Gpu() as gpu, hangs(gpu) as (node, handle, job):
        suspend()
        (event,) = node.events(1)
        assert (event.job, results([event])[0]) in ((job, RESET), (job, TIMEOUT))
        assert node.info().state == BoardState.LIVE
        assert node.query(handle).state == SurfaceState.REVOKED


def a_ring_ends():
    """At once: it would go on until the board is suspended anyway."""
    with Node() as node:
        ring = StartRing(count=1)
        ring.set_frames((Frame * 1)(Frame(handle=node.pages(Buffer(PAGE)), length=PAGE)))
        node.request(Ioctl.START_RING, ring)
        suspend()
        assert results(node.events(1)) == [RESET]


def a_queue_ends():
    """With a ticket at work, of more than the board does until it is suspended."""
    memory = Buffer(16 << 20, b"")
    with Node() as node:
        queue, handle = Queue(node), node.pages(memory)
        whole = {"src_handle": handle, "dst_handle": handle, "dst_offset": len(memory) // 2}
        slot = queue.prepare(Op.COPY, len(memory) // 2, 0, **whole)
        queue.done(0).value = 0
        doorbell = queue.doorbell()
        assert there(doorbell)
        tickets = queue.submit(slot, slot, doorbell=doorbell)
        suspend()
        assert queue.wait(*tickets) == [LaunchStatus.ABORTED, LaunchStatus.FLUSHED]
        assert queue.done(0).value == 1
        assert queue.state(QueueWord.REASON) == Reason.RESET
        assert results([queue.event()]) == [RESET]
        assert not there(doorbell)
        queue = Queue(node)
        slot = queue.prepare(Op.C2H, PAGE, dst_handle=handle)
        tickets = queue.submit(slot, doorbell=queue.doorbell())
        assert queue.wait(*tickets) == [LaunchStatus.OK]


def with_a_context():
    """The file keeps its card RAM; what was in it may be lost."""
    memory = Buffer(2 * PAGE)
    with Node() as node, Node() as other:
        begin = node.request(Ioctl.SET_CONTEXT, Context(ram_length=PAGE)).ram_address
        handle, of_other = node.pages(memory), other.pages(memory)
        some = node.load(handle, _SOME, PAGE)
        suspend()
        assert results(node.events(_SOME)) == [(0, 0)] * len(some)
        with other.refused(errno.EACCES, "another open file has for itself"):
            other.submit(Op.H2C, PAGE, src_handle=of_other, dst_offset=begin)
        node.h2c(memory.address, begin, PAGE)
        node.c2h(begin, memory.address + PAGE, PAGE)
        assert memory[:PAGE] == memory[PAGE:]
    with Node() as node:
        assert node.request(Ioctl.CARD_INFO, CardInfo()).fpga_ram_size > begin


def in_every_state() -> None:
    """Called in the guest; does not end."""
    with open("/dev/kmsg", "w", buffering=1) as log:
        leaves_nothing()
        ends = (a_ring_ends, a_queue_ends)
        for state in (nothing, waits_and_runs, *ends, with_a_context, hangs_then):
            try:
                state()
                leaves_nothing()
            except Exception as error:
                # Python would look for the lines in files, which are gone.
                where = [line for _, line in traceback.walk_tb(error.__traceback__)]
                print(f"test: {state.__name__}, at lines {where}: {error!r}", file=log)
                break
            print(f"test: {state.__name__} passed", file=log)
        time.sleep(1e6)


def test_suspend_in_every_state(guest: Guest):
    code = "from tests.system import test_driver_suspend as t; t.in_every_state()"
    guest.lose_agent()
    guest.start(["python3", "-c", code])
    guest.wait_for("test: hangs_then passed", timeout=300)
