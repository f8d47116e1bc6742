# SPDX-License-Identifier: BSD-2-Clause
"""Edits fit the files that they are made of: each bug that is planted in a copy can be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sim.compile.tools import ROOT
from sim.copies import Edit
from sim.formal.bugs import BUGS
from sim.mutants import MUTANTS


@pytest.mark.parametrize(
    "bug", [*MUTANTS, *(bug for bugs in BUGS.values() for bug in bugs)], ids=lambda bug: bug.name
)
def test_each_bug_can_be_planted(bug: Edit, tmp_path: Path):
    source, copy = ROOT / bug.file, tmp_path / bug.file
    copy.parent.mkdir(parents=True)
    shutil.copy(source, copy)
    bug.apply(tmp_path)
    assert copy.read_text() != source.read_text()
    compile(copy.read_text(), bug.file, "exec")


@pytest.mark.parametrize(("text", "count"), [("a = 2\n", 0), ("a = 1\na = 1\n", 2)])
def test_a_text_that_is_not_there_once_is_named(tmp_path: Path, text: str, count: int):
    file = tmp_path / "some.py"
    file.write_text(text)
    words = rf"(?s)'a rule' edits a text that some\.py has {count} times, not once.*\na = 1$"
    with pytest.raises(ValueError, match=words):
        Edit("a rule", "some.py", "a = 1", "a = 3").apply(tmp_path)
    assert file.read_text() == text
