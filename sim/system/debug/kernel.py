# SPDX-License-Identifier: BSD-2-Clause
"""The debug kernel: Debian's source of 6.12, with every checker on that a driver can trip.

Built once, which takes 5 to 10 minutes on two idle cores, and kept in the user's cache, under a
hash of its source, configuration and compiler.

    .venv/bin/python -m sim.system.debug.kernel       build it, and print its folder
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools.archives import unpack
from tools.debian_tree import Tree, TreeError, cache, obtain
from tools.kernel_headers import Headers

from ..errors import GuestError
from ..kernel import Kernel

__all__ = ["debug_kernel", "main", "missing"]

_CONFIG = Path(__file__).with_name("kernel.config")
_SOURCE = Tree("trixie", alone=("linux-source-6.12",))
_TOOLS = Tree("trixie", ("gcc-14", "libc6-dev", "flex", "bison", "bc", "libelf-dev"))
#: To be changed when the same source and configuration would be built differently.
_RECIPE = 1
#: Seconds between two lines of progress.
_EVERY = 15.0


def debug_kernel() -> Kernel:
    """The kernel, built if needed; prints progress to stderr.

    Raises
    ------
    GuestError
        If it cannot be built; has the end of make's output.
    TreeError
        If source or tools cannot be downloaded.
    """
    source, tools = obtain(_SOURCE), obtain(_TOOLS, _merge_usr)
    version = next((source / "usr/share/doc").glob("linux-source-*/changelog.Debian.gz"))
    digest = hashlib.sha256(f"{_RECIPE} {tools.name}\0".encode())
    digest.update(version.read_bytes() + _CONFIG.read_bytes())
    folder = cache().parent / "kernels" / digest.hexdigest()[:16]
    with _alone(folder):
        if not folder.exists():
            _make(source, tools, folder)
    build = folder / "build"
    headers = Headers(build, (f"KDIR={build}", _compiler(tools)), _environment(tools))
    return Kernel("amd64", folder / "bzImage", headers)


def _merge_usr(draft: Path, root: Path) -> None:
    """Makes the links /lib and /lib64, which the C library's linker script uses."""
    for name in ("lib", "lib64"):
        (draft / name).symlink_to(f"usr/{name}")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Locks the folder, so that one process builds and others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compiler(tools: Path) -> str:
    # The same compiler for the kernel, the programs of its build, and modules.
    return f"CC=gcc-14 --sysroot={tools}"


def _environment(tools: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{tools}/usr/bin:{os.environ.get('PATH', '')}",
        "BISON_PKGDATADIR": f"{tools}/usr/share/bison",
        "M4": f"{tools}/usr/bin/m4",
    }


def _make(source: Path, tools: Path, folder: Path) -> None:
    """Builds the kernel, and keeps its image and the files for building modules."""
    compiler = _compiler(tools)
    libraries = tools / "usr/lib/x86_64-linux-gnu"
    # Programs of the build run with the libraries of the tree, not with this machine's.
    loader = f"--dynamic-linker={libraries}/ld-linux-x86-64.so.2"
    make = [
        *("nice", "make", "-j2", compiler, f"HOST{compiler}"),
        f"HOSTLDFLAGS=-Wl,{loader},--disable-new-dtags,-rpath={libraries}",
        *("KBUILD_BUILD_USER=peerdma", "KBUILD_BUILD_HOST=peerdma", "KBUILD_BUILD_TIMESTAMP=0"),
    ]
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as scratch:
        _say("unpacking the source of the debug kernel")
        archive = next((source / "usr/src").glob("linux-source-*.tar.xz"))
        with tarfile.open(archive) as tar:
            unpack(tar, scratch)
        work = next(Path(scratch).glob("linux-source-*"))
        shutil.copy(_CONFIG, work / "kernel/configs/peerdma_debug.config")
        environment = _environment(tools)

        def run(*targets: str) -> None:
            _run([*make, *targets], work, environment)

        run("tinyconfig", "peerdma_debug.config")
        if lost := missing(_CONFIG.read_text(), (work / ".config").read_text()):
            raise GuestError(
                f"options of {_CONFIG.name} depend on others that are off: {', '.join(lost)}"
            )
        run("bzImage", "modules")
        draft = Path(scratch, "kernel")
        install = f"sh scripts/package/install-extmod-build {draft / 'build'}"
        run("run-command", f"KBUILD_RUN_COMMAND={install}")
        shutil.copy(work / ".config", draft / "build")
        shutil.copy(work / "arch/x86/boot/bzImage", draft)
        draft.rename(folder)


def missing(wanted: str, made: str) -> list[str]:
    """Lines of a configuration fragment that a kernel's .config does not have."""
    lines = set(made.splitlines())
    lost = []
    for line in wanted.splitlines():
        name, is_option, value = line.partition("=")
        if not is_option or line.startswith("#"):
            continue
        if value == "n":
            if any(each.startswith(f"{name}=") for each in lines):
                lost.append(line)
        elif line not in lines:
            lost.append(line)
    return lost


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs make, and prints progress from time to time."""
    said: list[str] = []
    count, spoke = 0, time.monotonic()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            count += bool(re.match(r"  (CC|AS) ", line))
            if time.monotonic() > spoke + _EVERY:
                spoke = time.monotonic()
                _say(f"building the debug kernel, once: {count} of about 1400 files")
    if process.returncode:
        raise GuestError("the debug kernel cannot be built:\n" + "".join(said[-40:]))


def _say(text: str) -> None:
    print(f"sim: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Builds it and prints its folder."""
    try:
        print(debug_kernel().image.parent)
    except (GuestError, TreeError) as error:
        sys.exit(f"peerdma: {error}")


if __name__ == "__main__":
    main()
