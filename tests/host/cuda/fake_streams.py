# SPDX-License-Identifier: BSD-2-Clause
"""Streams, events and graphs of the stand-in for CUDA's bindings: work runs in order, and later.

Work that may wait runs in a thread, and so does all that is queued behind it; the rest runs at
once. Host functions of all streams take turns, as in CUDA, where one thread calls them.
"""

# ruff: noqa: N802, N815 - the names are CUDA's

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

#: No work waits longer, in seconds.
PATIENCE = 60.0
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

#: Not for threads of the usual mode while there is a capture of it: what CUDA's documentation
#: names, and the registration of memory, which an H200 refused.
_UNSAFE = {"cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuEventQuery"}

Work = tuple[Callable[[], None], bool]


class Graph:
    """Captured work, and objects that it keeps."""

    def __init__(self, number: int):
        self.number = number
        #: whether it is being captured, so that no thread may do what is unsafe
        self.guarded = False
        self.work: list[Work] = []
        self.objects: list[tuple[int, int]] = []
        #: the graph, and what was instantiated of it
        self.users = 1


class FakeStreams:
    """The part of `FakeCuda` that queues work.

    Attributes
    ----------
    library : object
        What the driver's shared library has, as ctypes calls it.
    capture_modes : list of int
        What threads set their mode of capture to.
    lazy : bool
        Whether kernels are loaded as unkindly as CUDA may: at their first launch, once all that is
        queued in the context is done, while other calls wait for that.
    """

    def __init__(self):
        self._handles = itertools.count(1)
        self.streams: set[int] = set()
        #: by stream, the work that is queued behind what is under way
        self._pending: dict[int, deque[Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._capturing: dict[int, Graph] = {}
        self._mode = threading.local()
        self._graphs: dict[int, Graph] = {}
        self._events: dict[int, threading.Event] = {}
        self._objects: dict[int, tuple[int, int]] = {}
        self._host_functions = threading.Lock()
        self.capture_modes: list[int] = []
        self.lazy = False
        self._loaded: set[str] = set()
        self._loading = threading.RLock()
        self.library = SimpleNamespace(
            cuLaunchHostFunc=self._launch_host_function, cuUserObjectCreate=self._user_object
        )
        self.CUstreamCaptureMode = SimpleNamespace(
            CU_STREAM_CAPTURE_MODE_GLOBAL=0, CU_STREAM_CAPTURE_MODE_RELAXED=2
        )
        self.CUmoduleLoadingMode = SimpleNamespace(
            CU_MODULE_EAGER_LOADING=1, CU_MODULE_LAZY_LOADING=2
        )
        self.CUstreamWaitValue_flags = SimpleNamespace(
            CU_STREAM_WAIT_VALUE_GEQ=0,
            CU_STREAM_WAIT_VALUE_EQ=1,
            CU_STREAM_WAIT_VALUE_FLUSH=1 << 30,
        )

    def queue(self, stream: int, work: Callable[[], None], waits: bool = True) -> None:
        """Queues work; `waits` tells that it may wait for something else than this stream."""
        stream = int(stream)
        if stream in self._capturing:
            self._capturing[stream].work.append((work, waits))
            return
        with self._changed:
            if stream in self._pending or waits:
                if stream not in self._pending:
                    self._pending[stream] = deque()
                    threading.Thread(target=self._run, args=(stream,), daemon=True).start()
                self._pending[stream].append(work)
                return
        work()

    def _run(self, stream: int) -> None:
        """Runs what is queued in a stream, until nothing is."""
        while True:
            with self._changed:
                if not self._pending[stream]:
                    del self._pending[stream]
                    self._changed.notify_all()
                    return
                work = self._pending[stream].popleft()
            work()

    def enter(self, function: str) -> bool:
        """Begins a call that needs a context: waits for the thread that loads a kernel.

        Returns False if it is not allowed beside a capture, which is invalid then.
        """
        if function != "cuStreamSynchronize":
            with self._loading:
                pass
        relaxed = self._of_thread() == self.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        if (
            function in _UNSAFE
            and not relaxed
            and any(graph.guarded for graph in self._capturing.values())
        ):
            self._capturing.clear()
            return False
        return True

    def _of_thread(self) -> int:
        """The mode of captures that this thread has; 0 is the global one."""
        return getattr(self._mode, "value", 0)

    def is_loading(self) -> bool:
        """Whether another thread loads a kernel."""
        free = self._loading.acquire(blocking=False)
        if free:
            self._loading.release()
        return not free

    def load(self, kernel: str) -> None:
        """Loads a kernel before its launch."""
        if self.lazy and kernel not in self._loaded:
            with self._loading:
                self._cuCtxSynchronize()
        self._loaded.add(kernel)

    def _cuModuleGetLoadingMode(self):
        modes = self.CUmoduleLoadingMode
        return modes.CU_MODULE_LAZY_LOADING if self.lazy else modes.CU_MODULE_EAGER_LOADING

    # Streams ---------------------------------------------------------------------------------

    def _cuCtxSynchronize(self):
        for stream in list(self._pending):
            self._cuStreamSynchronize(stream)

    def _cuStreamCreate(self, flags):
        assert flags == 1  # does not wait for the default stream
        self.streams.add(handle := next(self._handles) + 100)
        return handle

    def _cuStreamDestroy(self, stream):
        self.streams.remove(stream)

    def _cuStreamSynchronize(self, stream):
        with self._changed:
            idle = self._changed.wait_for(lambda: int(stream) not in self._pending, PATIENCE)
        assert idle, "the stream hangs"

    def _cuStreamGetCtx(self, stream):
        return self._stack()[-1]

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        self.capture_modes.append(int(mode))
        before, self._mode.value = self._of_thread(), int(mode)
        return before

    def _cuStreamWriteValue32(self, stream, address, value, flags):
        word = ctypes.c_uint32.from_address(address)
        self.queue(stream, lambda: setattr(word, "value", value), waits=False)

    def _cuStreamWaitValue32(self, stream, address, value, flags):
        word = ctypes.c_int32.from_address(address)
        equal = flags & 1 == self.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
        self.queue(stream, lambda: self._wait_for(word, value, equal))

    @staticmethod
    def _wait_for(word: ctypes.c_int32, value: int, equal: bool = False) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            ahead = ctypes.c_int32(word.value - value).value
            if ahead == 0 or (ahead > 0 and not equal):
                break
            time.sleep(0.0002)

    def _launch_host_function(self, stream, function, data) -> int:
        call = _HOST_FUNCTION(function.value)

        def run():
            with self._host_functions:
                call(data.value)

        self.queue(stream.value or 0, run, waits=False)
        return 0

    def _cuEventCreate(self, flags):
        self._events[handle := next(self._handles)] = threading.Event()
        return handle

    def _cuEventDestroy(self, event):
        del self._events[event]

    def _cuEventRecord(self, event, stream):
        self._events[event].clear()
        self.queue(stream, self._events[event].set)

    def _cuStreamGetId(self, stream):
        return int(stream)

    def _cuStreamWaitEvent(self, stream, event, flags):
        recorded = self._events[event]
        self.queue(stream, lambda: recorded.wait(PATIENCE))

    # Graphs ----------------------------------------------------------------------------------

    def _cuStreamBeginCapture(self, stream, mode):
        graph = Graph(next(self._handles))
        graph.guarded = mode == self.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self._capturing[int(stream)] = self._graphs[graph.number] = graph

    def _cuStreamEndCapture(self, stream):
        return self._capturing.pop(int(stream), Graph(0)).number

    def _cuStreamGetCaptureInfo(self, stream):
        graph = self._capturing.get(int(stream))
        return (1, 1, graph.number, [], [], 0) if graph else (0, 0, 0, [], [], 0)

    def _cuGraphInstantiate(self, graph, flags):
        found = self._graphs[graph]
        found.users += 1
        self._graphs[handle := next(self._handles)] = found
        return handle

    def _cuGraphLaunch(self, graph, stream):
        for work, waits in self._graphs[graph].work:
            self.queue(stream, work, waits)

    def _cuGraphDestroy(self, graph):
        found = self._graphs.pop(graph)
        found.users -= 1
        if not found.users:
            for function, data in found.objects:
                _HOST_FUNCTION(function)(data)

    _cuGraphExecDestroy = _cuGraphDestroy

    def _user_object(self, out, data, function, references, flags) -> int:
        assert (references, flags) == (1, 1)
        handle = next(self._handles)
        ctypes.c_void_p.from_address(ctypes.addressof(out._obj)).value = handle
        self._objects[handle] = function.value, data.value
        return 0

    def _cuGraphRetainUserObject(self, graph, handle, count, flags):
        assert (count, flags) == (1, 1)  # the graph takes the reference
        self._graphs[graph].objects.append(self._objects.pop(handle))
