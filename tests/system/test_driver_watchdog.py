# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that are late: they stand still, or take far too long. One that waits for data may."""

from __future__ import annotations

import errno
import os
import time

from peerdma.regs import WaitsFor
from peerdma.uapi import Feature, Ioctl, Op, Reason, RegisterFlag, UserRegister
from tests.system.marks import IN_GUEST
from tests.system.picoevb import HUNG, PAGE, Buffer, Node, results, setting, until

#: The time of all boards here is the machine's. Reads of the first take so long that it moves less
#: than 1 MB/s; the third has tests/sim/board/valve.py between its channels, which is shut at first.
SLOW, VALVE = "/dev/picoevb", "/dev/picoevb2"
#: To the register of the valve: take bytes, and drop them.
DROP = 1
_REAL_TIME = ["--time-scale", "1"]
GUEST = {
    "configuration": "identity",
    "board_options": [*_REAL_TIME, "--rtt-ns", "100000"],
    "further_boards": [
        [*_REAL_TIME, "--no-msix", "--fault", "hang@2"],
        [*_REAL_TIME, "--no-msix", "--user", "tests.sim.board.valve:Valve"],
    ],
}
pytestmark = IN_GUEST

TIMEOUT = (errno.ETIMEDOUT, Reason.TIMEOUT)
CANCELLED = (errno.ECANCELED, Reason.CANCELLED)
BUSY = (errno.EBUSY, Reason.BUSY)
SECOND = 10**9
KIB, MIB = 1 << 10, 1 << 20


def copy(node: Node, size: int) -> int:
    """Queues a copy; its number."""
    memory = Buffer(2 * size, b"")
    handle = node.pages(memory)
    more = {"src_handle": handle, "dst_handle": handle}
    return node.submit(Op.COPY, size, dst_offset=size, **more)


def test_what_moves_is_not_late():
    """Also if it takes longer than a second and the time of its bytes at 1 MB/s."""
    size, taken = 128 * KIB, 0
    with Node(SLOW) as node, setting("peerdma", "timeout_ms", 1000):
        while taken <= SECOND * (1 + size / 1e6):
            size *= 2
            copy(node, size)
            (event,) = node.events(1)
            assert results([event]) == [(0, Reason.NONE)]
            taken = event.time_ns


def test_what_moves_too_slowly_is_late():
    """After half a minute and the time of its bytes at 1 MB/s."""
    size = 24 * MIB
    with Node(SLOW) as node:
        copy(node, size)
        (event,) = node.events(1, patience=120)
    assert results([event]) == [TIMEOUT]
    assert event.time_ns > SECOND * (30 + size / 1e6)


def test_what_stands_still_is_late_as_soon_as_what_is_shorter():
    size = 32 * MIB
    # The board itself gives up waiting a bit later than that.
    with Node(HUNG) as node, setting("peerdma", "timeout_ms", 100):
        generation = node.info().generation
        copy(node, size)
        (event,) = node.events(1)
        until(lambda: node.info().generation == generation + 1)
    assert results([event]) == [TIMEOUT]
    assert SECOND / 10 < event.time_ns < SECOND * size / 1e6


def test_after_a_late_job_the_next_one_goes_on():
    """Without a reset, if the board stops."""
    memory = Buffer(2 * PAGE)
    with Node(VALVE) as node:
        before = node.info()
        handle = node.pages(memory)
        node.request(Ioctl.USER_REGISTER, UserRegister(flags=RegisterFlag.WRITE, value=DROP))
        both = {"src_handle": handle, "dst_handle": handle, "dst_offset": PAGE}
        late = node.submit(Op.PROCESS, PAGE, dst_length=PAGE, **both)
        next_one = node.submit(Op.C2H, PAGE, dst_handle=handle)
        events = {event.job: results([event])[0] for event in node.events(2)}
        after = node.info()
        assert events == {late: TIMEOUT, next_one: (0, Reason.NONE)}
        assert (after.timeouts, after.generation) == (before.timeouts + 1, before.generation)


def test_copies_do_not_go_through_a_block_that_may_change_them():
    memory = Buffer(2 * PAGE)
    with Node(VALVE) as node:
        info = node.info()
        assert info.features & Feature.STREAMS and not info.features & Feature.STREAM_COPY
        node.h2c2h(memory.address, memory.address + PAGE, PAGE)
        assert memory[:PAGE] == memory[PAGE:]


def test_what_waits_for_data_is_not_late_and_keeps_nobody_waiting():
    memory = Buffer(2 * PAGE)
    copied = memory.address, memory.address + PAGE, PAGE
    words = rf"a job of process {os.getpid()}, which waits for data of the user stream, keeps the"
    with Node(SLOW) as node, Node(SLOW) as other:
        before = node.info()
        handle, others = node.pages(memory), other.pages(memory)
        begin = time.monotonic()
        jobs = [node.endless(handle), node.endless(handle)]
        # They wait, and are refused when it turns out that this takes long.
        for _ in range(40):
            other.submit(Op.C2H, PAGE, dst_handle=others)
        with other.refused(errno.EBUSY, words):
            other.h2c2h(*copied)
        assert results(other.events(40)) == [BUSY] * 40
        assert time.monotonic() - begin > 2.5
        assert node.info().c2h_waits_for == WaitsFor.USER_OUTPUT
        # From then on at once; also the file's own, but for what it is to receive next.
        for each in (node, other):
            with each.refused(errno.EBUSY, words):
                each.h2c2h(*copied)
        # The other channel is free.
        other.h2c(memory.address, 0, PAGE)
        other.submit(Op.C2H, 0, dst_handle=others)
        assert results(other.events(1)) == [(0, Reason.NONE)]
        assert node.info().timeouts == before.timeouts
        for job in jobs:
            node.cancel(job)
        assert results(node.events(2)) == [CANCELLED] * 2
        other.h2c2h(*copied)
        assert memory[:PAGE] == memory[PAGE:]
