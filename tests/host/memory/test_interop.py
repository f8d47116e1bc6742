# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces shared with array libraries, both ways: the real ones where there is a CUDA GPU."""

import ctypes
import gc
import os

import numpy as np
import pytest

import peerdma
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory import dlpack
from peerdma.testing import pattern
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
    assert transfer.path == (peerdma.DataPath.STAGED, peerdma.DataPath.STAGED)
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
        assert len(cuda_api.memory) == 1
        del capsule
        assert not cuda_api.memory
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
        assert len(cuda_api.memory) == 1
        record.deleter(ctypes.byref(record))
        assert not cuda_api.memory


def test_types_that_dlpack_lacks_are_refused(cuda_api):
    pair = np.dtype([("a", "u1"), ("b", "u1")])
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        for dtype in ("V3", pair, ">u4"):
            with pytest.raises(BufferError, match="no data type for"):
                gpu.surface(3, dtype).__dlpack__()
        with pytest.raises(BufferError, match=r"copy it with get\(\)"):
            gpu.surface(3).__dlpack__(copy=True)


def record_of(capsule):
    """The record of a capsule that nobody has taken; the capsule has to be kept meanwhile."""
    versioned = dlpack._is_capsule(capsule, b"dltensor_versioned")
    name = b"dltensor_versioned" if versioned else b"dltensor"
    kind = dlpack._Versioned if versioned else dlpack._Managed
    return kind.from_address(dlpack._pointer_in(capsule, name))


@pytest.mark.parametrize("newest", [None, (0, 8), (1, 0), (1, 3), (2, 0)])
def test_a_tensor_has_a_version_where_its_consumer_knows_versions(every_gpu, newest):
    with every_gpu.surface((2, 3), "f4") as surface:
        device = surface.__dlpack_device__()
        capsule = surface.__dlpack__(max_version=newest)
        record = record_of(capsule)
        if newest and newest >= (1, 0):
            assert (record.major, record.minor, record.flags) == (1, 0, 0)
        else:
            assert isinstance(record, dlpack._Managed)
        tensor = record.tensor
        assert (tensor.device.kind, tensor.device.index) == device
        assert (tensor.data, list(tensor.shape[:2])) == (surface.address, [2, 3])
        before = len(dlpack._exported)
        del capsule
        assert len(dlpack._exported) == before - 1


def test_a_versioned_tensor_lives_until_its_deleter_is_called(emulated_gpu):
    surface = emulated_gpu.surface(10)
    tensor = np.from_dlpack(surface)
    surface.close()
    tensor[:] = 3
    assert (tensor == 3).all() and len(dlpack._exported) == 1
    del tensor
    assert not dlpack._exported


def test_two_plain_bytes_are_bfloat16_in_and_out(every_gpu):
    """The board's user block makes such numbers, which numpy has no type for."""
    with every_gpu.surface(4, "V2") as surface:
        tensor = record_of(capsule := surface.__dlpack__(max_version=(1, 0))).tensor
        assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (4, 16, 1)
        assert dlpack._numpy_type(tensor.dtype) == surface.dtype
        del capsule


def test_a_copy_is_made_where_it_is_asked_for_and_nowhere_else(emulated_gpu):
    with emulated_gpu.surface(4, "u4") as surface:
        surface.fill(1)
        for copy in (None, False):
            shared = surface.__dlpack__(max_version=(1, 0), copy=copy)
            assert record_of(shared).tensor.data == surface.address
        copied = surface.__dlpack__(max_version=(1, 0), copy=True)
        assert record_of(copied).flags == 2
        assert record_of(copied).tensor.data != surface.address
        content = (ctypes.c_uint8 * 16).from_address(record_of(copied).tensor.data)
        assert bytes(content) == surface.get().tobytes()
        with pytest.raises(BufferError, match=r"no memory of device \(2, 0\)"):
            surface.__dlpack__(dl_device=(dlpack.CUDA, 0), copy=False)


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


class VersionedExporter(Exporter):
    """The same, of a library that knows versions."""

    def __init__(self, version=(1, 0), flags=0):
        super().__init__(dlpack.CUDA)
        self._record = dlpack._Versioned(
            *version, None, dlpack._release, flags, self._record.tensor
        )

    def __dlpack__(self, *, stream, max_version):
        assert (stream, max_version) == (dlpack.STREAM, (1, 0))
        record = ctypes.byref(self._record)
        return dlpack._new_capsule(record, b"dltensor_versioned", dlpack._unused)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (Exporter(dlpack.CUDA_MANAGED), "in managed memory, which moves between CPU and GPU. Copy"),
        (Exporter(10), "device of DLPack kind 10, which is neither"),
        (Exporter(dlpack.CUDA, strides=2), "one contiguous piece of plain data in C order"),
        (Exporter(dlpack.CUDA, code=9), "DLPack type 9, 32 bits, 1 lanes: numpy has no such"),
        (Exporter(dlpack.CUDA, lanes=4), "4 lanes"),
        (VersionedExporter(flags=1), "the array is read-only"),
        (VersionedExporter(version=(2, 1)), r"exports it of DLPack 2\.1, this one knows DLPack 1"),
    ],
    ids=["managed", "other-device", "strided", "type", "lanes", "read-only", "version"],
)
def test_tensors_that_cannot_be_surfaces_are_refused_by_name(cuda_api, array, message):
    gpu = CudaGpu(0, "device", driver=fake_driver(cuda_api))
    with gpu, pytest.raises(peerdma.PinError, match=message):
        gpu.register(array)


def test_a_tensor_of_a_library_with_versions_is_registered(cuda_api):
    cuda_api.kinds[4096] = DEVICE
    gpu = CudaGpu(0, "device", driver=fake_driver(cuda_api))
    with gpu, gpu.register(VersionedExporter()) as surface:
        assert (surface.address, surface.shape, surface.dtype) == (4096, (4,), np.int32)


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
