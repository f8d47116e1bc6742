# SPDX-License-Identifier: BSD-2-Clause
"""Makes plans of what transfers are given: checks it, pins arrays, and has the backend prepare."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..arguments import wrong_type
from ..errors import UnsupportedError
from ..memory.memory import Memory
from ..uapi import Access
from .arrays import Arrays, Lease
from .backend import Backend, require_user_block
from .jobs import Jobs
from .ordered import Ordered
from .pin import Pin, Side, Span
from .plan import Plan
from .spans import (
    listed,
    pieces,
    refuse_overlap,
    require_on_card,
    require_ratio,
    require_same_length,
    require_usable,
    total_bytes,
)

__all__ = ["Plans"]


class Plans:
    """The plans of a board.

    Parameters
    ----------
    backend : Backend
    jobs : Jobs
    pins : set of Pin
        Those that are open; pins of arrays are added by `pin`.
    pin, unpin : callable
        See `Arrays`.
    require_open : callable
        Raises if the board is closed.
    """

    def __init__(
        self,
        backend: Backend,
        jobs: Jobs,
        pins: set[Pin],
        pin: Callable[[Memory], Pin],
        unpin: Callable[[Pin], None],
        require_open: Callable[[], None],
    ):
        self._require_open = require_open
        self._backend = backend
        self._jobs = jobs
        self._pins = pins
        self._lock = jobs.lock
        self.arrays: Arrays = Arrays(jobs.lock, pin, unpin)
        self._ordered = Ordered(jobs, self.arrays)

    def copy(self, source: Side, destination: Side) -> Plan:
        """See `Board.prepare`."""
        with self._leasing() as leases:
            sources, destinations = self._sides(source, destination, leases)
            require_same_length(sources, destinations)
            refuse_overlap(sources, destinations)
            return self._plan(self._backend.prepare_copy, sources, destinations, leases)

    def process(self, source: Side, destination: Side) -> Plan:
        """See `Board.process`."""
        extension = require_user_block(self._backend)
        if not extension.user_ratio[0]:
            raise UnsupportedError(
                f"cannot process memory: the board's user block {extension.user_block} is a source "
                "and takes no bytes. Use board.frames(...)"
            )
        with self._leasing() as leases:
            sources, destinations = self._sides(source, destination, leases)
            require_ratio(sources, destinations, extension)
            refuse_overlap(sources, destinations)
            return self._plan(self._backend.prepare_process, sources, destinations, leases)

    def write(self, source: Any, card_address: int) -> Plan:
        """See `Board.write`."""
        with self._leasing() as leases:
            span = self._one(source, Access.READ, "write", card_address, leases)
            prepare = self._backend.prepare_write
            return self._plan(lambda here, _: prepare(here[0], card_address), [span], [], leases)

    def read(self, destination: Any, card_address: int) -> Plan:
        """See `Board.read`."""
        with self._leasing() as leases:
            span = self._one(destination, Access.WRITE, "read", card_address, leases)
            prepare = self._backend.prepare_read
            return self._plan(lambda _, there: prepare(there[0], card_address), [], [span], leases)

    def in_order_of(self, stream: Any) -> Callable[[Callable[[], None]], None]:
        """What has a function called when a stream has done its work so far, see `Ordered.after`.

        TypeError if it is no stream; CudaError if there is no CUDA.
        """
        return self._ordered.after(stream)

    def close(self) -> None:
        """Ends what streams have not started, unpins arrays; the lock is held."""
        self._ordered.close()
        self.arrays.close()

    def join(self) -> None:
        """Waits for the thread that serves streams; without the lock."""
        self._ordered.join()

    def span(self, given: Any, needed: Access, leases: list[Lease]) -> Span:
        """The span of a pin, a span or an array; adds the lease of an array to `leases`."""
        if isinstance(given, Pin):
            given = given[:]
        elif not isinstance(given, Span):
            given, lease = self.arrays.lease(given, needed)
            leases.append(lease)
        return require_usable(given, self._pins, needed)

    @contextlib.contextmanager
    def _leasing(self) -> Iterator[list[Lease]]:
        """Holds the board's lock; the leases added to the list end if there is an error."""
        with self._lock:
            self._require_open()
            leases: list[Lease] = []
            try:
                yield leases
            except BaseException:
                for lease in leases:
                    lease.close()
                self.arrays.reap()
                raise

    def _sides(
        self, source: Side, destination: Side, leases: list[Lease]
    ) -> tuple[list[Span], list[Span]]:
        """Both sides as spans."""
        both = (source, Access.READ), (destination, Access.WRITE)
        sources, destinations = (
            [self.span(each, needed, leases) for each in given]
            for given, needed in [(listed(side), needed) for side, needed in both]
        )
        return sources, destinations

    def _one(
        self, memory: Any, needed: Access, call: str, card_address: int, leases: list[Lease]
    ) -> Span:
        """The span of an argument that has to be in one piece, for a card address."""
        try:
            (given,) = listed(memory)
        except (TypeError, ValueError):
            raise wrong_type(
                f"the memory of board.{call}(memory, card_address) is an array, a pin or a span",
                memory,
                "pin[start:stop] is a span",
            ) from None
        span = self.span(given, needed, leases)
        require_on_card(span, card_address, self._backend.info.card_ram_size)
        return span

    def _plan(
        self,
        prepare: Callable[..., Any],
        here: list[Span],
        there: list[Span],
        leases: list[Lease],
    ) -> Plan:
        """A plan of what `prepare` makes of the pieces; card RAM as a side has none."""
        for span in (*here, *there):
            span.pin.require_open()
        nbytes = total_bytes(here or there)
        work = prepare(pieces(here), pieces(there)) if nbytes else None
        info = self._backend.info
        return Plan(self._jobs, self._ordered, work, nbytes, here, there, info, leases)
