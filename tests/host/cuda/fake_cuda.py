# SPDX-License-Identifier: BSD-2-Clause
"""A stand-in for CUDA's bindings: host memory, numpy for kernels, and a record of every call.

It behaves as the driver does where the library relies on it: calls need a current context,
pointers have attributes, what is freed must have been allocated. Any call can be made to fail.
"""

# ruff: noqa: N802, N815 - the names are CUDA's

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from types import SimpleNamespace

import numpy as np

from peerdma.cuda.driver import Driver
from peerdma.testing import pattern
from tests.host.cuda.fake_kernels import stream_queue
from tests.host.cuda.fake_nvrtc import FakeNvrtc, names
from tests.host.cuda.fake_streams import FakeStreams
from tests.host.cuda.fake_virtual import FakeVirtual

Result = names(
    "CUresult",
    "CUDA_SUCCESS",
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA_ERROR_INVALID_CONTEXT",
    "CUDA_ERROR_NOT_SUPPORTED",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_NOT_READY",
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
    "CUDA_ERROR_MAP_FAILED",
    "CUDA_ERROR_SOMETHING_NEW",
)

#: What an H200 says, but for virtual memory management that others reach.
DISCRETE = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "HOST_REGISTER_SUPPORTED": 1,
    "INTEGRATED": 0,
    "GPU_DIRECT_RDMA_SUPPORTED": 1,
    "DMA_BUF_SUPPORTED": 1,
    "DMA_BUF_MMAP_SUPPORTED": 0,
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 1,
    "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED": 0,
    "HOST_ALLOC_DMA_BUF_SUPPORTED": 0,
    "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS": 1,
    "GPU_DIRECT_RDMA_WRITES_ORDERING": 100,
    "CAN_USE_64_BIT_STREAM_MEM_OPS": 1,
    "CAN_FLUSH_REMOTE_WRITES": 0,
    "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES": 0,
}
#: The whole of it.
VIRTUAL = DISCRETE | {"GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED": 1}
#: A consumer card: no device can reach its memory.
CONSUMER = DISCRETE | {"GPU_DIRECT_RDMA_SUPPORTED": 0, "DMA_BUF_SUPPORTED": 0}
#: A Jetson.
INTEGRATED = CONSUMER | {"INTEGRATED": 1, "COMPUTE_CAPABILITY_MINOR": 7}

#: The GPU's UUID, which the stand-in for Vulkan has, too.
UUID = b"peerdma stand-in"

#: The primary context of device 0; those of others follow, as do other contexts, by 16.
CONTEXT = 0x1000

_NO_CONTEXT_NEEDED = {
    "cuInit",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuCtxGetCurrent",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuThreadExchangeStreamCaptureMode",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxSetFlags",
}


class FakeCuda(FakeVirtual, FakeStreams):
    """Acts like ``cuda.bindings.driver``.

    Attributes
    ----------
    calls : list of (str, tuple)
        Functions and their arguments, in order.
    failures : dict of str to (int, Result)
        Which call of a function fails, counted from 0 from now on, and how.
    active : bool
        Whether another library uses the primary contexts.
    kinds : dict of int to dict
        Attributes of pointers, beside those of what was allocated here.
    """

    def __init__(self, attributes=None, devices: int = 1):
        super().__init__()
        self.attributes = dict(DISCRETE if attributes is None else attributes)
        self.devices = devices
        self.calls: list[tuple[str, tuple]] = []
        self.failures: dict[str, tuple[int, Result]] = {}
        self.kinds: dict[int, dict] = {}
        self.memory: dict[int, np.ndarray] = {}
        self.registered: set[int] = set()
        self.modules, self.contexts = set(), 0
        self.active = False
        self._current = threading.local()
        known = [f"CU_DEVICE_ATTRIBUTE_{name}" for name in self.attributes]
        self.CUdevice_attribute = names("CUdevice_attribute", *known)
        pointer = (
            "MEMORY_TYPE IS_MANAGED CONTEXT IS_GPU_DIRECT_RDMA_CAPABLE SYNC_MEMOPS "
            "RANGE_START_ADDR RANGE_SIZE BUFFER_ID DEVICE_ORDINAL"
        )
        self.CUpointer_attribute = names(
            "CUpointer_attribute", *(f"CU_POINTER_ATTRIBUTE_{name}" for name in pointer.split())
        )
        self.library.cuPointerGetAttribute = self._device_of_memory
        self.CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_HOST=1, CU_MEMORYTYPE_DEVICE=2)
        self.CUctx_flags = SimpleNamespace(CU_CTX_SYNC_MEMOPS=128)
        self.CUmemRangeFlags = SimpleNamespace(CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE=1)
        self.CUmemRangeHandleType = SimpleNamespace(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD=1)
        self.CUflushGPUDirectRDMAWritesTarget = SimpleNamespace(
            CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX=0
        )
        self.CUflushGPUDirectRDMAWritesScope = SimpleNamespace(
            CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER=100
        )

    #: what does not wait for the thread that loads a kernel
    unhindered = frozenset(_NO_CONTEXT_NEEDED | {"cuStreamSynchronize"})

    def __getattr__(self, name: str):
        if not name.startswith("cu"):
            raise AttributeError(name)
        function = getattr(type(self), f"_{name}")

        def call(*arguments):
            self.calls.append((name, arguments))
            if name in self.failures:
                left, error = self.failures[name]
                if left == 0:
                    del self.failures[name]
                    return (error, *[None] * (name not in ("cuMemFree", "cuLaunchKernel")))
                self.failures[name] = left - 1, error
            if name not in _NO_CONTEXT_NEEDED and not self._stack():
                return (Result.CUDA_ERROR_INVALID_CONTEXT, None)
            if refused := self.enter(name, arguments):
                return (Result[refused], None)
            result = function(self, *arguments)
            if isinstance(result, Result):
                return (result, None)
            return (Result.CUDA_SUCCESS,) if result is None else (Result.CUDA_SUCCESS, result)

        return call

    def named(self, name: str) -> list[tuple]:
        """The arguments of each call of a function."""
        return [arguments for function, arguments in self.calls if function == name]

    def leftovers(self) -> list[str]:
        """What was taken and not given back."""
        taken = {
            "memory": self.memory,
            "virtual memory": [*self.handles, *self.reserved],
            "registrations": self.registered,
            "modules": self.modules,
            "streams": self.streams,
            "graphs": self._graphs,
            "events": self._events,
            "retained contexts": self.contexts,
            "current contexts": self._stack(),
        }
        return [f"{what}: {left}" for what, left in taken.items() if left]

    # Devices and contexts --------------------------------------------------------------------

    def _stack(self) -> list:
        if not hasattr(self._current, "stack"):
            self._current.stack = []
        return self._current.stack

    def _cuInit(self, flags):
        pass

    def _cuGetErrorString(self, error):
        return f"text of {error.name}".encode()

    def _cuDeviceGetCount(self):
        return self.devices

    def _cuDeviceGet(self, index):
        return index

    def _cuDeviceGetName(self, length, device):
        return b"Fake GPU".ljust(length, b"\0")

    def _cuDeviceGetUuid(self, device):
        return SimpleNamespace(bytes=UUID[:-1] + bytes([UUID[-1] + device]))

    def _cuDeviceGetAttribute(self, attribute, device):
        return self.attributes[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def _cuDevicePrimaryCtxRetain(self, device):
        self.contexts += 1
        return CONTEXT + device

    def _cuDevicePrimaryCtxGetState(self, device):
        return self.flags, int(self.active or self.contexts > 0)

    def _cuDevicePrimaryCtxSetFlags(self, device, flags):
        assert not (self.active or self.contexts), "spoils captures in the context that there is"
        self.flags = flags

    def _cuDevicePrimaryCtxRelease(self, device):
        self.contexts -= 1

    @staticmethod
    def CUcontext(handle):
        """A handle from a number, as the bindings make it."""
        return handle

    @staticmethod
    def CUuserObject(handle):
        """As `CUcontext`."""
        return handle

    @staticmethod
    def CUresult(number):
        """The error of a number, or a name."""
        return Result[number] if isinstance(number, str) else Result(number)

    def _cuCtxGetDevice(self):
        return self._stack()[-1] % 16

    def _cuCtxPushCurrent(self, context):
        self._stack().append(context)

    def _cuCtxGetCurrent(self):
        return self._stack()[-1] if self._stack() else 0

    def _cuCtxPopCurrent(self):
        return self._stack().pop()

    def _cuEventQuery(self, event):
        return None if self._events[event].is_set() else Result.CUDA_ERROR_NOT_READY

    # Memory ----------------------------------------------------------------------------------

    def _cuMemAlloc(self, nbytes):
        if not nbytes:
            return Result.CUDA_ERROR_INVALID_VALUE
        # As the driver's, small blocks are aligned to 512 bytes only; and not zeroed.
        data = np.full(nbytes + 65536, 0xCC, np.uint8)
        start = data.ctypes.data
        at = start + -start % 512
        at += 512 * (at % 65536 == 0 and nbytes % 131072 != 0)
        self.memory[at] = data
        self.kinds[at] = {
            "MEMORY_TYPE": 2,
            "CONTEXT": self._stack()[-1],
            "DEVICE": self._stack()[-1] % 16,
            "IS_GPU_DIRECT_RDMA_CAPABLE": 1,
            "RANGE_START_ADDR": at,
            "RANGE_SIZE": nbytes,
            "BUFFER_ID": next(self._handles),
        }
        return at

    def _cuMemFree(self, address):
        del self.memory[address], self.kinds[address]

    def _cuMemHostAlloc(self, nbytes, flags):
        assert flags == 3
        data = np.full(nbytes + 4096, 0xCC, np.uint8)
        at = data.ctypes.data + -data.ctypes.data % 4096
        self.memory[at] = data
        self.kinds[at] = {"MEMORY_TYPE": 1}
        return at

    _cuMemFreeHost = _cuMemFree

    def _cuMemHostRegister(self, address, nbytes, flags):
        if address in self.registered:
            return Result.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        # NVIDIA's module looks I/O memory up in the process's page table, and does not fault it in.
        if flags & 4 and not is_present(address):
            return Result.CUDA_ERROR_INVALID_VALUE
        self.registered.add(address)
        self.kinds[address] = {"MEMORY_TYPE": 1}
        return None

    def _cuMemHostUnregister(self, address):
        self.registered.remove(address)
        del self.kinds[address]

    def _cuMemHostGetDevicePointer(self, address, flags):
        return address

    def _cuMemcpyHtoDAsync(self, to, source, nbytes, stream):
        self.queue(stream, lambda: ctypes.memmove(to, source, nbytes), waits=False)

    _cuMemcpyDtoHAsync = _cuMemcpyHtoDAsync

    def _cuMemsetD8Async(self, to, value, nbytes, stream):
        self.queue(stream, lambda: ctypes.memset(to, value, nbytes), waits=False)

    def _cuPointerGetAttributes(self, count, attributes, address):
        names = [each.name.removeprefix("CU_POINTER_ATTRIBUTE_") for each in attributes]
        kind = self._kind(address) or {}
        assert count == len(attributes)
        return [kind.get(name, 0) for name in names]

    def _kind(self, address: int) -> dict | None:
        """What is known of the memory at an address."""
        for at, (nbytes, kind) in self.mapped.items():
            if at <= address < at + nbytes:
                return kind
        owner = max((at for at in self.memory if at <= address), default=None)
        if owner is not None:
            block = self.memory[owner]
            owner = owner if address < block.ctypes.data + block.nbytes else None
        return self.kinds.get(address if owner is None else owner)

    def _cuPointerGetAttribute(self, attribute, address):
        (found,) = self._cuPointerGetAttributes(1, [attribute], address)
        kind = self._kind(address) or {}
        return found if kind.get("MEMORY_TYPE") else Result.CUDA_ERROR_INVALID_VALUE

    def _device_of_memory(self, found, attribute, address):
        """As the driver's own function; DEVICE_ORDINAL is 0 by the bindings, as by several."""
        assert attribute == self.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        kind = self._kind(address.value) or {}
        if not kind.get("MEMORY_TYPE"):
            return Result.CUDA_ERROR_INVALID_VALUE
        found._obj.value = kind.get("DEVICE", 0)
        return 0

    def _cuPointerSetAttribute(self, value, attribute, address):
        unordered = (self._kind(address) or {}).get("UNORDERED")
        return Result.CUDA_ERROR_NOT_SUPPORTED if unordered else None

    def _cuCtxGetFlags(self):
        return self.flags

    def _cuCtxSetFlags(self, flags):
        self.flags = flags

    def _cuFlushGPUDirectRDMAWrites(self, target, scope):
        pass

    def _cuMemGetHandleForAddressRange(self, address, nbytes, kind, flags):
        # Without BAR1 addresses that differ from others, the driver refuses to be asked for them.
        if flags and not self.attributes["PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES"]:
            return Result.CUDA_ERROR_NOT_SUPPORTED
        # A range with a hole, or that ends beyond what is mapped, is none.
        if self.mapped and not all(map(self._kind, range(address, address + nbytes, 4096))):
            return Result.CUDA_ERROR_INVALID_VALUE
        return os.memfd_create("fake-dma-buf")

    # Kernels ---------------------------------------------------------------------------------

    def _cuModuleLoadData(self, code):
        assert code.startswith(b"machine code")
        self.modules.add(handle := next(self._handles))
        return handle

    def _cuModuleUnload(self, module):
        self.modules.remove(module)

    def _cuModuleGetFunction(self, module, name):
        return name.decode()

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function, block, shared):
        return 8

    def _cuLaunchKernel(self, function, *rest):
        *_, stream, (values, types), extra = rest
        assert len(values) == len(types) and not extra
        work = getattr(self, f"_run_{function}")
        self.load(function)
        waits = function in ("watch", "await_word", "peerdma_stream_queue")  # for others
        self.queue(stream, lambda: work(*values), waits)

    @staticmethod
    def _bytes(address: int, nbytes: int) -> np.ndarray:
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))

    def _run_fill(self, at, nbytes, seed):
        self._bytes(at, nbytes)[:] = pattern.fill_bytes(seed, 0, nbytes)

    def _report(self, found, wanted, where):
        wrong = np.flatnonzero(pattern.as_words(found) != pattern.as_words(wanted))
        result = self._bytes(where, 16).view(np.uint64)
        if len(wrong):
            result[0] = min(int(result[0]), int(wrong[0]))
            result[1] += np.uint64(len(wrong))

    def _run_verify(self, at, nbytes, seed, where):
        self._report(self._bytes(at, nbytes), pattern.fill_bytes(seed, 0, nbytes), where)

    def _run_compare(self, at, other, nbytes, where):
        self._report(self._bytes(at, nbytes), self._bytes(other, nbytes), where)

    def _run_checksum(self, at, nbytes, where):
        self._bytes(where, 8).view(np.uint64)[0] += np.uint64(
            pattern.checksum(self._bytes(at, nbytes))
        )

    def _run_watch(self, at, nbytes, seed, first, last, token, timeout_ns, cancel, seen):
        def word(address) -> ctypes.c_uint32:
            return ctypes.c_uint32.from_address(address)

        deadline = time.monotonic() + timeout_ns / 1e9
        wanted = pattern.fill_bytes(seed, 0, nbytes)
        last_word = (nbytes - 1) // 4 * 4
        for count, (start, where) in enumerate(((0, first), (last_word, last)), 1):
            piece = wanted[start : start + 4].tobytes()
            while self._bytes(at, nbytes)[start : start + 4].tobytes() != piece:
                if word(cancel).value or time.monotonic() > deadline:
                    return
                time.sleep(0.0001)
            word(where).value = token
            word(seen).value = count

    def _run_clear_word(self, word):
        ctypes.c_uint32.from_address(word).value = 0

    def _run_await_word(self, word, value):
        self._wait_for(ctypes.c_int32.from_address(word), value)

    _run_peerdma_stream_queue = staticmethod(stream_queue)

    def _run_report(self, where, token, seen):
        if ctypes.c_uint32.from_address(seen).value == 2:
            ctypes.c_uint32.from_address(where).value = token


def is_present(address: int) -> bool:
    """Whether the page at an address is in this process's page table."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        pages.seek(address // mmap.PAGESIZE * 8)
        return bool(int.from_bytes(pages.read(8), "little") >> 63)


def fake_driver(api: FakeCuda | None = None, nvrtc: FakeNvrtc | None = None) -> Driver:
    """A `Driver` on stand-ins."""
    compiler = nvrtc or FakeNvrtc()
    api = api or FakeCuda()
    return Driver(api, lambda: compiler, (13, 0), api.library)
