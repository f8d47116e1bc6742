# SPDX-License-Identifier: BSD-2-Clause
"""A real CUDA GPU's memory through its BAR1: who reaches it, and that it comes back.

Each runs in a process of its own, as peerdma has to be the first there to use the GPU.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest

import peerdma
from tests.host.cuda import libraries
from tests.host.programs import HOST, ROOT

LIBRARIES = libraries.present()
try:
    ctypes.CDLL("libEGL_nvidia.so.0")
except OSError:
    VULKAN = False
else:
    #: NVIDIA's Vulkan is there: then the simulated board has to reach the GPU's memory.
    VULKAN = True
NO_WAY = "there is no way:"
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
pins = [board.pin(gpu.surface(4096, "u4")) for _ in range(3)]
assert {pin.path for pin in pins} == {DataPath.GPU_BAR}
source = testing.PatternSource(board)
source.start(pins[0].memory.nbytes, seed=1)
with board.frames(pins) as frames:
    for frame in itertools.islice(frames, 8):
        found = torch.from_dlpack(frame.array.memory).cpu().numpy().view(np.uint8)
        assert (found == pattern.fill_bytes(1 + frame.number, 0, found.size)).all()
    assert frames.dropped == 0
source.stop()
"""

#: The board's import keeps the memory: what it writes goes nowhere wrong, and CUDA has the error.
_RESET = """
from cuda.bindings import driver
def told(action):
    try:
        action()
    except peerdma.PeerdmaError as error:
        print(type(error).__name__, getattr(error, "name", ""), error)
        return True
src, dst = gpu.surface(4 << 20), gpu.surface(4 << 20)
src.fill(1)
job = board.submit(src, dst)
assert not job.done()
(result,) = driver.cuDevicePrimaryCtxReset(gpu.index)
assert result == driver.CUresult.CUDA_SUCCESS, result
assert job.result(60).path == BAR
for action in (lambda: gpu.verify(dst, seed=1), dst.get, lambda: gpu.surface(64), gpu.synchronize):
    assert told(action), "nothing was said of a context that is gone"
src.close(), dst.close()
"""

#: From and to two GPUs at once.
_TWO_GPUS = """
other = peerdma.gpu("cuda:1", memory="device")
jobs = []
for nbytes in (1, 4095, 300_001):
    for one, two in ((gpu, other), (other, gpu), (other, other)):
        src, dst = one.surface(nbytes), two.surface(nbytes)
        src.fill(nbytes)
        jobs.append((board.submit(src, dst), two, dst, nbytes))
for job, two, dst, seed in jobs:
    assert job.result(60).path == BAR
    two.verify(dst, seed=seed)
"""

PROGRAMS = {
    "copies": (_COPIES, (), ""),
    "cupy": (_CUPY, (), "cupy"),
    "torch": (_TORCH, (), "torch"),
    "frames": (_FRAMES, ("--user", "pattern"), "torch"),
    "reset": (_RESET, (), ""),
    "two GPUs": (_TWO_GPUS, (), "a second GPU"),
}


def second_gpu() -> list[str]:
    """What a program on two GPUs wants, if it is there."""
    try:
        peerdma.gpu("cuda:1").close()
    except peerdma.GpuNotFound:
        return []
    return ["a second GPU"]


PRESENT = {"", *LIBRARIES, *second_gpu()}
THERE = [name for name, (*_, wanted) in PROGRAMS.items() if wanted in PRESENT]


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
    assert out.endswith("done\n") if VULKAN else out.startswith(NO_WAY), out


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


def memory(device) -> tuple[int, int]:
    """Bytes that are free on a GPU, and all of it, by its driver."""
    with device.current():
        return tuple(map(int, device.driver.call("cuMemGetInfo", action="look up free memory")))


@pytest.mark.parametrize("first", ["client", "board"])
def test_memory_is_back_soon_after_a_kill(monkeypatch, first):
    """In the middle of a copy; how often is in the environment's KILLS."""
    took = []
    with peerdma.gpu("cuda") as gpu:
        before, total = memory(gpu.device)
        monkeypatch.setenv("TOTAL", str(total))
        for _ in range(int(os.environ.get("KILLS", "2"))):
            with started(_BEGIN + _HOLDS) as client:
                line = client.stdout.readline()
                if not VULKAN:
                    assert line.startswith(NO_WAY)
                    return
                assert line.strip().isdigit(), line + client.stderr.read()
                assert memory(gpu.device)[0] < before - 0.39 * total
                time.sleep(0.05)
                os.kill(client.pid if first == "client" else int(line), signal.SIGKILL)
                if first == "board":
                    client.kill()  # which would keep its own
                client.wait()
                began = looked = time.monotonic()
                while memory(gpu.device)[0] < before - 0.1 * total:
                    assert looked < began + SOON, memory(gpu.device)
                    time.sleep(0.01)
                    looked = time.monotonic()
                took.append(looked - began)
    print(f"{len(took)} times, within {max(took):.2f} s")
