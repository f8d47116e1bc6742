# SPDX-License-Identifier: BSD-2-Clause
"""Debian packages unpacked into a private folder, without touching the system.

apt resolves and verifies them with a private state, as any user. Their programs run on this machine
with any C library, as each is started through the dynamic loader that was unpacked with it. A tree
is made once and kept in the user's cache, under a hash of its description.

Standard library only. Needs apt, dpkg and Debian's keyring.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Tree", "TreeError", "architecture", "archive", "cache", "obtain", "one_at_a_time"]

#: Changes when a tree of the same packages would be unpacked differently.
_LAYOUT = 1
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: The dynamic loader that programs name, and Debian's folder of an architecture's libraries.
_LOADERS = {"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}
_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_WRAPPER = """#!/bin/sh
exec {loader} {argv0} --library-path {libraries} {program} "$@"
"""


class TreeError(Exception):
    """A tree cannot be made; the message says what to do."""


@dataclass(frozen=True)
class Tree:
    """What to unpack.

    Attributes
    ----------
    suite : str
        Release by its code name, "trixie".
    packages : tuple of str
        Packages to unpack with their dependencies.
    alone : tuple of str
        Packages to unpack without their dependencies.
    kernel : str
        Metapackage of kernel headers, "linux-headers-amd64", with ":arch" if not this machine's.
        The headers that it depends on are unpacked, with their common and kbuild packages.
    image : bool
        Whether to unpack the kernel's image and modules of the same version, too.
    backports : bool
        Prefer the suite's backports.
    foreign : str
        Architecture of all packages, "arm64", if they make a root, of this machine's or another
        architecture. Their programs run in that only, and dpkg, where it is among them, regards
        all of them as installed.
    """

    suite: str
    packages: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    kernel: str = ""
    image: bool = False
    backports: bool = False
    foreign: str = ""


def cache() -> Path:
    """The folder for all that is downloaded."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "peerdma", "debian")


def archive() -> str:
    """URL of a Debian archive: PEERDMA_DEBIAN, else the one this machine gets its packages from."""
    if url := os.environ.get("PEERDMA_DEBIAN"):
        return url
    with contextlib.suppress(OSError, KeyError, StopIteration):
        release = platform.freedesktop_os_release()
        if release["ID"] == "debian":
            command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)"]
            targets = _run([*command, "Created-By: Packages", "Component: main"]).splitlines()
            # Its code name or its state; Debian unstable calls itself as the next release will be.
            wanted = {release["VERSION_CODENAME"], "stable", "testing", "unstable", "sid"}
            return next(url for name, url in map(str.split, targets) if name in wanted)
    raise TreeError(
        "no Debian archive: this machine's package sources name none. Set PEERDMA_DEBIAN to the "
        "URL of one"
    )


def obtain(tree: Tree, finish: Callable[[Path, Path], None] | None = None) -> Path:
    """The folder with the unpacked tree, made unless it is in the cache.

    Parameters
    ----------
    finish : callable, optional
        Modifies the tree before it is moved into place; called with its path now and then.

    Raises
    ------
    TreeError
        If a program or the archive is missing, or a package cannot be downloaded.
    """
    description = [_LAYOUT, asdict(tree), finish.__name__ if finish else None]
    key = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:16]
    root = cache() / f"{tree.suite}-{key}"
    if root.exists():
        return root
    missing = [name for name in ("apt-get", "dpkg", "dpkg-deb") if not shutil.which(name)]
    if not _KEYRING.exists():
        missing.append(str(_KEYRING))
    if missing:
        raise TreeError(f"missing: {', '.join(missing)} (on Debian: apt, dpkg, its keyring)")
    with (
        one_at_a_time(cache()),
        tempfile.TemporaryDirectory(dir=cache(), prefix="new-") as scratch,
    ):
        if root.exists():  # another process was faster
            return root
        draft = Path(scratch, "root")
        draft.mkdir()
        packages = _download(tree, Path(scratch))
        for package in packages:
            _run(["dpkg-deb", "-x", str(package), str(draft)])
        if tree.foreign:
            _record(packages, draft)
        else:
            _wrap_programs(draft, root)
        if finish:
            finish(draft, root)
        draft.rename(root)
    return root


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Makes a folder and locks it against other processes; not reentrant."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _run(command: list[str], cwd: Path | None = None, config: Path | None = None) -> str:
    env = {**os.environ, "LC_ALL": "C", **({"APT_CONFIG": str(config)} if config else {})}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise TreeError(f"{shlex.join(command)} failed (exit status {done.returncode}):\n{said}")
    return done.stdout


def _download(tree: Tree, scratch: Path) -> list[Path]:
    """Downloads into `scratch`; returns the packages' files."""
    config = _private_apt(tree, scratch)
    _run(["apt-get", "-qq", "update"], config=config)
    packages, alone = list(tree.packages), list(tree.alone)
    if tree.kernel:
        headers = next(n for n in _depends(tree.kernel, config) if n.startswith("linux-headers-"))
        of_architecture = "".join(tree.kernel.partition(":")[1:])
        alone.append(headers + of_architecture)
        packages += [
            name
            for name in _depends(alone[-1], config)
            if name.startswith("linux-kbuild-") or name.endswith("-common")
        ]
        if tree.image:
            alone.append(alone[-1].replace("headers", "image", 1))
            # From 7.3 on the image is in another package, and its modules are.
            alone += [
                name + of_architecture
                for name in _depends(alone[-1], config)
                if name.startswith(("linux-binary-", "linux-modules-"))
            ]
    if packages:
        _run(["apt-get", "-qqy", "--download-only", "install", *packages], config=config)
    if alone:
        _run(["apt-get", "-qq", "download", *alone], scratch / "archives", config)
    return sorted((scratch / "archives").glob("*.deb"))


def _private_apt(tree: Tree, scratch: Path) -> Path:
    for folder in ("lists/partial", "archives/partial", "etc/preferences.d", "etc/apt.conf.d"):
        (scratch / folder).mkdir(parents=True)
    (scratch / "status").touch()
    native = tree.foreign or architecture()
    architectures = {native: None, tree.kernel.partition(":")[2] or native: None}
    suites = [tree.suite, *([f"{tree.suite}-backports"] if tree.backports else [])]
    (scratch / "sources.list").write_text(
        "".join(f"deb [signed-by={_KEYRING}] {archive()} {s} main contrib\n" for s in suites)
    )
    options = {
        "Dir::State": scratch,
        "Dir::State::status": scratch / "status",
        "Dir::State::lists": scratch / "lists",
        "Dir::Cache": scratch,
        "Dir::Cache::archives": scratch / "archives",
        "Dir::Etc": scratch / "etc",
        "Dir::Etc::sourcelist": scratch / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Debug::NoLocking": "1",
        "APT::Default-Release": suites[-1],
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "0",
        "APT::Architecture": native,
        "APT::Architectures": ",".join(architectures),
        "Acquire::Languages": "none",
        # A mirror that lags behind, with an expired index, is acceptable: it is still signed.
        "Acquire::Check-Valid-Until": "0",
    }
    config = scratch / "apt.conf"
    config.write_text("".join(f'{key} "{value}";\n' for key, value in options.items()))
    return config


def _record(packages: list[Path], draft: Path) -> None:
    """Writes dpkg's list of installed packages."""
    database = draft / "var/lib/dpkg"
    if database.is_dir():  # dpkg is one of them
        fields = (_run(["dpkg-deb", "--field", str(package)]) for package in packages)
        installed = (f"Status: install ok installed\n{text}" for text in fields)
        (database / "status").write_text("\n".join(installed))


def _depends(package: str, config: Path) -> list[str]:
    """Names of the packages that the newest `package` depends on."""
    shown = _run(["apt-cache", "show", "--no-all-versions", package], config=config)
    field = next(line for line in shown.splitlines() if line.startswith("Depends:"))
    return [words.split()[0] for words in field.partition(":")[2].split(",")]


def _wrap_programs(draft: Path, root: Path) -> None:
    """Replaces the tree's dynamic programs by scripts that start them with the tree's loader."""
    triplet = _TRIPLETS[architecture()]
    wanted = _LOADERS[architecture()]
    places = (f"{folder}/{triplet}/{Path(wanted).name}" for folder in ("lib", "usr/lib"))
    loader = next((place for place in places if (draft / place).exists()), None)
    if loader is None:
        return
    folders = (f"lib/{triplet}", f"usr/lib/{triplet}", f"usr/{triplet}/lib", "usr/lib")
    libraries = ":".join(f"{root}/{folder}" for folder in folders)
    # Supported since glibc 2.33; some programs find others relative to their own name.
    help_text = subprocess.run([draft / loader, "--help"], capture_output=True, check=False)
    keeps_name = b"--argv0" in help_text.stdout
    for program in list(_programs(draft, wanted)):
        real = program.with_name(f".{program.name}.elf")
        program.rename(real)
        words = {
            "loader": shlex.quote(f"{root}/{loader}"),
            "argv0": '--argv0 "$0"' if keeps_name else "",
            "libraries": shlex.quote(libraries),
            "program": shlex.quote(str(root / real.relative_to(draft))),
        }
        program.write_text(_WRAPPER.format(**words))
        program.chmod(0o755)


def _programs(draft: Path, loader: str) -> Iterator[Path]:
    for folder, _, names in os.walk(draft):
        for name in names:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) or not mode & 0o100:
                continue
            with path.open("rb") as file:
                head = file.read(4096)
            # A dynamic program names its loader near the start; other ELF files do not.
            if head.startswith(b"\x7fELF") and f"{loader}\0".encode() in head:
                yield path


def architecture() -> str:
    """This machine's architecture by Debian's name, "amd64"."""
    return _run(["dpkg", "--print-architecture"]).strip()
