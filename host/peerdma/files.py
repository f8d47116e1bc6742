# SPDX-License-Identifier: BSD-2-Clause
"""Files to surfaces and back: straight from storage where KvikIO can, else copied by the CPU."""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .surface import Surface

__all__ = ["FileTransfer", "load", "save"]

#: Bytes that the CPU copies at a time.
_CHUNK = 16 << 20


@dataclass(frozen=True)
class FileTransfer:
    """A file that was read or written.

    Attributes
    ----------
    bytes : int
    seconds : float
        Time the call took.
    direct : bool
        Whether storage and GPU moved the bytes between them, by GPUDirect Storage.
    way : str
        The way the bytes took and why, for people to read.
    """

    bytes: int
    seconds: float
    direct: bool
    way: str

    def __str__(self) -> str:
        return f"{self.bytes} bytes in {self.seconds * 1e3:.1f} ms, {self.way}"


def load(surface: Surface, path: str | os.PathLike[str]) -> FileTransfer:
    """Reads a surface's content from a file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not as long as the surface.
    """
    found = os.stat(path).st_size
    if found != surface.nbytes:
        raise ValueError(
            f"asked to load {os.fspath(path)}, {found} bytes, into a surface of {surface.nbytes}; "
            "make the surface as long as the file"
        )

    def directly(kvikio: Any) -> None:
        with kvikio.CuFile(path, "r") as file:
            _complete(file.read(surface), surface, path)

    def by_copy() -> None:
        with open(path, "rb", buffering=0) as file:
            for start, data in _chunks(surface):
                if file.readinto(data.data) != data.size:
                    raise _incomplete(surface, path)
                surface.copy_in(start, data)

    return _timed(surface, directly, by_copy)


def save(surface: Surface, path: str | os.PathLike[str]) -> FileTransfer:
    """Writes a surface's content to a file, which appears complete or not at all.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(path))
    umask = os.umask(0)
    os.umask(umask)
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=name + ".")

    def directly(kvikio: Any) -> None:
        with kvikio.CuFile(draft, "w") as file:
            _complete(file.write(surface), surface, path)

    def by_copy() -> None:
        with open(draft, "wb", buffering=0) as file:
            for start, data in _chunks(surface):
                surface.copy_out(start, data)
                if file.write(data.data) != data.size:
                    raise _incomplete(surface, path)

    try:
        os.fchmod(descriptor, 0o666 & ~umask)
        os.close(descriptor)
        transfer = _timed(surface, directly, by_copy)
        os.replace(draft, path)
        return transfer
    except BaseException:
        os.unlink(draft)
        raise


def _timed(
    surface: Surface, directly: Callable[[Any], None], by_copy: Callable[[], None]
) -> FileTransfer:
    kvikio, why = _kvikio(surface)
    began = time.perf_counter()
    if kvikio is None:
        by_copy()
        way = f"copied by the CPU: {why}"
    else:
        directly(kvikio)
        way = f"direct, by {why}"
    return FileTransfer(surface.nbytes, time.perf_counter() - began, kvikio is not None, way)


def _kvikio(surface: Surface) -> tuple[Any, str]:
    """KvikIO if it can move the surface's bytes directly; and why, or why not."""
    if not surface.nbytes:
        return None, "there is nothing to move"
    if not surface.on_gpu:
        return None, "the surface is in memory that the CPU reaches"
    try:
        kvikio = importlib.import_module("kvikio")
        driver = importlib.import_module("kvikio.cufile_driver")
        defaults = importlib.import_module("kvikio.defaults")
    except ImportError:
        return None, "KvikIO is not installed"
    if defaults.is_compat_mode_preferred() or not driver.get("is_gds_available"):
        return None, "KvikIO finds no GPUDirect Storage on this system"
    return kvikio, "KvikIO and GPUDirect Storage"


def _chunks(surface: Surface) -> Iterator[tuple[int, np.ndarray]]:
    """(first byte, buffer of as many bytes as are next) over a surface."""
    buffer = np.empty(min(surface.nbytes, _CHUNK), np.uint8)
    for start in range(0, surface.nbytes, _CHUNK):
        yield start, buffer[: surface.nbytes - start]


def _complete(moved: int, surface: Surface, path: str | os.PathLike[str]) -> None:
    if moved != surface.nbytes:
        raise _incomplete(surface, path)


def _incomplete(surface: Surface, path: str | os.PathLike[str]) -> OSError:
    return OSError(
        f"{os.fspath(path)}: asked to move {surface.nbytes} bytes, but the file ended or the "
        "storage is full"
    )
