# SPDX-License-Identifier: BSD-2-Clause
"""The open tools, from Debian's packages, unpacked privately: nothing is installed."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.debian_tree import Tree, obtain

__all__ = ["PACKAGES", "ToolError", "Toolchain"]

PACKAGES = ("yosys", "nextpnr-himbaechel-xilinx", "prjxray", "prjxray-database")
#: The suite that has all of them; nextpnr with the Xilinx architecture is new.
_SUITE = "forky"


class ToolError(Exception):
    """A tool failed; the message has what it said last."""


def _link_beside_loader(draft: Path, root: Path) -> None:
    """Yosys looks for its files beside the program that runs, which is the tree's loader."""
    (draft / "usr/lib/share").symlink_to("../share")
    for loader in (draft / "usr/lib").glob("*/ld-linux*"):
        (loader.parent / "yosys-abc").symlink_to(f"{root}/usr/bin/yosys-abc")


@dataclass(frozen=True)
class Toolchain:
    """The unpacked tools.

    Attributes
    ----------
    root : pathlib.Path
    """

    root: Path

    @classmethod
    def obtain(cls) -> Toolchain:
        """Unpacks the tools unless they are in the cache.

        Raises
        ------
        tools.debian_tree.TreeError
            If they cannot be had.
        """
        return cls(obtain(Tree(_SUITE, PACKAGES), _link_beside_loader))

    @property
    def database(self) -> Path:
        """Project X-Ray's database of the Artix-7 family."""
        return self.root / "usr/share/prjxray/database/artix7"

    @property
    def library(self) -> Path:
        """Yosys' library of Xilinx' primitives."""
        return self.root / "usr/share/yosys/xilinx/cells_xtra.v"

    @property
    def models(self) -> Path:
        """Yosys' simulation models of the primitives that it maps to."""
        return self.root / "usr/share/yosys/xilinx/cells_sim.v"

    def chips(self, fabric: str) -> Path:
        """nextpnr's database of a die."""
        return self.root / f"usr/share/nextpnr/himbaechel/xilinx/chipdb-{fabric}.bin"

    def versions(self) -> dict[str, str]:
        """Package -> version."""
        found = {}
        for package in PACKAGES:
            changes = self.root / "usr/share/doc" / package / "changelog.Debian.gz"
            text = subprocess.run(
                ["gzip", "-cd", changes], capture_output=True, text=True, check=False
            )
            match = re.match(r"\S+ \(([^)]+)\)", text.stdout)
            found[package] = match.group(1) if match else "unknown"
        return found

    def run(self, program: str, *arguments: str | Path, folder: Path) -> None:
        """Runs one of the tools in `folder`.

        Raises
        ------
        ToolError
            If it fails.
        """
        environment = {**os.environ, "PYTHONHOME": str(self.root / "usr")}
        command = [str(self.root / "usr/bin" / program), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise ToolError(f"{program} failed (exit status {done.returncode}):\n{said}")
