# SPDX-License-Identifier: BSD-2-Clause
"""No call of the library spoils a graph that is being captured: on a stand-in, and on a real GPU.

The table has every function of CUDA that the library calls, and what makes it call that. Each line
is walked while a stream is being captured, in each mode of capture, by the thread that captures and
by another one.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import threading
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import peerdma
from peerdma.cuda import driver as cuda_driver
from peerdma.cuda.arrays import CudaArrays, wait_for_producer
from peerdma.cuda.device import CudaDevice
from peerdma.cuda.driver import Driver
from peerdma.cuda.gpu import CudaGpu
from peerdma.cuda.memory import from_cuda, register
from peerdma.memory.external import ALL_STREAMS, describe
from tests.host.board.launch_helpers import LAUNCHING
from tests.host.board.streams import PATIENCE, unused
from tests.host.board.test_stream_queue import wait_for_threads
from tests.host.conftest import CUDA
from tests.host.cuda.fake_cuda import VIRTUAL, fake_driver
from tests.host.cuda.test_bindings import called

NBYTES = 4096
MODES = ("GLOBAL", "THREAD_LOCAL", "RELAXED")
#: Called before there is anything to capture, or with nothing to do for a GPU.
ELSEWHERE = {"cuDriverGetVersion", "cuInit", "cuGetErrorString"}
#: They spoil captures in every mode, and have tests of their own: what is called once, see
#: `CudaDevice.order_copies`, and only while a stream waits for a board, see `wait_for_all`.
SPOILING = {"cuCtxSetFlags", "cuCtxSynchronize", "cuDevicePrimaryCtxSetFlags"}


class Recorder:
    """CUDA's bindings, or its shared library, with a note of what is called."""

    def __init__(self, api, names: set[str]):
        self._api, self._names = api, names

    def __getattr__(self, name):
        self._names.add(name)
        return getattr(self._api, name)


class Array:
    """As of CuPy's, in a stream."""

    def __init__(self, surface, stream=1):
        self.__cuda_array_interface__ = {
            **surface.__cuda_array_interface__,
            "stream": int(stream),
        }
        self.keeps = surface


class Bench:
    """A board, GPUs with surfaces in each kind of memory, streams, and the names of calls."""

    def __init__(self, board, driver, names, undo):
        self.board, self.driver, self.names = board, driver, names
        self.gpu = undo.enter_context(CudaGpu(0, "device", driver=driver))
        self.host = undo.enter_context(CudaGpu(0, "host", driver=driver))
        self.device = self.gpu.device
        self.stream = self.call("cuStreamCreate", 1)
        undo.callback(self.call, "cuStreamDestroy", self.stream)
        self.arrays = CudaArrays()
        undo.callback(self.arrays.close)
        self.source = undo.enter_context(self.host.surface(NBYTES))
        self.target = undo.enter_context(self.host.surface(NBYTES))
        undo.callback(unused, self.source, self.target)
        self.kept = undo.enter_context(self.gpu.surface(NBYTES))

    def call(self, function, *arguments):
        """Without the library's way to do it, as a program does."""
        self.driver.api.cuCtxPushCurrent(self.device.context)
        error, *found = getattr(self.driver.api, function)(*arguments)
        self.driver.api.cuCtxPopCurrent()
        assert not int(error), (function, error)
        return found[0] if found else None

    def begin(self, mode, blocking):
        """Begins to capture a stream."""
        modes = self.driver.api.CUstreamCaptureMode
        stream = self.call("cuStreamCreate", 0 if blocking else 1)
        self.call("cuStreamBeginCapture", stream, getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode}"))
        return stream

    def captures(self, stream) -> bool:
        """Whether it still does."""
        with self.device.current():
            found = self.driver.call("cuStreamGetCaptureInfo", stream, action="test")
        return int(found[0]) == 1

    def end(self, stream):
        """Ends a capture, which has to be a good one."""
        self.call("cuGraphDestroy", self.call("cuStreamEndCapture", stream))
        self.call("cuStreamDestroy", stream)


def opens_and_closes(bench):
    CudaGpu(0, "device", driver=bench.driver).close()


def memory_of_the_gpu(bench):
    with bench.gpu.surface(1 << 20) as surface:
        surface.set(3)
        assert (surface.get() == 3).all()


def memory_of_the_host(bench):
    bench.host.surface(1 << 20).close()
    page = np.zeros(3 * 4096, np.uint8)
    bench.gpu.register(page[-page.ctypes.data % 4096 :][:4096]).close()


def memory_of_cuda(bench):
    from_cuda(bench.device, 1 << 16)


def collected(bench):
    """Surfaces that nobody closes are freed by garbage collection, in any thread."""
    for gpu in (bench.gpu, bench.host):
        surface = gpu.surface(1 << 16)
        cycle = [surface]
        cycle.append(cycle)
        del surface, cycle
    gc.collect()


def kernels(bench):
    with CudaGpu(0, "device", driver=bench.driver) as gpu, gpu.surface(NBYTES) as surface:
        surface.fill(1)
        gpu.verify(surface, seed=1)


def pins(bench):
    # As in a context that another library has made.
    unordered = mock.patch.object(CudaDevice, "copies_ordered", False)
    with unordered, bench.gpu.surface(1 << 16) as surface:
        surface.acquire()
        surface.release()
        with contextlib.suppress(peerdma.UnsupportedError):  # a GPU that exports nothing
            surface.dmabuf().close()
    with bench.board.pin(bench.kept), bench.board.pin(Array(bench.kept)):
        pass


def exports(bench):
    (extent,) = bench.kept.extents()
    with extent.gpu_file():
        pass


def copies_are_ordered_by_the_context(bench):
    """The flag is set already, as by the first pin that needs it."""
    with bench.device.current():
        bench.device._order_all_copies("test")


def flushes(bench):
    bench.device.flush_writes()


def arrays_of_others(bench):
    array = describe(Array(bench.kept), ordered=False)
    block = bench.arrays.block(array.address)
    assert bench.arrays.one_part(block, array)
    assert bench.arrays.memory(array, None).nbytes == NBYTES
    bench.arrays.current_device()
    with bench.gpu.register(Array(bench.kept, bench.stream)):
        pass
    bench.board.copy(Array(bench.kept, bench.stream), np.zeros(NBYTES, np.uint8))


def pinned_memory_of_others(bench):
    memory = from_cuda(bench.device, NBYTES)
    register(bench.device, describe(memory.array()))


def waits(bench):
    wait_for_producer(bench.device, Array(bench.kept, bench.stream), "test")
    bench.device.wait_for(ALL_STREAMS)
    bench.gpu.synchronize()


def copies(bench):
    bench.board.copy(bench.source, bench.target)
    bench.board.copy(bench.kept, bench.target)


def copies_in_a_stream(bench):
    bench.board._ordered._told = False  # which kernels' loading it warns of, once
    bench.board.copy(bench.source, bench.target, stream=int(bench.stream)).result(PATIENCE)
    bench.board.copy(bench.kept, bench.target, stream=int(bench.stream)).result(PATIENCE)


def copies_in_a_graph(bench):
    """Of a capture beside the one that is not to be spoiled."""
    stream = bench.begin("RELAXED", False)
    bench.board.copy(bench.source, bench.target, stream=int(stream))
    bench.end(stream)


def launch_queue(bench):
    plan = bench.board.prepare(bench.source, bench.target)
    with bench.board.queue([plan], depth=8, gpu=bench.gpu) as queue:
        queue.enqueue(0, int(bench.stream))
        with bench.device.current():
            bench.call("cuStreamSynchronize", bench.stream)
        queue.check()
        queue._stream_queue._sweep()


#: What a library's function of CUDA is called by, at least.
TABLE = {
    opens_and_closes: """
        cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute cuDevicePrimaryCtxRetain
        cuDevicePrimaryCtxRelease cuCtxPushCurrent cuCtxPopCurrent cuStreamCreate cuStreamDestroy
        cuThreadExchangeStreamCaptureMode cuDevicePrimaryCtxGetState""",
    memory_of_the_gpu: """
        cuMemGetAllocationGranularity cuMemCreate cuMemRelease cuMemAddressReserve
        cuMemAddressFree cuMemMap cuMemUnmap cuMemSetAccess cuMemAlloc cuMemFree
        cuMemsetD8Async cuStreamSynchronize cuMemcpyHtoDAsync cuMemcpyDtoHAsync""",
    memory_of_the_host: "cuMemHostRegister cuMemHostUnregister cuMemHostGetDevicePointer",
    memory_of_cuda: "cuMemHostAlloc cuMemFreeHost cuMemHostGetDevicePointer",
    collected: "cuMemFree cuMemHostUnregister",
    kernels: """
        cuModuleLoadData cuModuleUnload cuModuleGetFunction cuLaunchKernel
        cuOccupancyMaxActiveBlocksPerMultiprocessor""",
    pins: "cuPointerSetAttribute cuMemGetHandleForAddressRange",
    exports: """
        cuMemRetainAllocationHandle cuMemGetAllocationPropertiesFromHandle
        cuMemExportToShareableHandle cuMemRelease cuDeviceGetUuid""",
    copies_are_ordered_by_the_context: "cuCtxGetFlags",
    flushes: "cuFlushGPUDirectRDMAWrites",
    arrays_of_others: "cuPointerGetAttributes cuPointerGetAttribute cuCtxGetCurrent",
    pinned_memory_of_others: "cuMemHostGetDevicePointer",
    waits: "cuMemAlloc cuMemFree cuStreamGetCaptureInfo cuStreamSynchronize",
    copies: "cuMemcpyDtoHAsync",
    copies_in_a_stream: """
        cuStreamGetCtx cuCtxGetDevice cuStreamGetCaptureInfo cuStreamWaitValue32 cuLaunchHostFunc
        cuModuleGetLoadingMode""",
    copies_in_a_graph: """
        cuUserObjectCreate cuGraphRetainUserObject cuStreamWriteValue32 cuStreamWaitValue32""",
    launch_queue: "cuStreamGetId cuEventCreate cuEventRecord cuEventQuery cuEventDestroy",
}


def test_the_table_has_every_function_that_the_library_calls():
    walked = {name for names in TABLE.values() for name in names.split()} | ELSEWHERE | SPOILING
    found = {name for name in called() if name.startswith("cu")}
    # By ctypes, as arguments of a method: not bindings' functions.
    found |= {"cuLaunchHostFunc", "cuUserObjectCreate"}
    assert walked == found


def test_every_call_is_in_the_relaxed_mode_or_asks_only():
    """By the source: CUDA's bindings are called through `Driver`, or in a block of its modes."""
    direct = {"driver.py", "device.py", "memory.py", "stream_queue.py", "program.py"}
    direct |= {"exported.py"}
    for path in Path(cuda_driver.__file__).parent.glob("*.py"):
        names = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and node.attr.startswith("cu")
        }
        functions = {name for name in names if name in called()}
        assert not functions or path.name in direct, (path.name, functions)


@pytest.fixture(params=["stand-in", *(["real"] if CUDA else [])])
def bench(request, monkeypatch):
    """A simulated board, with CUDA's stand-in or the real one."""
    if request.param == "real":
        real = cuda_driver.load()
    else:
        request.getfixturevalue("cuda_api").frees_wait = True
        request.getfixturevalue("cuda_api").attributes.update(VIRTUAL)
        real = fake_driver(request.getfixturevalue("cuda_api"))
    names: set[str] = set()
    recorded = Recorder(real.api, names), real.nvrtc, real.version, Recorder(real.library, names)
    driver = Driver(*recorded)
    for module in ("arrays", "gpu"):
        monkeypatch.setattr(f"peerdma.cuda.{module}.load", lambda: driver)
    with contextlib.ExitStack() as undo:
        board = undo.enter_context(peerdma.open("sim", arguments=LAUNCHING))
        # This process copies, which is what calls CUDA.
        monkeypatch.setattr(board._backend._platform.client, "maps_gpus", False)
        bench = Bench(board, driver, names, undo)
        # CUDA may wait for all streams when it loads a kernel at its first launch.
        kernels(bench)
        copies_in_a_stream(bench)
        copies_are_ordered_by_the_context(bench)
        yield bench
        undo.callback(wait_for_threads)
        if request.param != "real":
            real.api.calls.clear()  # which have the queue
        undo.pop_all().close()
    del bench


def in_thread(work) -> None:
    """Calls it in another thread."""
    errors = []

    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(2 * PATIENCE)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
@pytest.mark.parametrize("own", [False, True], ids=["other-thread", "same-thread"])
def test_a_capture_goes_on_beside_each_call(bench, own, blocking):
    for mode in MODES:
        for row, functions in TABLE.items():
            stream = bench.begin(mode, blocking)
            bench.names.clear()
            if own:
                row(bench)
            else:
                in_thread(lambda row=row: row(bench))
            made = set(bench.names)
            assert bench.captures(stream), f"{row.__name__} spoils a capture of the mode {mode}"
            bench.end(stream)
            assert set(functions.split()) <= made, row.__name__
            assert not SPOILING & made, row.__name__


@pytest.mark.parametrize("mode", MODES)
def test_what_cannot_be_waited_for_is_refused_and_the_capture_goes_on(bench, mode):
    """The default stream, which waits for streams like the captured one; and that one itself."""
    for blocking, stream in ((True, 1), (True, None), (False, None)):
        captured = bench.begin(mode, blocking)
        array = Array(bench.kept, stream or int(captured))
        for ask in (
            lambda array=array: bench.board.copy(array, bench.target),
            lambda array=array: bench.gpu.register(array),
        ):
            with pytest.raises(peerdma.PeerdmaError, match=r"CAPTURE_IMPLICIT|is being capt"):
                in_thread(ask)
            assert bench.captures(captured)
        bench.end(captured)


def test_the_flag_that_spoils_captures_is_set_once_and_refused_in_words(cuda_api):
    """Beside a capture that can be seen, it is not even tried."""
    memory = np.zeros(2 * 4096, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 4096
    cuda_api.map(start, 4096)
    cuda_api.active = True
    driver = fake_driver(cuda_api)
    with CudaGpu(0, "device", driver=driver) as gpu, gpu.surface(NBYTES) as own:
        array = Array(own)
        array.__cuda_array_interface__["data"] = start, False
        surface = gpu.register(array)
        for blocking in (True, False):
            with gpu.device.current():
                stream = driver.call("cuStreamCreate", 0 if blocking else 1, action="test")
                driver.call("cuStreamBeginCapture", stream, 0, action="test")
            with pytest.raises(peerdma.PinError, match="Pin some such memory once before all capt"):
                surface.acquire()
            with gpu.device.current():
                spoilt = int(cuda_api.cuStreamEndCapture(stream)[0])
                driver.call("cuStreamDestroy", stream, action="test")
            assert bool(spoilt) != blocking
        cuda_api._graphs.clear()
        for _ in range(2):
            surface.acquire()
            surface.release()
        assert cuda_api.named("cuCtxSetFlags") == [(8 | 128,)] * 2  # the first one failed
        surface.close()
    cuda_api.mapped.clear()


def test_a_wait_for_all_waits_for_streams_of_others(bench):
    """Without ``cuCtxSynchronize``, beside a capture."""
    captured = bench.begin("GLOBAL", False)
    memory = from_cuda(bench.device, NBYTES)
    word = memory.array()[:4].view(np.uint32)
    with bench.device.current():
        bench.call("cuStreamWaitValue32", bench.stream, memory.device_address, 1, 0)
    opener = threading.Timer(0.3, lambda: word.__setitem__(0, 1))
    opener.start()
    bench.gpu.synchronize()
    assert word[0] == 1
    opener.join()
    assert bench.captures(captured)
    bench.end(captured)


def test_a_wait_for_all_frees_nothing_while_a_stream_waits_for_a_board(device_gpu, cuda_api):
    """The board's copy may need calls of CUDA, which would wait for the free."""
    for waiting, function in ((True, "cuCtxSynchronize"), (False, "cuMemFree")):
        if waiting:
            device_gpu.device.idle.watch_begins()
        cuda_api.calls.clear()
        device_gpu.synchronize()
        assert cuda_api.named(function)
        assert waiting or not cuda_api.named("cuCtxSynchronize")
        if waiting:
            assert not cuda_api.named("cuMemFree")
            device_gpu.device.idle.watch_ended()
