# SPDX-License-Identifier: BSD-2-Clause
"""What the library logs: nothing that anybody sees, unless a program asks for it."""

import errno
import logging
import subprocess
import sys

import pytest

import peerdma
from peerdma.cli import boards
from peerdma.cli.main import main
from peerdma.uapi import Ioctl
from tests.host.programs import HOST


@pytest.fixture
def messages(caplog):
    """``messages()`` is what was logged since the last call: (logger, level, text)."""
    caplog.set_level(logging.DEBUG, "peerdma")

    def taken() -> list[tuple[str, int, str]]:
        found = list(caplog.record_tuples)
        caplog.clear()
        return found

    return taken


def test_the_log_says_what_was_opened_and_how_memory_was_pinned(node_driver, device_gpu, messages):
    node_driver.failures[Ioctl.PIN_DMABUF] = 0, errno.EOPNOTSUPP
    with peerdma.open() as board, device_gpu.surface(100) as surface:
        assert messages() == [
            ("peerdma.opening", logging.INFO, "opened board 0 at 0000:01:00.0"),
        ]
        board.pin(surface).close()
    refused, pinned = messages()
    assert refused[:2] == ("peerdma.kernel.backend", logging.INFO)
    assert refused[2].startswith("pinning by address instead: cannot pin 100 bytes of GPU memory")
    assert pinned[:2] == ("peerdma.kernel.backend", logging.DEBUG)
    way = "reached by peer-to-peer (nvp2p, as this failed: cannot pin 100 bytes"
    assert pinned[2].startswith(f"pinned 100 bytes at {surface.address:#x}, {way}")


def test_the_log_says_what_was_compiled_and_which_gpu_is_used(device_gpu, messages):
    with device_gpu.surface(100) as surface:
        surface.fill(1)
    ((name, _, text),) = messages()
    assert name == "peerdma.cuda.program"
    assert text.startswith("compiled kernels.cu in ") and "sm_90" in text
    peerdma.gpu("emulated").close()
    ((name, _, text),) = messages()
    assert (name, text) == (
        "peerdma.gpus",
        "using emulated discrete GPU: emulated peer-to-peer memory",
    )


def test_a_program_that_sets_nothing_up_sees_nothing():
    """Without a handler, Python would print warnings on standard error."""
    code = (
        f"import sys; sys.path.insert(0, {str(HOST)!r})\n"
        "import logging, peerdma\n"
        "logging.getLogger('peerdma.opening').warning('seen')\n"
        "peerdma.gpu('emulated').close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], []),
        (["-v"], ["opened board 0"]),
        (["-vv"], ["opened board 0", "pinned 64 bytes"]),
    ],
)
def test_the_command_shows_the_log(node_driver, capsys, options, said):
    logger = logging.getLogger("peerdma")
    before = (logger.level, list(logger.handlers))
    once = ["--sizes", "64", "--repeat", "1", "--tails", "0"]
    assert main(["perf", "--memory", "numpy", *once, *options]) == 0
    errors = capsys.readouterr().err
    assert bool(errors) == bool(said)
    assert all(f": {text}" in errors for text in said)
    assert ("pinned" in errors) == (options == ["-vv"])
    assert (logger.level, logger.handlers) == before


def test_the_command_shows_warnings_in_any_case(node_driver, capsys, monkeypatch):
    def warns(*_):
        logging.getLogger("peerdma.opening").warning("look out")
        return 0

    monkeypatch.setattr(boards, "_run", warns)
    assert main(["list"]) == 0
    assert capsys.readouterr().err == "peerdma.opening: look out\n"
