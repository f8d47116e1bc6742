# SPDX-License-Identifier: BSD-2-Clause
"""The code uses nothing that the oldest Python it promises lacks.

ruff refuses newer syntax by its `target-version`, vermin newer modules, functions and arguments
of the standard library. Both know minor versions only, so what a bug-fix release brought is
listed here.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("host", "hw", "sim", "tests", "tools")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]

#: Names that a bug-fix release of 3.10 brought, mostly with a security fix, and which one.
NAMES = {
    "tarfile": {
        "data_filter": "3.10.12",
        "tar_filter": "3.10.12",
        "fully_trusted_filter": "3.10.12",
        "extraction_filter": "3.10.12",
        "FilterError": "3.10.12",
        "LinkFallbackError": "3.10.18",
    },
    "sys": {"get_int_max_str_digits": "3.10.7", "set_int_max_str_digits": "3.10.7"},
    "os.path": {"ALLOW_MISSING": "3.10.18"},
    "email.policy": {"verify_generated_headers": "3.10.15"},
    "pyexpat": {
        "SetReparseDeferralEnabled": "3.10.14",
        "GetReparseDeferralEnabled": "3.10.14",
    },
}
#: The same of arguments, by the last part of a function's name: its module is not looked up.
ARGUMENTS = {
    "extract": {"filter": "3.10.12"},
    "extractall": {"filter": "3.10.12"},
    "unpack_archive": {"filter": "3.10.12"},
    "getaddresses": {"strict": "3.10.15"},
    "parseaddr": {"strict": "3.10.15"},
}
NEWER_NAMES = {name: since for names in NAMES.values() for name, since in names.items()}
#: Files that ask first whether this Python has it, and the names that they may use.
ASK_FIRST = {"tools/archives.py": {"data_filter", "filter"}}


def oldest() -> str:
    """The oldest Python that pyproject.toml promises, "3.10"."""
    text = (ROOT / "pyproject.toml").read_text()
    (version,) = re.findall(r'^requires-python = ">=([\d.]+)"', text, flags=re.MULTILINE)
    return version


def newer_in_bug_fixes(path: Path, allowed: set[str] = frozenset()) -> Iterator[str]:
    """What the module at `path` uses of `NAMES` and `ARGUMENTS`, each with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        found = {}
        if isinstance(node, ast.Attribute):
            found[node.attr] = NEWER_NAMES.get(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found = {alias.name: NEWER_NAMES.get(alias.name) for alias in node.names}
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func).rpartition(".")[2]
            names = [keyword.arg for keyword in node.keywords]
            found = {name: ARGUMENTS.get(function, {}).get(name) for name in names}
        for name, since in found.items():
            if since and name not in allowed:
                yield f"{path.name}:{node.lineno}: {name} came with Python {since}"


def vermin(version: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Runs vermin, which fails where `paths` need a newer Python than `version`."""
    options = [f"--target={version}-", "--violations", "--no-tips", "--no-config-file"]
    # It has no `python -m`. Without -vvv it names files and functions, but no lines.
    program = "import vermin; vermin.main()"
    command = [sys.executable, "-c", program, "-vvv", *options, "--processes=1"]
    return subprocess.run(
        [*command, *map(str, paths)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )


def test_every_tool_is_told_the_oldest_python():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'target-version = "py{oldest().replace(".", "")}"' in text
    assert f'pythonVersion = "{oldest()}"' in text
    assert f"Python {oldest()} or later" in (ROOT / "README.md").read_text()


def test_nothing_newer_than_the_oldest_python_is_used():
    done = vermin(oldest(), *FILES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_set_up_can_tell_an_old_python_that_it_is_too_old():
    done = vermin("3.6", ROOT / "tools/setup_env.py", ROOT / "tools/archives.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_that_came_with_a_bug_fix_release_is_used():
    found = []
    for path in FILES:
        found += newer_in_bug_fixes(path, ASK_FIRST.get(str(path.relative_to(ROOT)), frozenset()))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import tomllib", "tomllib"),
        ("from datetime import UTC", "datetime.UTC"),
        ("import itertools\nitertools.batched([1], 2)", "itertools.batched"),
        ("import hashlib\nhashlib.file_digest(None, 'md5')", "hashlib.file_digest"),
        ("import enum\nclass A(enum.StrEnum): pass", "enum.StrEnum"),
        ("import glob\nglob.glob('a', include_hidden=True)", "include_hidden"),
    ],
)
def test_vermin_finds_what_is_newer(tmp_path, code, says):
    (tmp_path / "planted.py").write_text(code)
    done = vermin(oldest(), tmp_path / "planted.py")
    assert done.returncode == 1
    assert says in done.stdout


@pytest.mark.parametrize("code", ["type Word = int", "try: pass\nexcept* ValueError: pass"])
def test_ruff_finds_newer_syntax(tmp_path, code):
    (tmp_path / "planted.py").write_text(code)
    command = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, str(tmp_path / "planted.py")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"on Python {oldest()} (syntax was added in" in done.stdout


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("archive.extractall(folder, filter='data')", "filter came with Python 3.10.12"),
        ("with t as a:\n  a.extract(m, filter=f)", "planted.py:2: filter came"),
        ("tarfile.TarFile.extraction_filter = f", "extraction_filter came"),
        ("from tarfile import data_filter", "data_filter came"),
        ("sys.set_int_max_str_digits(0)", "set_int_max_str_digits came with Python 3.10.7"),
    ],
)
def test_what_bug_fix_releases_brought_is_found(tmp_path, code, says):
    (tmp_path / "planted.py").write_text(code)
    (found,) = newer_in_bug_fixes(tmp_path / "planted.py")
    assert says in found
