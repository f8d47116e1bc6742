# SPDX-License-Identifier: BSD-2-Clause
"""Boards: pinning memory and moving it through the FPGA, the same on every backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from .backend import Backend, BoardInfo, Moved, Piece, Progress
from .errors import PeerdmaError, PinError, TransferError
from .mailbox import Mailbox
from .memory import HostArray, Memory, Path
from .pin import Pin, Span
from .regs import USER
from .transfer import Paths, Transfer

__all__ = ["Board"]


class Board:
    """A board. Use it as a context manager, or `close` it.

    Not to be built directly: use `peerdma.open`. Calls from several threads are done one after
    the other.
    """

    def __init__(self, backend: Backend):
        self._backend = backend
        self._pins: set[Pin] = set()
        self._lock = threading.RLock()
        self.closed = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pins)} pins"
        return f"<Board {self._backend.info.name}, {state}>"

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Closes all pins and lets go of the board. Closing again does nothing."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self._backend.close()
                while self._pins:
                    self._pins.pop().forget()

    def info(self) -> BoardInfo:
        """What is known about the board."""
        return self._backend.info

    def leds(self, value: int | None = None) -> int:
        """Sets the LEDs, a bit each, unless `value` is None; returns what is lit."""
        mask = USER["led"].writable
        if value is not None and not 0 <= value <= mask:
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

    def pin(self, memory: Memory | np.ndarray) -> Pin:
        """Pins memory for this board's DMA.

        Parameters
        ----------
        memory : Surface or numpy.ndarray
            GPU memory, or a C-contiguous array in host memory (a read-only one as source only).
            It stays alive at least as long as the pin.

        Raises
        ------
        PinError
            If the memory is not of a kind that can be pinned, or is closed.
        """
        if isinstance(memory, np.ndarray):
            memory = HostArray(memory)
        if not all(hasattr(memory, name) for name in ("extents", "hold", "drop")):
            raise PinError(
                f"asked to pin a {type(memory).__name__}; pin a surface of a GPU or a numpy array. "
                "gpu.register(...) makes surfaces of other libraries' arrays"
            )
        with self._lock:
            self._require_open()
            memory.hold()
            try:
                handle = self._backend.pin(memory)
                pin = Pin(memory, handle, self._backend.path(handle), self._unpin)
            except BaseException:
                memory.drop()
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
            Called with (bytes done, bytes in all) as it goes.

        Raises
        ------
        TransferError
            If lengths differ or source and destination overlap (nothing has been moved then),
            or the transfer failed (what the destination holds is then unknown).
        PinError
            If something is not pinned on this board.
        BoardLost, Timeout
            If the board went away or did not finish; nothing moves any more.
        """
        sources, destinations = self._spans(source), self._spans(destination)
        sizes = _nbytes(sources), _nbytes(destinations)
        if sizes[0] != sizes[1]:
            raise TransferError(
                f"asked to copy {sizes[0]} bytes into {sizes[1]}; give both sides the same length, "
                "for example by pin[:n]"
            )
        _refuse_overlap(sources, destinations)
        return self._transfer(
            lambda: self._backend.copy(
                [_piece(span) for span in sources],
                [_piece(span) for span in destinations],
                progress,
            ),
            sources,
            destinations,
        )

    def write(self, source: Pin | Span | np.ndarray, card_address: int = 0) -> Transfer:
        """Copies memory to card RAM at byte `card_address`; an array is pinned for the time.

        Raises
        ------
        TransferError
            If it does not fit card RAM (nothing has been moved then), or failed.
        """
        if isinstance(source, np.ndarray):
            with self.pin(source) as pin:
                return self.write(pin, card_address)
        (span,) = self._spans(source)
        self._require_on_card(span, card_address)
        return self._transfer(lambda: self._backend.write(_piece(span), card_address), [span], [])

    def read(self, destination: Pin | Span | np.ndarray, card_address: int = 0) -> Transfer:
        """Copies card RAM from byte `card_address` to memory; the rest as for `write`."""
        if isinstance(destination, np.ndarray):
            with self.pin(destination) as pin:
                return self.read(pin, card_address)
        (span,) = self._spans(destination)
        self._require_on_card(span, card_address)
        return self._transfer(lambda: self._backend.read(_piece(span), card_address), [], [span])

    def _transfer(
        self, start: Callable[[], Moved], sources: list[Span], destinations: list[Span]
    ) -> Transfer:
        nbytes = _nbytes(sources or destinations)
        with self._lock:
            self._require_open()
            began = time.perf_counter()
            moved = start() if nbytes else Moved(0, None)
            for memory in {id(span.pin.memory): span.pin.memory for span in destinations}.values():
                memory.written()
            wall = time.perf_counter() - began
        info = self._backend.info
        clock = info.extension.clock_khz if info.extension else 0
        return Transfer(
            bytes=nbytes,
            cycles=moved.cycles,
            seconds=moved.cycles / (clock * 1e3) if clock else wall,
            wall_seconds=wall,
            limit=moved.limit,
            path=Paths(_path(sources), _path(destinations)),
            simulated=info.simulated,
        )

    def _unpin(self, pin: Pin) -> None:
        with self._lock:
            if pin in self._pins:
                self._pins.remove(pin)
                self._backend.unpin(pin.forget())

    def _require_open(self) -> None:
        if self.closed:
            raise PeerdmaError("asked to use a board that is closed; open it again")

    def _require_on_card(self, span: Span, address: int) -> None:
        size = self._backend.info.card_ram_size
        if address < 0 or address + span.nbytes > size:
            raise TransferError(
                f"asked to move {span.nbytes} bytes at card address {address:#x}; card RAM has "
                f"{size} bytes from address 0. Move less at a time",
                address=address,
            )

    def _spans(self, pinned: Pin | Span | Sequence[Pin | Span]) -> list[Span]:
        """The spans meant, each pinned here."""
        spans = []
        for each in [pinned] if isinstance(pinned, (Pin, Span)) else pinned:
            span = each[:] if isinstance(each, Pin) else each
            if not isinstance(span, Span):
                raise PinError(
                    f"asked to transfer {each!r}, which is not pinned; pin it on this board with "
                    "board.pin(...)"
                )
            if span.pin not in self._pins:
                state = "closed" if span.pin.closed else "another board's"
                raise PinError(
                    f"asked to transfer {span.nbytes} bytes at {span.address:#x}, but their pin is "
                    f"{state}; pin the memory on this board with board.pin(...)"
                )
            spans.append(span)
        return spans


def _nbytes(spans: list[Span]) -> int:
    return sum(span.nbytes for span in spans)


def _piece(span: Span) -> Piece:
    return Piece(span.pin.handle, span.start, span.stop)


def _path(spans: list[Span]) -> Path | None:
    """The way most removed from peer-to-peer that any of the bytes take."""
    paths = {span.pin.path for span in spans if span.nbytes}
    return max(paths, key=list(Path).index, default=None)


def _refuse_overlap(sources: list[Span], destinations: list[Span]) -> None:
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
