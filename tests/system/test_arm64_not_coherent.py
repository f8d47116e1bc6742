# SPDX-License-Identifier: BSD-2-Clause
"""An arm64 guest whose DMA goes past the processor's caches, as its device tree says.

QEMU has no caches, so all bytes would be right without a sync: what counts is what is called.
"""

from pathlib import Path

from peerdma.uapi import Op, Reason
from tests.system.dma_calls import check_syncs, recorded
from tests.system.marks import IN_GUEST
from tests.system.picoevb import PAGE, Buffer, Node, results

pytestmark = IN_GUEST
GUEST = {"configuration": "not-coherent"}


def test_nothing_says_that_it_is_coherent():
    nodes = [path.parent for path in Path("/proc/device-tree").rglob("device_type")]
    assert any(node.name.startswith("pcie@") for node in nodes)
    assert not [node for node in nodes if (node / "dma-coherent").exists()]


def test_what_is_synchronized():
    check_syncs()


def test_what_is_cancelled_is_synchronized_as_well():
    """Else the processor could write lines back over what the board wrote, or read old ones."""
    with Node() as node:
        handle = node.pages(Buffer(4 * PAGE))
        with recorded() as calls:
            node.cancel(node.endless(handle))
            assert node.events(1)[0].reason == Reason.CANCELLED
            found = [(call.name, call.size) for call in calls()]
    assert found == [("dma_sync_single_for_device", PAGE), ("dma_sync_single_for_cpu", PAGE)]


def test_pages():
    source, destination = Buffer(300000), Buffer(300000, b"")
    with Node() as node:
        node.h2c2h(source.address + 3, destination.address + 5, 299990)
        assert destination[5:299995] == source[3:299993]
        s, d = node.pages(source), node.pages(destination)
        for _ in range(3):
            node.submit(Op.COPY, 20000, src_handle=s, dst_handle=d)
        assert results(node.events(3)) == [(0, Reason.NONE)] * 3
        assert destination[:20000] == source[:20000]
