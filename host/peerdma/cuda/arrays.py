# SPDX-License-Identifier: BSD-2-Clause
"""Arrays in GPUs' memory, of any library, as memory that a board can pin: whole allocations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..memory import dlpack
from ..memory.dmabuf import DmaBufExport
from ..memory.external import LEGACY_STREAM, ExternalArray, Origin, Part, describe
from ..memory.memory import DataPath, Extent
from .device import CudaDevice
from .driver import Driver, load
from .memory import Allocation, reachable
from .reachable import Reachable

__all__ = ["Block", "CudaArrays", "DeviceRange", "described", "wait_for_producer"]

#: In the order of `Block`.
_FACTS = ("CONTEXT", "RANGE_START_ADDR", "RANGE_SIZE", "BUFFER_ID")


class Block(NamedTuple):
    """An allocation in a GPU's memory, never equal to a later one at the same address.

    It may be a range of addresses, in which this is the first of several parts.
    """

    context: int
    base: int
    size: int
    #: unique in the process
    buffer_id: int

    def holds(self, array: ExternalArray) -> bool:
        """Whether the addresses of an array are in it."""
        return self.base <= array.address <= self.base + self.size - array.nbytes


class DeviceRange(Reachable):
    """Bytes of an allocation that others made: its owner, if given, keeps it."""

    path: DataPath = DataPath.PEER_TO_PEER
    on_gpu: bool = True
    readonly: bool = False

    def __init__(
        self,
        device: CudaDevice,
        address: int,
        nbytes: int,
        parts: Sequence[Part],
        owner: object = None,
    ):
        self._device = device
        self._owner = owner
        self.parts = parts
        #: of an array that is pinned explicitly
        self.origin: Origin | None = None
        self.device_address: int = address
        self.nbytes: int = nbytes

    def __repr__(self) -> str:
        return f"<DeviceRange {self.nbytes} bytes at {self.address:#x} of {self._device.name}>"

    @property
    def address(self) -> int:
        """Virtual address of the first byte."""
        return self.device_address

    def extents(self) -> list[Extent]:
        """See `peerdma.memory.memory.Memory`."""
        device = self._device
        device.acquire()
        address = self.address
        block = Allocation(device, address, address, self.nbytes, self.path, device.release)
        block.parts = self.parts
        return block.extents()

    def acquire(self) -> None:
        """Orders CUDA's own copies with DMA; the owner keeps the memory."""
        self.order_copies()

    def release(self) -> None:
        """Nothing to do."""

    def dmabuf(self) -> DmaBufExport:
        """See `peerdma.memory.memory.DmaBufMemory`."""
        return self.export()


class CudaArrays:
    """Finds out what arrays in GPUs' memory are. Uses the primary contexts of their devices."""

    def __init__(self):
        self._driver: Driver | None = None
        self._devices: dict[int, CudaDevice] = {}

    def block(self, address: int) -> Block:
        """The allocation that a pointer is in; zeros where CUDA knows none."""
        return Block(*self._loaded().pointer_attributes(address, *_FACTS))

    def identity(self, address: int) -> int:
        """See `Driver.identity`."""
        return self._loaded().identity(address)

    def one_part(self, block: Block, array: ExternalArray | None = None) -> bool:
        """Whether an array in a block, or all of it, is of the part that the block was found by.

        No other part has its identity, and no part is in two pieces.
        """
        if array is not None:
            last = array.address + array.nbytes - 1
            return block.holds(array) and self.identity(last) == block.buffer_id
        ends = block.base, block.base + block.size - 1
        return all(self.identity(each) == block.buffer_id for each in ends)

    def memory(self, array: ExternalArray, block: Block | None) -> DeviceRange | None:
        """The allocation, or the array if `block` is None; None if it is memory of the host.

        Raises
        ------
        PinError
            If no board could reach it; says what to do.
        """
        driver = self._loaded()
        kind, managed = driver.pointer_attributes(array.address, "MEMORY_TYPE", "IS_MANAGED")
        host = int(driver.api.CUmemorytype.CU_MEMORYTYPE_HOST)
        if kind == host and not managed:
            return None
        device = self.device(driver.device_index(array.address))
        action = f"pin {array.nbytes} bytes at {array.address:#x} of a GPU's memory"
        _, parts = reachable(device, array._replace(on_gpu=True), action)
        if block is None:
            return DeviceRange(device, array.address, array.nbytes, parts, array.owner)
        return DeviceRange(device, block.base, block.size, [Part(block.base, block.buffer_id)])

    def wait(self, array: Any, address: int, action: str) -> None:
        """Waits for the work that has to finish before an array at an address is used."""
        wait_for_producer(self.device(self._loaded().device_index(address)), array, action)

    def current_device(self) -> CudaDevice:
        """The device whose context is the thread's current one, else the first."""
        driver = self._loaded()
        context = int(driver.call("cuCtxGetCurrent", action="look up the current CUDA context"))
        return self.device(driver.device_of(context) if context else 0)

    def device(self, index: int) -> CudaDevice:
        """A device by its number."""
        if index not in self._devices:
            self._devices[index] = CudaDevice(self._loaded(), index)
        return self._devices[index]

    def close(self) -> None:
        """Releases the devices."""
        while self._devices:
            self._devices.popitem()[1].release()

    def _loaded(self) -> Driver:
        if self._driver is None:
            self._driver = load()
        return self._driver


def wait_for_producer(device: CudaDevice, array: Any, action: str) -> None:
    """Waits for the work that its library has queued on an array of a GPU's memory.

    Raises
    ------
    PeerdmaError
        As `CudaDevice.wait_for`.
    """
    stream = described(device, array, action).stream
    if stream is not None:
        device.wait_for(stream)


def described(device: CudaDevice, array: Any, action: str) -> ExternalArray:
    """See `describe`: what is queued on the array has to finish before it is used.

    Raises
    ------
    PeerdmaError
        As `CudaDevice.wait_for`.
    """
    # The library is asked as if its current GPU were this one, and may not spoil a capture either.
    with device.current():
        if _has_default_stream_wait(array):
            device.require_uncaptured(LEGACY_STREAM, action)
        return describe(array, action)


def _has_default_stream_wait(array: Any) -> bool:
    """Whether its library queues something in the default stream when the array is described."""
    try:
        return int(array.__dlpack_device__()[0]) == dlpack.CUDA
    except Exception:  # of any library; `describe` finds out, too, and says what is wrong
        return False
