# SPDX-License-Identifier: BSD-2-Clause
"""The examples, as a reader would run them."""

import contextlib
import importlib
import os
import re
import runpy
import socket
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from peerdma.cuda.gpu import CudaGpu
from peerdma.testing.pattern import fill_bytes
from tests.host.cuda import libraries

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "host" / "examples"


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in `folder`, with nothing of this test's environment but its interpreter."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def example(name: str) -> str:
    """Path of an example."""
    return str(EXAMPLES / f"{name}.py")


@pytest.fixture
def board_path(request) -> str:
    """A simulated board that runs, for several programs."""
    return str(request.getfixturevalue("socket"))


@pytest.mark.parametrize("overwrite", [False, True], ids=["waiting", "overwriting"])
def test_stream(tmp_path, overwrite):
    arguments = ["--frames", "5", "--words", "1000", *(["--overwrite"] if overwrite else [])]
    done = run(tmp_path, str(EXAMPLES / "stream.py"), *arguments)
    assert done.returncode == 0, done.stderr
    *frames, total = done.stdout.splitlines()
    numbers = [int(re.match(r"frame (\d+): ", line).group(1)) for line in frames]
    if overwrite:
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 5
    else:
        assert numbers == list(range(5))
        for line in frames:
            assert re.fullmatch(r"frame \d+: begun at cycle \d+, every word is right", line)
        assert total == "5 frames, 0 dropped in between"


def test_record(tmp_path):
    done = run(tmp_path, str(EXAMPLES / "record.py"), "a file", "--frames", "9", "--words", "1001")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"9 frames of 4004 bytes, all right; \d+ dropped\n", done.stdout)
    found = np.load(tmp_path / "a file", mmap_mode="r")
    for number, row in enumerate(found):
        assert row.tobytes() == fill_bytes(1 + number, 0, 4004).tobytes()
    assert len(found) == 9


def test_stream_needs_a_source(tmp_path):
    """On another board it says how to get one with a source."""
    code = (
        "import sys, peerdma\n"
        "from peerdma import testing\n"
        "with peerdma.open('sim') as board:\n"
        "    try: testing.PatternSource(board)\n"
        "    except peerdma.UnsupportedError as error: sys.exit(str(error))\n"
    )
    done = run(tmp_path, "-c", code, PYTHONPATH=str(ROOT / "host"))
    assert "user block is PASS. Build its gateware with --user pattern" in done.stderr


def asked(port: int, requests: list[bytes]) -> list[bytes]:
    """What a server says to the requests of one client."""
    answers = []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        stream = connection.makefile("rwb")
        for request in requests:
            stream.write(len(request).to_bytes(4, "big") + request)
            stream.flush()
            answers.append(stream.read(int.from_bytes(stream.read(4), "big")))
    return answers


def test_server(tmp_path, board_path):
    command = [sys.executable, "-W", "error", str(EXAMPLES / "server.py"), "--board", board_path]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        port = int(server.stdout.readline().rpartition(b":")[2])
        requests = [[bytes([client]) * (1000 * n) for n in range(4)] for client in range(5)]
        with ThreadPoolExecutor() as clients:
            assert list(clients.map(asked, [port] * 5, requests)) == requests
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"\xff" * 4)
            assert connection.recv(1) == b""
            # A client that is connected, and one that has gone in the middle of a request.
            with socket.create_connection(("127.0.0.1", port), timeout=60) as gone:
                gone.sendall(b"\0\0\0\7half")
            assert asked(port, [b"again"]) == [b"again"]
            server.terminate()
            said = server.communicate(timeout=60)[1]
        assert (server.returncode, said) == (0, b"a request of 4294967295 bytes is refused\n")
    finally:
        server.kill()
        server.communicate()


def test_boards(tmp_path):
    done = run(tmp_path, str(EXAMPLES / "boards.py"), "--size", "10001")
    assert done.returncode == 0, done.stderr
    first, second, all_of_it = done.stdout.splitlines()
    assert first.startswith("sim: 5001 bytes in ") and second.startswith("sim: 5000 bytes in ")
    assert all_of_it == "10001 bytes in 2 parts, all of them right"


def test_launch_queue(tmp_path):
    done = run(tmp_path, example("launch_queue"), "--gpu", "emulated", "--rounds", "5")
    assert done.returncode == 0, done.stderr
    said, cycles, graph = done.stdout.splitlines()
    assert graph == "no graph: that takes a CUDA GPU"
    assert said == (
        "15 copies that emulated integrated GPU started by shadow tail, all words right"
    )
    assert re.fullmatch(r"\d+ cycles of the board for each", cycles)


def test_launch_queue_without_a_compiler(tmp_path):
    done = run(tmp_path, example("launch_queue"), "--gpu", "emulated", PATH=str(tmp_path))
    assert done.returncode == 10
    assert "there is no g++: install it, or use a CUDA GPU (--gpu cuda)" in done.stderr


def test_launch_queue_on_a_board_without(tmp_path, board_path):
    path = ("--gpu", "emulated", "--board", board_path)
    done = run(tmp_path, example("launch_queue"), *path)
    assert done.returncode == 10
    assert "this board's gateware has no launch queues: build it with" in done.stderr


def test_launch_queue_on_cuda(cuda_loaded, monkeypatch, capsys):
    """Without a GPU it shows what is launched with what: C++ runs in the kernel's place."""
    example = runpy.run_path(str(EXAMPLES / "launch_queue.py"))
    rounds = example["compiled"]()

    class Program:
        def __init__(self, device, name, text):
            assert (name, text) == ("launch_queue.cu", example["source"]())

        def launch(self, kernel, *arguments, one, stream=None):
            assert one
            if kernel == "rounds":
                assert arguments[0][1] is None
                rounds(*(value for value, _ in arguments))

    importlib.import_module("peerdma.cuda.stream_queue")  # has the real one
    monkeypatch.setattr("peerdma.cuda.program.Program", Program)
    monkeypatch.setattr(
        sys, "argv", ["launch_queue.py", "--gpu", "cuda", "--rounds", "3", "--launches", "0"]
    )
    assert example["main"]() == 0
    cuda_loaded.calls.clear()  # which have the queue
    said = capsys.readouterr().out
    assert said.startswith("9 copies that Fake GPU") and "0 launches of a graph" in said


@pytest.mark.parametrize(("name", "module"), [("cupy", "cupy"), ("numba", "numba.cuda")])
def test_a_queue_without_its_library(tmp_path, name, module):
    path = example(f"{name}_queue")
    hide = f"import runpy, sys; sys.modules[{module!r}] = None; sys.argv = [{path!r}]"
    done = run(tmp_path, "-c", f"{hide}; runpy.run_path({path!r}, run_name='__main__')")
    assert done.returncode == 10
    assert re.search("this example needs (CuPy|Numba).*: https://", done.stderr)


class Cupy:
    """As much of CuPy as the example has, on the stand-in for CUDA: work in order of its stream."""

    class Stream:
        """A stream; the current one inside of ``with``."""

        def __init__(self, cupy, handle):
            self.ptr = handle
            self._cupy = cupy

        def __enter__(self):
            self._cupy.current = self.ptr

        def __exit__(self, *_):
            self._cupy.current = 0

    def __init__(self, gpu):
        self._driver, self._library = gpu.device.driver, libraries.StandIn(gpu)
        self.current = 0
        self.streams = []
        device = SimpleNamespace(synchronize=lambda: None)
        self.cuda = SimpleNamespace(Stream=self._stream, Device=lambda: device)

    def _stream(self, *, non_blocking):
        self.streams.append(self._driver.call("cuStreamCreate", int(non_blocking), action="test"))
        return self.Stream(self, self.streams[-1])

    def zeros(self, shape, dtype):
        return self._library.make(np.zeros(shape, dtype))

    def multiply(self, one, other, out):
        work = partial(np.multiply, one.data, other, out=out.data)
        self._driver.api.queue(self.current, work, waits=False)


def test_pipeline_without_cupy(tmp_path):
    path = example("pipeline")
    hide = f"import runpy, sys; sys.modules['cupy'] = None; sys.argv = [{path!r}]"
    done = run(tmp_path, "-c", f"{hide}; runpy.run_path({path!r}, run_name='__main__')")
    assert (done.stdout, done.returncode) == ("8 blocks of 16384 bytes, all of them right\n", 0)


def test_inference(tmp_path):
    """By PyTorch in a GPU, where there is one, else by numpy."""
    done = run(tmp_path, example("inference"), "--frames", "7", "--ring", "2")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"7 frames by with_(torch|numpy), all scores right\n", done.stdout)


class Tensor(np.ndarray):
    """As much of a tensor of PyTorch as the example needs, in "GPU memory" of the stand-in."""

    @property
    def __cuda_array_interface__(self):
        return {**self.__array_interface__, "stream": 1}

    def float(self):
        return self.astype(np.float32)

    def cuda(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.view(np.ndarray)


class Torch:
    """As much of PyTorch as the example has. What it computes, it computes at once."""

    uint8 = np.uint8

    def __init__(self, gpu):
        self._library = libraries.StandIn(gpu)
        stream = SimpleNamespace(
            cuda_stream=self._library.stream(),
            wait_stream=lambda other: None,
            synchronize=lambda: None,
        )
        self.close = self._library.close
        self.cuda = SimpleNamespace(
            Stream=lambda: stream,
            current_stream=lambda: None,
            stream=lambda _: contextlib.nullcontext(),
            is_available=lambda: True,
        )

    def zeros(self, shape, dtype=np.float32, device="cpu"):
        assert device == "cuda"
        array = self._library.make(np.zeros(shape, dtype))
        tensor = array.data.view(Tensor)
        tensor.keeps = array
        return tensor

    @staticmethod
    def from_numpy(array):
        return array.view(Tensor)


def test_inference_by_pytorch(cuda_loaded, monkeypatch, capsys):
    """Without a GPU it shows the order of things only, and nothing of CUDA or PyTorch."""
    with CudaGpu(0, "device") as gpu, gpu.device.current():
        monkeypatch.setitem(sys.modules, "torch", torch := Torch(gpu))
        program = runpy.run_path(example("inference"))
        monkeypatch.setattr(sys, "argv", ["inference.py", "--frames", "5"])
        assert program["main"]() == 0
        torch.close()
    assert capsys.readouterr().out == "5 frames by with_torch, all scores right\n"


def test_pipeline(cuda_loaded, monkeypatch, capsys):
    """Without a GPU it shows the order of things only, and nothing of CUDA or CuPy."""
    with CudaGpu(0, "device") as gpu, gpu.device.current():
        monkeypatch.setitem(sys.modules, "cupy", cupy := Cupy(gpu))
        example = runpy.run_path(str(EXAMPLES / "pipeline.py"))
        monkeypatch.setattr(sys, "argv", ["pipeline.py", "--board", "sim", "--samples", "1000"])
        assert example["main"]() == 0
        for stream in cupy.streams:
            gpu.device.driver.call("cuStreamDestroy", stream, action="test")
    assert capsys.readouterr().out == "8 blocks of 4000 bytes, all of them right\n"


@pytest.mark.parametrize("size", [0, 300_001])
def test_load_file(tmp_path, board_path, size):
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    example = str(EXAMPLES / "load_file.py")
    done = run(tmp_path, example, "file", "--board", board_path, "--piece", "65536")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{size} bytes in ")
    assert done.stdout.endswith(f"CRC-32 {zlib.crc32(content):08x}\n")


def test_user_logic_in_verilog(tmp_path):
    """The module in examples/ on the simulated board, as the documentation runs it."""
    text = (ROOT / "docs" / "integration.md").read_text()
    section = text.split("## A module in Verilog\n")[1].split("\n## ")[0]
    (tmp_path / "demo.py").write_text(re.findall(r"```python\n(.*?)```", section, flags=re.S)[0])
    done = run(tmp_path, "demo.py", PYTHONPATH=str(ROOT / "host"))
    assert done.returncode == 0, done.stderr
    said, beats = done.stdout.splitlines()
    assert said.startswith("307680 bytes in ") and "through the board's user stream" in said
    # Two passes; a beat is full unless a descriptor ends in it.
    assert 76920 <= int(beats.removesuffix(" beats")) < 76920 + 200


def test_a_board_of_the_simulation_has_nothing_for_ports(tmp_path):
    open_it = "import peerdma; peerdma.open('sim', arguments=['--user', 'axis'])"
    done = run(tmp_path, "-c", open_it, PYTHONPATH=str(ROOT / "host"))
    assert "connected to the ports of the user block axis: name a file" in done.stderr


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_the_package_that_is_installed_comes_before_the_checkouts(tmp_path, name):
    """An example of a checkout uses what pip has installed, as one that lies elsewhere does."""
    installed = tmp_path / "site" / "peerdma"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("raise SystemExit('the installed one')\n")
    # Behind the example's own folder, as what is installed is.
    done = run(tmp_path, example(name), "--help", PYTHONPATH=str(installed.parent))
    assert done.stderr == "the installed one\n"
