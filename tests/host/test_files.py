# SPDX-License-Identifier: BSD-2-Clause
"""Files to surfaces and back, and which way the bytes take."""

import os
import stat
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from peerdma import files, pattern
from peerdma.cuda import CudaGpu
from tests.host.fake_cuda import fake_driver


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
    with pytest.raises(OSError, match="asked to move 1000 bytes"):
        device_surface.save(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_surfaces_that_the_cpu_reaches_need_no_kvikio(emulated_gpu, tmp_path, monkeypatch):
    kvikio = Kvikio(monkeypatch, direct=True)
    with emulated_gpu.surface(10) as surface:
        saved = surface.save(tmp_path / "file")
    assert "in memory that the CPU reaches" in saved.way
    assert not kvikio.files
