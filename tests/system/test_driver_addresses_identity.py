# SPDX-License-Identifier: BSD-2-Clause
"""Addresses that exporters and NVIDIA's driver give, where no IOMMU translates."""

from __future__ import annotations

import errno

import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl, Placement
from tests.system.addresses import CARVEOUT, LOST, PART, TWICE, WHOLE, arrives, tried
from tests.system.marks import IN_GUEST
from tests.system.picoevb import GPU_PAGE, Gpu, Node, setting

GUEST = {
    "configuration": "identity",
    "further_boards": [[]],
    "append": f"memmap=16M${CARVEOUT:#x}",
}

pytestmark = IN_GUEST

SIZE = 3 * GPU_PAGE


@pytest.mark.parametrize(
    ("bad", "pages", "outcome"),
    [
        # They are right here.
        ("raw", 3, "PEER"),
        ("raw-end", 3, "PEER"),
        ("raw-foreign", 1, "OTHER"),
        ("raw-ram", 1, "HOST"),
        ("short", 3, PART),
        ("long", 3, PART),
        ("empty", 3, PART),
        ("odd", 3, WHOLE),
        ("overlap", 3, TWICE),
        ("alias", 3, TWICE),
        ("nowhere", 3, LOST),
        ("beyond", 3, LOST),
        ("own", 1, LOST),
        ("foreign", 1, "OTHER"),
        ("interrupt", 1, LOST),
        ("wrap", 1, LOST),
        ("ram", 1, "HOST"),
        ("ram-end", 2, "MIXED"),
        ("carveout", 3, "OTHER"),
    ],
)
def test_what_exporters_get_wrong(bad, pages, outcome):
    tried(bad, pages, outcome)


def test_addresses_of_nvidias_driver_are_looked_at_as_well():
    with Gpu() as gpu, Node() as node:
        va = gpu.alloc(SIZE)
        pin = uapi.PinCuda(va=va, size=SIZE)
        with setting("simgpu", "map_beyond", 64 << 20):
            words = "^nvp2p gave addresses that lead to no memory"
            node.refuses(errno.EOPNOTSUPP, words, Ioctl.PIN_CUDA, pin)
        assert gpu.counts()[1:3] == (0, 0)


def test_memory_that_is_forced_behind_the_bar():
    """NVIDIA's driver maps it for processors only: the board gets the same addresses."""
    with Gpu() as gpu, Node() as node, setting("peerdma_nvp2p", "force_bar1", 1):
        va = gpu.alloc(SIZE)
        handle = node.cuda(va, SIZE)
        assert node.query(handle).placement == Placement.PEER
        assert gpu.counts()[1:3] == (1, 0)
        arrives(node, handle, gpu, va, SIZE)
        node.unpin(handle)
        with setting("simgpu", "no_flags", 1):
            words = "older than 580, which force_bar1=1 of peerdma_nvp2p needs"
            node.refuses(errno.EINVAL, words, Ioctl.PIN_CUDA, uapi.PinCuda(va=va, size=SIZE))
        assert gpu.counts()[1:3] == (0, 0)
