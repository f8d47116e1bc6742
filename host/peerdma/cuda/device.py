# SPDX-License-Identifier: BSD-2-Clause
"""A CUDA device: its primary context, a stream, and our kernels loaded on it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from ..errors import GpuNotFound, PeerdmaError
from .driver import Driver
from .idle import Idle
from .kernels import compiled

__all__ = ["CudaDevice"]

#: Threads per block: enough blocks fit a multiprocessor with any number of registers we need.
_BLOCK = 256
_NON_BLOCKING = 1

#: How kernels take their arguments.
POINTER, SIZE, WORD = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32


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
        self._lock = threading.RLock()
        self._users = 1
        self.idle = Idle.of(driver.api, index)
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
        self.capability = (
            self.attribute("COMPUTE_CAPABILITY_MAJOR"),
            self.attribute("COMPUTE_CAPABILITY_MINOR"),
        )

        name = driver.call("cuDeviceGetName", 256, device, action=action)
        self.name = bytes(name).split(b"\0")[0].decode()
        code = compiled(driver, self.capability)
        with contextlib.ExitStack() as undo:
            self.context = driver.call("cuDevicePrimaryCtxRetain", device, action=action)
            undo.callback(driver.api.cuDevicePrimaryCtxRelease, device)
            with self.current():
                self._module = driver.call("cuModuleLoadData", code, action="load the kernels")
                undo.callback(self._in_context, "cuModuleUnload", self._module)
                self.stream = self.new_stream(undo)
            self._undo = undo.pop_all()
        self._kernels: dict[str, tuple[Any, int]] = {}

    def attribute(self, name: str) -> int:
        """The attribute CU_DEVICE_ATTRIBUTE_`name`; 0 if there is none of this name."""
        return self.driver.device_attribute(self._device, name)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the context the thread's current one inside a ``with`` block."""
        self.driver.call("cuCtxPushCurrent", self.context, action="make the GPU's context current")
        try:
            yield
        finally:
            self.driver.api.cuCtxPopCurrent()

    # Lifetime --------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Adds a user of the device; PeerdmaError if the last one is gone."""
        with self._lock:
            if not self._users:
                raise PeerdmaError("the GPU is closed; open another")
            self._users += 1

    def release(self) -> None:
        """Removes a user; the last one to go releases the context and all in it."""
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

    def launch(
        self, kernel: str, *arguments: tuple[Any, Any], stream: Any = None, one: bool = False
    ) -> None:
        """Queues a kernel on as many threads as the device holds, or on `one`.

        Arguments are (value, type) with the types of this module. `stream` is our own unless
        given. The context must be current.
        """
        function, blocks = self._kernel(kernel)
        shape = (1, 1, 1, 1, 1, 1) if one else (blocks, 1, 1, _BLOCK, 1, 1)
        values, types = zip(*arguments, strict=True)
        self.driver.call(
            "cuLaunchKernel",
            function,
            *shape,
            0,
            stream or self.stream,
            (values, types),
            0,
            action=f"launch the kernel {kernel}",
        )

    def synchronize(self, stream: Any = None) -> None:
        """Waits until what was queued in a stream is done. The context must be current."""
        action = "wait for work on the GPU"
        self.driver.call("cuStreamSynchronize", stream or self.stream, action=action)

    def set_bytes(self, address: int, nbytes: int, value: int, stream: Any = None) -> None:
        """Sets `nbytes` bytes to `value`, in a stream. The context must be current."""
        arguments = address, value, nbytes, stream or self.stream
        self.driver.call("cuMemsetD8Async", *arguments, action=f"set {nbytes} bytes")

    def new_stream(self, undo: contextlib.ExitStack) -> Any:
        """A stream that waits for no other; `undo` destroys it. The context must be current."""
        stream = self.driver.call("cuStreamCreate", _NON_BLOCKING, action="create a CUDA stream")
        undo.callback(self._in_context, "cuStreamDestroy", stream)
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

    def _kernel(self, name: str) -> tuple[Any, int]:
        """(function, blocks that fill the device)."""
        if name not in self._kernels:
            action = f"find the kernel {name}"
            call = self.driver.call
            function = call("cuModuleGetFunction", self._module, name.encode(), action=action)
            per_processor = call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, _BLOCK, 0, action=action
            )
            self._kernels[name] = function, per_processor * self.attribute("MULTIPROCESSOR_COUNT")
        return self._kernels[name]
