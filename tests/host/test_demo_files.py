# SPDX-License-Identifier: BSD-2-Clause
"""Files, pipes and devices through host/demo.py."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.host.programs import DEMO, run


@pytest.mark.parametrize("nbytes", [0, 1, 3, 4097, 70_001])
@pytest.mark.parametrize("memory", ["device", "host"])
def test_a_file_arrives_as_it_was(socket, tmp_path, nbytes, memory, seed):
    content = np.random.default_rng(seed).bytes(nbytes)
    (tmp_path / "in").write_bytes(content)
    result = run(
        "--board", socket, "--memory", memory, "--input", "in", "--output", "out", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out").read_bytes() == content
    assert f"{nbytes} bytes" in result.stdout
    assert "written     out" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o666 & ~umask


def test_a_file_larger_than_the_default_surface(tmp_path):
    """Into the place of another file, on a board of its own and a link without limit."""
    content = np.random.default_rng(1).bytes((1 << 22) + 12_345)
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "out").write_bytes(b"old")
    result = run("--input", tmp_path / "in", "--output", tmp_path / "out", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["bytes"], report["output"]) == (len(content), str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == content


def test_an_output_that_cannot_be_written_leaves_nothing(socket, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    result = run("--board", socket, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert result.returncode == 1
    assert result.stderr.startswith("demo.py: [Errno")
    assert "verified" not in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_input_that_is_not_there(tmp_path):
    result = run("--input", tmp_path / "none", "--output", tmp_path / "out", "--json")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert (report["verified"], report["error"]["kind"]) == (False, "FileNotFoundError")
    assert "No such file or directory" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def pipe(tmp_path):
    """A named pipe in a folder of its own."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@contextlib.contextmanager
def alongside(action):
    """Runs this in a thread, which has to come to an end."""
    thread = threading.Thread(target=action)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)
        assert not thread.is_alive()


def test_a_pipe_is_read_to_its_end(socket, tmp_path, pipe, seed):
    content = np.random.default_rng(seed).bytes(70_001)
    with alongside(lambda: pipe.write_bytes(content)):
        result = run("--board", socket, "--input", pipe, "--output", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "70001 bytes through" in result.stdout
    assert (tmp_path / "out").read_bytes() == content


def test_a_file_that_is_said_to_be_empty_is_read_to_its_end(socket, tmp_path):
    """As all in /proc are."""
    assert os.stat("/proc/version").st_size == 0
    result = run("--board", socket, "--input", "/proc/version", "--output", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    with open("/proc/version", "rb") as file:
        assert (tmp_path / "out").read_bytes() == file.read() != b""


def test_a_device_without_end_is_refused(socket, tmp_path):
    result = run("--board", socket, "--input", "/dev/zero", "--output", tmp_path / "out")
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert "a character device with more than the 268435456 bytes" in last
    assert "to a file first" in last
    assert last.endswith("'/dev/zero'")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_without_writer_is_not_waited_for_in_silence(tmp_path, pipe):
    process = subprocess.Popen(
        [sys.executable, DEMO, "--input", pipe, "--output", tmp_path / "out", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == f"demo.py: reading {pipe} to its end\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "demo.py: interrupted\n")
    error = {"kind": "KeyboardInterrupt", "message": "interrupted"}
    assert json.loads(output) == {"verified": False, "error": error}


def test_standard_input_to_standard_output(socket, seed):
    """Nothing but the content goes there."""
    content = np.random.default_rng(seed).bytes(70_001)
    result = subprocess.run(
        [sys.executable, DEMO, "--board", socket, "--input", "-", "--output", "-"],
        input=content,
        capture_output=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == content
    assert b"written     standard output" in result.stderr
    assert result.stderr.endswith(b"verified    every word, on the GPU\n")


@pytest.mark.parametrize("json_too", [False, True])
def test_no_bytes_are_not_said_to_be_verified(socket, tmp_path, json_too):
    (tmp_path / "empty").touch()
    arguments = ["--json"] if json_too else []
    files = ["--input", tmp_path / "empty", "--output", tmp_path / "out"]
    for what in (["--size", "0x0"], files):
        result = run("--board", socket, *what, *arguments)
        assert result.returncode == 0, result.stderr
        if json_too:
            assert json.loads(result.stdout)["verified"] is False
        else:
            assert result.stdout.endswith("verified    nothing, as no bytes were copied\n")
    assert (tmp_path / "out").read_bytes() == b""


@pytest.mark.parametrize("there", [False, True])
def test_a_bad_output_is_found_before_the_copy(tmp_path, there):
    """Long before: there is no board, and nobody gets as far as asking for it."""
    (tmp_path / "in").write_bytes(b"data")
    out = tmp_path / "out"
    if there:
        out.mkdir()
    else:
        out = out / "file"
    result = run("--board", tmp_path / "none", "--input", tmp_path / "in", "--output", out)
    assert result.returncode == 1
    assert re.fullmatch(rf"demo.py: \[Errno .*: '{out}'\n", result.stderr)
