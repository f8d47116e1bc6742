# SPDX-License-Identifier: BSD-2-Clause
"""How the native model is compiled, and kept."""

from __future__ import annotations

import pytest

from hw.pcie.series7.parameters import TRANSMIT_BUFFERS
from sim.compile import native, tools


def test_objects_are_cached_by_what_they_depend_on(tmp_path, monkeypatch):
    """In a folder with spaces: made once, found the second time, made anew after a change."""
    cache = tmp_path / "a build folder"
    monkeypatch.setattr(tools, "CACHE", cache)
    native._native_object(tools.find_compiler(), "link")
    made = {path: path.stat().st_mtime_ns for path in cache.rglob("*.o")}
    assert len(made) == 1
    native._native_object(tools.find_compiler(), "link")
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.o")} == made
    monkeypatch.setattr(native, "_CXX", (*native._CXX, "-DOTHER"))
    native._native_object(tools.find_compiler(), "link")
    assert len(list(cache.rglob("*.o"))) == 2
    assert not list(cache.glob(".*")), "no scratch folders are left"


def test_failed_build_leaves_nothing_and_says_why(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setattr(tools, "CACHE", cache)
    monkeypatch.setattr(native, "_CXX", (*native._CXX, "-fno-such-option"))
    with pytest.raises(tools.BuildError, match="no-such-option"):
        native._native_object(tools.find_compiler(), "link")
    assert not [path for path in cache.iterdir() if not path.name.startswith("pins-")]


def test_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    tools.find_compiler.cache_clear()
    try:
        with pytest.raises(tools.BuildError, match="no-such-compiler was not found"):
            native._native_object(tools.find_compiler(), "link")
    finally:
        tools.find_compiler.cache_clear()


def test_pins_follow_the_port_table():
    header = native.pins_header()
    assert f"kTransmitBuffers = {TRANSMIT_BUFFERS};" in header
    assert "uint64_t trntd = 0;" in header
    assert "from.trntd = core.trntd;" in header
    assert "core.trntdstrdy = to.trntdstrdy;" in header
