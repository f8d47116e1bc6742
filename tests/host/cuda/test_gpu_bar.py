# SPDX-License-Identifier: BSD-2-Clause
"""GPU memory that the simulated board maps: the library, with stand-ins for CUDA and Vulkan."""

import os
import signal
from pathlib import Path

import pytest

import peerdma
from peerdma.memory.memory import DataPath
from peerdma.testing import pattern
from peerdma.vfio_user import wire
from tests.boards import options
from tests.host.cuda.fake_cuda import DISCRETE, VIRTUAL
from tests.sim.board.vulkan_driver import compile_driver

BAR = (DataPath.GPU_BAR, DataPath.GPU_BAR)
STAGED = (DataPath.STAGED, DataPath.STAGED)


@pytest.fixture(scope="module")
def vulkan(tmp_path_factory):
    """What a board's environment needs to find the stand-in for Vulkan."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in compile_driver(tmp_path_factory.mktemp("vulkan")).items():
            patch.setenv(name, value)
        yield patch


@pytest.fixture
def board(vulkan):
    with peerdma.open("sim") as board:
        yield board


@pytest.fixture(autouse=True)
def virtual(cuda_api):
    """A GPU with all that this takes."""
    cuda_api.attributes.update(VIRTUAL)


def copies_of_the_cpu(cuda_api) -> int:
    return len(cuda_api.named("cuMemcpyHtoDAsync")) + len(cuda_api.named("cuMemcpyDtoHAsync"))


@pytest.mark.parametrize("dma_bufs", [0, 1], ids=["Vulkan", "dma-buf"])
def test_a_copy_takes_no_copy_of_this_process(board, device_gpu, cuda_api, dma_bufs, monkeypatch):
    cuda_api.attributes["DMA_BUF_MMAP_SUPPORTED"] = dma_bufs
    device_gpu.device.driver.version = 13, 3
    if dma_bufs:
        monkeypatch.setattr(type(cuda_api), "_cuMemGetHandleForAddressRange", dma_buf_of_all)
    with device_gpu.surface(300_000) as src, device_gpu.surface(300_000) as dst:
        src.fill(1)
        with board.pin(src) as s, board.pin(dst) as d:
            assert s.path is DataPath.GPU_BAR and s.provider == ""
            before = copies_of_the_cpu(cuda_api)
            transfer = board.copy(s[5:299_000], d[100:299_095])
            assert copies_of_the_cpu(cuda_api) == before
        assert transfer.path == BAR and "simulated card" in str(transfer)
        found = dst.get()
        assert (found[100:299_095] == src.get()[5:299_000]).all()
        assert not found[:100].any() and not found[299_095:].any()


def dma_buf_of_all(api, address, nbytes, kind, flags):
    """A dma-buf that can be mapped: the piece's own file, where it begins there."""
    (start,) = (at for at, (size, _) in api.mapped.items() if at <= address < at + size)
    assert start == address
    return os.dup(api.mapped[start][1]["PIECE"].fd)


def test_what_is_not_exported_is_staged_with_the_reason(board, device_gpu, cuda_api):
    cuda_api.attributes.update(DISCRETE)
    with device_gpu.surface(3000) as src, device_gpu.surface(3000) as dst:
        src.fill(1)
        with board.pin(src) as s, board.pin(dst) as d:
            assert "no file of it for other processes, as of memory of cudaMalloc" in s.provider
            assert board.copy(s, d).path == STAGED
        device_gpu.verify(dst, seed=1)


def test_what_vulkan_lacks_is_the_reason(vulkan, device_gpu):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANDIN_VULKAN", "gpu")
        with peerdma.open("sim") as board, device_gpu.surface(3000) as src, board.pin(src) as s:
            assert s.path is DataPath.STAGED and "Vulkan does not have this GPU" in s.provider


def test_an_older_board_is_the_reason(board, device_gpu, monkeypatch):
    monkeypatch.setattr(board._backend._platform.client, "maps_gpus", False)
    with device_gpu.surface(3000) as src, board.pin(src) as s:
        assert s.path is DataPath.STAGED and "of an older version" in s.provider


def test_only_an_offer_is_taken(vulkan):
    """Of what the board says in the version's data."""
    with peerdma.open("sim") as board:
        assert board._backend._platform.client.maps_gpus
    assert wire.Command.GPU_MAP > 0x7FFF, "the protocol's own numbers are below"


def test_memory_is_back_when_it_is_closed(board, device_gpu, cuda_api):
    """The board lets go of it with the last pin, so no file has a user then."""

    def held() -> int:
        pid = board._backend._platform._process._process.pid
        return Path(f"/proc/{pid}/maps").read_text().count("fake-gpu-memory")

    for _ in range(20):
        with device_gpu.surface(5 << 20) as surface:
            with board.pin(surface):
                assert held() == 1
            assert held() == 0


def test_arrays_of_others_in_virtual_memory(board, device_gpu, cuda_loaded):
    """As tensors of PyTorch's expandable segments: an array in the middle of an allocation."""
    with device_gpu.surface(1 << 20) as src, device_gpu.surface(1 << 20) as dst:
        src.fill(4)
        a, b = (Middle(surface, 4096 + 8, 100_000) for surface in (src, dst))
        transfer = board.copy(a, b)
        assert transfer.path == BAR
        expected = pattern.fill_bytes(4, 0, 1 << 20)[4104:104_104]
        found = dst.get()
        assert (found[4104:104_104] == expected).all()
        assert not found[:4104].any() and not found[104_104:].any()
        del a, b
        board.close()


def test_a_board_that_is_killed_in_the_middle_of_a_copy_is_named(vulkan, device_gpu, cuda_loaded):
    with device_gpu.surface(16 << 20) as src, device_gpu.surface(16 << 20) as dst:
        with peerdma.open("sim") as board:
            job = board.submit(src, dst)
            os.kill(board._backend._platform._process._process.pid, signal.SIGKILL)
            with pytest.raises(peerdma.BoardLost):
                job.result(60)
            del job
        src.fill(1)
        device_gpu.verify(src, seed=1)


class Middle:
    """A part of a surface, as an array of another library."""

    def __init__(self, surface, start, nbytes):
        self.keeps = surface
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (surface.device_address + start, False),
            "strides": None,
            "version": 3,
        }


def test_a_launch_queue_needs_no_thread_of_this_process(vulkan, device_gpu, cuda_api, cuda_loaded):
    """Its plans are not staged; a read of the GPU's memory is before each record."""
    with (
        peerdma.open("sim", arguments=options("launching")) as board,
        device_gpu.surface(4096) as src,
        device_gpu.surface(4096) as dst,
    ):
        src.fill(9)
        plan = board.prepare(src, dst)
        assert plan.path == BAR
        before = copies_of_the_cpu(cuda_api)
        with board.queue([plan], depth=8, gpu=device_gpu) as queue:
            queue.wait(queue.submit(0))
        assert copies_of_the_cpu(cuda_api) == before
        device_gpu.verify(dst, seed=9)
        del plan
