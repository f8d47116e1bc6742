# SPDX-License-Identifier: BSD-2-Clause
"""What a release is checked for, in short: ``make release-check`` builds all of it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import peerdma
from tests.test_docs import FOLDERS
from tools.release import ROOT, Wrong, build_source, check, metadata_problems, versions

#: Texts of licences, and what programs leave in folders.
OTHERS = re.compile(r"(^|/)(LICENSE[^/]*|__pycache__/.*|[^/]*~)$")
# REUSE-IgnoreStart
NAMES_IT = re.compile(r"SPDX-License-Identifier: (.+?)\s*(\*/|-->)?$", re.MULTILINE)
# REUSE-IgnoreEnd


def test_there_is_one_version():
    found = versions(ROOT)
    assert len(found) >= 3
    # What comes after a release stands above it.
    assert found.pop("CHANGELOG.md") in (peerdma.__version__, "Unreleased")
    assert set(found.values()) == {peerdma.__version__}


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("host/peerdma/__init__.py", '"""Doc."""\n__version__ = "1.2.3"\n', "1.2.3"),
        ("host/peerdma/__init__.py", "version = 3\n", "none"),
        ("driver/dkms.conf", 'PACKAGE_NAME="peerdma"\nPACKAGE_VERSION="1.2.3"\n', "1.2.3"),
        ("CHANGELOG.md", "# Changes\n\n## 1.2.3 - 2027-01-02\n\n## 1.2.2 - 2026-12-31\n", "1.2.3"),
        ("CHANGELOG.md", "# Changes\n\n## Unreleased\n\n## 1.2.2 - 2026-12-31\n", "Unreleased"),
        ("README.md", "Install peerdma-dkms_1.2.3_all.deb.\n", "1.2.3"),
        ("docs/c.md", "`dpkg -i libpeerdma-dev_1.2.3_all.deb`\n", "1.2.3"),
        ("docs/cuda.md", "peerdma_sim-1.2.3-py3-none-any.whl\n", "1.2.3"),
    ],
)
def test_another_version_is_found(tmp_path, name, text, found):
    for each in ("host/peerdma/__init__.py", "driver/dkms.conf", "CHANGELOG.md", "docs/c.md"):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / each, tmp_path / each)
    before = versions(tmp_path)
    (tmp_path / name).write_text(text)
    assert versions(tmp_path) == before | {name: found}


def files() -> list[str]:
    """The project's files, but for licences; a checkout can have others beside its folders."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile", ROOT / ".gitignore"]
    for folder in (*FOLDERS, "docs", ".ci", ".github"):
        found += (ROOT / folder).rglob("*")
    names = [str(path.relative_to(ROOT)) for path in found if path.is_file()]
    return [name for name in names if not OTHERS.search(name)]


def annotated(name: str) -> str | None:
    """The licence that REUSE.toml gives a path: its last table that matches says it."""
    found = None
    for table in (ROOT / "REUSE.toml").read_text().split("[[annotations]]")[1:]:
        paths, _, rest = table.partition("SPDX-FileCopyrightText")
        licence = re.search(r'SPDX-License-Identifier = "(.+)"', rest)
        for path in re.findall(r'"([^"]+)"', paths):
            # Of these, one star stays within a folder.
            pattern = re.escape(path).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
            if re.fullmatch(pattern, name):
                found = licence and licence[1]
    return found


def test_every_file_has_a_licence_and_every_licence_its_text():
    named = {}
    for name in files():
        head = (ROOT / name).read_bytes()[:400].decode(errors="replace")
        match = NAMES_IT.search(head)
        named[name] = match[1] if match else annotated(name)
    assert len(named) > 900
    assert [name for name, licence in named.items() if not licence] == []
    words = {word for licence in named.values() for word in re.findall(r"[\w.-]+", licence or "")}
    assert words - {"WITH", "OR", "AND"} == {path.stem for path in (ROOT / "LICENSES").iterdir()}
    # Some headers of the driver have a second licence beside the kernel's.
    ours = {licence for name, licence in named.items() if name.startswith("driver/")}
    assert all("GPL-2.0-only" in (licence or "") for licence in ours)


METADATA = """\
Metadata-Version: 2.4
Name: peerdma
Version: 1.2.3
Summary: DMA
License-Expression: BSD-2-Clause
License-File: LICENSES/BSD-2-Clause.txt
Requires-Python: >=3.10
Description-Content-Type: text/markdown

# peerdma
"""


@pytest.mark.parametrize(
    ("now", "then", "said"),
    [
        ("", "", None),
        ("Version: 1.2.3", "Version: 1.2.2", "its version is 1.2.2, not 1.2.3"),
        ("BSD-2-Clause\n", "BSD\n", "BSD"),
        ("Summary: DMA\n", "", "it has no Summary"),
        ("text/markdown", "text/word", "text/word"),
        (">=3.10", "3 or so", "3 or so"),
    ],
)
def test_metadata_that_a_registry_refuses_is_found(now, then, said):
    problems = metadata_problems(METADATA.replace(now, then, 1).encode(), "1.2.3")
    assert len(problems) == bool(said)
    assert not said or said in problems[0]


def test_a_part_that_fails_is_named_and_the_others_are_tried(tmp_path, capfd):
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "of-yesterday.whl").touch()
    tried = []

    def fails(_: Path) -> None:
        raise Wrong("it is Monday: wait")

    parts = {"first": fails, "second": tried.append}
    assert check(folder, parts) == ["first"]
    assert tried == [folder] and list(folder.iterdir()) == []
    said = capfd.readouterr()
    assert said.out.splitlines() == ["release: first (1 of 2) ...", "release: second (2 of 2) ..."]
    assert said.err == "release: first failed: it is Monday: wait\n"


@pytest.mark.system
def test_the_source_archive_gives_the_wheel_of_the_checkout(tmp_path):
    build_source(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"peerdma-{peerdma.__version__}.tar.gz"]
