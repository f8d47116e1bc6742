# SPDX-License-Identifier: BSD-2-Clause
"""The table of mutants fits the gateware; `make mutants` tries them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from sim.benches.runner import discover
from sim.mutants import MUTANTS, Mutant, __main__, break_it, run

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_can_be_made_and_names_tests_that_exist(mutant, tmp_path):
    (tmp_path / mutant.file).parent.mkdir(parents=True)
    shutil.copy(ROOT / mutant.file, tmp_path / mutant.file)
    assert break_it(tmp_path, mutant) == (ROOT / mutant.file).read_text()
    compile((tmp_path / mutant.file).read_text(), mutant.file, "exec")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        if bench := re.fullmatch(r"test_bench\[(.*)\]", name):
            assert bench[1] in discover()
        else:
            assert f"def {name}" in (ROOT / file).read_text()


def test_names_are_their_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_fragment_that_moved_is_named(tmp_path):
    (tmp_path / "some.py").write_text("a = 1\na = 1\n")
    with pytest.raises(ValueError, match=r"some\.py has the fragment 2 times, not once"):
        break_it(tmp_path, Mutant("a rule", "some.py", "a = 1", "a = 2", ("test_some.py",)))


class TestCommand:
    """What becomes of a bug: found, survived, or its tests prove nothing."""

    @pytest.fixture(autouse=True)
    def checkout(self, monkeypatch, tmp_path):
        (tmp_path / "hw").mkdir()
        (tmp_path / "hw" / "__init__.py").touch()
        (tmp_path / "hw" / "adder.py").write_text("def add(a, b):\n    return a + b\n")
        for name, expected in (("good", 3), ("weak", 3), ("wrong", 4)):
            sound = (
                f"from hw.adder import add\n\ndef test_it():\n    assert add(1, 2) == {expected}"
            )
            weak = "def test_it():\n    assert True"
            text = weak if name == "weak" else sound
            (tmp_path / f"test_{name}.py").write_text(text + "\n")
        (tmp_path / "pyproject.toml").write_text(
            '[tool.pytest.ini_options]\npythonpath = ["."]\naddopts = ["--import-mode=importlib"]\n'
        )
        mutants = [
            Mutant(name, "hw/adder.py", "a + b", "a - b", (f"test_{name}.py",))
            for name in ("good", "weak", "wrong")
        ]
        monkeypatch.setattr(__main__, "MUTANTS", mutants)
        monkeypatch.setattr(__main__, "KEPT", tmp_path / "kept.json")
        monkeypatch.setattr(__main__, "private_copy", lambda where: where)
        monkeypatch.setattr(__main__, "ROOT", tmp_path)
        monkeypatch.setattr(run, "LIMIT", 60)
        (tmp_path / "build").mkdir()
        (tmp_path / "build" / "mutants").symlink_to(tmp_path)
        return tmp_path

    def test_results(self, checkout, capsys):
        assert __main__.main([]) == 1
        out = capsys.readouterr().out
        assert "1/3 good: found" in out
        assert "2/3 weak: SURVIVED" in out
        assert "3/3 wrong: its tests are red without it" in out
        assert "1 of 3 found\nNOT FOUND weak" in out
        assert "a + b" in (checkout / "hw" / "adder.py").read_text()

    def test_a_second_run_goes_on(self, checkout, capsys, monkeypatch):
        assert __main__.main(["good"]) == 0
        assert "found" in json.loads((checkout / "kept.json").read_text()).values()
        monkeypatch.setattr(__main__, "run_tests", lambda *arguments: pytest.fail("ran again"))
        assert __main__.main(["good"]) == 0
        assert "1/1 good: found" in capsys.readouterr().out

    def test_an_unknown_name_lists_all(self, capsys):
        assert __main__.main(["nonsense"]) == 2
        assert "  weak" in capsys.readouterr().out
