# SPDX-License-Identifier: BSD-2-Clause
"""Which GPU "auto" is: the emulated one only where there is no other, or with a warning."""

import contextlib
from pathlib import Path

import pytest

import peerdma
from peerdma import gpus


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """``machine(vendor, class)`` is a machine with such a PCI device, where CUDA finds no GPU."""
    monkeypatch.setattr(gpus, "_PCI", tmp_path)
    monkeypatch.setattr(gpus, "_COMPATIBLE", tmp_path / "compatible")

    def none(index: int, memory: str) -> peerdma.Gpu:
        raise peerdma.GpuNotFound("use a CUDA GPU", "there are no bindings", "Install them")

    monkeypatch.setattr(gpus, "_cuda", none)

    def with_device(vendor: str, kind: str) -> Path:
        device = tmp_path / "0000:01:00.0"
        device.mkdir()
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
        return device

    return with_device


def warned(wanted: bool) -> contextlib.AbstractContextManager:
    """Whether a warning is wanted; one that is not is an error in these tests."""
    text = "an NVIDIA GPU: cannot use a CUDA GPU: there are no bindings. Install them. gpu"
    return pytest.warns(RuntimeWarning, match=text) if wanted else contextlib.nullcontext()


@pytest.mark.parametrize(
    ("vendor", "kind", "warns"),
    [
        ("0x10de", "0x030200", True),
        ("0x10de", "0x030000", True),
        ("0x10de", "0x058000", False),
        ("0x1002", "0x030000", False),
    ],
    ids=["data centre", "display", "a board", "another vendor"],
)
def test_the_emulated_gpu_beside_an_nvidia_gpu_is_a_warning(machine, vendor, kind, warns):
    machine(vendor, kind)
    with warned(warns), peerdma.gpu() as gpu:
        assert gpu.emulated
        assert gpu.memory.endswith("; no CUDA: there are no bindings")
    with peerdma.gpu("emulated") as gpu:
        assert gpu.emulated


def test_a_tegra_has_one(machine, tmp_path):
    (tmp_path / "compatible").write_bytes(b"nvidia,p3701\0nvidia,tegra234\0")
    with warned(True):
        peerdma.gpu().close()


def test_a_device_that_goes_away_meanwhile_is_none(machine):
    (machine("0x10de", "0x030200") / "class").unlink()
    with warned(False):
        peerdma.gpu().close()
