# SPDX-License-Identifier: BSD-2-Clause
"""What can be said of pinned memory that is taken as one, piece after piece."""

from __future__ import annotations

from collections.abc import Sequence

from .backend import Piece
from .errors import TransferError
from .memory import Path
from .pin import Span

__all__ = ["longest_path", "piece", "refuse_overlap", "total_bytes"]


def total_bytes(spans: Sequence[Span]) -> int:
    """Bytes of all of them."""
    return sum(span.nbytes for span in spans)


def piece(span: Span) -> Piece:
    """A span as backends know it."""
    return Piece(span.pin.handle, span.start, span.stop)


def longest_path(spans: Sequence[Span]) -> Path | None:
    """The way most removed from peer-to-peer that any of the bytes take."""
    paths = {span.pin.path for span in spans if span.nbytes}
    return max(paths, key=list(Path).index, default=None)


def refuse_overlap(sources: Sequence[Span], destinations: Sequence[Span]) -> None:
    """TransferError if a byte of the one is also one of the other."""
    ranges = sorted(
        (span.address, span.address + span.nbytes, side)
        for side, spans in enumerate((sources, destinations))
        for span in spans
        if span.nbytes
    )
    # Of each side, how far the ranges before reach; sorted by start, that shows any overlap.
    reach = [0, 0]
    for start, stop, side in ranges:
        if start < reach[1 - side]:
            raise TransferError(
                f"asked to copy between memories that overlap at {start:#x}; nothing was "
                "moved. Copy to memory of its own first",
                address=start,
            )
        reach[side] = max(reach[side], stop)
