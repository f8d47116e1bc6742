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

#: Not for threads of the usual mode while a capture forbids them: they fail, and the capture is
#: invalid. These are what an H100 refused (driver 580, CUDA 13.0), ...
_REFUSED = {
    "cuMemAlloc",
    "cuMemFree",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuStreamSynchronize",
    "cuModuleUnload",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuPointerSetAttribute",
}
#: What no mode allows beside any capture of the context: the second, if it changes SYNC_MEMOPS.
_NEVER = {"cuCtxSynchronize", "cuCtxSetFlags"}
#: ... and what CUDA's documentation lets a driver refuse.
_MAY_BE_REFUSED = {
    "cuModuleLoadData",
    "cuMemGetHandleForAddressRange",
    "cuFlushGPUDirectRDMAWrites",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuEventDestroy",
}
UNSAFE = _REFUSED | _MAY_BE_REFUSED
#: What waits for all that is queued, as memory or code may be in use.
_WAITING = {"cuMemFree", "cuMemFreeHost", "cuMemHostUnregister", "cuModuleUnload"}
#: What waits for the default stream, whose handles are 0 and 1, if that is its argument.
_DEFAULT_STREAMS = (0, 1)

Work = tuple[Callable[[], None], bool]


class Graph:
    """Captured work, and objects that it keeps."""

    def __init__(self, number: int, mode: int):
        self.number = number
        #: how it is captured: in the global mode no thread may do what is unsafe, in the mode of
        #: threads not this one, in the relaxed one any
        self.mode = mode
        self.thread = threading.get_ident()
        self.invalid = False
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
    lazy : bool
        Whether kernels are loaded as unkindly as CUDA may: at their first launch, once all that is
        queued in the context is done, while other calls wait for that.
    frees_wait : bool
        Whether what frees memory or code waits for all that is queued, as CUDA does. Not for tests
        that hold streams without telling the library, and allocate meanwhile.
    """

    def __init__(self):
        self._handles = itertools.count(1)
        self.streams: set[int] = set()
        #: of the context, as after cuInit: CU_CTX_MAP_HOST
        self.flags = 8
        #: those that wait for the default stream, and it for them
        self.blocking: set[int] = set()
        #: by stream, the work that is queued behind what is under way
        self._pending: dict[int, deque[Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._capturing: dict[int, Graph] = {}
        self._mode = threading.local()
        self._graphs: dict[int, Graph] = {}
        self._events: dict[int, threading.Event] = {}
        self._objects: dict[int, tuple[int, int]] = {}
        self._host_functions = threading.Lock()
        self.lazy = self.frees_wait = False
        self._loaded: set[str] = set()
        self._loading = threading.RLock()
        self.library = SimpleNamespace(
            cuLaunchHostFunc=self._launch_host_function, cuUserObjectCreate=self._user_object
        )
        self.CUstreamCaptureMode = SimpleNamespace(
            CU_STREAM_CAPTURE_MODE_GLOBAL=0,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1,
            CU_STREAM_CAPTURE_MODE_RELAXED=2,
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

    def enter(self, function: str, arguments: tuple) -> str:
        """Begins a call: waits for the thread that loads a kernel, and for what is queued.

        Returns why it is not allowed beside a capture, which may be invalid then; empty if it is.
        """
        if function not in self.unhindered:
            with self._loading:
                pass
        stream = next((int(each) for each in arguments if isinstance(each, int)), 0)
        captures = self._capturing
        kept = [graph for at, graph in captures.items() if at in self.blocking]
        forbidden = []
        if function in _NEVER and arguments != (self.flags,):
            forbidden = list(captures.values())
        elif function == "cuStreamSynchronize" and stream in captures:
            forbidden = [captures[stream]]
        elif function in UNSAFE:
            forbidden = [graph for graph in captures.values() if self._forbids(graph)]
        if forbidden:
            for graph in forbidden:
                graph.invalid = True
            return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        if stream in _DEFAULT_STREAMS and kept:
            if function == "cuStreamSynchronize":
                for graph in kept:
                    graph.invalid = True
                return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
            if function == "cuStreamGetCaptureInfo":
                return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        if function in _WAITING and self.frees_wait:
            self._settle()
        return ""

    def _forbids(self, graph: Graph) -> bool:
        """Whether a capture forbids this thread what is unsafe."""
        modes, mine = self.CUstreamCaptureMode, graph.thread == threading.get_ident()
        if self._of_thread() == modes.CU_STREAM_CAPTURE_MODE_RELAXED:
            return False
        if graph.mode == modes.CU_STREAM_CAPTURE_MODE_GLOBAL:
            return mine or self._of_thread() == modes.CU_STREAM_CAPTURE_MODE_GLOBAL
        return graph.mode == modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL and mine

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
                self._settle()
        self._loaded.add(kernel)

    def _cuModuleGetLoadingMode(self):
        modes = self.CUmoduleLoadingMode
        return modes.CU_MODULE_LAZY_LOADING if self.lazy else modes.CU_MODULE_EAGER_LOADING

    # Streams ---------------------------------------------------------------------------------

    def _cuCtxSynchronize(self):
        self._settle()

    def _settle(self) -> None:
        """Waits for all that is queued."""
        for stream in list(self._pending):
            self._cuStreamSynchronize(stream)

    def _cuStreamCreate(self, flags):
        self.streams.add(handle := next(self._handles) + 100)
        if flags != 1:
            self.blocking.add(handle)
        return handle

    def _cuStreamDestroy(self, stream):
        self.streams.remove(stream)
        self.blocking.discard(stream)

    def _cuStreamSynchronize(self, stream):
        with self._changed:
            idle = self._changed.wait_for(lambda: int(stream) not in self._pending, PATIENCE)
        assert idle, "the stream hangs"

    def _cuStreamGetCtx(self, stream):
        return self._stack()[-1]

    def _cuThreadExchangeStreamCaptureMode(self, mode):
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
        graph = Graph(next(self._handles), int(mode))
        self._capturing[int(stream)] = self._graphs[graph.number] = graph

    def _cuStreamEndCapture(self, stream):
        graph = self._capturing.pop(int(stream))
        if graph.invalid:
            self._cuGraphDestroy(graph.number)
            return self.CUresult("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
        return graph.number

    def _cuStreamGetCaptureInfo(self, stream):
        graph = self._capturing.get(int(stream))
        return (1 + graph.invalid, 1, graph.number, [], [], 0) if graph else (0, 0, 0, [], [], 0)

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
