# SPDX-License-Identifier: BSD-2-Clause
"""What can be said of pinned memory that is taken as one, piece after piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import wrong_type
from ..errors import PinError, TransferError
from ..memory.memory import Path, is_memory
from .backend import Piece
from .pin import Pin, Span

__all__ = ["longest_path", "piece", "pieces", "refuse_overlap", "total_bytes", "unpinned"]


def unpinned(given: Any, wanted: str) -> PinError | TypeError:
    """The error for something that is no pin: memory to be pinned first, or no memory at all."""
    if isinstance(given, np.ndarray) or is_memory(given):
        return PinError(
            f"asked to transfer a {type(given).__name__}, which is not pinned; pin it first: "
            "with board.pin(surface) as s: ..."
        )
    return wrong_type(
        wanted, given, "board.pin(...) pins a surface or a numpy array, pin[start:stop] is a span"
    )


def pieces(given: Pin | Span | Sequence[Pin | Span]) -> list[Pin | Span]:
    """The pins and spans that a side of a transfer was given as.

    Raises
    ------
    PinError
        If there is memory among them that was not pinned.
    TypeError
        If there is anything else.
    """
    if isinstance(given, (Pin, Span)):
        return [given]
    several = isinstance(given, Sequence) and not isinstance(given, str)
    for each in given if several else [given]:
        if not isinstance(each, (Pin, Span)):
            raise unpinned(each, "a transfer takes a pin, a span of it, or a sequence of these")
    return list(given)


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
