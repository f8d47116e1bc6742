# SPDX-License-Identifier: BSD-2-Clause
"""The core's C++, packed where Amaranth and Verilator are, and used where they are not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sim.compile import generated, native, tools
from tools.archives import unpack


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default core, packed."""
    file = tmp_path_factory.mktemp("packed") / "model.tar.gz"
    generated.pack(file)
    return file


@pytest.fixture
def brought(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, unpacked where what was brought along is looked for."""
    with tarfile.open(packed) as archive:
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


def test_which_core_it_is_takes_no_amaranth():
    """Whose import would be most of the time that a board takes to start."""
    digest = generated.obtain().digest
    code = (
        "import sys; from sim.compile import generated; print(generated.obtain().digest)\n"
        "assert 'amaranth' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tools.ROOT, capture_output=True)
    assert (done.returncode, done.stdout.decode().strip()) == (0, digest), done.stderr


def test_a_core_is_made_again_if_anything_about_it_changes(tmp_path, monkeypatch):
    made = []

    def make(*wanted):
        made.append(wanted)
        place = tools.cached(f"classes-{len(made)}", lambda at: (at / "classes").mkdir())
        return generated.GeneratedCore(place / "classes", tmp_path, 1, False, str(len(made)))

    monkeypatch.setattr(tools, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(generated, "_BROUGHT", tmp_path)
    monkeypatch.setattr(generated, "_generate", make)
    for expected, change in (
        ("1", lambda: None),
        ("1", lambda: None),
        ("2", lambda: monkeypatch.setattr(generated, "_source_digest", lambda: "other")),
        ("3", lambda: monkeypatch.setattr(generated, "_identity", lambda name: f"new {name}")),
        ("3", lambda: None),
        # What was made is safe to delete.
        ("4", lambda: shutil.rmtree(tmp_path / "cache" / "classes-3")),
    ):
        change()
        core = generated.obtain()
        assert core.digest == expected
        assert core.classes.is_dir()
    assert generated.obtain(tags=8).digest == "5"
    assert generated.obtain(plain=True).digest == "6"
    assert generated.obtain(tags=8).digest == "5"
    # A file of somebody's is looked at each time.
    assert generated.obtain("module:Block").digest == "7"
    assert generated.obtain("module:Block").digest == "8"
