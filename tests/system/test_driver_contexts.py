# SPDX-License-Identifier: BSD-2-Clause
"""What an open file can have beside others: registers of user blocks."""

from __future__ import annotations

import errno

import pytest

from peerdma import uapi
from peerdma.regs import PATTERN_SOURCE, PATTERN_SOURCE_NAME, user_block_text
from peerdma.testing.pattern import fill_bytes
from peerdma.uapi import Ioctl, RegisterFlag
from tests.system.picoevb import (
    PAGE,
    STREAM,
    Buffer,
    Node,
    rebound,
)

pytestmark = [
    pytest.mark.system,
    pytest.mark.in_guest,
    pytest.mark.usefixtures("guest"),
]

#: The second board has a user block with registers.
SENSOR = "/dev/picoevb1"
GUEST = {"lane": "identity", "further_boards": [["--no-msix", "--user", "pattern"]]}


# Registers of user blocks --------------------------------------------------------------------


def register(node: Node, offset: int, value: int | None = None, **more: int) -> int:
    """Writes a register, or reads it."""
    request = uapi.UserRegister(offset=offset, **more)
    if value is not None:
        request.flags, request.value = RegisterFlag.WRITE, value
    return node.request(Ioctl.USER_REGISTER, request).value


def test_registers_are_those_of_the_user_block():
    size = 3 * PAGE
    target = Buffer(size, b"")
    offset = {name: PATTERN_SOURCE[name].offset for name in ("seed", "frame_words", "frames")}
    with Node(SENSOR) as node:
        info = node.info()
        assert user_block_text(info.user_block) == PATTERN_SOURCE_NAME
        assert info.user_ratio == 1 << 8
        register(node, offset["seed"], 5)
        assert register(node, offset["seed"]) == 5
        register(node, offset["frame_words"], size // 4)
        node.c2h(STREAM, target.address, size)
        assert register(node, offset["frames"]) >= 1
        register(node, offset["frame_words"], 0)
        node.request(Ioctl.RESET, uapi.Reset())
    assert target[:] == fill_bytes(5, 0, size).tobytes()


def test_registers_that_are_refused():
    with Node(SENSOR) as node:
        for flags in (0, RegisterFlag.WRITE):
            for wrong in ({"offset": 2}, {"offset": 0x100}, {"offset": 2**32 - 4}):
                request = uapi.UserRegister(flags=flags, **wrong)
                node.refuses(errno.EINVAL, "multiples of 4 below", Ioctl.USER_REGISTER, request)
            for block in (1, 63, 2**32 - 1):
                request = uapi.UserRegister(flags=flags, block=block)
                words = f"no user block {block}: the board has 1"
                node.refuses(errno.EINVAL, words, Ioctl.USER_REGISTER, request)
        with rebound("picoevb1"):
            request = uapi.UserRegister()
            node.refuses(errno.ENODEV, "the board is gone", Ioctl.USER_REGISTER, request)
    with Node(SENSOR) as node:
        assert register(node, 0) == 0
