# SPDX-License-Identifier: BSD-2-Clause
"""A guest like a Jetson: arm64, no IOMMU, memory by the nv-p2p of Tegra."""

import os

from peerdma.uapi import Feature, LegacyFlag, Placement
from tests.system.marks import IN_GUEST
from tests.system.picoevb import PAGE, Buffer, Node

pytestmark = IN_GUEST
GUEST = {"configuration": "arm64"}


def test_what_there_is():
    assert os.uname().machine == "aarch64"
    with Node() as node:
        info = node.info()
    assert info.providers == b"pages dmabuf nvp2p-tegra"
    assert not Feature(info.features) & Feature.IOMMU


def test_memory_by_cuda_pointer():
    both = LegacyFlag.H2C2H_SRC_IS_HANDLE | LegacyFlag.H2C2H_DST_IS_HANDLE
    source, destination = Buffer(50 * PAGE), Buffer(50 * PAGE, b"")
    with Node() as node:
        s, d = (node.cuda(b.address + 64, 49 * PAGE) for b in (source, destination))
        query = node.query(s)
        assert (query.placement, query.provider) == (Placement.HOST, b"nvp2p-tegra")
        node.h2c2h(s, d, 49 * PAGE, both)
    assert destination[64 : 64 + 49 * PAGE] == source[64 : 64 + 49 * PAGE]
    assert not any(destination[:64]) and not any(destination[64 + 49 * PAGE :])


def test_pages():
    source, destination = Buffer(300000), Buffer(300000, b"")
    with Node() as node:
        node.h2c2h(source.address + 3, destination.address + 5, 299990)
    assert destination[5:299995] == source[3:299993]
