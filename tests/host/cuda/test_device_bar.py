# SPDX-License-Identifier: BSD-2-Clause
"""A real CUDA GPU's memory through its BAR1: who reaches it, and that it comes back.

Each runs in a process of its own, as peerdma has to be the first there to use the GPU.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.host.cuda import libraries
from tests.host.programs import HOST, ROOT

LIBRARIES = libraries.present()
#: Seconds in which free memory has to be back.
SOON = 1.0

_BEGIN = """
import sys, numpy as np, peerdma
from peerdma import DataPath
from peerdma.testing import pattern
BAR = DataPath.GPU_BAR, DataPath.GPU_BAR
gpu = peerdma.gpu("cuda", memory="device")
board = peerdma.open("sim", arguments=sys.argv[1:])
with gpu.surface(64) as surface, board.pin(surface) as pin:
    if pin.path is not DataPath.GPU_BAR:
        print("there is no way:", pin.provider)
        raise SystemExit
"""

_COPIES = """
for nbytes in (1, 4095, 300_001, 4 << 20):
    with gpu.surface(nbytes) as src, gpu.surface(nbytes) as dst:
        src.fill(1)
        transfer = board.copy(src, dst)
        assert transfer.path == BAR, transfer
        gpu.verify(dst, seed=1)
"""

_CUPY = """
import cupy
cupy.cuda.set_allocator(cupy.cuda.MemoryPool(gpu.cupy_allocator).malloc)
one = cupy.arange(100_000, dtype="u4")
for start in (0, 1, 4097):
    two = cupy.zeros_like(one)
    assert board.copy(one[start:], two[: len(one) - start]).path == BAR
    assert (two[: len(one) - start] == one[start:]).all() and not two[len(one) - start :].any()
del one, two
"""

_TORCH = """
import torch
one = torch.arange(12 << 20, dtype=torch.int32, device="cuda")
two = torch.zeros_like(one)
for start in (0, (20 << 18) - 1024, (40 << 18) - 3):
    part = slice(start, start + 2048)
    assert board.copy(one[part], two[part]).path == BAR
    assert (two[part] == one[part]).all() and not two[start + 2048 :].any()
tensor = torch.from_dlpack(gpu.surface(1000, "i4"))
assert board.copy(one[:1000], tensor).path == BAR and (tensor == one[:1000]).all()
"""

_FRAMES = """
import itertools, torch
from peerdma import testing
surfaces = [gpu.surface(4096, "u4") for _ in range(3)]
source = testing.PatternSource(board)
source.start(surfaces[0].nbytes, seed=1)
with board.frames(surfaces) as frames:
    for frame in itertools.islice(frames, 8):
        found = torch.from_dlpack(frame.array).cpu().numpy().view(np.uint8)
        assert (found == pattern.fill_bytes(1 + frame.number, 0, found.size)).all()
    assert frames.dropped == 0
source.stop()
"""

PROGRAMS = {
    "copies": (_COPIES, (), ""),
    "cupy": (_CUPY, (), "cupy"),
    "torch": (_TORCH, (), "torch"),
    "frames": (_FRAMES, ("--user", "pattern"), "torch"),
}
THERE = [name for name, (*_, library) in PROGRAMS.items() if library in {"", *LIBRARIES}]


def started(program: str, *arguments: str) -> subprocess.Popen:
    paths = os.pathsep.join([str(HOST), str(ROOT), os.environ.get("PYTHONPATH", "")])
    extra = {"PYTHONPATH": paths, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **extra},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", THERE)
def test_who_reaches_it(name):
    text, arguments, _ = PROGRAMS[name]
    with started(_BEGIN + text + "print('done')", *arguments) as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert out.startswith("there is no way:") or out.endswith("done\n"), out


#: Holds two fifths of the GPU's memory, so that other tests beside it make no difference. (Of
#: more, Vulkan finds no room for the import.)
_HOLDS = """
import os, time
size = int(os.environ["TOTAL"]) // 5
src, dst = gpu.surface(size), gpu.surface(size)
s, d = board.pin(src), board.pin(dst)
assert (s.path, d.path) == BAR, (s.provider, d.provider)
print(board._backend._platform._process._process.pid, flush=True)
job = board.submit(s[: 16 << 20], d[: 16 << 20])
time.sleep(600)
"""


def memory(kind: str) -> int:
    """Bytes that are "free" on the GPU, or the "total", by its driver's tool."""
    query = ["nvidia-smi", f"--query-gpu=memory.{kind}", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.check_output(query, text=True)) << 20


@pytest.mark.parametrize("first", ["client", "board"])
def test_memory_is_back_soon_after_a_kill(monkeypatch, first):
    """In the middle of a copy; how often is in the environment's KILLS."""
    total = memory("total")
    monkeypatch.setenv("TOTAL", str(total))
    took = []
    for _ in range(int(os.environ.get("KILLS", "2"))):
        with started(_BEGIN + _HOLDS) as client:
            line = client.stdout.readline()
            if line.startswith("there is no way:"):
                return
            assert line, client.stderr.read()
            board = int(line)
            assert memory("free") < 0.61 * total
            time.sleep(0.05)
            os.kill(client.pid if first == "client" else board, signal.SIGKILL)
            if first == "board":
                client.kill()  # which would keep its own
            client.wait()
            began = time.monotonic()
            while memory("free") < 0.7 * total:
                assert time.monotonic() < began + SOON, memory("free")
                time.sleep(0.02)
            took.append(time.monotonic() - began)
    print(f"{len(took)} times, within {max(took):.2f} s")
