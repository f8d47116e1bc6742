# SPDX-License-Identifier: BSD-2-Clause
"""Every kernel that the driver is built for, and what checks its style: ``make driver-matrix``."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.driver.builds import (
    DRIVER,
    Build,
    build,
    build_client,
    build_stand_ins,
    check,
    check_quiet,
)
from tools.kernel_headers import coccinelle, scripts, sparse

CORE, DISCRETE, TEGRA = "peerdma", "peerdma_nvp2p", "peerdma_nvp2p_tegra"
#: Seconds for one of the scripts for Coccinelle.
_BOUND = 1800
#: Of checkpatch's opinions, those that are not ours.
IGNORED = (
    "LONG_LINE_STRING",  # messages are not split
    "BIT_MACRO",  # is not for programs, whose headers these are
    "UNCOMMENTED_DEFINITION",  # locks are documented in kernel-doc
    "MACRO_ARG_REUSE",  # of names, not of expressions
    "FILE_PATH_CHANGES",
    "PREFER_KERNEL_TYPES",  # of functions that NVIDIA declared
)


@pytest.mark.parametrize(
    ("kernel", "nvidia", "tegra"),
    [
        ("5.10", "535", "r35"),
        ("6.1", "535", "r36"),
        ("6.12", "535", ""),
        ("6.12-arm64", "550", "r36"),
        ("newest", "550", ""),
        ("newest", "", ""),
    ],
)
def test_build(tmp_path: Path, kernel: str, nvidia: str, tegra: str):
    built = build(tmp_path, kernel, nvidia, tegra)
    modules = (CORE, *([DISCRETE] if nvidia else []), *([TEGRA] if tegra else []))
    check(built, kernel, modules)


@pytest.mark.parametrize(("kernel", "nvidia"), [("6.12", "535"), ("newest", "550")])
def test_stand_ins_have_the_symbols_that_the_provider_was_built_for(
    tmp_path: Path, kernel: str, nvidia: str
):
    built = build(tmp_path, kernel, nvidia)
    stand_ins = build_stand_ins(built, kernel, nvidia)
    check_quiet(stand_ins)

    def checksums(folder: Path) -> dict[str, str]:
        lines = (folder / "Module.symvers").read_text().splitlines()
        found = {fields[1]: fields[0] for fields in (line.split("\t") for line in lines)}
        return {name: crc for name, crc in found.items() if name.startswith("nvidia_p2p_")}

    made = checksums(built.folder / "symbols")
    assert made
    assert made == checksums(stand_ins.folder)


def sparse_options() -> list[str]:
    """Arguments of a build that runs sparse."""
    return ["C=2", f"CHECK={sparse()}", "CF=-D__CHECK_ENDIAN__"]


def check_sparse(built: Build) -> None:
    """That sparse was run, and said nothing."""
    assert built.status == 0, built.output
    said = [line for line in built.output.splitlines() if line.startswith(str(built.folder))]
    assert said == []
    assert "  CHECK " in built.output, "sparse was not run"


@pytest.mark.parametrize("kernel", ["6.1", "6.12"])  # the newest one's headers cannot run it
def test_sparse(tmp_path: Path, kernel: str):
    check_sparse(build(tmp_path, kernel, "535", "r36", *sparse_options()))


def test_client_of_the_kernels_own_driver(tmp_path: Path):
    built = build_client(tmp_path, "6.12", *sparse_options())
    check_quiet(built)
    check_sparse(built)


def sources() -> list[Path]:
    """What people wrote of the driver."""
    found = DRIVER.rglob("*.[ch]")
    generated = ("peerdma_regs.h", "compat_probes.h")
    return sorted(p for p in found if p.name not in generated and ".mod." not in p.name)


def test_checkpatch():
    options = ["--no-tree", "--strict", "--terse", "--max-line-length=100"]
    command = ["perl", scripts() / "checkpatch.pl", *options, f"--ignore={','.join(IGNORED)}"]
    done = subprocess.run([*command, "-f", *sources()], capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if not line.startswith("total:")]
    assert said == []
    assert done.returncode == 0, done.stderr


def test_kernel_doc():
    for source in sources():
        done = subprocess.run(
            ["perl", scripts() / "kernel-doc", "-none", "-Wall", source],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr.strip()) == (0, ""), source


def coccinelle_reports(folder: Path) -> list[str]:
    """What the kernel's scripts for Coccinelle report of the sources in a folder."""
    program = coccinelle()
    env = {**os.environ, "COCCINELLE_HOME": str(program.parents[1] / "lib/coccinelle")}
    options = ["-D", "report", "--very-quiet", "--no-show-diff", "--dir", folder]
    reports = []
    found = sorted((scripts() / "coccinelle").rglob("*.cocci"))
    assert found
    for script in found:
        text = script.read_text()
        # Two need an OCaml compiler: for tables of a battery's driver, and for 0 in place of NULL,
        # which sparse finds.
        if "script:ocaml" in text:
            continue
        own = re.findall(r"^// Options:(.*)", text, re.M)
        done = subprocess.run(
            [program, *options, "--cocci-file", script, *" ".join(own).split()],
            env=env,
            capture_output=True,
            text=True,
            timeout=_BOUND,
            check=False,
        )
        assert done.returncode == 0, f"{script}: {done.stderr}"
        reports += done.stdout.splitlines()
    return reports


def test_coccinelle():
    assert coccinelle_reports(DRIVER) == []


def test_coccinelle_finds_what_is_planted(tmp_path: Path):
    (tmp_path / "planted.c").write_text("void f(void *p) { if (p) kfree(p); }\n")
    (report,) = coccinelle_reports(tmp_path)
    assert "NULL check before some freeing functions is not needed" in report
