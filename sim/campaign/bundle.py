# SPDX-License-Identifier: BSD-2-Clause
"""Packs what a seed needs: the compiled models and the Python sources, and no more."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from hw.endpoint import MODULE_NAME
from sim.benches.model import build
from sim.rtl import ROOT

from .plan import CHANNELS
from .worker import Bundle

__all__ = ["make"]

_SOURCES = ("hw", "host/peerdma", "sim")


def _content() -> Iterator[tuple[str, Path]]:
    """Name in the archive and file, in an order that is always the same."""
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path
    for channels in CHANNELS:
        yield f"models/{channels}/{MODULE_NAME}", build(channels=channels) / MODULE_NAME


def make() -> Bundle:
    """Build the models and pack them; the same content has the same digest. Raises BuildError."""
    packed = io.BytesIO()
    digest = hashlib.sha256()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in _content():
            data = path.read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode())
            digest.update(data)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name.startswith("models") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return Bundle(digest.hexdigest()[:20], gzip.compress(packed.getvalue(), mtime=0))
