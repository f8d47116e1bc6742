# SPDX-License-Identifier: BSD-2-Clause
"""Rules of the gateware, broken on purpose: the demo must fail, and so must a quick test.

Every case edits one line of a copy of the checkout, so the copy's board is built from it. Of the
mutants, which all have their quick test, these are the ones that the demo must notice.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from sim.copies import private_copy
from sim.mutants import MUTANTS, run_tests


@pytest.fixture
def checkout(tmp_path):
    return private_copy(tmp_path)


def demo(checkout):
    return subprocess.run(
        [sys.executable, "host/demo.py", "--size", "128x64"],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    "mutant", [mutant for mutant in MUTANTS if mutant.demo], ids=lambda mutant: mutant.name
)
def test_demo_and_a_quick_test_notice(checkout, mutant):
    mutant.apply(checkout)
    broken = demo(checkout)
    assert broken.returncode, f"the demo did not notice:\n{broken.stdout}"
    assert "verified    every word" not in broken.stdout
    assert "Traceback" not in broken.stderr
    tests = run_tests(checkout, *mutant.tests)
    assert tests.returncode == 1, f"no test turned red:\n{tests.stdout}"


def test_demo_passes_unbroken(checkout):
    sound = demo(checkout)
    assert sound.returncode == 0, sound.stderr
    assert "verified    every word" in sound.stdout
