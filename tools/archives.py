# SPDX-License-Identifier: BSD-2-Clause
"""Unpacks tar archives without writing anything outside the given folder.

Standard library only, and nothing newer than Python 3.6, as set-up uses it.
"""

import os
import tarfile

__all__ = ["unpack"]


def unpack(archive, folder):
    """Unpack all of the open tarfile.TarFile `archive` below `folder`, a path.

    Raises
    ------
    tarfile.TarError
        If a member would lie, or is a link that leads, outside `folder`, or is a device.
    """
    # Patch releases differ: 3.10.12 and 3.11.4 added filters; 3.14 made "data" the default.
    if hasattr(tarfile, "data_filter"):
        archive.extractall(str(folder), filter="data")
        return
    root = os.path.realpath(str(folder))
    for member in archive:
        place = os.path.join(root, member.name)
        # A symbolic link is relative to its own folder, a hard link to the top of the archive.
        start = os.path.dirname(place) if member.issym() else root
        target = os.path.join(start, member.linkname)
        inside = all(_is_inside(root, path) for path in (place, target))
        if not inside or not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise tarfile.ExtractError(f"{member.name!r} would not stay in {root}: not unpacked")
        # The files get this user as owner; the archive's owner may not exist here.
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        member.mode &= 0o755
        archive.extract(member, root)


def _is_inside(root, path):
    return os.path.commonpath([root, os.path.realpath(path)]) == root
