# SPDX-License-Identifier: BSD-2-Clause
"""The CUDA GPU on a stand-in for the bindings: what is called, and what errors leave behind."""

import gc
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import peerdma
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory.memory import DataPath
from tests.host.conftest import open_files
from tests.host.cuda.fake_cuda import (
    CONSUMER,
    DISCRETE,
    INTEGRATED,
    VIRTUAL,
    FakeCuda,
    Result,
    fake_driver,
)


def opened(api: FakeCuda, memory: str = "device") -> CudaGpu:
    return CudaGpu(0, memory, driver=fake_driver(api))


# Where surfaces live ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "memory", "path", "why"),
    [
        (DISCRETE, "auto", DataPath.PEER_TO_PEER, "GPU memory: other devices can reach it"),
        (DISCRETE, "device", DataPath.PEER_TO_PEER, "GPU memory: as requested"),
        (DISCRETE, "host", DataPath.HOST_MEMORY, "host memory: as requested"),
        (CONSUMER, "auto", DataPath.HOST_MEMORY, "no GPUDirect RDMA"),
        (CONSUMER, "device", DataPath.PEER_TO_PEER, "as requested"),
        (CONSUMER | {"DMA_BUF_SUPPORTED": 1}, "auto", DataPath.PEER_TO_PEER, "can reach it"),
        (INTEGRATED, "auto", DataPath.HOST_MEMORY, "an integrated GPU has no other"),
    ],
)
def test_memory_is_chosen_by_what_the_device_can_do(cuda_api, attributes, memory, path, why):
    cuda_api.attributes.update(attributes)
    with opened(cuda_api, memory) as gpu, gpu.surface(10) as surface:
        assert surface.path is path
        assert why in gpu.memory


def test_an_integrated_gpu_has_no_memory_of_its_own(cuda_api):
    cuda_api.attributes.update(INTEGRATED)
    with pytest.raises(peerdma.UnsupportedError, match=r'it is integrated .* memory="host"'):
        opened(cuda_api, "device")


@pytest.mark.parametrize("attributes", [VIRTUAL, DISCRETE], ids=["virtual", "blocks"])
@pytest.mark.parametrize("nbytes", [1, 65_536, 65_537, 1 << 20])
def test_surfaces_have_gpu_pages_of_their_own(cuda_api, nbytes, attributes):
    """The stand-in aligns blocks to 512 bytes only, as CUDA may."""
    cuda_api.attributes.update(attributes)
    with opened(cuda_api) as gpu:
        surfaces = [gpu.surface(nbytes) for _ in range(5)]
        pages = set()
        for surface in surfaces:
            assert surface.address % 65_536 == 0
            (extent,) = surface.extents()
            mine = range(surface.address, surface.address + len(extent.memory), 65_536)
            assert pages.isdisjoint(mine)
            pages.update(mine)
            assert not surface.get().any()


def test_host_memory_is_a_file_that_a_board_can_map(cuda_api):
    with opened(cuda_api, "host") as gpu, gpu.surface(5000) as surface:
        surface.array[:] = 7
        (extent,) = surface.extents()
        assert os.pread(extent.fd, 5000, extent.fd_offset) == bytes([7]) * 5000
        assert cuda_api.named("cuMemHostRegister") == [(surface.address, 8192, 3)]
        assert not cuda_api.named("cuMemHostAlloc")


@pytest.mark.parametrize("attributes", [INTEGRATED, DISCRETE | {"HOST_REGISTER_SUPPORTED": 0}])
def test_host_memory_comes_from_cuda_where_that_is_wanted(cuda_api, attributes):
    cuda_api.attributes.update(attributes)
    with opened(cuda_api, "host") as gpu, gpu.surface(5000) as surface:
        assert cuda_api.named("cuMemHostAlloc") == [(8192, 3)]
        assert not surface.array.any()
        (extent,) = surface.extents()
        assert extent.fd is None
        surface.set(3)
        assert bytes(extent.memory[:5000]) == bytes([3]) * 5000


def test_arrays_and_surfaces_keep_what_they_need_alive(cuda_api):
    gpu = opened(cuda_api, "host")
    surface = gpu.surface(5000)
    view = surface.array[10:20]
    surface.close()
    gpu.close()
    view[:] = 9
    assert (view == 9).all()
    assert cuda_api.registered
    del surface, view, gpu
    gc.collect()
    assert not cuda_api.leftovers()


def test_pinned_host_memory_of_others_needs_no_registration(cuda_api):
    array = np.zeros(100, np.uint8)
    cuda_api.kinds[array.ctypes.data] = {"MEMORY_TYPE": 1}
    with opened(cuda_api) as gpu, gpu.register(array) as surface:
        surface.set(4)
        assert surface.path is DataPath.HOST_MEMORY
    assert not cuda_api.named("cuMemHostRegister")
    assert (array == 4).all()


def test_memory_that_is_registered_already_is_named(cuda_api):
    array = np.zeros(100, np.uint8)
    cuda_api.registered.add(array.ctypes.data)
    with opened(cuda_api) as gpu, pytest.raises(peerdma.CudaError) as caught:
        gpu.register(array)
    assert caught.value.name == "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
    assert "Close the surface that was registered over these pages" in str(caught.value)
    cuda_api.registered.clear()


# Boards -------------------------------------------------------------------------------------


def test_pins_ask_for_synchronous_memory_operations(cuda_api):
    with opened(cuda_api) as gpu, gpu.surface(10) as surface:
        assert not cuda_api.named("cuPointerSetAttribute")
        surface.acquire()
        surface.release()
        sync = cuda_api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        assert cuda_api.named("cuPointerSetAttribute") == [(True, sync, surface.device_address)]


@pytest.mark.parametrize(
    ("memory", "ordering", "options", "flushes"),
    [
        ("device", 100, 1, 0),
        ("device", 200, 1, 0),
        ("device", 0, 1, 1),
        ("device", 0, 2, 0),
        ("host", 0, 1, 0),
    ],
)
def test_writes_are_flushed_exactly_where_the_device_asks(
    cuda_api, memory, ordering, options, flushes
):
    cuda_api.attributes.update(
        GPU_DIRECT_RDMA_WRITES_ORDERING=ordering, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS=options
    )
    with opened(cuda_api, memory) as gpu, gpu.surface(10) as surface:
        surface.flush_writes()
    assert cuda_api.named("cuFlushGPUDirectRDMAWrites") == [(0, 100)] * flushes


def test_a_copy_between_surfaces_in_gpu_memory_is_staged_and_flushed(board, cuda_api):
    """The simulated board asks for the bytes by messages; this process copies them."""
    cuda_api.attributes["GPU_DIRECT_RDMA_WRITES_ORDERING"] = 0
    with opened(cuda_api) as gpu, gpu.surface(3000) as src, gpu.surface(3000) as dst:
        src.fill(1)
        with board.pin(src) as s, board.pin(dst) as d:
            assert s.path is DataPath.STAGED
            transfer = board.copy(s[5:1000], d[100:1095])
            board.write(s[:64])
        assert transfer.path == (DataPath.STAGED, DataPath.STAGED)
        assert "staged to the board" in str(transfer)
        assert len(cuda_api.named("cuFlushGPUDirectRDMAWrites")) == 1
        found = dst.get()
        assert (found[100:1095] == src.get()[5:1000]).all()
        assert not found[:100].any() and not found[1095:].any()


def test_a_copy_between_surfaces_in_host_memory_is_direct(board, cuda_api):
    with opened(cuda_api, "host") as gpu, gpu.surface(300_000) as src, gpu.surface(300_000) as dst:
        src.fill(1)
        copies = len(cuda_api.named("cuMemcpyHtoDAsync"))
        with board.pin(src) as s, board.pin(dst) as d:
            transfer = board.copy(s, d)
        assert transfer.path == (DataPath.HOST_MEMORY, DataPath.HOST_MEMORY)
        assert len(cuda_api.named("cuMemcpyHtoDAsync")) == copies
        gpu.verify(dst, seed=1)


#: Attributes of a GPU that is coherent with its processor, as GH200 and GB200, and of GB10.
GRACE = DISCRETE | {"PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES": 1}
GB10 = INTEGRATED | {"PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES": 1}


@pytest.mark.parametrize(
    ("attributes", "version", "flags"),
    [
        (DISCRETE, (12, 0), 0),
        (DISCRETE, (13, 0), 0),
        (GRACE, (12, 8), 1),
        (GRACE, (13, 0), 1),
        (GRACE, (12, 6), None),
        (GRACE | {"DMA_BUF_SUPPORTED": 0}, (13, 0), None),
        (CONSUMER, (13, 0), None),
    ],
    ids=["pcie", "pcie-13", "grace", "grace-13", "grace-12.6", "no-dma-buf", "consumer"],
)
def test_a_dma_buf_has_addresses_that_pcie_devices_reach(cuda_api, attributes, version, flags):
    cuda_api.attributes.update(attributes)
    driver = fake_driver(cuda_api)
    driver.version = version
    with CudaGpu(0, "device", driver=driver) as gpu, gpu.surface(10) as surface:
        if flags is None:
            with pytest.raises(peerdma.UnsupportedError, match="as a dma-buf: "):
                surface.dmabuf()
        else:
            surface.dmabuf().close()
        given = [arguments[3] for arguments in cuda_api.named("cuMemGetHandleForAddressRange")]
        assert given == [] if flags is None else [flags]


def test_a_gpu_that_shares_the_hosts_memory(cuda_api):
    """GB10: surfaces are pinned memory of the host; what CUDA allocates for the GPU is refused."""
    cuda_api.attributes.update(GB10)
    with opened(cuda_api, "auto") as gpu:
        with gpu.surface(10) as surface:
            assert surface.path is DataPath.HOST_MEMORY
            assert cuda_api.named("cuMemHostAlloc") == [(4096, 3)]
        with CudaGpu(0, "host", driver=fake_driver(cuda_api)) as again, again.surface(10) as other:
            kind = {"MEMORY_TYPE": 2, "IS_GPU_DIRECT_RDMA_CAPABLE": 0}
            cuda_api.kinds[other.address] = kind
            with pytest.raises(peerdma.PinError, match=r"for an integrated GPU\. Use memory of"):
                gpu.register(View(other))


class View:
    """An array of another library over a surface."""

    def __init__(self, surface):
        self.__cuda_array_interface__ = surface.__cuda_array_interface__


@pytest.mark.parametrize("version", [(12, 0), (12, 1), (13, 0)])
@pytest.mark.parametrize("set_before", [0, 128])
def test_copies_of_mapped_memory_are_ordered_by_the_context(cuda_api, version, set_before):
    """Memory of virtual memory management has no SYNC_MEMOPS of its own."""
    memory = np.zeros(3 * 4096, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 4096
    cuda_api.map(start, 4096)
    cuda_api.map(start + 4096, 4096)
    cuda_api.flags |= set_before
    cuda_api.active = True
    before = cuda_api.flags
    driver = fake_driver(cuda_api)
    driver.version = version

    interface = {"shape": (8192,), "typestr": "|u1", "data": (start, False), "version": 3}
    given = View(SimpleNamespace(__cuda_array_interface__=interface))
    with CudaGpu(0, "device", driver=driver) as gpu, gpu.register(given) as surface:
        assert cuda_api.flags == before  # only where it is pinned
        if version < (12, 1):
            with pytest.raises(peerdma.PinError, match="expandable_segments:False, or a driver"):
                surface.acquire()
        else:
            surface.acquire()
            surface.release()
            assert cuda_api.flags == before | 128
            assert len(cuda_api.named("cuCtxSetFlags")) == (not set_before)
            surface.dmabuf().close()
        with gpu.surface(10) as own:
            own.acquire()
            own.release()
    cuda_api.mapped.clear()


def test_copies_that_cannot_be_ordered_are_refused_in_words(cuda_api):
    cuda_api.active = True
    with opened(cuda_api) as gpu, gpu.surface(10) as surface:
        for function in ("cuPointerSetAttribute", "cuCtxSetFlags"):
            cuda_api.failures[function] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
        with pytest.raises(peerdma.PinError, match=r"neither for the memory .* nor for the con"):
            surface.acquire()


# Errors -------------------------------------------------------------------------------------

OPENING = [
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent",
    "cuStreamCreate",
]


@pytest.mark.parametrize("function", OPENING)
def test_nothing_is_left_when_opening_fails(cuda_api, function):
    cuda_api.failures[function] = 0, Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(peerdma.CudaError, match=f"{function} failed with CUDA_ERROR_OUT_OF_MEM"):
        opened(cuda_api)
    assert not cuda_api.leftovers()
    opened(cuda_api).close()


@pytest.mark.parametrize(
    "function", ["cuModuleLoadData", "cuMemAlloc", "cuMemsetD8Async", "cuStreamSynchronize"]
)
def test_nothing_is_left_when_the_kernels_for_tests_fail(cuda_api, function):
    with opened(cuda_api) as gpu, gpu.surface(10) as surface:
        taken = len(cuda_api.memory)
        cuda_api.failures[function] = 0, Result.CUDA_ERROR_OUT_OF_MEMORY
        with pytest.raises(peerdma.CudaError, match=f"{function} failed with CUDA_ERROR_OUT_OF"):
            surface.fill(1)
        assert len(cuda_api.memory) == taken
        surface.fill(1)
        gpu.verify(surface, seed=1)


@pytest.mark.parametrize(
    ("memory", "function"),
    [
        ("device", "cuCtxPushCurrent"),
        ("virtual", "cuMemGetAllocationGranularity"),
        ("virtual", "cuMemCreate"),
        ("virtual", "cuMemAddressReserve"),
        ("virtual", "cuMemMap"),
        ("virtual", "cuMemSetAccess"),
        ("device", "cuMemsetD8Async"),
        ("device", "cuStreamSynchronize"),
        ("device", "cuMemAlloc"),
        ("virtual", "cuMemsetD8Async"),
        ("host", "cuCtxPushCurrent"),
        ("host", "cuMemHostRegister"),
        ("host", "cuMemHostGetDevicePointer"),
        ("integrated", "cuMemHostAlloc"),
        ("integrated", "cuMemHostGetDevicePointer"),
    ],
)
def test_nothing_is_left_when_a_surface_fails(cuda_api, memory, function):
    kinds = {"integrated": (INTEGRATED, "host"), "virtual": (VIRTUAL, "device")}
    attributes, memory = kinds.get(memory, ({}, memory))
    cuda_api.attributes.update(attributes)
    files = open_files()
    with opened(cuda_api, memory) as gpu:
        taken = len(cuda_api.memory)
        cuda_api.failures[function] = 0, Result.CUDA_ERROR_OUT_OF_MEMORY
        with pytest.raises(peerdma.CudaError, match=f"{function} failed with CUDA_ERROR_OUT"):
            gpu.surface(5000)
        assert len(cuda_api.memory) == taken and not cuda_api.registered
        assert not (cuda_api.handles or cuda_api.reserved or cuda_api.mapped)
        assert open_files() == files
        gpu.surface(5000).close()


@pytest.mark.parametrize("function", ["cuMemHostRegister", "cuMemHostGetDevicePointer"])
def test_nothing_is_left_when_registering_fails(cuda_api, function):
    array = np.zeros(100, np.uint8)
    with opened(cuda_api) as gpu:
        cuda_api.failures[function] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
        with pytest.raises(peerdma.CudaError, match="an array of 100 bytes in host memory"):
            gpu.register(array)
        assert not cuda_api.registered
        gpu.register(array).close()


def test_a_surface_that_cannot_be_pinned_is_not_held(cuda_api):
    with opened(cuda_api) as gpu:
        surface = gpu.surface(10)
        cuda_api.failures["cuPointerSetAttribute"] = 0, Result.CUDA_ERROR_OUT_OF_MEMORY
        with pytest.raises(peerdma.CudaError, match=r"cannot pin .*: cuPointerSetAttribute failed"):
            surface.acquire()
        cuda_api.failures["cuMemGetHandleForAddressRange"] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
        with pytest.raises(peerdma.CudaError, match="as a dma-buf"):
            surface.dmabuf()
        surface.close()


@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync", "cuLaunchKernel", "cuModuleGetFunction"])
def test_kernels_that_fail_say_what_to_do(cuda_api, function):
    with opened(cuda_api) as gpu, gpu.surface(10) as surface:
        cuda_api.failures[function] = 0, Result.CUDA_ERROR_LAUNCH_FAILED
        with pytest.raises(peerdma.CudaError, match="restart the program") as caught:
            gpu.verify(surface, seed=1)
        assert caught.value.name == "CUDA_ERROR_LAUNCH_FAILED"


def test_errors_that_are_not_known_here_keep_their_name(cuda_api):
    with opened(cuda_api) as gpu:
        cuda_api.failures["cuMemAlloc"] = 0, Result.CUDA_ERROR_SOMETHING_NEW
        with pytest.raises(peerdma.CudaError, match=r"SOMETHING_NEW \(text of .*\)\. The docum"):
            gpu.surface(10)


def test_only_devices_that_exist_can_be_asked_for(cuda_api):
    with pytest.raises(peerdma.GpuNotFound, match="CUDA device 2: this process sees 1, numbered"):
        CudaGpu(2, driver=fake_driver(cuda_api))


def test_the_caller_keeps_its_own_context(cuda_api):
    cuda_api.cuCtxPushCurrent("the caller's")
    with opened(cuda_api) as gpu, gpu.surface(100) as surface:
        surface.fill(1)
        gpu.verify(surface, seed=1)
        assert cuda_api._stack() == ["the caller's"]
    assert cuda_api.cuCtxPopCurrent()[1] == "the caller's"


def test_threads_share_a_gpu(cuda_api):
    errors = []
    with opened(cuda_api) as gpu:
        surfaces = [gpu.surface(3000) for _ in range(4)]

        def work(seed, surface):
            try:
                for _ in range(20):
                    surface.fill(seed)
                    gpu.verify(surface, seed=seed)
                    with pytest.raises(peerdma.VerifyError):
                        gpu.verify(surface, seed=seed + 100)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=each) for each in enumerate(surfaces)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        del surfaces, threads
    assert not errors


@pytest.mark.parametrize(
    ("attributes", "taken", "free", "count"),
    [(DISCRETE, "cuMemAlloc", "cuMemFree", 2), (VIRTUAL, "cuMemMap", "cuMemUnmap", 1)],
    ids=["two blocks", "virtual"],
)
def test_nothing_is_freed_while_a_kernel_watches(cuda_api, attributes, taken, free, count):
    """CUDA would wait for the kernel: for a first block, too, that is not on a page of its own."""
    cuda_api.attributes.update(attributes)
    with opened(cuda_api) as gpu:
        idle = gpu.device.idle
        idle.watch_begins()
        gpu.surface(100).close()
        gc.collect()
        assert len(cuda_api.named(taken)) == count
        assert not cuda_api.named(free)
        idle.watch_ended()
        assert len(cuda_api.named(free)) == count
