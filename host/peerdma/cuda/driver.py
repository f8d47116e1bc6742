# SPDX-License-Identifier: BSD-2-Clause
"""The CUDA driver through cuda-python's bindings: found on first use, every call checked.

The bindings follow the driver's major version. Nothing here needs them to be imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from .. import errors
from ..errors import CudaError, GpuNotFound

__all__ = ["OLDEST_BINDINGS", "Driver", "install_command", "load"]

#: Oldest version of the package cuda-bindings that has all that is called; pyproject.toml asks for
#: it, too.
OLDEST_BINDINGS = (12, 8)

_LIBRARY = "libcuda.so.1"
_ACTION = "use a CUDA GPU"
#: Flags: CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CU_GRAPH_USER_OBJECT_MOVE.
_NO_DESTRUCTOR_SYNC, _MOVE = 1, 1

_START_ANEW = (
    "A kernel of this process failed, which breaks its CUDA context: restart the program, under "
    "compute-sanitizer to see where"
)
#: What to do about an error of the driver.
_NEXT_STEPS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "Close surfaces or use smaller ones; nvidia-smi shows who uses "
    "the GPU's memory",
    "CUDA_ERROR_NO_DEVICE": "Check nvidia-smi and CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_INVALID_DEVICE": "Check nvidia-smi and CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "Another process uses the GPU exclusively: end it, or set "
    "the default compute mode (nvidia-smi -c DEFAULT)",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "Kernel module and library are of different driver "
    "versions, as after an update: reboot",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "Remove the CUDA compatibility package from "
    "LD_LIBRARY_PATH: this GPU needs the real driver of that version",
    "CUDA_ERROR_SYSTEM_NOT_READY": "Start the services that the driver needs, on NVSwitch "
    "systems nvidia-fabricmanager",
    "CUDA_ERROR_ILLEGAL_ADDRESS": _START_ANEW,
    "CUDA_ERROR_MISALIGNED_ADDRESS": _START_ANEW,
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": _START_ANEW,
    "CUDA_ERROR_INVALID_PC": _START_ANEW,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": _START_ANEW,
    "CUDA_ERROR_HARDWARE_STACK_ERROR": _START_ANEW,
    "CUDA_ERROR_LAUNCH_FAILED": _START_ANEW,
    "CUDA_ERROR_LAUNCH_TIMEOUT": "The GPU also drives a display, whose watchdog ended the kernel: "
    "use smaller surfaces, or another GPU",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "The GPU's memory is damaged: nvidia-smi -q shows the pages; "
    "reset the GPU",
    "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": "Close the surface that was registered over "
    "these pages, or have its other owner unregister them",
    "CUDA_ERROR_NOT_PERMITTED": "This system does not allow it to this user or container; its "
    "administrator can tell why",
    "CUDA_ERROR_NOT_SUPPORTED": "This GPU or driver does not support it; docs/cuda.md lists what "
    "is needed where",
    "CUDA_ERROR_INVALID_CONTEXT": "Something in this process reset the GPU's primary context: "
    "open the GPU again after that",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "Something in this process reset the GPU's primary context: "
    "open the GPU again after that",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "A stream is being captured: do it before or after",
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": "A stream that waits for the default stream is being "
    "captured, so that nothing can wait for the default stream: wait until the capture has ended, "
    "or capture in a stream that was made with CU_STREAM_NON_BLOCKING, as PyTorch's are",
    "CUDA_ERROR_DEINITIALIZED": "The process is ending: use the GPU before that",
}
_LOOK_UP = "The documentation of the CUDA driver API has more under this name"


class Driver:
    """The driver's functions and constants.

    Parameters
    ----------
    api : module
        ``cuda.bindings.driver``, or a stand-in.
    nvrtc : callable
        Returns ``cuda.bindings.nvrtc``, or a stand-in.
    version : (int, int)
        The driver's CUDA version: major, minor.
    library : ctypes.CDLL
        The driver itself, for functions that the bindings wrap too much.
    """

    def __init__(
        self, api: Any, nvrtc: Callable[[], Any], version: tuple[int, int], library: Any = None
    ):
        self.api = api
        self.library = library
        self.nvrtc = nvrtc
        self.version = version

    @functools.cached_property
    def _buffer_id(self) -> Any:
        return self.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID

    def call(self, function: str, *arguments: Any, action: str) -> Any:
        """Calls a function of the driver; returns its result, a tuple if there are several.

        Raises
        ------
        CudaError
            If it fails, which is then "cannot `action`".
        """
        error, *results = getattr(self.api, function)(*arguments)
        if int(error):
            raise self._failure(function, error, action)
        return results[0] if len(results) == 1 else tuple(results)

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """Lets this thread call what captures forbid, while it or another thread captures a stream.

        A call that CUDA finds unsafe beside a capture fails otherwise, and invalidates that capture
        whoever made it. In this mode none does that, but for waits for what is captured itself,
        which `CudaDevice.wait_for` refuses, ``cuCtxSynchronize``, see `CudaDevice.wait_for_all`,
        and the flag that `CudaDevice.order_copies` sets once.
        """
        exchange = "cuThreadExchangeStreamCaptureMode"
        action = "work beside a capture"
        relaxed = self.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self.call(exchange, relaxed, action=action)
        try:
            yield
        finally:
            self.call(exchange, before, action=action)

    def device_attribute(self, device: Any, name: str) -> int:
        """The attribute CU_DEVICE_ATTRIBUTE_`name`; 0 if bindings or driver do not know it."""
        attribute = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        if attribute is None:
            return 0
        error, value = self.api.cuDeviceGetAttribute(attribute, device)
        return 0 if int(error) else int(value)

    def pointer_attributes(self, address: int, *names: str) -> tuple[int, ...]:
        """The attributes CU_POINTER_ATTRIBUTE_`name` of any pointer; 0 where CUDA has none."""
        known = self.api.CUpointer_attribute
        wanted = [getattr(known, f"CU_POINTER_ATTRIBUTE_{name}") for name in names]
        action = f"look up the memory at {address:#x}"
        found = self.call("cuPointerGetAttributes", len(wanted), wanted, address, action=action)
        return tuple(map(int, found))

    def memory_type(self, address: int) -> int:
        """CUmemorytype of the memory that a pointer points to; 0 if CUDA does not know it."""
        # cuPointerGetAttribute, without the s, fails for a pointer that CUDA does not know.
        return self.pointer_attributes(address, "MEMORY_TYPE")[0]

    def device_index(self, address: int) -> int:
        """Number of the device that memory is on; 0 if CUDA does not know the address.

        Not by the bindings: several of their versions answer 0 for any device (cuda-python 2928).
        """
        attribute = self.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        found = ctypes.c_int()
        status = self.library.cuPointerGetAttribute(
            ctypes.byref(found), int(attribute), ctypes.c_uint64(address)
        )
        return 0 if status else max(0, found.value)

    def identity(self, address: int) -> int:
        """BUFFER_ID of the memory at an address, which no other ever has; 0 if CUDA knows none."""
        # Called before each transfer of an array.
        error, found = self.api.cuPointerGetAttribute(self._buffer_id, address)
        return 0 if error else found

    def pointer_attribute(self, address: int, name: str) -> int:
        """The attribute CU_POINTER_ATTRIBUTE_`name` of a pointer that CUDA knows."""
        attribute = getattr(self.api.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        action = f"look up the memory at {address:#x}"
        return int(self.call("cuPointerGetAttribute", attribute, address, action=action))

    def host_function(self, stream: int, function: int | None, data: int, action: str) -> None:
        """Queues a call of a C function with `data` as its argument.

        Not by the bindings: theirs calls functions by way of Python, and once only, which would not
        do for graphs.
        """
        arguments = map(ctypes.c_void_p, (stream, function, data))
        self._check("cuLaunchHostFunc", action, *arguments)

    def retain(self, graph: Any, function: int | None, data: int, action: str) -> None:
        """Has a C function called with `data` when a graph, and all made of it, are gone."""
        handle = ctypes.c_void_p()
        made = ctypes.c_void_p(data), ctypes.c_void_p(function), 1, _NO_DESTRUCTOR_SYNC
        self._check("cuUserObjectCreate", action, ctypes.byref(handle), *made)
        value = self.api.CUuserObject(handle.value)
        self.call("cuGraphRetainUserObject", graph, value, 1, _MOVE, action=action)

    def _check(self, function: str, action: str, *arguments: Any) -> None:
        """Calls a function of the shared library."""
        status = getattr(self.library, function)(*arguments)
        if status:
            raise self._failure(function, self.api.CUresult(status), action)

    def device_of(self, context: int) -> int:
        """Index of the device that a context belongs to."""
        action = "look up the device of a CUDA context"
        self.call("cuCtxPushCurrent", self.api.CUcontext(context), action=action)
        try:
            return int(self.call("cuCtxGetDevice", action=action))
        finally:
            self.api.cuCtxPopCurrent()

    def _failure(self, function: str, error: Any, action: str) -> CudaError:
        name = getattr(error, "name", str(error))
        status, text = self.api.cuGetErrorString(error)
        text = text.decode() if not int(status) and text else "no description"
        found = f"{function} failed with {name} ({text})"
        return CudaError(action, found, _NEXT_STEPS.get(name, _LOOK_UP), name=name)


def install_command(major: int) -> str:
    """What to type to install the bindings and NVRTC for drivers of this major version of CUDA."""
    return errors.install_command(f"cuda{min(max(major, 12), 13)}")


def load() -> Driver:
    """The CUDA driver of this machine, initialised.

    Raises
    ------
    GpuNotFound
        If there is no driver, no GPU, or no bindings that fit; says what to install.
    """
    version = _driver_version()
    install = install_command(version[0])
    found = f"this machine's NVIDIA driver speaks CUDA {version[0]}.{version[1]}"
    if version[0] < 12:
        raise GpuNotFound(_ACTION, f"{found}, peerdma needs 12 or later", "Update the driver")
    # Imported only here: it takes a fifth of the library's import time, and is not needed without
    # such a driver.
    from importlib import metadata

    try:
        api = importlib.import_module("cuda.bindings.driver")
        bindings = metadata.version("cuda-bindings")
    except ImportError as error:
        found += f", but its Python bindings cannot be imported ({error})"
        raise GpuNotFound(_ACTION, found, f"Install them: {install}") from None
    if _numbers(bindings) < OLDEST_BINDINGS:
        oldest = ".".join(map(str, OLDEST_BINDINGS))
        found += f", but the package cuda-bindings is {bindings}, peerdma needs {oldest} or later"
        raise GpuNotFound(_ACTION, found, f"Install those that fit: {install}")
    if _numbers(bindings)[0] > version[0]:
        found += f", but the package cuda-bindings is {bindings}, for a newer driver"
        step = f"Install the one that fits, {install}, or update the driver"
        raise GpuNotFound(_ACTION, found, step)
    driver = Driver(
        api,
        lambda: importlib.import_module("cuda.bindings.nvrtc"),
        version,
        ctypes.CDLL(_LIBRARY),
    )
    try:
        driver.call("cuInit", 0, action=_ACTION)
    except CudaError as error:
        raise GpuNotFound(_ACTION, error.found, error.step) from None
    return driver


def _numbers(version: str) -> tuple[int, ...]:
    """(major, minor) of a package's version."""
    return tuple(int(each) for each in version.split(".")[:2])


def _driver_version() -> tuple[int, int]:
    """(major, minor) of CUDA in the driver, found without bindings, to tell which ones fit."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise GpuNotFound(
            _ACTION,
            f"this machine has no NVIDIA driver ({_LIBRARY} is not found)",
            'Install one, or use the emulated GPU: gpu("emulated") or --gpu emulated',
        ) from None
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)):
        found = "the NVIDIA driver of this machine does not report its version"
        raise GpuNotFound(_ACTION, found, "Check that nvidia-smi works")
    return number.value // 1000, number.value % 1000 // 10
