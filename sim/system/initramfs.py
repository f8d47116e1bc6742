# SPDX-License-Identifier: BSD-2-Clause
"""Makes a guest's initramfs: a static shell, modules, and other files."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from io import BytesIO

__all__ = ["archive"]

_DIRECTORY, _FILE, _DEVICE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755, stat.S_IFCHR | 0o600
#: Device number of /dev/console, which the kernel opens before devtmpfs is mounted.
_CONSOLE = (5, 1)


def archive(files: Mapping[str, bytes]) -> bytes:
    """An initramfs with `files`, path to content, and the folders they are in (cpio, newc)."""
    out = BytesIO()
    folders = {"dev"}
    for path in files:
        parts = path.split("/")[:-1]
        folders |= {"/".join(parts[: n + 1]) for n in range(len(parts))}
    number = 0

    def entry(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        nonlocal number
        number += 1
        path = name.encode() + b"\0"
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0]
        out.write(b"070701" + b"".join(b"%08X" % value for value in fields) + path)
        out.write(b"\0" * (-out.tell() % 4) + content)
        out.write(b"\0" * (-out.tell() % 4))

    for folder in sorted(folders):
        entry(folder, _DIRECTORY)
    entry("dev/console", _DEVICE, device=_CONSOLE)
    for path, content in files.items():
        entry(path, _FILE, content)
    entry("TRAILER!!!", 0)
    return out.getvalue()
