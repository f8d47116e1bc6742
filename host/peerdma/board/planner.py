# SPDX-License-Identifier: BSD-2-Clause
"""Makes plans of what transfers are given: checks it, pins arrays, and has the backend prepare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arguments import wrong_type
from ..errors import TransferError, UnsupportedError
from ..uapi import Access
from .arrays import Arrays, Lease
from .backend import Backend, Piece, Prepared, require_user_block
from .job_runner import JobRunner
from .ordered import Ordered
from .pin import Pin, Side, Span
from .pin_table import PinTable
from .plan import Plan
from .spans import (
    listed,
    pieces,
    refuse_overlap,
    require_on_card,
    require_ratio,
    require_same_length,
    require_usable,
)

__all__ = ["Planner"]


class Planner:
    """The plans of a board.

    Parameters
    ----------
    backend : Backend
    jobs : JobRunner
    arrays : Arrays
    pins : PinTable
    """

    def __init__(
        self,
        backend: Backend,
        jobs: JobRunner,
        arrays: Arrays,
        pins: PinTable,
    ):
        self._backend = backend
        self._jobs = jobs
        self._pins = pins
        self._lock = jobs.lock
        self._arrays = arrays
        self._ordered = Ordered(jobs, arrays)

    def copy(self, source: Side, destination: Side) -> Plan:
        """See `Board.prepare`."""
        return self._plan(listed(source), listed(destination), self._copy)

    def _copy(self, sources: list[Span], destinations: list[Span]) -> Prepared | None:
        """What the backend prepares for a copy; None if there are no bytes."""
        nbytes = require_same_length(sources, destinations)
        refuse_overlap(sources, destinations)
        if not nbytes:
            return None
        return self._backend.prepare_copy(pieces(sources), pieces(destinations))

    def process(self, source: Side, destination: Side) -> Plan:
        """See `Board.process`."""
        extension = require_user_block(self._backend)
        if not extension.user_ratio[0]:
            raise UnsupportedError(
                f"cannot process memory: the board's user block {extension.user_block} is a source "
                "and takes no bytes. Use board.frames(...)"
            )

        def prepare(sources: list[Span], destinations: list[Span]) -> Prepared | None:
            nbytes = require_ratio(sources, destinations, extension)
            refuse_overlap(sources, destinations)
            if not nbytes:
                return None
            return self._backend.prepare_process(pieces(sources), pieces(destinations))

        return self._plan(listed(source), listed(destination), prepare)

    def write(self, source: Any, card_address: int) -> Plan:
        """See `Board.write`."""

        def prepare(here: list[Span], _: list[Span]) -> Prepared | None:
            piece = self._on_card(here, card_address)
            return self._backend.prepare_write(piece, card_address) if here[0].nbytes else None

        return self._plan(_single(source, "write"), [], prepare)

    def read(self, destination: Any, card_address: int) -> Plan:
        """See `Board.read`."""

        def prepare(_: list[Span], there: list[Span]) -> Prepared | None:
            piece = self._on_card(there, card_address)
            return self._backend.prepare_read(piece, card_address) if there[0].nbytes else None

        return self._plan([], _single(destination, "read"), prepare)

    def in_order_of(self, stream: Any) -> Callable[[Callable[[], None]], None]:
        """What has a function called when a stream has done its work so far, see `Ordered.after`.

        TypeError if it is no stream; CudaError if there is no CUDA.
        """
        return self._ordered.after(stream)

    def close(self) -> None:
        """Ends what streams have not started, unpins arrays; the lock is held."""
        self._ordered.close()
        self._arrays.close()

    def join(self) -> None:
        """Waits for the thread that serves streams; without the lock."""
        self._ordered.join()

    def span(self, given: Any, needed: Access, leases: list[Lease]) -> Span:
        """The span of a pin, a span or an array; adds the lease of an array to `leases`."""
        if isinstance(given, Pin):
            given = Span(given, 0, given.nbytes)
        elif not isinstance(given, Span):
            given, lease = self._arrays.lease(given, needed)
            leases.append(lease)
        return require_usable(given, self._pins, needed)

    def _plan(
        self,
        source: list[Any],
        destination: list[Any],
        prepare: Callable[[list[Span], list[Span]], Prepared | None],
    ) -> Plan:
        """A plan of what `prepare` makes of both sides; card RAM as a side is empty."""
        with self._lock:
            self._pins.require_open()
            if self._pins.dropped:
                self._pins.reap()
            leases: list[Lease] = []
            here: list[Span] = []
            there: list[Span] = []
            try:
                span, read, write = self.span, Access.READ, Access.WRITE
                here = [span(each, read, leases) for each in source]
                there = [span(each, write, leases) for each in destination]
                if leases:
                    # Libraries that were asked where an array is may have closed a pin.
                    for each in (*here, *there):
                        each.pin.require_open()
                prepared = prepare(here, there)
                return Plan(
                    self._jobs, self._ordered, prepared, here, there, self._backend.info, leases
                )
            except BaseException as error:
                for lease in leases:
                    lease.close()
                self._arrays.reap()
                if isinstance(error, TransferError):
                    # What has taken the place of memory that moved seems to overlap with that.
                    for each in (*here, *there):
                        each.pin.require_unmoved()
                raise

    def _on_card(self, spans: list[Span], card_address: int) -> Piece:
        """The piece of a transfer to or from the card; TransferError if it does not fit that."""
        (span,) = spans
        require_on_card(span, card_address, self._backend.info.card_ram_size)
        return Piece(span.pin.held, span.start, span.stop)


def _single(memory: Any, call: str) -> list[Any]:
    """An argument that has to be in one piece, for a card address; as `listed`."""
    try:
        (given,) = listed(memory)
    except (TypeError, ValueError):
        raise wrong_type(
            f"the memory of board.{call}(memory, card_address) is an array, a pin or a span",
            memory,
            "pin[start:stop] is a span",
        ) from None
    return [given]
