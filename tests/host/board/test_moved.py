# SPDX-License-Identifier: BSD-2-Clause
"""Arrays whose memory is taken from them: whatever outlives a call finds out before it is used."""

import ctypes
import time

import numpy as np
import pytest

import peerdma
from peerdma.cuda.gpu import CudaGpu
from peerdma.regs import Capability
from tests.host.conftest import CUDA
from tests.host.cuda.fake_cuda import CONTEXT

NBYTES = 8192


class Tensor:
    """As PyTorch's of the CPU: its storage can be taken away, and it says where it is by DLPack."""

    def __init__(self, folder=None):
        self.storage = np.zeros(NBYTES, np.uint8)
        self.kept = []  # so that the memory that was given back is no other's yet

    def move(self, storage):
        self.kept.append(self.storage)
        self.storage = storage

    def __dlpack_device__(self):
        return self.storage.__dlpack_device__()

    def __dlpack__(self, *, stream, max_version):
        return self.storage.__dlpack__(max_version=max_version)


class Torch(Tensor):
    """The same with what the library asks PyTorch's, which is quicker than DLPack."""

    nbytes = property(lambda self: self.storage.nbytes)

    def data_ptr(self):
        return self.storage.ctypes.data

    def is_contiguous(self):
        return self.storage.flags.c_contiguous


class Owned:
    """An array of numpy's, or a view of one; moved by what numpy lets programs do to it."""

    def __init__(self, folder, view):
        self.array = np.zeros(NBYTES, np.uint8)
        self.given = self.array[16:] if view else self.array

    def move(self):
        other = np.ones(4 * NBYTES, np.uint8)
        self.array.__setstate__(other.__reduce__()[2])


class Ctypes:
    """An array of ctypes, which resizes it although a buffer of it is in use."""

    def __init__(self, folder):
        self.given = (ctypes.c_uint8 * NBYTES)()

    def move(self):
        ctypes.resize(self.given, 64 * NBYTES)
        ctypes.resize(self.given, 6400 * NBYTES)


class Moving:
    """One of the kinds above, as `given` and `move`."""

    def __init__(self, tensor, storage):
        self.given, self.storage = tensor, storage

    def move(self):
        self.given.move(self.storage)


MOVES = {
    "dlpack-other-memory": lambda at: Moving(Tensor(), np.ones(NBYTES, np.uint8)),
    "dlpack-no-memory": lambda at: Moving(Tensor(), np.zeros(0, np.uint8)),
    "dlpack-fewer-bytes": lambda at: Moving(tensor := Tensor(), tensor.storage[:100]),
    "dlpack-strides": lambda at: Moving(tensor := Tensor(), tensor.storage[::2]),
    "torch-other-memory": lambda at: Moving(Torch(), np.ones(NBYTES, np.uint8)),
    "torch-no-memory": lambda at: Moving(Torch(), np.zeros(0, np.uint8)),
    "torch-fewer-bytes": lambda at: Moving(tensor := Torch(), tensor.storage[:100]),
    "torch-strides": lambda at: Moving(
        tensor := Torch(), np.lib.stride_tricks.as_strided(tensor.storage, (NBYTES,), (2,))
    ),
    "torch-raises": lambda at: Moving(Torch(), None),
    "numpy": lambda at: Owned(at, view=False),
    "numpy-view": lambda at: Owned(at, view=True),
    "ctypes": Ctypes,
}


@pytest.fixture(params=MOVES)
def moving(request, tmp_path):
    return MOVES[request.param](tmp_path)


def length(thing) -> int:
    return thing.nbytes if hasattr(thing, "nbytes") else NBYTES


def other(moving) -> np.ndarray:
    return np.zeros(length(moving.given), np.uint8)


@pytest.fixture
def driver(node_driver):
    """A driver whose board has launch queues and a source of frames."""
    node_driver.launch_count = 1
    node_driver.info.user_block = int.from_bytes(b"PATN", "little")
    node_driver.info.user_ratio = 1 << 8
    node_driver.info.capabilities |= Capability.FRAME_RECORDS
    return node_driver


@pytest.fixture
def board(driver):
    with peerdma.open(driver.path) as board:
        yield board
        for pin in list(board._pins):
            pin.close()


# What outlives a call, and how it is used afterwards ----------------------------------------


def plan_runs(board, moving):
    return board.prepare(other(moving), moving.given).run


def source_of_a_plan(board, moving):
    return board.prepare(moving.given, other(moving)).run


def plan_is_submitted(board, moving):
    plan = board.prepare(other(moving), moving.given)
    return lambda: plan.submit().result(60)


def pin_is_copied_to(board, moving):
    pin, source = board.pin(moving.given), other(moving)
    return lambda: board.copy(source[:100], pin[:100])


def plan_of_a_pin(board, moving):
    return board.prepare(other(moving), board.pin(moving.given)).run


def read_into_a_pin(board, moving):
    pin = board.pin(moving.given)
    return lambda: board.read(pin)


def ticket_of_a_queue(board, moving):
    queue = board.queue([board.prepare(other(moving), moving.given)])
    return lambda: queue.submit(0)


def queue_is_opened(board, moving):
    plan = board.prepare(other(moving), moving.given)
    return lambda: board.queue([plan])


def queue_is_given_to_kernels(board, moving):
    queue = board.queue([board.prepare(other(moving), moving.given)])
    return lambda: queue.device


USES = (
    plan_runs,
    source_of_a_plan,
    plan_is_submitted,
    pin_is_copied_to,
    plan_of_a_pin,
    read_into_a_pin,
    ticket_of_a_queue,
    queue_is_opened,
    queue_is_given_to_kernels,
)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_memory_that_has_moved_is_not_used(board, driver, moving, use):
    call = use(board, moving)
    moving.move()
    driver.calls.clear()
    with pytest.raises(peerdma.PinError, match=r"has moved since .* Prepare the plan, pin or reg"):
        call()
    assert not driver.named("SUBMIT", "CREATE_QUEUE")
    # A copy of what is there now is another copy.
    if isinstance(moving.given, Tensor) and moving.given.storage is not None:
        source = np.full(moving.given.storage.nbytes, 7, np.uint8)
        if moving.given.storage.flags.c_contiguous and source.size:
            board.copy(source, moving.given)
            assert (moving.given.storage == 7).all()


@pytest.mark.parametrize("use", USES[:6], ids=lambda use: use.__name__)
@pytest.mark.parametrize("kind", ["dlpack-other-memory", "torch-other-memory", "numpy-view"])
def test_memory_that_stays_is_used(board, driver, tmp_path, kind, use):
    moving = MOVES[kind](tmp_path)
    call = use(board, moving)
    for _ in range(3):
        call()
    assert len(driver.named("SUBMIT")) == 3


def test_a_pinned_array_that_numpy_resizes(board):
    array = np.zeros(NBYTES, np.uint8)
    with board.pin(array) as pin:
        array.resize(100 * NBYTES, refcheck=False)
        with pytest.raises(peerdma.PinError, match="has moved since"):
            board.read(pin[:100])


def test_frames_into_memory_that_has_moved(board, driver, moving):
    ring = [moving.given, other(moving)]
    frames = board.frames(ring)
    driver.fill(1, 1)
    next(frames)
    moving.move()
    before = driver.ring.released
    with pytest.raises(peerdma.PinError, match="has moved since"):
        next(frames)
    assert frames.closed and before == 0 and not driver.named("RELEASE_FRAMES")


@pytest.mark.parametrize("gpu", ["emulated", "stand-in"])
def test_a_registered_array_that_has_moved(request, board, moving, gpu):
    if gpu == "stand-in":
        request.getfixturevalue("cuda_loaded")
    with CudaGpu(0, "host") if gpu == "stand-in" else peerdma.gpu("emulated") as opened:
        surface = opened.register(moving.given)
        source = other(moving)
        plan, pin = board.prepare(source, surface), board.pin(surface)
        plan.run()
        moving.move()
        for call in (
            plan.run,
            lambda: board.copy(source[:9], pin[:9]),
            lambda: board.copy(source, surface),
            lambda: surface.set(0),
            surface.get,
            lambda: surface.fill(1),
            lambda: surface.array,
        ):
            with pytest.raises(peerdma.PinError, match="has moved since"):
                call()
        pin.close()
        del plan
        surface.close()


# In a GPU's memory --------------------------------------------------------------------------


class OnGpu:
    """An array by ``__cuda_array_interface__``, in memory of the stand-in for CUDA."""

    def __init__(self, address, nbytes=NBYTES):
        self.address, self.nbytes = address, nbytes

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
            "stream": 1,
        }


@pytest.fixture
def range_of_addresses(cuda_loaded):
    """A range in which the stand-in maps memory, aligned as CUDA's."""
    memory = np.zeros(16 * 4096, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 4096
    yield memory, start
    cuda_loaded.mapped.clear()


def map_parts(api, start, count, reserved=False):
    """Maps parts of 4 KiB; CUDA says the length of each, or of all that is reserved."""
    for number in range(count):
        extent = {"RANGE_START_ADDR": start, "RANGE_SIZE": 15 * 4096} if reserved else {}
        api.map(start + number * 4096, 4096, **extent)


REMAPS = {
    "first-part": lambda api, start: api.map(start, 4096),
    "last-part": lambda api, start: api.map(start + 4096, 4096),
    "hole": lambda api, start: api.unmap(start + 4096, 4096),
    "allocated-again": lambda api, start: [api.map(start + at, 4096) for at in (0, 4096)],
}


@pytest.mark.parametrize("reserved", [False, True], ids=["range-of-one", "range-of-all"])
@pytest.mark.parametrize("remap", REMAPS)
@pytest.mark.parametrize("use", USES[:6], ids=lambda use: use.__name__)
def test_a_part_that_is_replaced_at_the_same_address(
    board, driver, cuda_loaded, range_of_addresses, reserved, remap, use
):
    _, start = range_of_addresses
    map_parts(cuda_loaded, start, 2, reserved)

    class Remapped:
        given = OnGpu(start)

    call = use(board, Remapped)
    call()
    REMAPS[remap](cuda_loaded, start)
    driver.calls.clear()
    with pytest.raises(peerdma.PinError, match=r"has moved since .* other memory of the GPU"):
        call()
    assert not driver.named("SUBMIT")


@pytest.mark.parametrize("reserved", [False, True], ids=["range-of-one", "range-of-all"])
@pytest.mark.parametrize("at", [0, 100, 4095])
def test_an_array_over_several_parts_is_pinned_as_it_is(
    board, driver, cuda_loaded, range_of_addresses, reserved, at
):
    memory, start = range_of_addresses
    map_parts(cuda_loaded, start, 3, reserved)
    given, source = OnGpu(start + at), np.arange(NBYTES).astype(np.uint8)
    for _ in range(2):
        board.copy(source, given)
        assert (memory[start - memory.ctypes.data + at :][:NBYTES] == source).all()
        memory[:] = 0
    pins = driver.named("PIN_DMABUF")
    assert [said["length"] for _, said in pins] == [NBYTES, NBYTES]
    with board.pin(given) as pin:
        assert pin.nbytes == NBYTES
    # In one part: kept pinned, but never with memory that is not of the part.
    board.copy(source[:10], OnGpu(start + at, 10))
    assert driver.named("PIN_DMABUF")[-1][1]["length"] == (10 if reserved or at == 4095 else 4096)


@pytest.mark.parametrize("spoil", ["hole", "not-capable", "host"])
def test_a_part_that_no_board_reaches_is_refused(
    board, cuda_loaded, range_of_addresses, spoil, driver
):
    _, start = range_of_addresses
    map_parts(cuda_loaded, start, 3)
    if spoil == "hole":
        cuda_loaded.unmap(start + 4096, 4096)
    else:
        key = "IS_GPU_DIRECT_RDMA_CAPABLE" if spoil == "not-capable" else "MEMORY_TYPE"
        cuda_loaded.map(start + 4096, 4096, **{key: spoil == "host"})
    with CudaGpu(0) as gpu:
        for ask in (board.pin, gpu.register, lambda given: board.read(given)):
            with pytest.raises(peerdma.PinError, match=r"cannot (pin|register) 12288 bytes"):
                ask(OnGpu(start, 3 * 4096))
    assert not driver.named("PIN_DMABUF", "PIN_CUDA")


def test_surfaces_of_several_parts(board, cuda_loaded, range_of_addresses):
    memory, start = range_of_addresses
    map_parts(cuda_loaded, start, 2)
    with CudaGpu(0) as gpu, gpu.register(OnGpu(start)) as surface:
        board.copy(np.full(NBYTES, 5, np.uint8), surface)
        assert (memory[start - memory.ctypes.data :][:NBYTES] == 5).all()
        cuda_loaded.map(start + 4096, 4096)
        with pytest.raises(peerdma.PinError, match="has moved since"):
            board.copy(np.zeros(NBYTES, np.uint8), surface)


def test_a_copy_in_a_stream_of_an_array_that_has_moved(board, cuda_loaded, driver):
    with CudaGpu(0, "device") as gpu, gpu.surface(NBYTES) as one, gpu.surface(NBYTES) as two:
        with gpu.device.current():
            stream = gpu.device.driver.call("cuStreamCreate", 1, action="test")
        given, source = OnGpu(one.device_address), np.ones(NBYTES, np.uint8)
        plan = board.prepare(source, given)
        plan.submit(stream=stream).result(60)
        with gpu.device.current():
            gpu.device.driver.call("cuStreamSynchronize", stream, action="test")
        given.address = two.device_address
        driver.calls.clear()
        with pytest.raises(peerdma.PinError, match="has moved since"):
            plan.submit(stream=stream)
        assert not driver.named("SUBMIT") and not any(cuda_loaded._pending.values())
        assert one.get().all() and not two.get().any()
        with gpu.device.current():
            gpu.device.driver.call("cuStreamDestroy", stream, action="test")


@pytest.mark.parametrize("kind", ["numpy", "dlpack-other-memory", "torch-other-memory", "gpu"])
def test_it_takes_little_time_to_find_out(board, request, tmp_path, kind):
    """Few of the operations that Python can make in the 2 us that an array may take."""
    if kind == "gpu":
        cuda = request.getfixturevalue("cuda_loaded")
        memory = np.zeros(NBYTES, np.uint8)
        cuda.kinds[memory.ctypes.data] = {
            "MEMORY_TYPE": 2,
            "CONTEXT": CONTEXT,
            "IS_GPU_DIRECT_RDMA_CAPABLE": 1,
        }
        given = OnGpu(memory.ctypes.data)
    else:
        given = MOVES[kind](tmp_path).given
    plan = board.prepare(np.zeros(NBYTES, np.uint8), given)
    took = []
    for _ in range(200):
        began = time.perf_counter()
        plan.require_unmoved()
        took.append(time.perf_counter() - began)
    print(f"{kind}: {min(took) * 1e6:.2f} us")
    assert min(took) < 50e-6
    if kind == "gpu":
        cuda.kinds.clear()


@pytest.mark.skipif(not CUDA, reason="needs a GPU with PyTorch")
def test_storage_of_pytorch_that_is_freed_and_taken():
    """As sharded training does, on a real GPU."""
    torch = pytest.importorskip("torch")
    source = torch.ones(65_536, dtype=torch.uint8)
    with peerdma.open("sim") as board:
        for device in ("cpu", "cuda"):
            weights = torch.zeros(1 << 22, dtype=torch.uint8, device=device)
            plan = board.prepare(source, weights[:65_536])
            pin = board.pin(weights)
            plan.run()
            assert weights[:65_536].all()
            weights.untyped_storage().resize_(0)
            taken = torch.zeros(1 << 22, dtype=torch.uint8, device=device)
            for call in (plan.run, plan.submit, lambda pin=pin: board.copy(source, pin[:65_536])):
                with pytest.raises(peerdma.PinError, match="has moved since"):
                    call()
            assert not taken.any()
            for move in (
                lambda one: one.resize_(1 << 23),
                lambda one: one.set_(torch.zeros_like(one)),
                lambda one: setattr(one, "data", torch.zeros_like(one)),
            ):
                one = torch.zeros(65_536, dtype=torch.uint8, device=device)
                plan = board.prepare(source, one)
                move(one)
                with pytest.raises(peerdma.PinError, match="has moved since"):
                    plan.run()


def test_memory_that_was_given_back_is_said_to_have_moved(board, range_of_addresses, cuda_loaded):
    """Also where its library says nonsense of the array then, and its work is waited for."""
    _, start = range_of_addresses
    cuda_loaded.map(start, 4096)
    given, source = OnGpu(start, 4096), np.ones(4096, np.uint8)
    plan = board.prepare(source, given)
    given.address = 0
    for call in (plan.run, plan.submit):
        with pytest.raises(peerdma.PinError, match="has moved since"):
            call()


def test_what_takes_the_place_of_memory_that_moved_does_not_overlap_with_it(board):
    memory = np.zeros(2 * NBYTES, np.uint8)
    tensor = Tensor()
    tensor.storage = memory[:NBYTES]
    pin = board.pin(tensor)
    tensor.storage = memory[NBYTES:]
    with pytest.raises(peerdma.PinError, match="has moved since"):
        board.copy(memory[:NBYTES], pin)
