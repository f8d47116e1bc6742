# SPDX-License-Identifier: BSD-2-Clause
"""Files to surfaces and back: directly from storage where KvikIO can, else by the CPU."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

__all__ = ["Content", "File", "FileTransfer", "Input", "Output", "kind_of", "load", "save"]

#: Bytes that the CPU copies at a time.
_CHUNK = 16 << 20
#: Most bytes to read of a pipe or device, whose length is not known and may be endless.
_AT_MOST = 256 << 20
_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}

#: A path, or the descriptor of a file that is open.
File: TypeAlias = "str | os.PathLike[str] | int"


class Content(Protocol):
    """Memory that files are read into and written from, such as a surface.

    Attributes
    ----------
    nbytes : int
    on_gpu : bool
        Whether the memory is a GPU's own. KvikIO then takes the object as a CUDA array.
    """

    nbytes: int
    on_gpu: bool

    def copy_in(self, start: int, data: np.ndarray) -> None:
        """Copies an array of uint8 to the bytes from `start` on."""
        ...

    def copy_out(self, start: int, data: np.ndarray) -> None:
        """Copies the bytes from `start` on to an array of uint8."""
        ...


@dataclass(frozen=True)
class FileTransfer:
    """A file that was read or written.

    Attributes
    ----------
    bytes : int
    seconds : float
        Time the call took.
    direct : bool
        Whether the bytes went directly between storage and GPU, by GPUDirect Storage.
    way : str
        The path of the bytes and why, as shown to users.
    """

    bytes: int
    seconds: float
    direct: bool
    way: str

    def __str__(self) -> str:
        return f"{self.bytes} bytes in {self.seconds * 1e3:.1f} ms, {self.way}"


class Input:
    """A file to load into a surface.

    A pipe, a device or a file of /proc, whose length is not known beforehand, is read into memory
    at once, to its end.

    Parameters
    ----------
    path : path, or int
        An int is the descriptor of an open file, such as 0 for standard input.
    at_most : int
        Bytes that may be read at once.

    Attributes
    ----------
    nbytes : int

    Raises
    ------
    OSError
        If it cannot be read, or its length is not known and exceeds `at_most` bytes.
    """

    def __init__(self, path: File, at_most: int = _AT_MOST):
        self._path = path
        self._content: np.ndarray | None = None
        with _naming(path):
            status = os.stat(path)
            # Files of /proc report no bytes; an open file may have been read in part.
            if stat.S_ISREG(status.st_mode) and status.st_size and not isinstance(path, int):
                self.nbytes: int = status.st_size
                return
            with open(path, "rb", closefd=not isinstance(path, int)) as file:
                content = file.read(at_most + 1)
            if len(content) > at_most:
                raise OSError(
                    errno.EFBIG,
                    f"{kind_of(status.st_mode)} with more than the {at_most} bytes that are read "
                    "of it. Write the part that you need to a file first, for example with head -c",
                )
        self._content = np.frombuffer(content, np.uint8)
        self.nbytes = len(content)

    def load(self, surface: Content) -> FileTransfer:
        """Fills a surface with the file; ValueError if their lengths differ."""
        if self.nbytes != surface.nbytes:
            raise ValueError(
                f"cannot load {_name(self._path)}, {self.nbytes} bytes, into a surface of "
                f"{surface.nbytes}; make the surface as long as the file"
            )
        path, content = self._path, self._content
        if content is not None:
            return _timed(surface, None, lambda: surface.copy_in(0, content))

        def directly(kvikio: Any) -> None:
            with kvikio.CuFile(path, "r") as file:
                self._require_whole(file.read(surface))

        def by_copy() -> None:
            with open(path, "rb", buffering=0) as file:
                for start, data in _chunks(surface):
                    count = file.readinto(data.data)
                    self._require_whole(start + count, start + data.size)
                    surface.copy_in(start, data)

        with _naming(path):
            return _timed(surface, directly, by_copy)

    def _require_whole(self, found: int, expected: int | None = None) -> None:
        if found != (self.nbytes if expected is None else expected):
            raise OSError(
                f"{_name(self._path)}: ended after {found} of the {self.nbytes} bytes that the "
                "system reports for it"
            )


class Output:
    """A file to save a surface or bytes to, opened at once, so that a bad path fails early.

    A regular file is replaced atomically; of a symbolic link, the file that it points to is. Pipes
    and devices are written to. Use it as a context manager, or `close` it.

    Parameters
    ----------
    path : path, or int
        An int is the descriptor of an open file, such as 1 for standard output.

    Attributes
    ----------
    name : str
        As shown to users.

    Raises
    ------
    OSError
        If it cannot be written.
    """

    def __init__(self, path: File):
        self.name: str = _name(path)
        self._path = path
        #: temporary file that is renamed to `_target`; None for pipes, devices and descriptors
        self._draft: str | None = None
        with _naming(path):
            if isinstance(path, int):
                self._file = open(path, "wb", buffering=0, closefd=False)  # noqa: SIM115
            elif _is_replaced(path):
                self._target = os.path.realpath(path)
                descriptor, self._draft = tempfile.mkstemp(
                    dir=os.path.dirname(self._target), prefix=".peerdma-"
                )
                self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115
                try:
                    umask = os.umask(0)
                    os.umask(umask)
                    os.fchmod(descriptor, 0o666 & ~umask)
                except BaseException:
                    self.close()
                    raise
            else:
                self._file = _opened(path)

    def save(self, surface: Content) -> FileTransfer:
        """Writes a surface's content and closes the file; OSError if it cannot be written."""

        def directly(kvikio: Any) -> None:
            with kvikio.CuFile(self._draft, "w") as file:
                count = file.write(surface)
            if count != surface.nbytes:
                raise OSError(
                    f"{self.name}: the storage took {count} of {surface.nbytes} bytes; is it full?"
                )

        def by_copy() -> None:
            for start, data in _chunks(surface):
                surface.copy_out(start, data)
                self._put(data.data)

        with _naming(self._path):
            transfer = _timed(surface, directly if self._draft else None, by_copy)
            self._finish()
        return transfer

    def write(self, content: bytes) -> None:
        """Writes this content instead, and closes the file; OSError if it cannot be written."""
        with _naming(self._path):
            self._put(memoryview(content))
            self._finish()

    def _put(self, left: memoryview) -> None:
        # A pipe may take fewer bytes; full storage does too, and fails in the next call.
        while left:
            left = left[self._file.write(left) :]

    def _finish(self) -> None:
        self._file.close()
        if self._draft:
            os.replace(self._draft, self._target)
            self._draft = None

    def close(self) -> None:
        """Closes the file; removes what was not completed. Closing again does nothing."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._draft:
            with contextlib.suppress(OSError):
                os.unlink(self._draft)
            self._draft = None

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(surface: Content, path: File) -> FileTransfer:
    """Reads a surface's content from a file; from a pipe, a device or /proc to its end.

    Raises
    ------
    OSError
        If the file cannot be read, or is a pipe or device with more than the surface's bytes.
    ValueError
        If it is not as long as the surface.
    """
    return Input(path, at_most=surface.nbytes).load(surface)


def save(surface: Content, path: File) -> FileTransfer:
    """Writes a surface's content to a file, see `Output`.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    with Output(path) as output:
        return output.save(surface)


def kind_of(mode: int) -> str:
    """The kind of file, in words, that an `st_mode` stands for."""
    return _KINDS.get(stat.S_IFMT(mode), "a file of an unknown kind")


def _is_replaced(path: str | os.PathLike[str]) -> bool:
    """Whether saving replaces or creates a regular file, and does not write to a pipe or device."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return stat.S_ISREG(mode)


def _opened(path: str | os.PathLike[str]) -> io.FileIO:
    """A pipe or device, open for writing."""
    try:
        # Without O_NONBLOCK, opening a pipe without a reader would block.
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "no process reads from it; start the reader first") from None
        raise
    os.set_blocking(descriptor, True)
    return open(descriptor, "wb", buffering=0)


def _name(path: File) -> str:
    if isinstance(path, int):
        return {0: "standard input", 1: "standard output"}.get(path, f"file descriptor {path}")
    return os.fsdecode(path)


@contextlib.contextmanager
def _naming(path: File) -> Iterator[None]:
    """Makes the system's errors name this file, and not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, _name(path)) from None


def _timed(
    surface: Content, directly: Callable[[Any], None] | None, by_copy: Callable[[], None]
) -> FileTransfer:
    """Transfers the bytes; by copying if `directly` is None, for all but regular files."""
    kvikio, why = _kvikio(surface)
    if directly is None:
        kvikio, why = None, "it is not a regular file"
    began = time.perf_counter()
    if kvikio is None or directly is None:
        by_copy()
        way = f"copied by the CPU: {why}"
    else:
        directly(kvikio)
        way = f"direct, by {why}"
    return FileTransfer(surface.nbytes, time.perf_counter() - began, kvikio is not None, way)


def _kvikio(surface: Content) -> tuple[Any, str]:
    """KvikIO if it can transfer the surface's bytes directly, else None; and why."""
    if not surface.nbytes:
        return None, "there is nothing to move"
    if not surface.on_gpu:
        return None, "the surface is not in GPU memory"
    try:
        kvikio = importlib.import_module("kvikio")
        driver = importlib.import_module("kvikio.cufile_driver")
        defaults = importlib.import_module("kvikio.defaults")
    except ImportError:
        return None, "KvikIO is not installed"
    if defaults.is_compat_mode_preferred() or not driver.get("is_gds_available"):
        return None, "KvikIO finds no GPUDirect Storage on this system"
    return kvikio, "KvikIO and GPUDirect Storage"


def _chunks(surface: Content) -> Iterator[tuple[int, np.ndarray]]:
    """(first byte, buffer) for each chunk of a surface."""
    buffer = np.empty(min(surface.nbytes, _CHUNK), np.uint8)
    for start in range(0, surface.nbytes, _CHUNK):
        yield start, buffer[: surface.nbytes - start]
