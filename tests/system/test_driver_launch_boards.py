# SPDX-License-Identifier: BSD-2-Clause
"""A board with launch queues that is pulled with tickets outstanding: each waiter learns it."""

from __future__ import annotations

import pytest

from sim.system import Guest
from tests.system.test_driver_boards import plugged

GUEST = {"configuration": "identity"}
pytestmark = pytest.mark.system

_LOSES = """
import errno
from peerdma.uapi import BoardState, Ioctl, Reason
from tests.system.launching import Held, there
from tests.system.picoevb import PAGE, Buffer, Node
with Node("/dev/picoevb1") as node, Node("/dev/picoevb1") as other:
    handle = node.pages(Buffer(PAGE))
    held = Held(node, other, handle)
    bell = held.queue.doorbell()
    assert there(bell)
    print("now", flush=True)
    held.ended(Reason.LOST, 17, 18)
    held.event(errno.ENODEV, Reason.LOST)
    assert not there(bell)
    assert node.info().state == BoardState.DEAD
    with node.refused(errno.ENODEV, "the board is gone"):
        node.request(Ioctl.CREATE_QUEUE, held.queue.request())
    node.unpin(handle)
    node.unpin(held.queue.handle)
"""


def test_a_board_that_is_pulled(guest: Guest):
    with plugged(guest, "--launch-queues", "2", pull=False) as board:
        job = guest.start(["python3", "-c", _LOSES])
        job.wait_for("now")
        guest.unplug(board)
        assert job.wait(120) == (0, "now\n")
