# SPDX-License-Identifier: BSD-2-Clause
"""How fast the engine moves bulk data, in exact cycles of the RTL, beside what could be reached.

1 MiB in descriptors of 64 KiB, below 4 GiB and aligned, 1 µs from a read to its data; from the
first descriptor's fetch to the last one's end, as the engine's own counters say. On a link
without limit the bound is the 64-bit port: a write of MPS bytes takes ceil((12 + MPS) / 8) beats,
and a copy needs two more beats for each read of 512 bytes. On a real link it is an engine without
bubbles and without descriptors on the same model of link and root complex (`sim.perf.ideal`).
"""

from __future__ import annotations

import re

import pytest

from peerdma.memory.scatter import ScatterList
from peerdma.userspace.backend import UserSpaceBackend
from peerdma.vfio_user.platform import SocketPlatform
from sim.board.session import Conditions
from sim.perf.ideal import ideal
from sim.perf.rig import Rig
from tests.sim.board.client import Board, Memory

SIZE, COUNT = 64 * 1024, 16
SOURCE = 0x2000_0000
MBPS = {"gen2x1": 500.0}


@pytest.fixture(scope="module", params=[128, 256])
def max_payload(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module", params=["unlimited", "gen2x1"])
def link(request: pytest.FixtureRequest) -> str:
    return request.param


def bound(what: str, link: str, max_payload: int) -> float:
    """Bytes per cycle that no engine exceeds."""
    if link in MBPS:
        best = ideal(what, COUNT * SIZE, Conditions(link_mbps=MBPS[link], max_payload=max_payload))
        assert not best.errors
        return best.read_rate if what == "h2c" else best.write_rate
    beats = -(-(12 + max_payload) // 8)
    if what == "copy":
        return 512 / (512 // max_payload * beats + 2)
    return max_payload / beats


#: Share of the bound, the start included, that is always reached.
LEAST = 0.99


def rig(link: str, max_payload: int) -> Rig:
    """A board in this process: behind a socket, the host's accesses come at any time.

    Those that start one channel of a copy would do so while the other one counts cycles.
    """
    return Rig(Conditions(link_mbps=MBPS.get(link, 0.0), max_payload=max_payload), COUNT * SIZE)


@pytest.mark.parametrize("what", ["h2c", "c2h", "copy"])
def test_share_of_the_bound(link, max_payload, what):
    with rig(link, max_payload) as board:
        rate = board.bytes_per_cycle(what, COUNT * SIZE, SIZE)
    best = bound(what, link, max_payload)
    print(f"{what}: {rate:.4f} of {best:.4f} bytes per cycle, {rate / best:.2%}")
    assert LEAST < rate / best < 1.001


def test_cycles_are_exact(link, max_payload):
    """The same transfer takes the same time, give or take where a tag search begins."""
    with rig(link, max_payload) as board:
        rates = [board.bytes_per_cycle("c2h", COUNT * SIZE, SIZE) for _ in range(3)]
    cycles = [round(COUNT * SIZE / rate) for rate in rates]
    assert max(cycles) - min(cycles) <= 8


#: Cycles that a copy's last bytes may spend on the card, beside those at its ports: up to three of
#: these are for whose turn it is to be told how far its reads are.
MOST_INSIDE = 16


@pytest.mark.parametrize("nbytes", [64, 128, 4096])
def test_bytes_of_a_copy_do_not_stay_on_the_card(nbytes, tmp_path):
    """From when the last completion is shown to the core until the last write is taken from it.

    An engine that takes the one and gives the other needs the beats of both, and one cycle.
    """
    log = tmp_path / "tlps"
    with (
        Board(tmp_path, "--link", "gen2x1", "--log-tlps", str(log)) as board,
        Memory(SIZE * COUNT) as memory,
    ):
        backend = UserSpaceBackend(SocketPlatform(board.path), "board")
        backend._platform.client.dma_map(SOURCE, memory.size, memory.bytes.data, fd=memory.fd)
        half = memory.size // 2
        for start in range(0, 8 * nbytes, nbytes):
            source = ScatterList([SOURCE + start], [nbytes])
            backend._driver.stream(source, ScatterList([SOURCE + half + start], [nbytes]))
        backend.close()
        board.end()
    found = re.findall(r"^(\d+) (down CplD|up MWr) .*\blen=(\d+)", log.read_text(), re.MULTILINE)
    moves = [(int(cycle), what) for cycle, what, length in found if int(length) >= 64]
    piece = min(nbytes, 128)
    ends = [index for index, (_, what) in enumerate(moves) if what == "up MWr"]
    lasts = ends[nbytes // piece - 1 :: nbytes // piece]
    assert len(lasts) == 8
    for last in lasts:
        shown = max(cycle for cycle, what in moves[:last] if what == "down CplD")
        at_ports = 2 * -(-(12 + piece) // 8) + 1
        assert 0 < moves[last][0] - shown - at_ports <= MOST_INSIDE
