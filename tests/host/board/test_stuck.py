# SPDX-License-Identifier: BSD-2-Clause
"""Streams that wait for a board while CUDA waits for them: what can be avoided is, no stream hangs.

The stand-in for CUDA loads kernels as unkindly as CUDA's lazy loading may.
"""

import gc
import threading
import time
from functools import partial

import pytest

import peerdma
from peerdma.board import ordered
from peerdma.cuda.gpu import CudaGpu
from tests.host.board.streams import PATIENCE, Gate, Machine, unused

NBYTES = 4096


@pytest.fixture(autouse=True)
def lazy(cuda_loaded, monkeypatch):
    """Kernels are loaded when they are first launched; the library's patience is short."""
    monkeypatch.setattr(ordered, "_STUCK_SECONDS", 1.0)
    cuda_loaded.lazy = True
    return cuda_loaded


@pytest.fixture
def meanwhile(lazy):
    """Has a kernel launched for the first time while a copy is in a stream, which goes on then.

    CUDA waits for the stream to load the kernel, and whoever calls CUDA waits for that.
    """

    def launch(machine, put):
        stream = machine.stream()
        gate = Gate(machine, stream)
        job = put(stream)
        with machine.gpu.surface(NBYTES) as other:
            launching = threading.Thread(target=other.fill, args=(1,))
            launching.start()
            # The stream comes to the copy when CUDA waits for it already.
            while not lazy.is_loading():
                time.sleep(0.001)
            gate.open()
            machine.synchronize(stream)
            launching.join(PATIENCE)
            assert not launching.is_alive()
            machine.gpu.verify(other, seed=1)
        return job

    return launch


@pytest.fixture
def machine(lazy, request):
    """A board on the backend asked for, and a GPU."""
    kernel = request.getfixturevalue("node_driver") if request.param == "kernel" else None
    with peerdma.open(kernel.path if kernel else "sim") as board, CudaGpu(0, "device") as gpu:
        machine = Machine(board, gpu, kernel)
        yield machine
        machine.close()
        del machine


SIMULATED = pytest.mark.parametrize("machine", ["simulated"], indirect=True)
KERNEL = pytest.mark.parametrize("machine", ["kernel"], indirect=True)


@pytest.fixture
def pair(machine):
    """Two surfaces."""
    with machine.gpu.surface(NBYTES) as source, machine.gpu.surface(NBYTES) as target:
        yield source, target
        unused(source, target)


@SIMULATED
def test_who_serves_a_simulated_board_is_stuck_in_cuda(meanwhile, machine, pair):
    source, target = pair
    source.set(7)
    job = meanwhile(machine, lambda stream: machine.board.copy(*pair, stream=int(stream)))
    with pytest.raises(peerdma.Timeout, match="CUDA_MODULE_LOADING=EAGER"):
        job.result(PATIENCE)
    # Board and streams are as good as before.
    for copy in (machine.board.submit, partial(machine.board.copy, stream=machine.stream())):
        target.set(0)
        assert copy(source, target).result(PATIENCE).bytes == NBYTES
        assert (target.get() == 7).all()


@KERNEL
def test_a_copy_by_a_board_behind_the_driver_needs_no_cuda(meanwhile, machine, pair):
    job = meanwhile(machine, lambda stream: machine.board.copy(*pair, stream=int(stream)))
    assert job.result(PATIENCE).bytes == NBYTES


@KERNEL
def test_who_flushes_the_gpu_is_stuck_in_cuda(meanwhile, machine, pair, lazy):
    lazy.attributes["GPU_DIRECT_RDMA_WRITES_ORDERING"] = 0
    job = meanwhile(machine, lambda stream: machine.board.copy(*pair, stream=int(stream)))
    assert isinstance(job.exception(PATIENCE), peerdma.Timeout)


@SIMULATED
def test_a_graph_goes_on_without_a_copy_that_was_given_up(meanwhile, machine, pair):
    stream = machine.stream()
    graph, job = machine.capture(stream, lambda: machine.board.copy(*pair, stream=int(stream)))
    machine.call("cuGraphLaunch", graph, stream)
    assert job.result(PATIENCE).bytes == NBYTES
    meanwhile(machine, lambda stream: machine.call("cuGraphLaunch", graph, stream))
    assert isinstance(job.exception(PATIENCE), peerdma.Timeout)
    machine.call("cuGraphLaunch", graph, stream)
    machine.synchronize(stream)
    machine.call("cuGraphExecDestroy", graph)


@KERNEL
def test_kernels_of_the_library_are_loaded_before_a_stream_waits(machine, pair, lazy):
    """Those that wait where the device has no memory operations."""
    lazy.attributes["CAN_USE_64_BIT_STREAM_MEM_OPS"] = 0
    board, stream, other = machine.board, machine.stream(), machine.stream()
    board.copy(*pair, stream=int(other)).result(PATIENCE)
    gate = Gate(machine, stream)
    board.copy(*pair, stream=int(stream))
    graph, _ = machine.capture(other, lambda: board.copy(*pair, stream=int(other)))
    machine.call("cuGraphLaunch", graph, other)
    machine.synchronize(other)
    gate.open()
    machine.synchronize(stream)
    machine.call("cuGraphExecDestroy", graph)


@KERNEL
def test_memory_of_the_gpu_is_freed_when_no_stream_waits(machine, pair, lazy):
    """CUDA waits for streams to free memory, and holds the thread that ends their copies up."""
    stream = machine.stream()
    gate = Gate(machine, stream)
    job = machine.board.copy(*pair, stream=int(stream))
    before = len(lazy.named("cuMemFree"))
    machine.gpu.surface(NBYTES).close()
    gc.collect()
    assert len(lazy.named("cuMemFree")) == before
    gate.open()
    job.result(PATIENCE)
    machine.synchronize(stream)
    until = time.monotonic() + PATIENCE
    while len(lazy.named("cuMemFree")) == before:
        assert time.monotonic() < until, "the memory is kept"
        time.sleep(0.001)


@SIMULATED
@pytest.mark.parametrize("loads", ["lazily", "eagerly"])
def test_the_log_says_beforehand_that_this_may_happen(machine, pair, lazy, loads, caplog):
    """Once for a board; not where it cannot happen."""
    lazy.lazy = loads == "lazily"
    stream = machine.stream()
    for _ in range(2):
        machine.board.copy(*pair, stream=int(stream)).result(PATIENCE)
    said = [text for name, _, text in caplog.record_tuples if name == "peerdma.board.ordered"]
    assert len(said) == (loads == "lazily")
    assert all("CUDA_MODULE_LOADING=EAGER" in text for text in said)


@KERNEL
def test_a_board_that_needs_no_cuda_has_nothing_to_say(machine, pair, caplog):
    machine.board.copy(*pair, stream=int(machine.stream())).result(PATIENCE)
    assert not [name for name, *_ in caplog.record_tuples if name == "peerdma.board.ordered"]
