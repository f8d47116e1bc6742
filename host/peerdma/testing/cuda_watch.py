# SPDX-License-Identifier: BSD-2-Clause
"""A CUDA kernel that watches a surface, and writes a board's registers through its mailbox page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np

from ..cuda.device import CudaDevice
from ..cuda.mailbox import map_mailbox
from ..cuda.memory import DeviceMemory, from_cuda
from ..cuda.program import POINTER, SIZE, WORD, Program
from ..cuda.surface import CudaSurface
from ..errors import CudaError
from ..memory.mailbox import Mailbox, Watch
from .kernels import not_arrived

__all__ = ["CudaWatch"]

#: Words of the memory that host and kernels share: how many words arrived; a request to give up.
_SEEN, _CANCEL = 0, 1
#: Both words have been seen.
_ALL = 2


class CudaWatch(Watch):
    """See `peerdma.testing.watch`.

    Three kernels in a stream of their own: one waits for the words, one verifies, and one reports
    the end. `wrong` makes the error from (number of the first wrong word, number of wrong words).
    """

    def __init__(
        self,
        device: CudaDevice,
        program: Program,
        surface: CudaSurface,
        mailbox: Mailbox,
        seed: int,
        token: int,
        timeout: float,
        wrong: Callable[[int, int], Exception],
    ):
        self._device = device
        self._surface = surface
        self._timeout = timeout
        self._wrong = wrong
        with contextlib.ExitStack() as undo:
            surface.acquire()
            undo.callback(surface.release)
            device.acquire()
            undo.callback(device.release)
            # First of all: beside another watch, an allocation may have to wait for its end.
            page = undo.enter_context(map_mailbox(device, mailbox))
            self._shared = from_cuda(device, 8)
            self._words = self._shared.array()[:8].view(np.uint32)
            self._result = DeviceMemory(device, 16)
            with device.current():
                self._stream = device.new_stream(undo)
                device.idle.watch_begins()
                # Kernels that use any of this must have ended before it is released.
                undo.callback(self._end)
                result, shared = self._result.device_address, self._shared.device_address
                device.set_bytes(result, 8, 0xFF, self._stream)
                at = (surface.device_address, POINTER), (surface.nbytes, SIZE), (seed, WORD)
                first, last, done = (
                    (page.register(name), POINTER) for name in ("first", "last", "done")
                )
                told = (token, WORD)
                seen, cancel = (shared + 4 * _SEEN, POINTER), (shared + 4 * _CANCEL, POINTER)
                limit = (int(timeout * 1e9), SIZE)
                launch = program.launch
                # CUDA loads a kernel at its first launch and waits for running ones then. Launched
                # here first, these two do not wait for the watch below.
                launch("verify", at[0], (0, SIZE), at[2], (result, POINTER), stream=self._stream)
                launch("report", done, told, seen, stream=self._stream, one=True)
                watching = (*at, first, last, told, limit, cancel, seen)
                launch("watch", *watching, stream=self._stream, one=True)
                launch("verify", *at, (result, POINTER), stream=self._stream)
                launch("report", done, told, seen, stream=self._stream, one=True)
            self._undo = undo.pop_all()

    def wait(self) -> None:
        """See `Watch`."""
        with self._device.current():
            self._device.synchronize(self._stream)
        if self._words[_SEEN] != _ALL:
            words = -(-self._surface.nbytes // 4)
            raise not_arrived(self._surface, words - 1 if self._words[_SEEN] else 0, self._timeout)
        result = np.empty(2, np.uint64)
        self._device.read(self._result.device_address, result.ctypes.data, result.nbytes)
        if result[1]:
            raise self._wrong(int(result[0]), int(result[1]))

    def close(self) -> None:
        """See `Watch`."""
        self._undo.close()

    def _end(self) -> None:
        self._words[_CANCEL] = 1
        # If that fails the context is broken, and no kernel runs any more.
        with contextlib.suppress(CudaError), self._device.current():
            self._device.synchronize(self._stream)
        self._device.idle.watch_ended()
