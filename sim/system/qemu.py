# SPDX-License-Identifier: BSD-2-Clause
"""The QEMU to use: the machine's own if it supports vfio-user, else Debian's."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tools.debian_tree import Tree, architecture, obtain

__all__ = ["Qemu", "find"]

#: First version with vfio-user-pci.
_OLDEST = (10, 1)
_PROGRAMS = {"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}
_PACKAGES = {"amd64": "qemu-system-x86", "arm64": "qemu-system-arm"}
_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}


@dataclass(frozen=True)
class Qemu:
    """A QEMU program and how to start it.

    Attributes
    ----------
    program : Path
    arguments : tuple of str
        Arguments that it always needs, with the paths of its data.
    environment : dict of str to str
        Variables that it always needs, with the path of its modules.
    """

    program: Path
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@cache
def find(guest: str) -> Qemu:
    """QEMU for guests of an architecture, downloaded if needed; TreeError if that fails."""
    own = shutil.which(_PROGRAMS[guest])
    if own and _serves(Path(own)):
        return Qemu(Path(own))
    root = obtain(Tree("trixie", (_PACKAGES[guest],), backports=True))
    share = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")
    modules = root / "usr/lib" / _TRIPLETS[architecture()] / "qemu"
    return Qemu(
        root / "usr/bin" / _PROGRAMS[guest],
        tuple(word for folder in share for word in ("-L", str(root / folder))),
        {"QEMU_MODULE_DIR": str(modules)},
    )


def _serves(program: Path) -> bool:
    """Whether a QEMU is new enough and was built with vfio-user."""
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version (\d+)\.(\d+)", version.stdout)
    if not found or (int(found[1]), int(found[2])) < _OLDEST:
        return False
    devices = subprocess.run(
        [program, "-device", "help"], capture_output=True, text=True, check=False
    )
    return '"vfio-user-pci"' in devices.stdout
