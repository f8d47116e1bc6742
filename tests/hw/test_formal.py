# SPDX-License-Identifier: BSD-2-Clause
"""The properties of `make formal` fit the gateware; solving them is left to that."""

import re
import subprocess

import pytest
from amaranth.back import rtlil

from hw import formal


@pytest.mark.parametrize("name", formal.PROPERTIES)
def test_assertions_and_a_clock_reach_the_solver(name):
    prop = formal.PROPERTIES[name]()
    text = rtlil.convert(prop, ports=prop.inputs)
    assert text.count("cell $check ") >= 4
    assert text.count('parameter \\FLAVOR "assert"') >= 2
    assert text.count('parameter \\FLAVOR "assume"') >= 1
    # Nothing would ever happen without.
    assert re.search(r"wire width 1 input \d+ +\\clk", text)
    assert prop.__doc__


@pytest.mark.parametrize(("status", "said"), [(0, "tags: holds: No tag"), (1, "tags: does NOT")])
def test_the_command_tells_what_holds(monkeypatch, capsys, status, said):
    done = subprocess.CompletedProcess([], status, stdout="a counterexample")
    monkeypatch.setattr(formal, "check", lambda name: done)
    assert formal.main(["tags"]) == status
    out = capsys.readouterr().out
    assert out.startswith(said)
    assert ("a counterexample" in out) == bool(status)
