# SPDX-License-Identifier: BSD-2-Clause
"""Kernels that guests boot, and their modules for the initramfs."""

from __future__ import annotations

import lzma
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.kernel_headers import KERNELS, Headers, headers

from .errors import GuestError

__all__ = ["KERNELS", "Kernel", "chosen", "stock"]

#: What guests of an architecture boot unless told otherwise.
_USUAL = {"amd64": "6.12", "arm64": "6.12-arm64"}
#: Environment variable that chooses another one for guests of amd64.
_CHOICE = "PEERDMA_KERNEL"


@dataclass(frozen=True)
class Kernel:
    """A kernel to boot.

    Attributes
    ----------
    architecture : "amd64" or "arm64"
    image : Path
        Kernel image that QEMU loads.
    headers : Headers
        For building modules.
    modules : Path or None
        Folder with its modules; None if all that a guest needs is built in.
    """

    architecture: str
    image: Path
    headers: Headers
    modules: Path | None = None

    @cached_property
    def _files(self) -> dict[str, Path]:
        found = self.modules.rglob("*.ko*") if self.modules else ()
        return {path.name.partition(".")[0].replace("-", "_"): path for path in found}

    def modules_for(self, names: Iterable[str]) -> dict[str, bytes]:
        """The modules `names` and their dependencies in load order: name to content.

        Those that the kernel does not have as modules are assumed to be built in.
        """
        # An unpacked package has no modules.dep, but each module lists its dependencies.
        ordered: dict[str, bytes] = {}

        def add(name: str) -> None:
            path = self._files.get(name)
            if path is None or name in ordered:
                return
            content = path.read_bytes()
            if path.suffix == ".xz":
                content = lzma.decompress(content)
            depends = re.search(rb"\0depends=([^\0]*)", content)
            for other in depends[1].decode().split(",") if depends else ():
                add(other.replace("-", "_"))
            ordered[name] = content

        for name in names:
            add(name)
        return ordered


def stock(name: str) -> Kernel:
    """Debian's kernel of this name in `KERNELS`, downloaded if needed; TreeError if that fails."""
    found = headers(name, image=True)
    version = found.build.name.removeprefix("linux-headers-")
    root = found.build.parents[2]
    folders = (root / "usr/lib/modules" / version, root / "lib/modules" / version)
    modules = next((folder for folder in folders if folder.is_dir()), None)
    images = (root / "boot" / f"vmlinuz-{version}", folders[0] / "vmlinuz")  # where 7.3 has it
    image = next((image for image in images if image.exists()), None)
    if image is None or modules is None:
        raise GuestError(
            f"{root} has no image of kernel {version} with its modules; remove that folder to "
            "download it again"
        )
    return Kernel(name.partition("-")[2] or "amd64", image, found, modules)


def chosen(architecture: str) -> Kernel:
    """The kernel that PEERDMA_KERNEL names, if it is one of the architecture, or else the usual one.

    Raises
    ------
    GuestError
        If there is no such kernel.
    """
    name = os.environ.get(_CHOICE) or _USUAL["amd64"]
    if name != "debug" and name not in KERNELS:
        raise GuestError(f"{_CHOICE} is none of {', '.join(KERNELS)}, debug: {name!r}")
    usual = architecture != "amd64" or name == "debug"
    return stock(_USUAL[architecture] if usual else name)
