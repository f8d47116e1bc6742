# SPDX-License-Identifier: BSD-2-Clause
"""Streams of CUDA as the tests of copies in their order use them."""

from __future__ import annotations

import gc
import time

import numpy as np

import peerdma
from peerdma.cuda.memory import from_cuda

#: Seconds.
PATIENCE = 60.0


class Machine:
    """A board, a GPU, and calls of CUDA in the GPU's context."""

    def __init__(self, board, gpu, kernel=None):
        self.board, self.gpu, self.kernel = board, gpu, kernel
        self.device = gpu.device
        self._undo = []

    def call(self, function, *arguments):
        with self.device.current():
            return self.device.driver.call(function, *arguments, action="test")

    def stream(self):
        stream = self.call("cuStreamCreate", 1)
        self._undo.append(("cuStreamDestroy", stream))
        return stream

    def set(self, surface, value, stream):
        self.call("cuMemsetD8Async", surface.device_address, value, surface.nbytes, stream)

    def read_word(self, surface, into, stream):
        self.call("cuMemcpyDtoHAsync", into.ctypes.data, surface.device_address, 4, stream)

    def synchronize(self, stream):
        self.call("cuStreamSynchronize", stream)

    def capture(self, stream, work):
        modes = self.device.driver.api.CUstreamCaptureMode
        self.call("cuStreamBeginCapture", stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL)
        try:
            found = work()
        finally:
            graph = self.call("cuStreamEndCapture", stream)
        executable = self.call("cuGraphInstantiate", graph, 0)
        self.call("cuGraphDestroy", graph)
        return executable, found

    def close(self):
        for function, handle in reversed(self._undo):
            self.call(function, handle)


class Gate:
    """Holds a stream still until it is opened: a memory operation on a word of host memory."""

    def __init__(self, machine, stream):
        # CUDA would wait for the stream to free what is garbage.
        gc.collect()
        self.memory = from_cuda(machine.device, 4096)
        self.word = self.memory.array()[:4].view(np.uint32)
        self.word[:] = 0
        machine.call("cuStreamWaitValue32", stream, self.memory.device_address, 1, 0)

    def open(self):
        self.word[:] = 1


def unused(*surfaces):
    """Closes surfaces when no graph has them any more, which is found out by and by."""
    gc.collect()
    until = time.monotonic() + PATIENCE
    while True:
        try:
            for surface in surfaces:
                surface.close()
            return
        except peerdma.PinError:
            assert time.monotonic() < until, "a copy still has a surface"
            time.sleep(0.05)
