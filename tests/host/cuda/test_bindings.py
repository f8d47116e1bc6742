# SPDX-License-Identifier: BSD-2-Clause
"""The stand-ins for CUDA's bindings against the real ones: names, and arguments that are taken.

The bindings can be imported without a GPU and without NVIDIA's driver.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cuda.bindings import driver, nvrtc

import peerdma
from peerdma.cuda.arrays import _FACTS
from peerdma.cuda.driver import OLDEST_BINDINGS
from tests.host.cuda.fake_cuda import DISCRETE, FakeCuda, Result
from tests.host.cuda.fake_nvrtc import FakeNvrtc
from tests.host.programs import ROOT

SOURCES = sorted(Path(peerdma.__file__).parent.rglob("*.py"))
DRIVER = sorted(name[1:] for name in dir(FakeCuda) if name.startswith("_cu"))
NVRTC = sorted(name for name in vars(FakeNvrtc) if name.startswith("nvrtc"))


def called() -> set[str]:
    """Functions of CUDA that the library names, as strings or attributes."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or getattr(node, "value", None)
            if isinstance(name, str) and name.startswith(("cu", "nvrtc")):
                found.add(name)
    return {name for name in found if callable(getattr(driver, name, getattr(nvrtc, name, None)))}


def named() -> Iterator[str]:
    """Functions, types and constants of CUDA that the library cannot do without."""
    yield from called()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and re.match(r"CU[a-z_]", node.attr):
                yield node.attr
            # Attributes of pointers are named without their prefix.
            if isinstance(node, ast.Call) and "pointer_attribute" in ast.unparse(node.func):
                for each in node.args:
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield f"CU_POINTER_ATTRIBUTE_{each.value}"
    yield from (f"CU_POINTER_ATTRIBUTE_{name}" for name in _FACTS)


def test_the_oldest_bindings_have_what_the_library_names():
    """The list is of all names in that version, but for errors and attributes of devices.

    Those are looked up as they are met, and may be missing.
    """
    oldest = ".".join(map(str, OLDEST_BINDINGS))
    there = set(Path(__file__).with_name(f"bindings-{oldest}.txt").read_text().split())
    wanted = set(named()) - {"cuDriverGetVersion"}
    assert {"cuStreamGetId", "CU_CTX_SYNC_MEMOPS", "CU_POINTER_ATTRIBUTE_BUFFER_ID"} <= wanted
    assert not wanted - there
    declared = re.findall(r'"cuda-bindings>=([\d.]+),', (ROOT / "pyproject.toml").read_text())
    assert sorted(set(declared)) == [oldest, "13"]


def positional(function: object, skipped: int = 0) -> int | None:
    """How many arguments it takes; None for any number."""
    parameters = list(inspect.signature(function).parameters.values())[skipped:]
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    return len(parameters)


def test_the_stand_ins_have_what_the_library_calls():
    # The version is asked for by ctypes, before it is known which bindings fit.
    names = called() - {"cuDriverGetVersion"}
    assert {"cuMemAlloc", "cuLaunchKernel", "nvrtcCompileProgram"} <= names
    assert names <= {*DRIVER, *NVRTC, *vars(FakeCuda().library)}


@pytest.mark.parametrize("name", DRIVER)
def test_a_function_of_the_driver_takes_as_many_arguments(name):
    stand_in = positional(inspect.getattr_static(FakeCuda, f"_{name}"), skipped=1)
    real = positional(getattr(driver, name))
    assert stand_in is None or stand_in == real


def test_kernels_are_launched_with_as_many_arguments(device_gpu, cuda_api):
    """Here the stand-in takes any number."""
    with device_gpu.surface(10) as surface:
        surface.fill(1)
    (arguments,) = cuda_api.named("cuLaunchKernel")
    assert len(arguments) == positional(driver.cuLaunchKernel)


@pytest.mark.parametrize("name", NVRTC)
def test_a_function_of_nvrtc_takes_as_many_arguments(name):
    stand_in = positional(getattr(FakeNvrtc, name), skipped=1)
    assert stand_in == positional(getattr(nvrtc, name))


@pytest.mark.parametrize("attribute", DISCRETE)
def test_a_device_attribute_has_its_name(attribute):
    assert hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}")


def test_constants_have_their_names_and_values():
    api = FakeCuda()
    for kind in (
        "CUmemorytype",
        "CUctx_flags",
        "CUmemRangeFlags",
        "CUmemRangeHandleType",
        "CUflushGPUDirectRDMAWritesTarget",
        "CUflushGPUDirectRDMAWritesScope",
        "CUmoduleLoadingMode",
        "CUstreamCaptureMode",
        "CUstreamWaitValue_flags",
    ):
        for name, value in vars(getattr(api, kind)).items():
            assert int(getattr(getattr(driver, kind), name)) == value, name
    for name in api.CUpointer_attribute.__members__:
        assert hasattr(driver.CUpointer_attribute, name)
    for name in set(Result.__members__) - {"CUDA_ERROR_SOMETHING_NEW"}:
        assert hasattr(driver.CUresult, name)
