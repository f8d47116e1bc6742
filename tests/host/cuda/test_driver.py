# SPDX-License-Identifier: BSD-2-Clause
"""Finding CUDA: driver, bindings and compiler that fit each other, or words on what is missing."""

import ctypes
import importlib
import importlib.metadata
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import peerdma
from peerdma.cuda import driver as cuda_driver
from peerdma.cuda.gpu import CudaGpu
from peerdma.testing.cuda import source as kernels
from tests.host.cuda.fake_cuda import FakeCuda, Result, fake_driver
from tests.host.cuda.fake_nvrtc import FakeNvrtc
from tests.host.test_import import loaded


class Library:
    """As libcuda, of a version."""

    def __init__(self, version: int | None):
        self.version = version

    def cuDriverGetVersion(self, where):  # noqa: N802 - the name is CUDA's
        if self.version is None:
            return 999
        ctypes.cast(where, ctypes.POINTER(ctypes.c_int))[0] = self.version
        return 0


@pytest.fixture
def installed(monkeypatch):
    """``installed(driver version, bindings version)`` sets up a machine, without a GPU in sight."""
    monkeypatch.setattr("peerdma.gpus._nvidia_gpu", lambda: False)

    def install(version, bindings, api=None):
        def library(name):
            assert name == "libcuda.so.1"
            if version == "none":
                raise OSError
            return Library(version)

        real = importlib.import_module

        def import_module(name):
            if name == "cuda.bindings.driver":
                if bindings is None:
                    raise ModuleNotFoundError("No module named 'cuda'")
                return api or FakeCuda()
            return real(name)

        monkeypatch.setattr(
            cuda_driver, "ctypes", SimpleNamespace(**vars(ctypes) | {"CDLL": library})
        )
        monkeypatch.setattr(importlib, "import_module", import_module)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: bindings)

    return install


@pytest.mark.parametrize(
    ("version", "bindings", "message"),
    [
        ("none", None, r"no NVIDIA driver \(libcuda.so.1 is not found\). .* gpu\(\"emulated\"\)"),
        (None, None, "does not report its version. Check that nvidia-smi works"),
        (11040, "12.9.0", "speaks CUDA 11.4, peerdma needs 12 or later. Update the driver"),
        (12020, None, r"CUDA 12.2, but .* cannot be imported .*pip install '\.\[cuda12\]'`"),
        (13000, None, r"pip install '\.\[cuda13\]'`"),
        (14010, None, r"pip install '\.\[cuda13\]'`"),
        (12080, "11.8.7", r"cuda-bindings is 11.8.7, peerdma needs 12.8 .*'\.\[cuda12\]'`"),
        (13000, "11.8.7", r"peerdma needs 12.8 or later. Install those .*'\.\[cuda13\]'`"),
        (12080, "12.7.0", r"peerdma needs 12.8 or later"),
        (12080, "13.0.1", r"cuda-bindings is 13.0.1, for a newer driver. .*'\.\[cuda12\]'`"),
    ],
)
def test_what_is_missing_for_cuda_is_named(installed, version, bindings, message):
    installed(version, bindings)
    with pytest.raises(peerdma.GpuNotFound, match=message):
        cuda_driver.load()
    with peerdma.gpu("auto") as gpu:
        assert gpu.emulated
        assert "no CUDA: " in gpu.memory


def test_what_to_install_goes_into_an_environment(monkeypatch):
    monkeypatch.setattr(sys, "prefix", "/environment")
    monkeypatch.setattr(sys, "executable", "/an environment/bin/python")
    command = "`'/an environment/bin/python' -m pip install '.[cuda13]'`"
    assert cuda_driver.install_command(13) == f"in a checkout, {command}"
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert "`python3 -m venv ~/peerdma && ~/peerdma/bin/pip" in cuda_driver.install_command(13)


def test_a_driver_without_a_gpu_is_no_gpu(installed):
    api = FakeCuda()
    api.failures["cuInit"] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
    installed(13000, "13.1.0", api)
    with pytest.raises(peerdma.GpuNotFound, match="cuInit failed with CUDA_ERROR_NOT_SUPPORTED"):
        cuda_driver.load()


@pytest.mark.parametrize(("version", "bindings"), [(12080, "12.9.5"), (13000, "12.8.0")])
def test_bindings_up_to_the_drivers_major_do(installed, version, bindings):
    installed(version, bindings)
    assert cuda_driver.load().version == (version // 1000, version % 1000 // 10)


def test_importing_the_library_needs_no_bindings():
    names = ("cuda.gpu", "cuda.driver", "cuda.program", "testing.cuda", "memory.dlpack")
    modules = loaded("import " + ", ".join(f"peerdma.{name}" for name in names))
    assert "peerdma.cuda.gpu" in modules and "cuda" not in modules


class Missing:
    """As NVRTC's bindings without NVRTC."""

    def nvrtcVersion(self):  # noqa: N802 - the name is CUDA's
        raise RuntimeError("libnvrtc.so.13 not found")


def fill(api: FakeCuda, nvrtc: FakeNvrtc) -> None:
    """Uses a kernel, once."""
    with CudaGpu(0, driver=fake_driver(api, nvrtc)) as gpu, gpu.surface(10) as surface:
        surface.fill(1)


def test_a_tensor_is_moved_without_a_compiler(board, cuda_api):
    with CudaGpu(0, driver=fake_driver(cuda_api, Missing())) as gpu:
        src, dst = gpu.surface(100), gpu.surface(100)
        src.set(np.arange(100))
        with board.pin(src) as s, board.pin(dst) as d:
            board.copy(s, d)
        assert (dst.get() == np.arange(100)).all()
    assert not cuda_api.named("cuModuleLoadData")


def test_kernels_are_compiled_once_for_the_device_at_hand(cuda_api, tmp_path):
    nvrtc = FakeNvrtc()
    for _ in range(2):
        fill(cuda_api, nvrtc)
    ((source, options),) = nvrtc.compiled
    assert source.decode() == kernels()
    assert options == [b"--gpu-architecture=sm_90", b"--std=c++17"]
    (kept,) = (tmp_path / "cache" / "peerdma").iterdir()
    assert kept.read_bytes().startswith(b"machine code --gpu-architecture=sm_90")
    cuda_api.attributes["COMPUTE_CAPABILITY_MAJOR"] = 12
    fill(cuda_api, nvrtc)
    assert nvrtc.compiled[1][1][0] == b"--gpu-architecture=sm_120"
    assert not nvrtc.programs


def test_a_cache_that_cannot_be_written_is_done_without(cuda_api, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    fill(cuda_api, FakeNvrtc())


@pytest.mark.parametrize(
    ("nvrtc", "kind", "message"),
    [
        (FakeNvrtc(version=(14, 0)), peerdma.GpuNotFound, r"NVRTC is of CUDA 14.0, .*\[cuda13\]"),
        (
            FakeNvrtc(error="NVRTC_ERROR_INVALID_OPTION"),
            peerdma.CudaError,
            "sm_90 says NVRTC_ERROR_INVALID_OPTION: the log. This NVRTC may be older than the GPU",
        ),
        (
            FakeNvrtc(error="NVRTC_ERROR_COMPILATION"),
            peerdma.CudaError,
            "NVRTC_ERROR_COMPILATION: the log. This is a fault of peerdma",
        ),
    ],
    ids=["newer-major", "older-than-gpu", "compilation"],
)
def test_a_compiler_that_does_not_fit_is_named(cuda_api, nvrtc, kind, message):
    with pytest.raises(kind, match=message):
        fill(cuda_api, nvrtc)
    assert not nvrtc.programs


def test_a_missing_compiler_is_named(cuda_api):
    with pytest.raises(peerdma.GpuNotFound, match=r"NVRTC, .* not found\). Install .*\[cuda13\]"):
        fill(cuda_api, Missing())
