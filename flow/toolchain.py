# SPDX-License-Identifier: BSD-2-Clause
"""The open tools, from Debian's packages, unpacked into the user's cache and not installed."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tools.debian_tree import Tree, obtain

__all__ = ["PACKAGES", "ToolError", "Toolchain", "synthesis"]

PACKAGES = ("yosys", "nextpnr-himbaechel-xilinx", "prjxray", "prjxray-database")
#: The first suite with all of them: nextpnr's Xilinx architecture is new.
_SUITE = "forky"
#: Seconds of processor time after which a tool is considered to hang.
_CPU_SECONDS = 3600


class ToolError(Exception):
    """A tool failed; the message has the end of its output."""


def synthesis(top: str, *options: str, family: str = "xc7") -> str:
    """Yosys' commands that synthesize a design, with further options of `synth_xilinx`.

    `family` is its name of the FPGA's family; it maps all of them with the delays of "xc7".

    A board's PHY is mapped to LUTs by itself: the mapper makes all paths as long as the longest
    one if that takes less area, and the PHY's clock is several times that of the core.
    """
    # Without shift registers in LUTs: nextpnr has no wire for their cascades.
    fixed = ("-flatten", "-nosrl", "-nowidelut", "-abc9", "-family", family)
    words = ("synth_xilinx", *fixed, *options)
    command = " ".join((*words, "-top", top))
    return (
        # What a wire takes, in ps: for Yosys 300, and then paths take twice what it estimates.
        "scratchpad -set synth_xilinx.abc9.W 800; "
        "setattr -mod -set keep_hierarchy 1 *.phy; "
        f"{command} -run begin:prepare; "
        # What a LUT costs, beside 5 with six inputs and 2 with two. For Yosys it is 3 from three to
        # five inputs, as if two with five often shared a place; but few have inputs in common.
        "setattr -mod -set abc9_lut 4 =LUT3; setattr -mod -set abc9_lut 5 =LUT4 =LUT5; "
        f"{command} -run prepare:; "
        "setattr -mod -unset keep_hierarchy *.phy; flatten; opt_clean; "
    )


def _link_beside_loader(draft: Path, root: Path) -> None:
    """Makes links for Yosys, which finds its files beside its executable: here, the loader."""
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
        """Downloads and unpacks the tools unless they are in the cache.

        Raises
        ------
        tools.debian_tree.TreeError
            If that fails.
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

    def run(
        self,
        program: str,
        *arguments: str | Path,
        folder: Path,
        stop: threading.Event | None = None,
    ) -> None:
        """Runs one of the tools in `folder`, until it ends or `stop` is set.

        Raises
        ------
        ToolError
            If it fails, hangs, or is stopped.
        """
        environment = {**os.environ, "PYTHONHOME": str(self.root / "usr")}
        command = [str(self.root / "usr/bin" / program), *map(str, arguments)]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                # The soft limit raises SIGXCPU, by which a hang is recognised; the hard one kills.
                most = (_CPU_SECONDS, _CPU_SECONDS + 10)
                resource.prlimit(process.pid, resource.RLIMIT_CPU, most)
                while process.poll() is None and not (stop and stop.is_set()):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
            finally:
                process.kill()
                status = process.wait()
            output.seek(0)
            said = "\n".join(output.read().strip().splitlines()[-20:])
        if stop and stop.is_set():
            raise ToolError(f"{program} was stopped")
        if status == -signal.SIGXCPU:
            raise ToolError(f"{program} did not end in {_CPU_SECONDS} s of processor time:\n{said}")
        if status:
            raise ToolError(f"{program} failed (exit status {status}):\n{said}")
