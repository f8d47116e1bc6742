# SPDX-License-Identifier: BSD-2-Clause
"""Edits fit the files that they are made of: each bug that is planted in a copy can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.compile.tools import ROOT
from sim.copies import Edit
from sim.formal.bugs import BUGS
from sim.mutants import MUTANTS


def test_each_bug_can_be_planted(tmp_path: Path):
    failed = []
    for bug in (*MUTANTS, *(bug for bugs in BUGS.values() for bug in bugs)):
        text = (ROOT / bug.file).read_text()
        copy = tmp_path / bug.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
        try:
            bug.apply(tmp_path)
            compile(copy.read_text(), bug.file, "exec")
        except (ValueError, SyntaxError) as error:
            failed.append(f"{bug.name}: {error}")
        else:
            if copy.read_text() == text:
                failed.append(f"{bug.name}: changes nothing in {bug.file}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize(("text", "count"), [("a = 2\n", 0), ("a = 1\na = 1\n", 2)])
def test_a_text_that_is_not_there_once_is_named(tmp_path: Path, text: str, count: int):
    file = tmp_path / "some.py"
    file.write_text(text)
    words = rf"(?s)'a rule' edits a text that some\.py has {count} times, not once.*\na = 1$"
    with pytest.raises(ValueError, match=words):
        Edit("a rule", "some.py", "a = 1", "a = 3").apply(tmp_path)
    assert file.read_text() == text
