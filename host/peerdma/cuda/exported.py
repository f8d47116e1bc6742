# SPDX-License-Identifier: BSD-2-Clause
"""A GPU's memory that other processes can map, by CUDA's virtual memory management, and its files.

A simulated board maps it, and then reaches it as a card does: through the GPU's BAR1.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

from ..errors import CudaError, UnsupportedError
from ..memory.memory import GpuFile
from .device import CudaDevice
from .parts import whole_part
from .reachable import export_range

__all__ = ["VirtualMemory", "exported"]

#: The first driver that can be asked whether processes can map its dma-bufs.
_HAS_MMAP = (13, 3)


class VirtualMemory:
    """Allocates memory of virtual memory management on a GPU. Use `VirtualMemory.of`."""

    def __init__(self, device: CudaDevice, action: str):
        self._device = device
        self._action = action
        api = device.driver.api
        location = api.CUmemLocation()
        location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = device.index
        self._properties: Any = _properties(api, location)
        self._access: Any = api.CUmemAccessDesc()
        self._access.location = location
        self._access.flags = api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

    @staticmethod
    def of(device: CudaDevice, action: str) -> VirtualMemory | None:
        """For a device; None where it has none, or CUDA does not order copies of it with DMA.

        That is said of a context, at its creation or with the first pin that needs it, as it spoils
        captures, see `CudaDevice.order_copies`. The context must be current.
        """
        if not device.shareable or not device.copies_ordered:
            return None
        return VirtualMemory(device, action)

    def allocate(self, nbytes: int, undo: contextlib.ExitStack) -> tuple[int, int]:
        """How many bytes there are, and their address; `undo` frees them.

        The context must be current. CudaError if there is not enough.
        """
        call = functools.partial(self._device.driver.call, action=self._action)
        grain = _grain(self._device, self._properties, self._action)
        whole = -(-nbytes // grain) * grain
        with contextlib.ExitStack() as taken:
            handle = call("cuMemCreate", whole, self._properties, 0)
            # What is mapped stays.
            taken.callback(call, "cuMemRelease", handle)
            address = call("cuMemAddressReserve", whole, 0, 0, 0)
            undo.callback(self._device.quietly, "cuMemAddressFree", address, whole)
            call("cuMemMap", address, whole, 0, handle, 0)
            undo.callback(self._unmap, address, whole)
            call("cuMemSetAccess", address, whole, [self._access], 1)
        return whole, int(address)

    def _unmap(self, address: Any, nbytes: int) -> None:
        """Unmaps memory when nothing on the GPU uses it any more: CUDA does not wait for that."""
        device = self._device
        with contextlib.suppress(CudaError), device.current():
            try:
                device.wait_for_all(self._action)
            except CudaError:
                device.driver.api.cuCtxSynchronize()
        device.quietly("cuMemUnmap", address, nbytes)


def _properties(api: Any, location: Any) -> Any:
    properties = api.CUmemAllocationProp()
    properties.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = location
    properties.requestedHandleTypes = _file(api)
    properties.allocFlags.gpuDirectRDMACapable = 1
    return properties


def _file(api: Any) -> Any:
    return api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def _grain(device: CudaDevice, properties: Any, action: str) -> int:
    """What lengths of memory are multiples of."""
    least = device.driver.api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    return int(
        device.driver.call("cuMemGetAllocationGranularity", properties, least, action=action)
    )


@contextlib.contextmanager
def exported(device: CudaDevice, address: int, nbytes: int) -> Iterator[GpuFile]:
    """The file of bytes of a GPU's memory, open inside a ``with`` block.

    Raises
    ------
    UnsupportedError
        If they have none, says why: they are not of virtual memory management, as cudaMalloc's.
    """
    action = f"export the memory at {address:#x}"
    with contextlib.ExitStack() as undo:
        try:
            if device.driver.version >= _HAS_MMAP and device.attribute("DMA_BUF_MMAP_SUPPORTED"):
                fd, offset, whole = export_range(device, address, nbytes, action)
                undo.callback(os.close, fd)
                file = GpuFile(fd, whole, offset, 0, device.uuid(), True)
            else:
                file = _allocation(device, address, undo, action)
        except CudaError as error:
            raise UnsupportedError(
                "CUDA exports no file of it for other processes, as of memory of cudaMalloc "
                f"({error.name}). A surface has one if peerdma was the first in this process to "
                "use the GPU, and a tensor of PyTorch with expandable_segments:True"
            ) from None
        yield file


def _allocation(
    device: CudaDevice, address: int, undo: contextlib.ExitStack, action: str
) -> GpuFile:
    """The file of the allocation that an address is in, which `undo` closes."""
    driver = device.driver
    call = functools.partial(driver.call, action=action)
    with device.current():
        handle = call("cuMemRetainAllocationHandle", address)
        undo.callback(device.quietly, "cuMemRelease", handle)
        properties = call("cuMemGetAllocationPropertiesFromHandle", handle)
        base, nbytes = whole_part(driver, address, _grain(device, properties, action))
        fd = int(call("cuMemExportToShareableHandle", handle, _file(driver.api), 0))
    undo.callback(os.close, fd)
    identity = driver.identity(address)
    return GpuFile(fd, nbytes, address - base, identity, device.uuid(), False)
