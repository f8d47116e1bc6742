# SPDX-License-Identifier: BSD-2-Clause
"""Memory of a GPU that the simulated board maps: messages, accesses, and what it lets go."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from peerdma.vfio_user.wire import Command, GpuMap, pack
from tests.host.cuda.fake_cuda import UUID
from tests.sim.board.client import ANSWER, Board, Client, Memory, Refused
from tests.sim.board.dma import DATA, DONE, LIST, MIB, list_of
from tests.sim.board.vulkan_driver import compile_driver

NATIVE = Path(__file__).parents[3] / "sim/board/native"
READ, WRITE, MAPPABLE = 1, 2, 4


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board that finds the stand-in for Vulkan."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in compile_driver(tmp_path_factory.mktemp("vulkan")).items():
            patch.setenv(name, value)
        with Board(tmp_path_factory.mktemp("board")) as board:
            yield board


@pytest.fixture(params=[0, MAPPABLE], ids=["Vulkan", "dma-buf"])
def how(request: pytest.FixtureRequest) -> int:
    """The way to map it."""
    return request.param


def map_gpu(
    client: Client,
    memory: Memory,
    how: int,
    *,
    address: int = DATA,
    size: int = MIB,
    offset: int = 0,
    **changed: object,
) -> str:
    """Maps a part of a "GPU's" memory; why it cannot be."""
    request = GpuMap(64, READ | WRITE | how, offset, address, size, memory.size, 1, UUID)
    body = pack(request._replace(**changed))
    return client.request(Command.GPU_MAP, body, fds=(memory.fd,)).decode()


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true soon: a message's descriptor is closed after its reply is sent."""
    end = time.monotonic() + ANSWER
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_bytes_arrive_at_any_address_and_length(client, lists, how, seed):
    rng = np.random.default_rng(seed)
    with Memory(2 * MIB) as memory:
        assert map_gpu(client, memory, how, offset=MIB) == ""
        memory.bytes[:] = rng.integers(0, 256, 2 * MIB, dtype="u1")
        expected = memory.bytes.copy()
        for _ in range(40):
            source, target = (int(each) for each in rng.integers(0, MIB // 2 - 8192, 2))
            target += MIB // 2
            length = int(rng.choice([rng.integers(1, 200), rng.integers(1, 8192)]))
            assert client.run(False, list_of(lists, 0, DATA + source, 0, length)) == DONE
            assert client.run(True, list_of(lists, 32, 0, DATA + target, length)) == DONE
            arrived = expected[MIB + source :][:length].copy()
            expected[MIB + target :][:length] = arrived
        assert np.array_equal(memory.bytes, expected)


def test_several_windows_of_one_allocation(client, lists, how):
    """It is imported once, or the stand-in ends the board; and stays until the last is unmapped."""
    with Memory(2 * MIB) as memory:
        memory.bytes[:MIB] = 7
        for window in range(4):
            place = {"address": DATA + window * MIB, "offset": window * MIB // 2}
            assert map_gpu(client, memory, how, size=MIB // 2, **place) == ""
        for window in range(3):
            client.unmap(DATA + window * MIB, MIB // 2)
        assert client.run(False, list_of(lists, 0, LIST + 4096, 0, 64)) == DONE
        assert client.run(True, list_of(lists, 32, 0, DATA + 3 * MIB, 64)) == DONE
        assert not memory.bytes[3 * MIB // 2 :].any() and memory.bytes[0] == 7
        client.unmap(DATA + 3 * MIB, MIB // 2)


@pytest.mark.parametrize(
    ("changed", "number"),
    [
        ({"argsz": 63}, errno.EINVAL),
        ({"flags": 8 | 3}, errno.EINVAL),
        ({"flags": 0}, errno.EINVAL),
        ({"offset": MIB}, errno.EINVAL),
        ({"offset": 2**64 - 4096}, errno.EINVAL),
        ({"size": 0}, errno.EINVAL),
        ({"size": 2 * MIB}, errno.EINVAL),
        ({"address": 2**64 - 4096}, errno.EINVAL),
        ({"address": LIST}, errno.EEXIST),
    ],
)
def test_nonsense_is_refused_by_its_number(board, client, lists, changed, number):
    with Memory(MIB) as memory:
        before = board.fds()
        with pytest.raises(Refused) as refused:
            map_gpu(client, memory, 0, **changed)
        assert refused.value.errno == number
        assert eventually(lambda: board.fds() == before)
        for fds in ((), (memory.fd, memory.fd)):
            with pytest.raises(Refused):
                client.request(
                    Command.GPU_MAP, pack(GpuMap(64, 3, 0, 0, MIB, MIB, 1, UUID)), fds=fds
                )
        with pytest.raises(Refused):
            client.request(Command.GPU_MAP, b"short", fds=(memory.fd,))
        assert map_gpu(client, memory, 0) == ""
        with pytest.raises(Refused):
            map_gpu(client, memory, 0, address=DATA + MIB, nbytes=2 * MIB)


def mapped(board: Board, memory: Memory) -> bool:
    """Whether the board holds it: a mapping, or a descriptor."""
    # A file of another file system may have the same number.
    found = os.fstat(memory.fd)
    folder, held = Path("/proc", str(board.process.pid)), set()
    for line in (folder / "maps").read_text().splitlines():
        device, number = line.split()[3:5]
        held.add((os.makedev(*(int(each, 16) for each in device.split(":"))), int(number)))
    for fd in (folder / "fd").iterdir():
        try:
            file = fd.stat()
        except OSError:
            continue
        held.add((file.st_dev, file.st_ino))
    return (found.st_dev, found.st_ino) in held


@pytest.mark.parametrize("end", ["unmap", "unmap all", "close", "reset and close"])
def test_it_is_let_go(board, how, end):
    """When told, and when its client is gone, which may be at any moment."""
    with Memory(MIB) as memory, Client(board) as client:
        client.enable()
        assert not mapped(board, memory)
        assert map_gpu(client, memory, how) == ""
        assert mapped(board, memory)
        if end.startswith("unmap"):
            client.unmap(*((DATA, MIB) if end == "unmap" else (0, 0, 2)))
            assert not mapped(board, memory)
            return
        if end == "reset and close":
            client.request(Command.DEVICE_RESET)
            assert mapped(board, memory), "a reset of the function leaves the host's mappings"
        client.socket.close()
        assert eventually(lambda: not mapped(board, memory))


LACKS = {
    "instance": "vkCreateInstance failed with -9",
    "gpu": r"Vulkan does not have this GPU \(1 devices\).* MIG .*graphics",
    "driver": "Vulkan does not have this GPU",
    "import": "imports no memory of other processes",
    "type": r"shows the CPU none of its memory",
    "device": "vkCreateDevice failed, as the GPU has no room",
    "allocate": r"its import \(vkAllocateMemory\) failed, as the GPU has no room",
    "map": r"mapping it for the CPU \(vkMapMemory\) failed, as the GPU has no room",
}


@pytest.mark.parametrize("what", LACKS)
def test_what_vulkan_lacks_is_said(monkeypatch, tmp_path, what):
    """And nothing is held, and the next try is a new one."""
    for name, value in compile_driver(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STANDIN_VULKAN", what)
    with Board(tmp_path) as board, Client(board) as client, Memory(MIB) as memory:
        for _ in range(2):
            why = map_gpu(client, memory, 0)
            assert re.search(LACKS[what], why), why
            assert eventually(lambda: not mapped(board, memory))
        assert "memory of a GPU is not mapped" in board.log()
        client.map(DATA, memory)


def test_a_small_bar_is_said(client, board):
    with Memory(4096) as memory:
        os.truncate(memory.fd, 256 * MIB)
        why = map_gpu(client, memory, 0, nbytes=256 * MIB)
    assert "256 MiB, and the GPU shows the CPU 200 MiB" in why


def test_no_vulkan_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "there is none.json"))
    with Board(tmp_path) as board, Client(board) as client, Memory(MIB) as memory:
        why = map_gpu(client, memory, 0)
        assert "libvulkan.so.1: cannot open shared object file" in why
        del board


def test_other_clients_know_nothing_of_it(board):
    """It is offered in the version's data, beside what the protocol has."""
    with Client(board, greet=False) as client:
        answer = client.request(Command.VERSION, b"\0\0\0\0" + b'{"capabilities":{}}\0')
        assert b'"peerdma_gpu_memory": true' in answer and b'"max_msg_fds"' in answer


def test_a_missing_page_is_a_lost_write_and_an_unsupported_request(client, lists, board):
    """A GPU that has fallen off the bus may raise SIGBUS."""
    with Memory(MIB) as memory:
        assert map_gpu(client, memory, MAPPABLE, identity=0) == ""
        memory.shrink(0)
        assert client.run(False, list_of(lists, 0, DATA, 0, 64)) != DONE
        client.run(True, list_of(lists, 32, 0, DATA, 64))
        assert client.refused and client.refused[-1][0] is Command.DMA_WRITE


def test_stores_and_loads_at_every_alignment(tmp_path):
    """Of the functions alone, beside what must not change."""
    wrapper = tmp_path / "wrapper.cpp"
    wrapper.write_text(
        '#include "gpu_bar.h"\n'
        'extern "C" void st(uint8_t *t, const uint8_t *f, size_t n)'
        "{ peerdma::store_to_gpu(t, f, n); }\n"
        'extern "C" void ld(uint8_t *t, const uint8_t *f, size_t n)'
        "{ peerdma::load_from_gpu(t, f, n); }\n"
    )
    library = tmp_path / "bar.so"
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{NATIVE}"]
    subprocess.run([*command, wrapper, NATIVE / "gpu_bar.cpp", "-o", library], check=True)
    native = ctypes.CDLL(str(library))
    with Memory(8192) as memory:
        source = np.random.default_rng(1).integers(0, 256, 8192, dtype="u1")

        def call(function, to, at, source, start, n):
            addresses = (ctypes.c_void_p(a.ctypes.data + o) for a, o in ((to, at), (source, start)))
            function(*addresses, ctypes.c_size_t(n))

        lengths = [*range(70), 127, 128, 129, 511, 512, 513, 575, 576, 577, 1024, 4096]
        for n in lengths:
            for skip in range(66) if n < 70 else (0, 1, 7, 8, 15, 63):
                memory.bytes[:] = 0xEE
                call(native.st, memory.bytes, skip, source, 5, n)
                expected = np.full(8192, 0xEE, np.uint8)
                expected[skip : skip + n] = source[5 : 5 + n]
                assert np.array_equal(memory.bytes, expected), (n, skip)
                target = np.full(8192, 0xDD, np.uint8)
                call(native.ld, target, 3, memory.bytes, skip, n)
                assert np.array_equal(target[3 : 3 + n], source[5 : 5 + n]), (n, skip)
                assert (target[:3] == 0xDD).all() and (target[3 + n :] == 0xDD).all()
