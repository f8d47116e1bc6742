# SPDX-License-Identifier: BSD-2-Clause
"""DLPack itself: capsules and who owns them, versions, copies, and what cannot be a surface."""

import ctypes

import numpy as np
import pytest

import peerdma
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory import dlpack
from tests.host.cuda.fake_cuda import fake_driver


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
        self.asked = []
        self._record = dlpack._Versioned(
            *version, None, dlpack._release, flags, self._record.tensor
        )

    def __dlpack__(self, *, stream, max_version):
        self.asked.append((stream, max_version))
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
    cuda_api.kinds[4096] = {"MEMORY_TYPE": 2, "IS_GPU_DIRECT_RDMA_CAPABLE": 1}
    gpu = CudaGpu(0, "device", driver=fake_driver(cuda_api))
    exporter = VersionedExporter()
    with gpu, gpu.register(exporter) as surface:
        assert (surface.address, surface.shape, surface.dtype) == (4096, (4,), np.int32)
    # Its work is waited for once; where it is then is looked at without.
    first, *others = exporter.asked
    assert first == (dlpack.STREAM, (1, 0)) and set(others) <= {(dlpack.NO_STREAM, (1, 0))}
