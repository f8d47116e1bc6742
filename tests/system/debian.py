# SPDX-License-Identifier: BSD-2-Clause
"""A Debian in a folder, in which any user installs packages as root does on a machine.

It runs on this machine's kernel, in namespaces of its own, as root there. A guest can run programs
of it, too, on the kernel that it has headers of.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from sim.system import Kernel
from tools.debian_tree import Tree, architecture, cache, obtain

__all__ = ["Debian"]

#: Those that every Debian has, as far as others need them; and those that are wanted.
_ESSENTIAL = """
base-files base-passwd bash coreutils dash diffutils findutils grep gzip libc-bin mawk sed tar
"""
_WANTED = "debconf dkms gcc libc6-dev lintian pahole udev"
_ENVIRONMENT = """
PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive
"""
#: Seconds for a command, on a busy machine.
_BOUND = 3600
#: Folders that programs write whenever packages are installed.
_LISTS = ("/var/lib/dpkg", "/var/log", "/var/cache/debconf")
_ENTER = """
set -e
mount --rbind /dev {folder}/dev
mount -t proc proc {folder}/proc
mount --bind {packages} {folder}/packages
mount --bind {cache} {folder}{cache}
exec {chroot}
"""


class Debian:
    """Debian's trixie with DKMS, udev and lintian, and with the headers of a kernel.

    Parameters
    ----------
    folder : Path
        To be created.
    kernel : Kernel
        Its modules are built for this one.
    packages : Path
        A folder that is /packages there.

    Attributes
    ----------
    folder : Path
    modules : Path
        Where modules of others than the kernel's are installed.
    """

    def __init__(self, folder: Path, kernel: Kernel, packages: Path):
        assert kernel.modules is not None
        self.folder = folder
        self._packages = packages
        names = tuple(f"{_ESSENTIAL} {_WANTED}".split())
        root = obtain(Tree("trixie", names, foreign=architecture()), _as_installed)
        subprocess.run(["cp", "-a", "--reflink=auto", root, folder], check=True)
        # Headers and compiled programs of the kernel refer to each other by their places there.
        (folder / str(cache()).lstrip("/")).mkdir(parents=True)
        (folder / "packages").mkdir()
        modules = folder / "usr/lib/modules" / kernel.modules.name
        modules.mkdir(parents=True)
        (modules / "build").symlink_to(kernel.headers.build)
        for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            shutil.copy(kernel.modules / name, modules)
        # As the kernel's package does. DKMS makes no list of modules where there are none.
        (modules / "kernel").mkdir()
        shutil.copy(next((kernel.modules / "kernel").rglob("*.ko*")), modules / "kernel")
        self.modules = modules / "updates/dkms"
        self.run(f"depmod {modules.name}")

    def chroot(self, command: str) -> str:
        """The shell command that runs a shell command in it."""
        environment = (
            "PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive"
        )
        words = ["chroot", str(self.folder), "env", "-i", *environment.split()]
        return shlex.join([*words, "sh", "-c", command])

    def run(self, command: str) -> str:
        """Runs a shell command in it, which has to succeed; returns its output."""
        enter = _ENTER.format(
            folder=shlex.quote(str(self.folder)),
            packages=shlex.quote(str(self._packages)),
            cache=shlex.quote(str(cache())),
            chroot=self.chroot(command),
        )
        done = subprocess.run(
            ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c", enter],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_BOUND,
            check=False,
        )
        assert done.returncode == 0, f"{command}: exit status {done.returncode}\n{done.stdout}"
        return done.stdout

    def files(self) -> set[str]:
        """Paths of all its files, but for the lists that dpkg and depmod keep."""
        found = set()
        for folder, folders, names in os.walk(self.folder):
            place = Path("/", Path(folder).relative_to(self.folder))
            folders[:] = (name for name in folders if str(place / name) not in _LISTS)
            found |= {str(place / name) for name in (*folders, *names)}
        return {path for path in found if not re.search(r"/modules\.[\w.]+$", path)}


def _as_installed(draft: Path, root: Path) -> None:
    """Does what scripts of packages would do when these are installed."""
    for name in ("passwd", "group"):
        shutil.copy(draft / f"usr/share/base-passwd/{name}.master", draft / "etc" / name)
    (draft / "usr/bin/awk").symlink_to("mawk")
    (draft / "etc/dpkg/origins/default").symlink_to("debian")
