# SPDX-License-Identifier: BSD-2-Clause
"""The driver's modules and the stand-ins for GPUs, built for a guest's kernel."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tools.debian_tree import one_at_a_time
from tools.kernel_headers import nv_p2p

from .board import ROOT
from .errors import GuestError
from .kernel import Kernel

__all__ = ["build"]

_DRIVER = ROOT / "driver"
_CACHE = ROOT / "build" / "system" / "modules"
#: NVIDIA's branch that the modules for discrete GPUs are built for.
_BRANCH = "550"
#: The interface of L4T that those for Tegra are built for, in the driver's folder.
_TEGRA = "testing/tegra/r36"


def build(kernel: Kernel) -> dict[str, Path]:
    """The modules by name, built unless they are there; GuestError if that fails."""
    sources = sorted(path for path in _DRIVER.rglob("*") if _is_source(path))
    digest = hashlib.sha256(f"{_BRANCH} {kernel.headers.build}".encode())
    digest.update(Path(__file__).read_bytes())
    for path in sources:
        digest.update(f"\0{path.relative_to(_DRIVER)}\0".encode() + path.read_bytes())
    folder = _CACHE / digest.hexdigest()[:16]
    with one_at_a_time(_CACHE), tempfile.TemporaryDirectory(dir=_CACHE, prefix="new-") as scratch:
        if not folder.exists():
            draft = Path(scratch, "modules")
            draft.mkdir()
            _build(kernel, sources, Path(scratch, "driver"), draft)
            draft.rename(folder)
    return {path.stem: path for path in sorted(folder.glob("*.ko"))}


def _is_source(path: Path) -> bool:
    known = path.suffix in (".c", ".h", ".sh") or path.name == "Makefile"
    return known and ".mod." not in path.name


def _build(kernel: Kernel, sources: list[Path], work: Path, to: Path) -> None:
    # Kbuild takes no spaces: in a checkout that has them in its path, build/ is a link to a place
    # that has none.
    work = work.resolve()
    for path in sources:
        copy = work / path.relative_to(_DRIVER)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    nvidia, tegra = f"NVIDIA={nv_p2p(_BRANCH)}", f"TEGRA={work / _TEGRA}"
    _make(kernel, work, nvidia, "TEGRA=")
    _make(kernel, work / "testing", nvidia)
    # Both GPUs' symbols have the same names, so that a build knows those of one.
    _make(kernel, work / "testing/tegra", tegra)
    _make(kernel, work, "NVIDIA=", tegra)
    for module in work.rglob("*.ko"):
        if module.parent.name != "symbols":  # never loaded
            shutil.copy(module, to)


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
