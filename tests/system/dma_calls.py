# SPDX-License-Identifier: BSD-2-Clause
"""What the driver asks of the kernel's DMA API, as the kernel's trace events tell it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from peerdma.uapi import Op, Reason
from tests.system.picoevb import PAGE, Buffer, Node, address_of_board, results, shell

__all__ = ["check_syncs", "recorded"]

_TRACING = Path("/sys/kernel/tracing")


class Call(NamedTuple):
    """A call that names bus addresses: function, direction, where they begin, how many bytes."""

    name: str
    direction: str
    address: int
    size: int


@contextlib.contextmanager
def recorded(node: str = "picoevb") -> Iterator[Callable[[], list[Call]]]:
    """Records the calls for a board within; what it gives returns those so far, in order."""
    if not (_TRACING / "trace").exists():
        shell(f"mount -t tracefs tracing {_TRACING}")
    enable = _TRACING / "events/dma/enable"
    line = rf"(dma_\w+): {address_of_board(node)} dir=(\w+) dma_addr=(\w+) size=(\d+)"

    def calls() -> list[Call]:
        found = re.findall(line, (_TRACING / "trace").read_text())
        return [Call(name, way, int(address, 16), int(size)) for name, way, address, size in found]

    (_TRACING / "trace").write_text("")
    enable.write_text("1")
    try:
        yield calls
    finally:
        enable.write_text("0")


def _ranges(calls: list[Call], name: str, mappings: list[Call]) -> list[tuple[int, int]]:
    """Where calls begin and end, as offsets in memory that is mapped piece by piece.

    Those for other memory are left out, and adjacent ones are one.
    """
    ranges: list[tuple[int, int]] = []
    for call in (each for each in calls if each.name == name):
        at = 0
        for mapping in mappings:
            if mapping.address <= call.address < mapping.address + mapping.size:
                start = at + call.address - mapping.address
                assert call.address + call.size <= mapping.address + mapping.size, call
                if ranges and ranges[-1][1] == start:
                    start = ranges.pop()[0]
                ranges.append((start, at + call.address - mapping.address + call.size))
            at += mapping.size
    return ranges


def check_syncs() -> None:
    """That a job synchronizes just what it moves: for the board before, for the CPU after it.

    And that it does so with mappings of which a part may be synchronized: not with lists.
    """
    source, destination = Buffer(8 * PAGE), Buffer(8 * PAGE, b"")
    with Node() as node, recorded() as calls:
        s = node.pages(source, PAGE + 1, 5 * PAGE)
        mapped = [[call for call in calls() if call.name == "dma_map_page"]]
        d = node.pages(destination, 1, 6 * PAGE)
        mapped.append([call for call in calls() if call.name == "dma_map_page"][len(mapped[0]) :])
        assert [sum(call.size for call in each) for each in mapped] == [5 * PAGE, 6 * PAGE], mapped
        pinned = len(calls())
        node.submit(Op.COPY, 3 * PAGE, src_handle=s, dst_handle=d, src_offset=5, dst_offset=9)
        assert results(node.events(1)) == [(0, Reason.NONE)]
        made = calls()[pinned:]
    read, written = [(5, 5 + 3 * PAGE)], [(9, 9 + 3 * PAGE)]
    assert _ranges(made, "dma_sync_single_for_device", mapped[0]) == read, made
    assert _ranges(made, "dma_sync_single_for_device", mapped[1]) == written, made
    assert _ranges(made, "dma_sync_single_for_cpu", mapped[0]) == [], made
    assert _ranges(made, "dma_sync_single_for_cpu", mapped[1]) == written, made
    names = [call.name for call in made]
    assert names == sorted(names, reverse=True), "for the CPU before all was for the board"
    assert destination[10 : 10 + 3 * PAGE] == source[PAGE + 6 : PAGE + 6 + 3 * PAGE]
