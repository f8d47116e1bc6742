# SPDX-License-Identifier: BSD-2-Clause
"""Builds of the driver against kernels fetched from Debian."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.kernel_headers import headers, nv_p2p

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "driver"
TEGRA = DRIVER / "testing/tegra"

#: What the kernels answer to conftest.sh, without the common parts.
ANSWERS = {
    "5.10": {
        "EVENTFD_SIGNAL_COUNT",
        "CLASS_CREATE_OWNER",
        "VM_FLAGS_ASSIGN",
        "READ_PINS_FORCED",
        "DMABUF_MOVE_NOTIFY",
        "GET_FILE_RCU",
        "IMPORT_NS_TOKEN",
        "DMA_RESV_RCU",
        "SG_TABLE_CHAINED",
        "AER_BY_DRIVER",
    },
    "6.1": {
        "EVENTFD_SIGNAL_COUNT",
        "CLASS_CREATE_OWNER",
        "VM_FLAGS_ASSIGN",
        "READ_PINS_FORCED",
        "DMABUF_MOVE_NOTIFY",
        "GET_FILE_RCU",
        "IMPORT_NS_TOKEN",
        "DMA_RESV_USAGE",
        "SG_TABLE_SEGMENT",
        "AER_BY_DRIVER",
    },
    "6.12": {
        "EVENTFD_SIGNAL_ONCE",
        "CLASS_CREATE_NAME",
        "VM_FLAGS_SET",
        "READ_PINS_LAST",
        "DMABUF_MOVE_NOTIFY",
        "GET_FILE_ACTIVE",
        "IMPORT_NS_TOKEN",
        "DMA_RESV_USAGE",
        "SG_TABLE_SEGMENT",
        "AER_BY_CORE",
    },
    "newest": {
        "EVENTFD_SIGNAL_ONCE",
        "CLASS_CREATE_NAME",
        "VM_FLAGS_SET",
        "READ_PINS_LAST",
        "DMABUF_INVALIDATE_MAPPINGS",
        "GET_FILE_ACTIVE",
        "IMPORT_NS_STRING",
        "DMA_RESV_USAGE",
        "SG_TABLE_SEGMENT",
        "AER_BY_CORE",
    },
}


@dataclass(frozen=True)
class Build:
    """What a build left behind: its folder and what it said."""

    folder: Path
    status: int
    output: str

    def module(self, name: str) -> bytes:
        """The content of a module."""
        return (self.folder / f"{name}.ko").read_bytes()


def _with_symbols(header: Path, folder: Path) -> Path:
    """A copy of `header` in `folder`, with the list of symbols that a built provider leaves."""
    folder.mkdir(parents=True)
    shutil.copy(header, folder)
    names = sorted(set(re.findall(r"\bint (nvidia_p2p_\w+)\(", header.read_text())))
    lines = [f"0x00000000\t{name}\tnvidia-p2p\tEXPORT_SYMBOL_GPL\t\n" for name in names]
    (folder / "Module.symvers").write_text("".join(lines))
    return folder


def _make(folder: Path, kernel: str, *arguments: str) -> Build:
    found = headers(kernel)
    done = subprocess.run(
        ["nice", "make", "-j2", "W=1", *found.options, *arguments, "modules"],
        cwd=folder,
        env=found.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Build(folder, done.returncode, done.stdout)


def build(tmp: Path, kernel: str, nvidia: str = "", tegra: str = "", *extra: str) -> Build:
    """Builds a copy of the driver in `tmp`: for a kernel, with NVIDIA's header of a branch."""
    folder = tmp / "driver"
    shutil.copytree(DRIVER, folder)
    arguments = ["NVIDIA=", "TEGRA="]
    if nvidia:
        arguments[0] += str(nv_p2p(nvidia))
    if tegra:
        _with_symbols(TEGRA / tegra / "linux/nv-p2p.h", tmp / "tegra" / "linux")
        shutil.move(tmp / "tegra/linux/Module.symvers", tmp / "tegra/Module.symvers")
        arguments[1] += str(tmp / "tegra")
    return _make(folder, kernel, *arguments, *extra)


def build_stand_ins(driver: Build, kernel: str, nvidia: str) -> Build:
    """Builds the stand-ins for GPUs beside a driver that has been built."""
    return _make(driver.folder / "testing", kernel, f"NVIDIA={nv_p2p(nvidia)}")


def build_client(tmp: Path, kernel: str, *extra: str) -> Build:
    """Builds a copy in `tmp` of the parent and client of the kernel's own driver for XDMA."""
    folder = tmp / "driver"
    shutil.copytree(DRIVER, folder)
    return _make(folder / "testing/dmaengine", kernel, *extra)


def check_quiet(built: Build) -> None:
    """That a build went well, without a warning."""
    assert built.status == 0, built.output
    # What the kernel's Makefile says of compilers is not about us.
    noise = re.compile(r"the compiler differs from|The kernel was built by|You are using")
    bad = [x for x in built.output.splitlines() if re.search(r"warning|error", x, re.IGNORECASE)]
    assert [x for x in bad if not noise.search(x)] == []


def check(built: Build, kernel: str, modules: tuple[str, ...]) -> None:
    """That a build of the driver went well, without a warning, and is what it should be."""
    check_quiet(built)
    assert sorted(path.stem for path in built.folder.glob("*.ko")) == sorted(modules)
    probes = (built.folder / "compat_probes.h").read_text()
    answers = set(re.findall(r"#define COMPAT_(\w+)", probes)) - {"PROBED"}
    assert answers == ANSWERS[kernel.partition("-")[0]]
    for name in modules:
        assert b"\0license=GPL\0" in b"\0" + built.module(name)
    assert b"\0nvidia_p2p_" not in built.module("peerdma"), "the core links to a GPU's driver"
    assert b"\0import_ns=DMA_BUF\0" in built.module("peerdma")
