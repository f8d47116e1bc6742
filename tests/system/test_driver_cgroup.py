# SPDX-License-Identifier: BSD-2-Clause
"""Programs in a memory cgroup that has no more: they are refused, or killed, and nobody else is.

The kernel logs a call trace with either; anything else that it says is a complaint.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl
from sim.system import Guest
from tests.system.hostile import memory_group, nodes_of_all, start
from tests.system.picoevb import PAGE, Buffer, Node, child, ended, leaves_nothing, until

pytestmark = pytest.mark.system

#: Of the kernel's for out-of-memory kills: never this one.
UNKILLABLE = "-1000"
MIB = 1 << 20
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT


def beside(hoard: Callable[[Path], None], score: str, status: int) -> None:
    """A process hoards in a cgroup, and ends in some way; what it does not do is told by others."""

    def others():
        memory = Buffer(2 * PAGE)
        with Node() as node:
            node.h2c2h(memory.address, memory.address + PAGE, PAGE)
            assert memory[:PAGE] == memory[PAGE:]

    leaves_nothing()
    with memory_group() as group, nodes_of_all():
        ready, go = os.pipe(), os.pipe()

        def process():
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            hoard(group)

        pid = start(process, group=group)
        os.read(ready[0], 1)
        Path(f"/proc/{pid}/oom_score_adj").write_text(score)
        limit = int((group / "memory.current").read_text()) + 4 * MIB
        (group / "memory.max").write_text(str(limit))
        os.write(go[1], b"x")
        until(lambda: refusals(group))
        assert child(others) == 0
        seen = 0
        while os.waitid(os.P_PID, pid, _LOOK) is None:
            # Its own pages are what a process that cannot be killed waits for, for ever.
            until(lambda seen=seen: refusals(group) > seen or os.waitid(os.P_PID, pid, _LOOK))
            seen, limit = refusals(group), limit + MIB
            (group / "memory.max").write_text(str(limit))
        assert ended(pid) == status
        assert child(others) == 0
    leaves_nothing()


def refusals(group: Path) -> int:
    """How often a cgroup had no memory."""
    events = dict(line.split() for line in (group / "memory.events").read_text().splitlines())
    return int(events["oom"])


def submits(group: Path) -> None:
    """Jobs whose events nobody reads, in more and more files."""
    memory, nodes = Buffer(PAGE), []
    try:
        while True:
            nodes.append(Node())
            wanted = uapi.Submit(src_handle=nodes[-1].pages(memory))
            for _ in range(256):
                nodes[-1].request(Ioctl.SUBMIT, wanted)
    except OSError as error:
        failed = error.errno
    for node in nodes:
        node.close()
    assert failed == errno.ENOMEM
    assert len(nodes) > 2
    # What was refused can be had again.
    with Node() as node:
        node.h2c(memory.address, 0, PAGE)


def refused() -> None:
    """Who cannot be killed is refused; called in the guest."""
    beside(submits, UNKILLABLE, 0)


def killed() -> None:
    """Who can be is killed; called in the guest."""
    beside(submits, "0", -signal.SIGKILL)


@pytest.mark.parametrize("end", ["refused", "killed"])
def test_a_memory_cgroup_that_is_full(guest: Guest, end: str):
    with guest.expects("Call Trace:"):
        guest.python(f"from tests.system import test_driver_cgroup as t; t.{end}()")
