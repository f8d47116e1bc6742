# SPDX-License-Identifier: BSD-2-Clause
"""A CUDA device: its primary context, and a stream in it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from ..errors import GpuNotFound, PeerdmaError
from ..memory.external import ALL_STREAMS
from ..process import OwnLock
from .driver import Driver
from .idle import Idle

__all__ = ["CudaDevice"]

_NON_BLOCKING = 1
#: Values of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING from which on the GPU sees what
#: other devices wrote without a flush.
_ORDERED_FOR_OWNER = 100
#: Bit of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS.
_FLUSH_BY_HOST = 1


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
            self.context: Any = driver.call("cuDevicePrimaryCtxRetain", device, action=action)
            undo.callback(driver.api.cuDevicePrimaryCtxRelease, device)
            with self.current():
                self.stream: Any = self.new_stream(undo)
            self._undo = undo.pop_all()

    def attribute(self, name: str) -> int:
        """The attribute CU_DEVICE_ATTRIBUTE_`name`; 0 if there is none of this name."""
        return self.driver.device_attribute(self._device, name)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the context the thread's current one inside a ``with`` block."""
        self._lock.require_own()
        self.driver.call("cuCtxPushCurrent", self.context, action="make the GPU's context current")
        try:
            yield
        finally:
            self.driver.api.cuCtxPopCurrent()

    @contextlib.contextmanager
    def current_of(self, stream: int) -> Iterator[None]:
        """Makes the context of a stream the current one, inside a ``with`` block."""
        call, api = self.driver.call, self.driver.api
        action = "use a stream"
        # The numbers of default streams mean the current context's.
        known = int(call("cuCtxGetCurrent", action=action))
        with contextlib.nullcontext() if known else self.current():
            context = call("cuStreamGetCtx", stream, action=action)
        call("cuCtxPushCurrent", context, action=action)
        try:
            yield
        finally:
            api.cuCtxPopCurrent()

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """Lets this thread do what needs no stream while another one, or itself, captures one."""
        exchange = "cuThreadExchangeStreamCaptureMode"
        modes, action = self.driver.api.CUstreamCaptureMode, "work beside a capture"
        relaxed = modes.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self.driver.call(exchange, relaxed, action=action)
        try:
            yield
        finally:
            self.driver.call(exchange, before, action=action)

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

    def _in_context(self, function: str, handle: Any) -> None:
        """Releases a handle. Ignores errors: they mean that the context is broken anyway."""
        with contextlib.suppress(PeerdmaError), self.current():
            getattr(self.driver.api, function)(handle)

    # Work ------------------------------------------------------------------------------------

    def load(self, code: bytes) -> Any:
        """Loads a module of machine code, which is unloaded when the device's last user goes."""
        with self.current():
            module = self.driver.call("cuModuleLoadData", code, action="load the kernels")
        self._undo.callback(self._in_context, "cuModuleUnload", module)
        return module

    def synchronize(self, stream: Any = None) -> None:
        """Waits until what was queued in a stream is done. The context must be current."""
        action = "wait for work on the GPU"
        self.driver.call("cuStreamSynchronize", stream or self.stream, action=action)

    def wait_for(self, stream: int) -> None:
        """Waits for the work that another library queued in a stream, or in `ALL_STREAMS`."""
        action = "wait for work on an array"
        with self.current():
            if stream == ALL_STREAMS:
                self.driver.call("cuCtxSynchronize", action=action)
            else:
                self.driver.call("cuStreamSynchronize", stream, action=action)

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
        with self.current(), self.relaxed():
            self.driver.call(
                "cuFlushGPUDirectRDMAWrites",
                target.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                scope.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
                action="flush a board's writes to the GPU",
            )

    def new_stream(self, undo: contextlib.ExitStack) -> Any:
        """A stream that waits for no other; `undo` destroys it. The context must be current."""
        stream = self.driver.call("cuStreamCreate", _NON_BLOCKING, action="create a CUDA stream")
        undo.callback(self._in_context, "cuStreamDestroy", stream)
        return stream

    def write(self, address: int, data: int, nbytes: int) -> None:
        """Copies from host address `data` to `address` on the GPU."""
        with self.current(), self.relaxed():
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
        with self.current(), self.relaxed():
            self.driver.call(
                "cuMemcpyDtoHAsync",
                data,
                address,
                nbytes,
                self.stream,
                action=f"copy {nbytes} bytes from the GPU",
            )
            self.synchronize()
