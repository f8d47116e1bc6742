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
from collections.abc import Iterator

import numpy as np
import pytest

from peerdma.memory.scatter import ScatterList
from peerdma.regs import STREAM_WINDOW
from peerdma.userspace.backend import UserSpaceBackend
from peerdma.userspace.engine import Direction
from peerdma.vfio_user.platform import SocketPlatform
from sim.board.session import Conditions
from sim.perf.ideal import ideal
from sim.perf.rig import Rig
from tests.sim.board.client import Board, Memory

H2C, C2H = Direction.H2C, Direction.C2H
SIZE, COUNT = 64 * 1024, 16
SOURCE, TARGET = 0x2000_0000, 0x3000_0000
MBPS = {"gen2x1": 500.0}


class Engine:
    """A board on a link, with memory of `COUNT` descriptors' size to read and to write."""

    def __init__(self, backend: UserSpaceBackend, source: Memory, target: Memory):
        self.source, self.target = source.bytes, target.bytes
        self._driver = backend._driver
        for address, memory in ((SOURCE, source), (TARGET, target)):
            backend._platform.client.dma_map(address, memory.size, memory.bytes.data, fd=memory.fd)

    def cycles(self, *directions: Direction) -> int:
        """Runs channels side by side, to the end; busy cycles of the first."""
        driver = self._driver
        at = np.arange(COUNT, dtype=np.uint64) * np.uint64(SIZE)
        lengths = np.full(COUNT, SIZE, np.uint64)
        # Both use the stream, or the one all of card RAM again and again.
        card = np.full(COUNT, STREAM_WINDOW if len(directions) > 1 else 0, np.uint64)
        base = {H2C: SOURCE, C2H: TARGET}
        for number, direction in enumerate(directions):
            bus = at + np.uint64(base[direction])
            driver.start(direction, number * driver.ring_size // 2, bus, card, lengths)
        engine, left = driver.engine, list(directions)
        while left:
            told = engine.statuses(left, engine.deadline(COUNT * SIZE))
            assert told, f"no interrupt came, and {left} did not end"
            for direction, status in told.items():
                engine.check(engine.channels[direction], status, COUNT)
                left.remove(direction)
        found = engine.channels[directions[0]].busy_cycles()
        engine.stop(directions)
        return found


@pytest.fixture(scope="module", params=[128, 256])
def max_payload(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module", params=["unlimited", "gen2x1"])
def link(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def engine(
    link: str, max_payload: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    with (
        Board(tmp_path_factory.mktemp("board"), "--link", link) as board,
        Memory(SIZE * COUNT) as source,
        Memory(SIZE * COUNT) as target,
    ):
        source.bytes[:] = np.random.default_rng(1).integers(0, 256, SIZE * COUNT, "u1")
        backend = UserSpaceBackend(SocketPlatform(board.path, max_payload=max_payload), "board")
        yield Engine(backend, source, target)
        backend.close()
        assert board.end() == 0, "the core broke a rule of PCIe"


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


@pytest.mark.parametrize(
    ("what", "directions"), [("h2c", (H2C,)), ("c2h", (C2H,)), ("copy", (C2H, H2C))]
)
def test_share_of_the_bound(engine, link, max_payload, what, directions):
    engine.target[:] = 0
    rate = COUNT * SIZE / engine.cycles(*directions)
    best = bound(what, link, max_payload)
    print(f"{what}: {rate:.4f} of {best:.4f} bytes per cycle, {rate / best:.2%}")
    assert LEAST < rate / best < 1.001
    if what == "copy":
        assert (engine.target == engine.source).all()


def test_cycles_are_exact(link, max_payload):
    """The same transfer takes the same time, give or take where a tag search begins.

    On a board in this process: behind a socket, the host's accesses come at any time.
    """
    conditions = Conditions(link_mbps=MBPS.get(link, 0.0), max_payload=max_payload)
    with Rig(conditions, COUNT * SIZE) as rig:
        rates = [rig.bytes_per_cycle("c2h", COUNT * SIZE, SIZE) for _ in range(3)]
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
