# SPDX-License-Identifier: BSD-2-Clause
"""A CUDA device: its primary context, and a stream in it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import CudaError, GpuNotFound, PeerdmaError, PinError
from ..memory.external import ALL_STREAMS, LEGACY_STREAM
from ..waiting import OwnLock
from .driver import Driver
from .idle import Idle

__all__ = ["CudaDevice"]

_NON_BLOCKING = 1
#: Values of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING from which on the GPU sees what
#: other devices wrote without a flush.
_ORDERED_FOR_OWNER = 100
#: Bit of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS.
_FLUSH_BY_HOST = 1
#: The first driver with CU_CTX_SYNC_MEMOPS.
_HAS_CONTEXT_FLAGS = (12, 1)
#: Device attributes without which no other process, or no other device, reaches virtual memory.
_SHAREABLE = (
    "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
    "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED",
)
_CAPTURING = {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"}


class CudaDevice:
    """Device number `index`, shared by a GPU object, its surfaces and other users, and counts them.

    The primary context is the one that the CUDA runtime, and with it PyTorch and CuPy, uses:
    pointers mean the same to all of them. Work goes into a non-blocking stream of our own, and has
    finished when methods return unless they say that they queue it.

    Attributes
    ----------
    name : str
        The product's name.
    index : int
    capability : (int, int)
        Compute capability.
    context : CUcontext
    idle : Idle
        Postpones frees while a kernel of this process watches the GPU.
    """

    def __init__(self, driver: Driver, index: int):
        self.driver = driver
        self.index = index
        # Reentrant: garbage collection may call `release` while this thread has the lock.
        self._lock = OwnLock("GPU")
        self._users = 1
        self.idle: Idle = Idle.of(driver.api, index)
        self._ordered = int(driver.api.CUctx_flags.CU_CTX_SYNC_MEMOPS)
        count = driver.call("cuDeviceGetCount", action="count the CUDA devices")
        if not 0 <= index < count:
            raise GpuNotFound(
                f"use CUDA device {index}",
                f"this process sees {count}, numbered from 0",
                "nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide some",
            )
        action = f"use CUDA device {index}"
        device = driver.call("cuDeviceGet", index, action=action)
        self._device = device
        self.capability: tuple[int, int] = (
            self.attribute("COMPUTE_CAPABILITY_MAJOR"),
            self.attribute("COMPUTE_CAPABILITY_MINOR"),
        )

        name = driver.call("cuDeviceGetName", 256, device, action=action)
        self.name: str = bytes(name).split(b"\0")[0].decode()
        with contextlib.ExitStack() as undo:
            with driver.relaxed():
                self._order_copies_from_the_start(action)
                self.context: Any = driver.call("cuDevicePrimaryCtxRetain", device, action=action)
            undo.callback(self._release_context)
            with self.current():
                self.stream: Any = self.new_stream(undo)
            self._undo = undo.pop_all()

    def attribute(self, name: str) -> int:
        """The attribute CU_DEVICE_ATTRIBUTE_`name`; 0 if there is none of this name."""
        return self.driver.device_attribute(self._device, name)

    @property
    def shareable(self) -> bool:
        """Whether other processes, and other devices, can reach its virtual memory."""
        return all(map(self.attribute, _SHAREABLE))

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the context the thread's current one inside a ``with`` block.

        What is called there spoils no capture, see `Driver.relaxed`.
        """
        self._lock.require_own()
        self.driver.call("cuCtxPushCurrent", self.context, action="make the GPU's context current")
        try:
            with self.driver.relaxed():
                yield
        finally:
            self.driver.api.cuCtxPopCurrent()

    @contextlib.contextmanager
    def current_of(self, stream: int) -> Iterator[None]:
        """As `current`, for the context of a stream."""
        call, api = self.driver.call, self.driver.api
        action = "use a stream"
        # The numbers of default streams mean the current context's.
        known = int(call("cuCtxGetCurrent", action=action))
        with contextlib.nullcontext() if known else self.current():
            context = call("cuStreamGetCtx", stream, action=action)
        call("cuCtxPushCurrent", context, action=action)
        try:
            with self.driver.relaxed():
                yield
        finally:
            api.cuCtxPopCurrent()

    # Lifetime --------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Adds a user of the device; PeerdmaError if the last one is gone."""
        with self._lock:
            if not self._users:
                raise PeerdmaError("the GPU is closed; open another")
            self._users += 1

    def release(self) -> None:
        """Removes a user; the last one to go releases the context and all in it."""
        if self._lock.foreign:
            return
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._undo.close()

    def _release_context(self) -> None:
        with contextlib.suppress(PeerdmaError), self.driver.relaxed():
            self.driver.api.cuDevicePrimaryCtxRelease(self._device)

    def quietly(self, function: str, *arguments: Any) -> None:
        """Frees something. Ignores errors: they mean that the context is broken anyway."""
        with contextlib.suppress(PeerdmaError), self.current():
            getattr(self.driver.api, function)(*arguments)

    # Work ------------------------------------------------------------------------------------

    def load(self, code: bytes) -> Any:
        """Loads a module of machine code, which is unloaded when the device's last user goes."""
        with self.current():
            module = self.driver.call("cuModuleLoadData", code, action="load the kernels")
        self._undo.callback(self.quietly, "cuModuleUnload", module)
        return module

    def synchronize(self, stream: Any = None) -> None:
        """Waits until what was queued in a stream is done. The context must be current."""
        action = "wait for work on the GPU"
        self.driver.call("cuStreamSynchronize", stream or self.stream, action=action)

    def wait_for(self, stream: int) -> None:
        """Waits for the work that another library queued in a stream, or in `ALL_STREAMS`.

        Raises
        ------
        PeerdmaError
            If the stream is being captured; the capture goes on.
        CudaError
            If it cannot be waited for beside a capture in another stream, which goes on.
        """
        action = "wait for work on an array"
        with self.current():
            if stream == ALL_STREAMS:
                self.wait_for_all(action)
                return
            self.require_uncaptured(stream, action)
            self.driver.call("cuStreamSynchronize", stream, action=action)

    def require_uncaptured(self, stream: int, action: str) -> None:
        """Raises as `wait_for`, unless a stream can be waited for. The context must be current."""
        # Asking spoils no capture, and waiting would.
        status = self.driver.call("cuStreamGetCaptureInfo", stream, action=action)[0]
        if int(status):
            raise PeerdmaError(
                f"cannot {action}: its stream is being captured, and does nothing before the graph "
                "is launched. Copy in the order of the stream, board.copy(..., stream=stream), or "
                "after the capture"
            )

    def wait_for_all(self, action: str) -> None:
        """Waits for all that is queued on the GPU, by any library. The context must be current.

        By a free, which CUDA lets wait for whatever may use memory: ``cuCtxSynchronize`` would
        invalidate captures in every mode. But other calls of CUDA wait for a free, and a stream
        that waits for a board may need them: while there is one, there is no other way.
        """
        if self.idle.busy:
            self.driver.call("cuCtxSynchronize", action=action)
            return
        block = self.driver.call("cuMemAlloc", 1, action=action)
        self.driver.call("cuMemFree", block, action=action)

    def uuid(self) -> bytes:
        """The GPU's UUID, or that of the part of it (MIG instance) that this process has."""
        found = self.driver.call("cuDeviceGetUuid", self._device, action="look up the GPU's UUID")
        return bytes(found.bytes)

    def order_copies(self, addresses: Iterable[int], action: str) -> None:
        """Orders CUDA's own copies of memory with DMA; once for each piece that was mapped at once.

        By SYNC_MEMOPS of the pointers; where they have none, as memory of virtual memory
        management, by that of the context, which stays so. To set that spoils a capture in every
        mode, and no call tells whether there is one: it is done the first time only.

        Raises
        ------
        PinError
            If neither is supported; says what to do.
        CudaError
        """
        driver = self.driver
        attribute = driver.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        with self.current():
            if self.copies_ordered:
                return
            try:
                for address in addresses:
                    driver.call("cuPointerSetAttribute", True, attribute, address, action=action)
            except CudaError as error:
                if error.name != "CUDA_ERROR_NOT_SUPPORTED":
                    raise
                self._order_all_copies(action)

    def _order_copies_from_the_start(self, action: str) -> None:
        """Has the context order all copies with DMA, if there is none yet: no stream captures."""
        call = self.driver.call
        if self.shareable and self.driver.version >= _HAS_CONTEXT_FLAGS:
            flags, active = call("cuDevicePrimaryCtxGetState", self._device, action=action)
            if not active:
                ordered = flags | self._ordered
                call("cuDevicePrimaryCtxSetFlags", self._device, ordered, action=action)

    @property
    def copies_ordered(self) -> bool:
        """Whether CUDA orders its copies of all memory with DMA. The context must be current."""
        if self.driver.version < _HAS_CONTEXT_FLAGS:
            return False
        flags = int(self.driver.call("cuCtxGetFlags", action="look up the context's flags"))
        return flags & self._ordered != 0

    def _order_all_copies(self, action: str) -> None:
        """As `order_copies`, of all memory. The context must be current; raises the same."""
        call = self.driver.call
        try:
            if self.driver.version < _HAS_CONTEXT_FLAGS:
                raise CudaError(action, "the driver is older than CUDA 12.1", "", name="")
            flags = int(call("cuCtxGetFlags", action=action))
            ordered = flags | self._ordered
            if flags != ordered:
                # Some captures can be seen, those that the default stream would wait for.
                call("cuStreamGetCaptureInfo", LEGACY_STREAM, action=action)
                call("cuCtxSetFlags", ordered, action=action)
        except CudaError as error:
            if error.name in _CAPTURING:
                raise PinError(
                    f"cannot {action}: it is the first memory of virtual memory management that is "
                    "pinned, which sets CU_CTX_SYNC_MEMOPS of the context, and a stream is being "
                    "captured. Pin some such memory once before all captures, or after this one"
                ) from None
            raise PinError(
                f"cannot {action}: CUDA does not order its copies of this memory with DMA, neither "
                f"for the memory (SYNC_MEMOPS) nor for the context ({error.found}). Use memory of "
                "cudaMalloc, as of PyTorch with expandable_segments:False, or a driver of CUDA "
                "12.1 or later"
            ) from None

    def set_bytes(self, address: int, nbytes: int, value: int, stream: Any = None) -> None:
        """Sets `nbytes` bytes to `value`, in a stream. The context must be current."""
        arguments = address, value, nbytes, stream or self.stream
        self.driver.call("cuMemsetD8Async", *arguments, action=f"set {nbytes} bytes")

    @functools.cached_property
    def needs_flush(self) -> bool:
        """Whether what other devices wrote to its memory has to be flushed, see `flush_writes`."""
        return (
            self.attribute("GPU_DIRECT_RDMA_WRITES_ORDERING") < _ORDERED_FOR_OWNER
            and self.attribute("GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS") & _FLUSH_BY_HOST != 0
        )

    def flush_writes(self) -> None:
        """Makes what other devices wrote to the GPU's memory visible to work queued from now on."""
        api = self.driver.api
        target = api.CUflushGPUDirectRDMAWritesTarget
        scope = api.CUflushGPUDirectRDMAWritesScope
        with self.current():
            self.driver.call(
                "cuFlushGPUDirectRDMAWrites",
                target.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                scope.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
                action="flush a board's writes to the GPU",
            )

    def new_stream(self, undo: contextlib.ExitStack) -> Any:
        """A stream that waits for no other; `undo` destroys it. The context must be current."""
        stream = self.driver.call("cuStreamCreate", _NON_BLOCKING, action="create a CUDA stream")
        undo.callback(self.quietly, "cuStreamDestroy", stream)
        return stream

    def write(self, address: int, data: int, nbytes: int) -> None:
        """Copies from host address `data` to `address` on the GPU."""
        with self.current():
            self.driver.call(
                "cuMemcpyHtoDAsync",
                address,
                data,
                nbytes,
                self.stream,
                action=f"copy {nbytes} bytes to the GPU",
            )
            self.synchronize()

    def read(self, address: int, data: int, nbytes: int) -> None:
        """Copies from `address` on the GPU to host address `data`."""
        with self.current():
            self.driver.call(
                "cuMemcpyDtoHAsync",
                data,
                address,
                nbytes,
                self.stream,
                action=f"copy {nbytes} bytes from the GPU",
            )
            self.synchronize()
