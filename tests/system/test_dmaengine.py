# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's own driver for XDMA (drivers/dma/xilinx/xdma.c), unmodified, on the simulated board.

A parent and a client of ours (driver/testing/dmaengine) give it the board and use its channels. The
IOMMU translates: an access of the board to memory whose transfer has ended, or has been terminated,
is a fault that fails the test.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from peerdma import regs
from tests.system.dmaengine import (
    MEMORY,
    Client,
    completed,
    interrupts,
    pieces,
    settle,
    timeout,
)
from tests.system.picoevb import PAGE, STREAM, Buffer, until

if TYPE_CHECKING:  # its import takes long in a guest
    from sim.system import Guest

pytestmark = pytest.mark.system
in_guest = pytest.mark.in_guest

#: A further board answers two reads of host memory by Unsupported Request: of the first transfer
#: that of the data, of the third that of the descriptor. Registers are read beside the driver.
GUEST = {
    "configuration": "strict",
    "load": False,
    "xdma": True,
    "further_boards": [("--fault", "ur@2", "--fault", "ur@5")],
    "append": "iomem=relaxed",
}
FAULTY = 1
MODULES = ("xdma", "xdma_client")
HELPERS = "dmaengine"
RAM = regs.CARD_RAM_SIZE
C2H = 0x1000
#: How long the driver waits for an interrupt of a channel that it has terminated.
DRIVER_WAITS_MS = 1000
#: Segments of host memory: offset and length.
LISTS = {
    "a-byte": [(3, 1)],
    "a-page": [(0, PAGE)],
    "all-of-the-card": [(17, RAM)],
    "a-block": [(n * 300 + n % 7, 201) for n in range(32)],
    "a-block-and-one": [(n * 300 + n % 7, 201) for n in range(33)],
    "odd-ones": [(n * PAGE + 37 * n + 1, 2 * n + 1) for n in range(100)],
    "across-pages": [(n * 3 * PAGE + PAGE - 2 * n - 1, PAGE + 3 * n) for n in range(15)],
    "many-short-ones": [(n * 70 + n % 5, 61) for n in range(1000)],
}


@pytest.fixture(scope="module", autouse=True)
def loaded(guest: Guest) -> None:
    """The driver and the client, on both boards."""
    for name in MODULES:
        guest.load(name)


def fails(number: int) -> contextlib.AbstractContextManager:
    """A transfer that fails with an error number."""
    return pytest.raises(OSError, match=rf"\[Errno {number}\]")


@pytest.mark.each_block
@in_guest
@pytest.mark.parametrize("name", LISTS)
def test_scatter_gather(name: str):
    """To the card from a list, back to its parts in another order; nothing beside them changes."""
    places = LISTS[name]
    size = max(offset + length for offset, length in places) + PAGE
    source, target = Buffer(size), Buffer(size)
    length = sum(length for _, length in places)
    card = random.randint(0, RAM - length)
    wanted = bytearray(target[:])
    with Client() as client:
        client.to_card(card, *pieces(source.memory, places))
        client.from_card(card, *pieces(target.memory, places[::-1]))
    sent = b"".join(pieces(source.memory, places))
    for place in pieces(wanted, places[::-1]):
        place[:], sent = sent[: len(place)], sent[len(place) :]
    assert target[:] == wanted


@pytest.mark.each_block
@in_guest
def test_both_ways_at_once():
    half = RAM // 2
    up, down = Buffer(half), Buffer(half)
    there, back = Buffer(half), Buffer(half, b"")
    with Client() as client:
        client.to_card(half, up[:])
        for _ in range(4):
            thread = threading.Thread(target=client.to_card, args=(0, down[:]))
            thread.start()
            client.from_card(half, memoryview(back.memory))
            thread.join()
            assert back[:] == up[:]
        client.from_card(0, memoryview(there.memory))
    assert there[:] == down[:]


@pytest.mark.each_block
@in_guest
@pytest.mark.parametrize("periods", [1, 2, 7, 32])
def test_cyclic_from_the_card(periods: int):
    """An interrupt and a call back for each period, or for some that end together; no others."""
    period = MEMORY // 32
    first, second = os.urandom(period), os.urandom(period)
    with Client() as client:
        memory = client.memory()
        memory[:] = bytes(MEMORY)
        client.to_card(100, first)
        before = interrupts("xdma-c2h-channel")
        with client.ring(100, periods, period):
            until(lambda: client.state().callbacks > 3 * periods)
            residue = client.state().residue
            assert residue % period == 0
            assert 0 < residue <= periods * period
            assert memory[:] == (first * periods).ljust(MEMORY, b"\0")
            client.to_card(100, second)
            mark = client.state().callbacks
            until(lambda: client.state().callbacks > mark + 2 * periods + 2)
            assert memory[: periods * period] == second * periods
        counted = client.state().callbacks
        # Terminating may interrupt, too.
        assert counted <= interrupts("xdma-c2h-channel") - before <= completed(C2H) + 1
        print(f"{counted} of {completed(C2H)} periods, {client.terminate_ms():.1f} ms to terminate")
        # The memory is ours again.
        mine = os.urandom(MEMORY)
        memory[:] = mine
        time.sleep(0.1)
        assert memory[:] == mine
        assert client.state().callbacks == counted


@in_guest
def test_cyclic_to_the_card():
    periods, period = 16, 1000
    first, second = os.urandom(period), os.urandom(period)
    found = Buffer(PAGE)
    with Client() as client:
        memory = client.memory()
        for content in (first, second):
            memory[: periods * period] = content * periods
            with client.ring(0, periods, period, to_card=True):
                until(lambda: client.state().callbacks > 2 * periods)
                client.from_card(0, *pieces(found.memory, [(0, period)]))
                assert found[:period] == content


def soon(client: Client) -> None:
    """The driver's last wait did not run out: an interrupt ended it, or the channel was idle."""
    print(f"{client.terminate_ms():.1f} ms to terminate")
    assert client.terminate_ms() < DRIVER_WAITS_MS


@pytest.mark.each_block
@in_guest
def test_terminate_while_data_moves():
    """A client that gives up: what has not come does not come any more."""
    outcomes = []
    with Client() as client, timeout(1):
        for n in range(6):
            buffer = Buffer(RAM)
            whole = pieces(buffer.memory, [(k * 1000, 999) for k in range(65)])
            try:
                (client.to_card if n % 2 else client.from_card)(0, *whole)
                outcomes.append(0)
            except OSError as error:
                outcomes.append(error.errno)
                soon(client)
            kept = buffer[:]
            settle()
            assert buffer[:] == kept
    assert set(outcomes) <= {0, errno.ETIMEDOUT}
    assert outcomes.count(errno.ETIMEDOUT) >= 2, "nothing was terminated"


@pytest.mark.each_block
@in_guest
def test_terminate_what_waits():
    """A ring of the user stream, into which nobody sends: it waits for ever."""
    with Client() as client:
        with client.ring(STREAM, 4, PAGE):
            time.sleep(0.2)
            assert client.state().callbacks == 0
        soon(client)


@in_guest
@pytest.mark.parametrize("to_card", [True, False])
@pytest.mark.parametrize("card", [RAM, 1 << 20, 1 << 32, RAM - 200])
def test_no_such_card_address(to_card: bool, card: int):
    """An error instead of a time-out; what was before it in the list has been moved."""
    places = [(n * 500, 100) for n in range(4)]
    moved = max(0, (RAM - card) // 100)
    content, buffer = os.urandom(moved * 100), Buffer(PAGE)
    wanted = bytearray(buffer[:])
    found = Buffer(PAGE)
    with Client() as client:
        if not to_card:
            if moved:
                client.to_card(card, content)
                for n in range(moved):
                    wanted[n * 500 : n * 500 + 100] = content[n * 100 : n * 100 + 100]
            with fails(errno.EIO):
                client.from_card(card, *pieces(buffer.memory, places))
            assert buffer[:] == wanted
        else:
            with fails(errno.EIO):
                client.to_card(card, *pieces(buffer.memory, places))
            if moved:
                client.from_card(card, *pieces(found.memory, [(0, moved * 100)]))
                assert found[: moved * 100] == b"".join(pieces(buffer.memory, places[:moved]))


@in_guest
def test_no_such_card_address_in_a_ring():
    with Client() as client, client.ring(RAM, 4, PAGE), fails(errno.EIO):
        until(lambda: client.state().callbacks)


@pytest.mark.each_block
@in_guest
def test_reads_that_fail():
    """Unsupported Request for data, then for a descriptor; each next transfer is good."""
    source, target = Buffer(PAGE), Buffer(PAGE)
    # In one page: a descriptor, and a read of its data.
    whole = pieces(source.memory, [(0, 200)])
    with Client(FAULTY) as client:
        for _ in range(2):
            with fails(errno.EIO):
                client.to_card(0, *whole)
            client.to_card(0, *whole)
        client.from_card(0, *pieces(target.memory, [(0, 200)]))
    assert target[:200] == source[:200]


def test_removed_and_probed_again(guest: Guest):
    for name in reversed(MODULES):
        guest.unload(name)
    for name in MODULES:
        guest.load(name)
    guest.python("from tests.system.dmaengine import works; works()")
