# SPDX-License-Identifier: BSD-2-Clause
"""Boards: pinning memory and moving it through the FPGA, the same on every backend."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..arguments import integer
from ..deprecated import deprecated
from ..errors import PeerdmaError, PinError, UnsupportedError
from ..memory.mailbox import Mailbox
from ..memory.memory import HostArray, Memory, is_memory
from ..regs import USER, USER_BLOCK_SIZE
from ..uapi import Access
from .backend import Backend, BoardInfo, Filling, Progress, stream_backend
from .job import Job
from .jobs import Jobs
from .pin import Pin, Side, Span
from .plan import Plan
from .spans import (
    frame_in,
    pieces,
    read_only,
    refuse_overlap,
    require_frames,
    require_on_card,
    require_ratio,
    require_ring,
    require_same_length,
    resolved,
    total_bytes,
    unpinned,
)
from .streaming import Frames
from .transfer import Transfer

__all__ = ["Board"]

#: What a board may do with memory that is not read-only.
_READ_WRITE = Access.READ | Access.WRITE


class Board:
    """A board. Use it as a context manager, or `close` it.

    Not to be built directly: use `peerdma.open`. All methods can be called from any thread, also
    while another one waits for a transfer: a `write` and a `read` go on at once.
    """

    def __init__(self, backend: Backend):
        self._backend = backend
        self._pins: set[Pin] = set()
        self._jobs = Jobs(backend, self._require_idle)
        self._lock = self._jobs.lock
        self._stream: Frames | None = None
        self.closed: bool = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pins)} pins"
        return f"<Board {self._backend.info.name}, {state}>"

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels jobs, closes all pins and the board, in seconds. Closing again does nothing."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            if self._stream is not None:
                self._stream.close()
            self._jobs.close()
            self._backend.close()
            self._jobs.forget()
            for pin in self._pins:
                pin.handle = None
                pin.memory.release()
            self._pins.clear()
        self._jobs.join()

    def info(self) -> BoardInfo:
        """What is known about the board."""
        return self._backend.info

    def leds(self, value: int | None = None) -> int:
        """Sets the LEDs, a bit each, unless `value` is None; returns what is lit."""
        mask = USER["led"].writable
        if value is not None and not 0 <= integer(value, "the LEDs' value") <= mask:
            raise ValueError(f"the board's LEDs are the bits of a number 0 to {mask}, not {value}")
        with self._lock:
            self._require_open()
            return self._backend.leds(value)

    def mailbox(self) -> Mailbox:
        """The registers that a GPU writes as data arrives, see `Gpu.map_mailbox`.

        Raises
        ------
        UnsupportedError
            If the board has no mailbox, or does not offer it as a page.
        """
        with self._lock:
            self._require_open()
            return Mailbox(self._backend.mailbox())

    def pin(self, memory: Memory | np.ndarray, *, access: Access | None = None) -> Pin:
        """Pins memory for this board's DMA.

        Parameters
        ----------
        memory : Surface or numpy.ndarray
            GPU memory, or a C-contiguous array in host memory. It stays alive at least as long as
            the pin.
        access : Access, optional
            What the board may do: READ from it, as the source of a transfer, WRITE to it, as the
            destination, or both (READ | WRITE). By default all that the memory allows: a read-only
            array can only be a source. Transfers that need more are refused.

        Raises
        ------
        PinError
            If the memory is not of a kind that can be pinned, is closed, or is read-only and
            `access` has WRITE.
        """
        if isinstance(memory, np.ndarray):
            memory = HostArray(memory)
        if not is_memory(memory):
            raise PinError(
                f"cannot pin a {type(memory).__name__}; pin a surface of a GPU or a numpy array. "
                "gpu.register(...) makes surfaces of other libraries' arrays"
            )
        if access is None:
            access = Access.READ if memory.readonly else _READ_WRITE
        elif memory.readonly and Access.WRITE in access:
            raise read_only("pin", memory.nbytes, memory.address)
        with self._lock:
            self._require_open()
            memory.acquire()
            try:
                handle = self._backend.pin(memory, access)
                pin = Pin(memory, handle, self._backend.path(handle), access, self._unpin)
            except BaseException:
                memory.release()
                raise
            self._pins.add(pin)
            return pin

    def copy(
        self, source: Side, destination: Side, *, progress: Progress | None = None
    ) -> Transfer:
        """Copies memory to memory through the board.

        Parameters
        ----------
        source, destination : Pin, Span (``pin[start:stop]``), or a sequence of them
            Any byte ranges; a sequence is taken as one memory, piece after piece. Both sides
            have the same length, but may be divided differently.
        progress : callable, optional
            Called with (bytes done, bytes in all) during the copy.

        Raises
        ------
        TransferError
            If lengths differ or source and destination overlap (nothing has been transferred then),
            or the transfer failed (the content of the destination is then undefined).
        PinError
            If something is not pinned on this board, or not with the access that the transfer
            needs, as a read-only destination (nothing has been transferred then).
        BoardLost, Timeout
            If the board went away or did not finish; it accesses no memory any more.
        """
        return self.prepare(source, destination).run(progress=progress)

    def submit(self, source: Side, destination: Side) -> Job:
        """Starts a copy and returns at once; else as `copy`, which is ``submit().result()``.

        What is wrong with the arguments is raised here, what goes wrong later by `Job.result`.
        """
        return self.prepare(source, destination).submit()

    def submit_batch(self, pairs: Iterable[tuple[Side, Side]]) -> list[Job]:
        """Starts a copy for each pair of source and destination, or none if one of them is wrong.

        >>> jobs = board.submit_batch([(s[:4096], d[:4096]), (t, e)])
        >>> transfers = [job.result() for job in jobs]
        """
        return self._jobs.submit(*(self.prepare(*sides) for sides in pairs))

    def prepare(self, source: Side, destination: Side) -> Plan:
        """Checks and prepares a copy, to be made any number of times; arguments as for `copy`.

        >>> plan = board.prepare(s, d)
        >>> plan.run()  # as board.copy(s, d), but the work of checking it is done
        >>> job = plan.submit()
        """
        sources = resolved(source, self._pins, Access.READ)
        destinations = resolved(destination, self._pins, Access.WRITE)
        require_same_length(sources, destinations)
        refuse_overlap(sources, destinations)
        return self._plan(self._backend.prepare_copy, sources, destinations)

    def process(
        self, source: Side, destination: Side, *, progress: Progress | None = None
    ) -> Transfer:
        """Transfers memory through the board's user block to memory.

        The length of the destination follows from `Extension.user_ratio`. All else is as for
        `copy`, which never changes a byte; `Transfer.bytes` counts the source.

        Raises
        ------
        UnsupportedError
            If the board has no user block that takes bytes, or its driver does not support it.
        """
        backend, extension = stream_backend(self._backend)
        if not extension.user_ratio[0]:
            raise UnsupportedError(
                f"cannot process memory: the board's user block {extension.user_block} is a source "
                "and takes no bytes. Use board.frames(...)"
            )
        sources = resolved(source, self._pins, Access.READ)
        destinations = resolved(destination, self._pins, Access.WRITE)
        require_ratio(sources, destinations, extension)
        refuse_overlap(sources, destinations)
        return self._plan(backend.prepare_process, sources, destinations).run(progress=progress)

    def stream(self, surfaces: Sequence[Any], **options: Any) -> Frames:
        """Former name of `frames`."""
        deprecated("board.stream(...)", "board.frames(...)")
        return self.frames(surfaces, **options)

    def frames(
        self,
        surfaces: Sequence[Any],
        *,
        frame_bytes: int | None = None,
        overwrite: bool = False,
        timeout: float | None = None,
    ) -> Frames:
        """Fills surfaces with frames of a source on the board, in a ring, until it is closed.

        No other transfer can be made meanwhile.

        >>> with board.frames(surfaces, overwrite=True) as frames:
        ...     for surface in frames:
        ...         work_on(surface, frames.number)

        Parameters
        ----------
        surfaces : sequence of Surface, numpy.ndarray, Pin or Span
            Where frames go, in this order; the stream yields them. It pins them itself.
        frame_bytes : int, optional
            Bytes of a frame, from the start of each surface; by default the whole surface. The
            source has to make frames of this size.
        overwrite : bool
            If true, the board never waits and overwrites the oldest surface; the stream yields the
            newest frame and counts those in between as dropped. Else the board waits for surfaces.
        timeout : float, optional
            Seconds to wait for a frame.

        Raises
        ------
        UnsupportedError
            If the board has no source, or its driver does not support it.
        PinError
            If a surface cannot be pinned for the board to write, such as a read-only array.
        """
        backend, extension = stream_backend(self._backend)
        require_ring(surfaces, overwrite, extension)
        with self._lock, contextlib.ExitStack() as undo:
            self._require_idle()
            self._jobs.settle()
            self._require_idle()
            spans = [self._frame_of(each, frame_bytes, undo) for each in surfaces]
            require_frames(spans)
            fresh = itertools.chain([True], itertools.repeat(False))

            def fill(indices: Sequence[int]) -> Filling:
                return backend.fill(
                    pieces([spans[index] for index in indices]),
                    cyclic=overwrite,
                    fresh=next(fresh),
                    timeout=timeout,
                )

            def closed() -> None:
                self._stream = None
                pins.close()

            stream = self._stream = Frames(
                surfaces,
                fill,
                overwrite=overwrite,
                crc=lambda index: spans[index].crc(),
                taken=lambda index: spans[index].pin.memory.flush_writes(),
                closed=closed,
                jobs=self._jobs,
            )
            pins = undo.pop_all()
            return stream

    def user_register(self, offset: int, value: int | None = None) -> int:
        """Writes `value`, if given, to the 32-bit register at byte `offset`; returns its value.

        Raises
        ------
        UnsupportedError
            If the board has no user block, or its driver does not support it.
        """
        backend, _ = stream_backend(self._backend)
        if integer(offset, "a register's offset") % 4 or not 0 <= offset < USER_BLOCK_SIZE:
            raise ValueError(
                f"a user block's registers are at multiples of 4 below {USER_BLOCK_SIZE:#x}, "
                f"not at {offset:#x}"
            )
        if value is not None:
            value = integer(value, "a register's value")
        with self._lock:
            self._require_open()
            return backend.user_register(offset, value)

    def write(self, source: Pin | Span | np.ndarray, card_address: int = 0) -> Transfer:
        """Copies memory to card RAM at byte `card_address`; pins an array for as long as it takes.

        Raises
        ------
        TransferError
            If it does not fit card RAM (nothing has been transferred then), or failed.
        """
        if isinstance(source, np.ndarray):
            with self.pin(source) as pin:
                return self.write(pin, card_address)
        span = self._one(source, Access.READ, "write", card_address)
        prepare = self._backend.prepare_write
        return self._plan(lambda here, _: prepare(here[0], card_address), [span], []).run()

    def read(self, destination: Pin | Span | np.ndarray, card_address: int = 0) -> Transfer:
        """Copies card RAM from byte `card_address` to memory; the rest as for `write`.

        Memory that is read-only, or pinned without `Access.WRITE`, is refused with a PinError.
        """
        if isinstance(destination, np.ndarray):
            with self.pin(destination, access=_READ_WRITE) as pin:
                return self.read(pin, card_address)
        span = self._one(destination, Access.WRITE, "read", card_address)
        prepare = self._backend.prepare_read
        return self._plan(lambda _, there: prepare(there[0], card_address), [], [span]).run()

    def _frame_of(self, surface: Any, frame_bytes: int | None, undo: contextlib.ExitStack) -> Span:
        """Pins an argument of `frames`, until `undo`; returns where its frames go."""
        start, stop = 0, None
        if isinstance(surface, Pin | Span):
            (span,) = resolved(surface, self._pins, Access.WRITE)
            surface, start, stop = span.pin.memory, span.start, span.stop
        pin = undo.enter_context(self.pin(surface, access=_READ_WRITE))
        return frame_in(pin[start:stop], frame_bytes)

    def _one(self, memory: Any, needed: Access, call: str, card_address: int) -> Span:
        """The span of an argument that has to be a single pin or span, for a card address."""
        if not isinstance(memory, (Pin, Span)):
            call = f"board.{call}(memory, card_address)"
            raise unpinned(memory, f"the memory of {call} is a pin, a span of it or a numpy array")
        (span,) = resolved(memory, self._pins, needed)
        require_on_card(span, card_address, self._backend.info.card_ram_size)
        return span

    def _plan(self, prepare: Callable[..., Any], here: list[Span], there: list[Span]) -> Plan:
        """A plan of what `prepare` makes of the pieces; card RAM as a side has none."""
        with self._lock:
            self._require_open()
            for span in (*here, *there):
                span.pin.require_open()
            nbytes = total_bytes(here or there)
            work = prepare(pieces(here), pieces(there)) if nbytes else None
            return Plan(self._jobs, work, nbytes, here, there, self._backend.info)

    def _unpin(self, pin: Pin) -> None:
        with self._lock:
            if pin not in self._pins:
                return
            handle, pin.handle = pin.handle, None  # no job can start with it from here on
            try:
                self._jobs.settle(pin)
            except BaseException:
                pin.handle = handle
                raise
            if pin in self._pins:
                self._pins.remove(pin)
                pin.memory.release()
                self._backend.unpin(handle)

    def _require_open(self) -> None:
        if self.closed:
            raise PeerdmaError("the board is closed; open it again")

    def _require_idle(self) -> None:
        if self.closed or self._stream is not None:
            self._require_open()
            raise PeerdmaError("cannot transfer while a stream is open; close the stream first")
