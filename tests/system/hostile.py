# SPDX-License-Identifier: BSD-2-Clause
"""What hostile programs need in a guest: processes without rights, page faults, cgroups."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

from peerdma.emulated.simulated_gpu import NODE
from peerdma.uapi import request_code
from tests.system.picoevb import PAGE, ended, shell, spawn, until
from tests.system.simgpu import PATIENCE

__all__ = [
    "OTHER",
    "SOMEBODY",
    "HeldMemory",
    "charged",
    "ended_in_namespace",
    "held_by_all",
    "libc",
    "memory_group",
    "nodes_of_all",
    "start",
]

#: Users without any rights.
SOMEBODY, OTHER = 1000, 1001

_SET_DUMPABLE = 4
_CLONE_NEWUSER = 0x10000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mremap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p]
libc.mremap.restype = ctypes.c_ssize_t


# Processes -----------------------------------------------------------------------------------


@contextlib.contextmanager
def nodes_of_all() -> Iterator[None]:
    """Every user may open the boards and the simulated GPU within."""
    nodes = [path for path in (*Path("/dev").glob("picoevb*"), Path(NODE)) if path.exists()]
    for node in nodes:
        node.chmod(0o666)
    try:
        yield
    finally:
        for node in nodes:
            if node.exists():  # a board may have been unbound
                node.chmod(0o600)


def start(function: Callable[[], object], uid: int = SOMEBODY, group: Path | None = None) -> int:
    """Starts a process that is another user's for good, and calls a function: its id.

    It is put into a cgroup before, and ends as one of `spawn` does.
    """

    def process() -> None:
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        # As a process that was started by the user: its files in /proc are its own.
        assert libc.prctl(_SET_DUMPABLE, 1) == 0
        function()

    return spawn(process)


def ended_in_namespace(function: Callable[[], object], maker: int = SOMEBODY) -> int:
    """Calls a function as one of ten users of a new user namespace, and returns how that ended.

    Its root is the guest's first one, where the root that this process has is at /host.
    """
    made, mapped = os.pipe(), os.pipe()

    def process() -> None:
        os.chroot("/proc/1/root")  # in another root no namespace can be made
        os.setresuid(maker, maker, maker)
        assert libc.unshare(_CLONE_NEWUSER) == 0
        os.write(made[1], b"x")
        os.read(mapped[0], 1)
        os.setresuid(5, 5, 5)
        function()

    pid = spawn(process)
    os.close(made[1])
    assert os.read(made[0], 1)
    Path(f"/proc/{pid}/uid_map").write_text("0 100000 10\n")
    os.write(mapped[1], b"x")
    for fd in (made[0], *mapped):
        os.close(fd)
    return ended(pid)


# Page faults ---------------------------------------------------------------------------------


class _Api(ctypes.Structure):
    """struct uffdio_api"""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("api", "features", "ioctls"))


class _Range(ctypes.Structure):
    """struct uffdio_register, and struct uffdio_zeropage"""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("start", "len", "mode", "result"))


_API = request_code("\xaa", 0x3F, 3, _Api)
_REGISTER = request_code("\xaa", 0x00, 3, _Range)
_ZERO = request_code("\xaa", 0x04, 3, _Range)
_VERSION, _MISSING = 0xAA, 1
_NUMBER = 323  # of the system call, on x86-64
_USER_MODE_ONLY = 1
_MESSAGE = 32


class HeldMemory:
    """Pages of this process that are not there: whoever touches one waits until `let_go`.

    Parameters
    ----------
    size : int
        Bytes, whole pages.
    user_mode_only : bool
        Whether only the process itself waits; the kernel's accesses fail. Any process may have
        such memory, the other kind only as far as /proc/sys/vm/unprivileged_userfaultfd says.

    Attributes
    ----------
    address : int
    """

    def __init__(self, size: int, *, user_mode_only: bool = False):
        self.memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        flags = os.O_CLOEXEC | os.O_NONBLOCK | user_mode_only * _USER_MODE_ONLY
        self._fd = libc.syscall(_NUMBER, flags)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        fcntl.ioctl(self._fd, _API, _Api(api=_VERSION))
        fcntl.ioctl(self._fd, _REGISTER, _Range(start=self.address, len=size, mode=_MISSING))

    def wait_for(self, faults: int) -> None:
        """Returns when that many accesses are waiting."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while faults > 0:
            assert poll.poll(PATIENCE * 1000), f"{faults} page faults did not come"
            faults -= len(os.read(self._fd, faults * _MESSAGE)) // _MESSAGE

    def let_go(self) -> None:
        """Fills all pages with zeros; those who wait go on."""
        for at in range(self.address, self.address + len(self.memory), PAGE):
            fcntl.ioctl(self._fd, _ZERO, _Range(start=at, len=PAGE))


@contextlib.contextmanager
def held_by_all() -> Iterator[None]:
    """Every process may hold page faults of the kernel, too, as kernels before 5.11 allowed."""
    setting = Path("/proc/sys/vm/unprivileged_userfaultfd")
    setting.write_text("1")
    try:
        yield
    finally:
        setting.write_text("0")


# Memory cgroups ------------------------------------------------------------------------------


@contextlib.contextmanager
def memory_group() -> Iterator[Path]:
    """The folder of a new memory cgroup."""
    root = Path("/run/cgroup")
    root.mkdir()
    shell(f"mount -t cgroup2 cgroup {root}")
    group = root / "test"
    try:
        (root / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
        yield group
        until(lambda: "populated 0" in (group / "cgroup.events").read_text())
        group.rmdir()
    finally:
        shell(f"umount {root}")
        root.rmdir()


def charged(group: Path) -> int:
    """Bytes of kernel objects that a memory cgroup pays for."""
    lines = (group / "memory.stat").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("slab_unreclaimable ")))
