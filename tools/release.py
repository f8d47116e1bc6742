# SPDX-License-Identifier: BSD-2-Clause
"""Build and check what a release consists of: ``make release-check``.

Ends with status 1 if a part fails, after all of them were tried.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from email.parser import BytesParser
from pathlib import Path

__all__ = [
    "LINTIAN",
    "ROOT",
    "Wrong",
    "build_source",
    "check",
    "main",
    "metadata_problems",
    "versions",
]

ROOT = Path(__file__).resolve().parent.parent
#: Of lintian's opinions, the one that is not ours: software is not offered to who plugs in a board.
LINTIAN = (
    *("lintian", "--no-cfg", "--fail-on", "error,warning,info"),
    *("--suppress-tags", "appstream-metadata-missing-modalias-provide"),
)
#: Where a version is written down, and how.
_WRITTEN = {
    "host/peerdma/__init__.py": r'^__version__ = "(.+)"$',
    "driver/dkms.conf": r'^PACKAGE_VERSION="(.+)"$',
    "CHANGELOG.md": r"^## (\S+)(?: - \d{4}-\d\d-\d\d)?$",
}
#: What documents call a package, with its version.
_NAMED = r"\b(?:lib)?peerdma(?:[-_](?:sim|dev|dkms))?[-_](\d+\.\d+\.\d+)"
#: Seconds that a part may take, on a busy machine.
_BOUND = 3600


class Wrong(Exception):
    """A part of the release is not right; the message says what to do."""


def versions(root: Path) -> dict[str, str]:
    """The version that each place names: the first of the file, or "none"."""
    places = {root / name: pattern for name, pattern in _WRITTEN.items()}
    found = {}
    for path, pattern in places.items():
        match = re.search(pattern, path.read_text(), re.MULTILINE)
        found[str(path.relative_to(root))] = match[1] if match else "none"
    for path in [*root.glob("*.md"), *(root / "docs").glob("*.md")]:
        if path not in places and (match := re.search(_NAMED, path.read_text())):
            found[str(path.relative_to(root))] = match[1]
    return found


def metadata_problems(text: bytes, version: str) -> list[str]:
    """What is wrong with the core metadata of a wheel or a source archive, a line each."""
    from packaging import metadata

    found = BytesParser().parsebytes(text, headersonly=True)
    try:
        metadata.Metadata.from_email(text, validate=True)
        problems = []
    except metadata.ExceptionGroup as group:
        problems = [str(each) for each in group.exceptions]
    if found["Version"] != version:
        problems.append(f"its version is {found['Version']}, not {version}")
    wanted = "Summary Description-Content-Type License-Expression License-File Requires-Python"
    return problems + [f"it has no {name}" for name in wanted.split() if not found[name]]


def build_source(folder: Path) -> None:
    """Builds the source archive; a wheel from it has to be that of the checkout."""
    version = _version()
    name, wheel = f"peerdma-{version}.tar.gz", f"peerdma-{version}-py3-none-any.whl"
    advice = "[tool.hatch.build] in pyproject.toml says what is in it"
    with tempfile.TemporaryDirectory() as scratch:
        (archive,) = _hatch("sdist", ROOT, folder, name, advice)
        shutil.unpack_archive(archive, scratch)
        unpacked = Path(scratch, f"peerdma-{version}")
        (theirs,) = _hatch("wheel", unpacked, Path(scratch, "theirs"), wheel, advice)
        (ours,) = _hatch("wheel", ROOT, Path(scratch, "ours"), wheel, advice)
        others = {each for each, _ in _contents(ours) ^ _contents(theirs)}
    if others:
        raise Wrong(f"a wheel from {name} differs in {', '.join(sorted(others))}: {advice}")
    with tarfile.open(archive) as members:
        described = members.extractfile(f"peerdma-{version}/PKG-INFO")
        _check_metadata(archive, described.read() if described else b"")


def _version() -> str:
    return versions(ROOT)["host/peerdma/__init__.py"]


def _run(command: Sequence[str | Path], advice: str, folder: Path = ROOT) -> None:
    """Runs a program, whose output is shown; raises Wrong with the advice if it fails."""
    try:
        status = subprocess.run(command, cwd=folder, timeout=_BOUND, check=False).returncode
    except FileNotFoundError:
        raise Wrong(f"{command[0]} is missing: {advice}") from None
    except subprocess.TimeoutExpired:
        raise Wrong(f"{command[0]} has not ended after {_BOUND} s: {advice}") from None
    if status:
        raise Wrong(f"exit status {status}: {advice}")


def _built(folder: Path, *names: str) -> list[Path]:
    """What a program was to leave in the folder."""
    if missing := [name for name in names if not (folder / name).is_file()]:
        found = sorted(path.name for path in folder.iterdir())
        raise Wrong(f"{', '.join(missing)} was not built; in {folder} there is {found}")
    return [folder / name for name in names]


def _hatch(kind: str, source: Path, folder: Path, name: str, advice: str) -> list[Path]:
    _run((sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder), advice, source)
    return _built(folder, name)


def _contents(wheel: Path) -> set[tuple[str, int]]:
    """Names of the files in a wheel, with their CRCs."""
    with zipfile.ZipFile(wheel) as archive:
        return {(each.filename, each.CRC) for each in archive.infolist()}


def _check_metadata(path: Path, text: bytes) -> None:
    if problems := metadata_problems(text, _version()):
        raise Wrong(f"{path.name}: {'; '.join(problems)}: mend [project] in pyproject.toml")


def _check_versions(_: Path) -> None:
    found = versions(ROOT)
    if len(set(found.values())) > 1:
        said = ", ".join(f"{place} has {version}" for place, version in found.items())
        raise Wrong(f"make them one, with the release at the top of CHANGELOG.md: {said}")


def _check_licences(_: Path) -> None:
    advice = "a file names its licence on its first line; one that cannot is listed in REUSE.toml"
    _run((sys.executable, "-m", "reuse", "lint", "--lines"), advice)


def _build_wheels(folder: Path) -> None:
    _run((sys.executable, "-m", "sim.wheels", folder), "`make wheels` has to succeed")
    platforms = [f"manylinux_2_28_{machine}" for machine in ("x86_64", "aarch64")]
    names = [
        "peerdma-{}-py3-none-any.whl",
        *(f"peerdma_sim-{{}}-py3-none-{p}.whl" for p in platforms),
    ]
    for wheel in _built(folder, *(name.format(_version()) for name in names)):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            _check_metadata(wheel, archive.read(name))


def _build_packages(folder: Path) -> None:
    _run(("sh", "driver/deb.sh", folder), "`make deb` has to succeed")
    names = [f"{name}_{_version()}_all.deb" for name in ("peerdma-dkms", "libpeerdma-dev")]
    advice = (
        "it takes `sudo apt-get install lintian`; packages name who built them: "
        "set DEBFULLNAME and DEBEMAIL"
    )
    _run((*LINTIAN, *_built(folder, *names)), advice)


def _build_site(folder: Path) -> None:
    _run(
        (sys.executable, "-m", "tools.site", "--out", folder / "site"), "`make docs` has to succeed"
    )


#: What is checked, quickest first.
_PARTS: dict[str, Callable[[Path], None]] = {
    "versions": _check_versions,
    "licences": _check_licences,
    "source archive": build_source,
    "Debian packages": _build_packages,
    "site": _build_site,
    "wheels": _build_wheels,
}


def check(folder: Path, parts: dict[str, Callable[[Path], None]]) -> list[str]:
    """Makes the folder anew, tries each part, and returns the names of those that failed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    failed = []
    for number, (name, part) in enumerate(parts.items(), 1):
        print(f"release: {name} ({number} of {len(parts)}) ...", flush=True)
        try:
            part(folder)
        except Wrong as problem:
            print(f"release: {name} failed: {problem}", file=sys.stderr, flush=True)
            failed.append(name)
    return failed


def main() -> int:
    """Command line; returns the exit status."""
    argparse.ArgumentParser(
        prog=".venv/bin/python -m tools.release", description=(__doc__ or "").split("\n")[0]
    ).parse_args()
    folder = ROOT / "build" / "release"
    if failed := check(folder, _PARTS):
        print(f"release: not ready: {', '.join(failed)} failed, see above", file=sys.stderr)
        return 1
    print(f"release: {_version()} is ready, in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
