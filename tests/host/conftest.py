# SPDX-License-Identifier: BSD-2-Clause
"""Fixtures of the library's tests: the simulated board, GPUs, and a scripted vfio-user device."""

import gc
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import peerdma
from peerdma import opening
from peerdma.cuda.gpu import CudaGpu
from peerdma.kernel import node as kernel_node
from peerdma.vfio_user.simboard import SimulatedBoard
from peerdma.vfio_user.wire import (
    MAX_DATA_BYTES,
    Command,
    Header,
    HeaderFlag,
    Version,
    pack,
    unpack,
)
from tests.boards import options
from tests.host.cuda.fake_cuda import FakeCuda, fake_driver
from tests.host.kernel.fake_kernel import FakeKernel
from tests.host.programs import HOST, ROOT

#: No step of a scripted device takes longer, in seconds.
PATIENCE = 20.0


def open_files() -> int:
    """Open file descriptors of this process, after those of objects that nobody has are closed."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def simulated_path(pin) -> peerdma.DataPath:
    """The path of a GPU's memory to a simulated board: its BAR, unless the pin says why not."""
    return peerdma.DataPath.STAGED if pin.provider else peerdma.DataPath.GPU_BAR


@pytest.fixture(autouse=True, scope="session")
def legal_boards():
    """A simulated board whose core broke a rule of PCIe fails what closes it."""
    close = SimulatedBoard.close

    def checked(self) -> None:
        close(self)
        assert not self.broke_a_rule, f"the core broke a rule of PCIe: {self.why_lost()}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedBoard, "close", checked)
        yield


@pytest.fixture
def seed() -> int:
    """The seed of a randomised test: the environment's SEED, else a new one; shown on failure."""
    value = int(os.environ.get("SEED") or secrets.randbits(32))
    print(f"repeat with SEED={value}")
    return value


@pytest.fixture(scope="module")
def board():
    """The simulated board, shared by the tests of a module."""
    with peerdma.open("sim") as board:
        yield board


@pytest.fixture(scope="module", name="socket")
def board_socket(tmp_path_factory):
    """A simulated board for many programs, one after the other."""
    path = tmp_path_factory.mktemp("board") / "board.sock"
    environment = {**os.environ, "PYTHONPATH": str(HOST)}
    command = [sys.executable, "-m", "sim.board", "--socket", str(path)]
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline().startswith("ready: ")
        yield path
    finally:
        server.terminate()
        try:
            status = server.wait(30)
        finally:
            server.kill()
            server.stdout.close()
    assert status == 0, f"the board ended with status {status}"


EMULATED = {"discrete": ("emulated", "device"), "integrated": ("emulated", "host")}
CUDA: dict[str, tuple[str, str]] = {}
#: These need one or two real GPUs, and are not collected without.
collect_ignore = [f"cuda/test_{name}.py" for name in ("device", "device_bar", "mapped", "pair")]
try:
    peerdma.gpu("cuda").close()
    CUDA = {"cuda-device": ("cuda", "device"), "cuda-host": ("cuda", "host")}
    _HEADER = "CUDA: on one real GPU"
    collect_ignore.remove("cuda/test_device.py")
    collect_ignore.remove("cuda/test_device_bar.py")
    collect_ignore.remove("cuda/test_mapped.py")
    peerdma.gpu("cuda:1").close()
    _HEADER = "CUDA: on real GPUs"
    collect_ignore.remove("cuda/test_pair.py")
except peerdma.GpuNotFound as _error:
    if not CUDA:
        _HEADER = f"CUDA: on a stand-in only, {_error.found}"
#: The GPUs there are: name of the test to what `peerdma.gpu` takes.
GPUS = EMULATED | CUDA


def pytest_report_header() -> str:
    """Says whether the tests reach a real GPU."""
    return _HEADER


@pytest.fixture(params=GPUS)
def gpu(request):
    """Each GPU that there is, with surfaces in each kind of memory."""
    kind, memory = GPUS[request.param]
    with peerdma.gpu(kind, memory=memory) as gpu:
        yield gpu


@pytest.fixture(params=EMULATED)
def emulated_gpu(request):
    """An emulated GPU of each personality."""
    kind, memory = EMULATED[request.param]
    with peerdma.gpu(kind, memory=memory) as gpu:
        yield gpu


@pytest.fixture
def cuda_api(tmp_path, monkeypatch):
    """A stand-in for CUDA's bindings; nothing may be left in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    api = FakeCuda()
    yield api
    gc.collect()
    assert not api.leftovers()


@pytest.fixture
def cuda_loaded(cuda_api, monkeypatch):
    """The same, as what a program finds that asks for this machine's CUDA."""
    driver = fake_driver(cuda_api)
    for module in ("arrays", "gpu"):
        monkeypatch.setattr(f"peerdma.cuda.{module}.load", lambda: driver)
    return cuda_api


@pytest.fixture(scope="module")
def without():
    """A board like a plain XDMA core: it has no stream."""
    with peerdma.open("sim", arguments=options("without")) as board:
        yield board


@pytest.fixture(scope="module")
def converter():
    """A board that converts float32 to bfloat16."""
    with peerdma.open("sim", arguments=options("converter")) as board:
        yield board


@pytest.fixture(scope="module")
def sensor():
    """A board with the pattern source."""
    with peerdma.open("sim", arguments=options("sensor")) as board:
        yield board


@pytest.fixture(params=["device", "host"], ids=["stand-in-device", "stand-in-host"])
def cuda_gpu(request, cuda_api):
    """A CUDA GPU on the stand-in, with surfaces in each kind of memory."""
    with CudaGpu(0, request.param, driver=fake_driver(cuda_api)) as gpu:
        yield gpu


@pytest.fixture(params=[*GPUS, "stand-in-device", "stand-in-host"])
def every_gpu(request):
    """Each GPU that there is, and the stand-ins."""
    if request.param in GPUS:
        kind, memory = GPUS[request.param]
        gpu = peerdma.gpu(kind, memory=memory)
    else:
        api = request.getfixturevalue("cuda_api")
        memory = request.param.removeprefix("stand-in-")
        gpu = CudaGpu(0, memory, driver=fake_driver(api))
    with gpu:
        yield gpu


@pytest.fixture
def node_driver(tmp_path, monkeypatch, cuda_api):
    """A stand-in for the kernel driver; it is recorded in one list with that for CUDA."""
    driver = FakeKernel(tmp_path, cuda_api.calls)
    monkeypatch.setattr(kernel_node.fcntl, "ioctl", driver.ioctl)
    read = os.read

    def reads(fd, length):
        return driver.read(read(fd, length))

    monkeypatch.setattr(kernel_node.os, "read", reads)
    monkeypatch.setattr(opening, "_NODE", driver.path)
    monkeypatch.setattr(opening, "is_node", lambda path: path == driver.path)
    # A dma-buf of the stand-in for CUDA is known by its descriptor.
    export = FakeCuda._cuMemGetHandleForAddressRange

    def exports(api, address, *rest):
        fd = export(api, address, *rest)
        driver.dmabufs[fd] = address
        return fd

    monkeypatch.setattr(FakeCuda, "_cuMemGetHandleForAddressRange", exports)
    yield driver
    assert not driver.pins
    driver.close()


@pytest.fixture
def node_board(node_driver):
    """The board behind it."""
    with peerdma.open("auto") as board:
        yield board


@pytest.fixture
def device_gpu(cuda_api):
    """A CUDA GPU on the stand-in, with surfaces in GPU memory."""
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        yield gpu


class Device:
    """The device's end of a vfio-user connection, for scripts."""

    def __init__(self, connection: socket.socket):
        self.connection = connection

    def receive(self) -> tuple[Header, bytes]:
        """The next message, whatever it is."""
        header = unpack(Header, self._exactly(Header.FORMAT.size))
        return header, self._exactly(header.size - Header.FORMAT.size)

    def expect(self, command: Command) -> tuple[Header, bytes]:
        """The next message, which must be this command."""
        header, payload = self.receive()
        assert Command(header.command) is command
        return header, payload

    def reply(self, header: Header, payload: bytes = b"", error: int = 0, error_flag: bool = False):
        """Answers the command that came with `header`."""
        flags = HeaderFlag.REPLY | (HeaderFlag.ERROR if error or error_flag else 0)
        self.send(header._replace(flags=flags, error=error), payload)

    def command(self, command: int, payload: bytes, message_id: int = 0, flags: int = 0):
        """Sends a command of the device's own."""
        self.send(Header(message_id, command, 0, flags), payload)

    def send(self, header: Header, payload: bytes):
        """Sends a message; the size is filled in."""
        size = Header.FORMAT.size + len(payload)
        self.connection.sendall(pack(header._replace(size=size)) + payload)

    def greet(self, major: int = 0):
        """Answers the client's VERSION."""
        header, _ = self.expect(Command.VERSION)
        self.reply(header, pack(Version(major, 0)) + b'{"capabilities":{}}\0')

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.connection.recv(min(count - len(data), MAX_DATA_BYTES))
            if not part:
                raise EOFError
            data += part
        return data


@pytest.fixture
def device(tmp_path):
    """Serves a script at a socket: ``path = device(script)``; the script must end without error.

    The script is called with a `Device` in a thread of its own; when it returns, the connection
    is closed.
    """
    threads: list[threading.Thread] = []
    errors: list[BaseException] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = os.path.join(tmp_path, "device.sock")
    listener.bind(path)
    listener.listen(1)
    listener.settimeout(PATIENCE)

    def serve(script: Callable[[Device], None]) -> str:
        def run():
            try:
                connection, _ = listener.accept()
                connection.settimeout(PATIENCE)
                with connection:
                    script(Device(connection))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)
        return path

    yield serve
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    listener.close()
    assert not errors, errors
