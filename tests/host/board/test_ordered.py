# SPDX-License-Identifier: BSD-2-Clause
"""Copies in the order of CUDA streams, and in graphs: on stand-ins, and on a real GPU."""

import gc
import re
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import peerdma
from peerdma.cuda.device import CudaDevice
from peerdma.cuda.gates import handle_of
from peerdma.cuda.gpu import CudaGpu
from peerdma.uapi import Reason
from tests.host.board.streams import PATIENCE, Gate, Machine, unused
from tests.host.conftest import CUDA
from tests.host.programs import HOST, ROOT, run

NBYTES = 4096


KINDS = ["kernel", "simulated", *CUDA]


@pytest.fixture(params=KINDS)
def machine(request):
    """Stand-ins for CUDA and a kernel driver or with the simulated board; and a real GPU."""
    if request.param in CUDA:
        memory = CUDA[request.param][1]
    else:
        request.getfixturevalue("cuda_loaded")
        memory = "device"
    kernel = request.getfixturevalue("node_driver") if request.param == "kernel" else None
    with peerdma.open(kernel.path if kernel else "sim") as board, CudaGpu(0, memory) as gpu:
        machine = Machine(board, gpu, kernel)
        yield machine
        machine.close()
        del machine


@pytest.fixture
def pair(machine):
    """Two surfaces."""
    with machine.gpu.surface(NBYTES) as source, machine.gpu.surface(NBYTES) as target:
        yield source, target
        unused(source, target)


def test_a_copy_is_between_the_streams_work_before_and_after_it(machine, pair):
    source, target = pair
    stream = machine.stream()
    found = np.zeros((20, 1), np.uint32)
    jobs = []
    for value in range(20):
        machine.set(source, value, stream)
        jobs.append(machine.board.copy(source, target, stream=int(stream)))
        machine.read_word(target, found[value], stream)
    machine.synchronize(stream)
    assert found[:, 0].tolist() == [value * 0x0101_0101 for value in range(20)]
    assert all(job.result(PATIENCE).bytes == NBYTES for job in jobs)


def test_a_stream_that_waits_holds_no_other_up(machine, pair):
    """The first waits for the second, whose copy is asked for later."""
    source, target = pair
    first, second = machine.stream(), machine.stream()
    gate = Gate(machine, first)
    with machine.gpu.surface(NBYTES) as third:
        machine.set(source, 5, second)
        early = machine.board.copy(target, third, stream=int(first))
        assert not early.done()
        late = machine.board.copy(source, target, stream=int(second))
        machine.synchronize(second)
        assert late.result(PATIENCE).bytes == NBYTES
        assert not early.done()
        with pytest.raises(TimeoutError):
            early.result(0.01)
        gate.open()
        machine.synchronize(first)
        early.result(PATIENCE)
        assert (third.get() == 5).all()


@pytest.fixture(params=["operations", "kernels"])
def launches(request, monkeypatch):
    """How many there are, with memory operations and without."""
    if request.param == "kernels":
        real = CudaDevice.attribute
        without = "CAN_USE_64_BIT_STREAM_MEM_OPS"
        monkeypatch.setattr(
            CudaDevice, "attribute", lambda self, name: name != without and real(self, name)
        )
        return 50
    return 1000


def test_a_graph_copies_what_is_there_at_each_launch(launches, machine, pair):
    source, target = pair
    stream = machine.stream()
    plan = machine.board.prepare(source, target)
    plan.submit(stream=int(stream))
    machine.synchronize(stream)
    graph, job = machine.capture(stream, lambda: plan.submit(stream=int(stream)))
    assert not job.done()
    if machine.kernel is None and machine.gpu.name.startswith("Fake"):
        launches = min(launches, 20)  # the simulated board takes its time
    found = np.zeros((launches, 1), np.uint32)
    for number in range(launches):
        machine.set(source, number % 251, stream)
        machine.call("cuGraphLaunch", graph, stream)
        machine.read_word(target, found[number], stream)
    machine.synchronize(stream)
    assert found[:, 0].tolist() == [n % 251 * 0x0101_0101 for n in range(launches)]
    assert job.result(PATIENCE).bytes == NBYTES
    machine.call("cuGraphExecDestroy", graph)


def test_a_graph_keeps_what_it_copies_until_it_is_gone(machine, pair):
    source, target = pair
    stream = machine.stream()
    machine.synchronize(stream)
    graph, job = machine.capture(
        stream, lambda: machine.board.copy(source, target, stream=int(stream))
    )
    plan = weakref.ref(job._plan)
    del job
    gc.collect()
    assert plan() is not None
    machine.set(source, 9, stream)
    machine.call("cuGraphLaunch", graph, stream)
    machine.synchronize(stream)
    assert (target.get() == 9).all()
    machine.call("cuGraphExecDestroy", graph)
    unused(source, target)
    assert plan() is None


def test_errors_are_the_jobs_and_no_stream_hangs(node_driver, cuda_loaded):
    with peerdma.open(node_driver.path) as board, CudaGpu(0, "device") as gpu:
        machine = Machine(board, gpu, node_driver)
        stream = machine.stream()
        source, target = gpu.surface(NBYTES), gpu.surface(NBYTES)
        failure = {"result": -5, "reason": Reason.ENGINE, "bytes": 0}
        node_driver.ends = [failure]
        job = board.copy(source, target, stream=int(stream))
        machine.synchronize(stream)
        with pytest.raises(peerdma.TransferError, match="the board reported an error"):
            job.result(PATIENCE)
        graph, job = machine.capture(stream, lambda: board.copy(source, target, stream=int(stream)))
        machine.call("cuGraphLaunch", graph, stream)
        machine.synchronize(stream)
        assert job.result(PATIENCE).bytes == NBYTES
        node_driver.ends = [failure]
        before = len(node_driver.named("SUBMIT"))
        for _ in range(3):
            machine.call("cuGraphLaunch", graph, stream)
        machine.synchronize(stream)
        assert isinstance(job.exception(PATIENCE), peerdma.TransferError)
        # It is not tried again.
        assert len(node_driver.named("SUBMIT")) == before + 1
        machine.call("cuGraphExecDestroy", graph)
        machine.close()
        unused(source, target)


def test_the_job_of_a_graph_that_is_never_launched_ends_with_it(machine, pair):
    stream = machine.stream()
    machine.board.copy(*pair, stream=int(stream)).result(PATIENCE)
    graph, job = machine.capture(stream, lambda: machine.board.copy(*pair, stream=int(stream)))
    machine.call("cuGraphExecDestroy", graph)
    with pytest.raises(peerdma.Cancelled, match="the graph was freed before it was launched"):
        job.result(PATIENCE)


def test_a_job_that_is_cancelled_before_its_turn_is_not_made(machine, pair):
    source, target = pair
    stream = machine.stream()
    gate = Gate(machine, stream)
    machine.set(source, 7, stream)
    job = machine.board.copy(source, target, stream=int(stream))
    told = threading.Event()
    job.add_done_callback(lambda _: told.set())
    assert job.cancel() and not job.cancel()
    with pytest.raises(peerdma.Cancelled):
        job.result(PATIENCE)
    assert told.wait(PATIENCE)
    gate.open()
    machine.synchronize(stream)
    assert not target.get().any()


def test_a_board_that_is_closed_lets_streams_go_on(machine, pair):
    source, target = pair
    stream = machine.stream()
    gate = Gate(machine, stream)
    job = machine.board.copy(source, target, stream=int(stream))
    machine.board.close()
    with pytest.raises(peerdma.Cancelled, match="board was closed before the stream came"):
        job.result(PATIENCE)
    gate.open()
    machine.synchronize(stream)
    with pytest.raises(peerdma.PeerdmaError, match="the board is closed"):
        machine.board.copy(source, target, stream=int(stream))
    wait_for_threads()


def wait_for_threads():
    """Of boards that are closed."""
    for thread in threading.enumerate():
        if thread.name == "peerdma streams":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_streams_of_any_library():
    class New:
        def __cuda_stream__(self):
            return 0, 70

    class Old:
        __cuda_stream__ = (0, 70)

    class Torch:
        cuda_stream = 70

    class Cupy:
        ptr = 70

    class Numba:
        handle = type("c_void_p", (), {"value": 70})

    for stream in (New(), Old(), Torch(), Cupy(), Numba(), 70, np.int64(70)):
        assert handle_of(stream) == 70
    Numba.handle.value = None
    assert handle_of(Numba()) == 0
    for wrong in (None, "stream", 1.5, True, object()):
        with pytest.raises(TypeError, match="a stream is one of PyTorch, CuPy, Numba or cuda"):
            handle_of(wrong)


def test_the_documentation(machine, pair):
    """What docs/jobs.md shows of streams, with a stream of the machine for PyTorch's."""
    source, target = pair
    section = (ROOT / "docs/jobs.md").read_text().split("\n## In the order of a CUDA stream\n")[1]
    (block,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)
    stream = machine.stream()
    torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: int(stream)))
    machine.set(source, 3, stream)
    names = {"board": machine.board, "a": source, "b": target, "torch": torch}
    exec(block, names)
    assert names.pop("job").result(PATIENCE).bytes == NBYTES
    assert (target.get() == 3).all()


def test_a_copy_in_a_stream_reports_no_progress(machine, pair):
    with pytest.raises(TypeError, match="reports no progress"):
        machine.board.copy(*pair, stream=machine.stream(), progress=print)


_PENDING = """
import pathlib, tempfile
import numpy as np, peerdma
from peerdma.cuda import arrays, gpu as gpus
from peerdma.kernel import node
from peerdma.kernel.backend import open_node
from peerdma.board.board import Board
from tests.host.kernel.fake_kernel import FakeKernel
from tests.host.cuda.fake_cuda import FakeCuda, fake_driver
kernel = FakeKernel(pathlib.Path(tempfile.mkdtemp()))
kernel.silent = True
node.fcntl.ioctl = kernel.ioctl
api = FakeCuda()
driver = fake_driver(api)
arrays.load = lambda: driver
board = Board(open_node(kernel.path, None))
gpu = gpus.CudaGpu(0, "device", driver=driver)
source, target = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
with gpu.device.current():
    streams = [driver.call("cuStreamCreate", 1, action="create") for _ in range(2)]
    word = np.zeros(1, np.uint32)
    driver.call("cuStreamWaitValue32", streams[1], word.ctypes.data, 1, 0, action="wait")
jobs = [board.copy(source, target, stream=stream) for stream in streams]
for job in jobs:
    job.add_done_callback(lambda job: print("ended:", type(job.exception()).__name__))
print("leaving", [job.done() for job in jobs])
"""


def test_the_interpreter_ends_with_copies_pending():
    """One is in progress on the board, the stream has not come to the other."""
    result = run(program=("-c", _PENDING), PYTHONPATH=f"{ROOT}:{HOST}", cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    assert result.stdout.splitlines() == [
        "leaving [False, False]",
        "ended: Cancelled",
        "ended: Cancelled",
    ]
