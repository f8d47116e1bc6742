# SPDX-License-Identifier: BSD-2-Clause
"""Memory that a CUDA GPU and a board can both reach, of each kind there is.

Each object frees its memory when nothing refers to it any more. A surface, the arrays over it, and
the tensors that other libraries made of it all refer to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import PinError
from ..memory.external import ExternalArray, Part
from ..memory.memory import DataPath, Extent, Staged, host_bytes
from ..process import own
from .device import CudaDevice
from .exported import VirtualMemory, exported
from .parts import parts_of

__all__ = [
    "Allocation",
    "DeviceMemory",
    "allocate_host",
    "from_cuda",
    "map_host",
    "reachable",
    "register",
    "registered",
]

#: Granularity of a GPU's aperture. A pin covers whole pages, so no two surfaces share one.
_GPU_PAGE = 64 * 1024
_PORTABLE, _DEVICE_MAP = 1, 2
_MAPPED = _PORTABLE | _DEVICE_MAP


class Allocation:
    """`nbytes` bytes of memory.

    Attributes
    ----------
    address : int
        Virtual address in the process.
    device_address : int
        Address that kernels use.
    path : DataPath
        The way bytes take to a board.
    owner : object
        Kept alive as long as the allocation.
    fd : int or None
        The file that backs it, if there is one.
    parts : sequence of Part
        What it consists of, if it is a GPU's and others allocated it.
    """

    def __init__(
        self,
        device: CudaDevice,
        address: int,
        device_address: int,
        nbytes: int,
        path: DataPath,
        free: Callable[[], Any],
        owner: object = None,
    ):
        self.device = device
        self.address = address
        self.device_address = device_address
        self.nbytes = nbytes
        self.path = path
        self.owner = owner
        self.fd: int | None = None
        self.parts: Sequence[Part] = ()
        # Not at exit: the end of the process frees everything, once nothing uses it any more.
        # Nor in a child: there is no CUDA, and the memory is the parent's.
        weakref.finalize(self, own(device.idle.call), free).atexit = False

    def array(self) -> np.ndarray:
        """All of it as uint8; the array keeps it alive. Only for memory that the CPU can access."""
        return host_bytes(self.address, self.nbytes, self)

    def extents(self) -> list[Extent]:
        """See `peerdma.memory.memory.Memory`."""
        if self.path is not DataPath.PEER_TO_PEER:
            return [Extent(self.array().data, fd=self.fd)]
        starts = [part.address - self.address for part in self.parts] or [0]
        return [
            Extent(
                _DeviceBytes(self, start, stop),
                gpu_file=functools.partial(
                    exported, self.device, self.address + start, stop - start
                ),
            )
            for start, stop in zip(starts, [*starts[1:], self.nbytes], strict=True)
        ]


class _DeviceBytes(Staged):
    """GPU memory that the CPU accesses by copies."""

    readonly = False

    def __init__(self, memory: Allocation, start: int, stop: int):
        self._memory = memory
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, key: slice) -> _DeviceBytes:
        start, stop, _ = key.indices(len(self))
        return _DeviceBytes(self._memory, self._start + start, self._start + max(start, stop))

    def __setitem__(self, key: slice, data: bytes) -> None:
        piece = self[key]
        if len(piece) != len(data):
            raise ValueError(f"{len(data)} bytes for {len(piece)} bytes of GPU memory")
        source = np.frombuffer(data, np.uint8)
        piece._memory.device.write(piece._address, source.ctypes.data, len(data))

    def __bytes__(self) -> bytes:
        data = np.empty(len(self), np.uint8)
        self._memory.device.read(self._address, data.ctypes.data, len(self))
        return data.tobytes()

    @property
    def _address(self) -> int:
        return self._memory.device_address + self._start


class DeviceMemory(Allocation):
    """Memory of the GPU itself, on GPU pages of its own, zeroed.

    Where the driver lets other devices reach such memory, it is of virtual memory management, which
    other processes can map: a simulated board does. It takes a multiple of 2 MiB then.

    Raises
    ------
    CudaError
        If there is not enough.
    """

    def __init__(self, device: CudaDevice, nbytes: int):
        action = f"allocate a surface of {nbytes} bytes in GPU memory"
        device.acquire()
        with contextlib.ExitStack() as undo:
            undo.callback(device.release)
            with device.current():
                virtual = VirtualMemory.of(device, action)
                if virtual:
                    whole, address = virtual.allocate(nbytes, undo)
                else:
                    whole, address = self._allocate(device, nbytes, undo, action)
                device.set_bytes(address, whole, 0)
                device.synchronize()
            super().__init__(
                device, address, address, whole, DataPath.PEER_TO_PEER, undo.pop_all().close
            )

    @staticmethod
    def _allocate(
        device: CudaDevice, nbytes: int, undo: contextlib.ExitStack, action: str
    ) -> tuple[int, int]:
        """By ``cuMemAlloc``: how many bytes, and their address."""
        whole = -(-nbytes // _GPU_PAGE) * _GPU_PAGE
        # CUDA does not promise alignment to GPU pages: ask for one page more if needed.
        for extra in (0, _GPU_PAGE):
            block = int(device.driver.call("cuMemAlloc", whole + extra, action=action))
            skip = -block % _GPU_PAGE
            if skip <= extra:
                break
            device.idle.call(functools.partial(device.quietly, "cuMemFree", block))
        undo.callback(device.quietly, "cuMemFree", block)
        return whole, block + skip


def allocate_host(device: CudaDevice, nbytes: int) -> Allocation:
    """Pinned memory of the host, zeroed, that the GPU and a board both reach.

    Where the GPU can take memory that exists already, it is a shared file, which a simulated
    board maps; an integrated GPU's comes from CUDA, as GPUDirect RDMA on Jetson wants it.

    Raises
    ------
    CudaError
        If there is not enough.
    """
    if device.attribute("HOST_REGISTER_SUPPORTED") and not device.attribute("INTEGRATED"):
        return _shared(device, nbytes)
    return from_cuda(device, nbytes)


def register(device: CudaDevice, array: ExternalArray) -> Allocation:
    """Another library's array as an allocation, mapped for the GPU; keeps the array alive.

    Raises
    ------
    PinError
        If no board could reach it: managed or pageable memory, another GPU's, or memory that the
        GPU's driver does not export.
    """
    what = f"register {array.nbytes} bytes at {array.address:#x} as a surface"
    if array.readonly:
        raise _unreachable(what, "the array is read-only, surfaces are not")
    kind, parts = reachable(device, array, what)
    action = f"register an array of {array.nbytes} bytes in host memory as a surface"
    with contextlib.ExitStack() as undo:
        device.acquire()
        undo.callback(device.release)
        if array.on_gpu:
            mapped, path = array.address, DataPath.PEER_TO_PEER
        elif kind:
            path = DataPath.HOST_MEMORY
            with device.current():
                call = device.driver.call
                mapped = int(call("cuMemHostGetDevicePointer", array.address, 0, action=action))
        else:
            return _registered(device, array.address, array.nbytes, undo, action, array.owner)
        free = undo.pop_all().close
        memory = Allocation(device, array.address, mapped, array.nbytes, path, free, array.owner)
    memory.parts = parts
    return memory


def registered(
    device: CudaDevice, address: int, nbytes: int, owner: object, action: str
) -> Allocation:
    """Whole pages of this process that a GPU reaches, too, as long as the allocation is there."""
    with contextlib.ExitStack() as undo:
        device.acquire()
        undo.callback(device.release)
        return _registered(device, address, nbytes, undo, action, owner)


def _unreachable(
    action: str, found: str, step: str = "Copy it into a surface of gpu.surface(...) instead"
) -> PinError:
    return PinError(f"cannot {action}: {found}. {step}")


def reachable(
    device: CudaDevice, array: ExternalArray, action: str
) -> tuple[int, tuple[Part, ...]]:
    """The kind of memory, a CUmemorytype, or 0 if CUDA does not know it; and its parts on a GPU.

    Raises
    ------
    PinError
        "cannot `action`", if a board cannot reach it; says why and what to do.
    """
    kind = _reachable(device, array, action)
    if not array.on_gpu:
        return kind, ()
    parts = parts_of(device.driver, array.address, array.nbytes, action)
    for part in parts[1:]:
        _reachable(device, array._replace(address=part.address), action)
    return kind, parts


def _reachable(device: CudaDevice, array: ExternalArray, action: str) -> int:
    """The kind of the memory at the first address of an array."""
    driver, refuse = device.driver, functools.partial(_unreachable, action)
    with device.current():
        kind = driver.memory_type(array.address)
        if not kind:
            if array.on_gpu:
                raise refuse(
                    "it is pageable memory, which CUDA does not know and the system can move"
                )
            return kind
        managed, context, capable = (
            driver.pointer_attribute(array.address, name)
            for name in ("IS_MANAGED", "CONTEXT", "IS_GPU_DIRECT_RDMA_CAPABLE")
        )
    if managed:
        raise refuse("it is managed memory, which moves between CPU and GPU")
    if not array.on_gpu:
        return kind
    if kind != int(driver.api.CUmemorytype.CU_MEMORYTYPE_DEVICE):
        raise refuse("it is memory of the host", "Register it as a numpy array")
    other = driver.device_index(array.address)
    if other != device.index:
        step = f'Register it with that GPU: gpu("cuda:{other}")'
        raise refuse(f"it is in GPU {other}, this is GPU {device.index}", step)
    # Memory of a pool, or of virtual memory management, belongs to no context.
    if context and context != int(device.context):
        raise refuse(
            "it belongs to another CUDA context than the primary one",
            "Allocate it in that, as the CUDA runtime, PyTorch and CuPy do",
        )
    if not capable and device.attribute("INTEGRATED"):
        raise refuse(
            "other devices do not reach memory that was allocated for an integrated GPU",
            "Use memory of the host, which both reach: a surface of gpu.surface(...), or pinned "
            "memory (cudaHostAlloc)",
        )
    if not capable:
        raise refuse(
            "its allocator did not make it accessible to other devices (GPUDirect RDMA)",
            "Memory of cudaMalloc is; that of cudaMallocAsync is not, and that of virtual memory "
            "management if it was created with gpuDirectRDMACapable, as PyTorch's expandable "
            "segments are. Use PyTorch's default allocator, or CuPy's default pool",
        )
    return kind


def _shared(device: CudaDevice, nbytes: int) -> Allocation:
    whole = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    with contextlib.ExitStack() as undo:
        fd = os.memfd_create("peerdma-surface", os.MFD_CLOEXEC)
        undo.callback(os.close, fd)
        os.ftruncate(fd, whole)
        memory = mmap.mmap(fd, whole)
        undo.callback(memory.close)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        action = f"allocate a surface of {nbytes} bytes in host memory"
        device.acquire()
        undo.callback(device.release)
        allocation = _registered(device, address, whole, undo, action)
    allocation.fd = fd
    return allocation


def _registered(
    device: CudaDevice,
    address: int,
    nbytes: int,
    undo: contextlib.ExitStack,
    action: str,
    owner: object = None,
) -> Allocation:
    """Existing host memory, registered with CUDA; when it is freed, so is all in `undo`."""
    mapped = map_host(device, address, nbytes, undo, action)
    path, free = DataPath.HOST_MEMORY, undo.pop_all().close
    return Allocation(device, address, mapped, nbytes, path, free, owner)


def map_host(
    device: CudaDevice,
    address: int,
    nbytes: int,
    undo: contextlib.ExitStack,
    action: str,
    flags: int = 0,
) -> int:
    """Registers host memory with CUDA until `undo`; returns the address that kernels use."""
    with device.current():
        call = device.driver.call
        call("cuMemHostRegister", address, nbytes, _MAPPED | flags, action=action)
        undo.callback(device.quietly, "cuMemHostUnregister", address)
        return int(call("cuMemHostGetDevicePointer", address, 0, action=action))


def from_cuda(device: CudaDevice, nbytes: int) -> Allocation:
    """Pinned memory of the host that CUDA allocates, zeroed; CudaError if there is not enough."""
    whole = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    action = f"allocate a surface of {nbytes} bytes in host memory"
    call = device.driver.call
    device.acquire()
    with contextlib.ExitStack() as undo:
        undo.callback(device.release)
        with device.current():
            address = int(call("cuMemHostAlloc", whole, _MAPPED, action=action))
            undo.callback(device.quietly, "cuMemFreeHost", address)
            mapped = int(call("cuMemHostGetDevicePointer", address, 0, action=action))
        ctypes.memset(address, 0, whole)
        return Allocation(
            device, address, mapped, whole, DataPath.HOST_MEMORY, undo.pop_all().close
        )
