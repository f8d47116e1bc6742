# SPDX-License-Identifier: BSD-2-Clause
"""The examples, as a reader would run them."""

import asyncio
import contextlib
import importlib.util
import itertools
import json
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

import peerdma
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


class Client:
    """A client of the server; a context manager."""

    def __init__(self, port: int):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.stream = self.connection.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.connection.close()

    def send(self, length: int, content: bytes) -> None:
        """Sends a request, or a part of one."""
        self.connection.sendall(length.to_bytes(4, "big") + content)

    def answer(self) -> tuple[bytes, bytes]:
        """Of one request; twice nothing if the server has hung up."""
        kind, length = self.stream.read(1), int.from_bytes(self.stream.read(4), "big")
        return kind, self.stream.read(length)

    def asks(self, content: bytes) -> tuple[bytes, bytes]:
        """The answer to a whole request."""
        self.send(len(content), content)
        return self.answer()


@pytest.fixture
def connected():
    """What is entered in it is there until the server has ended."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(tmp_path, board_path, connected):
    """Starts the server, ``port = serve(*options)``; it has to end as asked, and say nothing."""
    servers = []

    def start(*options: str) -> int:
        command = [sys.executable, "-W", "error", example("server"), "--board", board_path]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        servers.append(subprocess.Popen([*command, *options], cwd=tmp_path, **pipes))
        return int(servers[0].stdout.readline().rpartition(b":")[2])

    try:
        yield start
        servers[0].terminate()
        assert servers[0].communicate(timeout=60) == (b"", b"")
        assert servers[0].returncode == 0
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def test_server_has_many_clients(serve):
    port = serve()
    requests = [[bytes([client]) * (1000 * n) for n in range(4)] for client in range(5)]

    def client(contents: list[bytes]) -> list[tuple[bytes, bytes]]:
        with Client(port) as client:
            return [client.asks(content) for content in contents]

    with ThreadPoolExecutor() as clients:
        answers = list(clients.map(client, requests))
    assert answers == [[(b"+", content) for content in contents] for contents in requests]


def test_server_goes_on_without_a_client_that_has_gone(serve):
    """One goes in the middle of its request, one of the copy, and one of the answer."""
    port, content = serve(), os.urandom(1 << 17)
    with Client(port) as stays:
        for length, part in ((7, b"half"), (len(content), content)):
            with Client(port) as goes:
                goes.send(length, part)
        with Client(port) as goes:
            goes.send(len(content), content)
            assert goes.stream.read(1000)
        assert stays.asks(b"again") == (b"+", b"again")


def test_server_refuses_what_is_too_long_in_words(serve):
    """The client gets them even if it looks for an answer only after all is sent."""
    port, most = serve(), 16 << 20
    for length, sent in ((most + 1, most + 1), (0xFFFF_FFFF, 0), (0xFFFF_FFFF, most)):
        with Client(port) as client:
            client.send(length, bytes(sent))
            said = f"{length} bytes are too many: send {most} at most"
            assert client.answer() == (b"-", said.encode())
            with Client(port) as other:
                assert other.asks(b"again") == (b"+", b"again")


def test_server_waits_only_so_long(serve):
    """For a client that is silent, one that does not go on, and one whose copy takes longer."""
    port = serve("--patience", "0.5")
    with Client(port) as silent, Client(port) as stops, Client(port) as waits:
        stops.send(7, b"half")
        waits.send(16 << 20, bytes(16 << 20))
        for client in silent, stops, waits:
            assert client.answer() == (b"-", b"not done in 0.5 s")
            assert client.answer() == (b"", b"")


def test_server_ends_in_the_middle_of_requests(serve, connected):
    """With clients that ask for nothing, that send, and that wait for the board."""
    port = serve()
    idle, sends, waits = (connected.enter_context(Client(port)) for _ in range(3))
    assert idle.asks(b"here") == (b"+", b"here")
    sends.send(7, b"half")
    waits.send(16 << 20, bytes(16 << 20))


def test_server_tells_what_the_board_says():
    converse = runpy.run_path(example("server"))["converse"]

    def submit(source, target):
        raise peerdma.TransferError("the board says why")

    async def answer() -> bytes:
        board = SimpleNamespace(submit=submit)
        server = await asyncio.start_server(partial(converse, board, 20.0), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"\0\0\0\3abc")
        writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()
            server.close()

    assert asyncio.run(answer()) == b"-\0\0\0\22the board says why"


def test_the_notebook_is_stored_without_outputs():
    """They would grow old. What it gives is tested with the wheels."""
    cells = json.loads((EXAMPLES / "peerdma.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 5
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in code)


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


def test_receive(tmp_path):
    done = run(tmp_path, example("receive"), "--gpu", "emulated", "--frames", "300")
    assert done.returncode == 0, done.stderr
    said, cycles = done.stdout.splitlines()
    assert said == (
        "300 frames of 256 bytes that emulated integrated GPU took by shadow tail: 0 lost"
    )
    between = r"cycles of the board from one frame to the next: p50 (\d+), p99 (\d+), max (\d+)"
    found = list(map(int, re.fullmatch(between, cycles).groups()))
    # A word a cycle, and the record.
    assert found[0] > 64 and found == sorted(found)


@pytest.mark.parametrize(
    ("name", "entry", "options", "words"),
    [
        (
            "launch_queue",
            "rounds",
            ["--rounds", "3", "--launches", "0"],
            r"9 copies that Fake GPU(.|\n)*\n0 launches of a graph",
        ),
        ("receive", "receive", ["--frames", "5"], r"5 frames of 256 bytes that Fake GPU.*: 0 lost"),
    ],
)
def test_kernels_on_cuda(cuda_loaded, monkeypatch, capsys, name, entry, options, words):
    """Without a GPU it shows what is launched with what: C++ runs in the kernel's place."""
    example = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    compiled = example["compiled"]()

    class Program:
        def __init__(self, device, file, text):
            assert (file, text) == (f"{name}.cu", example["source"]())

        def launch(self, kernel, *arguments, one, stream=None):
            assert one
            if kernel == entry:
                assert arguments[0][1] is None
                compiled(*(value for value, _ in arguments))

    importlib.import_module("peerdma.cuda.stream_queue")  # has the real one
    monkeypatch.setattr("peerdma.cuda.program.Program", Program)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--gpu", "cuda", *options])
    assert example["main"]() == 0
    cuda_loaded.calls.clear()  # which have the queue
    assert re.match(words, capsys.readouterr().out)


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
    """As much of a tensor of PyTorch as examples need, in "GPU memory" of the stand-in."""

    @property
    def __cuda_array_interface__(self):
        return {**self.__array_interface__, "stream": 1}

    def float(self):
        return self.astype(np.float32)

    def clone(self):
        return self.copy()

    def cuda(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.view(np.ndarray)


class DataLoader:
    """As much of PyTorch's as the example needs, without workers."""

    def __init__(self, dataset, *, batch_size, num_workers):
        self._samples, self._count = iter(dataset), batch_size
        assert not num_workers

    def __iter__(self):
        if self._count is None:
            yield from self._samples
        while batch := list(itertools.islice(self._samples, self._count or 0)):
            yield np.stack(batch)


class Torch:
    """As much of PyTorch as examples have. What it computes, it computes at once.

    Attributes
    ----------
    workers : int
        Of the DataLoader in one of which this is; 0 if it is in none.
    """

    uint8 = np.uint8

    def __init__(self, gpu):
        self.workers = 0
        self.utils = SimpleNamespace(
            data=SimpleNamespace(
                IterableDataset=object,
                DataLoader=DataLoader,
                get_worker_info=lambda: self.workers and SimpleNamespace(num_workers=self.workers),
            )
        )
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

    empty = zeros

    @staticmethod
    def from_numpy(array):
        return array.view(Tensor)


@pytest.fixture
def torch(cuda_loaded, monkeypatch):
    """A stand-in for PyTorch. It shows the order of things only, and nothing of CUDA or PyTorch."""
    with CudaGpu(0, "device") as gpu, gpu.device.current():
        torch = Torch(gpu)
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "torch.utils", torch.utils)
        yield torch
        torch.close()


def test_inference_by_pytorch(torch, monkeypatch, capsys):
    program = runpy.run_path(example("inference"))
    monkeypatch.setattr(sys, "argv", ["inference.py", "--frames", "5"])
    assert program["main"]() == 0
    assert capsys.readouterr().out == "5 frames by with_torch, all scores right\n"


@pytest.mark.parametrize("options", [(), ("--batch", "3"), ("--batch", "3", "--workers", "1")])
def test_dataset(tmp_path, options):
    """By PyTorch, where there is one; else it says what is missing."""
    done = run(tmp_path, example("dataset"), "--frames", "7", *options)
    if importlib.util.find_spec("torch"):
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(r"7 frames on (cuda|cpu), all right\n", done.stdout)
    else:
        assert (done.returncode, done.stdout) == (1, "")
        assert "this example needs PyTorch: https://" in done.stderr


@pytest.mark.parametrize("options", [(), ("--batch", "3")])
def test_dataset_by_a_loader(torch, monkeypatch, capsys, options):
    program = runpy.run_path(example("dataset"))
    monkeypatch.setattr(sys, "argv", ["dataset.py", "--frames", "7", *options])
    assert program["main"]() == 0
    assert capsys.readouterr().out == "7 frames on cuda, all right\n"


@pytest.mark.parametrize(
    ("borrow", "workers", "tensors"), [(False, 0, 6), (True, 0, 4), (True, 1, 6)]
)
def test_dataset_copies_what_it_cannot_lend(torch, borrow, workers, tensors):
    """The ring has four tensors. A worker's samples are on their way when it makes others."""
    torch.workers = workers
    dataset = runpy.run_path(example("dataset"))["FrameDataset"](None, 6, "cuda", borrow=borrow)
    samples = list(dataset)
    assert len(samples) == 6
    assert len({sample.ctypes.data for sample in samples}) == tensors


def test_dataset_is_one_stream(torch):
    """Two workers would get the same frames, by two boards, or no board."""
    torch.workers = 2
    dataset = runpy.run_path(example("dataset"))["FrameDataset"](None, 6, "cuda")
    with pytest.raises(peerdma.UnsupportedError, match="take one worker"):
        list(dataset)


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
