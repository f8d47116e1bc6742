# SPDX-License-Identifier: BSD-2-Clause
"""Programs for the GPU at hand: compiled by NVRTC to machine code, once, and kept; and launched.

Machine code and not PTX, so that a driver older than NVRTC within one CUDA major runs it. It is
kept in ``$XDG_CACHE_HOME/peerdma``, by a hash of all that it depends on.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ..errors import CudaError, GpuNotFound
from .device import CudaDevice
from .driver import Driver, install_command

__all__ = ["POINTER", "SIZE", "WORD", "Program"]

_log = logging.getLogger(__name__)
#: How kernels take their arguments.
POINTER, SIZE, WORD = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
#: Threads per block: enough blocks fit a multiprocessor with any number of registers we need.
_BLOCK = 256
_ACTION = "compile kernels for the GPU"


class Program:
    """Kernels of one source, loaded on a device as long as that has users.

    Parameters
    ----------
    device : CudaDevice
    name : str
        Name of the source's file, for the compiler's messages.
    source : str
        CUDA C++; kernels are ``extern "C"``.

    Raises
    ------
    GpuNotFound
        If NVRTC is missing, or does not fit driver or GPU; says what to install.
    CudaError
        If NVRTC refuses the source, or CUDA to load it.
    """

    def __init__(self, device: CudaDevice, name: str, source: str):
        self._device = device
        self._module = device.load(_compiled(device.driver, device.capability, name, source))
        self._kernels: dict[str, tuple[Any, int]] = {}

    def launch(
        self, kernel: str, *arguments: tuple[Any, Any], stream: Any = None, one: bool = False
    ) -> None:
        """Queues a kernel on as many threads as the device holds, or on `one`.

        Arguments are (value, type) with the types of this module. `stream` is the device's unless
        given. The context must be current.
        """
        function, blocks = self._kernel(kernel)
        shape = (1, 1, 1, 1, 1, 1) if one else (blocks, 1, 1, _BLOCK, 1, 1)
        values, types = zip(*arguments, strict=True)
        self._device.driver.call(
            "cuLaunchKernel",
            function,
            *shape,
            0,
            self._device.stream if stream is None else stream,
            (values, types),
            0,
            action=f"launch the kernel {kernel}",
        )

    def _kernel(self, name: str) -> tuple[Any, int]:
        """(function, blocks that fill the device)."""
        if name not in self._kernels:
            action, device = f"find the kernel {name}", self._device
            call = device.driver.call
            function = call("cuModuleGetFunction", self._module, name.encode(), action=action)
            per_processor = call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, _BLOCK, 0, action=action
            )
            blocks = per_processor * device.attribute("MULTIPROCESSOR_COUNT")
            self._kernels[name] = function, blocks
        return self._kernels[name]


def _compiled(driver: Driver, capability: tuple[int, int], name: str, text: str) -> bytes:
    """The source as machine code for a compute capability."""
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17"]
    key = "\0".join([text, *options, str(driver.version[0])])
    place = _cache() / f"{Path(name).stem}-{hashlib.sha256(key.encode()).hexdigest()[:20]}.cubin"
    try:
        return place.read_bytes()
    except OSError:
        began = time.perf_counter()
    code = _compile(driver, name, text, options)
    _log.info("compiled %s in %.1f s (%s)", name, time.perf_counter() - began, options[0])
    _keep(place, code)
    return code


def _compile(driver: Driver, name: str, text: str, options: list[str]) -> bytes:
    nvrtc = _nvrtc(driver)
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], []))
    try:
        encoded = [option.encode() for option in options]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if int(error):
            size = _checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
            log = bytearray(size)
            _checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
            raise _refused(nvrtc, error, options[0], log.decode(errors="replace").strip("\0\n "))
        code = bytearray(_checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _nvrtc(driver: Driver) -> Any:
    """NVRTC, if there is one that fits the driver."""
    major = driver.version[0]
    advice = f"Install the one of the driver's major: {install_command(major)}"
    try:
        nvrtc = driver.nvrtc()
        found = _checked(nvrtc, nvrtc.nvrtcVersion())
    # The bindings report a library that they do not find by one error or another.
    except (ImportError, RuntimeError, OSError) as error:
        found = f"NVRTC, CUDA's compiler, was not found ({error})"
        raise GpuNotFound(_ACTION, found, advice) from None
    if found[0] > major:
        raise GpuNotFound(
            _ACTION,
            f"NVRTC is of CUDA {found[0]}.{found[1]}, the driver of CUDA {major}, which does not "
            "load what a newer major compiles",
            advice,
        )
    return nvrtc


def _checked(nvrtc: Any, returned: tuple) -> Any:
    error, *results = returned
    if int(error):
        raise _refused(nvrtc, error, "no options", "")
    return results[0] if len(results) == 1 else tuple(results)


def _refused(nvrtc: Any, error: Any, option: str, log: str) -> CudaError:
    name = getattr(error, "name", str(error))
    _, *version = nvrtc.nvrtcVersion()
    step = (
        "This NVRTC may be older than the GPU: install a newer one of the same CUDA major"
        if name == "NVRTC_ERROR_INVALID_OPTION"
        else "This is a fault of peerdma: please report it with this message"
    )
    found = f"NVRTC {'.'.join(map(str, version))} with {option} says {name}"
    return CudaError(_ACTION, f"{found}: {log}" if log else found, step, name=name)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "peerdma")


def _keep(place: Path, code: bytes) -> None:
    """Writes the file atomically; does nothing if the cache cannot be written."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file, draft = tempfile.mkstemp(dir=place.parent, prefix=place.name + ".")
    except OSError:
        return
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(code)
        os.replace(draft, place)
    except OSError:
        Path(draft).unlink(missing_ok=True)
