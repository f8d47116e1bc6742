# SPDX-License-Identifier: BSD-2-Clause
"""Packs what a seed needs: the compiled models and the Python sources, and no more."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from hw.endpoint import MODULE_NAME
from sim.benches.model import build
from sim.compile.tools import ROOT

from .plan import Core

__all__ = ["make"]

_SOURCES = ("hw", "host/peerdma", "sim", "tools")


def _content(cores: Iterable[Core]) -> Iterator[tuple[str, Path]]:
    """Name in the archive and file, in an order that is always the same."""
    # pytest, of which cocotb makes use, takes the next one above, and its path of modules.
    yield "pyproject.toml", ROOT / "pyproject.toml"
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path
    for core in cores:
        yield f"models/{core.name}/{MODULE_NAME}", build(**core._asdict()) / MODULE_NAME


def make(cores: Iterable[Core]) -> bytes:
    """A compressed archive with these of `plan.EVERY_CORE`; the same content is the same bytes.

    Raises
    ------
    BuildError
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in _content(cores):
            data = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name.startswith("models") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)
