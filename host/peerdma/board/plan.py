# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that have been checked and are ready to run, and what makes them.

A `Planner` checks what transfers are given, pins arrays, and has the backend prepare.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..arguments import integer, wrong_type
from ..errors import PeerdmaError, PinError, TransferError, UnsupportedError
from ..memory.external import is_array
from ..memory.memory import DataPath, is_memory
from ..process import OneProcess
from ..regs import FRAME_RECORD, PASS_THROUGH, Capability
from ..regs import STREAM_WINDOW as USER_STREAM
from ..uapi import Access
from .arrays import Arrays, Lease
from .backend import (
    Backend,
    BoardInfo,
    Extension,
    Moved,
    Piece,
    Prepared,
    Progress,
    require_user_block,
)
from .job import Job
from .job_runner import JobRunner
from .pin import READ_WRITE, Pin, PinTable, Side, Span, read_only
from .transfer import Paths, Transfer

__all__ = ["USER_STREAM", "Plan", "Planner", "Streams", "independent", "pieces"]

_NOTHING = Moved(0, None)


class Streams(Protocol):
    """What starts plans in the order of streams; `peerdma.board.ordered.Ordered` is that."""

    def submit(self, plan: Plan, stream: Any) -> Job:
        """See `Plan.submit`."""
        ...


class Plan(OneProcess):
    """A transfer that was checked and prepared once, to be made any number of times.

    Not to be built directly: use `Board.prepare`, `Board.prepare_write`, `Board.prepare_read` or
    `Board.prepare_receive`. It can be run while its pins are open, and does not keep them open.
    Arrays it keeps, and keeps pinned. Several jobs of it can be in progress.

    Attributes
    ----------
    nbytes : int
        Payload; a copy counts each byte once. Of a plan that receives, the longest frame that fits.
    path : Paths
    pins : tuple of Pin
        Those of both sides, and of the record.
    card_address : int
        Of a side that is the card, or `USER_STREAM`; not of a copy.
    record : Span or None
        Where the frame's record goes, of a plan that receives.
    """

    def __init__(
        self,
        jobs: JobRunner,
        ordered: Streams,
        prepared: Prepared | None,
        sources: Sequence[Span],
        destinations: Sequence[Span],
        info: BoardInfo,
        leases: Sequence[Lease],
        card_address: int,
        record: Span | None = None,
    ):
        self._jobs = jobs
        self._ordered = ordered
        self.leases = leases
        self._produced = [lease for lease in leases if lease.produced] if leases else ()
        self.prepared = prepared
        self.sources: Sequence[Span] = sources
        self.destinations: Sequence[Span] = destinations
        self.card_address: int = card_address
        self.record: Span | None = record
        self.nbytes: int = _total_bytes(sources or destinations)
        self.path: Paths = Paths(_longest_path(sources), _longest_path(destinations))
        #: all that the board writes
        self.written: Sequence[Span] = destinations if record is None else (*destinations, record)
        self.pins: tuple[Pin, ...] = tuple(
            dict.fromkeys([span.pin for span in (*sources, *self.written)])
        )
        origins = [each.origin for each in (*leases, *self.pins)]
        self._origins = tuple(dict.fromkeys(filter(None, origins)))
        memories = [span.pin.memory for span in self.written]
        self._flushed = {id(memory): memory for memory in memories if memory.on_gpu}.values()
        self._clock = info.extension.clock_khz * 1e3 if info.extension else 0.0
        self._simulated = info.simulated

    def __repr__(self) -> str:
        return f"<Plan of {self.nbytes} bytes, {self.path}>"

    def submit(self, *, stream: Any = None) -> Job:
        """Starts the transfer and returns at once; see `Board.submit`.

        With a CUDA `stream`, it starts when the stream has come to it, see `Board.copy`.

        Raises
        ------
        PinError
            If one of its pins was closed, or one of its arrays has moved.
        UnsupportedError
            If the plan receives: only launch queues start such plans.
        """
        if self.record is not None:
            raise _only_queues_receive()
        if stream is not None:
            return self._ordered.submit(self, stream)
        self.order()
        job = Job(self._jobs, self)
        self._jobs.submit(job)
        return job

    def run(self, *, progress: Progress | None = None) -> Transfer:
        """Makes the transfer and waits for its end; see `submit` and `Board.copy`."""
        if self.record is not None:
            raise _only_queues_receive()
        if self._produced:
            self.order()
        return self._jobs.run(self, progress)

    def order(self) -> None:
        """Waits for the work that other libraries have queued on the plan's arrays."""
        self._jobs.lock.require_own()
        try:
            for lease in self._produced:
                lease.order()
        except PeerdmaError:
            # Of an array whose memory is gone, its library may say what makes no sense.
            self.require_unmoved()
            raise

    def require_unmoved(self) -> None:
        """PinError if one of its arrays is not where it was when it was pinned."""
        for origin in self._origins:
            origin.require_unmoved()

    def finish(self, moved: Moved | None, began: float) -> Transfer:
        """Flushes what was written; returns the report on a transfer that began at that time."""
        if moved is not None:
            for memory in self._flushed:
                memory.flush_writes()
        wall = time.perf_counter() - began
        cycles, limit, through, elapsed = moved or _NOTHING
        if elapsed is None:
            elapsed = cycles
        seconds = elapsed / self._clock if self._clock else wall
        return Transfer(
            self.nbytes, cycles, seconds, wall, limit, self.path, through, self._simulated
        )


class Planner:
    """The plans of a board.

    Parameters
    ----------
    backend : Backend
    jobs : JobRunner
    ordered : Streams
    arrays : Arrays
    pins : PinTable
    """

    def __init__(
        self,
        backend: Backend,
        jobs: JobRunner,
        ordered: Streams,
        arrays: Arrays,
        pins: PinTable,
    ):
        self._backend = backend
        self._jobs = jobs
        self._pins = pins
        self._lock = jobs.lock
        self._arrays = arrays
        self._ordered = ordered

    def copy(self, source: Side, destination: Side) -> Plan:
        """See `Board.prepare`."""
        return self._plan(_listed(source), _listed(destination), self._copy)

    def _copy(self, sources: list[Span], destinations: list[Span]) -> Prepared | None:
        """What the backend prepares for a copy; None if there are no bytes."""
        nbytes = _require_same_length(sources, destinations)
        _refuse_overlap(sources, destinations)
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
            nbytes = _require_ratio(sources, destinations, extension)
            _refuse_overlap(sources, destinations)
            if not nbytes:
                return None
            return self._backend.prepare_process(pieces(sources), pieces(destinations))

        return self._plan(_listed(source), _listed(destination), prepare)

    def write(self, source: object, card_address: int) -> Plan:
        """See `Board.prepare_write`."""

        def prepare(here: list[Span], _: list[Span]) -> Prepared | None:
            piece = self._on_card(here, card_address, "write")
            return self._backend.prepare_write(piece, card_address) if here[0].nbytes else None

        source = _single(source, "write(memory, card_address)")
        return self._plan(source, [], prepare, card_address)

    def read(self, destination: object, card_address: int) -> Plan:
        """See `Board.prepare_read`."""

        def prepare(_: list[Span], there: list[Span]) -> Prepared | None:
            piece = self._on_card(there, card_address, "read")
            return self._backend.prepare_read(piece, card_address) if there[0].nbytes else None

        destination = _single(destination, "read(memory, card_address)")
        return self._plan([], destination, prepare, card_address)

    def receive(self, destination: Side, record: object) -> Plan:
        """See `Board.prepare_receive`."""
        _require_receives(self._backend)

        def prepare(_: list[Span], there: list[Span]) -> None:
            *frame, last = there
            _require_record(last)
            _refuse_overlap([last], frame, "a frame and its record")

        record = _single(record, "prepare_receive(array, record)", "record")
        return self._plan([], [*_listed(destination), *record], prepare, USER_STREAM, records=True)

    def span(self, given: object, needed: Access, leases: list[Lease]) -> Span:
        """The span of a pin, a span or an array; adds the lease of an array to `leases`."""
        if isinstance(given, Pin):
            given = Span(given, 0, given.nbytes)
        elif not isinstance(given, Span):
            given, lease = self._arrays.lease(given, needed)
            leases.append(lease)
        return _require_usable(given, self._pins, needed)

    def _plan(
        self,
        source: list[object],
        destination: list[object],
        prepare: Callable[[list[Span], list[Span]], Prepared | None],
        card_address: int = 0,
        *,
        records: bool = False,
    ) -> Plan:
        """A plan of what `prepare` makes of both sides; the card as a side is empty.

        With `records`, the last piece of the destination is for a frame's record.
        """
        with self._lock:
            if self._pins.closed:
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
                        if each.pin.handle is None:
                            each.pin.require_open()
                prepared = prepare(here, there)
                record = there.pop() if records else None
                return Plan(
                    self._jobs,
                    self._ordered,
                    prepared,
                    here,
                    there,
                    self._backend.info,
                    leases,
                    card_address,
                    record,
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

    def _on_card(self, spans: list[Span], card_address: int, call: str) -> Piece:
        """The piece of a transfer to or from the card; TransferError if it does not fit that."""
        (span,) = spans
        card_address = integer(card_address, "a card address")
        if card_address == USER_STREAM:
            _require_own_stream(require_user_block(self._backend), call)
        else:
            _require_on_card(span, card_address, self._backend.info.card_ram_size)
        return Piece(span.pin.held, span.start, span.stop)


def _require_usable(span: Span, table: PinTable, needed: Access) -> Span:
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


def _single(memory: object, call: str, name: str = "memory") -> list[object]:
    """An argument that has to be in one piece, such as `name` of a `call`; as `_listed`."""
    try:
        (given,) = _listed(memory)
    except (TypeError, ValueError):
        raise wrong_type(
            f"the {name} of board.{call} is an array, a pin or a span",
            memory,
            "pin[start:stop] is a span",
        ) from None
    return [given]


def _listed(given: object) -> list[object]:
    """What one side of a transfer consists of: pins, spans and arrays; TypeError for all else."""
    if isinstance(given, (Pin, Span, np.ndarray)) or _is_memory(given):
        return [given]
    pieces: list[object] = [given]
    if isinstance(given, Sequence) and not isinstance(given, str):
        pieces = list(given)
    for each in pieces:
        if not isinstance(each, (Pin, Span)) and not _is_memory(each):
            raise wrong_type(
                "a transfer takes an array, a pin, a span of it, or a sequence of these",
                each,
                "pin[start:stop] is a span",
            )
    return pieces


def _is_memory(given: object) -> bool:
    return is_memory(given) or is_array(given)


def _require_on_card(span: Span, address: int, size: int) -> None:
    """TransferError unless so many bytes at this address are in card RAM of `size` bytes."""
    if address < 0 or address + span.nbytes > size:
        raise TransferError(
            f"{span.nbytes} bytes at card address {address:#x} are not all inside card RAM, which "
            f"has {size} bytes from address 0. Transfer less at a time",
            address=address,
        )


def _require_own_stream(extension: Extension, call: str) -> None:
    """UnsupportedError if the user stream is not for transfers of one direction, `call`."""
    block = extension.user_block
    if block == PASS_THROUGH:
        raise UnsupportedError(
            f"cannot {call} the user stream: copies of this board go through it, as its user block "
            f"is {block}, and would be mixed up with that. Build the gateware with another --user"
        )
    taken, made = extension.user_ratio
    if not (taken if call == "write" else made):
        verb = "takes" if call == "write" else "makes"
        raise UnsupportedError(
            f"cannot {call} the user stream: the board's user block {block} {verb} no bytes"
        )


def _only_queues_receive() -> UnsupportedError:
    return UnsupportedError(
        "only a launch queue receives frames: queue = board.queue([plan]), then queue.submit(0). "
        "Without a queue, board.frames(...) does"
    )


def _require_receives(backend: Backend) -> None:
    """UnsupportedError unless launch queues of the board and its driver take frames."""
    extension = require_user_block(backend)
    if Capability.FRAME_RECORDS not in extension.capabilities:
        raise UnsupportedError(
            f"cannot receive frames: the board's user block {extension.user_block} makes none that "
            "have records. Build the gateware with one that does, such as --user pattern"
        )
    if Capability.RECEIVE not in extension.capabilities:
        raise UnsupportedError(
            "cannot receive frames by a launch queue: this board's gateware has no launch queues, "
            "or is older than frames for them. Build it with launch_queues=2 (--launch-queues 2)"
        )
    if not backend.info.receives:
        raise UnsupportedError(
            "cannot receive frames by a launch queue: the board's driver does not support that"
        )


def _require_record(span: Span) -> None:
    """TransferError unless a span is the place of a frame's record."""
    size = FRAME_RECORD.itemsize
    if span.nbytes != size or span.address % size:
        raise TransferError(
            f"a frame's record has {size} bytes, at a multiple of {size}: these are {span.nbytes} "
            f"bytes at {span.address:#x}. A surface of {size} bytes is such a place",
            address=span.address,
        )


def _require_same_length(sources: Sequence[Span], destinations: Sequence[Span]) -> int:
    """The bytes of either side of a copy; TransferError unless both have the same number."""
    nbytes, room = _total_bytes(sources), _total_bytes(destinations)
    if nbytes != room:
        raise TransferError(
            f"cannot copy {nbytes} bytes into {room}; give both sides the same length, for example "
            "by pin[:n]"
        )
    return nbytes


def _require_ratio(
    sources: Sequence[Span], destinations: Sequence[Span], extension: Extension
) -> int:
    """The bytes of the sources; TransferError unless the user block makes of them what fits."""
    nbytes, room = _total_bytes(sources), _total_bytes(destinations)
    taken, made = extension.user_ratio
    if nbytes % taken or room != nbytes // taken * made:
        raise TransferError(
            f"cannot process {nbytes} bytes into {room}: the user block {extension.user_block} "
            f"makes {made} bytes of each {taken}"
        )
    return nbytes


def _total_bytes(spans: Sequence[Span]) -> int:
    """Bytes of all of them."""
    nbytes = 0
    for span in spans:
        nbytes += span.stop - span.start
    return nbytes


def pieces(spans: Sequence[Span]) -> list[Piece]:
    """Spans as backends take them."""
    return [Piece(span.pin.held, span.start, span.stop) for span in spans]


def _longest_path(spans: Sequence[Span]) -> DataPath | None:
    """The longest path (last in `DataPath`) that any bytes take; None if there are no bytes."""
    if len(spans) == 1:
        span = spans[0]
        return span.pin.path if span.stop > span.start else None
    paths = {span.pin.path for span in spans if span.stop > span.start}
    return max(paths, key=list(DataPath).index, default=None)


def independent(plans: Sequence[Plan]) -> list[bool]:
    """Of each plan, whether it is a copy that reads nothing that another of the copies writes.

    Nor writes what another one reads. That is not known, and so not said, of memory that has no
    address in this process: its bytes may have one besides.
    """
    copies = [plan for plan in plans if plan.sources and plan.destinations]
    sources = [span for plan in copies for span in plan.sources]
    destinations = [span for plan in copies for span in plan.destinations]
    return [
        plan in copies
        and not any(span.address >> 64 for span in (*plan.sources, *plan.destinations))
        and _shared(plan.sources, destinations) is None
        and _shared(sources, plan.destinations) is None
        for plan in plans
    ]


def _refuse_overlap(
    sources: Sequence[Span], destinations: Sequence[Span], sides: str = "source and destination"
) -> None:
    """TransferError if a source and a destination, or what else `sides` are, share a byte."""
    if len(sources) == len(destinations) == 1:
        # Almost always: there is nothing to sort.
        source, target = sources[0], destinations[0]
        here, there = source.pin.memory.address, target.pin.memory.address
        if here + source.stop <= there + target.start or there + target.stop <= here + source.start:
            return
    address = _shared(sources, destinations)
    if address is not None:
        raise TransferError(
            f"{sides} overlap at {address:#x}; nothing was transferred. Use separate memory",
            address=address,
        )


def _shared(sources: Sequence[Span], destinations: Sequence[Span]) -> int | None:
    """The address of the first byte that a source and a destination share; None if none do."""
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
            return start
        reach[side] = max(reach[side], stop)
    return None
