# SPDX-License-Identifier: BSD-2-Clause
"""What does not fit together: a board of a later release, a provider for another kind of GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import peerdma
from peerdma.regs import EXTENSION_VERSION
from sim.copies import Edit, private_copy
from sim.system import Board, Guest

pytestmark = pytest.mark.system

KNOWN = EXTENSION_VERSION[0]
NEWER = KNOWN + 1


@pytest.fixture(scope="module")
def later_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose gateware has the next major version of the register map."""
    checkout = private_copy(tmp_path_factory.mktemp("later"))
    old, new = (f"EXTENSION_VERSION = {version}\n" for version in (EXTENSION_VERSION, (NEWER, 0)))
    Edit("a later release", "host/peerdma/regs.py", old, new).apply(checkout)
    return checkout


def test_the_driver_refuses_a_board_of_a_later_release(guest: Guest, later_release: Path):
    """It names both versions, takes nothing of the board, and drives the other one as before."""
    since = guest.mark()
    board = guest.plug(["--no-msix"], later_release)
    guest.wait_for(
        rf"register map is version {NEWER}\.0, this driver knows {KNOWN}\.x: update the older",
        since,
    )
    status, text = guest.run("peerdma doctor")
    assert "dmesg | grep peerdma says why" in text, text
    assert status == peerdma.BoardNotFound.exit_code, text
    guest.python(
        """
        from tests.system.picoevb import *
        leaves_nothing()
        assert not os.path.exists("/dev/picoevb1")
        assert "picoevb1" not in Path("/proc/interrupts").read_text()
        """
    )
    guest.unplug(board)


@pytest.fixture
def later_board(later_release: Path, tmp_path: Path) -> Iterator[Board]:
    board = Board("later", tmp_path, tmp_path, checkout=later_release)
    yield board
    assert board.end() == 0


def test_the_library_refuses_a_board_of_a_later_release(later_board: Board):
    words = rf"version {NEWER}\.0, this library knows {KNOWN}\.x .*update the older"
    with pytest.raises(peerdma.VersionMismatch, match=words):
        peerdma.open(later_board.socket)


def test_the_provider_of_another_kind_of_gpu_is_not_loaded(guest: Guest):
    """The kernel compares what the two call by the same name."""
    since = guest.mark()
    status, _ = guest.run(f"insmod {guest.modules['peerdma_nvp2p_tegra']}")
    assert status
    guest.wait_for("peerdma_nvp2p_tegra: disagrees about version of symbol nvidia_p2p_", since)
    guest.python("from tests.system.picoevb import *; leaves_nothing()")
