# SPDX-License-Identifier: BSD-2-Clause
"""Archives unpack into their folder, and nowhere else, on every Python there is."""

import io
import tarfile
from pathlib import Path

import pytest

from tools.archives import unpack


@pytest.fixture(params=["this Python", "a Python before 3.10.12"])
def python(request, monkeypatch):
    """With `data_filter`, if this Python has it, and without."""
    if request.param != "this Python":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        # Such a Python has no filter at all: newer ones have one by default, or warn of it.
        trusting = staticmethod(lambda member, folder: member)
        monkeypatch.setattr(tarfile.TarFile, "extraction_filter", trusting, raising=False)


def packed(*members: tarfile.TarInfo) -> tarfile.TarFile:
    """An archive with `members`, those that are files with six bytes each."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for member in members:
            member.size = 6 if member.isreg() else 0
            archive.addfile(member, io.BytesIO(b"inside"))
    return tarfile.open(fileobj=io.BytesIO(file.getvalue()))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644):
    """A member of an archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.uid = kind, link, mode, 12345
    return info


def test_all_is_unpacked(tmp_path, python):
    unpack(
        packed(
            member("a", tarfile.DIRTYPE, mode=0o755),
            member("a/program", mode=0o6777),
            member("a/link", tarfile.SYMTYPE, "../b"),
            member("hard", tarfile.LNKTYPE, "a/program", mode=0o755),
            member("b"),
        ),
        tmp_path,
    )
    assert (tmp_path / "a/program").read_bytes() == b"inside"
    assert (tmp_path / "a/program").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "a/program").owner() == tmp_path.owner()
    assert (tmp_path / "a/link").resolve() == tmp_path.resolve() / "b"
    assert (tmp_path / "hard").samefile(tmp_path / "a/program")


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("link", tarfile.SYMTYPE, "..")],
        [member("link", tarfile.SYMTYPE, "/"), member("link/out")],
        [member("a/link", tarfile.SYMTYPE, "../../out")],
        [member("hard", tarfile.LNKTYPE, "../there")],
        [member("pipe", tarfile.FIFOTYPE)],
    ],
    ids=lambda members: members[-1].name + members[-1].linkname,
)
def test_nothing_leaves_its_folder(tmp_path, python, members):
    there, folder = tmp_path / "there", tmp_path / "folder"
    there.write_text("before")
    folder.mkdir()
    with pytest.raises(tarfile.TarError):
        unpack(packed(*members), folder)
    assert sorted(tmp_path.iterdir()) == [folder, there]
    assert there.read_text() == "before"


def test_an_absolute_path_is_refused_or_taken_as_relative(tmp_path, python):
    folder, out = tmp_path / "folder", tmp_path / "out"
    folder.mkdir()
    try:
        unpack(packed(member(str(out))), folder)
    except tarfile.TarError:
        assert not list(folder.iterdir())
    else:
        assert Path(folder, *out.parts[1:]).exists()
    assert not out.exists()
