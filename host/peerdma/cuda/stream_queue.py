# SPDX-License-Identifier: BSD-2-Clause
"""A launch queue in CUDA's streams and graphs: what they come to starts copies and waits for them.

A stream gets a kernel of one thread, which draws a ticket when it runs, and a memory operation that
waits for the plan's done word; where the device has none of these, the kernel waits. Neither holds
anything that is old when a graph is launched again. No instruction of this process runs then.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import CudaError, PeerdmaError, UnsupportedError
from ..process import AtExit
from .device import CudaDevice
from .gates import handle_of
from .program import POINTER, SIZE, WORD, Program
from .semaphores import Semaphores, post_function

__all__ = ["StreamQueue", "source"]

_ACTION = "submit to a launch queue in a stream"
#: Seconds between looks at streams, graphs and tickets, and for the end of the thread.
_LOOK, _JOIN_SECONDS = 0.5, 2.0
#: Seconds without a ticket that is done, while there are some, after which streams are let go on.
_STUCK_SECONDS = 30.0
_DISABLE_TIMING = 2


def source() -> str:
    """The kernel, with the header before it."""
    here = Path(__file__)
    header = here.parents[1] / "include" / "peerdma" / "device.cuh"
    return header.read_text() + here.with_name("stream_queue.cu").read_text()


class StreamQueue:
    """What streams of one GPU submit to a launch queue by.

    It keeps the queue's memory until no stream and no graph uses that any more, also if the queue
    was closed before.

    Parameters
    ----------
    device : CudaDevice
    queue : ctypes.Structure
        ``struct peerdma_queue``, which keeps the memory.
    missed : int
        Address, for kernels, of two words that count what did not come about: for lack of room or
        time, and as the queue had ended.
    pending : callable
        Returns the first ticket that is not done, None if all are or the queue has ended.
    give_up : callable
        Lets streams go on, as the board makes no progress, and ends the queue.
    staged : bool
        Whether a thread of this process serves the board memory of the GPU.
    peer : bool
        Whether the board writes memory of the GPU by itself.

    Raises
    ------
    UnsupportedError
        If the GPU does not see in time what the board wrote.
    GpuNotFound, CudaError
        As for `Program`.
    """

    def __init__(
        self,
        device: CudaDevice,
        queue: Any,
        missed: int,
        pending: Callable[[], int | None],
        give_up: Callable[[], None],
        staged: bool,
        peer: bool,
    ):
        can_flush = device.attribute("CAN_FLUSH_REMOTE_WRITES")
        if peer and device.needs_flush and not can_flush:
            raise UnsupportedError(
                "this GPU has to be told by the host to see what a board wrote into its memory: "
                "use board.copy(..., stream=stream), or surfaces of peerdma.gpu(memory='host')"
            )
        self._device, self._pending = device, pending
        #: None once nothing uses its memory any more
        self._queue: Any = queue
        self._give_up: Callable[[], None] | None = give_up
        self._missed = missed, POINTER
        self._operations = device.attribute("CAN_USE_64_BIT_STREAM_MEM_OPS")
        kinds = device.driver.api.CUstreamWaitValue_flags
        self._flags = int(kinds.CU_STREAM_WAIT_VALUE_EQ)
        if can_flush:
            self._flags |= int(kinds.CU_STREAM_WAIT_VALUE_FLUSH)
        self._lock = threading.Lock()
        #: posted once for each capture whose graph is gone; how many are not
        self._dropped, self._graphs = Semaphores(1), 0
        #: by number of a stream, which is never used again: recorded behind the latest copy
        self._events: dict[int, Any] = {}
        #: frees of memory would wait for streams, and those for whoever frees
        self._watching = staged
        self._wake = threading.Event()
        with contextlib.ExitStack() as undo:
            device.acquire()
            undo.callback(device.release)
            self._program = Program(device, "stream_queue.cu", source())
            # CUDA loads a kernel at its first launch, and may wait for all streams then.
            with device.current():
                self._launch(queue, len(queue.slots), 0, device.stream)
                device.synchronize()
            if staged:
                device.idle.watch_begins()
                undo.callback(device.idle.watch_ended)
            self._thread = threading.Thread(
                target=self._guard, name="peerdma stream queue", daemon=True
            )
            self._thread.start()
            undo.pop_all()
        _used.add(self)

    def put(self, index: int, stream: Any, seconds: float) -> None:
        """Queues a copy in a stream, or captures it; see `Queue.enqueue`."""
        handle, device = handle_of(stream), self._device
        driver = device.driver
        with self._lock, device.current_of(handle):
            if (queue := self._queue) is None:
                raise PeerdmaError("the queue has ended")
            context = driver.call("cuCtxGetCurrent", action=_ACTION)
            if int(context) != int(device.context):
                raise ValueError(
                    "the stream is not of the primary context of the GPU that the queue is for, "
                    f"{device.name} ({device.index})"
                )
            status, _, graph, *_ = driver.call("cuStreamGetCaptureInfo", handle, action=_ACTION)
            if captured := int(status) == 1:
                driver.retain(graph, post_function(), self._dropped[0], _ACTION)
                self._graphs += 1
            event = None if captured else self._event(handle)
            try:
                self._launch(queue, index, int(seconds * 1e9), handle)
                if self._operations:
                    done = queue.done + 4 * index
                    arguments = handle, done, 1, self._flags
                    driver.call("cuStreamWaitValue32", *arguments, action=_ACTION)
            finally:
                if event is not None:
                    driver.call("cuEventRecord", event, handle, action=_ACTION)

    def ended(self) -> None:
        """The queue has ended: no stream waits for it any more."""
        self._give_up = None
        self._wake.set()

    def join(self) -> None:
        """Waits for the end of the thread, for seconds, unless a stream or graph needs it."""
        if self._thread is not threading.current_thread() and self._released():
            self._thread.join(_JOIN_SECONDS)

    def give_up(self) -> None:
        """Ends the queue, if it has not ended, so that streams go on."""
        give_up = self._give_up
        if give_up is not None:
            give_up()

    def _launch(self, queue: Any, index: int, nanoseconds: int, stream: Any) -> None:
        numbers = (index, WORD), (int(not self._operations), WORD), (nanoseconds, SIZE)
        arguments = (queue, None), *numbers, self._missed
        self._program.launch("peerdma_stream_queue", *arguments, stream=stream, one=True)

    def _event(self, stream: int) -> Any:
        """What is recorded behind the latest copy in a stream."""
        call = self._device.driver.call
        number = int(call("cuStreamGetId", stream, action=_ACTION))
        if number not in self._events:
            self._sweep()
            self._events[number] = call("cuEventCreate", _DISABLE_TIMING, action=_ACTION)
        return self._events[number]

    def _sweep(self) -> None:
        """Destroys the events of streams that have come past their copies. The lock is held."""
        api = self._device.driver.api
        with contextlib.suppress(CudaError), self._device.current():
            for number, event in list(self._events.items()):
                # Another error than that it is not ready: the context is broken.
                status, *_ = api.cuEventQuery(event)
                if status.name != "CUDA_ERROR_NOT_READY":
                    del self._events[number]
                    api.cuEventDestroy(event)

    def _released(self) -> bool:
        """Lets the queue's memory go, which has ended, unless a stream or graph may use it."""
        with self._lock:
            while self._graphs and self._dropped.take(self._dropped[0]):
                self._graphs -= 1
            self._sweep()
            if not self._graphs and not self._events:
                self._queue = None
            return self._queue is None

    def _guard(self) -> None:
        """Lets streams go on if the board makes no progress; holds what is used until the end."""
        seen, since = None, time.monotonic()
        while self._give_up is not None:
            self._wake.wait(_LOOK)
            pending = self._pending()
            if pending is None or pending != seen:
                seen, since = pending, time.monotonic()
            elif time.monotonic() - since > _STUCK_SECONDS:
                since = time.monotonic()
                self.give_up()
        self._give_up = None
        if self._watching:
            self._device.idle.watch_ended()
        while not self._released():
            time.sleep(_LOOK / 10 if self._events else _LOOK)
        _used.discard(self)
        self._device.release()


#: Those with a thread. Streams go on, which the end of CUDA may wait for.
_used = AtExit(StreamQueue.give_up)
