# SPDX-License-Identifier: BSD-2-Clause
"""The driver builds without a warning: one kernel here, all of them in matrix.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.driver.builds import DRIVER, build, check
from tools import debian_tree


def test_all_modules_on_one_kernel(tmp_path: Path):
    built = build(tmp_path, "6.12", nvidia="550", tegra="r36")
    check(built, "6.12", ("peerdma", "peerdma_nvp2p", "peerdma_nvp2p_tegra"))


@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        ("false", "cannot tell what this kernel has for: anything at all"),
        ("true", "accepts everything"),
    ],
)
def test_probes_refuse_a_broken_compiler(tmp_path: Path, compiler: str, words: str):
    header = tmp_path / "compat_probes.h"
    done = subprocess.run(
        ["sh", DRIVER / "conftest.sh", header, compiler],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert not header.exists()


def test_missing_headers_are_said(tmp_path: Path):
    done = subprocess.run(
        ["make", "-C", DRIVER, f"KDIR={tmp_path}"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert f"no kernel headers in {tmp_path}: install them" in done.stderr


def test_without_an_archive_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PEERDMA_DEBIAN", f"file://{tmp_path}/nothing")
    with pytest.raises(debian_tree.TreeError, match="apt-get -qq update failed"):
        debian_tree.obtain(debian_tree.Tree("bookworm", ("sparse",)))
    assert list(debian_tree.cache().iterdir()) == []
