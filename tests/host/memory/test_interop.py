# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces shared with array libraries, both ways: the real ones where there is a CUDA GPU."""

import ctypes
import gc
import os

import numpy as np
import pytest

import peerdma
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory import dlpack, pattern
from tests.host.conftest import CUDA
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
        assert surface.path is peerdma.Path.PEER_TO_PEER
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
    assert transfer.path == (peerdma.Path.STAGED, peerdma.Path.STAGED)
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


def test_capsules_that_nobody_takes_give_the_memory_back(cuda_api):
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        surface = gpu.surface(10)
        capsule = surface.__dlpack__()
        surface.close()
        assert len(cuda_api.memory) == 2  # the GPU's own, and the surface's
        del capsule
        assert len(cuda_api.memory) == 1
        assert not dlpack._exported


def test_capsules_that_are_taken_live_until_their_deleter_is_called(cuda_api):
    """As a library does: it renames the capsule, and calls the deleter later."""
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        surface = gpu.surface((2, 3), "f4")
        capsule = surface.__dlpack__()
        pointer = dlpack._pointer_in(capsule, b"dltensor")
        ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_dltensor")
        del capsule
        surface.close()
        record = ctypes.cast(pointer, ctypes.POINTER(dlpack._Managed)).contents
        assert record.tensor.data == surface.device_address
        assert list(record.tensor.shape[:2]) == [2, 3]
        assert len(cuda_api.memory) == 2
        record.deleter(ctypes.byref(record))
        assert len(cuda_api.memory) == 1


def test_types_that_dlpack_lacks_are_refused(cuda_api):
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        with pytest.raises(BufferError, match="no data type for"):
            gpu.surface(3, "V3").__dlpack__()
        with pytest.raises(BufferError, match=r"copy it with get\(\)"):
            gpu.surface(3).__dlpack__(copy=True)


class Exporter:
    """Exports a tensor of any kind by DLPack."""

    def __init__(self, kind: int, code=0, bits=32, lanes=1, strides=None):
        self.kind = kind
        shape = (ctypes.c_int64 * 1)(4)
        steps = (ctypes.c_int64 * 1)(strides) if strides else None
        data_type = dlpack._DataType(code, bits, lanes)
        tensor = dlpack._Tensor(4096, dlpack._Device(kind, 0), 1, data_type, shape, steps, 0)
        self._record = dlpack._Managed(tensor, None, dlpack._release)

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self, *, stream):
        assert stream == dlpack.STREAM
        return dlpack._new_capsule(ctypes.byref(self._record), b"dltensor", dlpack._unused)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (Exporter(dlpack.CUDA_MANAGED), "in managed memory, which moves between CPU and GPU. Copy"),
        (Exporter(10), "device of DLPack kind 10, which is neither"),
        (Exporter(dlpack.CUDA, strides=2), "Make it contiguous first"),
        (Exporter(dlpack.CUDA, code=9), "DLPack type 9, 32 bits, 1 lanes: numpy has no such"),
        (Exporter(dlpack.CUDA, lanes=4), "4 lanes"),
    ],
    ids=["managed", "other-device", "strided", "type", "lanes"],
)
def test_tensors_that_cannot_be_surfaces_are_refused_by_name(cuda_api, array, message):
    gpu = CudaGpu(0, "device", driver=fake_driver(cuda_api))
    with gpu, pytest.raises(peerdma.PinError, match=message):
        gpu.register(array)


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
        (Interface(strides=(8,)), DEVICE, "Make it contiguous first"),
        (Interface(mask=object()), DEVICE, "contiguous"),
        (Interface(readonly=True), DEVICE, "read-only"),
        (Interface(), None, "pageable memory, which CUDA does not know"),
        (Interface(), DEVICE | {"IS_MANAGED": 1}, "managed memory, which moves"),
        (Interface(), {"MEMORY_TYPE": 1}, "memory of the host. Register it as a numpy array"),
        (
            Interface(),
            DEVICE | {"CONTEXT": CONTEXT + 3},
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
