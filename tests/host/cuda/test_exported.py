# SPDX-License-Identifier: BSD-2-Clause
"""Surfaces in virtual memory, and files of GPU memory, on the stand-in for CUDA."""

import gc
import os
import sys
from types import SimpleNamespace

import pytest

import peerdma
from peerdma.cuda.gpu import CudaGpu
from peerdma.cuda.parts import whole_part
from tests.host.conftest import open_files
from tests.host.cuda.fake_cuda import DISCRETE, UUID, VIRTUAL, Result, fake_driver

GRAIN = 2 << 20


@pytest.fixture(autouse=True)
def virtual(cuda_api):
    """A GPU with all that this takes."""
    cuda_api.attributes.update(VIRTUAL)


@pytest.mark.parametrize(
    ("attributes", "active", "flags", "version", "virtual"),
    [
        (VIRTUAL, False, 8, (13, 0), True),
        (VIRTUAL, True, 8, (13, 0), False),
        (VIRTUAL, True, 8 | 128, (13, 0), True),
        (VIRTUAL, False, 8, (12, 0), False),
        (DISCRETE, False, 8, (13, 0), False),
        (VIRTUAL | {"HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 0}, False, 8, (13, 0), False),
    ],
    ids=["first", "second", "flag set", "old driver", "no RDMA", "no files"],
)
def test_surfaces_are_virtual_where_copies_are_ordered(
    cuda_api, attributes, active, flags, version, virtual
):
    cuda_api.attributes.update(attributes)
    cuda_api.active, cuda_api.flags = active, flags
    driver = fake_driver(cuda_api)
    driver.version = version
    with CudaGpu(0, "device", driver=driver) as gpu, gpu.surface(GRAIN + 1) as surface:
        assert bool(cuda_api.named("cuMemCreate")) == virtual
        assert not cuda_api.named("cuCtxSetFlags"), "which spoils captures"
        surface.set(3)
        assert (surface.get() == 3).all()
        (extent,) = surface.extents()
        if not virtual:
            with pytest.raises(peerdma.UnsupportedError, match=r"no file of it .* cudaMalloc"):
                extent.gpu_file().__enter__()
            return
        assert len(extent.memory) == 2 * GRAIN
        with extent.gpu_file() as file:
            assert (file.nbytes, file.offset, file.device) == (2 * GRAIN, 0, UUID)
            assert not file.mappable and file.identity
            assert os.pread(file.fd, GRAIN + 1, 0) == surface.get().tobytes()


@pytest.mark.parametrize(
    "function",
    [
        "cuMemRetainAllocationHandle",
        "cuMemGetAllocationPropertiesFromHandle",
        "cuMemExportToShareableHandle",
    ],
)
def test_an_export_that_fails_leaves_nothing(device_gpu, cuda_api, function):
    with device_gpu.surface(100) as surface:
        (extent,) = surface.extents()
        files = open_files()
        cuda_api.failures[function] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
        with pytest.raises(peerdma.UnsupportedError, match="CUDA_ERROR_NOT_SUPPORTED"):
            extent.gpu_file().__enter__()
        assert open_files() == files and not cuda_api.handles
        with extent.gpu_file():
            assert open_files() == files + 1
        assert open_files() == files and not cuda_api.handles


def test_where_dma_bufs_can_be_mapped_they_are_the_files(device_gpu, cuda_api):
    """Also of memory that has no handle; each is of its own."""
    cuda_api.attributes.update(DISCRETE | {"DMA_BUF_MMAP_SUPPORTED": 1})
    device_gpu.device.driver.version = 13, 3
    with device_gpu.surface(100) as surface:
        (extent,) = surface.extents()
        with extent.gpu_file() as file:
            assert (file.identity, file.mappable, file.offset) == (0, True, 0)
            assert file.nbytes >= 100
        cuda_api.failures["cuMemGetHandleForAddressRange"] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
        with pytest.raises(peerdma.UnsupportedError, match="CUDA_ERROR_NOT_SUPPORTED"):
            extent.gpu_file().__enter__()


def test_memory_frees_when_nothing_on_the_gpu_uses_it(device_gpu, cuda_api):
    """CUDA does not wait when memory is unmapped: a free of other memory does."""
    device_gpu.surface(100).close()
    names = [name for name, _ in cuda_api.calls]
    assert names.index("cuMemFree") < names.index("cuMemUnmap")


def test_a_piece_in_the_middle_is_found_whole(cuda_api):
    driver = fake_driver(cuda_api)
    sizes = [1, 3, 10, 1, 2, 64]
    at = 1 << 40
    for size in sizes:
        cuda_api.map(at, size * GRAIN)
        for offset in {0, 4096, size * GRAIN // 2, size * GRAIN - 1}:
            assert whole_part(driver, at + offset, GRAIN) == (at, size * GRAIN)
        at += size * GRAIN
    at = 1 << 40
    for size in sizes:
        for grain in range(size):
            assert whole_part(driver, at + grain * GRAIN + 5, GRAIN) == (at, size * GRAIN)
        at += size * GRAIN
    cuda_api.mapped.clear()


def test_memory_for_cupy_is_a_surface_that_it_keeps(device_gpu, cuda_api, monkeypatch):
    """CuPy frees what its allocator gave when nothing refers to it any more."""
    taken = []
    cuda = SimpleNamespace(
        UnownedMemory=lambda *given: taken.append(given) or given,
        MemoryPointer=lambda memory, offset: (memory, offset),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    (address, nbytes, surface, index), offset = device_gpu.cupy_allocator(5000)
    assert (nbytes, index, offset) == (5000, 0, 0) and address == surface.device_address
    assert len(cuda_api.mapped) == 1
    taken.clear()
    del surface
    gc.collect()
    assert not cuda_api.mapped


def test_an_array_of_several_pieces_is_several_files(device_gpu, cuda_api):
    """As a tensor in an expandable segment of PyTorch."""
    with device_gpu.device.current():
        call = device_gpu.device.driver.call
        start = call("cuMemAddressReserve", 4 * GRAIN, 0, 0, 0, action="test")
        for number in range(4):
            properties = SimpleNamespace(
                type=1,
                requestedHandleTypes=1,
                location=SimpleNamespace(type=1, id=0),
                allocFlags=SimpleNamespace(gpuDirectRDMACapable=1),
            )
            handle = call("cuMemCreate", GRAIN, properties, 0, action="test")
            call("cuMemMap", start + number * GRAIN, GRAIN, 0, handle, 0, action="test")
            call("cuMemRelease", handle, action="test")
    array = SimpleNamespace(
        __cuda_array_interface__={
            "shape": (2 * GRAIN + 10,),
            "typestr": "|u1",
            "data": (start + 4096 + 3, False),
            "version": 3,
        }
    )
    with device_gpu.register(array) as surface:
        files = []
        for extent in surface.extents():
            with extent.gpu_file() as file:
                files.append((len(extent.memory), file.offset, file.nbytes))
    rest = 2 * GRAIN + 10 - (GRAIN - 4099) - GRAIN
    assert files == [(GRAIN - 4099, 4099, GRAIN), (GRAIN, 0, GRAIN), (rest, 0, GRAIN)]
    with device_gpu.device.current():
        for number in range(4):
            call("cuMemUnmap", start + number * GRAIN, GRAIN, action="test")
        call("cuMemAddressFree", start, 4 * GRAIN, action="test")
