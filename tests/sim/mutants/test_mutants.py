# SPDX-License-Identifier: BSD-2-Clause
"""The mutants name tests that exist, and what becomes of one; `make mutants` tries them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.benches.runner import discover
from sim.compile.tools import ROOT
from sim.mutants import MUTANTS, Mutant
from sim.mutants.__main__ import APART, attempt, main


def test_each_names_tests_that_exist():
    benches, texts, missing = discover(), {}, []
    for mutant in MUTANTS:
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if bench := re.fullmatch(r"test_bench\[(.*)\]", name):
                known = bench[1] in benches
            else:
                if file not in texts:
                    texts[file] = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
                known = f"def {name.partition('[')[0]}" in texts[file]
            if not known:
                missing.append(f"{mutant.name}: {test}")
    assert not missing, "\n".join(missing)


def test_results_are_kept_while_only_other_things_change():
    files = {test.partition("::")[0] for mutant in MUTANTS for test in mutant.tests}
    found = [
        (file, folder)
        for file in sorted(files)
        for folder in APART
        if re.search(rf"\bsim[./]{folder}\b", file + (ROOT / file).read_text())
    ]
    assert not found


def test_names_are_their_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("claim", "result"),
    [
        ("add(1, 2) == 3", "found"),
        ("True", "SURVIVED"),
        ("add(1, 2) == 4", "its tests are red without it"),
    ],
)
def test_a_bug_is_found_only_by_a_test_that_it_turns_red(tmp_path: Path, claim: str, result: str):
    adder = tmp_path / "adder.py"
    adder.write_text("def add(a, b):\n    return a + b\n")
    test = f"from adder import add\n\ndef test_it():\n    assert {claim}\n"
    (tmp_path / "test_it.py").write_text(test)
    mutant = Mutant("a rule", "adder.py", "a + b", "a", ("test_it.py",))
    assert attempt(tmp_path, mutant, {}) == result
    assert "a + b" in adder.read_text()


def test_an_unknown_name_lists_all(capsys):
    assert main(["nonsense"]) == 2
    assert f"\n  {MUTANTS[0].name}\n" in capsys.readouterr().out
