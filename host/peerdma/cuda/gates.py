# SPDX-License-Identifier: BSD-2-Clause
"""Gates: places in CUDA streams that tell a process when they are reached, and wait for it.

A stream reaches a gate by host functions, which post semaphores: functions of the C library, so
that no Python runs in CUDA's thread, which all streams share. It waits for the gate's word, in
memory of the host, by a memory operation where the device has these, else by a kernel.

A gate that is passed once waits for a number that its word reaches when it is opened; numbers only
grow, so that the gate can be used again at once. What a graph captures holds constants: its gate
clears its word first, each time, and belongs to the graph.

While a stream waits, some calls of CUDA wait for it, and others for those. So the gates' kernels
are loaded before there is a gate, and memory of a GPU is freed when none of its streams has one.
"""

from __future__ import annotations

import contextlib
from typing import Any, SupportsInt

import numpy as np

from ..arguments import wrong_type
from ..errors import PeerdmaError
from .device import CudaDevice
from .idle import Idle
from .memory import from_cuda
from .program import POINTER, WORD, Program
from .semaphores import Semaphores, post_function

__all__ = ["Gate", "Gates", "handle_of"]

#: Gates that can be in use at the same time.
_GATES = 1024
_WORD_BYTES = 4
_SOURCE = """
extern "C" __global__ void clear_word(volatile unsigned *word) {
    *word = 0;
    __threadfence_system();
}
extern "C" __global__ void await_word(volatile unsigned *word, unsigned value) {
    while ((int)(*word - value) < 0) {}
    __threadfence_system();
}
"""


def handle_of(stream: Any) -> int:
    """A stream as CUDA's number: of cuda.core, PyTorch, CuPy, Numba, the bindings, or a number.

    Raises
    ------
    TypeError
        If it is no stream.
    """
    found: Any = stream
    known: Any = getattr(stream, "__cuda_stream__", None)
    if known is not None:
        pair: Any = known() if callable(known) else known
        found = pair[1]
    else:
        for name in ("cuda_stream", "ptr", "handle"):
            if hasattr(stream, name):
                found = getattr(stream, name)
                break
    found = getattr(found, "value", found)  # Numba's is of ctypes, which has None for 0
    if found is None and stream is not None:
        return 0
    if isinstance(found, SupportsInt) and not isinstance(found, (bool, float)):
        return int(found)
    raise wrong_type(
        "a stream is one of PyTorch, CuPy, Numba or cuda.core, or its handle as a whole number",
        stream,
    )


class Gate:
    """A gate; see the module."""

    __slots__ = ("arrived", "captured", "dropped", "idle", "number", "value")

    #: of the GPU whose stream it is in
    idle: Idle

    def __init__(self, number: int, arrived: int, dropped: int):
        self.number: int = number
        #: what opens it
        self.value: int = 0
        #: whether it belongs to a graph
        self.captured: bool = False
        #: semaphores, by address: streams that have reached it, and that its graph is gone
        self.arrived: int = arrived
        self.dropped: int = dropped


class Gates:
    """The gates of a board, for streams of any device of this process.

    Parameters
    ----------
    device : CudaDevice
        In whose context the words are; all others reach them, too.
    """

    def __init__(self, device: CudaDevice):
        self._device = device
        self._operations = device.attribute("CAN_USE_64_BIT_STREAM_MEM_OPS")
        self._program: Program | None = None
        device.acquire()
        try:
            # Not freed before the process ends unless no stream can wait for a word any more.
            self._memory = from_cuda(device, _GATES * _WORD_BYTES)
            if not self._operations:
                self._program = self._kernels()
        except BaseException:
            device.release()
            raise
        self._words = self._memory.array().view(np.uint32)
        self._semaphores = found = Semaphores(1 + 2 * _GATES)
        self._wake = found[0]
        self._free = [Gate(n, found[1 + 2 * n], found[2 + 2 * n]) for n in range(_GATES)]
        self._post = post_function()

    def lazy(self) -> bool:
        """Whether CUDA loads kernels when they are first launched."""
        driver = self._device.driver
        with self._device.current():
            found = driver.call("cuModuleGetLoadingMode", action="look up how kernels are loaded")
        return int(found) == int(driver.api.CUmoduleLoadingMode.CU_MODULE_LAZY_LOADING)

    def take(self) -> Gate:
        """A gate that nobody uses; PeerdmaError if there is none."""
        if not self._free:
            raise PeerdmaError(
                f"cannot queue another copy in a stream: {_GATES} wait for their streams, or are "
                "in graphs. Wait for some of them, or free graphs"
            )
        return self._free.pop()

    def give_back(self, gate: Gate) -> None:
        """The gate can be used again: it was opened, or no stream or graph has it any more."""
        if gate.captured:
            gate.captured, gate.value = False, 0
            self._words[gate.number] = 0
        self._free.insert(0, gate)

    def put(self, gate: Gate, stream: int) -> None:
        """Queues a gate in a stream, or captures it: then it is the graph's.

        A stream's GPU is not idle from here until the gate has been opened, see `Gate.idle`. It is
        the caller who says so for each time that a graph comes to the gate.

        Raises
        ------
        CudaError
            If CUDA refuses; nothing waits for the gate then, but it may be reached.
        """
        device, action = self._device, "queue a copy in a stream"
        driver = device.driver
        with device.current_of(stream), contextlib.ExitStack() as undo:
            status, _, graph, *_ = driver.call("cuStreamGetCaptureInfo", stream, action=action)
            word = self._memory.device_address + gate.number * _WORD_BYTES
            gate.captured = int(status) == 1
            gate.idle = Idle.of(driver.api, int(driver.call("cuCtxGetDevice", action=action)))
            if gate.captured:
                gate.value = 1
                driver.retain(graph, self._post, gate.dropped, action)
                if self._operations:
                    driver.call("cuStreamWriteValue32", stream, word, 0, 0, action=action)
                else:
                    self._launch("clear_word", (word, POINTER), stream=stream)
            else:
                gate.value = gate.value + 1 & 0xFFFF_FFFF
                gate.idle.watch_begins()
                undo.callback(gate.idle.watch_ended)
            self._announce(gate, stream, action)
            if self._operations:
                kinds = driver.api.CUstreamWaitValue_flags
                flags = int(kinds.CU_STREAM_WAIT_VALUE_GEQ)
                if device.attribute("CAN_FLUSH_REMOTE_WRITES"):
                    flags |= int(kinds.CU_STREAM_WAIT_VALUE_FLUSH)
                driver.call("cuStreamWaitValue32", stream, word, gate.value, flags, action=action)
            else:
                arguments = (word, POINTER), (gate.value, WORD)
                self._launch("await_word", *arguments, stream=stream)
            undo.pop_all()

    def mark(self, gate: Gate, stream: int) -> None:
        """Queues a gate that is open: the stream tells that it has come to it, and goes on.

        Raises
        ------
        PeerdmaError
            If the stream is captured.
        CudaError
            If CUDA refuses; the gate may be reached then.
        """
        action = "release a frame in a stream"
        with self._device.current_of(stream):
            status = self._device.driver.call("cuStreamGetCaptureInfo", stream, action=action)[0]
            if int(status):
                raise PeerdmaError(
                    f"cannot {action} that is captured: a graph gives no frame back. Release it "
                    "after the capture, in the stream that the graph is launched in"
                )
            self._announce(gate, stream, action)

    def _announce(self, gate: Gate, stream: int, action: str) -> None:
        """Queues what tells that a stream has reached a gate. Its context is current."""
        for semaphore in (gate.arrived, self._wake):
            self._device.driver.host_function(stream, self._post, semaphore, action)

    def open(self, gate: Gate) -> None:
        """Lets a stream go on."""
        self._words[gate.number] = gate.value

    def wait(self, seconds: float) -> None:
        """Waits until a stream has reached a gate, or `wake`; a time at most."""
        self._semaphores.wait(self._wake, seconds)

    def wake(self) -> None:
        """Ends `wait`."""
        self._semaphores.post(self._wake)

    def reached(self, gate: Gate) -> bool:
        """Whether a stream has reached it since the last call that said so."""
        return self._semaphores.take(gate.arrived)

    def waited_for(self, gate: Gate) -> bool:
        """Whether a stream has reached it, and `reached` has not said so yet."""
        return self._semaphores.value(gate.arrived) > 0

    def orphaned(self, gate: Gate) -> bool:
        """Whether it was captured, and its graph is gone; true once."""
        return gate.captured and self._semaphores.take(gate.dropped)

    def close(self) -> None:
        """Gives the words back: no stream or graph has a gate any more."""
        del self._words, self._memory
        self._program = None
        self._device.release()

    def _kernels(self) -> Program:
        """The kernels, launched once: CUDA loads a kernel then, and may wait for all streams."""
        device = self._device
        program = Program(device, "gates.cu", _SOURCE)
        word = self._memory.device_address, POINTER
        with device.current():
            program.launch("clear_word", word, one=True)
            program.launch("await_word", word, (0, WORD), one=True)
            device.synchronize()
        return program

    def _launch(self, kernel: str, *arguments: tuple[Any, Any], stream: int) -> None:
        assert self._program is not None
        self._program.launch(kernel, *arguments, stream=stream, one=True)
