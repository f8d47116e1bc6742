# SPDX-License-Identifier: BSD-2-Clause
"""Kernels for the GPU at hand: compiled by NVRTC to machine code, once, and kept.

Machine code and not PTX, so that a driver older than NVRTC within one CUDA major runs it. It is
kept in ``$XDG_CACHE_HOME/peerdma``, by a hash of all that it depends on.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from ..errors import CudaError, GpuNotFound
from .driver import Driver, install_command

__all__ = ["compiled", "source"]

_NAME = "kernels.cu"
_ACTION = "compile kernels for the GPU"


def source() -> str:
    """The kernels as CUDA C++."""
    # Imported only here: it takes long, and machines without CUDA do not need it.
    from importlib import resources

    return resources.files("peerdma.cuda").joinpath(_NAME).read_text()


def compiled(driver: Driver, capability: tuple[int, int]) -> bytes:
    """The kernels as machine code for a compute capability.

    Raises
    ------
    GpuNotFound
        If NVRTC is missing, or does not fit driver or GPU; says what to install.
    CudaError
        If NVRTC refuses the source.
    """
    text = source()
    options = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}", "--std=c++17"]
    key = "\0".join([text, *options, str(driver.version[0])])
    place = _cache() / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:20]}.cubin"
    try:
        return place.read_bytes()
    except OSError:
        code = _compile(driver, text, options)
    _keep(place, code)
    return code


def _compile(driver: Driver, text: str, options: list[str]) -> bytes:
    nvrtc = _nvrtc(driver)
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), _NAME.encode(), 0, [], []))
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
