# SPDX-License-Identifier: BSD-2-Clause
"""The emulated GPU watching a surface: a thread that polls, as a kernel would."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np

from ..memory import pattern
from ..memory.mailbox import Mailbox, Watch
from ..memory.surface import Surface, not_arrived

__all__ = ["EmulatedWatch"]

#: Seconds between looks: other threads and the board's process need the processor too.
_INTERVAL = 0.0001


class EmulatedWatch(Watch):
    """See `Gpu.watch`; `verify` checks the surface once its last word is there."""

    def __init__(
        self,
        surface: Surface,
        mailbox: Mailbox,
        seed: int,
        token: int,
        timeout: float,
        verify: Callable[[], None],
    ):
        self._surface = surface
        self._mailbox = mailbox
        self._seed = seed
        self._token = token
        self._timeout = timeout
        self._verify = verify
        self._cancelled = threading.Event()
        self._outcome: Exception | None = None
        data = surface.array.reshape(-1).view(np.uint8)
        last = (data.size - 1) // pattern.WORD_BYTES
        self._thread = threading.Thread(target=self._run, args=(data, last), daemon=True)
        with contextlib.ExitStack() as undo:
            for used in (surface, mailbox):
                used.acquire()
                undo.callback(used.release)
            self._thread.start()
            undo.callback(self._end)
            self._undo = undo.pop_all()

    def wait(self) -> None:
        """See `Watch`."""
        self._thread.join()
        if self._outcome:
            raise self._outcome

    def close(self) -> None:
        """See `Watch`."""
        self._undo.close()

    def _end(self) -> None:
        self._cancelled.set()
        self._thread.join()

    def _run(self, data: np.ndarray, last: int) -> None:
        try:
            deadline = time.monotonic() + self._timeout
            for register, word in (("first", 0), ("last", last)):
                self._await(data, word, deadline)
                self._report(register)
            try:
                self._verify()
            finally:
                self._report("done")
        except Exception as error:
            self._outcome = error

    def _await(self, data: np.ndarray, word: int, deadline: float) -> None:
        start = word * pattern.WORD_BYTES
        piece = data[start : start + pattern.WORD_BYTES]
        wanted = pattern.fill_bytes(self._seed, word, piece.size)
        while not np.array_equal(piece, wanted):
            if self._cancelled.is_set() or time.monotonic() > deadline:
                raise not_arrived(self._surface, word, self._timeout)
            time.sleep(_INTERVAL)

    def _report(self, register: str) -> None:
        ctypes.c_uint32.from_address(self._mailbox.register(register)).value = self._token
