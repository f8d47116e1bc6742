# SPDX-License-Identifier: BSD-2-Clause
"""Checks of what transfers are given, and facts about sequences of spans."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from ..arguments import integer, wrong_type
from ..errors import PinError, TransferError
from ..memory.memory import Path, is_memory
from ..uapi import Access
from .backend import Piece
from .pin import Pin, Span

__all__ = [
    "longest_path",
    "piece",
    "read_only",
    "refuse_overlap",
    "require_on_card",
    "resolved",
    "total_bytes",
    "unpinned",
]


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


def _pieces(given: Pin | Span | Sequence[Pin | Span]) -> list[Pin | Span]:
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


def resolved(
    given: Pin | Span | Sequence[Pin | Span], pins: Container[Pin], needed: Access
) -> list[Span]:
    """The spans that a side of a transfer was given as.

    Raises
    ------
    PinError
        If one is not of these pins, or its pin does not give the access that the transfer needs.
    TypeError
        If there is anything else among them.
    """
    spans = []
    for each in _pieces(given):
        span = each[:] if isinstance(each, Pin) else each
        if span.pin not in pins:
            state = "closed" if span.pin.closed else "another board's"
            raise PinError(
                f"asked to transfer {span.nbytes} bytes at {span.address:#x}, but their pin is "
                f"{state}; pin the memory on this board with board.pin(...)"
            )
        if needed not in span.pin.access:
            raise _misused(span, needed)
        spans.append(span)
    return spans


def require_on_card(span: Span, address: int, size: int) -> None:
    """TransferError unless so many bytes at this address are in card RAM of `size` bytes."""
    address = integer(address, "a card address")
    if address < 0 or address + span.nbytes > size:
        raise TransferError(
            f"asked to move {span.nbytes} bytes at card address {address:#x}; card RAM has "
            f"{size} bytes from address 0. Move less at a time",
            address=address,
        )


def _misused(span: Span, needed: Access) -> PinError:
    """The error for a transfer that needs an access which its pin does not give."""
    if needed is Access.WRITE and span.pin.memory.readonly:
        return read_only("transfer", span.nbytes, span.address)
    side = "source" if needed is Access.READ else "destination"
    return PinError(
        f"asked for {span.nbytes} bytes at {span.address:#x} as the {side} of a transfer, but they "
        f"are pinned without Access.{needed.name}; nothing was moved. Pin them with "
        "access=Access.READ | Access.WRITE, or without access"
    )


def read_only(asked: str, nbytes: int, address: int) -> PinError:
    """The error for a destination that nothing can be written to."""
    return PinError(
        f"asked to {asked} {nbytes} bytes at {address:#x} as a destination, but that memory is "
        "read-only; nothing was moved. Make a writeable array the destination, for example "
        "target = numpy.empty_like(array), and use target afterwards: the read-only one never "
        "changes"
    )


def total_bytes(spans: Sequence[Span]) -> int:
    """Bytes of all of them."""
    return sum(span.nbytes for span in spans)


def piece(span: Span) -> Piece:
    """A span as backends know it."""
    return Piece(span.pin.handle, span.start, span.stop)


def longest_path(spans: Sequence[Span]) -> Path | None:
    """The path of the bytes that take the longest one; None if there are no bytes."""
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
