# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces shared with array libraries, both ways: the real ones where there is a CUDA GPU."""

import gc
import os

import numpy as np
import pytest

import peerdma
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory import dlpack
from peerdma.testing import pattern
from tests.host.conftest import CUDA, simulated_path
from tests.host.cuda import libraries
from tests.host.cuda.fake_cuda import CONTEXT, fake_driver

LIBRARIES = {"stand-in": libraries.StandIn, **(libraries.present() if CUDA else {})}


@pytest.fixture(params=LIBRARIES)
def library_name(request):
    """Each array library that there is."""
    return request.param


@pytest.fixture
def shared_gpu(library_name, memory, request):
    """A GPU that the library uses too: the real one, or the stand-in."""
    if library_name == "stand-in":
        driver = fake_driver(request.getfixturevalue("cuda_api"))
        gpu = CudaGpu(0, memory, driver=driver)
    else:
        gpu = CudaGpu(0, memory)
    with gpu:
        yield gpu


@pytest.fixture
def library(library_name, shared_gpu):
    """The library."""
    return LIBRARIES[library_name](shared_gpu)


@pytest.fixture(params=["device", "host"])
def memory(request):
    """Where surfaces live."""
    return request.param


on_device = pytest.mark.parametrize("memory", ["device"])
both_ways = pytest.mark.parametrize("how", ["interface", "dlpack"])


@both_ways
def test_a_library_reads_and_writes_a_surface(shared_gpu, library, memory, how):
    if how == "dlpack" and memory == "host":
        how = "interface"  # a tensor of the CPU, see below
    with shared_gpu.surface((50, 100), "i4") as surface:
        surface.fill(5)
        view = library.view(surface, how)
        assert library.read(view).tobytes() == pattern.fill_bytes(5, 0, 20_000).tobytes()
        content = np.arange(5000, dtype="i4").reshape(50, 100)
        library.write(view, content)
        shared_gpu.synchronize()
        assert (surface.get() == content).all()


@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "f8", "c8", "?", "f2"])
@both_ways
@on_device
def test_shapes_and_types_are_kept(shared_gpu, library, memory, how, dtype):
    for shape in ((7,), (2, 3, 4), ()):
        content = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        surface = shared_gpu.surface(shape, dtype)
        surface.set(content)
        found = library.read(library.view(surface, how))
        assert (found.shape, found.dtype) == (shape, np.dtype(dtype))
        assert (found == content).all()


@on_device
def test_a_tensor_outlives_its_surface(shared_gpu, library, memory):
    surface = shared_gpu.surface(10_000)
    surface.fill(2)
    view = library.view(surface, "dlpack")
    surface.close()
    del surface
    gc.collect()
    with shared_gpu.surface(10_000) as other:
        other.fill(3)
        assert (library.read(view) == pattern.fill_bytes(2, 0, 10_000)).all()


@on_device
def test_an_array_of_a_library_is_registered(shared_gpu, library, memory):
    content = np.arange(6000, dtype="f4").reshape(60, 100)
    array = library.make(content)
    with shared_gpu.register(array) as surface:
        assert surface.path is peerdma.DataPath.PEER_TO_PEER
        assert (surface.shape, surface.dtype) == ((60, 100), np.float32)
        assert (surface.get() == content).all()
        surface.fill(4)
        assert library.read(array).tobytes() == pattern.fill_bytes(4, 0, 24_000).tobytes()


@on_device
def test_a_registered_array_goes_through_the_board(board, shared_gpu, library, memory):
    content = np.arange(3000, dtype="i4")
    source, target = library.make(content), library.make(content * 0)
    shared_gpu.synchronize()
    with (
        shared_gpu.register(source) as s,
        shared_gpu.register(target) as d,
        board.pin(s) as pinned_source,
        board.pin(d) as pinned_target,
    ):
        transfer = board.copy(pinned_source, pinned_target)
        expected = simulated_path(pinned_source), simulated_path(pinned_target)
    assert transfer.path == expected
    assert (library.read(target) == content).all()


def test_host_surfaces_are_tensors_of_the_cpu_or_of_the_gpu(cuda_api):
    with CudaGpu(0, "host", driver=fake_driver(cuda_api)) as gpu, gpu.surface(10) as surface:
        assert surface.__dlpack_device__() == (dlpack.CPU, 0)
        np.from_dlpack(surface)[:] = 3
        assert (surface.get() == 3).all()

        class OnGpu:
            def __dlpack__(self, **options):
                return surface.__dlpack__(dl_device=(dlpack.CUDA, 0), **options)

        tensor = dlpack.read(OnGpu())
        assert (tensor.device, tensor.address) == (dlpack.CUDA, surface.device_address)
        del tensor
        assert not dlpack._exported


def test_an_array_that_may_not_be_a_copy_is_none(emulated_gpu):
    with emulated_gpu.surface(4, "u4") as surface:
        for dtype in (None, "u4"):
            surface.__array__(dtype, copy=False)[:] = 7
            assert (surface.get() == 7).all()
        with pytest.raises(ValueError, match=r"cannot share .* as float64: that needs a copy"):
            surface.__array__("f8", copy=False)
        converted, copied = surface.__array__("f8"), surface.__array__("u4", copy=True)
        surface.set(0)
        assert (converted == 7).all() and (copied == 7).all()


class Interface:
    """An array by ``__cuda_array_interface__`` alone."""

    def __init__(self, address=4096, strides=None, readonly=False, mask=None):
        self.__cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<u4",
            "data": (address, readonly),
            "strides": strides,
            "mask": mask,
            "version": 3,
        }


DEVICE = {"MEMORY_TYPE": 2, "IS_GPU_DIRECT_RDMA_CAPABLE": 1}


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (Interface(strides=(8,)), DEVICE, "one contiguous piece of plain data in C order"),
        (Interface(mask=object()), DEVICE, r"its mask would be lost.* array\.filled"),
        (Interface(readonly=True), DEVICE, "read-only"),
        (Interface(), None, "pageable memory, which CUDA does not know"),
        (Interface(), DEVICE | {"IS_MANAGED": 1}, "managed memory, which moves"),
        (Interface(), {"MEMORY_TYPE": 1}, "memory of the host. Register it as a numpy array"),
        (
            Interface(),
            DEVICE | {"CONTEXT": CONTEXT + 3, "DEVICE": 3},
            r'in GPU 3, this is GPU 0. .*gpu\("cuda:3"\)',
        ),
        (Interface(), DEVICE | {"CONTEXT": CONTEXT + 16}, "another CUDA context than the primary"),
        (Interface(), {"MEMORY_TYPE": 2}, r"accessible to other devices .*\. Memory of cudaMalloc"),
    ],
    ids=[
        "strided",
        "mask",
        "read-only",
        "pageable",
        "managed",
        "host",
        "other-gpu",
        "other-context",
        "pool",
    ],
)
def test_memory_that_no_board_can_reach_is_refused_by_name(cuda_api, array, kind, message):
    if kind:
        cuda_api.kinds[4096] = kind
    gpu = CudaGpu(0, "device", driver=fake_driver(cuda_api))
    with gpu, pytest.raises(peerdma.PinError, match=message):
        gpu.register(array)


def test_the_stream_that_an_array_was_made_in_is_waited_for(cuda_api):
    cuda_api.kinds[4096] = DEVICE
    array = Interface()
    array.__cuda_array_interface__["stream"] = 77
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        gpu.register(array)
    assert (77,) in cuda_api.named("cuStreamSynchronize")


def test_an_emulated_gpu_takes_no_memory_of_a_real_one(emulated_gpu):
    with pytest.raises(peerdma.PinError, match="in a GPU's memory as a surface of an emulated"):
        emulated_gpu.register(Interface())


def test_dma_bufs_hold_the_surface_and_close_their_descriptor(cuda_api):
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        surface = gpu.surface(5000)
        with surface.dmabuf() as exported:
            assert (exported.nbytes, exported.offset) == (5000, 0)
            os.fstat(exported.fd)
            with pytest.raises(peerdma.PinError, match="pinned 1 times"):
                surface.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(exported.fd)
        exported.close()
        surface.close()
    ((address, nbytes, kind, flags),) = cuda_api.named("cuMemGetHandleForAddressRange")
    assert (address, nbytes, kind, flags) == (exported_address(surface), 8192, 1, 0)


def exported_address(surface) -> int:
    assert surface.device_address % 65536 == 0
    return surface.device_address


def test_dma_bufs_where_there_are_none(cuda_api):
    with CudaGpu(0, "host", driver=fake_driver(cuda_api)) as gpu:
        surface = gpu.surface(10)
        with pytest.raises(peerdma.UnsupportedError, match="this GPU and driver export no"):
            surface.dmabuf()
