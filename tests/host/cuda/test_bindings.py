# SPDX-License-Identifier: BSD-2-Clause
"""The stand-ins for CUDA's bindings against the real ones: names, and arguments that are taken.

The bindings can be imported without a GPU and without NVIDIA's driver.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from cuda.bindings import driver, nvrtc

import peerdma
from tests.host.cuda.fake_cuda import DISCRETE, FakeCuda, Result
from tests.host.cuda.fake_nvrtc import FakeNvrtc

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
