# SPDX-License-Identifier: BSD-2-Clause
"""User logic in Verilog, in what other tools get: Yosys takes it, a Vivado project names it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.build.run import BuildPlan

from flow.__main__ import main
from flow.image import verilog_of
from flow.toolchain import Toolchain
from hw.build import generate
from hw.core import CoreConfig
from hw.endpoint import MODULE_NAME
from hw.stream.user_blocks import Axis, find
from sim.compile.tools import find_verilator

ROOT = Path(__file__).resolve().parents[2]
LITEX = ROOT / "examples" / "litex" / "loop_back.py"
EXAMPLE = ROOT / "examples" / "verilog" / "invert.v"
SMALL = CoreConfig(tags=8, ram_size=4096)
#: A module is there for each instance, with all its ports; and no net has two drivers or a loop.
_CHECK = "hierarchy -check -top {top}; proc; flatten; opt_clean; check -assert"


def elaborate(folder: Path, top: str, *sources: Path) -> None:
    """Fails if Yosys finds anything wrong with a design before synthesis."""
    # As arguments: in a script, a path with a space would be two.
    Toolchain.obtain().run("yosys", "-q", "-p", _CHECK.format(top=top), *sources, folder=folder)


def test_the_example_has_no_warning():
    """Of Verilator, but for ports that it has no use for."""
    verilator = str(find_verilator()[0] / "bin" / "verilator")
    options = ("--lint-only", "-Wall", "-Wno-UNUSEDSIGNAL")
    done = subprocess.run(
        [verilator, *options, EXAMPLE], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "%Warning" not in done.stderr, done.stderr


def test_a_module_inside_of_the_core_elaborates(tmp_path):
    core = tmp_path / "core.v"
    core.write_text(generate(replace(SMALL, user=find(str(EXAMPLE)))))
    elaborate(tmp_path, MODULE_NAME, core)


def test_a_design_around_the_core_elaborates(tmp_path):
    """The top level of the documentation: the core's ports joined to the example's."""
    text = (ROOT / "docs" / "integration.md").read_text()
    (body,) = re.findall(r"```verilog\n(.*?)```", text, flags=re.DOTALL)
    core, top = tmp_path / "core.v", tmp_path / "top.v"
    core.write_text(generate(replace(SMALL, user=Axis)))
    top.write_text(body)
    elaborate(tmp_path, "top", core, EXAMPLE, top)


def test_a_litex_design_around_the_core_elaborates(tmp_path):
    program = [sys.executable, "-W", "error", str(LITEX), str(tmp_path / "loop_back.v")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(program, env=environment, check=True, timeout=300)
    core = tmp_path / "core.v"
    core.write_text(generate(replace(SMALL, user=Axis)))
    elaborate(tmp_path, "loop_back", core, tmp_path / "loop_back.v")


@pytest.mark.parametrize("user", [None, EXAMPLE], ids=["without", "with"])
def test_a_vivado_project_has_all_that_it_names(user, tmp_path):
    options = ["--user", str(user)] if user else []
    command = ["picoevb", "--toolchain", "vivado", "-o", str(tmp_path), "--ram-size", "4096"]
    assert main([*command, *options]) == 0
    tcl = (tmp_path / "peerdma_picoevb.tcl").read_text()
    named = {name.strip('"{}') for name in re.findall(r"^(?:add_files|read_\w+) (\S+)", tcl, re.M)}
    assert {"peerdma_picoevb.v", "peerdma_picoevb.xdc"} <= named
    assert all((tmp_path / name).exists() for name in named), named
    if user:
        assert user.name in named
        assert (tmp_path / user.name).read_text() == user.read_text()
        assert "  invert " in (tmp_path / "peerdma_picoevb.v").read_text()


def test_an_image_is_of_the_design_and_the_users_files():
    """Not of what Amaranth writes for debugging."""
    plan = BuildPlan("script")
    for name in ("board.v", "board.debug.v", "board.xdc", "mine.v"):
        plan.add_file(name, f"// {name}\n")
    assert verilog_of(plan, "board") == "// board.v\n// mine.v\n"


def test_a_board_has_nothing_for_ports(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["picoevb", "--user", "axis"])
    assert "nothing here is connected to the ports of the user block" in capsys.readouterr().err
