# SPDX-License-Identifier: BSD-2-Clause
"""Rules of the gateware, broken on purpose: the demo must fail, and so must a quick test.

Every case is an edit of one line in a copy of the checkout. Of the mutants, which all have their
quick test, these are the ones that the demo must notice. Its board has them all, each asleep until
the auxiliary inputs are its number: so one core is compiled, and it is sound while they are 0.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sim.copies import Edit, private_copy
from sim.mutants import MUTANTS, Mutant, run_tests

#: Those that the demo must notice. Each has its place here, from 1, as its number.
NOTICED = [mutant for mutant in MUTANTS if mutant.demo]
_PLANTED = "from hw.planted import PLANTED\n"
#: What joins the auxiliary inputs of the simulated board, which are 0, to the mutants.
_JOINED = (
    ("hw/core.py", "host.gpio.eq(self.gpio),", "host.gpio.eq(0), PLANTED.eq(self.gpio),"),
    (
        "sim/board/native/rtl.cpp",
        "parts_->core.gpio = 0;",
        'parts_->core.gpio = std::stoul(std::getenv("PLANTED"));',
    ),
    (
        "sim/board/native/rtl.cpp",
        "#include <stdexcept>",
        "#include <cstdlib>\n#include <stdexcept>",
    ),
)


def asleep(mutant: Mutant, number: int) -> Edit:
    """The mutant, of which nothing shows while PLANTED is not its number."""
    # Of an assignment, its value.
    sides = [re.fullmatch(r"(\S+\.eq\()?(.*?)(?(1)\))", text) for text in (mutant.old, mutant.new)]
    (target, old), (same, new) = (side.groups(default="") for side in sides if side)
    assert target == same, mutant.name
    chosen = f"{target}Mux(PLANTED == {number}, {new}, {old})" + ")" * bool(target)
    return replace(mutant, new=chosen)


@pytest.fixture
def checkout(tmp_path):
    return private_copy(tmp_path)


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """A copy whose board has all of them."""
    checkout = private_copy(tmp_path_factory.mktemp("planted"))
    (checkout / "hw" / "planted.py").write_text(
        f"from amaranth import Signal\n\nPLANTED = Signal(range({len(NOTICED) + 1}))\n"
    )
    edits = [Edit("its input", *joined) for joined in _JOINED]
    edits += [asleep(mutant, number) for number, mutant in enumerate(NOTICED, 1)]
    for edit in edits:
        edit.apply(checkout)
    for name in {edit.file for edit in edits if edit.file.endswith(".py")}:
        source = checkout / name
        text = source.read_text()
        source.write_text(
            text.replace("from amaranth import *\n", "from amaranth import *\n" + _PLANTED, 1)
        )
        assert _PLANTED in source.read_text(), name
    return checkout


def demo(checkout: Path, number: int):
    return subprocess.run(
        [sys.executable, "host/demo.py", "--size", "128x64"],
        cwd=checkout,
        env={**os.environ, "PLANTED": str(number)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("mutant", NOTICED, ids=lambda mutant: mutant.name)
def test_the_demo_notices(planted, mutant):
    broken = demo(planted, 1 + NOTICED.index(mutant))
    assert broken.returncode, f"the demo did not notice:\n{broken.stdout}"
    assert "verified    every word" not in broken.stdout
    assert "Traceback" not in broken.stderr


@pytest.mark.parametrize("mutant", NOTICED, ids=lambda mutant: mutant.name)
def test_a_quick_test_notices(checkout, mutant):
    mutant.apply(checkout)
    tests = run_tests(checkout, *mutant.tests)
    assert tests.returncode == 1, f"no test turned red:\n{tests.stdout}"


def test_the_demo_passes_unbroken(planted):
    sound = demo(planted, 0)
    assert sound.returncode == 0, sound.stderr
    assert "verified    every word" in sound.stdout
