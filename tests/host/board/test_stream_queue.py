# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues in streams and graphs: on a stand-in for CUDA, and on a real GPU.

On the stand-in the kernel is C++, compiled from the same source, and its thread the stream's.
"""

import gc
import threading
import time

import numpy as np
import pytest

import peerdma
from peerdma.board.queue_memory import GENERATION, TAIL
from peerdma.cuda import stream_queue
from peerdma.cuda.device import CudaDevice
from peerdma.cuda.gpu import CudaGpu
from tests.host.board.launch_helpers import LAUNCHING
from tests.host.board.streams import PATIENCE, Gate, Machine, unused
from tests.host.conftest import CUDA

NBYTES = 4096


@pytest.fixture(params=["stand-in-device", "stand-in-host", *CUDA])
def machine(request):
    """A board, and a GPU with surfaces in each kind of memory; no threads are left."""
    if request.param in CUDA:
        memory = CUDA[request.param][1]
    else:
        request.getfixturevalue("cuda_loaded")
        memory = request.param.removeprefix("stand-in-")
    with peerdma.open("sim", arguments=LAUNCHING) as board, CudaGpu(0, memory) as gpu:
        machine = Machine(board, gpu)
        yield machine
        machine.close()
        if request.param not in CUDA:
            gpu.device.driver.api.calls.clear()  # which have the queue
        del machine
    wait_for_threads()


def wait_for_threads():
    """Of queues that are closed, and whose graphs are gone."""
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "peerdma stream queue":
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture
def pairs(machine):
    """Two pairs of surfaces, each a source and a target."""
    surfaces = [machine.gpu.surface(NBYTES) for _ in range(4)]
    yield [surfaces[:2], surfaces[2:]]
    unused(*surfaces)


@pytest.fixture
def queue(machine, pairs):
    with machine.board.queue([machine.board.prepare(*pair) for pair in pairs], depth=8) as queue:
        yield queue


@pytest.fixture(params=["operations", "kernels"])
def waiting(request, monkeypatch):
    """With memory operations, and without: a kernel waits then."""
    if request.param == "kernels":
        real = CudaDevice.attribute
        without = "CAN_USE_64_BIT_STREAM_MEM_OPS"
        monkeypatch.setattr(
            CudaDevice, "attribute", lambda self, name: name != without and real(self, name)
        )


def launches(machine):
    """How often a graph is launched: the stand-in and the board under it take their time."""
    return 20 if machine.gpu.name.startswith("Fake") else 1000


def replayed(machine, pair, put):
    """What arrives of so many launches of a graph that `put` captures, and what should."""
    stream = machine.stream()
    graph, _ = machine.capture(stream, lambda: put(int(stream)))
    count = launches(machine)
    found = np.zeros((count, 1), np.uint32)
    for number in range(count):
        machine.set(pair[0], number % 251 + 1, stream)
        machine.call("cuGraphLaunch", graph, stream)
        machine.read_word(pair[1], found[number], stream)
    machine.synchronize(stream)
    machine.call("cuGraphExecDestroy", graph)
    return found[:, 0].tolist(), [(n % 251 + 1) * 0x0101_0101 for n in range(count)]


def test_a_copy_is_between_the_streams_work_before_and_after_it(waiting, machine, pairs, queue):
    stream = machine.stream()
    found = np.zeros((20, 1), np.uint32)
    source, target = pairs[0]
    for value in range(20):
        machine.set(source, value, stream)
        queue.enqueue(0, int(stream))
        machine.read_word(target, found[value], stream)
    machine.synchronize(stream)
    assert found[:, 0].tolist() == [value * 0x0101_0101 for value in range(20)]
    queue.check()
    stats = queue.stats()
    assert (stats.submitted, stats.completed, stats.missed) == (20, 20, 0)


def test_a_graph_copies_what_is_there_at_each_launch(waiting, machine, pairs, queue):
    found, wanted = replayed(machine, pairs[1], lambda stream: queue.enqueue(1, stream))
    assert found == wanted
    queue.check()
    assert queue.stats().completed == len(wanted)


def test_a_graph_with_a_tail_of_the_capture_moves_nothing_again(machine, pairs, queue):
    """What the test before is to find: constants of the capture, that are old the second time."""
    device, memory = queue.device, queue._memory
    ticket = memory.submit(1, queue._run.slots[1], 0)  # a generation that the board ignores

    def put(stream):
        tail = TAIL.put(ticket + 1 & 0xFFFF) | GENERATION.put(queue._run.generation)
        machine.call("cuStreamWriteValue32", stream, device.tail, tail, 0)
        machine.call("cuStreamWaitValue32", stream, device.done + 4, 1, 0)

    found, wanted = replayed(machine, pairs[1], put)
    assert found == [wanted[0]] * len(wanted)
    assert queue.stats().completed == 1


def test_a_stream_that_waits_holds_no_other_up(machine, pairs, queue):
    first, second = machine.stream(), machine.stream()
    queue.enqueue(0, int(second))  # which loads the kernel
    machine.synchronize(second)
    machine.set(pairs[0][0], 5, second)
    machine.set(pairs[1][0], 6, second)
    machine.synchronize(second)
    gate = Gate(machine, first)
    queue.enqueue(0, int(first))
    queue.enqueue(1, int(second))
    machine.synchronize(second)
    assert (pairs[1][1].get() == 6).all() and not pairs[0][1].get().any()
    assert queue.stats().submitted == 2
    gate.open()
    machine.synchronize(first)
    assert (pairs[0][1].get() == 5).all()


def test_a_plan_in_two_streams_hangs_none(waiting, machine, pairs, queue):
    streams = [machine.stream() for _ in range(2)]
    machine.set(pairs[0][0], 7, streams[0])
    machine.synchronize(streams[0])
    for _ in range(launches(machine)):
        for stream in streams:
            queue.enqueue(0, int(stream))
    for stream in streams:
        machine.synchronize(stream)
    queue.wait(queue._memory.drawn() - 1)
    assert (pairs[0][1].get() == 7).all()
    assert queue.stats().completed == 2 * launches(machine)


def test_no_room_lets_the_stream_go_on_and_is_told(waiting, machine, pairs, queue):
    stream = machine.stream()
    queue.enqueue(0, int(stream))
    machine.synchronize(stream)
    memory = queue._memory
    before = int(memory._row["next"][0])
    memory._row["next"] = before + queue.depth  # as if so many were on their way
    began = time.monotonic()
    queue.enqueue(0, int(stream), timeout=0.01)
    machine.synchronize(stream)
    assert time.monotonic() - began < 10
    memory._row["next"] = before
    with pytest.raises(peerdma.Timeout, match="1 copies of streams were not made"):
        queue.check()
    with pytest.raises(peerdma.Timeout, match="no room in the queue in time"):
        queue.enqueue(0, int(stream))
    assert queue.stats().missed == 1
    queue.resume()
    queue.check()
    queue.enqueue(0, int(stream))
    machine.synchronize(stream)
    queue.check()


def test_a_stream_that_comes_to_a_queue_that_has_ended_goes_on(waiting, machine, pairs, queue):
    stream = machine.stream()
    queue.enqueue(0, int(stream))
    machine.synchronize(stream)
    gate = Gate(machine, stream)
    machine.set(pairs[0][0], 9, stream)
    queue.enqueue(0, int(stream))
    queue.close()
    for call in (queue.check, lambda: queue.enqueue(0, int(stream))):
        with pytest.raises(peerdma.PeerdmaError, match="the queue has ended: it was closed"):
            call()
    gate.open()
    machine.synchronize(stream)
    assert not pairs[0][1].get().any()
    assert queue.stats().missed == 1


def test_a_graph_outlives_its_queue(machine, pairs, queue):
    """It moves nothing then, and uses memory that is kept for it."""
    stream = machine.stream()
    graph, _ = machine.capture(stream, lambda: queue.enqueue(0, int(stream)))
    machine.set(pairs[0][0], 3, stream)
    machine.call("cuGraphLaunch", graph, stream)
    machine.synchronize(stream)
    assert (pairs[0][1].get() == 3).all()
    with pytest.raises(peerdma.PinError, match="surface that is pinned"):
        pairs[0][0].close()
    queue.close()
    machine.set(pairs[0][0], 4, stream)
    for _ in range(3):
        machine.call("cuGraphLaunch", graph, stream)
    machine.synchronize(stream)
    assert (pairs[0][1].get() == 3).all()
    assert queue.stats().missed == 3
    (thread,) = [each for each in threading.enumerate() if each.name == "peerdma stream queue"]
    thread.join(1.5)
    assert thread.is_alive()
    machine.call("cuGraphExecDestroy", graph)


def test_a_stream_that_waits_when_the_queue_is_closed_goes_on(machine, pairs, queue):
    """The board waits for memory that nobody serves, or for a ticket that is not announced."""
    stream = machine.stream()
    queue.enqueue(0, int(stream))
    machine.synchronize(stream)
    memory = queue._memory
    published = int(memory._row["published"][0])
    memory._row["published"] = published - 1  # nobody moves the tail on from there
    memory._row["written"][(published - 1) % queue.depth] = published - 2
    queue.enqueue(0, int(stream))
    time.sleep(0.1)
    assert memory._row["done"][0] == 0 and queue.stats().completed == 1
    queue.close()
    machine.synchronize(stream)


def test_streams_go_on_when_the_board_does_not(monkeypatch, machine, pairs, queue):
    stream = machine.stream()
    queue.enqueue(0, int(stream))
    machine.synchronize(stream)
    monkeypatch.setattr(stream_queue, "_STUCK_SECONDS", 0.5)
    memory = queue._memory
    published = int(memory._row["published"][0])
    memory._row["published"] = published - 1
    memory._row["written"][(published - 1) % queue.depth] = published - 2
    queue.enqueue(0, int(stream))
    machine.synchronize(stream)
    until = time.monotonic() + PATIENCE
    while not queue.closed and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(peerdma.Timeout, match="no ticket was done for long"):
        queue.check()


def test_a_copy_whose_pin_is_closed_lets_the_stream_go_on_and_is_told(machine, pairs):
    board, stream = machine.board, machine.stream()
    with board.pin(pairs[0][0]) as pin:
        plans = [board.prepare(pin, pairs[0][1]), board.prepare(*pairs[1])]
        with board.queue(plans, depth=8) as queue:
            queue.enqueue(0, int(stream))
            machine.synchronize(stream)
            began = time.monotonic()
            pin.close()  # the queue polls, with this slot as its last
            queue.enqueue(0, int(stream))  # the board sets no done word of it
            machine.synchronize(stream)
            assert time.monotonic() - began < 20
            with pytest.raises(peerdma.TransferError, match="failed with slot"):
                queue.check()
            with pytest.raises(peerdma.TransferError, match=r"queue\.resume\(\) starts tickets"):
                queue.enqueue(1, int(stream))
            queue.resume()
            queue.enqueue(1, int(stream))
            machine.synchronize(stream)
            queue.check()
        del plans


def test_what_cannot_be_enqueued(machine, queue):
    stream = machine.stream()
    for wrong, error, match in (
        ((2, int(stream)), ValueError, "plans are 0 to 1, not 2"),
        ((0, "stream"), TypeError, "a stream is one of"),
    ):
        with pytest.raises(error, match=match):
            queue.enqueue(*wrong)
    with pytest.raises(ValueError, match="more than 0 s"):
        queue.enqueue(0, int(stream), timeout=0)
    with pytest.raises(peerdma.PeerdmaError, match="the host submits nothing to it"):
        queue.submit(0)


def test_a_queue_for_no_cuda_gpu():
    with (
        peerdma.open("sim", arguments=LAUNCHING) as board,
        board.queue([board.prepare(bytearray(8), bytearray(8))]) as queue,
    ):
        with pytest.raises(peerdma.UnsupportedError, match="for no CUDA GPU"):
            queue.enqueue(0, 1)
        queue.wait(queue.submit(0))


def test_a_gpu_that_has_to_be_flushed_by_the_host(cuda_loaded, node_driver):
    """As behind a kernel driver, where the board writes the GPU's memory by itself."""
    cuda_loaded.attributes["GPU_DIRECT_RDMA_WRITES_ORDERING"] = 0
    with CudaGpu(0, "device") as gpu, pytest.raises(peerdma.UnsupportedError, match="told by the"):
        stream_queue.StreamQueue(
            gpu.device, None, 0, lambda: None, lambda: None, staged=False, peer=True
        )


def test_the_default_stream_is_not_the_librarys_own(machine, queue):
    with machine.device.current():
        queue.enqueue(0, 0)
    machine.call("cuStreamSynchronize", 0)
    api = machine.device.driver.api
    if machine.gpu.name.startswith("Fake"):
        *_, stream, _, _ = api.named("cuLaunchKernel")[-1]
        assert stream == 0
    queue.check()
