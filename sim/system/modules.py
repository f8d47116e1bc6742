# SPDX-License-Identifier: BSD-2-Clause
"""Modules for a guest: the driver's, stand-ins for GPUs, and the kernel's own driver for XDMA."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.debian_tree import one_at_a_time
from tools.kernel_headers import nv_p2p, xdma

from .board import ROOT
from .errors import GuestError
from .kernel import Kernel

__all__ = ["build", "build_xdma"]

_DRIVER = ROOT / "driver"
_CACHE = ROOT / "build" / "system" / "modules"
#: NVIDIA's branch that the modules for discrete GPUs are built for.
_BRANCH = "550"
#: The interface of L4T that those for Tegra are built for, in the driver's folder.
_TEGRA = "testing/tegra/r36"


def build(kernel: Kernel, driver: Path = _DRIVER) -> dict[str, Path]:
    """The driver's and the stand-ins by name, built unless they are there.

    Parameters
    ----------
    kernel : Kernel
        What to build them for.
    driver : Path, optional
        Folder of the driver's source, for a copy of it that differs.

    Raises
    ------
    GuestError
        If they cannot be built.
    """
    return _built(kernel, _BRANCH, {"driver": driver}, _build_driver)


def build_xdma(kernel: Kernel) -> dict[str, Path]:
    """The kernel's own driver for XDMA, unmodified, and its parent and client; by name.

    Raises
    ------
    GuestError
        If they cannot be built.
    TreeError
        If the kernel's source cannot be downloaded.
    """
    return _built(kernel, "xdma", {"driver": _DRIVER, "dma": xdma()}, _build_xdma)


def _built(
    kernel: Kernel,
    name: str,
    folders: Mapping[str, Path],
    recipe: Callable[[Kernel, Path], None],
) -> dict[str, Path]:
    """What `recipe` builds in a folder with copies of `folders`, by their places in it."""
    sources = {
        Path(place, path.relative_to(folder)): path
        for place, folder in folders.items()
        for path in sorted(folder.rglob("*"))
        if _is_source(path)
    }
    digest = hashlib.sha256(f"{name} {kernel.headers.build}".encode())
    digest.update(Path(__file__).read_bytes())
    for place, path in sources.items():
        digest.update(f"\0{place}\0".encode() + path.read_bytes())
    kept = _CACHE / digest.hexdigest()[:16]
    with one_at_a_time(_CACHE), tempfile.TemporaryDirectory(dir=_CACHE, prefix="new-") as scratch:
        if not kept.exists():
            # Kbuild takes no spaces: in a checkout that has them in its path, build/ is a link to
            # a place that has none.
            work, draft = Path(scratch, "work").resolve(), Path(scratch, "modules")
            for place, path in sources.items():
                (work / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, work / place)
            recipe(kernel, work)
            draft.mkdir()
            for module in work.rglob("*.ko"):
                if module.parent.name != "symbols":  # never loaded
                    shutil.copy(module, draft)
            draft.rename(kept)
    return {path.stem: path for path in sorted(kept.glob("*.ko"))}


def _is_source(path: Path) -> bool:
    known = path.suffix in (".c", ".h", ".sh") or path.name == "Makefile"
    return known and ".mod." not in path.name


def _build_driver(kernel: Kernel, work: Path) -> None:
    driver = work / "driver"
    nvidia, tegra = f"NVIDIA={nv_p2p(_BRANCH)}", f"TEGRA={driver / _TEGRA}"
    _make(kernel, driver, nvidia, "TEGRA=")
    _make(kernel, driver / "testing", nvidia)
    # Both GPUs' symbols have the same names, so that a build knows those of one.
    _make(kernel, driver / "testing/tegra", tegra)
    _make(kernel, driver, "NVIDIA=", tegra)


def _build_xdma(kernel: Kernel, work: Path) -> None:
    # As in the kernel's own tree: Debian's configuration has the driver off.
    _make(kernel, kernel.headers.build, f"M={work / 'dma/xilinx'}", "CONFIG_XILINX_XDMA=m")
    _make(kernel, work / "driver/testing/dmaengine")


def _make(kernel: Kernel, folder: Path, *arguments: str) -> None:
    command = ["nice", "make", "-j2", *kernel.headers.options, *arguments, "modules"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=kernel.headers.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GuestError(f"the modules for the guest cannot be built:\n{done.stdout}")
