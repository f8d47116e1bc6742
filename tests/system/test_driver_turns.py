# SPDX-License-Identifier: BSD-2-Clause
"""Whose turn it is on a board that many want: that of a user, however many files it has open."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
from collections.abc import Iterator

import pytest

from peerdma.regs import WaitsFor
from peerdma.uapi import Ioctl, Op, Reason, Reset, Submit, SubmitBatch
from tests.system.hostile import OTHER, SOMEBODY, ended_in_namespace, nodes_of_all
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    LASTING,
    PAGE,
    Buffer,
    Node,
    results,
    until,
    user,
)

pytestmark = IN_GUEST

#: A third user; and one in a namespace that `SOMEBODY` made.
THIRD, INSIDE = 1002, 0
CANCELLED = (errno.ECANCELED, Reason.CANCELLED)
RESET = (errno.EIO, Reason.RESET)


def open_inside() -> Node:
    """A file that was opened in a user namespace, and passed on from there."""
    here, there = socket.socketpair()

    def send() -> None:
        with Node("/host/dev/picoevb") as node:
            socket.send_fds(there, [b"x"], [node.fd])

    with nodes_of_all():
        assert ended_in_namespace(send) == 0
    _, (fd,), _, _ = socket.recv_fds(here, 1, 1)
    node = Node()
    os.dup2(fd, node.fd, inheritable=False)
    for end in (fd, here.detach(), there.detach()):
        os.close(end)
    return node


@contextlib.contextmanager
def files_of(*users: int) -> Iterator[list[Node]]:
    """Open files, one of each of these users, of whom there may be several alike."""
    with contextlib.ExitStack() as opened:
        nodes = []
        for uid in users:
            with contextlib.nullcontext() if uid == INSIDE else user(uid):
                node = open_inside() if uid == INSIDE else Node()
            nodes.append(opened.enter_context(node))
        yield nodes


def fill(node: Node, memory: Buffer, op: Op, jobs: int) -> None:
    """Queues so many jobs of 64 KiB in a file, which this process does for whoever opened it."""
    handle = node.pages(memory)
    ends = {"src_handle": handle} if op != Op.C2H else {}
    if op != Op.H2C:
        ends |= {"dst_handle": handle}
    if op == Op.COPY:
        ends |= {"dst_offset": GPU_PAGE}
    for _ in range(jobs):
        node.submit(op, GPU_PAGE, **ends)


# The order -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "jobs", "expected"),
    [
        ([1000, 1001], 2, "0101"),
        ([1000, 1000, 1000, 1001], 2, "03132012"),
        ([1000, 1000, 1001, 1001, 1002], 2, "0241340213"),
        ([1000, 1000, 1000, 1000, 1001], 3, "041424301230123"),
        # Who opened the file counts, and for a namespace who made that.
        ([1000, 0, 0, 1001], 2, "03132012"),
    ],
)
def test_users_take_turns_and_their_files_those_of_the_user(
    users: list[int], jobs: int, expected: str
):
    memory, found = Buffer(PAGE), ""
    poll = select.poll()
    with Node() as holder, files_of(*users) as nodes:
        holder.endless(holder.pages(memory))
        poll.register(holder.fd, select.POLLIN)
        for node in nodes:
            handle = node.pages(memory)
            for _ in range(jobs):
                node.endless(handle)
            poll.register(node.fd, select.POLLIN)
        places = {node.fd: (str(place), node) for place, node in enumerate(nodes)}
        places[holder.fd] = "", holder
        # No job ends by itself: a reset ends the one that runs, and no other.
        for _ in range(1 + len(expected)):
            until(lambda: holder.info().c2h_waits_for == WaitsFor.USER_OUTPUT)
            holder.request(Ioctl.RESET, Reset())
            ((fd, _),) = poll.poll(120_000)
            place, node = places[fd]
            assert results(node.events(1)) == [RESET]
            found += place
    assert found == expected


# How long others wait ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "jobs", "ops", "most"),
    [
        # What runs, and one turn.
        (1, 80, [2], 2),
        (40, 2, [2], 2),
        # What runs, on both engines, and one turn for each set of engines.
        (45, 2, [0, 1, 2], 5),
    ],
)
def test_a_user_waits_for_one_turn_of_another(files: int, jobs: int, ops: list[int], most: int):
    """Counted in jobs of the other that end meanwhile."""
    memory, own = Buffer(2 * GPU_PAGE), Buffer(2 * LASTING, b"\1")
    with files_of(OTHER) as (node,):
        handle = node.pages(own)
        copy = Submit(op=Op.COPY, src_handle=handle, dst_handle=handle)
        submits = (Submit * 2)(copy, copy)
        submits[0].length = submits[0].dst_offset = PAGE
        # It keeps both engines, before which there is one more turn of the other for each set of
        # them: then the jobs that have ended can be counted, as no more do.
        submits[1].length = submits[1].dst_offset = LASTING
        request = SubmitBatch(submits=ctypes.addressof(submits), count=2)
        with files_of(*[SOMEBODY] * files) as nodes:
            for number, other in enumerate(nodes):
                fill(other, memory, Op(ops[number % len(ops)]), jobs)
            for _ in range(4):
                own[LASTING : LASTING + 1] = b"\0"
                node.request(Ioctl.SUBMIT_BATCH, request)
                # Only now: jobs that end before these are there are none that they wait for.
                before = node.info().jobs
                assert results(node.events(1)) == [(0, 0)]
                until(lambda: own[LASTING : LASTING + 1] == b"\1")
                waited = node.info().jobs - before - 1
                assert waited <= most + len(ops), waited
                node.cancel(submits[1].job)
                assert results(node.events(1)) == [CANCELLED]
            # They have not run out of jobs.
            assert node.query(handle).jobs == 0
            assert any(other.query(1).jobs for other in nodes)
