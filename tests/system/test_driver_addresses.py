# SPDX-License-Identifier: BSD-2-Clause
"""Addresses that exporters give, where an IOMMU translates: what is accepted arrives."""

from __future__ import annotations

import errno
import mmap
import os
import re

import pytest

from peerdma import uapi
from peerdma.uapi import Ioctl, PinFlag, Placement, Reason
from tests.system.addresses import CARVEOUT, LOST, PART, TWICE, WHOLE, arrives, tried
from tests.system.dma_calls import recorded
from tests.system.marks import IN_GUEST
from tests.system.picoevb import (
    GPU_PAGE,
    Buffer,
    Gpu,
    Node,
    parameter,
    rebound,
    results,
    setting,
    until,
)

#: With a second board, whose BARs are another function's, and memory that nobody has.
GUEST = {
    "configuration": "strict",
    "further_boards": [[]],
    "append": f"memmap=16M${CARVEOUT:#x} iomem=relaxed",
}

pytestmark = IN_GUEST

SIZE = 3 * GPU_PAGE
RAW = "^simgpu gave addresses of the BAR of 0000:.* that the IOMMU does not translate .*, and "


@pytest.mark.parametrize(
    ("bad", "pages", "outcome"),
    [
        ("raw", 1, f"{RAW}this kernel allows no peer-to-peer between them: .* iommu=pt"),
        ("raw", 5, f"{RAW}this kernel allows no peer-to-peer"),
        ("raw-end", 5, f"{RAW}only a part is such"),
        ("raw-foreign", 1, LOST),
        ("raw-ram", 1, LOST),
        ("short", 3, PART),
        ("long", 3, PART),
        ("empty", 3, PART),
        ("odd", 3, WHOLE),
        ("hole", 3, LOST),
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


def test_other_memory_is_reached():
    """It is neither the host's nor a device's, and not taken for a device's."""
    with Gpu() as gpu, Node() as node, setting("simgpu", "carveout", CARVEOUT):
        fd = gpu.export(gpu.alloc(SIZE))
        with setting("simgpu", "bad", "carveout"):
            handle = node.dmabuf(fd)
            query = node.query(handle)
            assert (query.placement, query.peer, query.aperture_size) == (Placement.OTHER, b"", 0)
            source = Buffer(SIZE)
            node.h2c2h(source.address, handle, SIZE, 2)
            memory = os.open("/dev/mem", os.O_RDWR)
            assert mmap.mmap(memory, SIZE, offset=CARVEOUT)[:] == source[:]
            os.close(memory)
            node.unpin(handle)
        os.close(fd)


@pytest.mark.parametrize("end", ["unpin", "close", "revoke", "unbind", "reset"])
def test_what_an_exporter_left_unmapped_is_mapped(end):
    """If the machine's owner says that the host bridge forwards; and unmapped in every way."""
    node = Node()
    with (
        Gpu() as gpu,
        setting("peerdma", "trust_host_bridge", 1),
        setting("simgpu", "bad", "raw"),
        recorded() as calls,
    ):

        def made(name: str) -> list[tuple[int, int]]:
            return sorted((call.address, call.size) for call in calls() if call.name == name)

        va = gpu.alloc(SIZE)
        fd = gpu.export(va)
        handle = node.dmabuf(fd, flags=PinFlag.REQUIRE_PEER)
        mapped = made("dma_map_resource")
        assert sum(size for _, size in mapped) == SIZE
        query = node.query(handle)
        assert (query.placement, query.aperture_size) == (Placement.PEER, 64 << 20)
        assert os.path.exists(f"/sys/bus/pci/devices/{query.peer.decode()}")
        arrives(node, handle, gpu, va, SIZE)
        assert made("dma_unmap_resource") == []
        if end == "reset":
            node.request(Ioctl.RESET, uapi.Reset())
            arrives(node, handle, gpu, va, SIZE)
        if end in ("unpin", "reset"):
            node.unpin(handle)
        elif end == "revoke":
            node.endless(handle)
            assert gpu.revoke(fd) == 0
            assert results(node.events(1)) == [(errno.ESTALE, Reason.REVOKED)]
        elif end == "unbind":
            with rebound():
                assert made("dma_unmap_resource") == mapped
        else:
            node.close()
        until(lambda: made("dma_unmap_resource") == mapped)
        until(lambda: parameter("simgpu", "imported").read_text() == "0\n")
        os.close(fd)
    node.close()


@pytest.mark.parametrize(
    ("bad", "pages", "outcome"),
    [
        ("raw-end", 3, f"{RAW}only a part is such"),
        ("raw-foreign", 1, LOST),
        ("raw-ram", 1, LOST),
        ("hole", 3, LOST),
    ],
)
def test_what_is_not_mapped_even_if_the_host_bridge_is_trusted(bad, pages, outcome):
    with setting("peerdma", "trust_host_bridge", 1):
        tried(bad, pages, outcome)


def test_what_is_said_fits():
    """The longest sentence, in full: it ends with what to do."""
    with Gpu() as gpu, Node() as node, setting("simgpu", "bad", "raw"):
        fd = gpu.export(gpu.alloc(SIZE))
        with node.refused(errno.EOPNOTSUPP, "pin in another way$"):
            node.dmabuf(fd)
        assert re.match(RAW, node.info().last_error.decode())
        os.close(fd)
