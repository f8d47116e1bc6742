# SPDX-License-Identifier: BSD-2-Clause
"""Exporters of the GPU's memory that give wrong addresses: what a pin of it comes to."""

from __future__ import annotations

import errno
import os

from peerdma import uapi
from peerdma.uapi import Ioctl, PinFlag, Placement
from tests.system.picoevb import BOTH, GPU_PAGE, Buffer, Gpu, Node, parameter, setting

__all__ = ["CARVEOUT", "LOST", "PART", "TWICE", "WHOLE", "arrives", "tried"]

#: Where the guest's kernel leaves memory to nobody, and the parameter by which it does.
CARVEOUT = 0x30000000
#: What is said of addresses that lead nowhere; of wrong lengths; of wrong offsets; of one memory
#: at two addresses.
LOST = "^simgpu gave addresses that lead to no memory.* would be lost$"
PART = r"^simgpu mapped \d+ bytes of its dma-buf, which has \d+$"
WHOLE = "^simgpu gave addresses of its dma-buf that are not those of whole pages$"
TWICE = "^simgpu gave the board the same memory twice"


def arrives(node: Node, handle: int, gpu: Gpu, va: int, size: int) -> None:
    """That a copy to pinned memory of the GPU gets there, and one from it is of what is there."""
    view = gpu.view(va, size)
    view[:] = bytes(size)
    source, destination = Buffer(size), Buffer(size, b"")
    node.h2c2h(source.address, handle, size, 2)
    assert view[:] == source[:]
    view[:] = content = os.urandom(size)
    node.h2c2h(handle, destination.address, size, 1)
    assert destination[:] == content


def tried(bad: str, pages: int, outcome: str) -> None:
    """Pins memory that is exported wrongly, and right afterwards.

    Parameters
    ----------
    bad : str
        What is wrong, see driver/testing/map.c.
    pages : int
        Of the GPU.
    outcome : str
        The placement's name, or a pattern of the words by which it is refused.
    """
    size = pages * GPU_PAGE
    placement = Placement.__members__.get(outcome)
    with Gpu() as gpu, Node() as node, setting("simgpu", "carveout", CARVEOUT):
        va = gpu.alloc(size)
        fd = gpu.export(va)
        with setting("simgpu", "bad", bad):
            for flags in (0, PinFlag.REQUIRE_PEER):
                pin = uapi.PinDmabuf(fd=fd, access=BOTH, flags=flags)
                if placement is None or (flags and placement is not Placement.PEER):
                    node.refuses(
                        errno.EOPNOTSUPP,
                        outcome if placement is None else "",
                        Ioctl.PIN_DMABUF,
                        pin,
                    )
                    continue
                handle = node.request(Ioctl.PIN_DMABUF, pin).handle
                assert (pin.placement, node.query(handle).placement) == (placement, placement)
                if placement is Placement.PEER:
                    arrives(node, handle, gpu, va, size)
                node.unpin(handle)
            assert parameter("simgpu", "imported").read_text() == "0\n"
        handle = node.dmabuf(fd, flags=PinFlag.REQUIRE_PEER)
        arrives(node, handle, gpu, va, size)
        node.unpin(handle)
        os.close(fd)
