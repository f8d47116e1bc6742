# SPDX-License-Identifier: BSD-2-Clause
"""When a board may use the bus: not before its engine is idle, and not after its driver is gone."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerdma.regs import BAR_DMA, CHANNEL, SGDMA
from peerdma.uapi import BoardState, Reason
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    HUNG,
    Gpu,
    Node,
    address_of_board,
    callbacks,
    parameter,
    rebound,
    results,
    setting,
    until,
)

_HANGS = ["--no-msix", "--fault", "hang@1", "--time-scale", "1"]
_PLAIN = ["--plain", "--ids", "10de:0001", "--subsystem", "10de:0001"]
#: A guest with two boards that hang at once: ours, and a plain XDMA core. Their registers can be
#: used while the driver has them.
GUEST = {
    "configuration": "identity",
    "append": "iomem=relaxed",
    "further_boards": [_HANGS, [*_HANGS, *_PLAIN]],
}
pytestmark = IN_GUEST

#: Of the configuration space: the command register, and its bit for the bus.
COMMAND, MASTER = 4, 1 << 2
#: Bit of Device Status: not all that was asked for has come.
PENDING = 1 << 5


class Function:
    """A board's PCI function, beside the driver."""

    def __init__(self, node: str):
        folder = Path("/sys/bus/pci/devices") / address_of_board(node)
        self._config = os.open(folder / "config", os.O_RDWR)
        with (folder / f"resource{BAR_DMA[0]}").open("r+b") as file:
            self._registers = memoryview(mmap.mmap(file.fileno(), BAR_DMA[1])).cast("I")

    def write(self, register: int, value: int) -> None:
        """Writes a register of the DMA BAR."""
        self._registers[register // 4] = value

    def busy(self) -> bool:
        """Whether the first H2C channel is."""
        status = self._registers[CHANNEL.address("status") // 4]
        return bool(status & 1) and status != 0xFFFFFFFF

    @property
    def master(self) -> bool:
        """Whether it may use the bus."""
        return bool(os.pread(self._config, 2, COMMAND)[0] & MASTER)

    @master.setter
    def master(self, value: bool) -> None:
        command = os.pread(self._config, 1, COMMAND)[0] & ~MASTER
        os.pwrite(self._config, bytes([command | value * MASTER]), COMMAND)

    def pending(self) -> bool:
        """Whether it waits for completions."""
        capabilities = os.pread(self._config, 256, 0)
        at = capabilities[0x34]
        while capabilities[at] != 0x10:
            at = capabilities[at + 1]
        return bool(os.pread(self._config, 2, at + 0xA)[0] & PENDING)


@contextlib.contextmanager
def left_running(node: str) -> Iterator[Function]:
    """The driver is unbound, a channel is left waiting for a descriptor, and the driver bound."""
    function = Function(node)
    with rebound(node):
        function.master = True
        function.write(SGDMA.address("descriptor_lo"), 0x1000)
        function.write(SGDMA.address("descriptor_hi"), 0)
        function.write(CHANNEL.address("control"), 1)
        until(function.pending)
        function.master = False
        assert function.busy()
        yield function


@pytest.mark.parametrize("node", ["picoevb1", "picoevb2"])  # a soft reset; one of the function
def test_the_bus_is_for_an_engine_that_is_idle(node: str):
    """Of a former owner, whose memory is somebody else's now."""
    found: list[bool] = []
    bound = threading.Event()

    def watch(function: Function) -> None:
        while not bound.is_set():
            found.append(function.master and function.busy())

    with left_running(node) as function:
        watcher = threading.Thread(target=watch, args=(function,))
        watcher.start()
        until(lambda: found)
    bound.set()
    watcher.join()
    assert not any(found)
    assert function.master
    assert not function.busy()
    with Node(f"/dev/{node}") as opened:
        assert opened.info().state == BoardState.LIVE


def test_jobs_end_when_nothing_is_outstanding():
    """What the board had asked for when it lost the bus may take 50 ms to come."""
    function = Function("picoevb1")
    with callbacks(), Gpu() as gpu, Node(HUNG) as node:
        va = gpu.alloc(GPU_PAGE)
        generation = node.info().generation
        node.load(node.cuda(va, GPU_PAGE), 1)
        until(function.pending)
        begin = time.monotonic()
        gpu.free(va)
        assert time.monotonic() - begin >= 0.05
        assert results(node.events(1)) == [(errno.ESTALE, Reason.REVOKED)]
        until(lambda: node.info().generation == generation + 1)


def test_the_driver_is_gone_after_what_was_mapped_for_it():
    """Even what an exporter has mapped to nowhere, which is refused."""
    refused: list[int] = []

    def pin() -> None:
        try:
            node.dmabuf(fd)
        except OSError as error:
            refused.append(error.errno or 0)

    imported = parameter("simgpu", "imported")
    with (
        Gpu() as gpu,
        Node() as node,
        setting("simgpu", "bad", "nowhere"),
        setting("simgpu", "unmap_ms", 2000),
    ):
        fd = gpu.export(gpu.alloc(2 * GPU_PAGE))
        pinning = threading.Thread(target=pin)
        pinning.start()
        until(lambda: imported.read_text() == "1\n")
        with rebound():
            assert imported.read_text() == "0\n"
        pinning.join()
        assert refused == [errno.EOPNOTSUPP]
        assert b"lead to no memory" in node.info().last_error
        os.close(fd)
