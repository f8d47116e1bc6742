# SPDX-License-Identifier: BSD-2-Clause
"""Arrays in a GPU's memory, of any library, as arguments of transfers: real ones where they are."""

import numpy as np
import pytest

import peerdma
from peerdma.cuda.arrays import CudaArrays
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory import dlpack
from peerdma.memory.external import describe
from tests.host.conftest import CUDA
from tests.host.cuda import libraries
from tests.host.cuda.fake_cuda import CONTEXT, DISCRETE, VIRTUAL

NBYTES = 5000
LIBRARIES = {"stand-in": libraries.StandIn, **(libraries.present() if CUDA else {})}


def random_bytes() -> np.ndarray:
    return np.random.default_rng(1).integers(1, 256, NBYTES, np.uint8)


def pinned_pages(driver) -> list[int]:
    """Addresses of the host's pages that were pinned, in order."""
    return [said["address"] for _, said in driver.named("PIN_PAGES")]


@pytest.fixture(params=LIBRARIES)
def library(request):
    """Each array library there is, in GPU memory; the first is a stand-in."""
    if request.param == "stand-in":
        request.getfixturevalue("cuda_loaded")
    with CudaGpu(0, "device") as gpu:
        yield LIBRARIES[request.param](gpu)


@pytest.fixture
def own_board(library):
    """A simulated board that knows this CUDA."""
    with peerdma.open("sim") as board:
        yield board


@pytest.mark.parametrize("attributes", [DISCRETE, VIRTUAL], ids=["cudaMalloc", "virtual"])
def test_an_array_is_of_the_gpu_that_has_it(cuda_loaded, attributes):
    """Not of the first, as DEVICE_ORDINAL of the bindings has it: what a board maps is another."""
    cuda_loaded.devices = 2
    cuda_loaded.attributes.update(attributes)
    arrays = CudaArrays()
    with CudaGpu(0, "device") as one, CudaGpu(1, "device") as two:
        for gpu, other in ((one, two), (two, one)):
            array = libraries.StandIn(gpu).make(random_bytes())
            external = describe(array, "use it")
            memory = arrays.memory(external, arrays.block(external.address))
            assert memory.cuda_device.index == gpu.index
            if attributes is VIRTUAL:
                (extent,) = memory.extents()
                with extent.gpu_file() as file:
                    assert file.device == gpu.device.uuid() != other.device.uuid()
                del extent, file
            with pytest.raises(peerdma.PinError, match=f"in GPU {gpu.index}, this is"):
                other.register(array)
            gpu.register(array).close()
            del array, external, memory
    arrays.close()


def test_arrays_in_gpu_memory_are_arguments(library, own_board):
    content = random_bytes()
    source, target = library.make(content), library.make(content * 0)
    own_board.copy(source, target)
    assert (library.read(target) == content).all()
    back = np.zeros(NBYTES, np.uint8)
    own_board.copy(target, back)
    assert (back == content).all()
    own_board.write(source)
    own_board.read(back)
    assert (back == content).all()
    with own_board.pin(source) as pin:
        assert pin.nbytes == NBYTES


def test_a_copy_waits_for_what_makes_its_arrays(library, own_board):
    """The producer is late: it has not begun when the copy is asked for."""
    content = random_bytes()
    source, target = library.make(content * 0), library.make(content * 0)
    with library.late(source, content):
        own_board.copy(source, target)
    assert (library.read(target) == content).all()
    with library.late(source, content[::-1].copy()):
        job = own_board.submit(source, target)
    job.result(60)
    assert (library.read(target) == content[::-1]).all()


class Unexported(libraries.StandIn.Array):
    """As PyTorch's in a GPU that is not its current one: refuses DLPack, and tells no stream."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        interface = self.__cuda_array_interface__
        self.__cuda_array_interface__ = interface | {"version": 2, "stream": None}

    def __dlpack_device__(self):
        return dlpack.CUDA, 0

    def __dlpack__(self, **_):
        raise BufferError("another GPU is the current one")


def test_an_array_whose_stream_is_not_told_waits_for_all_of_its_gpu(cuda_loaded, node_driver):
    content = random_bytes()
    target = np.zeros(NBYTES, np.uint8)
    cuda_loaded.frees_wait = True
    with CudaGpu(0, "device") as gpu, gpu.surface(NBYTES) as own:
        library = libraries.StandIn(gpu)
        array = Unexported(own.device_address, (NBYTES,), np.dtype(np.uint8), own)
        with library.late(library.view(own, "cuda"), content), peerdma.open() as board:
            board.copy(array, target)
    assert (target == content).all()


@pytest.fixture
def gpu_arrays(cuda_loaded):
    """The stand-in of a library."""
    with CudaGpu(0, "device") as gpu:
        yield libraries.StandIn(gpu)


def test_an_allocation_is_pinned_once_and_as_a_whole(
    gpu_arrays, node_driver, node_board, cuda_loaded
):
    tensor = gpu_arrays.make(random_bytes())
    target = np.zeros(10, np.uint8)
    for start in (0, 10):
        view = libraries.StandIn.Array(
            tensor.data.ctypes.data + start, (10,), np.dtype("u1"), tensor
        )
        node_board.copy(view, target)
        assert (target == random_bytes()[start : start + 10]).all()
    ((_, said),) = node_driver.named("PIN_DMABUF")
    (block,) = [kind for kind in cuda_loaded.kinds.values() if kind["MEMORY_TYPE"] == 2]
    assert said["length"] == block["RANGE_SIZE"]


def test_an_allocation_at_the_address_of_another_is_another(
    gpu_arrays, node_driver, node_board, cuda_loaded
):
    """Freed and allocated again, which gives the same address and another identity."""
    tensor, target = gpu_arrays.make(random_bytes()), np.zeros(NBYTES, np.uint8)
    node_board.copy(tensor, target)
    (block,) = [kind for kind in cuda_loaded.kinds.values() if kind["MEMORY_TYPE"] == 2]
    block["BUFFER_ID"] += 1000
    node_board.copy(tensor, target)
    assert len(node_driver.named("PIN_DMABUF")) == 2
    assert len(node_driver.named("UNPIN_CUDA")) == 1
    assert (target == random_bytes()).all()


class Interface:
    """An array by ``__cuda_array_interface__`` alone, at an address that the stand-in knows."""

    def __init__(self, kind=None, **members):
        self.memory = np.zeros(64, np.uint8)
        self.__cuda_array_interface__ = {
            "shape": (64,),
            "typestr": "|u1",
            "data": (self.memory.ctypes.data, False),
            "version": 3,
            **members,
        }


DEVICE = {"MEMORY_TYPE": 2, "CONTEXT": CONTEXT, "IS_GPU_DIRECT_RDMA_CAPABLE": 1}


@pytest.mark.parametrize(
    ("kind", "members", "message"),
    [
        ({}, {}, "pageable memory, which CUDA does not know .* Copy it into a surface"),
        (DEVICE | {"IS_MANAGED": 1}, {}, "managed memory, which moves .* Copy it into"),
        (DEVICE | {"IS_GPU_DIRECT_RDMA_CAPABLE": 0}, {}, "Memory of cudaMalloc is; that of cudaMa"),
        (DEVICE, {"strides": (2,)}, r"not one contiguous piece .* array\[\.\.\.\] = contiguous"),
        (DEVICE, {"mask": object()}, r"its mask would be lost. Give array\.filled\(value\)"),
    ],
    ids=["pageable", "managed", "pool", "strided", "mask"],
)
def test_memory_that_no_board_reaches_is_refused_by_name(
    cuda_loaded, node_board, kind, members, message
):
    given = Interface(**members)
    cuda_loaded.kinds[given.memory.ctypes.data] = kind
    for ask in (
        lambda: node_board.copy(given, bytearray(64)),
        lambda: node_board.read(given),
        lambda: node_board.pin(given),
    ):
        with pytest.raises(peerdma.PinError, match=message):
            ask()
    assert not node_board._pins


def test_memory_of_the_host_that_cuda_allocated_is_the_hosts(cuda_loaded, node_driver, node_board):
    given = Interface()
    given.memory[:] = 7
    cuda_loaded.kinds[given.memory.ctypes.data] = {"MEMORY_TYPE": 1}
    target = bytearray(64)
    node_board.copy(given, target)
    assert target == bytes([7]) * 64
    assert given.memory.ctypes.data in pinned_pages(node_driver)


def test_read_only_memory_of_a_gpu_is_a_source_only(cuda_loaded, node_driver, node_board):
    given = Interface()
    address = given.memory.ctypes.data
    given.__cuda_array_interface__["data"] = address, True
    cuda_loaded.kinds[address] = DEVICE | {"RANGE_START_ADDR": address, "RANGE_SIZE": 64}
    node_board.copy(given, bytearray(64))
    with pytest.raises(peerdma.PinError, match="that memory is read-only"):
        node_board.read(given)


def test_a_surface_in_gpu_memory_is_kept_pinned_until_it_is_freed(
    cuda_loaded, node_driver, node_board
):
    with CudaGpu(0, "device") as gpu:
        with gpu.surface(NBYTES) as surface:
            surface.fill(1)
            for _ in range(2):
                node_board.copy(surface, bytearray(NBYTES))
            assert len(node_driver.named("PIN_DMABUF")) == 1
        with gpu.surface(NBYTES) as surface:
            node_board.copy(surface, bytearray(NBYTES))
        dmabufs = [said["handle"] for _, said in node_driver.named("UNPIN_CUDA")]
        assert len(node_driver.named("PIN_DMABUF")) == 2 and len(dmabufs) >= 3
