# SPDX-License-Identifier: BSD-2-Clause
"""Checks of what transfers are given, and facts about sequences of spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import integer, wrong_type
from ..errors import PinError, TransferError, UnsupportedError
from ..memory.external import is_array
from ..memory.memory import DataPath, is_memory
from ..uapi import Access
from .backend import Extension, Piece
from .pin import READ_WRITE, Pin, Span, Table

__all__ = [
    "frame_in",
    "listed",
    "longest_path",
    "pieces",
    "read_only",
    "refuse_overlap",
    "require_frames",
    "require_on_card",
    "require_ratio",
    "require_ring",
    "require_same_length",
    "require_usable",
    "total_bytes",
]


def listed(given: Any) -> list[Any]:
    """What one side of a transfer consists of: pins, spans and arrays; TypeError for all else."""
    if isinstance(given, (Pin, Span, np.ndarray)) or _is_memory(given):
        return [given]
    several = isinstance(given, Sequence) and not isinstance(given, str)
    pieces = list(given) if several else [given]
    for each in pieces:
        if not isinstance(each, (Pin, Span)) and not _is_memory(each):
            raise wrong_type(
                "a transfer takes an array, a pin, a span of it, or a sequence of these",
                each,
                "pin[start:stop] is a span",
            )
    return pieces


def _is_memory(given: Any) -> bool:
    return is_memory(given) or is_array(given)


def require_usable(span: Span, table: Table, needed: Access) -> Span:
    """The span; PinError if its pin is not of this table, or does not give the access needed."""
    pin = span.pin
    if pin.handle is None or pin.table is not table:
        state = "closed" if pin.closed else "another board's"
        raise PinError(
            f"cannot transfer {span.nbytes} bytes at {span.address:#x}: their pin is {state}; "
            "pin the memory on this board with board.pin(...)"
        )
    # Most pins allow both, and looking for a flag among others takes long.
    if pin.access is not READ_WRITE and needed not in pin.access:
        raise _misused(span, needed)
    return span


def require_on_card(span: Span, address: int, size: int) -> None:
    """TransferError unless so many bytes at this address are in card RAM of `size` bytes."""
    address = integer(address, "a card address")
    if address < 0 or address + span.nbytes > size:
        raise TransferError(
            f"{span.nbytes} bytes at card address {address:#x} are not all inside card RAM, which "
            f"has {size} bytes from address 0. Transfer less at a time",
            address=address,
        )


def require_same_length(sources: Sequence[Span], destinations: Sequence[Span]) -> int:
    """The bytes of either side of a copy; TransferError unless both have the same number."""
    nbytes, room = total_bytes(sources), total_bytes(destinations)
    if nbytes != room:
        raise TransferError(
            f"cannot copy {nbytes} bytes into {room}; give both sides the same length, for example "
            "by pin[:n]"
        )
    return nbytes


def require_ratio(
    sources: Sequence[Span], destinations: Sequence[Span], extension: Extension
) -> int:
    """The bytes of the sources; TransferError unless the user block makes of them what fits."""
    nbytes, room = total_bytes(sources), total_bytes(destinations)
    taken, made = extension.user_ratio
    if nbytes % taken or room != nbytes // taken * made:
        raise TransferError(
            f"cannot process {nbytes} bytes into {room}: the user block {extension.user_block} "
            f"makes {made} bytes of each {taken}"
        )
    return nbytes


def require_ring(surfaces: Any, overwrite: bool, stream: Any, extension: Extension) -> None:
    """Raises unless the board has a source that can fill these surfaces in turn."""
    if extension.user_ratio[0]:
        raise UnsupportedError(
            f"cannot stream: the board's user block {extension.user_block} is not a source of "
            "frames. Build its gateware with one, such as --user pattern"
        )
    if not isinstance(surfaces, (Sequence, np.ndarray)):
        raise wrong_type("a stream fills a sequence of surfaces", surfaces, "write [a, b]")
    if len(surfaces) < 1 + overwrite:
        raise ValueError(f"a ring of {len(surfaces)} surfaces is too small")
    if overwrite and stream is not None:
        raise ValueError("with overwrite the board waits for no stream; leave out one of the two")


def frame_in(span: Span, frame_bytes: int | None) -> Span:
    """The start of a span that a frame takes; None: all of it. ValueError if it does not fit."""
    if frame_bytes is None:
        return span
    if frame_bytes > span.nbytes:
        raise ValueError(
            f"frames of {frame_bytes} bytes do not fit a surface of {span.nbytes} bytes"
        )
    return span.pin[span.start : span.start + frame_bytes]


def require_frames(spans: Sequence[Span]) -> None:
    """ValueError unless all spans have the same length, and are not empty."""
    sizes = {span.nbytes for span in spans}
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(
            f"frames have one size above 0; these surfaces have {sorted(sizes)} bytes. Give a "
            "frame_bytes that fits all of them"
        )


def _misused(span: Span, needed: Access) -> PinError:
    """The error for a transfer that needs an access which its pin does not give."""
    if needed is Access.WRITE and span.pin.memory.readonly:
        return read_only("use", span.nbytes, span.address)
    side = "source" if needed is Access.READ else "destination"
    return PinError(
        f"cannot use {span.nbytes} bytes at {span.address:#x} as the {side} of a transfer: they "
        f"are pinned without Access.{needed.name}; nothing was transferred. Pin them with "
        "access=Access.READ | Access.WRITE, or without access"
    )


def read_only(action: str, nbytes: int, address: int) -> PinError:
    """The error for a destination that is read-only."""
    return PinError(
        f"cannot {action} {nbytes} bytes at {address:#x} as a destination: that memory is "
        "read-only; nothing was transferred. Use a writable array as the destination, for example "
        "target = numpy.empty_like(array), and use target afterwards: the read-only one never "
        "changes"
    )


def total_bytes(spans: Sequence[Span]) -> int:
    """Bytes of all of them."""
    nbytes = 0
    for span in spans:
        nbytes += span.stop - span.start
    return nbytes


def pieces(spans: Sequence[Span]) -> list[Piece]:
    """Spans as backends take them."""
    return [Piece(span.pin.held, span.start, span.stop) for span in spans]


def longest_path(spans: Sequence[Span]) -> DataPath | None:
    """The longest path (last in `DataPath`) that any bytes take; None if there are no bytes."""
    if len(spans) == 1:
        span = spans[0]
        return span.pin.path if span.stop > span.start else None
    paths = {span.pin.path for span in spans if span.stop > span.start}
    return max(paths, key=list(DataPath).index, default=None)


def refuse_overlap(sources: Sequence[Span], destinations: Sequence[Span]) -> None:
    """TransferError if a source and a destination share a byte."""
    if len(sources) == len(destinations) == 1:
        # Almost always: there is nothing to sort.
        source, target = sources[0], destinations[0]
        ahead = target.address - source.address
        if ahead >= source.nbytes or -ahead >= target.nbytes:
            return
    ranges = sorted(
        (span.address, span.address + span.nbytes, side)
        for side, spans in enumerate((sources, destinations))
        for span in spans
        if span.nbytes
    )
    # Highest end of the ranges so far, per side. As they are sorted by start, a range overlaps the
    # other side exactly if it starts below that side's end.
    reach = [0, 0]
    for start, stop, side in ranges:
        if start < reach[1 - side]:
            raise TransferError(
                f"source and destination overlap at {start:#x}; nothing was transferred. Copy to "
                "separate memory first",
                address=start,
            )
        reach[side] = max(reach[side], stop)
