# SPDX-License-Identifier: BSD-2-Clause
"""Errors of the link above the board, and how the PCI core recovers; a restart under load."""

from __future__ import annotations

import pytest

from sim.system import Guest
from sim.system.log import LINK_ERROR

pytestmark = pytest.mark.system

_JOBS = """
import errno
from peerdma.uapi import BoardState, Op, Reason
from tests.system.picoevb import *
RESET = (errno.EIO, Reason.RESET)
with Gpu() as gpu, Node() as node:
    before = node.info()
    handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
    running = node.endless(handle)
    waiting = node.submit(Op.C2H, PAGE, dst_handle=handle)
    print("now", flush=True)
    found = {event.job: results([event])[0] for event in node.events(2)}
    assert found == {running: RESET, waiting: (0, 0)}, found
    until(lambda: node.info().state == BoardState.LIVE)
    assert node.info().generation == before.generation + 1
    node.unpin(handle)
leaves_nothing()
"""


@pytest.mark.parametrize("error", ["COMP_TIME", "DLP"])
def test_errors_of_the_link_are_recovered_from(guest: Guest, error: str):
    """Not fatal: the board goes on. Fatal: the link is reset, and the board with it."""
    job = guest.start(["python3", "-c", _JOBS])
    job.wait_for("now")
    assert guest.board is not None
    with guest.expects(LINK_ERROR):
        guest.report_error(guest.board, error)
        assert job.wait(120) == (0, "now\n")


def test_a_restart_under_load(guest: Guest):
    """The board loses the bus before another kernel has the memory; it works for that one."""
    job = guest.start(["python3", "-c", f"{_JOBS}"])
    job.wait_for("now")
    guest.reboot()
    guest.python("from tests.system.picoevb import *; leaves_nothing()")
