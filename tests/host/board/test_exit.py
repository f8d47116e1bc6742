# SPDX-License-Identifier: BSD-2-Clause
"""A program that ends while jobs are in progress: in bounded time, and without a word."""

import time

import pytest

from tests.host.programs import HOST, ROOT, run

#: Two arrays that are big enough for the simulated board to take long.
_SIMULATED = """
import time, weakref
import numpy as np, peerdma
# At the end of the interpreter; what was made later has been finalized before.
weakref.finalize(np, time.sleep, 1)
board = peerdma.open("sim")
arrays = [np.ones(24 << 20, np.uint8) for _ in range(2)]
"""
#: A stand-in for the driver, whose jobs end only if they are cancelled.
_KERNEL = """
import os, pathlib, tempfile
import numpy as np, peerdma
from peerdma.kernel import node
from peerdma.kernel.backend import open_node
from peerdma.board.board import Board
from tests.host.kernel.fake_kernel import FakeKernel
driver = FakeKernel(pathlib.Path(tempfile.mkdtemp()))
driver.silent = True
node.fcntl.ioctl = driver.ioctl
board = Board(open_node(driver.path, None))
arrays = [np.ones(4096, np.uint8) for _ in range(2)]
"""
_REST = """
s, d = (board.pin(each) for each in arrays)
job = board.submit(s, d)
job.add_done_callback(lambda job: print("ended:", type(job.exception()).__name__))
print("leaving", job.done())
"""


@pytest.mark.parametrize("start", [_SIMULATED, _KERNEL], ids=["simulated", "kernel"])
def test_the_interpreter_ends_with_a_job_in_progress(start):
    began = time.monotonic()
    result = run(program=("-c", start + _REST), PYTHONPATH=f"{ROOT}:{HOST}", cwd=ROOT)
    assert time.monotonic() - began < 60
    assert result.returncode == 0
    assert "Traceback" not in result.stderr, result.stderr
    assert result.stdout.split("\n") == ["leaving False", "ended: Cancelled", ""]
