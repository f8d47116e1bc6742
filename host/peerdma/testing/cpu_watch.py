# SPDX-License-Identifier: BSD-2-Clause
"""The CPU watching a surface in place of a GPU: a thread that polls, as a kernel would."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import numpy as np

from ..memory.mailbox import Mailbox, Watch
from ..memory.surface import Surface
from . import pattern
from .kernels import not_arrived

__all__ = ["CpuWatch"]

#: Seconds between looks: other threads and the board's process need the processor too.
_INTERVAL = 0.0001


class CpuWatch(Watch):
    """See `peerdma.testing.watch`; `verify` checks the surface once its last word is there."""

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
        data = surface.bytes
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
                self._mailbox.write(register, self._token)
            try:
                self._verify()
            finally:
                self._mailbox.write("done", self._token)
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
