# SPDX-License-Identifier: BSD-2-Clause
"""How the native model is compiled, and kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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


def test_what_two_need_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "CACHE", tmp_path)
    makers = threading.Semaphore(0)

    def make(folder):
        makers.release()
        time.sleep(0.3)  # the others come meanwhile
        (folder / "made").touch()

    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(lambda _: tools.cached("thing", make), range(4)))
    assert set(places) == {tmp_path / "thing"} and (tmp_path / "thing" / "made").exists()
    assert makers.acquire(blocking=False) and not makers.acquire(blocking=False)
    assert os.listdir(tmp_path) == ["thing"]


_MAKE_FOR_EVER = """
import sys, time
from pathlib import Path
from sim.compile import tools

tools.CACHE = Path(sys.argv[1])
tools.cached("thing", lambda folder: (print("makes it", flush=True), time.sleep(600)))
"""


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, None], ids=["it dies", "it never ends"])
def test_who_makes_it_is_waited_for_only_while_it_can_be(tmp_path, monkeypatch, ended_by):
    monkeypatch.setattr(tools, "CACHE", tmp_path)
    monkeypatch.setattr(tools, "_PATIENCE", 60.0 if ended_by else 0.5)
    environment = {**os.environ, "PYTHONPATH": str(tools.ROOT)}
    command = [sys.executable, "-c", _MAKE_FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline() == "makes it\n"
            if ended_by:
                threading.Timer(0.3, other.send_signal, [ended_by]).start()
            began = time.monotonic()
            place = tools.cached("thing", lambda folder: (folder / "made").touch())
            assert time.monotonic() - began < 30.0
        finally:
            other.kill()
    assert (place / "made").exists()


def test_pins_follow_the_port_table():
    header = native.pins_header()
    assert f"kTransmitBuffers = {TRANSMIT_BUFFERS};" in header
    assert "uint64_t trntd = 0;" in header
    assert "from.trntd = core.trntd;" in header
    assert "core.trntdstrdy = to.trntdstrdy;" in header
