# SPDX-License-Identifier: BSD-2-Clause
"""What transfers of a board stand on: its lifetime, its lock and its pins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..arguments import integer
from ..errors import PeerdmaError, PinError
from ..memory.mailbox import Mailbox
from ..memory.memory import HostArray, Memory, is_memory
from ..regs import USER
from ..uapi import Access
from .backend import Backend, BoardInfo, Moved
from .pin import Pin, Span
from .spans import longest_path, pieces, total_bytes
from .streaming import Stream
from .transfer import Paths, Transfer

__all__ = ["READ_WRITE", "BoardBase", "Plan", "plan_of"]

_NOTHING = Moved(0, None)
#: Copies that are remembered, at most.
_PLANS = 64
#: What a board may do with memory that is not read-only.
READ_WRITE = Access.READ | Access.WRITE


class Plan(NamedTuple):
    """A transfer that has been checked."""

    #: does it; not called if there is nothing to move
    move: Callable[[], Moved]
    nbytes: int
    #: to be called when it is done
    written: list[Callable[[], None]]
    paths: Paths


def plan_of(
    move: Callable[[], Moved], sources: Sequence[Span], destinations: Sequence[Span]
) -> Plan:
    """The plan for moving these."""
    memories = {id(span.pin.memory): span.pin.memory for span in destinations}
    return Plan(
        move,
        total_bytes(sources or destinations),
        [memory.written for memory in memories.values()],
        Paths(longest_path(sources), longest_path(destinations)),
    )


class BoardBase:
    """See `peerdma.Board`."""

    def __init__(self, backend: Backend):
        self._backend = backend
        self._pins: set[Pin] = set()
        #: copies that were made, by their sides; none is of a pin that is closed
        self._plans: dict[tuple[Pin | Span, Pin | Span], Plan] = {}
        self._lock = threading.RLock()
        self._stream: Stream | None = None
        self.closed = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pins)} pins"
        return f"<Board {self._backend.info.name}, {state}>"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Closes all pins and lets go of the board. Closing again does nothing."""
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
                f"asked to pin a {type(memory).__name__}; pin a surface of a GPU or a numpy array. "
                "gpu.register(...) makes surfaces of other libraries' arrays"
            )
        if access is None:
            access = Access.READ if memory.readonly else READ_WRITE
        elif memory.readonly and Access.WRITE in access:
            raise _read_only("pin", memory.nbytes, memory.address)
        with self._lock:
            self._require_open()
            memory.hold()
            try:
                handle = self._backend.pin(memory, access)
                pin = Pin(memory, handle, self._backend.path(handle), access, self._unpin)
            except BaseException:
                memory.drop()
                raise
            self._pins.add(pin)
            return pin

    def _transfer(self, plan: Plan) -> Transfer:
        with self._lock:
            self._require_idle()
            began = time.perf_counter()
            moved = plan.move() if plan.nbytes else _NOTHING
            for written in plan.written:
                written()
            wall = time.perf_counter() - began
        info = self._backend.info
        cycles, limit, through, elapsed = moved
        if elapsed is None:
            elapsed = cycles
        clock = info.extension.clock_khz if info.extension else 0
        seconds = elapsed / (clock * 1e3) if clock else wall
        return Transfer(
            plan.nbytes, cycles, seconds, wall, limit, plan.paths, through, info.simulated
        )

    def _keep(self, sides: tuple[Pin | Span, Pin | Span], plan: Plan) -> None:
        """Remembers what a copy comes to, for as long as no pin is closed."""
        with self._lock:
            if len(self._plans) == _PLANS:
                self._plans.clear()
            if not any(self._pin_of(side).closed for side in sides):
                self._plans[sides] = plan

    @staticmethod
    def _pin_of(side: Pin | Span) -> Pin:
        return side.pin if isinstance(side, Span) else side

    def _unpin(self, pin: Pin) -> None:
        with self._lock:
            if pin in self._pins:
                self._pins.remove(pin)
                self._plans.clear()
                self._backend.unpin(pin.forget())

    def _require_open(self) -> None:
        if self.closed:
            raise PeerdmaError("asked to use a board that is closed; open it again")

    def _require_idle(self) -> None:
        if self.closed:
            self._require_open()
        if self._stream is not None:
            raise PeerdmaError(
                "asked for a transfer while a stream is open; close the stream first"
            )

    def _spans(self, pinned: Pin | Span | Sequence[Pin | Span], needed: Access) -> list[Span]:
        """The spans meant, each pinned here for the access that the transfer needs."""
        spans = []
        for each in pieces(pinned):
            span = each[:] if isinstance(each, Pin) else each
            if span.pin not in self._pins:
                state = "closed" if span.pin.closed else "another board's"
                raise PinError(
                    f"asked to transfer {span.nbytes} bytes at {span.address:#x}, but their pin is "
                    f"{state}; pin the memory on this board with board.pin(...)"
                )
            if needed not in span.pin.access:
                raise _misused(span, needed)
            spans.append(span)
        return spans


def _misused(span: Span, needed: Access) -> PinError:
    """The error for a transfer that needs an access which its pin does not give."""
    if needed is Access.WRITE and span.pin.memory.readonly:
        return _read_only("transfer", span.nbytes, span.address)
    side = "source" if needed is Access.READ else "destination"
    return PinError(
        f"asked for {span.nbytes} bytes at {span.address:#x} as the {side} of a transfer, but they "
        f"are pinned without Access.{needed.name}; nothing was moved. Pin them with "
        "access=Access.READ | Access.WRITE, or without access"
    )


def _read_only(asked: str, nbytes: int, address: int) -> PinError:
    """The error for a destination that nothing can be written to."""
    return PinError(
        f"asked to {asked} {nbytes} bytes at {address:#x} as a destination, but that memory is "
        "read-only; nothing was moved. Make a writeable array the destination, for example "
        "target = numpy.empty_like(array), and use target afterwards: the read-only one never "
        "changes"
    )
