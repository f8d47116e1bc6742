# SPDX-License-Identifier: BSD-2-Clause
"""Files to surfaces and back, and which way the bytes take."""

import contextlib
import errno
import os
import resource
import shutil
import stat
import sys
import threading
import tty
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from peerdma.cuda.gpu import CudaGpu
from peerdma.memory import files
from peerdma.testing import pattern
from tests.host.cuda.fake_cuda import fake_driver


@pytest.mark.parametrize("nbytes", [0, 1, 5000, 300_000])
def test_files_are_loaded_and_saved(every_gpu, tmp_path, monkeypatch, nbytes):
    monkeypatch.setattr(files, "_CHUNK", 65_536)
    content = pattern.fill_bytes(7, 0, nbytes).tobytes()
    (tmp_path / "in").write_bytes(content)
    with every_gpu.surface(nbytes) as surface:
        loaded = surface.load(tmp_path / "in")
        assert surface.get().tobytes() == content
        saved = surface.save(str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == content
    for transfer in (loaded, saved):
        assert (transfer.bytes, transfer.direct) == (nbytes, False)
        assert "copied by the CPU: " in str(transfer)


def test_a_file_of_another_length_is_refused(every_gpu, tmp_path):
    (tmp_path / "in").write_bytes(b"12345")
    with every_gpu.surface(6) as surface:
        with pytest.raises(ValueError, match="5 bytes, into a surface of 6; make the surface"):
            surface.load(tmp_path / "in")
        assert not surface.get().any()
        with pytest.raises(FileNotFoundError):
            surface.load(tmp_path / "none")


def test_a_file_appears_whole_or_not_at_all(every_gpu, tmp_path, monkeypatch):
    (tmp_path / "out").write_bytes(b"as it was")
    monkeypatch.setattr(files, "_CHUNK", 1000)
    with every_gpu.surface(3000) as surface:
        calls = iter(range(2))
        copy_out = type(surface).copy_out

        def fails(self, start, data):
            if next(calls, None) is None:
                raise OSError("no more")
            copy_out(self, start, data)

        monkeypatch.setattr(type(surface), "copy_out", fails)
        with pytest.raises(OSError, match="no more"):
            surface.save(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"as it was"
    assert os.listdir(tmp_path) == ["out"] or set(os.listdir(tmp_path)) == {"out", "cache"}


def test_rights_are_those_of_any_new_file(every_gpu, tmp_path):
    before = os.umask(0o027)
    try:
        with every_gpu.surface(3) as surface:
            surface.save(tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


class Kvikio:
    """A stand-in for KvikIO: copies like the real one in its compatible way, and says how much."""

    def __init__(self, monkeypatch, direct: bool, preferred: bool = False, short: int = 0):
        self.files = []
        self.short = short
        module = ModuleType("kvikio")
        module.CuFile = self.open
        driver = SimpleNamespace(get={"is_gds_available": direct}.__getitem__)
        defaults = SimpleNamespace(is_compat_mode_preferred=lambda: preferred)
        monkeypatch.setitem(sys.modules, "kvikio", module)
        monkeypatch.setitem(sys.modules, "kvikio.cufile_driver", driver)
        monkeypatch.setitem(sys.modules, "kvikio.defaults", defaults)

    def open(self, path, flags):
        self.files.append((os.fspath(path), flags))
        self.path = path
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self, surface):
        surface.set(np.fromfile(self.path, np.uint8))
        return surface.nbytes - self.short

    def write(self, surface):
        surface.get().tofile(self.path)
        return surface.nbytes - self.short


@pytest.fixture
def device_surface(cuda_api):
    """A surface in GPU memory, of the stand-in."""
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu, gpu.surface(1000) as surface:
        surface.fill(1)
        yield surface


def test_kvikio_moves_the_bytes_where_it_can(device_surface, tmp_path, monkeypatch):
    kvikio = Kvikio(monkeypatch, direct=True)
    saved = device_surface.save(tmp_path / "file")
    device_surface.set(0)
    loaded = device_surface.load(tmp_path / "file")
    assert (device_surface.get() == pattern.fill_bytes(1, 0, 1000)).all()
    assert [flags for _, flags in kvikio.files] == ["w", "r"]
    for transfer in (saved, loaded):
        assert transfer.direct
        assert transfer.way == "direct, by KvikIO and GPUDirect Storage"


@pytest.mark.parametrize("options", [{"direct": False}, {"direct": True, "preferred": True}])
def test_kvikio_without_direct_storage_is_not_used(device_surface, tmp_path, monkeypatch, options):
    kvikio = Kvikio(monkeypatch, **options)
    saved = device_surface.save(tmp_path / "file")
    assert not kvikio.files
    assert saved.way == "copied by the CPU: KvikIO finds no GPUDirect Storage on this system"


def test_without_kvikio_it_says_so(device_surface, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kvikio", None)
    assert "KvikIO is not installed" in device_surface.save(tmp_path / "file").way


def test_a_storage_that_takes_less_is_an_error(device_surface, tmp_path, monkeypatch):
    Kvikio(monkeypatch, direct=True, short=1)
    with pytest.raises(OSError, match=r"file: the storage took 999 of 1000 bytes; is it full\?"):
        device_surface.save(tmp_path / "file")
    assert not (tmp_path / "file").exists()
    (tmp_path / "file").write_bytes(bytes(1000))
    with pytest.raises(OSError, match="file: ended after 999 of the 1000 bytes"):
        device_surface.load(tmp_path / "file")


def test_surfaces_that_the_cpu_reaches_need_no_kvikio(emulated_gpu, tmp_path, monkeypatch):
    kvikio = Kvikio(monkeypatch, direct=True)
    with emulated_gpu.surface(10) as surface:
        saved = surface.save(tmp_path / "file")
    assert "is not in GPU memory" in saved.way
    assert not kvikio.files


def test_a_surface_is_loaded_from_a_pipe(every_gpu, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = pattern.fill_bytes(7, 0, 5000).tobytes()
    with every_gpu.surface(5000) as surface:
        for written, error, words in (
            (content, None, ""),
            (content[1:], ValueError, "4999 bytes, into a surface of 5000"),
            (content + b"x", OSError, "a pipe with more than the 5000 bytes"),
        ):
            writer = threading.Thread(target=pipe.write_bytes, args=(written,))
            writer.start()
            expected = pytest.raises(error, match=words) if error else contextlib.nullcontext()
            with expected:
                assert surface.load(pipe).way == "copied by the CPU: it is not a regular file"
            writer.join(30)
            assert surface.get().tobytes() == content


def test_a_file_that_becomes_shorter_is_named(emulated_gpu, tmp_path):
    (tmp_path / "in").write_bytes(b"12345")
    content = files.Input(tmp_path / "in")
    (tmp_path / "in").write_bytes(b"123")
    message = "in: ended after 3 of the 5 bytes that the system reports for it"
    with emulated_gpu.surface(5) as surface, pytest.raises(OSError, match=message):
        content.load(surface)


def test_a_pipe_is_written_to_and_stays(emulated_gpu, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with emulated_gpu.surface(300_000) as surface:
        surface.fill(3)
        with pytest.raises(OSError, match=r"no process reads from it; start the reader.*pipe'"):
            surface.save(pipe)
        found = []
        reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
        # A reader that is there already, as the thread may take its time to become one.
        waiting = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        reader.start()
        surface.save(pipe)
        os.close(waiting)
        reader.join(30)
        assert found == [surface.get().tobytes()]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays(emulated_gpu, tmp_path):
    """The other end of a terminal is one that anybody can have."""
    master, slave = os.openpty()
    tty.setraw(slave)
    name = os.ttyname(slave)
    with emulated_gpu.surface(100) as surface:
        surface.fill(3)
        surface.save(name)
        assert os.read(master, 200) == surface.get().tobytes()
    assert stat.S_ISCHR(os.stat(name).st_mode)
    os.close(slave)
    os.close(master)


def test_a_file_that_cannot_grow_says_so(emulated_gpu, tmp_path):
    """Storage without room takes a part first, and refuses the rest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with emulated_gpu.surface(100_000) as surface:
        resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, before[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: '.*/out'"):
                surface.save(tmp_path / "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_followed(emulated_gpu, tmp_path, dangling):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    link.symlink_to(target)
    if not dangling:
        target.write_bytes(b"as it was")
    with emulated_gpu.surface(100) as surface:
        surface.fill(3)
        surface.save(link)
        assert target.read_bytes() == surface.get().tobytes()
    assert link.is_symlink()
    assert os.listdir(tmp_path / "folder") == ["target"]


def test_errors_name_the_file_that_was_asked_for(emulated_gpu, tmp_path):
    """And no other, under which it was to be written."""
    (tmp_path / "folder").mkdir()
    long = "x" * 300
    with emulated_gpu.surface(100) as surface:
        for name in ("folder", "none/file", long):
            with pytest.raises(OSError, match="Errno") as caught:
                surface.save(tmp_path / name)
            assert caught.value.filename == str(tmp_path / name)
            assert caught.value.filename2 is None
        with files.Output(tmp_path / "late") as output:
            (tmp_path / "late").mkdir()
            with pytest.raises(IsADirectoryError) as caught:
                output.save(surface)
            assert str(caught.value).endswith("Is a directory: '" + str(tmp_path / "late") + "'")
    assert sorted(os.listdir(tmp_path)) == ["folder", "late"]


def test_a_folder_that_goes_away_is_an_error_of_the_file(emulated_gpu, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with emulated_gpu.surface(100) as surface, files.Output(folder / "out") as output:
        shutil.rmtree(folder)
        with pytest.raises(FileNotFoundError) as caught:
            output.save(surface)
    assert (caught.value.filename, caught.value.filename2) == (str(folder / "out"), None)


def test_rights_that_cannot_be_given_leave_nothing(tmp_path, monkeypatch):
    def refuses(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchmod", refuses)
    with pytest.raises(PermissionError, match="out'"):
        files.Output(tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_name_as_long_as_names_may_be(emulated_gpu, tmp_path):
    with emulated_gpu.surface(100) as surface:
        surface.save(tmp_path / ("y" * 255))
    assert os.listdir(tmp_path) == ["y" * 255]


def test_an_output_that_is_not_saved_leaves_nothing(tmp_path):
    (tmp_path / "out").write_bytes(b"as it was")
    with files.Output(tmp_path / "out"):
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"as it was"


def test_bytes_are_written_like_a_surface(tmp_path):
    """Whole or not at all, and to what is open as well."""
    (tmp_path / "out").write_bytes(b"as it was")
    with files.Output(tmp_path / "out") as output:
        assert (tmp_path / "out").read_bytes() == b"as it was"
        output.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with open("/dev/full", "wb", buffering=0) as full, files.Output(full.fileno()) as output:
        with pytest.raises(OSError, match="No space left") as raised:
            output.write(b"x")
        assert raised.value.errno == errno.ENOSPC
