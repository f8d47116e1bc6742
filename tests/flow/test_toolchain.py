# SPDX-License-Identifier: BSD-2-Clause
"""flow: how the open tools are called, with scripts in their place."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading

import pytest

from flow import __main__ as flow_command
from flow import figures, toolchain
from flow.place import place_and_route, several
from flow.toolchain import Toolchain, ToolError
from tests.flow.small_fpga import make

NEXTPNR = """
import json, os, sys
arguments = sys.argv[1:]
seed = arguments[arguments.index("--seed") + 1]
fasm = next(a for a in arguments if a.startswith("fasm="))[5:]
open(fasm, "w").write("A.B\\n")
report = {"fmax": {"clk": {"achieved": 70.0}}}
report["utilization"] = {"FF": {"used": 3}, "DSP": {"used": 0}}
json.dump(report, open(arguments[arguments.index("--report") + 1], "w"))
json.dump([arguments, os.environ["TREE"]], open("called", "w"))
"""


@pytest.fixture
def tools(tmp_path) -> Toolchain:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    return Toolchain(root)


def program(tools, name, text):
    path = tools.root / "usr/bin" / name
    path.write_text(text)
    path.chmod(0o755)


def test_place_and_route(tools, tmp_path):
    fpga = make(tmp_path / "fpga")
    folder = tmp_path / "work"
    folder.mkdir()
    script = tmp_path / "nextpnr.py"
    script.write_text(NEXTPNR)
    # Its environment is for the tree's Python, not for this one.
    run = f'TREE=$PYTHONHOME exec env -u PYTHONHOME "{sys.executable}" "{script}" "$@"'
    program(tools, "nextpnr-himbaechel-xilinx", f"#!/bin/sh\n{run}\n")
    with pytest.MonkeyPatch().context() as patch:
        patch.setitem(place_and_route.__globals__["BEL_TYPES"], "HARD", "HARD_HARD")
        result = place_and_route(
            tools, fpga, folder, {"modules": {}}, "pins", {"HARD": "HARD_X0Y0"}, 7, 62.5
        )
    assert (result.seed, result.frequencies, result.utilisation) == (7, {"clk": 70.0}, {"FF": 3})
    assert result.fasm.read_text() == "A.B\n"
    arguments, home = json.loads((folder / "called").read_text())
    assert home == str(tools.root / "usr")
    for pair in (["--device", "diepkg-1"], ["--router", "router2"], ["--freq", "62.5"]):
        at = arguments.index(pair[0])
        assert arguments[at : at + 2] == pair
    assert arguments[arguments.index("--chipdb") + 1].endswith("chipdb-die.bin")
    # The script that nextpnr runs before placement pins the hard block.
    cells = [("a", Cell("HARD_HARD")), ("b", Cell("LUT"))]
    exec((folder / "seed7.py").read_text(), {"ctx": type("Context", (), {"cells": cells})})
    assert [cell.attributes for _, cell in cells] == [{"BEL": "X1Y0/HARD_X0Y0.HARD"}, {}]


def test_what_hangs_is_stopped(tools, tmp_path):
    """... and gone; what it said is not lost when a tool fails."""
    program(tools, "hangs", "#!/bin/sh\necho $$ > pid\nexec sleep 600\n")
    stop = threading.Event()
    timer = threading.Timer(0.5, stop.set)
    timer.start()
    with pytest.raises(ToolError, match="hangs was stopped"):
        tools.run("hangs", folder=tmp_path, stop=stop)
    timer.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    program(tools, "spins", "#!/bin/sh\nwhile :; do :; done\n")
    with pytest.MonkeyPatch().context() as patch:
        patch.setattr(toolchain, "_CPU_SECONDS", 1)
        with pytest.raises(ToolError, match="spins did not end in 1 s of processor time"):
            tools.run("spins", folder=tmp_path)
    program(tools, "fails", "#!/bin/sh\necho what was wrong >&2\nexit 3\n")
    with pytest.raises(ToolError, match=r"(?s)exit status 3.*what was wrong"):
        tools.run("fails", folder=tmp_path)


def test_other_seeds_for_those_that_hang_or_fail():
    def run(seed, stop):
        if seed == 2:
            assert stop.wait(60), "not stopped"
        if seed in (2, 3):
            raise ToolError("no route")
        return seed

    assert several(run, 2) == [1, 4]


def test_seeds_come_to_an_end():
    tried = []

    def fails(number, stop):
        tried.append(number)
        raise ToolError(f"no route for {number}")

    with pytest.raises(ToolError, match="0 of 2 placements were routed: no route for"):
        several(fails, 2)
    assert sorted(tried) == [1, 2, 3, 4, 5, 6]


class Cell:
    """A cell as nextpnr shows it to scripts."""

    def __init__(self, kind):
        self.type, self.attributes = kind, {}

    def setAttr(self, name, value):  # noqa: N802
        self.attributes[name] = value


def test_versions_are_of_the_packages(tools):
    folder = tools.root / "usr/share/doc/yosys"
    folder.mkdir(parents=True)
    with gzip.open(folder / "changelog.Debian.gz", "wt") as file:
        file.write("yosys (0.66-1) unstable; urgency=medium\n")
    found = tools.versions()
    assert found["yosys"] == "0.66-1" and found["prjxray"] == "unknown"
    assert set(found) == set(toolchain.PACKAGES)


def test_yosys_finds_its_files_beside_the_loader(tmp_path):
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (libraries / "ld-linux-x86-64.so.2").touch()
    (tmp_path / "usr/share").mkdir()
    toolchain._link_beside_loader(tmp_path, tmp_path / "final")
    assert (tmp_path / "usr/lib/share").resolve() == tmp_path / "usr/share"
    assert os.readlink(libraries / "yosys-abc") == str(tmp_path / "final/usr/bin/yosys-abc")


@pytest.mark.parametrize(
    ("name", "command", "options"),
    [("flow", flow_command, ("picoevb", "--ram-size", "4096")), ("flow.figures", figures, ())],
)
def test_without_the_tools_it_says_why(monkeypatch, tmp_path, capsys, name, command, options):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PEERDMA_DEBIAN", f"file://{tmp_path}/nothing")
    assert command.main([*options, "-o", str(tmp_path / "out")]) == 1
    assert f"{name}: TreeError: " in capsys.readouterr().err
