# SPDX-License-Identifier: BSD-2-Clause
"""Boards: pinning memory and moving it through the FPGA, the same on every backend."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Sequence
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
from .pin import Pin, Span
from .plan import Plan, PlanCache
from .spans import (
    piece,
    pieces,
    read_only,
    refuse_overlap,
    require_frames,
    require_on_card,
    require_ratio,
    require_ring,
    require_same_length,
    resolved,
    unpinned,
)
from .streaming import Frames
from .transfer import Transfer

__all__ = ["Board"]

#: What a side of a copy can be, apart from a sequence of these.
_ONE = (Pin, Span)
#: What a board may do with memory that is not read-only.
_READ_WRITE = Access.READ | Access.WRITE


class Board:
    """A board. Use it as a context manager, or `close` it.

    Not to be built directly: use `peerdma.open`. Calls from several threads are serialised.
    """

    def __init__(self, backend: Backend):
        self._backend = backend
        self._pins: set[Pin] = set()
        self._plans = PlanCache()
        self._lock = threading.RLock()
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
        """Closes all pins and the board. Closing again does nothing."""
        with self._lock:
            if not self.closed:
                if self._stream is not None:
                    self._stream.close()
                self.closed = True
                self._plans.clear()
                self._backend.close()
                while self._pins:
                    self._pins.pop().forget()

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
        """The registers that a GPU writes as data arrives, see `Gpu.watch`.

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
        self,
        source: Pin | Span | Sequence[Pin | Span],
        destination: Pin | Span | Sequence[Pin | Span],
        *,
        progress: Progress | None = None,
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
        sides = None
        if progress is None and isinstance(source, _ONE) and isinstance(destination, _ONE):
            sides = source, destination
            plan = self._plans.get(sides)
            if plan is not None:
                return self._transfer(plan)
        sources = self._spans(source, Access.READ)
        destinations = self._spans(destination, Access.WRITE)
        nbytes = require_same_length(sources, destinations)
        refuse_overlap(sources, destinations)
        both = pieces(sources), pieces(destinations)
        repeat = self._backend.prepare_copy(*both) if sides and nbytes else None
        if sides is None or repeat is None:
            return self._transfer(
                Plan.of(lambda: self._backend.copy(*both, progress), sources, destinations)
            )
        plan = Plan.of(repeat, sources, destinations)
        transfer = self._transfer(plan)
        with self._lock:
            self._plans.keep(sides, plan)
        return transfer

    def process(
        self,
        source: Pin | Span | Sequence[Pin | Span],
        destination: Pin | Span | Sequence[Pin | Span],
        *,
        progress: Progress | None = None,
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
        sources = self._spans(source, Access.READ)
        destinations = self._spans(destination, Access.WRITE)
        require_ratio(sources, destinations, extension)
        refuse_overlap(sources, destinations)
        both = pieces(sources), pieces(destinations)
        return self._transfer(
            Plan.of(lambda: backend.process(*both, progress), sources, destinations)
        )

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
            Bytes of a frame, from the start of each surface; by default the whole surface.
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
                taken=lambda index: spans[index].pin.memory.flush_writes(),
                closed=closed,
                lock=self._lock,
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
        span = self._one(source, Access.READ, "board.write(memory, card_address)")
        require_on_card(span, card_address, self._backend.info.card_ram_size)
        return self._transfer(
            Plan.of(lambda: self._backend.write(piece(span), card_address), [span], [])
        )

    def read(self, destination: Pin | Span | np.ndarray, card_address: int = 0) -> Transfer:
        """Copies card RAM from byte `card_address` to memory; the rest as for `write`.

        Memory that is read-only, or pinned without `Access.WRITE`, is refused with a PinError.
        """
        if isinstance(destination, np.ndarray):
            with self.pin(destination, access=_READ_WRITE) as pin:
                return self.read(pin, card_address)
        span = self._one(destination, Access.WRITE, "board.read(memory, card_address)")
        require_on_card(span, card_address, self._backend.info.card_ram_size)
        return self._transfer(
            Plan.of(lambda: self._backend.read(piece(span), card_address), [], [span])
        )

    def _frame_of(self, surface: Any, frame_bytes: int | None, undo: contextlib.ExitStack) -> Span:
        """Pins an argument of `frames`, until `undo`; returns where its frames go."""
        start, stop = 0, None
        if isinstance(surface, Pin | Span):
            (span,) = self._spans(surface, Access.WRITE)
            surface, start, stop = span.pin.memory, span.start, span.stop
        pin = undo.enter_context(self.pin(surface, access=_READ_WRITE))
        span = pin[start:stop]
        if frame_bytes is not None and frame_bytes > span.nbytes:
            raise ValueError(
                f"frames of {frame_bytes} bytes do not fit a surface of {span.nbytes} bytes"
            )
        return span if frame_bytes is None else pin[start : start + frame_bytes]

    def _one(self, memory: Any, needed: Access, call: str) -> Span:
        """The span of an argument that has to be a single pin or span."""
        if not isinstance(memory, _ONE):
            raise unpinned(memory, f"the memory of {call} is a pin, a span of it or a numpy array")
        (span,) = self._spans(memory, needed)
        return span

    def _spans(self, given: Pin | Span | Sequence[Pin | Span], needed: Access) -> list[Span]:
        return resolved(given, self._pins, needed)

    def _transfer(self, plan: Plan) -> Transfer:
        with self._lock:
            self._require_idle()
            return plan.run(self._backend.info)

    def _unpin(self, pin: Pin) -> None:
        with self._lock:
            if pin in self._pins:
                self._pins.remove(pin)
                self._plans.clear()
                self._backend.unpin(pin.forget())

    def _require_open(self) -> None:
        if self.closed:
            raise PeerdmaError("the board is closed; open it again")

    def _require_idle(self) -> None:
        self._require_open()
        if self._stream is not None:
            raise PeerdmaError("cannot transfer while a stream is open; close the stream first")
